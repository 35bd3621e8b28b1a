"""The errata are read from the chapters' boxes, and none is lost."""

import re

import pytest

from specbook import errata
from specbook.errors import SpecbookError
from specbook.paths import chapters_path

CHAPTER = """\
# 0x07 Trees

## First

A listing, no box:

```text
:::{admonition} Errata: not this one
```

```{code-cell} ipython3
claims.check("0x07-before", a == b, "seen")
# ## no heading
```

:::{admonition} Errata: four and five
:class: warning
The article says four.
It shows *five*.
:::

```{code-cell} ipython3
claims.check("0x07-after", a == b, "seen")
claims.check("0x07-after", b == a, "seen")
```

### Second

```{code-cell} ipython3
claims.check("0x07-else", a == b, "seen")
```

::::{admonition} Errata: last
:::{note}
inside
:::
::::

:::{admonition} Seen in the wild
Elsewhere.
:::
"""


def collected(tmp_path, text=CHAPTER):
    (tmp_path / "0x07_trees.md").write_text(text, encoding="utf-8")
    return errata.collect(tmp_path)


def test_a_box_comes_with_its_place_and_the_checks_beside_it(tmp_path):
    first, last = collected(tmp_path)
    assert first == errata.Erratum(
        "0x07_trees",
        CHAPTER.splitlines().index(":::{admonition} Errata: four and five") + 1,
        "First",
        "four and five",
        "The article says four. It shows *five*.",
        ("0x07-before", "0x07-after"),
    )
    assert (last.heading, last.title, last.claims) == ("Second", "last", ("0x07-else",))


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("Errata: four and five", "Erratum", r"0x07_trees\.md:1\d: a box is titled"),
        ("Errata: four and five", "Errata:", "a box is titled"),
        ("{admonition} Errata: four and five", "{errata}", "a box is titled"),
        (":::{admonition} Errata: four", "```{admonition} Errata: four", "is titled"),
        (":::{admonition} Errata: four", "~~~{admonition} Errata: four", "is titled"),
        (":::{admonition} Errata: four", "::: {admonition} Errata: four", "is titled"),
        (":::{admonition} Errata: four", "  :::{admonition} Errata: four", "is titled"),
        ('a == b, "seen"', "a == = b", r"0x07_trees\.md:1\d: invalid syntax"),
        ("::::\n", "", "not closed"),
        ("The article says four.\nIt shows *five*.\n", "", "says nothing"),
    ],
)
def test_a_box_that_would_be_lost_is_refused(tmp_path, old, new, told):
    assert old in CHAPTER
    with pytest.raises(SpecbookError, match=told):
        collected(tmp_path, CHAPTER.replace(old, new))


def test_only_the_options_of_a_box_are_left_out(tmp_path):
    text = CHAPTER.replace("The article says four.", ":name: x-y")
    text = text.replace(":class: warning", ":class-body: warning")
    first, _ = collected(tmp_path, text.replace("It shows", "no: option\nIt shows"))
    assert first.text == "no: option It shows *five*."
    text = CHAPTER.replace("The article says four.", "It says:\n:four: or five.")
    first, _ = collected(tmp_path, text)
    assert first.text == "It says: :four: or five. It shows *five*."


def test_a_listing_between_tildes_is_a_listing(tmp_path):
    text = CHAPTER.replace("```text\n", "~~~text\n# no heading\n", 1)
    text = text.replace("not this one\n```", "not this one\n~~~", 1)
    assert [one.heading for one in collected(tmp_path, text)] == ["First", "Second"]


def test_a_chapter_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "0x07_trees.md").write_bytes(b"\xff")
    with pytest.raises(SpecbookError, match=r"0x07_trees\.md is no chapter"):
        errata.collect(tmp_path)


def test_what_is_no_folder_of_chapters_is_refused(tmp_path):
    with pytest.raises(SpecbookError, match="no chapter in"):
        errata.collect(tmp_path)
    with pytest.raises(SpecbookError, match="must be a path"):
        errata.collect(3)


def test_every_box_of_the_book_is_found_and_shown():
    found = errata.collect()
    boxes = sum(
        len(re.findall(r"^:::\{admonition\} Errata", p.read_text("utf-8"), re.M))
        for p in chapters_path().glob("*.md")
    )
    assert len(found) == boxes >= 9
    assert [e.chapter for e in found] == sorted(e.chapter for e in found)
    assert [e.title for e in found if not e.claims] == []
