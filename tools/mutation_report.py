"""The score of a mutation run, by module, and its survivors with their reasons."""

from __future__ import annotations

import math
import tomllib
from collections import Counter, defaultdict
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "mutation.md"
REASONS = ROOT / "tools" / "survivors.toml"

KILLED = "killed"
HANGS = "hangs"
SURVIVED = "survived"
UNREACHED = "unreached"
MESSAGE = "message"
BROKEN = "broken"
WAITING = "waiting"
FOUND = {KILLED, HANGS}
"""What ends with a test that fails, or with one that would never end."""
MISSED = {SURVIVED, UNREACHED}

Results = dict[str, dict[str, Any]]
"""The entries of `tools/mutate.py`, by the mutants' names."""


def counted(counts: Counter[str]) -> tuple[int, int, int]:
    """Return the mutants of a module that were found, were run, and are there."""
    found = sum(counts[said] for said in FOUND)
    run = found + sum(counts[said] for said in MISSED)
    return found, run, run + counts[WAITING]


def estimate(modules: list[Counter[str]]) -> tuple[float, float]:
    """Return the share of all mutants that the tests find, and what to allow for a
    sample: half of its 95 % interval, 0 when every mutant was run.

    A module counts by its mutants, not by how many of them were drawn. Its own spread
    is that of a share with two more found and two more missed (Agresti and Coull), so
    that a module with none missed is not taken for certain.
    """
    rows = [counted(counts) for counts in modules]
    rows = [row for row in rows if row[1]]
    every = sum(there for _, _, there in rows)
    if not every:
        raise ValueError("no mutant counts: nothing was run")
    share = sum(there * found / run for found, run, there in rows) / every
    variance = 0.0
    for found, run, there in rows:
        near = (found + 2) / (run + 4)
        rest = (there - run) / max(1, there - 1)
        variance += (there / every) ** 2 * near * (1 - near) / (run + 4) * rest
    return share, 1.96 * math.sqrt(variance)


def by_module(results: Results, which: str = "verdict") -> dict[str, Counter[str]]:
    """Return the number of each verdict, by module, in the modules' order. `which`:
    "first" for those of the first run, before tests were written for what it missed."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for entry in results.values():
        counts[entry["path"]][entry[which]] += 1
    return dict(sorted(counts.items()))


def reasons() -> list[dict[str, Any]]:
    """Return the kinds of survivors: `title`, `why`, and `mutants`, their names."""
    return tomllib.loads(REASONS.read_text(encoding="utf-8")).get("kind", [])


def unexplained(results: Results, kinds: list[dict[str, Any]]) -> list[str]:
    """Return the survivors that no kind names."""
    named = {name for kind in kinds for name in kind["mutants"]}
    missed = [n for n, entry in results.items() if entry["verdict"] in MISSED]
    return sorted(set(missed) - named)


def table(results: Results) -> str:
    """Return the counts by module, as a table in Markdown."""
    head = ("module", "mutants", "run", "found", "of these hang", "missed", "score")
    lines = ["| " + " | ".join(head) + " |", "| --- |" + " ---: |" * (len(head) - 1)]
    modules = by_module(results)
    total: Counter[str] = sum(modules.values(), Counter())
    for name, counts in [*modules.items(), ("**all**", total)]:
        found, run, there = counted(counts)
        if run:
            shown = name if name.startswith("*") else f"`{name}`"
            numbers = (there, run, found, counts[HANGS], run - found)
            cells = (shown, *map(str, numbers), f"{100 * found / run:.1f} %")
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def code(text: str) -> str:
    """Return a text as Markdown code, whatever backquotes it has."""
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def survivors(results: Results) -> str:
    """Return the list of survivors, by kind."""
    missed = {n for n, entry in results.items() if entry["verdict"] in MISSED}
    kinds = reasons()
    left = unexplained(results, kinds)
    if left:
        kinds = [*kinds, {"title": "Not explained", "why": "", "mutants": left}]
    parts = []
    for kind in kinds:
        names = [name for name in kind["mutants"] if name in missed]
        if names:
            title = f"### {kind['title']} ({len(names)})"
            listed = "\n".join(f"- {code(name)}" for name in names)
            parts += [part for part in (title, kind["why"].strip(), listed) if part]
    return "\n\n".join(parts)


def page(results: Results, day: date) -> str:
    """Return the page of a run."""
    modules = by_module(results)
    total: Counter[str] = sum(modules.values(), Counter())
    found, run, there = counted(total)
    # What new tests did to the mutants that they were written for says nothing about
    # those that were not drawn: the estimate for all is that of the first run.
    share, half = estimate(list(by_module(results, "first").values()))
    low, high = 100 * (share - half), min(100.0, 100 * (share + half))
    sample = (
        SAMPLE.replace("(share)", f"{100 * share:.1f} %")
        .replace("(low)", f"{low:.1f}")
        .replace("(high)", f"{high:.1f} %")
    )
    text = (
        TEMPLATE.replace("(day)", day.isoformat())
        .replace("(mutmut)", version("mutmut"))
        .replace("(score)", f"{100 * found / run:.1f} %")
        .replace("(sample)", "" if run == there else sample)
        .replace("(run)", str(run))
        .replace("(there)", str(there))
        .replace("(messages)", str(total[MESSAGE]))
        .replace("(table)", table(results))
        .replace("(survivors)", survivors(results))
    )
    return text


def write(results: Results) -> None:
    """Write the page; raises ValueError when there are no results."""
    PAGE.write_text(page(results, date.today()), encoding="utf-8", newline="\n")


SAMPLE = """
(run) of the (there) mutants were run: a sample, drawn of every module with a fixed
seed. When they were drawn the tests found (share) of all (95 % interval (low) to
(high); a module counts by all its mutants). Tests were then written for what the sample
had missed, and the table shows what is found with them. For the mutants that were not
drawn the first number stands: it is the one to expect of them, or a little more,
since a new test finds more than the one fault that it was written for.
"""

TEMPLATE = """\
# What the tests would notice

A test that passes says little until one knows that it can fail. So small faults were
planted in the exact parts of the package, one at a time: a `<` that becomes `<=`, a
number that is one higher, an argument that is left out. Each such copy of the code is
a *mutant*; when a test fails on it, the mutant is *found*. This page says how many
were.

On (day), (score) of the mutants that were run were found. The operators are those of
mutmut (mutmut); `tools/mutate.py` plants them and runs the tests that reach the changed
lines.
(sample)

## The score by module

(table)

What counts, and what does not:

- A mutant is found when a test fails, or when a test takes so long that it would never
  end ("hang").
- Docstrings and type annotations get no mutants. (messages) mutants changed only the
  words of an error message; they are not counted.
- Lines that run once, at the import of a module or of a class, get no mutants: the
  tests import the package before a mutant is planted.
- Only quick tests count, those below five seconds, unless no quick one reaches a line;
  and only the tests of these parts. The tests of the engine, the drafts and the
  notebooks find more.
- Examples that hypothesis draws are the same in each run.

## Run it yourself

```{code-block} console
$ pip install -e ".[dev,mutation]" -c constraints.txt
$ python tools/mutate.py --jobs 2
$ python tools/mutate.py --report
```

About a mutant a second: a run of all takes hours, and goes on where it was stopped.
`--only specbook/chance.py` runs one module, `--share 0.2` a sample of each, and
`--again` the survivors, after a new test. It needs Linux. The reasons below are kept
in `tools/survivors.toml`.

## The survivors

(survivors)
"""
