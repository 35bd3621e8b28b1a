"""The register of claims, its checks and their records."""

import json
import subprocess
import sys
import textwrap

import numpy as np
import pytest

from specbook import claims, display, paths
from specbook.claims import Claim, ClaimError

GOOD = """
[[claim]]
id = "0x07D-dag-boundary"
section = "0x07D"
text = "Two rows with one token and different prefixes stay two rows."
class = "implementation-observed"
kind = "exact"
notebook = "0x07_candidate_trees"

[[claim]]
id = "0x08B-one-draw"
section = "0x08B"
text = "One draw a node keeps the law."
class = "source-local"
kind = "statistical"
false_alarm = 1e-6
notebook = "0x07_candidate_trees"
"""


@pytest.fixture
def register(tmp_path, monkeypatch):
    path = tmp_path / "claims.toml"
    path.write_text(GOOD, encoding="utf-8")
    monkeypatch.setattr(paths, "data_path", lambda *parts: path)
    monkeypatch.delenv(claims.RECORDS_VARIABLE, raising=False)
    return path


def test_load_keeps_every_field_and_the_order(register):
    found = claims.load()
    assert list(found) == ["0x07D-dag-boundary", "0x08B-one-draw"]
    assert found["0x07D-dag-boundary"] == Claim(
        "0x07D-dag-boundary",
        "0x07D",
        "Two rows with one token and different prefixes stay two rows.",
        "implementation-observed",
        "exact",
        "0x07_candidate_trees",
    )
    assert found["0x08B-one-draw"].false_alarm == 1e-6


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('id = "0x07D-dag-boundary"', 'id = "0x07D"', "an id looks like"),
        ('id = "0x07D-dag-boundary"', 'id = "0x07E-dag-boundary"', "section"),
        ('id = "0x07D-dag-boundary"', 'id = "../x"', "an id looks like"),
        ('id = "0x08B-one-draw"\nsection = "0x08B"',
         'id = "0x07D-dag-boundary"\nsection = "0x07D"', "stands twice"),
        ('section = "0x07D"', 'section = "7D"', "section"),
        ('class = "source-local"', 'class = "hearsay"', "class must be one of"),
        ('kind = "exact"', 'kind = "obvious"', "kind must be one of"),
        ("false_alarm = 1e-6", "false_alarm = 1e-3", "at most 1e-06"),
        ("false_alarm = 1e-6", "false_alarm = 0", "above 0"),
        ("false_alarm = 1e-6\n", "", "needs its false_alarm"),
        ('kind = "exact"', 'kind = "exact"\nfalse_alarm = 1e-9', "only statistical"),
        ('kind = "exact"', 'kind = "exact"\ncolour = "red"', "unknown ['colour']"),
        ('kind = "exact"\n', "", "no ['kind']"),
        ('text = "One draw a node keeps the law."', 'text = " "', "text must be text"),
        ('text = "One draw a node keeps the law."', "text = 3", "text must be text"),
        ('notebook = "0x07_candidate_trees"', 'notebook = "a/b"', "no notebook"),
        ("[[claim]]", "[[claims]]", "nothing else"),
        (GOOD, "claim = 3", "[[claim]] tables"),
        (GOOD, "claim = [3]", "claim 1 is no table: 3"),
        (GOOD, "claim = []", "[[claim]] tables"),
        (GOOD, "", "[[claim]] tables"),
        ("[[claim]]", "[[claim", "no TOML file"),
    ],
)  # fmt: skip
def test_a_wrong_register_is_refused_by_name(register, old, new, told):
    assert old in GOOD
    register.write_text(GOOD.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ClaimError) as refused:
        claims.load()
    assert told in str(refused.value)


def test_a_register_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ClaimError, match=r"none\.toml cannot be read"):
        claims.load(tmp_path / "none.toml")


def test_a_register_in_another_encoding_is_refused(register):
    register.write_bytes(b'[[claim]]\nid = "\xff"\n')
    with pytest.raises(ClaimError, match="no TOML file"):
        claims.load()


def test_check_prints_one_line_with_id_wording_kind_and_evidence(register, capsys):
    assert claims.check("0x07D-dag-boundary", True, "rows 2 and 4\n differ") is None
    assert capsys.readouterr().out == (
        "Shown [0x07D-dag-boundary] Two rows with one token and different prefixes "
        "stay two rows. | exact: rows 2 and 4 differ\n"
    )
    claims.check("0x08B-one-draw", np.bool_(True), "200,000 draws, p = 0.4")
    assert "statistical, false alarm at most 1e-06" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("claim_id", "condition", "evidence", "told"),
    [
        ("0x07D-dag-boundary", False, "rows agree", "does not hold"),
        ("0x07D-dag-boundary", np.bool_(False), "rows agree", "does not hold"),
        ("0x07D-dag-boundary", 1, "x", "must be a bool, got int"),
        ("0x07D-dag-boundary", None, "x", "must be a bool, got NoneType"),
        ("0x07D-dag-boundary", np.array([True]), "x", "must be a bool, got ndarray"),
        ("0x07D-dag-boundary", True, "", "say what the evidence is"),
        ("0x07D-dag-boundary", True, "  \n", "say what the evidence is"),
        ("0x07D-dag-boundary", True, 3, "say what the evidence is"),
        ("0x07D-other", True, "x", "no claim '0x07D-other'"),
        (None, True, "x", "no claim None"),
    ],
)
def test_check_refuses(register, capsys, claim_id, condition, evidence, told):
    with pytest.raises(ClaimError) as refused:
        claims.check(claim_id, condition, evidence)
    assert told in str(refused.value)
    assert capsys.readouterr().out == ""


def test_records_are_appended_failures_too(register, tmp_path, monkeypatch, capsys):
    folder = tmp_path / "new" / "records"
    monkeypatch.setenv(claims.RECORDS_VARIABLE, str(folder))
    claims.check("0x07D-dag-boundary", True, "gap 0.3 · a")
    with pytest.raises(ClaimError):
        claims.check("0x07D-dag-boundary", False, "b")
    assert [p.name for p in folder.iterdir()] == ["0x07D-dag-boundary.json"]
    records = claims.read_records(folder)["0x07D-dag-boundary"]
    assert [(r["held"], r["evidence"]) for r in records] == [
        (True, "gap 0.3 · a"),
        (False, "b"),
    ]
    assert records[0]["section"] == "0x07D"
    assert records[0]["code"] == claims.code("0x07_candidate_trees")
    assert records[0]["class"] == "implementation-observed"


def test_a_record_that_cannot_be_written_leaves_the_old_one(
    register, tmp_path, monkeypatch
):
    monkeypatch.setenv(claims.RECORDS_VARIABLE, str(tmp_path / "r"))
    claims.check("0x07D-dag-boundary", True, "first")
    before = (tmp_path / "r" / "0x07D-dag-boundary.json").read_bytes()

    def broken(*arguments, **keywords):
        raise OSError("disk full")

    monkeypatch.setattr(claims.json, "dump", broken)
    with pytest.raises(OSError, match="disk full"):
        claims.check("0x07D-dag-boundary", True, "second")
    assert (tmp_path / "r" / "0x07D-dag-boundary.json").read_bytes() == before
    assert len(list((tmp_path / "r").iterdir())) == 1


def test_a_record_that_cannot_be_read_is_refused(tmp_path):
    (tmp_path / "0x07D-dag-boundary.json").mkdir()
    with pytest.raises(ClaimError, match="0x07D-dag-boundary.json is damaged"):
        claims.read_records(tmp_path)


def test_the_code_of_a_check_is_its_package_and_its_chapter(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "chapters_path", lambda: tmp_path)
    bare = claims.code("0x07_a")
    (tmp_path / "0x07_a.md").write_text("A.", encoding="utf-8")
    one = claims.code("0x07_a")
    (tmp_path / "0x07_a.md").write_text("B.", encoding="utf-8")
    assert len({bare, one, claims.code("0x07_a")}) == 3
    assert claims.code("0x07_b") == bare
    monkeypatch.setattr(claims, "_package_digest", lambda: b"another")
    assert claims.code("0x07_b") != bare


@pytest.mark.parametrize("text", ["{", "{}", '[{"id": "other"}]', "[3]"])
def test_a_damaged_record_is_refused(tmp_path, text):
    (tmp_path / "0x07D-dag-boundary.json").write_text(text, encoding="utf-8")
    with pytest.raises(ClaimError, match="0x07D-dag-boundary"):
        claims.read_records(tmp_path)


def test_the_badge_escapes_its_texts_and_names_its_claim_once(register):
    claim = claims.load()["0x07D-dag-boundary"]
    claims._shown.clear()
    first = claims._badge(claim, "a < b & <script>")
    again = claims._badge(claim, "a")
    assert "<script>" not in first
    assert "a &lt; b &amp; &lt;script&gt;" in first
    assert 'id="claim-0x07D-dag-boundary"' in first
    assert ' id="' not in again  # an id stands once on a page
    assert 'data-claim="0x07D-dag-boundary"' in again
    assert "Shown" in first  # the verdict is a word, not only a colour


def test_a_stream_that_cannot_write_the_text_gets_a_replacement(tmp_path):
    code = "from specbook import display; display.show('', 'p → q')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        env={"PYTHONIOENCODING": "ascii", "PYTHONPATH": ":".join(sys.path)},
        check=True,
    )
    assert done.stdout.strip() == b"p ? q"
    assert not display.in_notebook()


def test_claims_and_exercises_need_neither_torch_nor_matplotlib():
    code = (
        "import sys; from specbook import claims, exercises; "
        "print(sorted({'torch', 'matplotlib', 'IPython'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


# ---- the register against the notebooks ------------------------------------------

BOOK = """
---
kernelspec:
  name: python3
---

# Trees

A fence that is no cell:

```python
claims.check("0x00-nowhere", True, "")
```

```{code-cell} ipython3
:tags: [hide-input, wide]

from specbook import claims
%matplotlib inline
same = rows[2] == rows[4]
claims.check("0x07D-dag-boundary", not same, f"{rows}")
# claims.check("0x00-comment", same, "")
```

```{code-cell}
text = 'claims.check("0x00-string", True, "")'
check_it = claims.check(
    "0x08B-one-draw", p > 1e-6, f"p = {p}")
```
"""


def faults_of(tmp_path, text, name="0x07_candidate_trees.md"):
    folder = tmp_path / "books"
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    path = tmp_path / "claims.toml"
    path.write_text(GOOD, encoding="utf-8")
    return claims.register_faults(folder, claims.load(path))


def test_code_cells_of_a_myst_notebook():
    cells = claims.code_cells(BOOK)
    assert [cell.tags for cell in cells] == [("hide-input", "wide"), ()]
    lines = BOOK.splitlines()
    for cell in cells:
        first = cell.source.splitlines()[0]
        assert lines[cell.line - 1] == first
    yaml = '```{code-cell}\n---\ntags: ["a", b]\n---\nx = 1\n```\n'
    assert claims.code_cells(yaml) == [claims.CodeCell(5, ("a", "b"), "x = 1")]


def test_an_agreeing_notebook_has_no_faults(tmp_path):
    assert faults_of(tmp_path, BOOK) == []


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"0x08B-one-draw", p', '"0x08B-two-draws", p', "no claim '0x08B-two-draws'"),
        ('"0x08B-one-draw", p', '"0x08B-two-draws", p', "'0x08B-one-draw' is not"),
        ("check_it = claims", "# check_it = claims", "'0x08B-one-draw' is not checked"),
        *(
            ("p > 1e-6", true, "condition of '0x08B-one-draw' cannot fail")
            for true in (
                *("True", "condition=True", "not False", "1 == 1", "bool(1)"),
                *("p > 1e-6 or True", "all([])", "str(1) == '1'", "text != ''"),
            )
        ),
        ('"0x08B-one-draw", p', "name, p", "write the claim's id out"),
        ("same = rows", "same = = rows", "invalid syntax"),
    ],
)
def test_planted_faults_in_a_notebook_are_named(tmp_path, old, new, told):
    assert old in BOOK
    text = BOOK.replace(old, new)
    if new.startswith("condition="):
        text = text.replace('f"p = {p}")', 'evidence=f"p = {p}")')
    if new.startswith("#"):
        text = text.replace('    "0x08B-one-draw", p > 1e-6, f"p = {p}")', "")
    found = faults_of(tmp_path, text)
    assert any(told in fault for fault in found), found


def test_a_name_that_is_also_computed_may_fail(tmp_path):
    held = BOOK.replace("text = '", "held = True\ntext = '").replace("p > 1e-6", "held")
    assert any("cannot fail" in fault for fault in faults_of(tmp_path, held))
    for more in ("held &= p > 1", "held = p > 1", "for held in p: pass"):
        text = held.replace("held = True\n", f"held = True\n{more}\n")
        assert faults_of(tmp_path, text) == []


def test_a_list_that_is_filled_later_is_no_constant(tmp_path):
    text = BOOK.replace("text = '", "kept = []\nkept.append(p)\ntext = '")
    text = text.replace("p > 1e-6", "all(kept)")
    assert text.count("kept") == 3 and faults_of(tmp_path, text) == []


def test_arguments_may_be_named(tmp_path):
    call = 'claim_id="0x08B-one-draw", condition=p > 1e-6, evidence=f"p = {p}")'
    text = BOOK.replace('"0x08B-one-draw", p > 1e-6, f"p = {p}")', call)
    assert text != BOOK and faults_of(tmp_path, text) == []


def test_a_claim_checked_in_a_foreign_notebook_is_a_fault(tmp_path):
    found = faults_of(tmp_path, BOOK, "0x02_proposal_interface.md")
    assert len(found) == 2
    assert "belongs to 0x07_candidate_trees" in found[0]
    line = BOOK.splitlines().index(
        'claims.check("0x07D-dag-boundary", not same, f"{rows}")'
    )
    assert found[0].startswith(f"0x02_proposal_interface.md:{line + 1}:")


def test_a_claim_whose_notebook_is_still_to_come_is_no_fault(tmp_path):
    text = textwrap.dedent("# Nothing yet\n")
    assert faults_of(tmp_path, text, "0x02_proposal_interface.md") == []


def test_json_of_a_record_is_readable_by_others(register, tmp_path, monkeypatch):
    monkeypatch.setenv(claims.RECORDS_VARIABLE, str(tmp_path / "r"))
    claims.check("0x08B-one-draw", True, "x")
    path = tmp_path / "r" / "0x08B-one-draw.json"
    assert json.loads(path.read_text(encoding="utf-8"))[0]["kind"] == "statistical"


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: claims.check([], True, "seen"), "no claim"),
        (lambda: claims.check(5, True, "seen"), "no claim"),
        (lambda: claims.load(5), "path must be a path"),
        (lambda: claims.load("a\0b"), "TOML"),
        (lambda: claims.load("/dev/null/x"), "cannot be read"),
        (lambda: claims.read_records(5), "folder must be a path"),
        (lambda: claims.read_records("/dev/null/x"), "does not exist"),
    ],
)
def test_what_is_no_name_and_no_path_is_refused(register, call, told):
    with pytest.raises(ClaimError, match=told):
        call()


def test_a_folder_that_takes_no_records_is_named(register, monkeypatch, tmp_path):
    name = next(iter(claims.load()))
    (tmp_path / "file").write_text("", encoding="utf-8")
    monkeypatch.setenv("SPECBOOK_RECORDS", str(tmp_path / "file" / "x"))
    with pytest.raises(ClaimError, match="SPECBOOK_RECORDS=.*is no folder"):
        claims.check(name, True, "seen")
