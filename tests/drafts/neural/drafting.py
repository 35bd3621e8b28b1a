"""What the tests of neural draft sources share: driving a session by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from specbook.chance import Sampler
from specbook.models.table import TableTarget
from specbook.policy import SamplingPolicy
from specbook.proposal import Proposal

PLAIN = SamplingPolicy()
GREEDY = SamplingPolicy(0.0)

Reference = Callable[[Sequence[int]], np.ndarray]
"""The draft model's processed law after some ids, by another way than the session."""


def path_to(proposal: Proposal, node: int) -> list[int]:
    """The tokens from the frontier to a node of the proposal; [] for the frontier."""
    path = []
    while node >= 0:
        path.append(proposal.nodes[node].token_id)
        node = proposal.nodes[node].parent
    return path[::-1]


def check_laws(proposal: Proposal, prefix: Sequence[int], reference: Reference) -> None:
    """Each node's law is the draft model's law after prefix and path, without what its
    earlier siblings took where they were drawn without replacement."""
    taken: dict[int, list[int]] = {}
    for node in proposal.nodes:
        wanted = reference([*prefix, *path_to(proposal, node.parent)]).copy()
        if proposal.sampling_relation == "without_replacement":
            for token in taken.setdefault(node.parent, []):
                wanted[token] = wanted[token] * 0
            wanted = wanted / wanted.sum()
            taken[node.parent].append(node.token_id)
        if wanted.dtype == object:
            assert node.law.tolist() == wanted.tolist()
        else:
            # A wrong row is off by a tenth and more, the rounding of logits by 1e-5.
            assert np.abs(node.law - wanted).max() <= 1e-4, "another law than it says"
        assert node.q == node.law[node.token_id]


def check_rounds(
    source: Any,
    reference: Reference,
    *,
    policy: SamplingPolicy = PLAIN,
    rounds: int = 12,
    seed: int = 0,
) -> list[Proposal]:
    """Rounds in which everything is published that an engine may publish: a path of any
    length and another token, a path that is cut, nothing but a token, several tokens
    that were not drafted, tokens of a round in which nothing was asked for. After
    each, laws are those of the new prefix."""
    random = np.random.default_rng(seed)
    vocab = (
        source.draft_model.model.vocab_size
        if hasattr(source, "draft_model")
        else (source.model.vocab_size)
    )
    prefix = random.integers(vocab, size=3).tolist()
    session = source.start(list(prefix), vocab_size=vocab, policy=policy)
    made = []
    for number in range(rounds):
        proposal = None
        if number % 5 != 4:
            proposal = session.propose(
                max_depth=99, max_nodes=99, chance=Sampler(seed + number)
            )
            made.append(proposal)
            assert proposal.state_handle.generation == number
            check_laws(proposal, prefix, reference)
        published: list[int] = []
        if proposal is not None and proposal.nodes and number % 4 != 1:
            # Every third time the deepest: full acceptance.
            deepest = max(
                range(len(proposal.nodes)), key=lambda i: proposal.nodes[i].depth
            )
            chosen = int(random.integers(len(proposal.nodes)))
            published = path_to(proposal, deepest if number % 3 == 0 else chosen)
        if not published or number % 6 != 5:
            published.append(int(random.integers(vocab)))
        if number % 7 in (3, 4):
            # What another source of a merge drafted, in rounds with a tree and without.
            published += random.integers(vocab, size=3).tolist()
        session.commit(published)
        prefix += published
    assert any(len(proposal.nodes) > 1 for proposal in made)
    return made


class Counting(TableTarget):
    """A table that counts forwards and the rows that they compute."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.forwards = 0
        self.rows = 0

    def start(self, prompt_ids: Any) -> Any:
        session = super().start(prompt_ids)
        verify, grow = session.verify, session.grow
        size = 0

        def counted_verify(tree: Any) -> Any:
            nonlocal size
            self.forwards += 1
            self.rows += len(tree)
            size = len(tree)
            return verify(tree)

        def counted_grow(tree: Any) -> Any:
            nonlocal size
            self.forwards += 1
            self.rows += len(tree) - size
            size = len(tree)
            # A table's own grow is a verify.
            session.verify = verify
            try:
                return grow(tree)
            finally:
                session.verify = counted_verify

        session.verify = counted_verify  # type: ignore[method-assign]
        session.grow = counted_grow  # type: ignore[method-assign]
        return session
