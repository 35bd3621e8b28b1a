"""Replay: how many rounds a source would have needed for an output that is known.

Greedy verification and target-sample membership accept a candidate when it is the
token that the target says there, and ask for nothing else. So the rounds of a source
without q follow from recorded tokens, greedy or sampled alike: no model runs.

There is no second loop here. A replay is `engine.generate` with a target that reads
its answers off the recording: budgets, bind, merge, end tokens and length caps are
the engine's own, and its rounds are those of the real decode, one for one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np

from .. import checks, engine, lab
from ..contract import Verifier, VerifierContract
from ..drafts.draft_length import COST, DraftLength
from ..errors import ContractError, LawError, SpecbookError, TargetError
from ..models.protocol import (
    FRONTIER,
    CommitError,
    check_path,
    check_prompt,
    check_tree,
)
from ..policy import SamplingPolicy
from ..proposal import ProbabilitySemantics, SamplingRelation
from ..tree import CandidateTree
from ..verifiers.greedy import select
from .decode_report import loop_tokens
from .recording import RecordedOutput, Recording

VERIFIER = Verifier(
    VerifierContract(
        name="replay",
        reads_q=False,
        exact=True,
        probability=frozenset(ProbabilitySemantics)
        - {ProbabilitySemantics.NORMALIZED_CONDITIONAL},
        sampling=frozenset(SamplingRelation),
    ),
    select,
)
"""The walk of greedy verification, which on one-hot laws is that of membership too,
for sources without q. Where there is a q, acceptance also depends on how large it is
beside the target's law, which no recording of tokens has."""


class RecordedTarget:
    """A target that says again what was recorded. See `models.protocol.Target`.

    Its law is one-hot at the recorded token, whatever the policy. It has no answer
    where the recorded output does not go (`TargetError`): exact rules do not ask there.
    After the output's end it repeats the last token; the engine publishes none of that.
    """

    def __init__(self, output: RecordedOutput, recording: Recording) -> None:
        self.output = output
        self.vocab_size = recording.vocab_size
        self.context_limit = recording.context_limit
        self.eos_token_id = recording.eos_token_ids
        self._recorded = recording.about.get("target", {})
        # Every one-hot law is a window of this row: none is ever built.
        self._row = np.zeros(2 * self.vocab_size - 1)
        self._row[self.vocab_size - 1] = 1.0
        self._row.flags.writeable = False

    def one_hot(self, token: int) -> np.ndarray:
        """The law [V] that is sure of `token`, read-only."""
        first = self.vocab_size - 1 - token
        return self._row[first : first + self.vocab_size]

    def identity(self) -> dict[str, str]:
        """As `Target.identity`: checkpoint and tokenizer are the recorded target's, so
        that what is bound to another tokenizer is refused."""
        about = {
            "checkpoint": "recorded ids",
            "tokenizer": f"ids 0..{self.vocab_size - 1}",
            "output_head": f"one-hot of {self.vocab_size}",
            "dtype": "as recorded",
            "backend": "none",
            **self._recorded,
        }
        return {**about, "backend": f"recording of: {about['backend']}"}

    def start(self, prompt_ids: Sequence[int]) -> RecordedSession:
        """As `Target.start`. Raises `TargetError` for another prompt."""
        tokens = check_prompt(prompt_ids, self.vocab_size, self.context_limit)
        if tuple(tokens) != self.output.prompt_ids:
            raise TargetError("this is not the prompt that was recorded")
        return RecordedSession(self, tokens)


class RecordedSession:
    """One request to a `RecordedTarget`. See `models.protocol.TargetSession`."""

    def __init__(self, target: RecordedTarget, tokens: list[int]) -> None:
        self.target = target
        self.tokens = tokens
        self.generation = 0
        self._open: CandidateTree | None = None

    def verify(self, tree: CandidateTree) -> RecordedRows:
        """As `TargetSession.verify`."""
        target = self.target
        check_tree(tree, len(self.tokens), target.vocab_size, target.context_limit)
        self._open = tree
        said = self.tokens[len(target.output.prompt_ids) :]
        return RecordedRows(target, tuple(said), tree)

    def commit(self, rows: Sequence[int], token: int) -> None:
        """As `TargetSession.commit`."""
        if self._open is None:
            raise CommitError("commit without a verify before it")
        path, token = check_path(self._open, rows, token, self.target.vocab_size)
        self.tokens.extend(self._open.token_ids[row] for row in path)
        self.tokens.append(token)
        self.generation += 1
        self._open = None

    def bytes_per_row(self) -> int:
        """Zero: a recording keeps no state."""
        return 0


class RecordedRows:
    """The answers at the rows of one tree. See `models.protocol.TargetRows`."""

    def __init__(
        self, target: RecordedTarget, said: tuple[int, ...], tree: CandidateTree
    ) -> None:
        self._target = target
        self._said = said
        self._tree = tree

    def prepare(self, row: int) -> None:
        """As `TargetRows.prepare`: a recording puts nothing off."""

    def law(self, row: int, policy: SamplingPolicy) -> np.ndarray:
        """As `TargetRows.law`, one-hot."""
        row = checks.integer(
            row, "row", least=FRONTIER, most=len(self._tree) - 1, error=LawError
        )
        path = () if row == FRONTIER else self._tree.full_prefixes[row]
        said, tokens = (*self._said, *path), self._target.output.tokens
        if said[: len(tokens)] != tokens[: len(said)]:
            raise TargetError(
                f"the recording does not say what follows {said}: it is "
                f"{tokens[: len(said)]} there"
            )
        return self._target.one_hot(tokens[min(len(said), len(tokens) - 1)])


def decode_again(
    source: Any,
    output: RecordedOutput,
    recording: Recording,
    *,
    seed: int = 0,
    max_nodes: int = engine.MAX_NODES,
    max_depth: int = engine.MAX_DEPTH,
    clock: Callable[[], float] = time.perf_counter,
) -> engine.Generation:
    """The engine's own rounds over one recorded output.

    `source`, `max_nodes`, `max_depth`, `clock`: as in `engine.generate`. `seed`: for a
    source that draws at random; its rounds then have the law of the real ones, and are
    not the same. Raises `ContractError`, naming it, for a source that reads q or needs
    the state of a real target.
    """
    if not isinstance(output, RecordedOutput) or not isinstance(recording, Recording):
        raise SpecbookError("an output and its Recording are needed")
    target = RecordedTarget(output, recording)
    for item in source if isinstance(source, (list, tuple)) else [source]:
        if hasattr(item, "check_target") and not isinstance(item, type):
            _check_target(item, target)
    return engine.generate(
        target,
        output.prompt_ids,
        source,
        VERIFIER,
        max_new_tokens=recording.max_new_tokens or len(output.tokens),
        # The recorded law is one-hot at any temperature; this is for the source.
        temperature=recording.temperature,
        seed=seed,
        eos_token_id=recording.eos_token_ids,
        max_nodes=max_nodes,
        max_depth=max_depth,
        clock=clock,
    )


def _check_target(source: Any, target: RecordedTarget) -> None:
    try:
        source.check_target(target)
    except (SpecbookError, AttributeError) as error:
        name = getattr(getattr(source, "contract", None), "name", source)
        raise ContractError(
            f"source {name!r} cannot be replayed on this recording: {error}"
        ) from error


@dataclass(frozen=True)
class ReplayedPrompt:
    """What a source did on one output. `made` counts the rounds with a candidate,
    `nodes` all candidates, `rounds_by_nodes[n]` the rounds with n of them;
    `drafted_by_depth[d - 1]` counts the candidates at depth d, and
    `accepted_by_depth[d - 1]` the rounds that published one."""

    prompt_id: str
    workload: str
    tokens: int
    rounds: int
    made: int
    nodes: int
    rounds_by_nodes: tuple[int, ...]
    drafted_by_depth: tuple[int, ...]
    accepted_by_depth: tuple[int, ...]
    loop_tokens: int
    stop_reason: str


@dataclass(frozen=True)
class Replay:
    """A source measured on recorded outputs. Every ratio is a sum over a sum."""

    prompts: tuple[ReplayedPrompt, ...]

    def _sum(self, name: str) -> int:
        return sum(getattr(prompt, name) for prompt in self.prompts)

    @property
    def tokens(self) -> int:
        """Committed tokens: all that were recorded."""
        return self._sum("tokens")

    @property
    def rounds(self) -> int:
        """Target forwards."""
        return self._sum("rounds")

    @property
    def made(self) -> int:
        """Rounds with a candidate."""
        return self._sum("made")

    @property
    def missed(self) -> int:
        """Rounds without one: nothing was found, or nothing more had room."""
        return self.rounds - self.made

    @property
    def nodes(self) -> int:
        """Candidates, after merging."""
        return self._sum("nodes")

    @property
    def accepted(self) -> int:
        """Candidates that were published."""
        return sum(self.accepted_by_depth)

    @property
    def drafted_by_depth(self) -> tuple[int, ...]:
        """Entry d - 1: candidates at depth d."""
        return _added(prompt.drafted_by_depth for prompt in self.prompts)

    @property
    def accepted_by_depth(self) -> tuple[int, ...]:
        """Entry d - 1: rounds that published a candidate at depth d."""
        return _added(prompt.accepted_by_depth for prompt in self.prompts)

    @property
    def tokens_per_round(self) -> float:
        """Committed tokens a round."""
        return self.tokens / self.rounds

    @property
    def loop_share(self) -> float:
        """The share of the tokens that lie in repetition loops (`loop_tokens`)."""
        return self._sum("loop_tokens") / self.tokens

    def interval(self, *, seed: int = 0) -> tuple[float, float, float]:
        """Tokens a round with a 95 % bootstrap interval over prompts: (value, low,
        high). Raises `SpecbookError` for fewer than two prompts."""
        return lab.interval(
            [prompt.tokens for prompt in self.prompts],
            [prompt.rounds for prompt in self.prompts],
            seed=seed,
        )

    def fewer_rounds(
        self, other: Replay, *, seed: int = 0
    ) -> tuple[float, float, float]:
        """How many times as many rounds `other` took for the same outputs, with its
        interval. The prompts are paired: what varies between them cancels."""
        if not isinstance(other, Replay):
            raise SpecbookError(f"not a Replay: {other!r}")
        mine, theirs = (
            [(p.prompt_id, p.workload, p.tokens) for p in replay.prompts]
            for replay in (self, other)
        )
        if mine != theirs:
            raise SpecbookError("the two replays are of different outputs")
        return lab.interval(
            [prompt.rounds for prompt in other.prompts],
            [prompt.rounds for prompt in self.prompts],
            seed=seed,
        )

    def speedup(
        self, cost: Sequence[tuple[int, float]] = COST, *, seed: int = 0
    ) -> tuple[float, float, float]:
        """The speed over plain decoding that the rounds would have, were the target's
        forwards their only cost: tokens x t(1) / the sum of t(1 + nodes), section
        0x02C, with its interval. `cost`: t as pairs (rows, time), for example
        `row_cost.measure_row_cost`'s. It is a model and no measurement."""
        clock = DraftLength(cost)
        return lab.interval(
            [prompt.tokens * clock.time(1) for prompt in self.prompts],
            [
                sum(n * clock.time(1 + i) for i, n in enumerate(prompt.rounds_by_nodes))
                for prompt in self.prompts
            ],
            seed=seed,
        )

    @property
    def workloads(self) -> tuple[str, ...]:
        """The workloads, in order."""
        return tuple(dict.fromkeys(prompt.workload for prompt in self.prompts))

    def select(
        self, workload: str | None = None, *, without_loops: bool = False
    ) -> Replay:
        """The part of one workload. `without_loops`: only outputs that fell into no
        repetition loop. Raises `SpecbookError` when nothing is left."""
        if workload is not None and workload not in self.workloads:
            raise SpecbookError(f"nothing was replayed for {workload!r}")
        kept = tuple(
            prompt
            for prompt in self.prompts
            if workload in (None, prompt.workload)
            and not (without_loops and prompt.loop_tokens)
        )
        if not kept:
            raise SpecbookError(f"every output of {workload!r} has a loop")
        return Replay(kept)

    def rows(self) -> list[dict[str, Any]]:
        """One row a workload and one, "all", for everything: counts and ratios."""
        parts: Mapping[str, Replay] = {
            **{name: self.select(name) for name in self.workloads},
            "all": self,
        }
        return [
            {
                "workload": name,
                "prompts": len(part.prompts),
                "tokens": part.tokens,
                "rounds": part.rounds,
                "tokens_per_round": part.tokens_per_round,
                "interval": part.interval()[1:] if len(part.prompts) > 1 else None,
                "made": part.made,
                "missed": part.missed,
                "nodes": part.nodes,
                "accepted": part.accepted,
                "loop_share": part.loop_share,
            }
            for name, part in parts.items()
        ]


def replay(
    source: Any,
    recorded: Recording | Iterable[Any],
    *,
    seed: int = 0,
    max_nodes: int = engine.MAX_NODES,
    max_depth: int = engine.MAX_DEPTH,
) -> Replay:
    """Measures `source` on recorded outputs, without a model.

    `source`: None, a name, a source or a list of them, as in `engine.generate`.
    `recorded`: a `Recording` (`recording.load(temperature)`), or pairs of (prompt ids,
    output ids). The rest as in `decode_again`. Raises `ContractError`, naming it, for a
    source that reads q or needs the state of a real target, and another
    `SpecbookError` for what was not recorded. Sections 0x03 and 0x0D.
    """
    if not isinstance(recorded, Recording):
        recorded = Recording.of(recorded)
    if not recorded.outputs:
        raise SpecbookError("nothing is recorded")
    return Replay(
        tuple(
            _measured(
                output,
                decode_again(
                    source,
                    output,
                    recorded,
                    seed=seed,
                    max_nodes=max_nodes,
                    max_depth=max_depth,
                ),
            )
            for output in recorded.outputs
        )
    )


def _measured(output: RecordedOutput, found: engine.Generation) -> ReplayedPrompt:
    rounds = found.rounds
    deepest = max((item.tree.max_depth for item in rounds), default=0)
    depths = [depth for item in rounds for depth in item.tree.depths]
    sizes = [len(item.tree) for item in rounds]
    return ReplayedPrompt(
        prompt_id=output.prompt_id,
        workload=output.workload,
        tokens=len(found.tokens),
        rounds=len(rounds),
        made=sum(size > 0 for size in sizes),
        nodes=len(depths),
        rounds_by_nodes=tuple(sizes.count(n) for n in range(max(sizes) + 1)),
        drafted_by_depth=tuple(depths.count(d + 1) for d in range(deepest)),
        accepted_by_depth=tuple(
            sum(item.accepted > d for item in rounds) for d in range(deepest)
        ),
        loop_tokens=loop_tokens(found.tokens),
        stop_reason=found.stop_reason,
    )


def _added(lists: Iterable[Sequence[int]]) -> tuple[int, ...]:
    return tuple(map(sum, zip_longest(*lists, fillvalue=0)))
