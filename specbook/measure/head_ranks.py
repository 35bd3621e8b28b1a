"""What draft heads say along an answer that the target gave, read in one pass.

Greedy verification follows the target's own tokens, whatever is drafted. So all that
decides about a draft is the rank that each true token has in the law of its head, with
the true tokens above it: what heads are given when they are taught. The ranks of all
positions come from one forward of the target over the answer and one run of the heads
(`rank_answers`). From them follow

- how often heads agree with the target, by depth, and how far a chain gets
  (`agreement`, sections 0x06A and 0x06B);
- the rounds that decoding with any planned tree would have had (`play`), so that
  acceptance by slot (`accepted`) and tokens a round (`tokens_per_round`) cost no
  decoding.

Rows are computed many at once here and few at once in decoding; where two laws are
equal but for rounding the ranks may differ. A test compares the rounds with the
engine's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from .. import checks
from ..drafts.neural.heads import HeadsSource
from ..drafts.neural.plan import Shape
from ..engine import generate
from ..errors import SpecbookError
from ..training.heads_agreement import counted
from ..training.losses import forced_tokens
from ..tree import CandidateTree
from .acceptance import AcceptanceProfile, PromptCounts, calibration_shape
from .recording import RecordedOutput
from .report import Ratio, resampled
from .setup import machine

ROWS_AT_ONCE = 64
"""Rows whose logits are in memory at the same time."""

SLOTS = 8
"""Children of a node whose acceptance is counted."""


@dataclass(frozen=True)
class RankedAnswer:
    """One answer of n tokens as K heads of one kind see it.

    `ranks` int64 [n, K]: row j belongs to the round whose pending token is token j of
    the answer, column i - 1 to head i. An entry is how many tokens come before the true
    one, token j + i, in the law of the head; -1 where the answer has no such token. A
    token that a cut vocabulary lacks comes after all others. `q` float64 [n, K]: the
    probability of the head's most probable token, 0 where there is no row. `ended`:
    whether an end token ended the answer before the last token that was allowed.
    """

    workload: str
    prompt: str
    ranks: np.ndarray
    q: np.ndarray
    ended: bool

    def __post_init__(self) -> None:
        checks.text(self.workload, "workload")
        checks.text(self.prompt, "prompt")
        checks.boolean(self.ended, "ended")
        for name, kind in (("ranks", np.integer), ("q", np.floating)):
            array = getattr(self, name)
            if (
                not isinstance(array, np.ndarray)
                or array.ndim != 2
                or not np.issubdtype(array.dtype, kind)
                or array.shape != np.shape(self.ranks)
                or not array.shape[1]
            ):
                raise SpecbookError(
                    f"{self.prompt}: {name} must be an array [n, K] of "
                    f"{kind.__name__} numbers, got {array!r}"
                )
        n, heads = self.ranks.shape
        there = np.arange(n)[:, None] + np.arange(1, heads + 1) < n
        if ((self.ranks < 0) == there).any() or (self.ranks < -1).any():
            raise SpecbookError(
                f"{self.prompt}: ranks must be -1 behind the answer's end, where there "
                "is no token, and nowhere else"
            )

    @property
    def heads(self) -> int:
        """K."""
        return int(self.ranks.shape[1])


def plain_answers(
    target: Any,
    asked: Iterable[tuple[str, str, Sequence[int]]],
    max_new_tokens: int,
) -> list[RecordedOutput]:
    """The target's greedy answers, without a draft. `asked`: workload, name and ids of
    each prompt. The book's own target has answers on disk: see `recording.load`."""
    found = []
    for number, one in enumerate(checks.entries(asked, "asked", "prompts")):
        three = checks.entries(one, f"asked[{number}]", "workload, name and ids")
        if len(three) != 3:
            raise SpecbookError(f"asked[{number}] must be workload, name and ids")
        workload, name, ids = three
        made = generate(
            target,
            ids,
            max_new_tokens=max_new_tokens,
            eos_token_id=target.eos_token_id,
        )
        found.append(
            RecordedOutput(
                tuple(ids), tuple(made.tokens), made.stop_reason, name, workload
            )
        )
    return found


def rank_answers(
    target: Any,
    source: HeadsSource,
    answers: Iterable[RecordedOutput],
    *,
    max_new_tokens: int | None = None,
) -> list[RankedAnswer]:
    """The ranks of the true tokens in every answer; see the module.

    `target`: one with hidden states. `source`: heads for it; its plan has no part in
    this. `answers`: the target's own greedy ones, of `max_new_tokens` at most; None
    where nobody knows, and an end token is taken not to be the last one that was
    allowed. Raises what `check_target` raises for
    heads of another target, and `SpecbookError` for what is no answer.
    """
    _check_source(source)
    source.check_target(target)
    if max_new_tokens is not None:
        checks.integer(max_new_tokens, "max_new_tokens", least=1)
    found = []
    for number, answer in enumerate(checks.entries(answers, "answers", "answers")):
        if not isinstance(answer, RecordedOutput):
            raise SpecbookError(f"answers[{number}] is no RecordedOutput: {answer!r}")
        ranks, q = _read(target, source, answer)
        ended = answer.stop_reason == "eos" and _has_room(
            target, answer, max_new_tokens
        )
        found.append(
            RankedAnswer(
                answer.workload,
                answer.prompt_id or f"answers[{number}]",
                ranks,
                q,
                ended,
            )
        )
    return found


def _has_room(target: Any, answer: RecordedOutput, most: int | None) -> bool:
    """Whether one more token was allowed behind the answer."""
    n, limit = len(answer.tokens), target.context_limit
    within = limit is None or len(answer.prompt_ids) + n < limit
    return within and (most is None or n < most)


@torch.inference_mode()
def _read(
    target: Any, source: HeadsSource, answer: RecordedOutput
) -> tuple[np.ndarray, np.ndarray]:
    heads, n, first = source.heads, len(answer.tokens), len(answer.prompt_ids)
    count = heads.config.heads
    tokens = torch.tensor([*answer.prompt_ids, *answer.tokens])
    labels = torch.arange(n)[:, None] + torch.arange(1, count + 1)
    there = labels < n
    ranks = np.full((n, count), -1, dtype=np.int64)
    probable = np.zeros((n, count))
    if not bool(there.any()):
        return ranks, probable
    parameter = next(heads.parameters())
    form: Any = {"device": parameter.device, "dtype": parameter.dtype}
    positions = torch.arange(first, first + n)
    base = heads.base(_states(target, tokens.tolist()).to(**form))
    given = forced_tokens(tokens, positions, count)
    features = heads(
        base[(positions - 1).to(base.device)], target.embed_tokens(given).to(**form)
    )
    rows = features[there.to(features.device)]
    wanted = tokens[first + labels[there]]
    placed = [
        _rank(part, true, source.vocabulary)
        for part, true in zip(
            _logits(target, source, rows), wanted.split(ROWS_AT_ONCE), strict=True
        )
    ]
    ranks[there.numpy()] = np.concatenate([rank for rank, _ in placed])
    probable[there.numpy()] = np.concatenate([best for _, best in placed])
    return ranks, probable


def _states(target: Any, tokens: Sequence[int]) -> torch.Tensor:
    """The target's states [n, d] of all `tokens`, as its runtime gives them."""
    session = target.start(tokens)
    session.watch_hidden()
    session.verify(CandidateTree.from_paths([], len(tokens)))
    session.commit((), 0)
    hidden: torch.Tensor = session.committed_hidden()
    return hidden


def _logits(target: Any, source: HeadsSource, rows: torch.Tensor) -> Iterable[Any]:
    """What the LM head says of `rows`, a few at a time: [n, V], or of the cut
    vocabulary."""
    read: Callable[[torch.Tensor], torch.Tensor] = target.read_out
    if source.vocabulary is not None:
        read = target.cut_head(torch.tensor(source.vocabulary))
    for part in rows.split(ROWS_AT_ONCE):
        logits = read(part).cpu()
        yield logits if logits.dtype == torch.float64 else logits.float()


def _rank(
    logits: torch.Tensor, wanted: torch.Tensor, vocabulary: Sequence[int] | None
) -> tuple[np.ndarray, np.ndarray]:
    """Ranks of the tokens `wanted` [n] in rows of logits, ties to the lowest id; and
    the probability of the most probable token of each."""
    places, known = wanted, torch.ones(len(wanted), dtype=torch.bool)
    if vocabulary is not None:
        ids = torch.tensor(vocabulary)
        places = torch.searchsorted(ids, wanted).clamp_max(len(ids) - 1)
        known = ids[places] == wanted
    own = logits.gather(1, places[:, None])
    before = torch.arange(logits.shape[1]) < places[:, None]
    rank = ((logits > own) | ((logits == own) & before)).sum(dim=1)
    rank[~known] = logits.shape[1]
    best = torch.softmax(logits, dim=1).max(dim=1).values
    return rank.numpy(), best.double().numpy()


# ------------------------------------------------------------- what follows from ranks


def agreement(answers: Sequence[RankedAnswer]) -> dict[str, Any]:
    """How often the heads said what the target says, by depth: "forced", "chain",
    "top1" and "calibration" as `training.heads_agreement` tells them."""
    ranked = _answers(answers)
    ranks = torch.from_numpy(np.concatenate([one.ranks for one in ranked]))
    q = torch.from_numpy(np.concatenate([one.q for one in ranked]))
    return counted(ranks == 0, q, ranks >= 0)


def play(answer: RankedAnswer, shape: CandidateTree) -> PromptCounts:
    """The rounds of greedy decoding with the planned tree `shape`, its children the
    most probable tokens: how many, and which slots they tried and selected.

    The first round has no candidate. As in the engine, the last token that was allowed
    is never one, an end token or not; what might lie behind an end token is not
    counted. Raises `SpecbookError` for a shape that is deeper than there are heads.
    """
    if not isinstance(answer, RankedAnswer):
        raise SpecbookError(f"not a RankedAnswer: {answer!r}")
    plan = Shape(shape)
    if plan.depth > answer.heads:
        raise SpecbookError(
            f"the shape is {plan.depth} levels deep, there are {answer.heads} heads"
        )
    tried = np.zeros((plan.depth, max(plan.counts)), dtype=np.int64)
    selected = np.zeros_like(tried)
    n = len(answer.ranks)
    rounds, pending = 1, 0
    while pending < n - 1:
        left = n - 1 - pending
        node, depth = -1, 0
        while depth < min(plan.depth, left if answer.ended else left - 1):
            width = plan.count(node, depth + 1)
            rank = int(answer.ranks[pending, depth])
            tried[depth, : min(rank + 1, width)] += 1
            if rank >= width:
                break
            selected[depth, rank] += 1
            node, depth = plan.child(node, rank), depth + 1
        rounds += 1
        pending += depth + 1
    return PromptCounts(
        answer.workload,
        answer.prompt,
        n,
        rounds,
        tuple(map(tuple, tried.tolist())),
        tuple(map(tuple, selected.tolist())),
    )


def tokens_per_round(answers: Sequence[RankedAnswer], shape: CandidateTree) -> Ratio:
    """Tokens a round of greedy decoding with `shape`, sums over sums, with a bootstrap
    interval over the answers. The first round, which reads the prompt, counts."""
    played = [play(one, shape) for one in _answers(answers)]
    return resampled([(one.tokens, one.rounds) for one in played], _quotient)


def _quotient(sums: np.ndarray) -> np.ndarray:
    quotient: np.ndarray = sums[:, 0] / sums[:, 1]
    return quotient


def accepted(
    target: Any,
    source: HeadsSource,
    answers: Sequence[RankedAnswer],
    *,
    slots: int = SLOTS,
    about_machine: dict[str, Any] | None = None,
) -> AcceptanceProfile:
    """Acceptance by depth and slot, as `acceptance.measure_acceptance` counts it in
    decoding with a calibration shape of `slots` children: for `choose_tree`, or
    `.observed().acceptance()` for `optimize_tree`. `answers`: ranked by `source`."""
    _check_source(source)
    source.check_target(target)
    ranked = _answers(answers)
    shape = calibration_shape(slots, ranked[0].heads)
    about = target.identity()
    settings: dict[str, Any] = {
        "target": about["checkpoint"],
        "tokenizer": about["tokenizer"],
        "dtype": about["dtype"],
        "source": source.identity(),
        "proposal": source.artifact_identity(),
        "verifier": "greedy",
        "temperature": 0.0,
        "depths": ranked[0].heads,
        "slots": slots,
        "read": "ranks along the target's own greedy answers",
    }
    where = machine() if about_machine is None else about_machine
    return AcceptanceProfile(settings, where, tuple(play(one, shape) for one in ranked))


def _check_source(source: Any) -> None:
    if not isinstance(source, HeadsSource):
        raise SpecbookError(f"source must have draft heads, got {source!r}")


def _answers(answers: Any) -> list[RankedAnswer]:
    found = checks.entries(answers, "answers", "ranked answers")
    if not found:
        raise SpecbookError("answers is empty: there is nothing to count")
    for number, one in enumerate(found):
        if not isinstance(one, RankedAnswer):
            raise SpecbookError(f"answers[{number}] is no RankedAnswer: {one!r}")
        if one.heads != found[0].heads:
            raise SpecbookError(
                f"answers[{number}] is of {one.heads} heads, the first of "
                f"{found[0].heads}"
            )
    return found
