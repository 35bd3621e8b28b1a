"""data/book.toml, from which the overview draws its tables."""

import copy
import re
import tomllib
import unicodedata
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest

from specbook.claims import code_cells, load
from specbook.lab import refusal
from specbook.paths import data_path

BOOK = tomllib.loads(data_path("book.toml").read_text(encoding="utf-8"))
ROOT = data_path("book.toml").parent.parent
DECISIONS = {"source", "topology", "contract", "selection", "publication"}


def surnames(authors):
    """The surname that "Sun et al." or "Spector and Ré" begins with."""
    return re.split(r" et al\.| and ", authors)[0]


def entries():
    text = data_path("references.bib").read_text(encoding="utf-8")
    found = re.findall(r"@\w+\{([^,]+),(.*?)\n\}", text, re.DOTALL)
    return {
        key: re.search(r"author = \{+(.*?)\},?\n", body)[1]
        for key, body in found
        if "author = " in body
    }


def test_the_works_are_in_the_order_in_which_they_appeared():
    years = [work["year"] for work in BOOK["work"]]
    assert years == sorted(years)
    assert {work["changes"] for work in BOOK["work"]} <= DECISIONS


def test_each_work_has_the_first_author_of_the_bibliography():
    known = entries()
    for work in BOOK["work"]:
        first = known[work["key"]].split(" and ")[0].split(",")[0]
        plain = unicodedata.normalize("NFC", first)
        assert surnames(work["authors"]) == plain, work["name"]


def first_names(author):
    """ "Zhang, Jun and Wang, Jue" -> "Jun Zhang"."""
    family, given = author.split(" and ")[0].split(", ")
    return f"{given} {family}"


def test_wrong_authors_come_with_evidence_and_right_ones_without():
    listed = [work for work in BOOK["work"] if "article" in work]
    assert sorted(work["article"] for work in listed) == list(range(1, 12))
    known = entries()
    wrong = []
    for work in listed:
        paper = first_names(known[work["key"]])
        if work["article_authors"].startswith(paper):
            assert "evidence" not in work, work["name"]
        else:
            assert paper in work["evidence"], work["name"]
            wrong.append(work["article"])
    assert sorted(wrong) == [2, 3, 4, 7, 9]


def cell(claim_id):
    """The source of the overview's cell that checks a claim."""
    text = (ROOT / "notebooks" / "0x00_overview.md").read_text(encoding="utf-8")
    (found,) = [c.source for c in code_cells(text) if f'"{claim_id}"' in c.source]
    return found


def run(claim_id, files, **names):
    """Runs that cell on other data files; the claim's condition."""
    told = []
    space = {
        "re": re,
        "tomllib": tomllib,
        "Counter": Counter,
        "replace": replace,
        "refusal": refusal,
        "paths": SimpleNamespace(data_path=lambda name: files / name),
        "claims": SimpleNamespace(
            check=lambda name, held, evidence: told.append(held), load=load
        ),
        **names,
    }
    exec(cell(claim_id), space)  # noqa: S102
    return told == [True]


def altered(folder, name, old, new):
    """A copy of a data file with one change."""
    text = data_path(name).read_text(encoding="utf-8")
    assert old in text
    (folder / name).write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Zhang, Jun and", "Liu, Xiaoxuan and"),
        ("Cai, Tianle and Li, Yuhong", "Li, Yuhong and Cai, Tianle"),
        ("Sun, Ziteng", "Sun, Zheng"),
    ],
)
def test_the_claim_about_authors_fails_on_another_bibliography(tmp_path, old, new):
    altered(tmp_path, "references.bib", "", "")
    assert run("0x01-reference-authors", tmp_path, book=BOOK)
    altered(tmp_path, "references.bib", old, new)
    assert not run("0x01-reference-authors", tmp_path, book=BOOK)


def test_the_claim_about_authors_fails_on_another_list(tmp_path):
    altered(tmp_path, "references.bib", "", "")
    book = copy.deepcopy(BOOK)
    (rest,) = [work for work in book["work"] if work["name"] == "REST"]
    rest["article_authors"] = "Zhenyu He et al."
    assert not run("0x01-reference-authors", tmp_path, book=book)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('class = "source-local"', 'class = "hearsay"'),
        ('kind = "exact"', 'kind = "obvious"'),
        ('kind = "exact"\n', ""),
        ('class = "externally-verified"', 'class = "source-local"'),
    ],
)
def test_the_claim_about_classes_fails_on_another_register(tmp_path, old, new):
    altered(tmp_path, "claims.toml", "", "")
    assert run("0x01-evidence-classes", tmp_path)
    text = data_path("claims.toml").read_text(encoding="utf-8")
    count = -1 if new == 'class = "source-local"' else 1
    changed = text.replace(old, new, count)
    (tmp_path / "claims.toml").write_text(changed, encoding="utf-8")
    assert not run("0x01-evidence-classes", tmp_path)


def test_the_map_names_every_notebook_once_and_in_order():
    names = [notebook["name"] for notebook in BOOK["notebook"]]
    assert len(set(names)) == len(names) == 18
    assert [n[:4] for n in names] == sorted(n[:4] for n in names)
    assert {work["notebook"] for work in BOOK["work"]} <= set(names)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "notebooks").glob("*.md")), ids=lambda path: path.stem
)
def test_every_notebook_is_on_the_map(path):
    assert path.stem in {notebook["name"] for notebook in BOOK["notebook"]}
