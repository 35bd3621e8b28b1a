"""The bibliography's look: an entry is labelled as the text cites it.

The text names author and year, so a numbered list would have to be searched by hand.
Entries without an author are labelled by their key.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from pybtex.database import Entry
from pybtex.plugin import register_plugin
from pybtex.richtext import Text
from pybtex.style.formatting.plain import Style
from pybtex.style.labels import BaseLabelStyle
from sphinx.application import Sphinx


def label(entry: Entry) -> str:
    """Return "First author et al., year" of an entry."""
    people = entry.persons.get("author", [])
    names = [
        str(Text.from_latex(" ".join([*person.prelast_names, *person.last_names])))
        for person in people
    ]
    if not names:
        return str(entry.key)
    told = names[0] if len(names) == 1 else f"{names[0]} et al."
    if len(names) == 2:
        told = " and ".join(names)
    return f"{told}, {entry.fields.get('year', 'no year')}"


def labels(entries: Iterable[Entry]) -> Iterator[str]:
    """Yield a label for each entry, with a letter where two would be the same."""
    plain = [label(entry) for entry in entries]
    total, seen = Counter(plain), Counter[str]()
    for told in plain:
        yield told + ("abcdefghijklmnop"[seen[told]] if total[told] > 1 else "")
        seen[told] += 1


class AuthorYearLabels(BaseLabelStyle):
    """Labels as above, for pybtex."""

    def format_labels(self, sorted_entries: list[Entry]) -> Iterator[str]:
        """Yield the labels in the order of the entries."""
        return labels(sorted_entries)


class AuthorYear(Style):
    """Pybtex's plain style with such labels."""

    default_label_style = AuthorYearLabels


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the style under the name ``authoryear``."""
    register_plugin("pybtex.style.formatting", "authoryear", AuthorYear)
    return {"parallel_read_safe": True}
