"""Acceptance on laws of two models: the right rows, the means, and refusals."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from specbook.errors import SpecbookError
from specbook.measure.paired_laws import acceptance_on, paired_laws
from specbook.measure.recording import RecordedOutput
from specbook.models.table import TableTarget
from specbook.oracles import position_law

LINES = {
    "best": ("optimal", (1, 2), "iid"),
    "rule": ("specinfer", (1, 2), "iid"),
    "drawn apart": ("sequoia", (1, 2), "without_replacement"),
}


def after(*weights: int) -> Any:
    """A law for each last token and length, so that a shifted row shows."""
    turned = [np.roll(weights, i) for i in range(3)]

    def says(prefix: Any) -> Any:
        row = turned[prefix[-1]] + np.array([len(prefix), 0, 0])
        return [Fraction(int(w), int(row.sum())) for w in row]

    return says


TARGET = TableTarget(after(5, 3, 2), vocab_size=3)
DRAFT = TableTarget(after(1, 3, 6), vocab_size=3)
ANSWERS = [
    RecordedOutput(prompt_ids=[0, 1], tokens=[2, 0, 1, 1]),
    RecordedOutput(prompt_ids=[2], tokens=[1, 1, 0]),
]


def test_the_rows_are_those_after_so_many_tokens_of_the_answer() -> None:
    found = paired_laws(TARGET, DRAFT, ANSWERS, (1, 2))[1.0]
    assert [len(answer) for answer in found] == [2, 2]
    for answer, pairs in zip(ANSWERS, found, strict=True):
        for place, (p, q) in zip((1, 2), pairs, strict=True):
            text = (*answer.prompt_ids, *answer.tokens[:place])
            assert list(p) == after(5, 3, 2)(text)
            assert list(q) == after(1, 3, 6)(text)


def test_temperatures_share_the_forwards_and_differ_in_their_laws() -> None:
    found = paired_laws(TARGET, DRAFT, ANSWERS, [1], (1.0, 0.5, 0))
    hot, warm, cold = (found[heat][0][0][0] for heat in (1.0, 0.5, 0))
    assert max(hot) < max(warm) < max(cold) == 1


def test_means_are_over_places_and_the_difference_is_below_the_ceiling() -> None:
    laws = paired_laws(TARGET, DRAFT, ANSWERS, (1, 2))[1.0]
    made = acceptance_on(laws, LINES)
    assert made.places == 4
    flat = [pair for answer in laws for pair in answer]
    for name, (rule, ks, way) in LINES.items():
        if rule == "optimal":
            continue
        for k in ks:
            each = [position_law(rule, p, q, k, way).acceptance for p, q in flat]
            tolerance = 6 * made.sampling_error + 1e-12
            assert abs(made.means[name][k] - float(sum(each)) / 4) < tolerance
    value, low, high = made.below("rule", "best", 2)
    assert low <= value <= high and value > 0
    gap = made.means["best"][2] - made.means["rule"][2]
    assert abs(value - gap) < 1e-12


def test_the_drafts_needed_are_the_first_that_reach() -> None:
    made = acceptance_on(paired_laws(TARGET, DRAFT, ANSWERS, (1, 2))[1.0], LINES)
    best = made.means["best"]
    assert made.needed("best", best[1]) == 1
    assert made.needed("best", (best[1] + best[2]) / 2) == 2
    assert made.needed("rule", best[2] + 1e-9) is None


def test_the_same_seed_gives_the_same_numbers() -> None:
    # Five tokens: with fewer, what is drawn first decides nothing.
    laws = [[(np.array([4, 2, 1, 2, 1]) / 10, np.array([1, 1, 4, 2, 2]) / 10)]]
    lines = {"drawn apart": ("sequoia", (3,), "without_replacement")}
    one, two, other = (acceptance_on(laws, lines, seed=s) for s in (1, 1, 2))
    assert one.means == two.means
    assert one.means != other.means and one.sampling_error > 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"draft": TableTarget(after(1, 1, 1), vocab_size=4)}, "4 tokens"),
        ({"places": []}, "no place"),
        ({"places": [0]}, r"places\[0\] must be at least 1"),
        ({"places": [3]}, r"answers\[1\] has 3 tokens"),
        ({"temperatures": [-1]}, "temperature"),
    ],
)
def test_laws_that_cannot_be_read_are_refused(
    change: dict[str, Any], words: str
) -> None:
    asked: dict[str, Any] = {"target": TARGET, "draft": DRAFT, "answers": ANSWERS}
    with pytest.raises(SpecbookError, match=words):
        paired_laws(**asked | {"places": [1]} | change)


def test_nothing_to_measure_is_refused() -> None:
    laws = paired_laws(TARGET, DRAFT, ANSWERS, [1])[1.0]
    for asked in ((laws, {}), ([], LINES), ([[]], LINES)):
        with pytest.raises(SpecbookError, match="a line and a pair"):
            acceptance_on(*asked)
