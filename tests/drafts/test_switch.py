"""The switch: it books rounds, falls silent, tries again, and changes no law."""

from __future__ import annotations

from fractions import Fraction as F
from math import log2
from typing import Any

import pytest

from specbook.chance import Sampler
from specbook.contract import admitted
from specbook.drafts import switch
from specbook.drafts.neural.draft_model import DraftModel
from specbook.drafts.prompt_lookup import PromptLookup
from specbook.drafts.switch import Switch
from specbook.engine import generate
from specbook.errors import SpecbookError
from specbook.lab import FixedPaths, decoded_law
from specbook.models import TableTarget
from tests.core.helpers import must_fail

COST = ((1, 1.0), (8, 2.0))
"""One row takes 1; a candidate adds a seventh."""


def target(period: int = 3) -> TableTarget:
    """Says 0, 1, 2, ... in turn, for sure."""
    return TableTarget(
        lambda told: [F(int(i == (told[-1] + 1) % period)) for i in range(period)],
        vocab_size=period,
    )


def rounds(source: Any, length: int = 40, period: int = 3) -> list[int]:
    """Candidates of each round of a greedy run."""
    made = generate(target(period), [0], source, "greedy", max_new_tokens=length)
    assert made.tokens == [(1 + i) % period for i in range(length)]
    return [len(one.tree) for one in made.rounds]


WRONG = FixedPaths([0, 0], [1, 1], [2, 2])
"""Its first candidate at the right place is there, its second is never right."""


def test_a_source_that_never_pays_is_soon_plain_decoding() -> None:
    # Six candidates for two tokens: a round of 7 rows saves 2 - 1.86 ... and less.
    dear = ((1, 1.0), (8, 8.0))
    length = 300
    drafted = rounds(Switch(WRONG, cost=dear), length)
    count = sum(n > 0 for n in drafted)
    assert drafted[:3] == [6, 6, 6] and not any(drafted[3:11]) and drafted[11] == 6
    assert count <= switch.WINDOW + log2(1 + length / switch.PAUSE)
    plain = rounds(WRONG, length)
    with pytest.raises(AssertionError):
        assert sum(n > 0 for n in plain) <= switch.WINDOW + log2(1 + length / 8)


def test_a_silence_grows_no_further_than_the_longest() -> None:
    """So on a long request the trials are as many as its rounds allow, and no longer
    as few as its doublings."""
    drafted = rounds(Switch(WRONG, cost=((1, 1.0), (8, 8.0))), 3000)
    count = sum(n > 0 for n in drafted)
    doublings = switch.WINDOW + log2(1 + len(drafted) / switch.PAUSE)
    assert doublings < count <= doublings + len(drafted) / switch.LONGEST


def test_a_source_that_pays_is_never_silenced() -> None:
    assert 0 not in rounds(Switch(WRONG, cost=COST))
    # The same rounds, and drafting that costs more than they save.
    assert 0 in rounds(Switch(WRONG, cost=COST, drafting=1.0))


def test_silence_doubles_and_ends_with_a_round_that_pays() -> None:
    source = Switch(FixedPaths([9]), cost=COST, window=1, pause=2)
    session = source.start([0], vocab_size=10)
    log = []
    for number in range(24):
        made = session.propose(max_depth=4, max_nodes=4, manifest_hash="m")
        log.append(len(made.nodes))
        # Only in round 16 does the candidate agree.
        session.commit([9, 1] if made.nodes and number >= 9 else [1])
    assert log[:10] == [1, 0, 0, 1, 0, 0, 0, 0, 1, 0]
    assert log[10:17] == [0] * 7 and all(log[17:])


def test_the_law_is_that_of_plain_decoding_on_every_branch() -> None:
    says = TableTarget(lambda t: [F(1, 3), F(2, 3)], vocab_size=2)
    drafter = TableTarget(lambda t: [F(3, 4), F(1, 4)], vocab_size=2)
    part = DraftModel(drafter, widths=(1, 1))
    plain, _ = decoded_law(says, [0], None, "membership", 4)
    source = Switch(part, cost=((1, 1.0), (3, 3.0)), window=1, pause=1)
    for rule in admitted([source.contract]):
        if rule != "greedy":
            assert decoded_law(says, [0], source, rule, 4)[0] == plain


class Peeking(Switch):
    """A planted fault: it looks at the candidates before it lets them through."""

    def start(self, prefix: Any, **options: Any) -> Any:
        session = super().start(prefix, **options)
        propose = session.propose

        def peeked(**limits: Any) -> Any:
            made = propose(**limits)
            if made.nodes and made.nodes[0].token_id == 0:
                session.silent, session._drafted = 1, None
                return propose(**limits)
            return made

        session.propose = peeked
        return session


def test_a_switch_that_looks_at_its_candidates_is_found() -> None:
    says = TableTarget(lambda t: [F(1, 3), F(2, 3)], vocab_size=2)
    drafter = TableTarget(lambda t: [F(3, 4), F(1, 4)], vocab_size=2)

    def check(kind: Any) -> None:
        source = kind(DraftModel(drafter, widths=(1,)), cost=COST)
        plain, _ = decoded_law(says, [0], None, "membership", 2)
        assert decoded_law(says, [0], source, "single", 2)[0] == plain

    check(Switch)
    must_fail(check, Peeking)


def test_it_has_what_its_part_has_and_no_more() -> None:
    lookup = Switch(PromptLookup())
    assert not hasattr(lookup, "target_for") and not hasattr(lookup, "check_target")
    assert hasattr(Switch(DraftModel(target())), "check_target")
    session = lookup.start([0, 1], vocab_size=3)
    assert not hasattr(session, "observe") and not hasattr(session, "join")
    assert lookup.contract is PromptLookup.contract
    assert lookup.identity() != Switch(PromptLookup(), window=2).identity()


def test_a_silent_round_is_a_miss_of_its_source() -> None:
    """Nothing in a proposal tells who was silent, the switch or the source."""
    about: dict[str, Any] = {"request": "r", "vocab_size": 10, "manifest_hash": "m"}
    part = PromptLookup()
    missed = part.start([0, 1, 2], **about)
    silent = Switch(part).start([0, 1, 2], **about)
    for session in (missed, silent):
        session.commit([3])
    silent.silent = 1
    limits = {"max_depth": 4, "max_nodes": 4}
    assert silent.propose(**limits) == missed.propose(**limits)


def test_a_model_that_was_silent_catches_up() -> None:
    says, drafter = target(), target()
    source = Switch(DraftModel(drafter, widths=(1, 1)), cost=((1, 1.0), (3, 9.0)))
    made = generate(says, [0], source, "greedy", max_new_tokens=40)
    drafted = [len(one.tree) for one in made.rounds]
    assert 0 in drafted
    # After a silence the drafter still knows where the text is: it is never refused.
    full = [one for one in made.rounds if len(one.tree) == 2]
    assert all(one.accepted == 2 for one in full)


@pytest.mark.parametrize(
    "options",
    [
        {"part": PromptLookup},
        {"part": None},
        {"cost": ((1, 1.0),)},
        {"drafting": -1.0},
        {"drafting": float("nan")},
        {"window": 0},
        {"window": True},
        {"pause": 0},
        {"pause": switch.LONGEST + 1},
    ],
)
def test_bad_options_are_refused(options: Any) -> None:
    with pytest.raises(SpecbookError):
        Switch(**{"part": PromptLookup(), **options})


def test_a_sampler_is_only_asked_where_something_is_drafted() -> None:
    source = Switch(DraftModel(target(), widths=(1,)), cost=((1, 1.0), (2, 9.0)))
    made = generate(
        target(),
        [0],
        source,
        "single",
        max_new_tokens=12,
        temperature=1.0,
        chance=Sampler(0),
    )
    assert made.tokens == [(1 + i) % 3 for i in range(12)]
