"""data/book.toml, from which the overview draws its tables."""

import re
import tomllib
import unicodedata

import pytest

from specbook.paths import data_path

BOOK = tomllib.loads(data_path("book.toml").read_text(encoding="utf-8"))
ROOT = data_path("book.toml").parent.parent
DECISIONS = {"source", "topology", "contract", "selection", "publication"}


def surnames(authors):
    """The surname that "Sun et al." or "Spector and Ré" begins with."""
    return re.split(r" et al\.| and ", authors)[0]


def entries():
    text = (ROOT / "docs" / "references.bib").read_text(encoding="utf-8")
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


def test_a_wrong_author_comes_with_evidence_and_names_another_person():
    wrong = [work for work in BOOK["work"] if "article_authors" in work]
    assert sorted(work["article"] for work in wrong) == [2, 3, 4, 7, 9]
    for work in wrong:
        assert surnames(work["authors"]) in work["evidence"]
        given = work["article_authors"].removesuffix(" et al.")
        assert given not in work["evidence"]


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
