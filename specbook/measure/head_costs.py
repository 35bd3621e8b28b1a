"""What drafting with heads costs, stage by stage and depth by depth (section 0x06D).

A round of a source with heads is a few stages, timed here one by one on rows of every
size that a level may have:

- "read": the prefix layers read the rows that were just committed, and the heads start
  from the last of them and the pending token; once a round;
- "step": candidates enter the state of their rows, from the second level on;
- "features": the networks of the head of that depth;
- "lm_head": the target's LM head over the rows, as float32 on the CPU;
- "law": the normalised law of each row, over all tokens also where the vocabulary of
  the heads is cut;
- "pick": the children of each row, the most probable tokens.

Dependent heads go through all of them level by level. Independent heads need no step,
and read the LM head once for all levels: their laws do not depend on the row.
`StageCosts.drafting` adds up what a planned tree takes. What a round does beside these
stages (nodes, checks, packing) is not in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from .. import checks
from ..drafts.neural.heads import HeadsSource
from ..drafts.samplers import top_k
from ..errors import SpecbookError
from ..models.heads.base import State
from ..policy import SamplingPolicy
from .head_stages import Stage, StageCosts

ROWS = (1, 2, 4, 8)
"""Of a level, by default."""


@torch.inference_mode()
def stage_costs(
    source: HeadsSource,
    target: Any,
    *,
    rows: Sequence[int] = ROWS,
    prefix: int = 256,
    committed: int = 2,
    width: int = 3,
    turns: int = 7,
    clock: Callable[[], float] = time.perf_counter,
) -> StageCosts:
    """Times every stage of `source` on `target`.

    `rows`: the sizes of a level; they and the stages take turns, so that a slow moment
    of the machine falls on all alike. `prefix`: committed rows before; `committed`:
    rows that a round adds; `width`: children that are picked of a law. Raises
    `SpecbookError` for bad counts, and what `check_target` raises.
    """
    if not isinstance(source, HeadsSource):
        raise SpecbookError(f"source must have draft heads, got {source!r}")
    sizes = sorted(
        {
            checks.integer(n, f"rows[{i}]", least=1)
            for i, n in enumerate(checks.entries(rows, "rows", "row counts"))
        }
    )
    if not sizes:
        raise SpecbookError("rows is empty: there is nothing to measure")
    for value, name in (
        (prefix, "prefix"),
        (committed, "committed"),
        (width, "width"),
        (turns, "turns"),
    ):
        checks.integer(value, name, least=1)
    source.check_target(target)
    actions = _Work(source, target, prefix, committed, width).actions(sizes)
    spent: dict[tuple[str, int, int], list[float]] = {}
    for turn in range(turns + 1):
        for key, action in actions:
            began = clock()
            action()
            seconds = clock() - began
            if turn:  # the first turn fills caches and warms the machine up
                spent.setdefault(key, []).append(seconds)
    stages = [Stage(*key, tuple(seconds)) for key, seconds in spent.items()]
    heads = source.heads
    return StageCosts(source.kind, heads.config.heads, heads.independent, tuple(stages))


Action = tuple[tuple[str, int, int], Callable[[], Any]]


class _Work:
    """The stages as the source's session goes through them, on made-up states: no
    stage takes longer or shorter for what its numbers are."""

    def __init__(
        self,
        source: HeadsSource,
        target: Any,
        prefix: int,
        committed: int,
        width: int,
    ) -> None:
        self._heads, self._target, self._width = source.heads, target, width
        parameter = next(self._heads.parameters())
        self._form: Any = {"device": parameter.device, "dtype": parameter.dtype}
        # The source's own way to ask: what is timed is what a draft does.
        self._bound = source.bound
        self._new = self._rows(committed)
        self._cache = self._heads.cache()
        self._base = self._cache.extend(self._rows(prefix))[-1:]
        self._policy = SamplingPolicy()

    def _rows(self, count: int) -> torch.Tensor:
        generator = torch.Generator().manual_seed(count)
        shape = (count, self._heads.config.width)
        return torch.randn(shape, generator=generator).to(**self._form)

    def _embed(self, count: int) -> torch.Tensor:
        ids = torch.arange(count) % self._target.vocab_size
        embedded: torch.Tensor = self._target.embed_tokens(ids).to(**self._form)
        return embedded

    def _read(self) -> State:
        return self._heads.start(self._cache.extend(self._new)[-1:], self._embed(1))

    def actions(self, sizes: Sequence[int]) -> list[Action]:
        """Every stage on every size, with what it is to be called for."""
        heads, found = self._heads, list[Action]()
        found.append((("read", 0, 1), self._read))
        for n in sizes:
            places = torch.arange(n, device=self._base.device)
            state = self._wide(heads.start(self._base, self._embed(1)), n)
            for depth in range(heads.config.heads):
                if depth:
                    step = partial(self._step, state, places)
                    if not heads.independent:
                        found.append((("step", depth, n), step))
                    state = step()
                features = partial(heads.features, state)
                found.append((("features", depth, n), features))
            rows = self._rows(n)
            logits = self._logits(rows)
            laws = self._laws(logits)
            found += [
                (("lm_head", 0, n), partial(self._logits, rows)),
                (("law", 0, n), partial(self._laws, logits)),
                (("pick", 0, n), partial(self._pick, laws)),
            ]
        return found

    def _wide(self, state: State, rows: int) -> State:
        """The one row of `state`, so many times."""
        parts = tuple(
            part.expand(rows, *part.shape[1:]).contiguous() for part in state.parts
        )
        return State(state.depth, parts)

    def _step(self, state: State, places: torch.Tensor) -> State:
        return self._heads.step(state, places, self._embed(len(places)))

    def _logits(self, rows: torch.Tensor) -> Any:
        return self._bound.logits(rows)

    def _pick(self, laws: Sequence[Any]) -> list[Any]:
        return [top_k(law, self._width) for law in laws]

    def _laws(self, logits: Any) -> list[Any]:
        return [self._bound.law(row, self._policy, "row") for row in logits]
