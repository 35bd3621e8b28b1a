"""The tool that measures the tests: what it plants, what it counts, what it says."""

import importlib.util
import textwrap
from collections import Counter
from datetime import date
from pathlib import Path

import pytest

from tools import mutate, mutation_report

ROOT = Path(__file__).resolve().parents[2]

needs_mutmut = pytest.mark.skipif(
    importlib.util.find_spec("mutmut") is None, reason="the extra `mutation` is absent"
)


def entry(name: str, verdict: str, path: str = "specbook/tree.py") -> dict:
    return {"name": name, "path": path, "verdict": verdict, "first": verdict}


# ---- what counts -----------------------------------------------------------------


def test_messages_and_broken_mutants_do_not_count():
    counts = Counter(killed=6, hangs=1, survived=2, unreached=1, message=9, broken=3)
    assert mutation_report.counted(counts) == (7, 10, 10)
    assert mutation_report.estimate([counts]) == (7 / 10, 0)


def test_a_score_of_nothing_is_refused():
    with pytest.raises(ValueError, match="nothing was run"):
        mutation_report.estimate([Counter(message=4, waiting=2)])


def test_a_module_counts_by_all_its_mutants_and_a_sample_has_an_interval():
    large = Counter(killed=10, waiting=80, survived=10)
    small = Counter(killed=20)
    share, half = mutation_report.estimate([large, small])
    assert share == (100 * 0.5 + 20 * 1) / 120
    spread = 12 / 24 * 12 / 24 / 24 * (80 / 99)
    assert half == pytest.approx(1.96 * 100 / 120 * spread**0.5)


def test_a_sample_takes_of_each_module_in_turns():
    class One:
        def __init__(self, path, number):
            self.path, self.number = path, number

    every = [One("a", n) for n in range(10)] + [One("b", n) for n in range(2)]
    drawn = mutate.sample(every, 0.5, 3)
    assert [m.path for m in drawn] == ["a", "b", "a", "b", "a", "a", "a"]
    assert len({(m.path, m.number) for m in drawn}) == 7
    longer = mutate.sample(every, 1.0, 3)
    assert [m for m in longer if m in drawn] == drawn and len(longer) == 12


def test_the_table_adds_up():
    results = {
        "a": entry("a", "killed"),
        "b": entry("b", "survived"),
        "c": entry("c", "hangs", "specbook/chance.py"),
        "d": entry("d", "message", "specbook/chance.py"),
        "e": entry("e", "waiting", "specbook/chance.py"),
    }
    rows = mutation_report.table(results).splitlines()
    assert rows[2:] == [
        "| `specbook/chance.py` | 2 | 1 | 1 | 1 | 0 | 100.0 % |",
        "| `specbook/tree.py` | 2 | 2 | 1 | 0 | 1 | 50.0 % |",
        "| **all** | 4 | 3 | 2 | 1 | 1 | 66.7 % |",
    ]


# ---- survivors have reasons ------------------------------------------------------


def test_a_survivor_without_a_reason_is_listed():
    results = {"a": entry("a", "survived"), "b": entry("b", "unreached")}
    kinds = [{"title": "Equivalent", "why": "", "mutants": ["a"]}]
    assert mutation_report.unexplained(results, kinds) == ["b"]


def test_every_explained_line_is_still_there():
    texts = {
        path.as_posix(): " ".join((ROOT / path).read_text(encoding="utf-8").split())
        for path in mutate.modules()
    }
    for kind in mutation_report.reasons():
        assert kind["mutants"] and kind["why"].strip(), kind["title"]
        for name in kind["mutants"]:
            path, _, rest = name.partition(" ")
            before = rest.partition(": ")[2].partition(" => ")[0]
            assert " ".join(before.split()) in texts[path], name


def test_the_page_names_every_module_and_leaves_no_survivor_unexplained():
    text = mutation_report.PAGE.read_text(encoding="utf-8")
    assert "Not explained" not in text
    made = {p for p in mutate.modules() if "def " in (ROOT / p).read_text("utf-8")}
    assert [p for p in sorted(made) if f"`{p.as_posix()}`" not in text] == []


# ---- which modules and tests -----------------------------------------------------


def test_only_names_a_module_with_mutants():
    assert mutate.modules(["specbook/chance.py"]) == [Path("specbook/chance.py")]
    with pytest.raises(ValueError, match="no module with mutants"):
        mutate.modules(["specbook/engine.py"])


def test_the_quickest_tests_that_reach_a_line_run_first():
    reach = mutate.Reach(
        {"slow": 9.0, "mid": 2.0, "quick": 0.1, "other": 0.0},
        {"a.py": {3: {"slow", "mid"}, 4: {"quick"}, 5: {"slow"}, 6: {"other"}}},
    )
    assert reach.of("a.py", {3, 4}) == ["quick", "mid"]
    assert reach.of("a.py", {5}) == ["slow"]
    assert reach.of("a.py", {7}) == [] == reach.of("b.py", {3})


# ---- what is planted -------------------------------------------------------------

SOURCE = '''
from functools import cache

from specbook import checks

LIMIT = 3


class Box:
    @property
    def half(self):
        return self.size / 2

    def __init__(self, size, extra=1):
        """Any size."""
        checks.integer(size, "size", least=0)
        if size > 9:
            raise ValueError(f"too large: {size + 1}")
        self.size = size + extra


@cache
def twice(number):
    return (
        number
        * 2
    )
'''


@pytest.fixture
def found(tmp_path):
    from tools import mutants

    path = tmp_path / "box.py"
    path.write_text(textwrap.dedent(SOURCE), encoding="utf-8")
    return list(mutants.mutants(path))


@needs_mutmut
def test_decorated_functions_get_mutants_and_module_lines_none(found):
    assert {m.function for m in found} == {"Box.half", "Box.__init__", "twice"}
    assert "return self.size * 2" in [m.after for m in found]
    assert not any("LIMIT" in m.before or "Any size" in m.before for m in found)


@needs_mutmut
def test_the_words_of_a_message_are_told_from_what_is_checked(found):
    message = {m.after for m in found if m.message}
    counted = {m.after for m in found if not m.message}
    assert 'raise ValueError(f"too large: {size - 1}")' in message
    assert 'checks.integer(size, "XXsizeXX", least=0)' in message
    assert "checks.integer(size, None, least=0)" in message
    assert 'checks.integer(size, "size", least=1)' in counted
    assert 'checks.integer(None, "size", least=0)' in counted
    assert 'checks.integer(size, "size", )' in counted
    assert "if size >= 9:" in counted


@needs_mutmut
def test_a_mutant_knows_the_lines_of_its_statement(found):
    lines = SOURCE.splitlines()
    (mutant,) = [m for m in found if m.after == "* 3"]
    assert [lines[n - 1].strip() for n in sorted(mutant.lines)] == [
        "return (",
        "number",
        "* 2",
        ")",
    ]
    (default,) = [m for m in found if "extra=2" in m.after]
    assert lines.index("        self.size = size + extra") + 1 in default.lines


@needs_mutmut
def test_a_planted_mutant_runs_wherever_the_function_was_imported(found):
    import types

    from tools import mutants

    module = types.ModuleType("box")
    exec(compile(SOURCE, found[0].path, "exec"), vars(module))
    kept, box = module.twice, module.Box(1)
    by_after = {m.after: m for m in found}
    mutants.plant(by_after["* 3"], module)
    mutants.plant(by_after["return self.size * 2"], module)
    mutants.plant(by_after["def __init__(self, size, extra=2):"], module)
    assert kept(6) == 18 and box.half == 4 and module.Box(1).size == 3


def test_the_page_says_when_and_how_much(monkeypatch):
    monkeypatch.setattr(mutation_report, "version", lambda name: "9.9")
    monkeypatch.setattr(mutation_report, "reasons", lambda: [])
    results = {"a": entry("a", "killed"), "b => `c`": entry("b", "survived")}
    text = mutation_report.page(results, date(2026, 1, 2))
    assert "On 2026-01-02, 50.0 % of the mutants" in text
    assert "were drawn" not in text
    assert "### Not explained (1)\n\n- `` b => `c` ``" in text


def test_new_tests_raise_the_table_and_not_the_estimate_for_what_was_not_drawn(
    monkeypatch,
):
    monkeypatch.setattr(mutation_report, "version", lambda name: "9.9")
    monkeypatch.setattr(mutation_report, "reasons", lambda: [])
    results = {str(n): entry(str(n), "killed") for n in range(10)}
    for n in range(5):
        results[str(n)]["first"] = "survived"
    results["w"] = entry("w", "waiting")
    text = mutation_report.page(results, date(2026, 1, 2))
    assert "100.0 % of the mutants" in text and "10 of the 11 mutants" in text
    assert "the tests found 50.0 % of all" in text
