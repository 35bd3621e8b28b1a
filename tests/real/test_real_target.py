"""Decoding the real pretrained target: greedy equality and the sampled law.

Set-up is `specbook fetch`; `make test` does it. The greedy comparison is of tokens
because it is the user's promise; where two runs first differ, the two forwards had
other shapes, and only a near-tie between the top two logits may explain it.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from scipy import stats

from specbook import prompts
from specbook.contract import Selection, SourceContract, Verifier
from specbook.engine import generate
from specbook.models import TableTarget, load_target
from specbook.policy import SamplingPolicy
from specbook.proposal import (
    PREFIX_FRONTIER,
    ProbabilitySemantics,
    Proposal,
    ProposalNode,
    ProposalStateHandle,
    SamplingRelation,
    Topology,
)
from specbook.tree import CandidateTree
from specbook.verifiers import get

pytestmark = [pytest.mark.real, pytest.mark.slow]

NEW_TOKENS = 128
NEAR_TIE = 1e-3
FALSE_ALARM = 1e-6


@pytest.fixture(scope="module")
def target():
    return load_target()


def encode(target, prompt):
    if prompt.is_chat:
        return target.encode_chat(prompt.messages)
    return target.encode(prompt.text)


def chosen_prompts():
    """20 prompts: code to continue, code to edit, chat, from both halves."""
    counts = {"continue_code": 7, "edit_code": 7, "chat": 6}
    return [
        prompt
        for name, count in counts.items()
        for prompt in prompts.load(name)[:count]
    ]


def top_two_gap(target, prefix):
    """The gap between the two largest logits after `prefix`, by a plain forward."""
    session = target.start(prefix)
    rows = session.verify(CandidateTree.from_paths([], len(prefix)))
    second, first = np.sort(np.asarray(rows.logits(PREFIX_FRONTIER)))[-2:]
    return float(first - second)


def first_difference(plain, other):
    """The first index where two outputs differ, or None."""
    for index, (a, b) in enumerate(zip(plain, other, strict=False)):
        if a != b:
            return index
    return None if len(plain) == len(other) else min(len(plain), len(other))


def check_same_output(target, prompt_ids, plain, other, report=print):
    """Equal token for token, or different first at a near-tie, which is reported."""
    index = first_difference(plain, other)
    if index is None:
        return
    gap = top_two_gap(target, [*prompt_ids, *plain[:index]])
    report(f"first difference at token {index}, top-two gap {gap:.2e}")
    assert gap < NEAR_TIE, f"outputs differ at token {index}, top-two gap {gap}"


@pytest.mark.timeout(1500)
def test_greedy_output_equals_plain_greedy_on_20_prompts(target, capsys):
    ends = target.eos_token_id
    drafted = 0

    def report(line):
        with capsys.disabled():  # a near-tie belongs into the log of a green run too
            print(f"\n{prompt.id}: {line}")

    for prompt in chosen_prompts():
        ids = encode(target, prompt)
        plain, looked_up = (
            generate(target, ids, source, max_new_tokens=NEW_TOKENS, eos_token_id=ends)
            for source in (None, "prompt_lookup")
        )
        check_same_output(target, ids, plain.tokens, looked_up.tokens, report)
        drafted += sum(r.accepted for r in looked_up.rounds)
    # Equality without any accepted candidate would show nothing.
    assert drafted > 100


def test_the_comparison_catches_one_wrong_token(target):
    ids = target.encode("def add(a, b):\n    return a")
    plain = generate(target, ids, max_new_tokens=4).tokens
    wrong = [*plain[:2], (plain[2] + 1) % target.vocab_size, plain[3]]
    with pytest.raises(AssertionError, match="differ at token 2"):
        check_same_output(target, ids, plain, wrong)


class TwoLevels:
    """Proposes the target's likeliest first token and, below, its likeliest second."""

    contract = SourceContract(
        "two_levels",
        ProbabilitySemantics.ABSENT,
        SamplingRelation.DETERMINISTIC_LOOKUP,
        Topology.TREE,
    )

    def __init__(self, tokens):
        self.tokens = tokens

    def identity(self):
        return f"the path {self.tokens}"

    def start(self, prefix, *, request, vocab_size, policy):
        self.rounds, self.request = 0, request
        return self

    def propose(self, *, max_depth, max_nodes, chance, manifest_hash):
        tokens = self.tokens[:max_depth] if self.rounds == 0 else ()
        return Proposal(
            tuple(
                ProposalNode(token, index - 1, index + 1, source="two_levels")
                for index, token in enumerate(tokens)
            ),
            self.contract.probability_semantics,
            self.contract.sampling_relation,
            self.contract.topology,
            ProposalStateHandle("two_levels", self.request, self.rounds),
            manifest_hash,
        )

    def commit(self, tokens):
        self.rounds += 1


TEXT = "She opened the door and saw a"
SAMPLES = 300
NAMED = 2
POLICY = SamplingPolicy(0.7)


def check_counts(drawn, law):
    """Pearson's test of drawn tokens against a law: the `NAMED` likeliest tokens each,
    and all others together, at a false-alarm rate of `FALSE_ALARM`."""
    likely = [int(t) for t in np.argsort(-law)[:NAMED]]
    expected = [float(law[t]) for t in likely]
    counted = Counter(token if token in likely else None for token in drawn)
    observed = [*(counted[t] for t in likely), counted[None]]
    wanted = np.array([*expected, 1 - sum(expected)]) * len(drawn)
    assert wanted.min() >= 5, "a group is too rare for Pearson's approximation"
    p_value = stats.chisquare(observed, wanted).pvalue
    assert p_value > FALSE_ALARM, f"p-value {p_value:.1e}: {observed} against {wanted}"


def check_first_and_second_token(
    target, ids, path, first_law, second_law, verifier, temperature
):
    """Sample `SAMPLES` outputs with both levels of the tree drafted, and test the first
    token, and the second where the first was the drafted one."""
    outputs = [
        generate(
            target,
            ids,
            TwoLevels(path),
            verifier,
            # One more than is looked at, so that the second level may be drafted.
            max_new_tokens=3,
            temperature=temperature,
            seed=seed,
        ).tokens
        for seed in range(SAMPLES)
    ]
    check_counts([tokens[0] for tokens in outputs], first_law)
    check_counts([tokens[1] for tokens in outputs if tokens[0] == path[0]], second_law)


@pytest.fixture(scope="module")
def real_laws(target):
    """The prompt, the likeliest two-token path, and the two laws along it, which a
    plain step each computes."""
    ids = target.encode(TEXT)
    session = target.start(ids)
    laws, path = [], []
    for _ in range(2):
        rows = session.verify(CandidateTree.from_paths([], len(session.tokens)))
        laws.append(rows.law(PREFIX_FRONTIER, POLICY))
        path.append(int(laws[-1].argmax()))
        session.commit((), path[-1])
    return ids, path, *laws


@pytest.mark.timeout(900)
def test_sampled_tokens_have_the_targets_law(target, real_laws):
    check_first_and_second_token(target, *real_laws, "membership", POLICY.temperature)


def redraw(tree, law, chance):
    """A planted fault: on a mismatch it throws the draw away and draws again."""
    first = chance.draw(law(PREFIX_FRONTIER))
    child = tree.child_with_token(PREFIX_FRONTIER, first)
    if child is None:
        return Selection((), chance.draw(law(PREFIX_FRONTIER)))
    return Selection((child,), chance.draw(law(child)))


def shifted(tree, law, chance):
    """A planted fault: the second token is drawn from the row that scored the first."""
    first = chance.draw(law(PREFIX_FRONTIER))
    child = tree.child_with_token(PREFIX_FRONTIER, first)
    if child is None:
        return Selection((), first)
    return Selection((child,), chance.draw(law(PREFIX_FRONTIER)))


@pytest.mark.parametrize("fault", [redraw, shifted])
def test_the_counts_have_the_power_to_catch_a_wrong_verifier(real_laws, fault):
    """The same check on the same number of samples, from the real rows kept in a table,
    so that the faulty runs cost no forward."""
    ids, _, first_law, second_law = real_laws

    def table(prefix):
        return second_law if len(prefix) == len(ids) + 1 else first_law

    # The table's laws are processed already, so they are drawn from as they are.
    copy = TableTarget(table, vocab_size=len(first_law))
    right = get("membership")
    check_first_and_second_token(copy, *real_laws, right, 1)
    with pytest.raises(AssertionError, match="p-value"):
        check_first_and_second_token(
            copy, *real_laws, Verifier(right.contract, fault), 1
        )
