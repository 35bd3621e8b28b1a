"""The step-through: the rule's own questions, every way, and a page that reads well."""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

from specbook import controls, verifiers
from specbook.chance import law as enumerate_law
from specbook.contract import Selection, Verifier
from specbook.drafts import samplers
from specbook.drafts.samplers import Draw, node
from specbook.errors import ChanceError, SpecbookError
from specbook.proposal import Proposal, ProposalStateHandle
from specbook.tree import CandidateTree
from specbook.verifiers.coupling import residual
from specbook.verifiers.walk import walk
from specbook.walkthrough import Selection as End
from specbook.walkthrough import Step, walkthrough
from tests.core.helpers.rules import contract


def exact(*weights: int) -> np.ndarray:
    total = sum(weights)
    return np.array([Fraction(w, total) for w in weights], dtype=object)


P = {-1: exact(3, 1, 2), 0: exact(1, 2, 3), 1: exact(1, 1, 2), 2: exact(1, 2, 0)}
Q = exact(2, 3, 1)


def tree_of(*draws: tuple[int, int, Any], relation: str = "iid") -> CandidateTree:
    """A tree of (token, parent index, law) triples."""
    nodes: list[Any] = []
    for token, parent, law in draws:
        depth = 1 if parent < 0 else nodes[parent].depth + 1
        nodes.append(node(Draw(token, law), parent, depth, "draft"))
    handle = ProposalStateHandle("draft", "request-0", 0)
    proposal = Proposal(
        tuple(nodes), "normalized_conditional", relation, "tree", handle, "none"
    )
    return CandidateTree.from_proposals(proposal, 1)


IID = tree_of((1, -1, Q), (0, -1, Q), (2, 0, Q), (1, 0, Q))
TWICE = tree_of((1, -1, Q), (1, -1, Q), (0, 0, Q))
WITHOUT = tree_of((1, -1, Q), (0, -1, samplers.rest(Q, [1])), (2, 0, Q))
CHAIN = tree_of((1, -1, Q), (2, 0, Q))
CASES = [
    ("specinfer", IID),
    ("specinfer", TWICE),
    ("kseq", IID),
    ("sequoia", WITHOUT),
    ("membership", IID),
    ("one_hot", IID),
    ("traversal", IID),
    ("traversal", WITHOUT),
    ("single", CHAIN),
    ("block", CHAIN),
    ("typical", IID),
]


def laws(tree: CandidateTree) -> Any:
    """A law for each row: by its token, so that any tree has them all."""
    return lambda row: P[-1 if row < 0 else tree.token_ids[row]]


def steps(step: Any) -> list[Step]:
    if not isinstance(step, Step):
        return []
    return [step, *(s for o in step.options for s in steps(o.below))]


def emitted(rule: Verifier, tree: CandidateTree) -> Any:
    def program(chance: Any) -> Any:
        found = rule.select(tree, laws(tree), chance)
        return (*(tree.token_ids[r] for r in found.rows), found.token)

    return enumerate_law(program)


# ----------------------------------------------------------------- what is recorded


@pytest.mark.parametrize(("name", "tree"), CASES)
def test_the_ends_have_the_law_of_the_rule(name: str, tree: CandidateTree) -> None:
    shown = walkthrough(name, tree, laws(tree))
    assert shown.law() == emitted(verifiers.get(name), tree)
    assert sum(mass for _, mass in shown.ends) == 1
    for step in steps(shown.first):
        assert sum(option.probability for option in step.options) == 1


@pytest.mark.parametrize(("name", "tree"), CASES)
def test_the_outline_has_a_line_for_every_end(name: str, tree: CandidateTree) -> None:
    shown = walkthrough(name, tree, laws(tree))
    told = re.findall(r"emits (.+); the whole way has probability (\S+)", repr(shown))
    assert len(told) == len(shown.ends)
    masses: Counter[Any] = Counter()
    for text, mass in told:
        masses[tuple(map(int, text.split()))] += Fraction(mass)
    assert dict(masses) == shown.law()


def test_over_all_drawn_trees_the_token_has_the_targets_law() -> None:
    """One tree bends the law; the mean over the sampler's trees does not."""

    def drawn(chance: Any) -> Any:
        return tuple(draw.token for draw in samplers.iid(Q, 2, chance))

    total: Counter[Any] = Counter()
    single = []
    for tokens, mass in enumerate_law(drawn).items():
        tree = tree_of(*((token, -1, Q) for token in tokens))
        found: Counter[Any] = Counter()
        for out, part in walkthrough("specinfer", tree, laws(tree)).law().items():
            found[out[0]] += part
        single.append(found)
        for token, part in found.items():
            total[token] += mass * part
    assert [total[t] for t in range(3)] == P[-1].tolist()
    assert any([found[t] for t in range(3)] != P[-1].tolist() for found in single)


def test_what_is_left_is_the_residual_of_the_rule() -> None:
    first = walkthrough("specinfer", IID, laws(IID)).first
    assert isinstance(first, Step)
    assert first.left == tuple(P[-1]) and first.candidate == 0
    refused = first.options[1].below
    assert isinstance(refused, Step)
    after = residual(P[-1], Q)
    assert refused.left == tuple(after) and refused.candidate == 1
    ratio = after[0] / Q[0]
    assert refused.options[0].probability == min(1, ratio)


def test_a_draft_that_came_twice_is_tested_twice() -> None:
    shown = walkthrough("specinfer", TWICE, laws(TWICE))
    tested = [s.candidate for s in steps(shown.first) if s.kind == "flip"]
    assert tested.count(0) == 2


def test_sequoia_and_one_hot_say_what_is_left() -> None:
    for name, tree in (("sequoia", WITHOUT), ("one_hot", IID)):
        flips = [
            s
            for s in steps(walkthrough(name, tree, laws(tree)).first)
            if s.kind == "flip"
        ]
        assert flips and all(s.left is not None for s in flips)


def test_a_rule_that_would_ask_otherwise_shows_no_residual() -> None:
    """K-SEQ tests every draft with a ratio that depends on how many there are."""
    flips = [
        s
        for s in steps(walkthrough("kseq", IID, laws(IID)).first)
        if s.kind == "flip" and s.row < 0
    ]
    assert flips[0].left is not None and flips[1].left is None
    for step in steps(walkthrough("traversal", IID, laws(IID)).first):
        assert step.candidate is None


def test_a_rule_that_asks_wrongly_is_seen() -> None:
    def select(tree: Any, law: Any, chance: Any) -> Selection:
        return walk(tree, law, chance, controls.tests_against_p, name="wrong")

    wrong = Verifier(contract("wrong"), select)
    q = exact(3, 2, 1)
    tree = tree_of((0, -1, q), (1, -1, q))
    right, shown = (
        walkthrough(rule, tree, lambda row: exact(1, 2, 3))
        for rule in ("specinfer", wrong)
    )
    assert shown.law() != right.law() and repr(shown) != repr(right)
    assert isinstance(shown.first, Step) and isinstance(right.first, Step)
    asked, asked_right = (s.first.options[1].below for s in (shown, right))
    assert isinstance(asked, Step) and isinstance(asked_right, Step)
    # What is left says that token 1 is spent, and the wrong rule accepts it.
    assert asked.left is not None and asked.left[1] == 0
    assert [o.answer for o in asked.options] == [True]
    assert [o.answer for o in asked_right.options] == [False]


def test_a_tree_without_candidates_is_one_draw() -> None:
    empty = CandidateTree.from_paths([], 1)
    shown = walkthrough("specinfer", empty, laws(empty))
    assert {t[0]: m for t, m in shown.law().items()} == dict(enumerate(P[-1]))
    assert "drawn from p" in repr(shown)


def test_a_certain_way_is_one_end() -> None:
    sure = walkthrough("greedy", IID, laws(IID))
    assert isinstance(sure.first, End) and len(sure.ends) == 1
    assert "certain" not in repr(sure) and "emits" in sure._repr_html_()


def test_floats_are_shown_rounded() -> None:
    tree = tree_of((1, -1, Q.astype(float)))
    told = repr(walkthrough("specinfer", tree, lambda row: P[-1].astype(float)))
    assert "p = 0.1667" in told and "/" not in told


# --------------------------------------------------------------------------- page


class Page(HTMLParser):
    """The elements of a page, and whether all that is opened is closed."""

    VOID = {"input", "line", "circle", "path", "br"}

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, Any]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(html)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, tag: str) -> list[dict[str, Any]]:
        return [attributes for name, attributes in self.found if name == tag]


def test_ids_and_groups_are_one_walks_own() -> None:
    shown = walkthrough("specinfer", IID, laws(IID))
    page = Page(shown._repr_html_() + shown._repr_html_())
    ids = [a["id"] for _, a in page.found if "id" in a]
    assert len(ids) == len(set(ids)) > 4
    assert {a["for"] for a in page.all("label")} == set(ids)
    assert len(page.all("input")) == len(page.all("label"))
    assert {a["type"] for a in page.all("input")} == {"radio"}
    groups = Counter(a["name"] for a in page.all("input"))
    # Every question is a group of its own, twice.
    asked = [s for s in steps(shown.first) if any(steps(o.below) for o in s.options)]
    assert len(groups) == 2 * len(asked)
    assert len(page.all("fieldset")) == len(page.all("legend")) == len(groups)


def test_the_page_needs_no_script_and_nothing_from_outside() -> None:
    for name, tree in CASES:
        html = walkthrough(name, tree, laws(tree))._repr_html_()
        page = Page(html)
        assert not page.all("script") and "http" not in html and "url(" not in html
        assert not [a for _, at in page.found for a in at if a.startswith("on")]
        assert all(a["role"] == "img" and a["aria-label"] for a in page.all("svg"))
        assert len(html) < 90_000


def test_the_pictures_say_what_was_accepted_tested_and_refused() -> None:
    html = walkthrough("specinfer", IID, laws(IID), labels="abc".__getitem__)
    told = [a["aria-label"] for a in Page(html._repr_html_()).all("svg")]
    assert told[0] == "Accepted: nothing yet; tested: b"
    assert "Accepted: nothing yet; tested: a; refused: b" in told
    assert "Accepted: b; tested: b c" in told
    assert "Accepted: a; refused: b" in told


def test_every_answer_opens_its_own_panel() -> None:
    html = walkthrough("membership", IID, laws(IID))._repr_html_()
    rules = re.findall(
        r"input:nth-of-type\((\d+)\):checked ~ .walk-next:nth-of-type", html
    )
    widest = max(len(s.options) for s in steps(walkthrough_first("membership")))
    assert [int(n) for n in rules] == list(range(1, widest + 1))


def walkthrough_first(name: str) -> Any:
    return walkthrough(name, IID, laws(IID)).first


def test_the_outline_is_printed_and_the_form_is_not() -> None:
    shown = walkthrough("specinfer", IID, laws(IID))
    html = shown._repr_html_()
    css = html[html.index("@media print") : html.index("</style>")]
    assert "form { display: none }" in css and ".walk-print { display: block" in css
    assert shown.outline().splitlines()[-1].strip() in Page(html).text


@pytest.mark.parametrize(
    "label", ["<script>x</script>", '"><b>', "&amp;", "\u202eabc", "\x1b[31m", "é" * 40]
)
def test_hostile_labels_are_text(label: str) -> None:
    shown = walkthrough("specinfer", IID, laws(IID), labels=lambda t: label)
    html = shown._repr_html_()
    page = Page(html)
    assert not page.all("script") and not page.all("b")
    assert "\u202e" not in html and "\x1b" not in html and "\x1b" not in repr(shown)
    assert label[:2] in page.text or "U+" in page.text
    caption = walkthrough("specinfer", IID, laws(IID), caption=label)._repr_html_()
    assert not Page(caption).all("script")


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"verifier": "no such rule"}, "no verifier is called"),
        ({"verifier": 3}, "not a verifier"),
        ({"tree": [(1,)]}, "not a CandidateTree"),
        ({"labels": 3}, "labels must be"),
        ({"caption": 3}, "caption"),
        ({"law": lambda row: exact(1, 1)}, "law"),
    ],
)
def test_bad_input_is_refused_by_name(change: dict[str, Any], words: str) -> None:
    given = {"verifier": "specinfer", "tree": IID, "law": laws(IID), **change}
    verifier, tree, law = (given.pop(n) for n in ("verifier", "tree", "law"))
    with pytest.raises(SpecbookError, match=words):
        walkthrough(verifier, tree, law, **given)


def test_more_ways_than_anybody_reads_are_refused() -> None:
    wide = exact(*[1] * 90)
    with pytest.raises(ChanceError, match="branches"):
        walkthrough("specinfer", CandidateTree.from_paths([], 1), lambda row: wide)
