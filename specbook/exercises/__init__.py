"""Exercises that look at the reader's answer.

Each notebook has a module here, `s07` for `0x07_...`, with a table EXERCISES. In the
notebook an exercise is a stub and a call:

    def merged_rows(paths):
        ...                                    # about three lines

    exercises.check("0x07-merged-rows", merged_rows)

`check` reports and never raises for what the reader wrote, so an unsolved notebook
still runs to its end. The solution stands in a folded cell (tag `hide-cell`), which a
test run executes: `assert exercises.check("0x07-merged-rows", solution).solved`.
Cases are drawn anew at every call, so an answer cannot be fitted to them.
"""

from __future__ import annotations

import copy
import itertools
import math
import re
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from html import escape
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from .. import checks, claims, display
from ..errors import SpecbookError

TOLERANCE = 1e-9
"""Floats agree within this, absolute and relative. Integers and Fractions: exactly."""

MAX_SHOWN = 300
MIN_EXERCISES = 3
_ID = re.compile(r"0x([0-9A-F]{2})[A-Z]{0,2}(-[a-z0-9]+)+")
_attempts: Counter[str] = Counter()


class ExerciseError(SpecbookError):
    """The author, not the reader, made a mistake: no such exercise, or no cases."""


@dataclass(frozen=True)
class Exercise:
    """One exercise and its judge.

    `id`: the notebook's section, then words: "0x07-merged-rows".
    `question`: one or two sentences.
    `cases(rng)`: fresh cases from a numpy Generator, easy ones first. A tuple is the
        reader's arguments, in order; anything else is the one argument.
    `oracle(case)`: the right value, found in another way than the reader is asked for.
    `diagnose(case, answer, truth)`: the likely mistake in a wrong value, or None.
    `cost(case, answer)`: what a right value costs, added up over the cases and
        compared with the oracle's own; None where no cost fits. `cost_unit`: its unit.
    `right(case, answer, truth)`: for exercises with many right values; the default is
        `same(answer, truth)`.
    `takes_value`: the reader hands over the value itself and not a function.
    """

    id: str
    question: str
    cases: Callable[[np.random.Generator], Iterable[Any]]
    oracle: Callable[[Any], Any]
    diagnose: Callable[[Any, Any, Any], str | None] | None = None
    cost: Callable[[Any, Any], Any] | None = None
    cost_unit: str = ""
    right: Callable[[Any, Any, Any], bool] | None = None
    takes_value: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.id, str) or not _ID.fullmatch(self.id):
            raise ExerciseError(
                f"an exercise id looks like '0x07-rows', not {self.id!r}"
            )
        if not isinstance(self.question, str) or not self.question.strip():
            raise ExerciseError(f"exercise {self.id!r} asks nothing")
        if (self.cost is None) != (self.cost_unit == ""):
            raise ExerciseError(f"exercise {self.id!r}: a cost needs its unit")


@dataclass
class Report:
    """What was found. `status`: "solved", "wrong", "crashed", "unsolved" or "no answer"
    (not something that can be tried). `passed` of `total` cases; `lines`: the message,
    line by line; `cost` and `reference_cost` when solved and scored; `seed` draws the
    same cases again."""

    id: str
    status: str
    passed: int
    total: int
    lines: list[str]
    seed: int
    cost: Any = None
    reference_cost: Any = None
    _fresh: bool = True

    @property
    def solved(self) -> bool:
        """Whether every case came out right."""
        return self.status == "solved"

    def __str__(self) -> str:
        return "\n".join([f"Exercise {self.id}: {self.title}", *self.lines])

    def __repr__(self) -> str:
        return f"<Report {self.id}: {self.status}, {self.passed} of {self.total}>"

    @property
    def title(self) -> str:
        """The first line: the verdict with its count."""
        count = f"{self.passed} of {self.total} cases"
        return {
            "solved": f"solved, {count}",
            "wrong": f"not yet, {count}",
            "crashed": f"it crashed, {count} before that",
            "unsolved": "not tried yet",
            "no answer": "nothing to try",
        }[self.status]

    def html(self) -> str:
        """The report as a box. Its verdict is in words, not in a colour."""
        box = display.LIGHT_BOX.format(edge=EDGES[self.status])
        lines = "".join(
            f'<div style="{display.MONO};white-space:pre-wrap">'
            f"{display.marked(line)}</div>"
            for line in self.lines
        )
        return (
            f'<div class="specbook-exercise" style="{box}"><strong '
            f'style="color:#1a1a1a">Exercise {escape(self.id)}: {escape(self.title)}'
            f"</strong>{lines}</div>"
        )

    def show(self) -> None:
        """Displays the report."""
        display.show(self.html(), str(self))

    def _ipython_display_(self) -> None:
        # `check` has just shown it; as the last value of that cell it stays silent.
        if not self._fresh:
            self.show()
        self._fresh = False


EDGES = {
    "solved": "#009E73",
    "wrong": "#D55E00",
    "crashed": "#D55E00",
    "unsolved": "#6b6b6b",
    "no answer": "#6b6b6b",
}


def get(exercise_id: str) -> Exercise:
    """The exercise with this id. Raises `ExerciseError` for an unknown one."""
    match = _ID.fullmatch(exercise_id) if isinstance(exercise_id, str) else None
    if match is None:
        raise ExerciseError(
            f"an exercise id looks like '0x07-rows', not {exercise_id!r}"
        )
    table = of_notebook(match[1])
    if exercise_id not in table:
        raise ExerciseError(f"no exercise {exercise_id!r}; there are {sorted(table)}")
    return table[exercise_id]


def of_notebook(number: str) -> dict[str, Exercise]:
    """The exercises of the notebook `0x<number>_...`; none if it has no module."""
    name = f"{__name__}.s{number.lower()}"
    if find_spec(name) is None:
        return {}
    table = import_module(name).EXERCISES
    for key, exercise in table.items():
        if key != exercise.id or not key.startswith(f"0x{number}"):
            raise ExerciseError(f"{name}: {key!r} is the key of {exercise.id!r}")
    return table


def check(exercise_id: str, answer: Any = None, *, seed: int | None = None) -> Report:
    """Tries the reader's `answer` on fresh random cases and shows a report.

    `answer`: a function (or a value, where the exercise asks for one); None and `...`
    stand for "not tried yet", and so does a function that returns one of them.
    `seed`: None draws new cases at each call; the number in a report draws its cases
    again. Whatever the reader's function does is reported and not raised; only an
    unknown id raises (`ExerciseError`).
    """
    exercise = get(exercise_id)
    if seed is None:
        # New cases at each try, and yet the same page from each run of a notebook.
        _attempts[exercise_id] += 1
        seed = zlib.crc32(f"{exercise_id} {_attempts[exercise_id]}".encode())
    report = grade(exercise, answer, seed)
    report.show()
    return report


def grade(exercise: Exercise, answer: Any, seed: int) -> Report:
    """The report of `check`, without showing it."""
    checks.integer(seed, "seed", least=0)
    cases = list(exercise.cases(np.random.default_rng(seed)))
    if not cases:
        raise ExerciseError(f"exercise {exercise.id!r} has no cases")

    def report(status: str, passed: int, lines: list[str], **costs: Any) -> Report:
        return Report(exercise.id, status, passed, len(cases), lines, seed, **costs)

    question = " ".join(exercise.question.split())
    if _blank(answer):
        return report("unsolved", 0, [question])
    if callable(answer) == exercise.takes_value:
        wanted = "value" if exercise.takes_value else "function"
        got = f"got {_short(answer)}"
        return report("no answer", 0, [f"Hand over a {wanted}; {got}.", question])

    passed, blank, failure = 0, 0, None
    costs, reference = [], []
    for case in cases:
        given, expected = copy.deepcopy(case), copy.deepcopy(case)
        truth = exercise.oracle(expected)
        try:
            value = answer if exercise.takes_value else _call(answer, given)
        except NotImplementedError:
            blank += 1
            continue
        except KeyboardInterrupt:
            raise  # the reader stopped it, and not the answer
        except BaseException as error:  # `exit()` too: it would end the kernel
            told = _crash(error, answer)
            lines = [f"On {_arguments(case)}", *told, f"Right: {_short(truth)}"]
            return report("crashed", passed, [*lines, _again(exercise, seed)])
        blank += _blank(value)
        if _right(exercise, case, value, truth):
            passed += 1
            if exercise.cost is not None:
                costs.append(exercise.cost(given, value))
                reference.append(exercise.cost(expected, truth))
        elif failure is None:
            failure = (case, value, truth)
    if blank == len(cases) and passed < len(cases):
        return report("unsolved", 0, [question])
    if failure is not None or passed < len(cases):
        lines = [] if failure is None else _explain(exercise, *failure)
        return report("wrong", passed, [*lines, _again(exercise, seed)])
    if exercise.cost is None:
        return report("solved", passed, [])
    yours, ours = sum(costs), sum(reference)
    line = f"Cost: yours {_short(yours)}, ours {_short(ours)} {exercise.cost_unit}"
    verdict = ", cheaper than ours" if yours < ours else ", the same"
    line += verdict if yours <= ours else ", which can be done for less"
    return report("solved", passed, [line], cost=yours, reference_cost=ours)


def _blank(value: Any) -> bool:
    return value is None or value is ...


def _call(answer: Callable[..., Any], case: Any) -> Any:
    return answer(*case) if isinstance(case, tuple) else answer(case)


def _right(exercise: Exercise, case: Any, value: Any, truth: Any) -> bool:
    if exercise.right is None:
        return same(value, truth)
    try:
        return bool(exercise.right(case, value, truth))
    except Exception:
        return False  # the judge could not read it, so it is no right value


def _explain(exercise: Exercise, case: Any, value: Any, truth: Any) -> list[str]:
    lines = []
    if not exercise.takes_value:
        lines.append(f"On {_arguments(case)}")
    lines += [f"Yours: {_short(value)}", f"Right: {_short(truth)}"]
    hint = None
    if exercise.diagnose is not None:
        try:
            hint = exercise.diagnose(case, value, truth)
        except Exception:
            hint = None  # a value of a strange shape is nothing it can read
    if hint := hint or _usual_mistake(value, truth):
        lines.append(f"Likely mistake: {hint}")
    return lines


def _usual_mistake(value: Any, truth: Any) -> str | None:
    if _blank(value) and not _blank(truth):
        return "your function returns nothing here; is a return missing on one way out?"
    if isinstance(truth, Fraction) and isinstance(value, float):
        if math.isclose(value, truth, rel_tol=1e-9, abs_tol=1e-12):
            return "the number is right but rounded; keep it a Fraction."
    if isinstance(truth, (list, tuple)) and isinstance(value, (list, tuple)):
        if len(value) != len(truth):
            return f"yours has {len(value)} entries, the right one {len(truth)}."
        try:
            if sorted(value) == sorted(truth):
                return "the entries are right, their order is not."
        except (TypeError, ValueError):
            return None
    return None


def _crash(error: BaseException, answer: Any) -> list[str]:
    """What was raised, and in which line of the reader's own function."""
    line = ""
    code = getattr(answer, "__code__", None)
    for frame, number in traceback.walk_tb(error.__traceback__):
        if code is not None and frame.f_code is code:
            line = f" (line {number - code.co_firstlineno + 1} of {code.co_name})"
    return [f"Yours raised {type(error).__name__}{line}: {_clip(str(error))}"]


def _again(exercise: Exercise, seed: int) -> str:
    return f"Same cases again: exercises.check({exercise.id!r}, ..., seed={seed})"


def _arguments(case: Any) -> str:
    several = case if isinstance(case, tuple) else (case,)
    return ", ".join(_short(argument) for argument in several)


def _short(value: Any) -> str:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Fraction):
        return str(value)
    try:
        told = re.sub(r"Fraction\((-?\d+), (\d+)\)", r"\1/\2", repr(value))
        return _clip(re.sub(r"(?<![\d/])(-?\d+)/1(?![\d/])", r"\1", told))
    except Exception:
        return f"something of type {type(value).__name__} that cannot be printed"


def _clip(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 4] + " ..."


def same(value: Any, truth: Any) -> bool:
    """Whether two values agree: numbers exactly, floats within `TOLERANCE`; lists,
    tuples and arrays entry by entry; mappings by key; sets as sets. A float never
    equals a Fraction that it only rounds."""
    try:
        return _same(value, truth)
    except Exception:
        return False


def _same(value: Any, truth: Any) -> bool:
    value, truth = _plain(value), _plain(truth)
    if isinstance(truth, Mapping):
        if not isinstance(value, Mapping) or set(value) != set(truth):
            return False
        return all(_same(value[key], truth[key]) for key in truth)
    if isinstance(truth, (list, tuple)):
        if not isinstance(value, (list, tuple)) or len(value) != len(truth):
            return False
        return all(itertools.starmap(_same, zip(value, truth, strict=True)))
    if isinstance(truth, float) and isinstance(value, (int, float, Fraction)):
        return math.isclose(value, truth, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return bool(value == truth)


def _plain(value: Any) -> Any:
    """Arrays and tensors as lists, numpy scalars as Python's."""
    return value.tolist() if hasattr(value, "tolist") else value


# ----------------------------------------------------- notebooks against the modules


def notebook_faults(notebooks: Path) -> list[str]:
    """Where the exercises of a folder of MyST notebooks fall short of the house's
    form: at least three in each, each with a stub that is tried in the open and a
    folded solution that must be solved, and none in a module that no notebook asks."""
    faults = []
    asked: dict[str, set[str]] = {}
    for path in sorted(notebooks.glob("*.md")):
        tried, solved, found = _checks_of(path)
        faults += found
        number = path.stem.removeprefix("0x").split("_")[0]
        asked.setdefault(number, set()).update(tried)
        table = of_notebook(number)
        if len(tried & set(table)) < MIN_EXERCISES:
            faults.append(f"{path.name}: fewer than {MIN_EXERCISES} exercises")
        for name in sorted(tried | solved):
            if name not in table:
                faults.append(f"{path.name}: exercise {name!r} is in no module")
            elif name not in tried:
                faults.append(f"{path.name}: exercise {name!r} is solved but not asked")
            elif name not in solved:
                faults.append(
                    f"{path.name}: exercise {name!r} has no executed solution"
                )
    # Two notebooks may share a number, and with it a module.
    for number, names in asked.items():
        for name in sorted(set(of_notebook(number)) - names):
            faults.append(f"0x{number}: exercise {name!r} is never asked")
    return faults


def _unlike(cell: claims.CodeCell, name: str) -> list[str]:
    """A fault where the report's question speaks of another function than the stub."""
    stub = re.search(r"^def (\w+\([^)]*\)):", cell.source, re.MULTILINE)
    match = _ID.fullmatch(name)
    table = of_notebook(match[1]) if match else {}
    told = (
        re.match(r"`?(\w+\([^)]*\))", table[name].question) if name in table else None
    )
    if stub is None or told is None or stub[1] == told[1]:
        return []
    return [f"the stub is {stub[1]}, its question says {told[1]}"]


def _checks_of(path: Path) -> tuple[set[str], set[str], list[str]]:
    """Ids tried in the open, ids of asserted solutions, and faults of form."""
    tried: set[str] = set()
    solved: set[str] = set()
    faults = []
    for cell in claims.code_cells(path.read_text(encoding="utf-8")):
        try:
            calls = list(cell.calls("exercises.check"))
        except SyntaxError:
            continue  # register_faults names it
        for call, asserted in calls:
            where = f"{path.name}:{cell.line + call.lineno - 1}"
            name = claims.literal_id(call)
            if name is None:
                faults.append(f"{where}: write the exercise's id out as a string")
            elif not asserted:
                tried.add(name)
                faults += [f"{where}: {fault}" for fault in _unlike(cell, name)]
            else:
                solved.add(name)
                if not {"hide-cell", "hide-input"} & set(cell.tags):
                    faults.append(f"{where}: fold the solution of {name!r} away")
    return tried, solved, faults
