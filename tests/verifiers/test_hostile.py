"""Whatever is handed to a rule, a sampler, an oracle or a control, it works or says so.

The values, and the check, are those of the core (`tests/core/test_hostile.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction as F
from typing import Any

import numpy as np
import pytest

from specbook import contract, controls, oracles, verifiers
from specbook.chance import Sampler
from specbook.drafts import samplers
from specbook.drafts.samplers import Draw
from specbook.errors import LawError
from specbook.proposal import ProbabilitySemantics, SamplingRelation
from specbook.verifiers import apart, ensemble, kseq, optimal, typical
from specbook.walkthrough import walkthrough
from tests.core.helpers import must_fail
from tests.core.test_hostile import HOSTILE, check_says_so

P, Q = [F(1, 2), F(3, 10), F(1, 5)], [F(2, 5), F(2, 5), F(1, 5)]
P_FLOAT = np.array([0.5, 0.3, 0.2])
TREE = samplers.position_tree([Draw(1, np.array(Q, dtype=object))])
MORE: dict[str, Any] = {
    "sum 0.9": [0.5, 0.3, 0.1],
    "negative": [1.2, -0.4, 0.2],
    "one NaN": [float("nan"), 0.5, 0.5],
    "float32": np.float32([0.5, 0.25, 0.25]),
    "int8": np.int8([0, 1, 0]),
    "bools": [True, False, False],
    "numpy bools": np.array([True, False, False]),
    "complex": np.array([1j, 0, 1 - 1j]),
    "two rows": np.array([[0.5, 0.5, 0.0]] * 2),
    "texts": ["0.5", "0.3", "0.2"],
    "numpy texts": np.array(["0.5", "0.5"]),
    "objects": np.array([None, 1, 0], dtype=object),
    "a huge k": 10**12,
    "np.float32": np.float32(0.5),
    "np.int8": np.int8(1),
    "subnormal": 5e-324,
    "float laws": [0.5, 0.3, 0.2],
    "np.int64": np.int64(2),
    "hub": "hub",
    "a name": "specinfer",
}


class Block(tuple[Any, ...]):
    """A key of a mapping, whatever is in it."""

    __hash__ = object.__hash__  # type: ignore[assignment]


EXACT = np.array(Q, dtype=object)
NODE = {"parent": -1, "depth": 1, "source": "draft"}
ONE_LAW: dict[str, Any] = {
    str(relation): (sampler, {"q": Q, "k": 2, "chance": Sampler(0)})
    for relation, sampler in samplers.SAMPLERS.items()
}
ORACLE = {"p": P, "q": Q, "k": 2, "sampling": "iid"}

CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    **{f"sampler {name}": call for name, call in ONE_LAW.items()},
    "independent": (samplers.independent, {"laws": [P, Q], "chance": Sampler(0)}),
    "mixture": (samplers.mixture, {"laws": [P, Q], "weights": [F(1, 2)] * 2}),
    "position_tree": (samplers.position_tree, {"draws": [Draw(0, np.array(P_FLOAT))]}),
    "expand": (
        lambda widths, max_nodes: samplers.expand(
            lambda path: P, widths, samplers.iid, Sampler(0), max_nodes=max_nodes
        ),
        {"widths": [2, 1], "max_nodes": 9},
    ),
    "expand, its programs": (
        lambda conditional, sampler: samplers.expand(
            conditional, [2, 1], sampler, Sampler(0)
        ),
        {"conditional": lambda path: P, "sampler": samplers.iid},
    ),
    "expand, what they answer": (
        lambda row, draws: samplers.expand(
            lambda path: row, [2], lambda *asked: draws, Sampler(0)
        ),
        {"row": P, "draws": [Draw(0, EXACT)]},
    ),
    "node": (samplers.node, {**NODE, "draw": Draw(0, EXACT)}),
    "node, a draw": (
        lambda token, law, score: samplers.node(Draw(token, law, score), **NODE),
        {"token": 0, "law": EXACT, "score": 1},
    ),
    "rest": (samplers.rest, {"law": EXACT, "taken": [0]}),
    "most_probable": (samplers.most_probable, {"law": EXACT, "count": 2}),
    "one_hot": (samplers.one_hot, {"like": EXACT, "token": 1}),
    "plan": (optimal.plan, ORACLE),
    "kseq.verifier": (kseq.verifier, {"rho": 2}),
    "smallest_rho, exact": (kseq.smallest_rho, {"p": P, "q": Q, "k": 2}),
    "kseq at rho": (
        lambda rho, p: oracles.position_law(kseq.verifier(rho), p, Q, 2),
        {"rho": 2, "p": P},
    ),
    "ensemble at weight": (
        lambda weight, p: oracles.position_law(ensemble.verifier(weight), p, Q, 1),
        {"weight": 0.5, "p": P},
    ),
    "typical at": (
        lambda epsilon, delta, p: oracles.position_law(
            typical.verifier(epsilon, delta), p, Q, 2
        ),
        {"epsilon": 0.1, "delta": 0.3, "p": P},
    ),
    "smallest_rho": (kseq.smallest_rho, {"p": P_FLOAT, "q": P_FLOAT, "k": 2}),
    "ensemble.verifier": (ensemble.verifier, {"weight": 0.5}),
    "typical.verifier": (typical.verifier, {"epsilon": 0.1, "delta": 0.3}),
    "position_law": (oracles.position_law, {"verifier": "specinfer", **ORACLE}),
    "position_law, hub": (
        oracles.position_law,
        {"verifier": "spechub", **ORACLE, "sampling": "hub"},
    ),
    "transport": (oracles.transport, ORACLE),
    "transport, independent": (
        oracles.transport,
        {**ORACLE, "q": [P, Q], "sampling": "independent"},
    ),
    "optimal_acceptance": (oracles.optimal_acceptance, ORACLE),
    "optimal_acceptance, without": (
        oracles.optimal_acceptance,
        {**ORACLE, "sampling": "without_replacement"},
    ),
    "optimum_of": (
        oracles.optimum_of,
        {"draws": lambda chance: samplers.iid(Q, 2, chance), "p": P},
    ),
    "measure": (
        oracles.measure,
        {
            "select": verifiers.get("specinfer").select,
            "draws": lambda chance: samplers.iid(Q, 2, chance),
            "p": P,
        },
    ),
    "compare": (
        oracles.compare,
        {
            "p": P,
            "q": Q,
            "k": 2,
            "verifiers": ["specinfer"],
            "controls": [controls.CONTROLS[0]],
        },
    ),
    "acceptance_curve": (
        oracles.acceptance_curve,
        {
            "verifier": "sequoia",
            "p": P_FLOAT,
            "q": Q,
            "ks": [1, 2],
            "sampling": "without_replacement",
            "chance": Sampler(0),
            "repeats": 2,
        },
    ),
    "acceptance_curve, the optimum": (
        oracles.acceptance_curve,
        {"verifier": "optimal", "p": P, "q": Q, "ks": [1, 2], "sampling": "iid"},
    ),
    "round_law": (
        oracles.round_law,
        {
            "verifier": "specinfer",
            "target": P,
            "draft": Q,
            "widths": [2],
            "sampling": "iid",
        },
    ),
    "continued": (
        oracles.continued,
        {"blocks": {((), 0): F(1)}, "target": P, "length": 2},
    ),
    "continued, a block": (
        lambda path, mass: oracles.continued({Block((path, 1)): mass}, P, 2),
        {"path": (0,), "mass": F(1)},
    ),
    "walkthrough": (
        walkthrough,
        {
            "verifier": "membership",
            "tree": TREE,
            "law": lambda row: P,
            "labels": {0: "a"},
            "caption": "c",
        },
    ),
    "walkthrough, its law": (
        lambda row: walkthrough("membership", TREE, lambda _: row),
        {"row": P},
    ),
    "tree_optimum": (
        oracles.tree_optimum,
        {
            "target": P,
            "draft": Q,
            "widths": [2],
            "sampling": "iid",
            "families": "one",
        },
    ),
    "controls.get": (controls.get, {"name": controls.names()[0]}),
    "controls.exact": (controls.exact, {"weights": [1, 2]}),
    "variation": (
        controls.CONTROLS[1].variation,
        {"p": [5, 3, 2], "q": [[4, 4, 2]] * 2},
    ),
    "parts": (
        lambda parts: contract.VerifierContract(
            "whole",
            False,
            True,
            frozenset(ProbabilitySemantics),
            frozenset(SamplingRelation),
            parts=parts,
        ),
        {"parts": (apart.DRAWN, apart.GIVEN)},
    ),
    "subgraph": (lambda tree: apart.subgraph(tree, bool), {"tree": TREE}),
}

# A parameter with a default may be left to it, and a function of the caller's own that
# answers nonsense is told by what it answered.
SLOW = {"a huge k", "10**30", "10**400"}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", CALLS)
def test_hostile_values_work_or_are_refused_by_name(name: str) -> None:
    call, good = CALLS[name]
    call(**good)
    for argument in good:
        for label, value in {**HOSTILE, **MORE}.items():
            try:
                check_says_so(call, {**good, argument: value})
            except AssertionError as error:
                raise AssertionError(f"{argument} = {label}: {error}") from error


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", [*verifiers.names(), "apart"])
def test_a_target_that_answers_nonsense_is_told(name: str) -> None:
    """Whatever `law` returns for the prefix: no token but one of the vocabulary."""
    rule = apart.VERIFIER if name == "apart" else verifiers.get(name)
    trees = [samplers.position_tree([]), TREE]
    for label, value in {**HOSTILE, **MORE}.items():
        for tree in trees:
            try:
                check_says_so(
                    lambda row, t=tree: rule.select(t, lambda _: row, Sampler(0)),
                    {"row": value},
                )
            except AssertionError as error:
                raise AssertionError(f"law = {label}: {error}") from error


def test_an_error_of_another_kind_fails_the_check() -> None:
    must_fail(check_says_so, lambda q: q[10**9], {"q": Q})


BROKEN = {
    "all NaN": [np.nan] * 3,
    "one NaN": [np.nan, 0.5, 0.5],
    "negative": [1.2, -0.4, 0.2],
    "sum 0.9": [0.5, 0.3, 0.1],
    "nothing": [],
}


@pytest.mark.parametrize("name", [*verifiers.names(), "apart"])
def test_a_broken_target_row_is_named(name: str) -> None:
    """Case H18, and a row that does not know the candidate below it."""
    rule = apart.VERIFIER if name == "apart" else verifiers.get(name)
    for row in BROKEN.values():
        with pytest.raises(LawError, match="the target's law at row -1"):
            rule.select(TREE, lambda _, row=row: np.array(row), Sampler(0))
    # A drafted token beyond the row; and a row shorter than the law of the draft.
    with pytest.raises(LawError, match="row 0 has token 1, .* at row -1 is .1."):
        rule.select(TREE, lambda _: np.array([1.0]), Sampler(0))
    if rule.contract.reads_q:
        with pytest.raises(LawError, match="row 0 was drawn from a law"):
            rule.select(TREE, lambda _: np.array([0.5, 0.5]), Sampler(0))
