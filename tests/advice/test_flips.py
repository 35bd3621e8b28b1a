"""What would change the answer: each told change does, and a smaller one does not."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction as F

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from specbook.advice import Constraints, Estimate, advise, nearest_flips
from specbook.advice.flips import PARTS, constraint_flips, parameter_flips
from specbook.errors import SpecbookError
from specbook.measure.frontier_data import PLAIN
from tests.advice.making import CHAIN, LOOKUP, REST, TREE, TYPICAL, plain, several


def _told(estimates, constraints):
    return {
        (flip.part, flip.value): flip.to.configuration
        for flip in constraint_flips(estimates, constraints)
    }


def test_constraints_that_change_the_answer():
    assert _told(several(), Constraints()) == {
        ("exact", False): TYPICAL,
        ("datastore", True): REST,
        ("fixed_rows", True): TREE,
    }
    tight = Constraints(fixed_rows=True, extra_bytes=1_000_000)
    assert _told(several(), tight) == {
        ("fixed_rows", False): LOOKUP,
        ("extra_bytes", 12_000_000): TREE,
    }
    held = Constraints(fixed_rows=True)
    assert _told(several(), held)["extra_bytes", 11_999_999] == PLAIN


def test_a_constraint_that_is_told_is_the_nearest():
    """Between the limit that is told and the one that is set the answer stays."""
    held = Constraints(fixed_rows=True, extra_bytes=1_000_000)
    (flip,) = [f for f in constraint_flips(several(), held) if f.part == "extra_bytes"]
    just = replace(held, extra_bytes=flip.value - 1)
    assert advise(several(), just).best.configuration == PLAIN
    assert advise(several(), replace(held, extra_bytes=flip.value)).best.configuration
    assert str(flip) == f"with extra bytes 12 MB: {flip.to.name}"


def test_the_answer_stays_as_long_as_its_memory_is_allowed():
    held = Constraints(fixed_rows=True)
    (flip,) = [f for f in constraint_flips(several(), held) if f.part == "extra_bytes"]
    now = advise(several(), held).best
    assert flip.value == now.extra_bytes - 1
    for limit, answer in ((flip.value, flip.to), (flip.value + 1, now)):
        assert advise(several(), replace(held, extra_bytes=limit)).best == answer


def test_plain_decoding_commits_one_token_a_round():
    """More of them are no parameter of it, however near the factor is."""
    found = parameter_flips(advise(several()))
    assert {f.part for f in found if f.of.configuration == PLAIN} == {"verify"}


def test_factors_by_hand():
    """Lookup 3/4 a token, heads 4/5, a draft model 5/6."""
    found = {
        (flip.part, flip.of.configuration, flip.to.configuration): flip.value
        for flip in parameter_flips(advise(several()[:4]))
    }
    assert found["tokens", LOOKUP, TREE] == F(15, 16)  # 2 tokens in 3/2 become 15/8
    assert found["verify", LOOKUP, TREE] == F(16, 15)
    assert found["tokens", TREE, TREE] == F(16, 15)
    assert found["draft", TREE, TREE] == F(3, 4)  # 5/2 x 3/4 - 3/2 is 3/8 of 1/2
    assert found["draft", CHAIN, CHAIN] == F(3, 4)
    # Nothing that is free to draft can be made cheaper.
    assert not any(k[0] == "draft" and k[1] == LOOKUP for k in found)


TWELFTHS = st.tuples(st.integers(12, 72), st.integers(0, 24), st.integers(1, 48))


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=50)
@given(st.lists(TWELFTHS, min_size=1, max_size=4))
def test_at_the_factor_two_are_level_and_beyond_it_the_answer_is_another(rows):
    listed = [plain()]
    for number, (tokens, draft, verify) in enumerate(rows):
        one = replace(LOOKUP, topology=f"chain {number + 1}",
                      parents=(-1,), ranks=(0,))  # fmt: skip
        listed.append(Estimate(one, F(tokens, 12), F(draft, 12), F(verify, 12)))
    made = advise(listed)
    for flip in parameter_flips(made):
        assume(flip.value > 0)
        level = flip.of.changed(**{flip.part: flip.value})
        rest = [e for e in listed if e is not flip.of]
        against = made.best if flip.of is not made.best else flip.to
        assert level.per_token == against.per_token == min(e.per_token for e in rest)
        for side in (F(101, 100), F(100, 101)):
            if level.tokens * side < 1:
                continue
            moved = flip.of.changed(**{flip.part: flip.value * side})
            now = advise([*rest, moved]).best.configuration
            # More tokens help, more time harms; at the factor itself it turns.
            helps = (side > 1) == (flip.part == "tokens")
            assert (now == flip.of.configuration) == helps


def test_factors_come_nearest_first_and_lead_somewhere_else():
    made = advise(several())
    found = parameter_flips(made)
    assert [f.distance for f in found] == sorted(f.distance for f in found)
    assert {f.part for f in found} <= set(PARTS)
    told = nearest_flips(several(), made)
    assert any(f.of is None for f in told)
    assert all(f.to.configuration != made.best.configuration for f in told)


def test_alone_nothing_changes():
    made = advise([plain()])
    assert nearest_flips([plain()], made) == []
    with pytest.raises(SpecbookError, match="not an Advice"):
        parameter_flips("x")
