"""The judges of 0x0B: right answers pass, each usual mistake is named."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

from specbook.exercises import get
from specbook.training.losses import hard_label_loss
from tests.exercises.judging import names_the_mistake, told

# ------------------------------------------------------------------------- right


def learned_laws(joint):
    marginal, behind = {}, {}
    for (one, two), p in joint.items():
        marginal[two] = marginal.get(two, 0) + p
        behind.setdefault(one, {})[two] = p
    return marginal, {
        one: {two: p / sum(row.values()) for two, p in row.items()}
        for one, row in behind.items()
    }


def with_zeros(joint):
    marginal, behind = learned_laws(joint)
    return marginal, {
        one: {**dict.fromkeys("xyz", 0), **row} for one, row in behind.items()
    }


def whole_loss(rows, weights):
    return sum(
        w * sum(row) / len(row) for row, w in zip(rows, weights, strict=True) if row
    )


def visible(segments):
    found, begin = [], 0
    for row, name in enumerate(segments):
        if row and name != segments[row - 1]:
            begin = row
        found.append(list(range(begin, row + 1)))
    return found


RIGHT = [
    ("0x0B-learned", learned_laws),
    ("0x0B-learned", with_zeros),
    ("0x0B-loss", whole_loss),
    ("0x0B-visible", visible),
]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("exercise_id", "answer"), RIGHT)
def test_a_right_answer_passes(exercise_id, answer, seed):
    solved, lines = told(exercise_id, answer, seed)
    assert solved, lines


def test_the_oracle_of_the_loss_says_what_the_package_computes():
    rows, weights = [[1, 3], [2]], [1.0, 0.5]
    # Two logits of which the second is the label: the loss is log(1 + e^a).
    logits = [
        torch.tensor([[np.log(np.expm1(loss)), 0.0] for loss in row]) for row in rows
    ]
    labels = [torch.ones(len(row), dtype=torch.long) for row in rows]
    fractions = [[Fraction(x) for x in row] for row in rows]
    truth = get("0x0B-loss").oracle((fractions, [Fraction(1), Fraction(1, 2)]))
    assert float(hard_label_loss(logits, labels, weights)) == pytest.approx(
        float(truth)
    )


# ------------------------------------------------------------------------- wrong


def joints(joint):
    marginal, _ = learned_laws(joint)
    behind = {}
    for (one, two), p in joint.items():
        behind.setdefault(one, {})[two] = p
    return marginal, behind


def first_token(joint):
    swapped = {(two, one): p for (one, two), p in joint.items()}
    return learned_laws(swapped)[0], learned_laws(joint)[1]


def other_side(joint):
    swapped = {(two, one): p for (one, two), p in joint.items()}
    return learned_laws(joint)[0], learned_laws(swapped)[1]


def averaged(joint):
    marginal, behind = learned_laws(joint)
    return {
        two: Fraction(sum(row.get(two, 0) for row in behind.values())) / len(behind)
        for two in marginal
    }, behind


def both_marginal(joint):
    marginal, behind = learned_laws(joint)
    return marginal, dict.fromkeys(behind, marginal)


def summed(rows, weights):
    return sum(w * sum(row) for row, w in zip(rows, weights, strict=True))


def pooled(rows, weights):
    return summed(rows, weights) / sum(map(len, rows))


def causal(segments):
    return [list(range(i + 1)) for i in range(len(segments))]


def by_name(segments):
    return [
        [j for j in range(i + 1) if segments[j] == segments[i]]
        for i in range(len(segments))
    ]


def both_ways(segments):
    n = range(len(segments))
    return [[j for j in n if segments[j] == segments[i]] for i in n]


WRONG = [
    ("0x0B-learned", joints, "divide by it"),
    ("0x0B-learned", first_token, "the law of the first token"),
    ("0x0B-learned", other_side, "conditioned on the second"),
    ("0x0B-learned", averaged, "as if all first tokens"),
    ("0x0B-learned", both_marginal, "sees the first token"),
    ("0x0B-loss", summed, "added up rows"),
    ("0x0B-loss", pooled, "one mean over all rows"),
    ("0x0B-loss", lambda rows, w: whole_loss(rows, [1] * len(w)), "left out"),
    ("0x0B-loss", lambda rows, w: whole_loss(rows, w) / len(w), "as they are"),
    ("0x0B-loss", lambda rows, w: whole_loss(rows, w) / sum(w), "as they are"),
    ("0x0B-visible", causal, "plain causal mask"),
    ("0x0B-visible", by_name, "comes back is another"),
    ("0x0B-visible", both_ways, "what comes after"),
    ("0x0B-visible", lambda s: [row[:-1] for row in visible(s)], "reads itself"),
    ("0x0B-visible", lambda s: [row[::-1] for row in visible(s)], "ascending"),
    ("0x0B-visible", lambda s: [], "rows, yours are 0"),
]


@pytest.mark.parametrize(("exercise_id", "answer", "message"), WRONG)
def test_each_usual_mistake_is_named(exercise_id, answer, message):
    names_the_mistake(exercise_id, answer, message, seeds=4)
