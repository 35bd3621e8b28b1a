"""The cache over a round: a cell a row, its fate told without colour."""

from __future__ import annotations

import matplotlib
import pytest
from matplotlib.patches import Rectangle

from specbook import plotting
from specbook.errors import SpecbookError

STAGES = {
    "verified": [("A", "kept"), ("X", "dropped"), ("B", "kept")],
    "committed": [("A", "kept"), ("B", "kept")],
}


def test_each_row_has_a_cell_with_its_hatch_and_the_bytes_are_told():
    fig = plotting.draw_cache(STAGES, prefix_len=9, row_bytes=1000)
    cells = fig.axes[0].findobj(
        lambda item: isinstance(item, Rectangle) and item.get_height() == 0.72
    )
    hatches = [cell.get_hatch() for cell in cells]
    assert len(cells) == 2 + 5
    assert hatches.count("xx") == 1 and hatches.count("..") == 4
    texts = {text.get_text() for text in fig.findobj(matplotlib.text.Text)}
    assert {"12 rows, 12 kB", "11 rows, 11 kB", "prefix 0..8"} <= texts
    assert {"9", "10", "11", "verified", "committed"} <= texts
    plotting.figure(fig, alt="a", caption="b")


@pytest.mark.parametrize(
    ("stages", "prefix_len", "row_bytes", "message"),
    [
        ({}, 9, 1, "map names to rows"),
        (None, 9, 1, "map names to rows"),
        ({"a": ["A"]}, 9, 1, "no \\(label, look\\)"),
        ({"a": [("A", "lost")]}, 9, 1, "look"),
        ({"a": [(1, "kept")]}, 9, 1, "label"),
        (STAGES, 0, 1, "prefix_len"),
        (STAGES, 9, None, "row_bytes"),
    ],
)
def test_nonsense_is_refused(stages, prefix_len, row_bytes, message):
    with pytest.raises(SpecbookError, match=message):
        plotting.draw_cache(stages, prefix_len, row_bytes)
