"""Mutation testing: how many small planted faults the tests of the exact parts find.

    python tools/mutate.py                    every mutant that has no result yet
    python tools/mutate.py --only specbook/chance.py
    python tools/mutate.py --again            those that survived, once more
    python tools/mutate.py --report           write docs/mutation.md from the results

Needs the extra `mutation`. pyproject.toml, [tool.mutmut], says which modules get
mutants and which tests count. The tests are collected once. A first run, in a copy of
the process, notes how long each test takes and which lines it runs. For each mutant a
copy of the process exchanges the code of one function and runs the tests that reach
the changed lines, the quickest first, until one fails. Results are kept in
build/mutation.json, so that a run can be stopped and taken up again.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import pickle
import random
import resource
import signal
import sys
import tempfile
import time
import tomllib
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools import mutation_report  # noqa: E402
from tools.mutation_report import (  # noqa: E402
    BROKEN,
    HANGS,
    KILLED,
    MESSAGE,
    MISSED,
    SURVIVED,
    UNREACHED,
    WAITING,
)

RESULTS = ROOT / "build" / "mutation.json"

SLOW = 5.0
"""Seconds: a test that takes longer runs only where no quicker one reaches a line."""
ENOUGH = 60.0
"""Seconds of tests, as timed without a mutant, after which a mutant has survived."""
PATIENCE = 10
"""A test that takes this many times its time, and `GRACE` seconds, hangs."""
GRACE = 3.0
MEMORY = 4 << 30
"""Bytes that a mutant may take beyond what the process has."""


def settings() -> dict[str, Any]:
    """Return [tool.mutmut] of pyproject.toml."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)["tool"]["mutmut"]


def modules(only: Iterable[str] = ()) -> list[Path]:
    """Return the modules that get mutants, or those of them that `only` names.

    Raises ValueError for a name that is none of them.
    """
    every = [
        path.relative_to(ROOT)
        for pattern in settings()["only_mutate"]
        for path in sorted(ROOT.glob(pattern))
    ]
    for name in only:
        if not any(path.is_relative_to(name) for path in every):
            raise ValueError(f"--only {name}: no module with mutants is there")
    kept = [p for p in every if not only or any(p.is_relative_to(n) for n in only)]
    return list(dict.fromkeys(kept))


def module_of(path: str) -> ModuleType:
    """Return the imported module of a file, given from the root."""
    parts = Path(path).with_suffix("").parts
    return importlib.import_module(".".join(parts).removesuffix(".__init__"))


# ---- copies of the process -------------------------------------------------------


@dataclass
class Reach:
    """What the first run saw: seconds of each test, and the tests of each line."""

    seconds: dict[str, float] = field(default_factory=dict)
    tests: dict[str, dict[int, set[str]]] = field(default_factory=dict)

    def add(self, other: Reach) -> None:
        """Take in what another part of the tests reaches."""
        self.seconds |= other.seconds
        for path, lines in other.tests.items():
            own = self.tests.setdefault(path, {})
            for line, tests in lines.items():
                own.setdefault(line, set()).update(tests)

    def restrict(self, names: set[str]) -> None:
        """Forget the tests that are not among `names`."""
        self.seconds = {n: t for n, t in self.seconds.items() if n in names}
        for lines in self.tests.values():
            for tests in lines.values():
                tests &= names

    def of(self, path: str, lines: Iterable[int]) -> list[str]:
        """The tests to run for a change of these lines, the quickest first."""
        by_line = self.tests.get(path, {})
        found: set[str] = set().union(*(by_line.get(line, set()) for line in lines))
        ordered = sorted(found, key=lambda test: (self.seconds[test], test))
        quick = [test for test in ordered if self.seconds[test] <= SLOW]
        total = 0.0
        kept: list[str] = []
        for test in quick or ordered[:1]:
            total += self.seconds[test]
            if kept and total > ENOUGH:
                break
            kept.append(test)
        return kept


class Watch:
    """A pytest plugin: notes the seconds of each test and ends at the first failure."""

    def __init__(self, seconds: dict[str, float] | None = None) -> None:
        self.known = seconds
        self.seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration
        if report.failed:
            if self.known is not None:
                os._exit(1)
            raise SystemExit(f"{report.nodeid} fails without a mutant")

    def run(self, items: list[pytest.Item]) -> None:
        """Run the items; with known times, one that hangs ends the process."""
        for item, following in zip(items, [*items[1:], None], strict=True):
            if self.known is not None:
                limit = PATIENCE * self.known[item.nodeid] + GRACE
                # Processor time, so that a busy machine makes nothing hang, and ten
                # times as long on the clock, for one that waits.
                signal.setitimer(signal.ITIMER_PROF, limit)
                signal.setitimer(signal.ITIMER_REAL, 10 * limit)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)


def first_run(items: list[pytest.Item], paths: list[Path], target: Path) -> None:
    """Run all items once, and write what they reach to `target`."""
    import coverage

    files = {str(ROOT / path): str(path) for path in paths}
    # A core that traces each line of each test anew: sys.monitoring does not.
    measure = coverage.Coverage(data_file=None, include=list(files), config_file=False)
    measure.set_option("run:core", "ctrace")
    measure.set_option("run:disable_warnings", ["no-data-collected"])
    watch = Watch()
    items[0].config.pluginmanager.register(watch)
    measure.start()
    for item, following in zip(items, [*items[1:], None], strict=True):
        measure.switch_context(item.nodeid)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    measure.stop()
    reach = Reach(dict(watch.seconds))
    data = measure.get_data()
    for full, path in files.items():
        lines = data.contexts_by_lineno(full)
        reach.tests[path] = {n: set(tests) - {""} for n, tests in lines.items()}
    target.write_bytes(pickle.dumps(reach))


def in_copy(action: Any, *arguments: Any) -> int:
    """Fork, run the action in the child with no output, and return the child's id."""
    sys.stdout.flush()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a fork beside the threads of a library
        child = os.fork()
    if child:
        return child
    try:
        hidden = os.open(os.devnull, os.O_WRONLY)
        os.dup2(hidden, 1)
        if action is not first_run:
            os.dup2(hidden, 2)
        action(*arguments)
        os._exit(0)
    except SystemExit as end:
        os.write(2, f"{end.code}\n".encode())
    except BaseException:
        import traceback

        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(3)


def try_mutant(mutant: Any, items: list[pytest.Item], reach: Reach) -> None:
    """Plant the mutant and run the items: the process ends with 1 when one fails."""
    from tools import mutants

    try:
        mutants.plant(mutant, module_of(mutant.path))
    except BaseException:
        os._exit(4)
    for number in (signal.SIGPROF, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    _limit_memory()
    watch = Watch(reach.seconds)
    items[0].config.pluginmanager.register(watch)
    try:
        watch.run(items)
    except BaseException:  # what pytest lets through ends a run: the mutant is seen
        os._exit(1)


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def verdict(status: int) -> str:
    """Return what the end of a mutant's process means."""
    if os.WIFSIGNALED(status):
        return HANGS if os.WTERMSIG(status) in (14, 27) else KILLED
    return {0: SURVIVED, 3: BROKEN, 4: BROKEN}.get(os.WEXITSTATUS(status), KILLED)


# ---- a session -------------------------------------------------------------------


class Mutating:
    """A pytest plugin whose loop over the tests is a loop over mutants."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run every mutant that the options ask for."""
        from tools import mutants

        paths = modules(self.options.only)
        found = [m for path in paths for m in mutants.mutants(path)]
        names = {m.name for m in found}
        own = {str(path) for path in paths}
        # What is known of a mutant that the module no longer has is dropped.
        results = {
            name: known
            for name, known in load().items()
            if name in names or known["path"] not in own
        }
        for mutant in found:
            said = MESSAGE if mutant.message else WAITING
            if mutant.message or mutant.name not in results:
                results[mutant.name] = record(mutant, said, 0)
        wanted = [m for m in found if self._wants(m, results)]
        chosen = sample(wanted, self.options.share, self.options.least)
        print(f"\n{len(found)} mutants, {len(chosen)} to run")
        items = {item.nodeid: item for item in session.items}
        reach = self._reach(session.items)
        self._run(chosen, items, reach, results)
        save(results)
        return True

    def _wants(self, mutant: Any, results: dict[str, Any]) -> bool:
        if mutant.message:
            return False
        known = results[mutant.name]["verdict"]
        return known in MISSED if self.options.again else known == WAITING

    def _reach(self, items: list[pytest.Item]) -> Reach:
        """The first run, a copy of the process for each file of tests."""
        kept = ROOT / "build" / "mutation-reach.pickle"
        reach = Reach()
        if self.options.keep_reach and kept.exists():
            reach = pickle.loads(kept.read_bytes())
            reach.restrict({item.nodeid for item in items})
        files: dict[Path, list[pytest.Item]] = defaultdict(list)
        for item in items:
            if item.nodeid not in reach.seconds:
                files[item.path].append(item)
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            running: dict[int, Path] = {}
            waiting = list(files.items())
            while waiting or running:
                while waiting and len(running) < self.options.jobs:
                    path, own = waiting.pop()
                    part = Path(folder) / str(len(waiting))
                    running[in_copy(first_run, own, modules(), part)] = part
                child, status = os.wait()
                part = running.pop(child)
                if status:
                    raise SystemExit("the tests do not pass without a mutant")
                reach.add(pickle.loads(part.read_bytes()))
                took = time.monotonic() - start
                print(
                    f"first run: {len(reach.seconds)} tests, {took:.0f} s", flush=True
                )
        kept.parent.mkdir(exist_ok=True)
        kept.write_bytes(pickle.dumps(reach))
        return reach

    def _run(
        self,
        chosen: list[Any],
        items: dict[str, pytest.Item],
        reach: Reach,
        results: dict[str, Any],
    ) -> None:
        running: dict[int, tuple[Any, int]] = {}
        begun = time.monotonic()
        gc.collect()
        gc.freeze()  # a copy then shares what it does not change
        waiting = iter(self._with_tests(chosen, items, reach, results))
        done = 0
        while True:
            while len(running) < self.options.jobs:
                following = next(waiting, None)
                if following is None:
                    break
                mutant, tests = following
                child = in_copy(try_mutant, mutant, tests, reach)
                running[child] = (mutant, len(tests))
            if not running:
                return
            child, status = os.wait()
            if child not in running:
                continue
            mutant, count = running.pop(child)
            before = results.get(mutant.name)
            results[mutant.name] = record(mutant, verdict(status), count, before)
            done += 1
            if results[mutant.name]["verdict"] in MISSED:
                print(f"{results[mutant.name]['verdict']}: {mutant.name}", flush=True)
            if done % 100 == 0:
                save(results)
                print(f"[{done} in {time.monotonic() - begun:.0f} s]", flush=True)

    def _with_tests(
        self,
        chosen: list[Any],
        items: dict[str, pytest.Item],
        reach: Reach,
        results: dict[str, Any],
    ) -> Iterator[tuple[Any, list[pytest.Item]]]:
        for mutant in chosen:
            names = reach.of(mutant.path, mutant.lines)
            if names:
                yield mutant, [items[name] for name in names]
            else:
                before = results.get(mutant.name)
                results[mutant.name] = record(mutant, UNREACHED, 0, before)
                print(f"{UNREACHED}: {mutant.name}", flush=True)


def sample(found: list[Any], share: float, least: int) -> list[Any]:
    """Return a share of each module's mutants, and at least so many of each.

    Drawn with a fixed seed, and in turns, one of each module: a run that is stopped
    has tried a sample of every module.
    """
    by_module: dict[str, list[Any]] = defaultdict(list)
    for mutant in found:
        by_module[mutant.path].append(mutant)
    turns: list[tuple[int, str, Any]] = []
    for path, group in by_module.items():
        size = min(len(group), max(least, round(share * len(group))))
        drawn = random.Random(path).sample(group, len(group))[:size]
        turns += [(turn, path, mutant) for turn, mutant in enumerate(drawn)]
    return [mutant for *_, mutant in sorted(turns, key=lambda turn: turn[:2])]


# ---- results ---------------------------------------------------------------------


def record(mutant: Any, said: str, tests: int, before: Any = None) -> dict[str, Any]:
    """Return the entry of one mutant; `first` is what its first run said, `before` its
    entry so far."""
    known = None if before is None else before["first"]
    return {
        "name": mutant.name,
        "path": mutant.path,
        "function": mutant.function,
        "before": mutant.before,
        "after": mutant.after,
        "verdict": said,
        "first": said if known in (None, WAITING) else known,
        "tests": tests,
    }


def load() -> dict[str, Any]:
    """Return the results so far, by the mutants' names."""
    if not RESULTS.exists():
        return {}
    return json.loads(RESULTS.read_text(encoding="utf-8"))


def save(results: dict[str, Any]) -> None:
    """Write the results, whole or not at all."""
    RESULTS.parent.mkdir(exist_ok=True)
    part = RESULTS.with_suffix(".part")
    part.write_text(json.dumps(results, indent=1), encoding="utf-8")
    part.replace(RESULTS)


# ---- the command -----------------------------------------------------------------


def load_profile() -> None:
    """Have hypothesis draw the same examples each time, and shrink none."""
    from hypothesis import Phase
    from hypothesis import settings as chosen

    phases = (Phase.explicit, Phase.generate)
    chosen.register_profile(
        "mutation", derandomize=True, database=None, deadline=None, phases=phases
    )
    chosen.load_profile("mutation")


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[], help="modules or folders")
    parser.add_argument("--again", action="store_true", help="survivors once more")
    parser.add_argument("--share", type=float, default=1.0, help="of each module")
    parser.add_argument("--least", type=int, default=40, help="mutants of each module")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument(
        "--keep-reach", action="store_true", help="first run of new tests"
    )
    parser.add_argument("--report", action="store_true", help="write docs/mutation.md")
    options = parser.parse_args(arguments)
    os.chdir(ROOT)
    if options.report:
        mutation_report.write(load())
        return 0
    load_profile()
    flags = ["-q", "-s", "-m", "not real", "-p", "no:cacheprovider", "-o", "timeout=0"]
    chosen = settings()["pytest_add_cli_args_test_selection"]
    return int(pytest.main([*flags, *chosen], plugins=[Mutating(options)]))


if __name__ == "__main__":
    sys.exit(main())
