"""Draft heads watched at work: what they are given, what they look at, what they say.

Everything here asks the heads and the engine themselves (sections 0x06A to 0x06C).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from .. import checks
from ..drafts.neural.heads import HeadsSource
from ..engine import Round, generate
from ..errors import SpecbookError
from ..models.heads import build, config_of
from ..models.heads.base import Heads
from ..training.losses import own_tokens
from ..training.packed import path_states, segment_causal_states
from ..tree import CandidateTree

CHAIN = 3


@dataclass(frozen=True)
class OwnChains:
    """Three tokens that heads drafted by themselves at R places of a text.

    `tokens` int64 [n]: the text. `at` int64 [R]: places of the pending tokens.
    `drafted` int64 [R, 3]. `believed` [R]: the target's probability of the third,
    behind the text and the first two.
    """

    tokens: torch.Tensor
    at: torch.Tensor
    drafted: torch.Tensor
    believed: torch.Tensor

    def right(self) -> torch.Tensor:
        """Boolean [R, 3]: whether a drafted token is the text's own."""
        true = self.tokens[self.at[:, None] + torch.arange(1, CHAIN + 1)]
        return self.drafted == true


def _most_probable(target: Any, source: HeadsSource) -> tuple[Any, Any]:
    """What gives logits for the heads' features, and ids of the best for logits."""
    if source.vocabulary is None:
        return target.read_out, None
    ids = torch.tensor(source.vocabulary)
    return target.cut_head(ids), lambda rows: ids[rows.argmax(dim=-1)]


@torch.inference_mode()
def own_chains(target: Any, source: HeadsSource, answer: Any, every: int) -> OwnChains:
    """Greedy chains at every `every`-th token of `answer` (a `RecordedOutput`).

    `target`: one that holds a transformers model, such as a `TransformersTarget`.
    `source`: four heads or more; with a cut vocabulary they draft from it. Raises
    `SpecbookError` where the answer is too short for a chain.
    """
    source.check_target(target)
    checks.integer(every, "every", least=1)
    if source.heads.config.heads <= CHAIN:
        raise SpecbookError(f"{CHAIN + 1} heads or more are needed")
    ids = [*answer.prompt_ids, *answer.tokens]
    at = torch.arange(len(answer.prompt_ids), len(ids) - CHAIN, every)
    if not len(at):
        raise SpecbookError(f"an answer of {len(answer.tokens)} tokens has no chain")
    tokens, one, model = torch.tensor(ids), [0] * len(ids), target.transformers_model()
    states = segment_causal_states(model, ids, one)
    base = source.heads.base(states)[at - 1]
    given = tokens[at], target.embed_tokens, *_most_probable(target, source)
    drafted = own_tokens(source.heads, base, *given)[:, 1 : CHAIN + 1]
    behind = path_states(model, ids, one, at, drafted[:, :-1])[:, -1]
    law = torch.softmax(target.read_out(behind).float(), -1)
    return OwnChains(tokens, at, drafted, law.gather(1, drafted[:, -1:])[:, 0])


@dataclass(frozen=True)
class Watched:
    """A greedy run with heads, round by round.

    `tokens`: prompt and answer. `rounds`: as the engine tells them. For each round that
    had a candidate, in order: `pending`, the place of x_t in `tokens`; `ended`, how the
    round before had ended; `base` [d] and `embedded` [d], what the heads were given;
    `read`, which committed rows their prefix layer read, (first, end), None without
    one.
    """

    tokens: tuple[int, ...]
    rounds: tuple[Round, ...]
    pending: tuple[int, ...]
    ended: tuple[str, ...]
    base: tuple[torch.Tensor, ...]
    embedded: tuple[torch.Tensor, ...]
    read: tuple[tuple[int, int] | None, ...]


def watched(
    target: Any, source: HeadsSource, prompt: Sequence[int], max_new_tokens: int
) -> Watched:
    """Decodes greedily with `source`, and writes down what its heads were given. The
    heads are as before when it ends."""
    heads: Any = source.heads
    given: list[tuple[torch.Tensor, torch.Tensor]] = []
    read: list[tuple[int, int]] = []
    begin = heads.start

    def start(base: torch.Tensor, pending: torch.Tensor) -> Any:
        given.append((base[0].clone(), pending[0].clone()))
        return begin(base, pending)

    layer: Any = heads.prefix.layers[0] if len(heads.prefix.layers) else None
    if layer is not None:
        project = layer.project

        def noted(x: torch.Tensor, first: int) -> Any:
            read.append((first, first + len(x)))
            return project(x, first)

        layer.project = noted
    heads.start = start
    try:
        made = generate(target, prompt, source, "greedy", max_new_tokens=max_new_tokens)
    finally:
        del heads.start
        if layer is not None:
            del layer.project
    pending, ended = [], []
    length, before = len(prompt), ""
    for item in made.rounds:
        if item.tree:
            pending.append(length - 1)
            ended.append(before)
        length, before = length + len(item.committed), item.ending
    return Watched(
        (*prompt, *made.tokens),
        tuple(made.rounds),
        tuple(pending),
        tuple(ended),
        tuple(base for base, _ in given),
        tuple(word for _, word in given),
        tuple(read) if layer is not None else (None,) * len(given),
    )


@torch.inference_mode()
def state_gaps(target: Any, source: HeadsSource, run: Watched) -> np.ndarray:
    """How far what the heads were given is from the states of one fresh forward over
    the finished text: largest differences [rounds, 2] to h(t-1) and to h(t), both as
    the heads' prefix layers read them. `target` as for `own_chains`."""
    ids = list(run.tokens)
    states = segment_causal_states(target.transformers_model(), ids, [0] * len(ids))
    fresh = source.heads.base(states)
    return np.array(
        [
            [float((base - fresh[j]).abs().max()) for j in (t - 1, t)]
            for t, base in zip(run.pending, run.base, strict=True)
        ]
    ).reshape(-1, 2)


def lm_head_runs(target: Any, source: HeadsSource, prompt: Sequence[int]) -> list[int]:
    """The rows of each run of the LM head that the heads ask for in the first round
    with candidates; the head of the cut vocabulary, where `source` has one."""
    calls: list[int] = []

    def counted(head: Any) -> Any:
        def read(rows: torch.Tensor) -> torch.Tensor:
            calls.append(len(rows))
            found: torch.Tensor = head(rows)
            return found

        return read

    read_out, cut_head = target.read_out, target.cut_head
    if source.vocabulary is None:
        name, watched_head = "read_out", counted(read_out)
    else:
        name, watched_head = "cut_head", lambda ids: counted(cut_head(ids))
    setattr(target, name, watched_head)
    try:
        # One more token than the plan has levels, behind the one of the first round,
        # and one at least that is left for another round.
        room = source.plan.depth + 2
        rounds: list[int] = []
        generate(
            target,
            prompt,
            source,
            "greedy",
            max_new_tokens=room,
            on_round=lambda _: rounds.append(len(calls)),
        )
    finally:
        delattr(target, name)
    return calls[rounds[0] : rounds[1]]


def made_up(kind: str, width: int, seed: int = 6, **changes: int) -> Heads:
    """Heads of `kind` with any numbers, float64: what holds for them needs nothing
    that was learned."""
    made = build(config_of(kind, width, **changes), seed).double()
    noise = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in made.parameters():
            p.add_(torch.randn(p.shape, generator=noise, dtype=p.dtype), alpha=0.4)
    return made.eval()


def clashes(
    one: OwnChains, other: OwnChains, count: int, *, least: float = 0.0
) -> list[int]:
    """Where two kinds of heads begin with the same right token and the target then
    believes the third token of `one` less than that of `other`, by more than `least`:
    up to `count` rows, the clearest first. Raises `SpecbookError` for chains at other
    places, or of another text."""
    checks.integer(count, "count", least=0)
    checks.real(least, "least")
    if not (torch.equal(one.tokens, other.tokens) and torch.equal(one.at, other.at)):
        raise SpecbookError("the two were drafted at other places, or in other texts")
    first = one.right()[:, 0] & other.right()[:, 0]
    gap = torch.where(first, other.believed - one.believed, -torch.inf)
    order = gap.argsort(descending=True, stable=True)[:count]
    return [k for k in order.tolist() if gap[k] > least]


@torch.inference_mode()
def level_by_level(
    heads: Heads,
    base: torch.Tensor,
    words: torch.Tensor,
    tree: CandidateTree,
    *,
    careless: bool = False,
) -> torch.Tensor:
    """What heads say below every row of `tree`, one step a level: features [N, d].

    `base` [1, d]; `words` [1 + N, d]: the embeddings of the pending token and of all
    rows. The tree is less deep than there are heads. `careless`: every row takes up the
    first state of the level above, which is wrong, and has the right shape. Raises
    `SpecbookError` for a tree that is empty, or too deep, or has other rows.
    """
    _check_tree(heads, words, tree)
    row = {-1: 0}
    said: dict[int, torch.Tensor] = {}
    state = heads.start(base, words[:1])
    for depth in range(1, tree.max_depth + 1):
        level = [v for v in range(len(tree)) if tree.depths[v] == depth]
        above = torch.tensor([0 if careless else row[tree.parents[v]] for v in level])
        state = heads.step(state, above, words[[v + 1 for v in level]])
        row = {v: place for place, v in enumerate(level)}
        said.update(zip(level, heads.features(state), strict=True))
    return torch.stack([said[v] for v in range(len(tree))])


def _check_tree(heads: Heads, words: torch.Tensor, tree: CandidateTree) -> None:
    if not isinstance(tree, CandidateTree) or not len(tree):
        raise SpecbookError(f"tree must be a CandidateTree with rows, got {tree!r}")
    if len(words) != 1 + len(tree) or tree.max_depth >= heads.config.heads:
        raise SpecbookError(
            f"{len(words)} words and {heads.config.heads} heads for a tree of "
            f"{len(tree)} rows, {tree.max_depth} deep: one word more than rows is "
            "needed, and one head more than levels"
        )


@torch.inference_mode()
def path_by_path(
    heads: Heads, base: torch.Tensor, words: torch.Tensor, tree: CandidateTree
) -> torch.Tensor:
    """The same, each row along its own path alone, by `Heads.forward`."""
    _check_tree(heads, words, tree)
    said = []
    for v in range(len(tree)):
        path = [0, *(u + 1 for u in tree.path_rows(v))]
        along = [*path, *[0] * heads.config.heads][: heads.config.heads]
        said.append(heads(base, words[along][None])[0, len(path) - 1])
    return torch.stack(said)


@torch.inference_mode()
def sees(heads: Heads, seed: int = 0) -> list[list[bool]]:
    """For each head (row), whether it looks at x_t and at each candidate above it:
    [K][K], found by turning one embedding round at a time."""
    parameter = next(heads.parameters())
    generator = torch.Generator().manual_seed(seed)
    count, width = heads.config.heads, heads.config.width
    drawn = torch.randn(count + 1, width, generator=generator).to(parameter)
    base, words = drawn[:1], drawn[1:]
    plain = heads(base, words[None])[0]
    moved = []
    for place in range(count):
        other = words.clone()
        other[place] *= -1
        gap = (heads(base, other[None])[0] - plain).abs().amax(-1)
        moved.append((gap > 1e-6).tolist())
    return [list(column) for column in zip(*moved, strict=True)]
