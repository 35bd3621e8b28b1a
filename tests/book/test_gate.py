"""The publish gate: its file, and what a run's records say of it."""

import inspect
import re
from dataclasses import replace
from itertools import product

import pytest

from specbook import claims, gate
from specbook.claims import Claim, ClaimError
from specbook.errors import SpecbookError
from specbook.gate import GateError

ONE = Claim("0x07D-one", "0x07D", "One.", "source-local", "exact", "0x07_trees")
TWO = Claim("0x07D-two", "0x07D", "Two.", "source-local", "measured", "0x07_trees")
BELOW = Claim("0x07-low", "0x07", "Low.", "source-local", "exact", "0x07_trees")
REGISTER = {claim.id: claim for claim in (BELOW, ONE, TWO)}
GOOD = """
[[line]]
id = "first"
title = "First"
text = "All of it."
claims = ["0x07D-two"]
sections = ["0x07"]

[[line]]
id = "second"
title = "Second"
text = "A part."
sections = ["0x07D", "0x08"]
"""


def record(claim, held=True, **changes):
    return {**claims.record(claim, held, "seen", version="1"), **changes}


def loaded(tmp_path, text=GOOD):
    path = tmp_path / "gate.toml"
    path.write_text(text, encoding="utf-8")
    return gate.load(path, REGISTER)


# ---- the shipped gate ------------------------------------------------------------


def test_the_articles_eighteen_lines_rest_on_claims_that_exist():
    lines, register = gate.load(), claims.load()
    assert len(lines) == 18
    for line in lines.values():
        assert line.claims and set(line.claims) <= set(register), line.id
        assert len(line.title) <= 28, line.title  # its place in the picture
    assert gate.uncovered(lines.values()) == []


def test_sections_of_the_gate_are_the_articles():
    sections = {s for line in gate.load().values() for s in line.sections}
    assert {s[:4] for s in sections} <= {f"0x{n:02X}" for n in range(0x14)}
    assert {claim.section[:4] for claim in claims.load().values()} <= {
        s[:4] for s in sections
    }


# ---- the file --------------------------------------------------------------------


def test_a_line_has_its_claims_and_those_of_its_sections(tmp_path):
    lines = loaded(tmp_path)
    assert lines["first"].claims == ("0x07-low", "0x07D-two")
    # A section has its own claims only: 0x07 is not 0x07D.
    assert lines["second"].claims == ("0x07D-one", "0x07D-two")
    assert lines["second"].sections == ("0x07D", "0x08")
    assert gate.uncovered(lines.values(), REGISTER) == []
    assert gate.uncovered([lines["second"]], REGISTER) == ["0x07"]


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"0x07D-two"', '"0x07D-three"', "no claim '0x07D-three'"),
        ('claims = ["0x07D-two"]\nsections = ["0x07"]', "", r"\(first\): no claim"),
        ('sections = ["0x07D", "0x08"]', 'sections = ["0x08"]', "no claim shows it"),
        ('sections = ["0x07"]', 'sections = ["7"]', "no section is called '7'"),
        ('sections = ["0x07"]', 'sections = "0x07"', "must be a list"),
        ('["0x07D-two"]', "[3]", r"claims\[0\] must be text"),
        ('["0x07D-two"]', '[" "]', r"claims\[0\] is empty"),
        ('["0x07D-two"]', '["0x07D-two", "0x07D-two"]', "stands twice"),
        ('id = "second"', 'id = "first"', "line 'first' stands twice"),
        ('id = "second"', 'id = "a b"', "an id looks like"),
        ('id = "second"\n', "", r"line 2: no \['id'\]"),
        ('text = "A part."', 'text = ""', "text is empty"),
        ('title = "First"', 'title = "First"\ncolour = 1', r"unknown \['colour'\]"),
        ("[[line]]", "[[lines]]", "nothing else"),
        (GOOD, "line = [3]", "line 1 is no table"),
        (GOOD, "line = 3", "nothing else"),
        (GOOD, "line = []", "nothing else"),
        (GOOD, "", "nothing else"),
        ("[[line]]", "[[line", "no TOML file"),
    ],
)
def test_a_wrong_gate_is_refused_by_name(tmp_path, old, new, told):
    assert old in GOOD
    with pytest.raises(GateError, match=told):
        loaded(tmp_path, GOOD.replace(old, new, 1))


@pytest.mark.parametrize("path", [5, True, "nowhere/gate.toml"])
def test_what_is_no_file_is_refused(path):
    with pytest.raises(GateError, match="path|cannot be read"):
        gate.load(path, REGISTER)


# ---- one claim -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("records", "state"),
    [
        ([], "missing"),
        ([record(ONE)], "green"),
        ([record(ONE), record(ONE)], "green"),
        ([record(ONE, held=False)], "red"),
        ([record(ONE, held=False), record(ONE)], "red"),
        ([record(ONE), record(ONE, held=False)], "red"),
        ([record(ONE, specbook="0")], "stale"),
        ([record(ONE, code="another")], "stale"),
        ([record(ONE, held=False, code="another")], "stale"),
        ([record(ONE, text="Otherwise.")], "stale"),
        ([record(ONE, kind="measured")], "stale"),
        ([record(ONE, **{"class": "rewrite-interpretation"})], "stale"),
        ([record(ONE, notebook="0x08_other")], "stale"),
        ([record(ONE), record(ONE, specbook="0")], "stale"),
        # What another version found wrong says nothing of this one.
        ([record(ONE, held=False, specbook="0")], "stale"),
        ([record(ONE, held=False), record(ONE, specbook="0")], "red"),
    ],
)
def test_the_state_of_a_claim(records, state):
    assert gate.claim_state(ONE, records, "1") == state


def without(name):
    made = record(ONE)
    del made[name]
    return made


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (3, "is none"),
        (record(TWO), "is none"),
        (without("held"), "held must be a bool, got None"),
        (record(ONE, held=1), "held must be a bool, got 1"),
        (record(ONE, held="yes"), "held must be a bool"),
        *((without(n), f"does not say its {n}") for n in ("text", "specbook", "code")),
        (record(ONE, evidence=" "), "does not say its evidence"),
        (record(ONE, notebook=None), "does not say its notebook"),
    ],
)
def test_a_damaged_record_is_refused(broken, told):
    with pytest.raises(ClaimError, match=told):
        gate.claim_state(ONE, [record(ONE), broken], "1")


def test_the_worst_state_wins_and_nothing_is_no_state():
    order = {state: n for n, state in enumerate(gate.STATES)}
    for pair in product(gate.STATES, repeat=2):
        assert order[gate.worst(pair)] == max(order[state] for state in pair)
    with pytest.raises(SpecbookError, match="no state"):
        gate.worst([])
    with pytest.raises(SpecbookError, match="must be one of"):
        gate.worst(["green", "yellow"])


# ---- the verdict -----------------------------------------------------------------


def verdict(tmp_path, found):
    return gate.judge(found, lines=loaded(tmp_path), register=REGISTER, version="1")


def all_green():
    return {claim.id: [record(claim)] for claim in REGISTER.values()}


def test_a_run_in_which_all_was_shown_is_green(tmp_path):
    found = verdict(tmp_path, all_green())
    assert found.green and found.faults() == []
    assert found.lines == {"first": "green", "second": "green"}
    assert found.counts() == {"green": 3, "missing": 0, "stale": 0, "red": 0}


@pytest.mark.parametrize(
    ("planted", "state"),
    [
        (None, "missing"),
        ([record(ONE, held=False), record(ONE)], "red"),
        ([record(ONE, text="Otherwise.")], "stale"),
    ],
)
def test_a_planted_claim_closes_its_lines_and_no_other(tmp_path, planted, state):
    found = all_green()
    if planted is None:
        del found[ONE.id]
    else:
        found[ONE.id] = planted
    seen = verdict(tmp_path, found)
    assert not seen.green
    assert seen.lines == {"first": "green", "second": state}
    assert seen.faults() == [f"{state}: 0x07D-one"]


def test_the_worst_is_told_first_and_a_foreign_record_is_told(tmp_path):
    found = all_green()
    del found[BELOW.id]
    found[TWO.id] = [record(TWO, held=False)]
    found["0x07-gone"] = [{"id": "0x07-gone"}]
    assert verdict(tmp_path, found).faults() == [
        "red: 0x07D-two",
        "missing: 0x07-low",
        "stale: 0x07-gone (not in the register any more)",
    ]
    found = {**all_green(), "0x07-gone": []}
    assert not verdict(tmp_path, found).green


def test_without_a_run_everything_is_missing(tmp_path):
    seen = verdict(tmp_path, None)
    assert not seen.green and set(seen.lines.values()) == {"missing"}
    shipped = gate.judge(None)
    assert set(shipped.claims) == set(claims.load())
    assert set(shipped.lines) == set(gate.load())


def test_records_that_checks_left_are_read_from_their_folder(tmp_path, monkeypatch):
    monkeypatch.setenv(claims.RECORDS_VARIABLE, str(tmp_path))
    name = next(iter(claims.load()))
    claims.check(name, True, "seen")
    seen = gate.judge(tmp_path)
    assert [c for c, state in seen.claims.items() if state == "green"] == [name]
    with pytest.raises(ClaimError):
        claims.check(name, False, "seen")
    assert gate.judge(tmp_path).claims[name] == "red"
    # Another version of the package asks:
    assert gate.judge(tmp_path, version="0").claims[name] == "stale"
    (tmp_path / f"{name}.json").write_text("[", encoding="utf-8")
    with pytest.raises(ClaimError, match="damaged"):
        gate.judge(tmp_path)
    with pytest.raises(ClaimError, match="does not exist"):
        gate.judge(tmp_path / "nowhere")


def test_what_is_no_list_of_records_and_no_gate_of_this_register_is_refused(tmp_path):
    for broken in (None, 3, "held"):
        with pytest.raises(ClaimError, match="records of claim '0x07D-one'|is none"):
            verdict(tmp_path, {**all_green(), ONE.id: broken})
    lines = {"x": gate.Line("x", "X", "X.", ("0x07D-one", "0x07D-gone"))}
    with pytest.raises(GateError, match="'x': no claim '0x07D-gone'"):
        gate.judge({}, lines=lines, register=REGISTER)


def test_a_gate_that_nothing_could_close_is_refused():
    lines = {"x": gate.Line("x", "X", "X.", ("0x07D-one",))}
    for given, register in (({}, REGISTER), (lines, {}), ({}, {})):
        with pytest.raises(GateError, match="cannot be closed|no claim"):
            gate.judge({}, lines=given, register=register)
    assert not gate.Verdict({}, {}, ()).green
    assert not gate.Verdict({"a": "green"}, {}, ()).green


def test_what_other_code_showed_is_stale(tmp_path, monkeypatch):
    """As a run before the last edit leaves it, in the folder that is read by default.
    The version is the same: nobody raises it for an edit."""
    chapters = tmp_path / "notebooks"
    chapters.mkdir()
    (chapters / "0x07_trees.md").write_text("A chapter.", encoding="utf-8")
    monkeypatch.setattr(claims, "chapters_path", lambda: chapters)
    run = all_green()
    assert verdict(tmp_path, run).green
    (chapters / "0x07_trees.md").write_text("Another.", encoding="utf-8")
    assert set(verdict(tmp_path, run).claims.values()) == {"stale"}
    run = all_green()
    monkeypatch.setattr(claims, "_package_digest", lambda: b"edited")
    assert set(verdict(tmp_path, run).claims.values()) == {"stale"}


def test_the_folder_of_records(tmp_path, monkeypatch):
    monkeypatch.setenv(claims.RECORDS_VARIABLE, str(tmp_path))
    assert gate.records_folder() == tmp_path
    monkeypatch.setenv(claims.RECORDS_VARIABLE, str(tmp_path / "not yet"))
    assert gate.records_folder() is None
    monkeypatch.delenv(claims.RECORDS_VARIABLE)
    monkeypatch.setattr(gate, "chapters_path", lambda: tmp_path / "notebooks")
    assert gate.records_folder() is None
    (tmp_path / "build" / "records").mkdir(parents=True)
    assert gate.records_folder() == tmp_path / "build" / "records"


def test_a_record_is_bound_to_all_that_the_register_says(tmp_path):
    """Each field of a claim that `claims.check` records is compared."""
    kept = {"id", "held", "evidence", "specbook", "code"}
    assert set(record(ONE)) - kept == set(gate._BOUND)
    for claim in (
        replace(ONE, text="Other."),
        replace(ONE, evidence_class="rewrite-interpretation"),
        replace(ONE, kind="cited"),
        replace(ONE, notebook="0x08_x"),
    ):
        assert gate.claim_state(claim, [record(ONE)], "1") == "stale"


def test_every_state_is_explained():
    told = re.search(r'STATES = .*?"""(.*?)"""', inspect.getsource(gate), re.DOTALL)[1]
    assert {f"`{state}`" for state in gate.STATES} == set(re.findall(r"`\w+`", told))
