"""The check of notebook pairs: it passes on ours and catches each planted fault."""

import copy
import json
import os
from pathlib import Path

import pytest

from tools import pairs

TEXT = """\
---
jupytext:
  formats: ipynb,md:myst
  text_representation:
    extension: .md
    format_name: myst
    format_version: 0.13
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---

# A title

Some words.

```{code-cell} ipython3
:tags: [hide-input]

total = 1 + 1
```

## A part

```{code-cell} ipython3
total
```
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.md").write_text(TEXT, encoding="utf-8")
    pairs.write_pair(tmp_path / "a.md")
    return tmp_path


@pytest.fixture
def notebook(folder: Path) -> dict:
    return pairs.load(folder / "a.ipynb")


def code(*lines: str) -> dict:
    return {"cells": [{"cell_type": "code", "source": "\n".join(lines)}]}


def test_our_notebooks_have_no_fault():
    assert pairs.faults() == []


def test_a_good_pair_has_no_fault(folder):
    assert pairs.faults(folder) == []


def test_making_a_pair_twice_gives_the_same_bytes(folder):
    first = (folder / "a.ipynb").read_bytes()
    assert not pairs.write_pair(folder / "a.md")
    (folder / "a.ipynb").unlink()
    assert pairs.write_pair(folder / "a.md")
    assert (folder / "a.ipynb").read_bytes() == first
    assert not list(folder.glob("*.part"))


def test_a_new_cell_leaves_the_ids_of_the_others(folder, notebook):
    text = TEXT.replace("# A title\n", "# A title\n\n+++\n\nMore.\n\n+++\n", 1)
    (folder / "a.md").write_text(text, encoding="utf-8")
    after = pairs.from_text(folder / "a.md")
    kept = {c["id"] for c in notebook["cells"] if c["cell_type"] == "code"}
    assert kept <= {c["id"] for c in after["cells"]}


def test_equal_cells_get_different_ids(folder):
    text = TEXT + "\n```{code-cell} ipython3\ntotal\n```\n"
    (folder / "a.md").write_text(text, encoding="utf-8")
    ids = [cell["id"] for cell in pairs.from_text(folder / "a.md")["cells"]]
    assert len(set(ids)) == len(ids)


# ---- H29: contents, never time stamps --------------------------------------------


@pytest.mark.parametrize("edited", ["a.md", "a.ipynb"])
def test_an_edit_of_one_file_names_the_pair_and_the_place(folder, edited):
    path = folder / edited
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("1 + 1", "1 + 2"), encoding="utf-8")
    (fault,) = pairs.pair_faults(folder)
    assert fault.startswith("pair a: cell 2 line 1 is")
    assert "1 + 2" in fault


@pytest.mark.parametrize("newer", ["a.md", "a.ipynb"])
def test_time_stamps_say_nothing(folder, newer):
    for name in ("a.md", "a.ipynb"):
        stamp = 2_000_000_000 if name == newer else 1_000_000_000
        os.utime(folder / name, (stamp, stamp))
    assert pairs.faults(folder) == []


@pytest.mark.parametrize("gone", ["a.md", "a.ipynb"])
def test_a_missing_half_is_named(folder, gone):
    (folder / gone).unlink()
    (fault,) = pairs.pair_faults(folder)
    assert gone in fault


def test_a_damaged_notebook_is_named(folder):
    (folder / "a.ipynb").write_text("{", encoding="utf-8")
    assert any("a.ipynb: not a notebook" in fault for fault in pairs.faults(folder))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda nb: nb["cells"].pop(), "3 cells in .md, 2 in .ipynb"),
        (lambda nb: nb["cells"][1].update(id="other"), "cell 2 has another id"),
        (lambda nb: nb["cells"][1]["metadata"].clear(), "cell 2 has other metadata"),
        (lambda nb: nb["cells"][1].update(cell_type="raw"), "cell 2 is code in .md"),
        (lambda nb: nb["metadata"].update(title="x"), "other notebook metadata"),
    ],
)
def test_every_kind_of_difference_is_seen(notebook, change, said):
    notebook["cells"] = [*notebook["cells"][:2], notebook["cells"][-1]]
    other = copy.deepcopy(notebook)
    change(other)
    assert said in pairs.first_difference(notebook, other)
    assert pairs.first_difference(notebook, copy.deepcopy(notebook)) is None


# ---- one planted fault for each rule ---------------------------------------------


def test_a_private_kernel_is_refused(notebook):
    assert not list(pairs.kernel_faults(notebook))
    notebook["metadata"]["kernelspec"]["name"] = "my-env"
    assert list(pairs.kernel_faults(notebook))
    del notebook["metadata"]["kernelspec"]
    assert list(pairs.kernel_faults(notebook))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda nb: nb["metadata"].update(widgets={}), "widget state"),
        (lambda nb: nb["metadata"].update(execution={"timeout": -1}), "time limit"),
        (lambda nb: nb["cells"][1].update(outputs=[{}]), "cell 2 holds outputs"),
        (lambda nb: nb["cells"][1].update(execution_count=1), "execution count"),
        (lambda nb: nb["cells"][1]["metadata"].update(scrolled=True), "scrolled"),
        (
            lambda nb: nb["cells"][1]["metadata"].update(tags=["skip-execution"]),
            "skip-execution",
        ),
        (
            lambda nb: nb["cells"][1]["metadata"].update(tags=["raises-exception"]),
            "raises-exception",
        ),
        (lambda nb: nb["cells"][1].pop("id"), "no id"),
        (lambda nb: nb["cells"][1].update(id=nb["cells"][0]["id"]), "share an id"),
    ],
)
def test_metadata_that_may_not_be_there(notebook, change, said):
    assert not list(pairs.metadata_faults(notebook))
    change(notebook)
    assert any(said in fault for fault in pairs.metadata_faults(notebook))


@pytest.mark.parametrize(
    "line",
    [
        "import sys; sys.path.insert(0, 'x')",
        "!pip install x",
        "%pip install x",
        "url = 'git+https://example.org/x'",
        "import os; os.chdir('x')",
        "%cd x",
        "open('/" + "home/reader/x.txt')",
        "open('~/x.txt')",
        r"open('C:\\x.txt')",
    ],
)
def test_code_that_ties_a_notebook_to_one_machine(line):
    assert list(pairs.code_faults(code(line)))


def test_ordinary_code_is_let_through():
    lines = ["rate = tokens / seconds", "print('tokens/second', 'a / b', '/')"]
    assert not list(pairs.code_faults(code(*lines)))


def test_sizes():
    short = code("x = 1")
    assert not list(pairs.size_faults(short, 1000))
    assert "bytes" in next(pairs.size_faults(short, 500_001))
    assert "61 cells" in next(pairs.size_faults({"cells": short["cells"] * 61}, 1))
    long = code(*["x = 1"] * 46)
    found = list(pairs.size_faults(long, 1000))
    assert any("cell 1 has 46 lines" in fault for fault in found)
    assert any("median" in fault for fault in found)
    mixed = {"cells": short["cells"] * 8 + code(*["x = 1"] * 26)["cells"] * 2}
    assert any("one code cell in ten" in f for f in pairs.size_faults(mixed, 1000))


def test_blank_lines_and_comments_are_no_code():
    assert pairs.code_lines("x = 1\n\n# why\n  # more\ny = 2\n") == 2


@pytest.mark.parametrize(
    ("counts", "expected"), [([5], 5), ([1] * 9 + [30], 1), ([1] * 8 + [30] * 2, 30)]
)
def test_ninetieth_percentile(counts, expected):
    assert pairs.percentile90(counts) == expected


def test_wide_lines():
    assert not list(pairs.width_faults("x" * 80))
    assert list(pairs.width_faults("x" * 81))
    assert not list(pairs.width_faults("| " + "x" * 100))
    assert not list(pairs.width_faults("see https://example.org/" + "x" * 80))


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("# A\n\n## B\n\n### C\n\n## D", True),
        ("# A\n\n### C", False),
        ("## A", False),
        ("# A\n\n# B", False),
        ("# A\n\n```\n# no heading\n```", True),
    ],
)
def test_headings(text, good):
    cells = {"cells": [{"cell_type": "markdown", "source": text}]}
    assert (not list(pairs.heading_faults(cells))) is good


def test_the_command_line_fails_on_a_fault(folder, capsys):
    assert pairs.main(["--folder", str(folder)]) == 0
    notebook = json.loads((folder / "a.ipynb").read_text(encoding="utf-8"))
    notebook["cells"][0]["source"] = "# Another"
    (folder / "a.ipynb").write_text(json.dumps(notebook), encoding="utf-8")
    assert pairs.main(["--folder", str(folder)]) == 1
    assert "pair a" in capsys.readouterr().err
    assert pairs.main(["--folder", str(folder), "--write"]) == 0
