"""What the target is asked, so that a draft can learn how it answers.

The questions have the form of the four benchmark workloads, but share none of their
texts: code comes from package files that are not held out, topics and wordings are
lists of our own, and whatever shares a run of words with a frozen prompt is thrown
away (`overlaps_frozen`). All choices come from a generator that the caller gives.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from .. import checks, prompts
from ..corpora import SourceFile
from ..errors import SpecbookError

KINDS = (*prompts.WORKLOADS, "source")
"""The four workloads, and plain source files that nobody continues."""

FROZEN_RUN = 12
"""So many words in a row that are also in a frozen prompt make a text unusable."""

_PATIENCE = 200
"""Draws before we say that the files give no usable text."""


@dataclass(frozen=True)
class Ask:
    """One text for the target. `is_chat`: asked through the chat template; otherwise
    the bare beginning of a document."""

    kind: str
    text: str
    is_chat: bool


Sources = Mapping[str, Sequence[SourceFile]]
"""Files by package. A package is drawn first, so that a large one does not rule."""


def by_package(files: Iterable[SourceFile]) -> dict[str, list[SourceFile]]:
    """`files` by package, tests left out: they repeat literals that nobody drafts."""
    found: dict[str, list[SourceFile]] = {}
    for file in files:
        if not re.search(r"(^|/)(tests?|testing)/|(^|/)test_[^/]*$", file.path):
            found.setdefault(file.package, []).append(file)
    return found


def make(kind: str, files: Sources, generator: np.random.Generator) -> Ask:
    """One ask of `kind`, drawn from `files` and from our own lists.

    Raises `SpecbookError` for an unknown kind, or when no usable text is found.
    """
    checks.one_of(kind, "kind", KINDS)
    for _ in range(_PATIENCE):
        text = _MAKERS[kind](files, generator)
        if text is not None and not overlaps_frozen(text):
            return Ask(kind, text, kind not in ("continue_code", "source"))
    count = sum(map(len, files.values()))
    raise SpecbookError(f"no usable {kind} text was found in {count} files")


def overlaps_frozen(text: str) -> bool:
    """Whether `text` shares `FROZEN_RUN` words in a row with any frozen prompt."""
    return not _frozen_runs().isdisjoint(_runs(text))


def _runs(text: str) -> set[tuple[str, ...]]:
    words = re.findall(r"\w+", text.lower())
    return {
        tuple(words[i : i + FROZEN_RUN]) for i in range(len(words) - FROZEN_RUN + 1)
    }


_FROZEN: set[tuple[str, ...]] = set()


def _frozen_runs() -> set[tuple[str, ...]]:
    if not _FROZEN:
        for prompt in prompts.load():
            _FROZEN.update(_runs(prompt.text))
    return _FROZEN


# ------------------------------------------------------------------- source files


def _pick(items: Sequence[str], generator: np.random.Generator) -> str:
    return items[int(generator.integers(len(items)))]


def _file(files: Sources, generator: np.random.Generator) -> SourceFile:
    if not files:
        raise SpecbookError("there are no source files to draw from")
    package = files[_pick(sorted(files), generator)]
    return package[int(generator.integers(len(package)))]


def _source(files: Sources, generator: np.random.Generator) -> str | None:
    """A stretch of a file, from a line start."""
    lines = _file(files, generator).text.splitlines(keepends=True)
    if len(lines) < 20:
        return None
    start = int(generator.integers(len(lines) - 15))
    text = "".join(lines[start : start + 120])
    return text if text.strip() else None


def _continue(files: Sources, generator: np.random.Generator) -> str | None:
    """The beginning of a file or of a top-level definition, cut after a line."""
    lines = _file(files, generator).text.splitlines(keepends=True)
    heads = [0] + [
        i for i, line in enumerate(lines) if line.startswith(("def ", "class ", "@"))
    ]
    start = heads[int(generator.integers(len(heads)))]
    count = int(generator.integers(6, 40))
    text = "".join(lines[start : start + count])
    return text if text.strip() and len(text) > 80 else None


def _functions(source: str) -> list[tuple[str, str]]:
    """(name, text) of the functions and classes of 5 to 36 lines, unindented."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return []
    lines = source.splitlines(keepends=True)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            last = node.end_lineno or node.lineno
            if 5 <= last - first + 1 <= 36:
                text = textwrap.dedent("".join(lines[first - 1 : last]))
                found.append((node.name, text))
    return found


_NAMES = (
    "handle load_rows build_index compute_total make_table read_all find_first "
    "collect merge_parts step advance update_state resolve_name apply_rules scan "
    "prepare convert_item check_bounds expand_node write_out pick_best gather flatten "
    "as_text process sort_keys filter_items count_edges next_state render emit"
).split()
_CLASSES = (
    "Holder Reader Worker Builder Table Record Walker Handler Store Printer Matcher "
    "Group Visitor Context Entry Registry Layout Cursor"
).split()
_VARIABLES = (
    "value item result data current other entry first left right source dest index "
    "total buffer options text node key target"
).split()

_EDITS = (
    "Please give me this code again, with `{old}` now called `{new}`.",
    "Rename `{old}` to `{new}` in the snippet and show the new version.",
    "I want `{old}` to have the name `{new}`. Show me the changed code.",
    "Change the name {old} to {new} in the Python below. Return just the code.",
    "The name {old} is misleading. Use {new} instead and write the code once more.",
    "Replace {old} with {new} everywhere below. Reply with code only.",
    "Write this again and use {new} where it says {old}. No explanation, please.",
)
_PLAIN_EDITS = (
    "Add a short comment above every statement of this code.",
    "Give every parameter of this code a type hint and print the full code.",
    "Write a docstring for this code. Keep all of its lines.",
    "Show this code again without its comments.",
    "Improve the error messages in this code and print it in full.",
    "Print this code once more, unchanged.",
    "Reproduce the snippet and add a print of the result at its end.",
    "Put a blank line between the steps of this code and show it.",
    "Return this code with its docstring made shorter. Code only.",
    "Turn the long lines of this code into shorter ones. Show the whole code.",
    "Make the local names in this code more descriptive and print all of it.",
    "Copy out the code that follows.",
)


def _edit(files: Sources, generator: np.random.Generator) -> str | None:
    functions = _functions(_file(files, generator).text)
    if not functions:
        return None
    name, code = functions[int(generator.integers(len(functions)))]
    if generator.random() < 0.3:
        ask = _pick(_PLAIN_EDITS, generator)
    else:
        old, new = name, _pick(_CLASSES if name[:1].isupper() else _NAMES, generator)
        if generator.random() < 0.5:
            words = sorted(set(re.findall(r"\b[a-z_]{3,}\b(?=\s*[=,.)])", code)))
            if words:
                old, new = _pick(words, generator), _pick(_VARIABLES, generator)
        if old == new:
            return None
        ask = _pick(_EDITS, generator).format(old=old, new=new)
    return f"{ask}\n\n```python\n{code}```"


_QUESTIONS = (
    "What does this passage say about {word}? Copy the sentences.",
    "Quote the part of the text that explains {word}.",
    "Sum up the following passage in its own words.",
    "Make a list of the main points below, worded as they are there.",
    "Which sentence of the passage is the most important one? Repeat it.",
    "Read this and tell me what {word} is for, with quotations.",
    "Extract the facts from the passage, one on each line.",
    "Repeat the passage, leaving out whatever is not about {word}.",
    "Answer from the passage alone: how is {word} used?",
    "Write down everything the text states about {word}.",
    "Turn this passage into numbered points and keep its words.",
    "Copy the first and the last statement of this text.",
)


def _answer(files: Sources, generator: np.random.Generator) -> str | None:
    """A question on a paragraph of prose from a docstring."""
    try:
        tree = ast.parse(_file(files, generator).text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    passages = []
    for node in ast.walk(tree):
        if isinstance(
            node, (ast.Module, ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)
        ):
            passages += _paragraphs(ast.get_docstring(node) or "")
    if not passages:
        return None
    passage = _pick(passages, generator)
    words = sorted(set(re.findall(r"\b[a-z]{5,}\b", passage)))
    if not words:
        return None
    ask = _pick(_QUESTIONS, generator).format(word=_pick(words, generator))
    return f"{ask}\n\n{passage}"


def _paragraphs(docstring: str) -> list[str]:
    """Runs of neighbouring prose paragraphs, 50 to 220 words together."""
    found, run = [], ""
    for part in [*re.split(r"\n\s*\n", docstring), ""]:
        words = part.split()
        prose = (
            len(words) >= 8
            and not re.search(r"^\s*(>>>|\.\. |:|[-=*~]{3})", part, re.M)
            and sum(word.isalpha() for word in words) > 0.6 * len(words)
        )
        joined = f"{run} {' '.join(words)}".strip()
        if prose and len(joined.split()) <= 220:
            run = joined
            continue
        if 50 <= len(run.split()):
            found.append(run)
        run = " ".join(words) if prose and len(words) <= 220 else ""
    return found


_TOPICS = (
    "volcanoes|the water cycle|photosynthesis|bicycles|chess|tea|coffee|chocolate|"
    "whales|spiders|ants|eagles|elephants|migrating birds|coral reefs|deserts|rivers|"
    "rainforests|earthquakes|tides|the moon|comets|black holes|satellites|telescopes|"
    "electric cars|wind turbines|solar panels|batteries|bridges|lifts|clocks|magnets|"
    "glass|paper|steel|concrete|soap|plastic|the printing press|the steam engine|"
    "the telephone|radio|photography|cinema|jazz|the violin|the piano|drums|opera|"
    "painting with watercolours|pottery|knitting|sewing|woodworking|origami|"
    "swimming|yoga|basketball|tennis|cycling to work|stretching|healthy breakfasts|"
    "making pasta|growing herbs|pickling vegetables|cooking rice|baking cookies|"
    "keeping a cat|training a puppy|an aquarium|composting|saving water at home|"
    "household budgets|saving money|credit cards|taxes|inflation|trade|insurance|"
    "writing an e-mail|giving a speech|taking notes|learning vocabulary|reading more|"
    "working from home|team meetings|asking for a raise|managing stress|being on time|"
    "moving to another country|planning a birthday party|a visit to a museum|camping|"
    "a train journey|a road trip|photographs of the night sky|maps|calendars|"
    "the Silk Road|ancient Egypt|the Vikings|the Renaissance|the Olympic Games|"
    "the Industrial Revolution|democracy|courts|the United Nations|elections|"
    "fractions|prime numbers|probability|statistics|geometry|algebra|the number zero|"
    "databases|web browsers|search engines|passwords|spreadsheets|robots|"
    "machine learning|operating systems|the internet|recycling electronics|"
    "colours|smell and taste|the human heart|bones|memory|dreams in literature|"
    "allergies|dental care|first aid|drinking enough water|the common cold"
).split("|")

_CHATS = (
    "Explain {topic} in simple words.",
    "What should a beginner know about {topic}?",
    "Tell me three interesting facts about {topic}.",
    "Why does {topic} matter?",
    "Write a short paragraph about {topic}.",
    "Give me five tips on {topic}.",
    "What are the pros and cons of {topic}?",
    "How did people think about {topic} a hundred years ago?",
    "Describe {topic} to somebody who has never heard of it.",
    "Which mistakes do people make with {topic}?",
    "Write a dialogue of two friends about {topic}.",
    "What is a common misunderstanding about {topic}?",
    "Make a list of questions that I could ask about {topic}.",
    "How would you start a talk about {topic}?",
    "Write a short story in which {topic} plays a part.",
    "Compare {topic} with {other}.",
    "What do {topic} and {other} have in common?",
    "Outline an article about {topic}.",
    "I know nothing about {topic}. Where do I begin?",
    "Write four lines of verse about {topic}.",
    "Could you recommend a first project to do with {topic}?",
    "What happens if one ignores {topic}?",
)


def _chat(_: Sources, generator: np.random.Generator) -> str:
    topic, other = generator.choice(len(_TOPICS), size=2, replace=False)
    return _pick(_CHATS, generator).format(topic=_TOPICS[topic], other=_TOPICS[other])


_MAKERS = {
    "continue_code": _continue,
    "edit_code": _edit,
    "answer_from_text": _answer,
    "chat": _chat,
    "source": _source,
}


def wordings() -> Iterable[str]:
    """Every fixed text of the asks, for the key of the data and the leakage test."""
    return (
        *(*_EDITS, *_PLAIN_EDITS, *_QUESTIONS, *_CHATS, *_TOPICS),
        *(*_NAMES, *_CLASSES, *_VARIABLES),
    )
