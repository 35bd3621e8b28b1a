"""The indexes that `specbook bench retrieval` compares, each behind the same questions.

The question that all of them answer is REST's (0x04B): given the last tokens of a
prefix, which is the longest suffix, up to a limit, that some document goes on from,
and which continuations are the most frequent? An index that answers another question
in its own use is asked that one too, as a system of its own.

Run as a program, this module measures the memory of one index in a process of its own.
"""

from __future__ import annotations

import ctypes
import gc
import heapq
import importlib
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from ..drafts.automaton import BORDER, FrozenAutomaton
from ..errors import SpecbookError

Prefix = tuple[int, ...]
Index = Any
IDS = 2**31
"""Token ids are below this here: those of ArcticInference are int32."""

Documents = Sequence[np.ndarray]


@dataclass(frozen=True)
class Limits:
    """The size of a question: the longest suffix that is looked up, and how many nodes
    of the continuations' tree are wanted, which also bounds its depth."""

    max_suffix: int
    node_budget: int

    @property
    def context(self) -> int:
        """How many last tokens of a prefix an index is given: one more than it may
        match, since ArcticInference never matches all of what it is given."""
        return self.max_suffix + 1


@dataclass(frozen=True)
class Answer:
    """`match`: the length of the suffix that was found. `weights`: the full prefix of
    each node of the tree with its count, or with its share of the match's places."""

    match: int
    weights: dict[Prefix, float]


@dataclass(frozen=True)
class System:
    """One index. `prepare` puts the documents into the form that it likes best, which
    is not timed; `build` makes the index; `ask` asks it as in decoding, and is what is
    timed; `answer` asks it too, and says what it told.

    `kind` is what a right answer is: "ranked" (the longest match; the nodes of highest
    count, then shallower, then of smaller ids), "counts" (the same, in any order among
    equal counts, with shares in place of counts), "share" (a match and a tree that it
    chose itself, with the right shares) or "copy" (the longest match, and one of its
    continuations). `needs`: another package that it is built with. `better`: what it is
    better at than the others. `slow`: it is asked fewer queries.
    """

    name: str
    package: str
    kind: str
    prepare: Callable[[Documents], Any]
    build: Callable[[Any, Limits], Index]
    ask: Callable[[Index, Sequence[int], Limits], Any]
    answer: Callable[[Index, Sequence[int], Limits], Answer]
    better: str
    needs: str = ""
    built_as: str = ""
    slow: bool = False
    install: str = ""

    @property
    def index(self) -> str:
        """The name of the system whose index it asks: mostly its own."""
        return self.built_as or self.name

    def missing(self) -> str | None:
        """None if it can run here, otherwise how to get it."""
        lacking = why_missing(self.package, self.install)
        return lacking or (why_missing(self.needs) if self.needs else None)

    def version(self) -> str:
        """Of the package that it comes from."""
        try:
            return metadata.version(self.package.partition(".")[0].replace("_", "-"))
        except metadata.PackageNotFoundError:
            return "unknown"


def why_missing(package: str, install: str = "") -> str | None:
    """None if `package` can be imported, otherwise why not, and how to get it."""
    try:
        importlib.import_module(package)
    except ImportError as error:
        return f"{error}; {install}" if install else str(error)
    return None


def _lists(documents: Documents) -> list[list[int]]:
    return [document.tolist() for document in documents]


# ------------------------------------------------------------------ our suffix array


def _build_rest(documents: Any, limits: Limits) -> Index:
    from ..drafts.rest import Datastore

    return Datastore.build(documents, continuation_length=limits.node_budget)


def _ask_rest(index: Index, context: Sequence[int], limits: Limits) -> Any:
    return index.best_nodes(context, limits.max_suffix, limits.node_budget)


def _propose_rest(index: Index, context: Sequence[int], limits: Limits) -> Any:
    from ..drafts.rest import rest_propose

    return rest_propose(context, index, limits.max_suffix, limits.node_budget)


def _answer_rest(index: Index, context: Sequence[int], limits: Limits) -> Answer:
    nodes = _ask_rest(index, context, limits)
    return Answer(
        index.longest_suffix(context, limits.max_suffix),
        _weights(
            [node.token for node in nodes],
            [node.parent for node in nodes],
            [node.frequency for node in nodes],
        ),
    )


def _answer_proposal(index: Index, context: Sequence[int], limits: Limits) -> Answer:
    nodes = _propose_rest(index, context, limits).nodes
    return Answer(
        index.longest_suffix(context, limits.max_suffix),
        _weights(
            [node.token_id for node in nodes],
            [node.parent for node in nodes],
            [node.score for node in nodes],
        ),
    )


def _weights(
    tokens: Sequence[int], parents: Sequence[int], values: Sequence[float]
) -> dict[Prefix, float]:
    prefixes: list[Prefix] = []
    for token, parent in zip(tokens, parents, strict=True):
        prefixes.append((*(prefixes[parent] if parent >= 0 else ()), token))
    return dict(zip(prefixes, values, strict=True))


# ------------------------------------------------------- ArcticInference's suffix tree


def _int32(documents: Documents) -> list[np.ndarray]:
    return [np.ascontiguousarray(d, dtype=np.int32) for d in documents]


def _build_arctic(documents: Any, limits: Limits) -> Index:
    from arctic_inference.suffix_decoding._C import SuffixTree

    # As deep as a longest match and its deepest continuation together.
    tree = SuffixTree(limits.max_suffix + limits.node_budget)
    for number, document in enumerate(documents):
        tree.extend_ndarray(number, document)
    return tree


def _ask_arctic(index: Index, context: Sequence[int], limits: Limits) -> Any:
    """Its own score prefers other lengths than the longest, so it is asked twice: how
    long the match is, with no tokens wanted, and then for a draft that only a match of
    that length may have."""
    last = np.array(context[-limits.context :], dtype=np.int32)
    length = index.speculate_ndarray(last, 0, 1.0, 0.0, 0.0, True).match_len
    budget = limits.node_budget
    while length:
        draft = index.speculate_ndarray(
            last[len(last) - length - 1 :],
            budget,
            float(budget),
            float(-budget * (length - 1)),
            0.0,
            True,
        )
        tokens = draft.token_ids
        if tokens:
            return length, tokens, draft.parents, draft.probs
        length -= 1  # nothing follows this suffix
    return 0, [], [], []


def _ask_arctic_once(index: Index, context: Sequence[int], limits: Limits) -> Any:
    """As vLLM asks it: the draft with the best score over all match lengths."""
    last = np.array(context[-limits.context :], dtype=np.int32)
    draft = index.speculate_ndarray(last, limits.node_budget, 1.0, 0.0, 0.1, True)
    tokens = draft.token_ids
    return draft.match_len if tokens else 0, tokens, draft.parents, draft.probs


def _answer_arctic(index: Index, context: Sequence[int], limits: Limits) -> Answer:
    length, *tree = _ask_arctic(index, context, limits)
    return Answer(length, _weights(*tree))


def _answer_arctic_once(index: Index, context: Sequence[int], limits: Limits) -> Answer:
    length, *tree = _ask_arctic_once(index, context, limits)
    return Answer(length, _weights(*tree))


# --------------------------------------------------------------- our suffix automaton


def _build_automaton(documents: Any, limits: Limits) -> Index:
    return FrozenAutomaton(documents)


def _ask_automaton(index: Index, context: Sequence[int], limits: Limits) -> Any:
    """It reads the context from its beginning. In decoding a session keeps its place,
    and only the new tokens are read."""
    place = index.START
    for token in context[-limits.max_suffix :]:
        place = index.step(place, token)
    end, length = index.match(place)
    return length, index.copy(end, limits.node_budget) if length else []


def _answer_automaton(index: Index, context: Sequence[int], limits: Limits) -> Answer:
    length, tokens = _ask_automaton(index, context, limits)
    return Answer(length, {tuple(tokens[: i + 1]): 1 for i in range(len(tokens))})


# ------------------------------------------------------------------------ plain Python


def _build_scan(documents: Any, limits: Limits) -> Index:
    return [token for document in documents for token in (*document, BORDER)]


def _ask_scan(index: Index, context: Sequence[int], limits: Limits) -> Any:
    length, ends = scan(index, context[-limits.max_suffix :])
    return length, most_frequent(index, ends, limits.node_budget)


def _answer_scan(index: Index, context: Sequence[int], limits: Limits) -> Answer:
    length, counts = _ask_scan(index, context, limits)
    return Answer(length, counts)


def scan(tokens: Sequence[int], suffix: Sequence[int]) -> tuple[int, list[int]]:
    """The longest end of `suffix` that stands somewhere in `tokens` with a token after
    it: its length, and every place where it ends, whatever follows. `tokens` end with
    a `BORDER`. Every position is looked at."""
    matches = []
    for end in range(1, len(tokens)):
        length = 0
        while (
            length < min(len(suffix), end)
            and tokens[end - 1 - length] == suffix[-1 - length]
        ):
            length += 1
        if length:
            matches.append((end, length))
    followed = [length for end, length in matches if tokens[end] != BORDER]
    best = max(followed, default=0)
    return best, [end for end, length in matches if best and length >= best]


def most_frequent(
    tokens: Sequence[int], ends: Sequence[int], most: int
) -> dict[Prefix, int]:
    """The `most` prefixes of what follows `ends` that occur most often, with their
    counts; of equal counts the shorter ones first, and then those of smaller ids."""
    best: dict[Prefix, int] = {}
    heap: list[tuple[int, int, Prefix, list[int]]] = [(0, 0, (), list(ends))]
    while heap and len(best) <= most:
        count, depth, prefix, places = heapq.heappop(heap)
        best[prefix] = -count
        after: dict[int, list[int]] = {}
        for end in places:
            if (token := tokens[end + depth]) != BORDER:
                after.setdefault(token, []).append(end)
        for token, still in after.items():
            heapq.heappush(heap, (-len(still), depth + 1, (*prefix, token), still))
    del best[()]
    return best


ARCTIC = "arctic_inference.suffix_decoding._C"
INSTALL = (
    "it is the package arctic-inference 0.3 of PyPI, an sdist: with a C++20 compiler, "
    "cmake and ninja, `pip install nanobind==2.9.2 setuptools wheel grpcio-tools`, "
    'then `CMAKE_ARGS="-DPython_EXECUTABLE=$(which python)" pip install --no-deps '
    "--no-build-isolation arctic-inference`"
)

SUFFIX_ARRAY = System(
    name="suffix array",
    package="specbook.drafts.rest",
    kind="ranked",
    prepare=list,
    needs="pydivsufsort",
    build=_build_rest,
    ask=_ask_rest,
    answer=_answer_rest,
    better="a large corpus that is built once: a few bytes a token, saved to disk, "
    "mapped by many processes, and every suffix and continuation in it, at any "
    "length, can be counted",
)
SUFFIX_TREE = System(
    name="Arctic suffix tree",
    package=ARCTIC,
    kind="counts",
    prepare=_int32,
    build=_build_arctic,
    ask=_ask_arctic,
    answer=_answer_arctic,
    better="a corpus that changes while it is used: a token is added to any "
    "sequence, and a whole sequence is removed again, at any time",
    install=INSTALL,
)
# What asks another system's index is that system but for what is said of it here.
SYSTEMS = (
    SUFFIX_ARRAY,
    replace(
        SUFFIX_ARRAY,
        name="suffix array, proposal",
        ask=_propose_rest,
        answer=_answer_proposal,
        built_as=SUFFIX_ARRAY.name,
        better="the same, as `rest_propose` returns it: a proposal that is typed and "
        "checked node by node",
    ),
    SUFFIX_TREE,
    replace(
        SUFFIX_TREE,
        name="Arctic, its own rule",
        kind="share",
        ask=_ask_arctic_once,
        answer=_answer_arctic_once,
        built_as=SUFFIX_TREE.name,
        better="choosing the match length by the expected number of accepted tokens",
    ),
    System(
        name="suffix automaton",
        package="specbook.drafts.automaton",
        kind="copy",
        prepare=_lists,
        build=_build_automaton,
        ask=_ask_automaton,
        answer=_answer_automaton,
        better="text that grows by one token at a time: no limit on the match and an "
        "amortised constant a token; it tells one place, and no counts",
    ),
    System(
        name="plain scan",
        package="specbook.drafts.automaton",
        kind="ranked",
        prepare=_lists,
        build=_build_scan,
        ask=_ask_scan,
        answer=_answer_scan,
        slow=True,
        better="being obviously right: it is what the answers are checked against",
    ),
)
NAMES = tuple(system.name for system in SYSTEMS)


def named(name: str) -> System:
    """The system of that name. Raises `ValueError` for an unknown one."""
    for system in SYSTEMS:
        if system.name == name:
            return system
    raise SpecbookError(f"no system is called {name!r}; there are {list(NAMES)}")


# ----------------------------------------------------------------------------- memory


def save_documents(path: str | Path, documents: Documents) -> None:
    """Documents for another process."""
    lengths = np.array([len(document) for document in documents], dtype=np.int64)
    ids = np.concatenate([np.empty(0, np.int64), *documents])
    np.savez(path, ids=ids, lengths=lengths)


def load_documents(path: str | Path) -> list[np.ndarray]:
    """What `save_documents` wrote."""
    with np.load(path, allow_pickle=False) as stored:
        return np.split(stored["ids"], np.cumsum(stored["lengths"]))[:-1]


def memory(name: str, path: str | Path, limits: Limits) -> dict[str, int]:
    """Bytes that building `name` over the stored documents adds to this process:
    `held` afterwards, `peak` in between. Meant for a fresh process."""
    system = named(name)
    documents = load_documents(path)
    # What a first build loads or allocates once and for all is not the index's.
    small = system.build(system.prepare(documents[:1]), limits)
    prepared = system.prepare(documents)
    del small, documents
    gc.collect()
    trim()
    before = resident()
    reset_peak()
    index = system.build(prepared, limits)
    peak = peak_resident()
    gc.collect()
    trim()
    held = resident()
    del index
    return {"held": held - before, "peak": max(peak, held) - before}


def resident() -> int:
    """The resident memory of this process, in bytes."""
    import psutil

    return int(psutil.Process().memory_info().rss)


def peak_resident() -> int:
    """The most resident memory that this process ever had, or since `reset_peak` where
    the system can forget (Linux)."""
    status = Path("/proc/self/status")
    if status.exists():
        for line in status.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    import psutil

    info = psutil.Process().memory_info()
    if hasattr(info, "peak_wset"):
        return int(info.peak_wset)
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most


def reset_peak() -> None:
    """Lets the peak begin anew, where the system can do that."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        pass


def trim() -> None:
    """Gives freed memory back to the system, where its allocator can be told to."""
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError, TypeError):
        pass


def main(arguments: Sequence[str]) -> None:
    """Prints the memory of one index as JSON: NAME FILE MAX_SUFFIX NODE_BUDGET."""
    name, path, max_suffix, node_budget = arguments
    found = memory(name, path, Limits(int(max_suffix), int(node_budget)))
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
