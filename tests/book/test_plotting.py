"""Figures: the frame with alt text and caption, the palette, trees, masks, ledgers."""

import itertools
import math
import re
from html.parser import HTMLParser

import matplotlib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from specbook import plotting
from specbook.errors import SpecbookError, TreeError
from specbook.ledger import COST_TERMS, RoundLedger
from specbook.plotting import PlotError
from specbook.plotting import trees as trees_module
from specbook.proposal import PREFIX_FRONTIER
from specbook.tree import CandidateTree

PATHS = [(0, 1, 2), (0, 1, 3), (0, 4), (5, 1)]
NAMES = dict(enumerate("ABCDEX"))


def a_tree(sources=None, prefix_len=4):
    return CandidateTree.from_paths(PATHS, prefix_len, sources=sources)


def a_figure(**changes):
    with plotting.style():
        fig = Figure(figsize=(4, 2), layout="constrained")
        ax = fig.add_subplot()
        ax.plot([1, 2, 3], [1, 4, 9], **changes)
        ax.set_xlabel("rows")
    return fig


def texts(fig):
    return [
        text.get_text()
        for text in fig.findobj(matplotlib.text.Text)
        if text.get_visible() and text.get_text().strip()
    ]


# ---- the frame -------------------------------------------------------------------


class Tags(HTMLParser):
    def __init__(self, html):
        super().__init__()
        self.found, self.text = [], []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text.append(data)


def test_the_frame_holds_picture_alt_text_and_caption():
    alt = 'Squares of 1, 2 and 3: "a < b" & rising'
    framed = plotting.figure(a_figure(), alt=alt, caption="It grows & <grows>.")
    bundle = framed._repr_mimebundle_()
    assert set(bundle) == {"text/html", "text/plain"}
    page = Tags(bundle["text/html"])
    assert [tag for tag, _ in page.found] == ["figure", "img", "figcaption"]
    image = page.found[1][1]
    assert image["alt"] == alt
    assert image["src"].startswith("data:image/png;base64,")
    assert "max-width:100%" in image["style"]
    assert "".join(page.text) == "It grows & <grows>."
    assert bundle["text/plain"] == f"[Figure: {alt}]\nIt grows & <grows>."


def test_the_picture_is_kept_at_twice_its_size():
    framed = plotting.figure(a_figure(), alt="a", caption="b")
    pixels = matplotlib.image.imread(_stream(framed.png))
    assert abs(pixels.shape[1] - 2 * framed.width) <= 1
    assert abs(pixels.shape[0] - 2 * framed.height) <= 1
    assert 300 < framed.width < 420  # 4 inches, cut to what is drawn


def _stream(png):
    import io

    return io.BytesIO(png)


@pytest.mark.parametrize(
    ("alt", "caption"),
    [("", "b"), ("  ", "b"), (None, "b"), ("a", ""), ("a", None), ("a", 3), ("a", "a")],
)
def test_a_figure_without_its_texts_is_refused(alt, caption):
    with pytest.raises(PlotError):
        plotting.figure(a_figure(), alt=alt, caption=caption)


def test_alt_and_caption_cannot_be_left_out():
    with pytest.raises(TypeError):
        plotting.figure(a_figure())


def test_a_measured_figure_says_where_and_when():
    framed = plotting.figure(a_figure(), alt="a", caption="b.", measured=True)
    assert framed.caption == f"b. Measured on {plotting.machine()}."


def test_what_is_no_figure_small_text_and_too_wide_are_refused():
    with pytest.raises(PlotError, match="needs a matplotlib Figure"):
        plotting.figure("plot", alt="a", caption="b")
    small = a_figure()
    small.axes[0].set_title("tiny", fontsize=6)
    with pytest.raises(PlotError, match="'tiny' is 6 points"):
        plotting.figure(small, alt="a", caption="b")
    wide = a_figure()
    wide.set_figwidth(11)
    with pytest.raises(PlotError, match="inches wide"):
        plotting.figure(wide, alt="a", caption="b")


def test_the_face_is_opaque_white_even_when_asked_to_be_clear():
    fig = a_figure()
    fig.patch.set_alpha(0)
    fig.axes[0].patch.set_alpha(0)
    framed = plotting.figure(fig, alt="a", caption="b")
    pixels = matplotlib.image.imread(_stream(framed.png))
    assert np.allclose(pixels[0, 0], 1)
    assert pixels.shape[2] == 3 or pixels[..., 3].min() == 1


def test_equal_input_gives_equal_bytes_and_no_date():
    one = plotting.figure(plotting.draw_tree(a_tree(), NAMES), alt="a", caption="b")
    two = plotting.figure(plotting.draw_tree(a_tree(), NAMES), alt="a", caption="b")
    assert one.png == two.png
    assert b"Software" not in one.png and b"tEXt" not in one.png


def test_a_pyplot_figure_is_closed():
    import matplotlib.pyplot as plt

    before = plt.get_fignums()
    fig, ax = plt.subplots()
    ax.plot([1, 2])
    plotting.figure(fig, alt="a", caption="b")
    assert plt.get_fignums() == before


def test_save_leaves_no_temporary_file(tmp_path):
    framed = plotting.figure(a_figure(), alt="a", caption="b")
    path = framed.save(tmp_path / "new" / "x.png")
    assert path.read_bytes() == framed.png
    assert [p.name for p in path.parent.iterdir()] == ["x.png"]


def test_style_ends_with_its_block():
    before = dict(matplotlib.rcParams)
    with plotting.style():
        assert matplotlib.rcParams["savefig.transparent"] is False
        assert matplotlib.rcParams["image.cmap"] == "cividis"
        assert matplotlib.rcParams["font.size"] == 9
    assert dict(matplotlib.rcParams) == before


def test_every_line_of_the_style_has_a_marker_and_its_own_look():
    looks = set()
    with plotting.style():
        fig = Figure()
        ax = fig.add_subplot()
        for shift in range(6):
            (line,) = ax.plot([0, 1], [shift, shift])
            looks.add((line.get_marker(), line.get_linestyle()))
            assert line.get_marker() not in {"", "None", None}
    assert len(looks) == 6
    assert len({marker for marker, _ in looks}) == 6


def test_machine_is_one_dated_line():
    line = plotting.machine()
    assert re.search(
        r"\d+ threads?, (torch \d+\.\d+|no torch).*, \d{4}-\d\d-\d\d$", line
    )
    assert "\n" not in line


# ---- colours ---------------------------------------------------------------------

# Machado, Oliveira and Fernandes (2009), full deuteranopia and protanopia, on linear
# RGB.
DEUTERANOPIA = np.array(
    [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ]
)
PROTANOPIA = np.array(
    [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ]
)


def linear(colour):
    rgb = np.array(to_rgb(colour))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    """CIE L*a*b* (D65) of a linear RGB colour."""
    to_xyz = np.array(
        [
            [0.4124564, 0.3575761, 0.1804375],
            [0.2126729, 0.7151522, 0.0721750],
            [0.0193339, 0.1191920, 0.9503041],
        ]
    )
    x, y, z = (to_xyz @ np.clip(rgb, 0, 1)) / np.array([0.95047, 1, 1.08883])
    f = [
        np.cbrt(t) if t > (6 / 29) ** 3 else t / (3 * (6 / 29) ** 2) + 4 / 29
        for t in (x, y, z)
    ]
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def least_distance(colours, vision):
    seen = [lab(vision @ linear(colour)) for colour in colours]
    return min(np.linalg.norm(a - b) for a, b in itertools.combinations(seen, 2))


@pytest.mark.parametrize(
    "vision", [np.eye(3), DEUTERANOPIA, PROTANOPIA], ids=["all", "deuter", "prot"]
)
def test_colours_stay_apart(vision):
    """A CIE76 distance of 10 is plainly seen side by side."""
    assert least_distance(plotting.COLOURS, vision) > 10
    terms = [colour for colour, _ in plotting.TERM_LOOKS.values()]
    assert least_distance(terms, vision) > 10


def test_red_and_green_would_be_found_out():
    assert least_distance(["#d62728", "#8c7a1e"], np.eye(3)) > 40
    assert least_distance(["#d62728", "#8c7a1e"], DEUTERANOPIA) < 10


def contrast(one, other):
    def light(colour):
        return linear(colour) @ np.array([0.2126, 0.7152, 0.0722])

    low, high = sorted([light(one), light(other)])
    return (high + 0.05) / (low + 0.05)


def test_text_has_contrast_on_its_own_face():
    from specbook import claims, display, exercises

    assert contrast(plotting.INK, "white") > 7
    assert contrast(plotting.MUTED, "white") > 4.5
    assert contrast("#8c8c8c", "white") < 4.5  # the test can fail
    claim = claims.Claim(
        "0x07-a", "0x07", "t", "source-local", "exact", "0x07_candidate_trees"
    )
    report = exercises.Report("0x07-a", "wrong", 0, 1, ["a"], 0)
    for html in (claims._badge(claim, "e"), report.html()):
        assert "background:#ffffff" in html  # opaque, so dark pages change nothing
        for colour in re.findall(r"(?<![-\w])color:(#[0-9a-f]{6})", html):
            assert contrast(colour, "#ffffff") > 4.5
    assert "color:#1a1a1a" in display.LIGHT_BOX


def test_cost_terms_differ_by_more_than_colour():
    assert set(plotting.TERM_LOOKS) == set(COST_TERMS)
    hatches = [hatch for _, hatch in plotting.TERM_LOOKS.values()]
    assert len(set(hatches)) == len(COST_TERMS)


# ---- trees -----------------------------------------------------------------------

trees = st.lists(
    st.lists(st.integers(0, 3), min_size=1, max_size=4), min_size=1, max_size=9
).map(lambda paths: CandidateTree.from_paths(paths, 3))


def crossings(tree, spots):
    """Pairs of edges that meet anywhere but in a common end."""
    edges = [(parent, row) for row, parent in enumerate(tree.parents)]
    found = 0
    for (a, b), (c, d) in itertools.combinations(edges, 2):
        if {a, b} & {c, d}:
            continue
        p, q, r, s = (np.array(spots[n]) for n in (a, b, c, d))

        def side(u, v, w):
            one, other = v - u, w - u
            return np.sign(one[0] * other[1] - one[1] * other[0])

        if side(p, q, r) * side(p, q, s) < 0 and side(r, s, p) * side(r, s, q) < 0:
            found += 1
    return found


@given(trees)
@settings(max_examples=60, deadline=None)
def test_no_two_edges_cross_and_no_two_rows_share_a_place(tree):
    spots = plotting.layout(tree)
    assert crossings(tree, spots) == 0
    assert len(set(spots.values())) == len(tree) + 1
    for row in range(len(tree)):
        assert spots[row][0] == tree.depths[row]
    for one, other in itertools.combinations(spots.values(), 2):
        if one[0] == other[0]:
            assert abs(one[1] - other[1]) >= 1 - 1e-9  # room for the label


def test_a_layout_with_crossings_would_be_found_out():
    tree = CandidateTree.from_paths([(0, 1), (2, 3)], 1)
    spots = plotting.layout(tree)
    spots[2], spots[3] = spots[3], spots[2]
    assert crossings(tree, spots) == 1


def test_the_graph_has_every_row_and_its_sources():
    tree = a_tree(["rest", "rest", "prompt_lookup", "rest"])
    net = plotting.graph(tree)
    assert set(net.nodes) == {PREFIX_FRONTIER, *range(7)}
    assert net.nodes[0]["sources"] == ("rest", "prompt_lookup")
    assert list(net.predecessors(4)) == [1]


def test_a_drawn_tree_says_everything_in_words():
    tree = a_tree(["rest", "rest", "prompt_lookup", "rest"])
    fig = plotting.draw_tree(
        tree, NAMES, committed=(0, 2, 5), refused=(1,), title="$7$ rows"
    )
    told = texts(fig)
    for row in range(7):
        assert str(row) in told
    assert told.count("B") == 2
    assert "prefix\n4 tokens" in told
    assert "committed rows 0, 2, 5: A B C" in told
    assert {"rest", "prompt_lookup", "rest + prompt_lookup", "refused"} <= set(told)
    assert "$7$ rows" in told
    plotting.figure(fig, alt="a", caption="b")  # no small text, not too wide


def test_refused_rows_go_by_the_name_that_they_are_given():
    drawn = texts(plotting.draw_tree(a_tree(), refused=(1,), refused_label="dropped"))
    assert "dropped" in drawn and "refused" not in drawn
    assert "dropped" not in texts(plotting.draw_tree(a_tree(), refused_label="dropped"))


def test_sources_differ_by_marker_and_dash():
    tree = a_tree(["a", "b", "c", "d"])
    legend = plotting.draw_tree(tree, NAMES).axes[0].get_legend()
    looks = [(h.get_marker(), h.get_linestyle()) for h in legend.legend_handles]
    assert len({marker for marker, _ in looks}) == len(looks) == 6


def test_a_note_stands_behind_its_label_and_not_in_the_legend():
    notes = [f" x{n}" for n in range(7)]
    told = texts(plotting.draw_tree(a_tree(), NAMES, (0, 2, 5), notes=notes))
    assert "A·x0" in told and "committed rows 0, 2, 5: A B C" in told
    with pytest.raises(TreeError, match="2 labels for 7 rows"):
        plotting.draw_tree(a_tree(), NAMES, notes=["a", "b"])


def test_a_label_stands_clear_of_every_marker():
    sources = list("abcdefgh")
    tree = CandidateTree.from_paths(
        [(token,) for token in range(8)], 1, sources=sources
    )
    (ax,) = plotting.draw_tree(tree, list("ABCDEFGH")).axes
    below = {t.get_text(): t.xyann[1] for t in ax.texts if t.get_text() in "ABCDEFGH"}
    for letter, (area, _, reach) in zip(
        "ABCDEFGH", trees_module.NODES.values(), strict=True
    ):
        assert reach >= area**0.5 / 2 - 0.4
        assert below[letter] <= -reach - 7, "half a line of nine points, and air"


def edge_corners(ax):
    return {len(line.get_xdata()) for line in ax.lines if len(line.get_xdata()) > 1}


def test_a_wide_fan_gets_corners_so_that_its_edges_stay_apart():
    few = [(0, token) for token in range(3)]
    many = [(0, token) for token in range(6)]
    plain, fan = (
        plotting.draw_tree(CandidateTree.from_paths(paths, 1)).axes[0]
        for paths in (few, many)
    )
    assert edge_corners(plain) == {2} and edge_corners(fan) == {4}


def test_a_shape_without_sources_has_no_legend_for_them():
    assert plotting.draw_tree(a_tree()).axes[0].get_legend() is None


@pytest.mark.parametrize(
    ("keywords", "told"),
    [
        ({"committed": (0, 1)}, "no root-to-node path"),
        ({"committed": (2,)}, "no root-to-node path"),
        ({"committed": (9,)}, "at most 6"),
        ({"refused": (7,)}, "at most 6"),
        ({"refused": (True,)}, "must be an integer"),
        ({"committed": (0,), "refused": (0,)}, "committed and refused"),
        ({"labels": ["A"]}, "1 labels for 7 rows"),
        ({"labels": 3}, "labels are one a row"),
        ({"labels": "ABCDEFG"}, "labels are one a row"),
        ({"committed": 3}, "committed must be row numbers"),
        ({"refused": "0"}, "refused must be row numbers"),
    ],
)
def test_a_tree_is_not_drawn_from_wrong_rows(keywords, told):
    with pytest.raises(TreeError, match=re.escape(told)):
        plotting.draw_tree(a_tree(), **keywords)
    with pytest.raises(TreeError):
        plotting.draw_tree([(0, 1)])


@pytest.mark.parametrize(
    ("token", "label"),
    [
        (" the", "·the"),
        ("\n\n", "↵↵"),
        ("\t", "→"),
        ("$x$", "$x$"),
        ("中", "U+4E2D"),
        ("\x00", "U+0000"),
        ("a" * 30, "a" * 13 + "…"),
    ],
)
def test_labels_can_always_be_drawn(token, label):
    assert plotting.printable(token) == label
    tree = CandidateTree.from_paths([(0,)], 1)
    with matplotlib.rc_context():
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a missing glyph is only a warning
            fig = plotting.draw_tree(tree, lambda _: token)
            plotting.figure(fig, alt="a", caption="b")


@given(trees)
@settings(max_examples=8, deadline=None)
def test_any_small_tree_can_be_framed(tree):
    plotting.figure(plotting.draw_tree(tree), alt="a", caption="b")


def test_long_chains_wide_trees_and_none_at_all_can_be_framed():
    for tree in (
        CandidateTree.from_paths([range(12)], 1),
        CandidateTree.from_paths([(token,) for token in range(14)], 0),
        CandidateTree((), (), (), 5),
    ):
        plotting.figure(plotting.draw_tree(tree), alt="a", caption="b")


# ---- masks -----------------------------------------------------------------------


def drawn_mask(fig):
    """{(row, column)} of the filled cells, read back from the picture's squares."""
    cells = set()
    for patch in fig.axes[0].patches:
        if to_rgb(patch.get_facecolor()) != (1, 1, 1):
            cells.add((round(patch.get_y() + 0.5), round(patch.get_x() + 0.5)))
    return cells


@pytest.mark.parametrize(("prefix_len", "shown"), [(0, 0), (1, 1), (3, 3), (4, 1)])
def test_a_drawn_mask_is_the_trees_mask(prefix_len, shown):
    tree = a_tree(prefix_len=prefix_len)
    fig = plotting.draw_mask(tree, NAMES)
    expected = {(row, column) for row in range(7) for column in range(shown)}
    for row, column in np.argwhere(tree.tree_mask):
        expected.add((int(row), shown + int(column)))
    assert drawn_mask(fig) == expected
    ticks = [label.get_text() for label in fig.axes[0].get_xticklabels()]
    assert len(ticks) == shown + 7
    assert ticks[shown:] == [f"{r}\n{NAMES[t]}" for r, t in enumerate(tree.token_ids)]
    if prefix_len == 4:
        assert ticks[0] == "0..3"
    dots = {(int(line.get_ydata()[0]), int(line.get_xdata()[0]))
            for line in fig.axes[0].lines if line.get_marker() == "o"}  # fmt: skip
    assert dots == expected  # the mask can be read without colours
    plotting.figure(fig, alt="a", caption="b")


def test_a_mask_needs_rows():
    with pytest.raises(TreeError, match="empty tree"):
        plotting.draw_mask(CandidateTree((), (), (), 5))


# ---- ledgers ---------------------------------------------------------------------


def ledger(tokens, verify=0.04):
    return RoundLedger(0.001, 0.002, 0.003, verify, 0.004, 0.005, tokens)


def bars(ax):
    return [round(patch.get_width(), 6) for patch in ax.patches]


def test_ledgers_are_drawn_in_milliseconds_per_token_and_per_round():
    fig = plotting.ledger_bars({"plain": [ledger(1)], "lookup": [ledger(3), ledger(1)]})
    token, each = fig.axes
    assert token.get_xlabel() == "ms per committed token"
    assert each.get_xlabel() == "ms per round"
    # The last of each row is what was too thin to stand alone.
    assert bars(each) == [2, 3, 40, 4, 5, 1] * 2
    assert bars(token) == [2, 3, 40, 4, 5, 1, 1.5, 20, 2, 2.5, 1.5]
    told = texts(fig)
    assert {"plain", "lookup", "55.0", "27.5", "thin terms, together"} <= set(told)
    assert {"retrieval", "target verify", "temporary state"} <= set(told)
    assert "proposal" not in told, "it is too thin in every bar"
    plotting.figure(fig, alt="a", caption="b")


def test_terms_that_would_be_lines_stand_together_and_the_sum_stays():
    fig = plotting.ledger_bars([RoundLedger(0.0, 0.0001, 0.0002, 0.09, 0.0, 0.0097, 1)])
    for ax in fig.axes:
        assert bars(ax) == [90, 9.7, 0.3] and "100" in [t.get_text() for t in ax.texts]
    assert "thin terms, together" in texts(fig)
    plain = plotting.ledger_bars([RoundLedger(1, 1, 1, 1, 1, 1, 1)])
    assert "thin terms, together" not in texts(plain)


def test_one_run_needs_no_name():
    assert "this run" in texts(plotting.ledger_bars([ledger(1)]))


@pytest.mark.parametrize(
    "ledgers", [{}, {"a": []}, [], {"a": [3]}, {"a": [ledger(0)]}, [None], 3, None]
)
def test_ledgers_without_rounds_or_tokens_are_refused(ledgers):
    with pytest.raises(SpecbookError):
        plotting.ledger_bars(ledgers)


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: plotting.graph(5), "not a CandidateTree: int"),
        (lambda: plotting.layout(None), "not a CandidateTree: NoneType"),
        (lambda: plotting.ranges(5, "x"), "values must be a mapping"),
        (lambda: plotting.ranges({"a": 5}, "x"), "values.'a'. must be a sequence"),
        (lambda: plotting.ranges({"a": (1, 1)}, "x"), "has 2 numbers, not 3"),
        (
            lambda: plotting.ranges({"a": (math.nan, 0, 1)}, "x"),
            "values.'a'..0. must be finite",
        ),
        (lambda: plotting.ranges({"a": (1, 0, 2)}, 5), "xlabel must be text"),
        (
            lambda: plotting.ranges({"a": (1, 0, 2)}, "x", points=5),
            "points must be a mapping",
        ),
        (
            lambda: plotting.ranges({"a": (1, 0, 2)}, "x", reference=5),
            "reference is a place and a name",
        ),
        (lambda: plotting.curves(5, {"a": [1, 2]}, "x", "y"), "x must be a sequence"),
        (lambda: plotting.curves([1, 2], 5, "x", "y"), "series must be a mapping"),
        (lambda: plotting.shares(5, "x"), "rows must be a mapping"),
        (lambda: plotting.shares({}, "x"), "no share"),
        (lambda: plotting.shares({"a": 5}, "x"), "rows.'a'. must be a mapping"),
        (lambda: plotting.shares({"a": {}}, "x"), "must add up to 1"),
        (lambda: plotting.shares({"a": {"b": 0.9}}, "x"), "must add up to 1"),
        (lambda: plotting.shares({"a": {"b": 2, "c": -1}}, "x"), "must add up to 1"),
        (lambda: plotting.shares({"a": {"b": True}}, "x"), "must be a"),
        (lambda: plotting.shares({"a": {"b": 1}}, 5), "xlabel must be text"),
        (
            lambda: plotting.shares({"a": {"b": 1}, "c": {"d": 1}}, "x"),
            "rows.'c'. has parts .'d'., not .'b'.",
        ),
    ],
)
def test_what_cannot_be_drawn_is_named(call, told):
    with pytest.raises(SpecbookError, match=told):
        call()


def test_a_picture_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    fig = plotting.ranges({"a": (1, 0, 2)}, "x")
    framed = plotting.figure(fig, alt="One dot.", caption="A dot with its interval.")
    (tmp_path / "dot.png").mkdir()
    with pytest.raises(OSError):
        framed.save(tmp_path / "dot.png")
    assert [path.name for path in tmp_path.iterdir()] == ["dot.png"]


@pytest.mark.parametrize("count", range(1, 9))
def test_shares_fill_their_bar_and_can_be_read_on_it(count):
    row = {f"part {i}": 1 / count for i in range(count)}
    fig = plotting.shares({"one": row, "two": row}, "share of positions")
    (ax,) = fig.axes
    assert len(ax.patches) == 2 * count
    for bars in (ax.patches[:count], ax.patches[count:]):
        assert bars[0].get_x() == 0
        assert sum(bar.get_width() for bar in bars) == pytest.approx(1)
        for left, right in itertools.pairwise(bars):
            assert right.get_x() == pytest.approx(left.get_x() + left.get_width())
    told = [text for text in ax.texts if text.get_text() == f"{1 / count:.0%}"]
    assert len(told) == 2 * count
    for text, bar in zip(told, ax.patches, strict=True):
        assert contrast(text.get_color(), bar.get_facecolor()[:3]) >= 4.5
    assert {*row, "one", "two", "share of positions"} <= set(texts(fig))


def test_a_share_that_has_no_room_for_its_number_has_none():
    fig = plotting.shares({"a": {"much": 0.97, "little": 0.03}}, "share")
    assert "97%" in texts(fig) and "3%" not in texts(fig)


TWO = {"copy": (2.0, 1.5, 2.5), "draw": (1.5, 1.0, 3.0)}


def test_a_series_keeps_its_marker_in_every_group():
    fig = plotting.grouped_ranges(
        {"edit": TWO, "chat": TWO, "code": TWO},
        "tokens a round",
        reference=(1.0, "plain"),
    )
    (ax,) = fig.axes
    shown = {line.get_label(): line for line in ax.lines if line.get_label() in TWO}
    assert list(shown) == list(TWO)
    looks = {(line.get_marker(), line.get_color()) for line in shown.values()}
    assert len(looks) == len(TWO)
    heights = []
    for name, line in shown.items():
        assert list(line.get_xdata()) == [TWO[name][0]] * 3
        heights += list(line.get_ydata())
        spans = [
            list(other.get_xdata())
            for other in ax.lines
            if other.get_color() == line.get_color() and len(other.get_xdata()) == 2
        ]
        assert spans == [list(TWO[name][1:])] * 3
    assert len(set(heights)) == 6, "each value has a line of its own"
    middle, other = (heights[i + 1] - heights[i] for i in (0, 3))
    assert middle == other > 2
    assert {"edit", "chat", "code", "tokens a round", "plain"} <= set(texts(fig))


@pytest.mark.parametrize(
    ("groups", "told"),
    [
        (5, "groups must be a mapping"),
        ({}, "no value"),
        ({"a": {}}, "no value"),
        ({"a": 5}, "groups.'a'. must be a mapping"),
        ({"a": TWO, "b": dict(list(TWO.items())[:1])}, "groups.'b'. has .'copy'."),
        ({"a": {"x": (1, 2, 3)}}, "a, x: 1.0 is not in .2.0, 3.0"),
        ({"a": {"x": (1, 1)}}, "has 2 numbers, not 3"),
        ({"a": {"x": (1, True, 2)}}, "must be a"),
    ],
)
def test_groups_that_cannot_be_drawn_are_named(groups, told):
    with pytest.raises(SpecbookError, match=told):
        plotting.grouped_ranges(groups, "x")


@pytest.mark.parametrize(("x", "whole"), [([1, 2, 3, 4], True), ([0, 0.25, 1], False)])
def test_counts_are_marked_by_whole_numbers(x, whole):
    fig = plotting.curves(x, {"a": [0.5] * len(x)}, "depth", "share")
    (ax,) = fig.axes
    assert all(float(tick).is_integer() for tick in ax.get_xticks()) is whole


# ------------------------------------------------------------------------- growth


def test_growth_scales_and_names_its_lines() -> None:
    flat = {"one": ([1, 2, 4], [1.0, 1.5, 2.0], [1.0, 1.4, 1.9], [1.0, 1.6, 2.1])}
    ax = plotting.growth(flat, "rows", "tokens").axes[0]
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "linear")
    steep = flat | {"two": ([1, 2], [1.0, 20.0], [1.0, 20.0], [1.0, 20.0])}
    fig = plotting.growth(steep, "rows", "seconds")
    assert fig.axes[0].get_yscale() == "log"
    assert [text.get_text() for text in fig.legends[0].get_texts()] == ["one", "two"]


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ({}, "lines"),
        ([], "lines"),
        ({str(i): ([1], [1], [1], [1]) for i in range(8)}, "7 names"),
        ({"a": ([1], [1], [1])}, "3 rows"),
        ({"a": ([1, 2], [1], [1], [1])}, "rows of"),
        ({"a": ([], [], [], [])}, "rows of"),
        ({"a": ([0], [1], [1], [1])}, "at 0"),
        ({"a": ([1], [1], [2], [3])}, "needs 0 <"),
        ({"a": ([1], [float("nan")], [1], [1])}, "middle"),
    ],
)
def test_growth_refuses_rows_that_are_none(lines: object, told: str) -> None:
    with pytest.raises(SpecbookError, match=told):
        plotting.growth(lines, "x", "y")  # type: ignore[arg-type]
