"""How long a verification takes by its rows: t(n) and t(B, n) of this machine.

A tree is worth what its rows cost, and that depends on the machine, the batch, the
prefix and the number format, so it is measured and written down with all of these. Two
forwards are timed:

- "runtime": a request of the target that decodes, as the engine drives it. The time
  holds the rows' laws that a walk asks for; nothing else of a round.
- "batch": B equal requests in one forward of transformers. Mask, transfer and forward
  are timed apart.

The sizes of a group take turns with n = 1 among them, so that a slow moment of the
machine falls on all of them alike, and t(n) / t(1) is taken within a turn
(section 0x0AD).
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from .. import checks
from ..errors import ArtifactError, SpecbookError
from ..models.batched import Batch
from ..models.protocol import checked_target
from ..models.target import TransformersTarget
from ..policy import SamplingPolicy
from ..topologies import cartesian, chain
from ..topologies.best_first import best_first_tree
from ..tree import CandidateTree
from .setup import Progress, check_checkpoints, check_same_machine, file, teller
from .setup import machine as this_machine
from .verify_report import Cell, VerifyProfile

SLOTS = (0.0, 0.5, 0.15, 0.08, 0.05, 0.03, 0.02, 0.01)
"""Selected-child probabilities behind the shapes of kind "sequoia". Only the shape is
timed: another vector moves rows from depth to width, as "chain" and "star" do to the
extreme."""

SHAPES = ("chain", "star", "sequoia")
FORWARDS = ("runtime", "batch")


@dataclass(frozen=True)
class Grid:
    """What is measured: every combination, the sizes within a group in turns.

    `nodes` count the root and hold 1; `prefixes` are tokens before the candidates;
    `shapes` some of `SHAPES`; `batches` sizes of the batched forward, none for the
    runtime's alone; `turns` how often each size is timed; `visited` rows on the first
    path whose laws are asked for; `temperature` of these laws.
    """

    nodes: tuple[int, ...]
    prefixes: tuple[int, ...]
    shapes: tuple[str, ...]
    batches: tuple[int, ...]
    turns: int = 7
    visited: int = 3
    temperature: float = 0.0

    def __post_init__(self) -> None:
        for name in ("nodes", "prefixes", "batches"):
            values = checks.entries(getattr(self, name), name, "integers")
            found = tuple(
                checks.integer(value, f"{name}[{i}]", least=1)
                for i, value in enumerate(values)
            )
            object.__setattr__(self, name, tuple(sorted(set(found))))
        if not self.nodes or self.nodes[0] != 1 or len(self.nodes) < 2:
            raise SpecbookError(f"nodes must hold 1 and a larger size: {self.nodes}")
        if not self.prefixes:
            raise SpecbookError("prefixes is empty: there is nothing to measure")
        shapes = checks.entries(self.shapes, "shapes", "names")
        if not shapes:
            raise SpecbookError("shapes is empty: there is nothing to measure")
        for i, shape in enumerate(shapes):
            checks.one_of(shape, f"shapes[{i}]", SHAPES)
        object.__setattr__(self, "shapes", tuple(dict.fromkeys(shapes)))
        checks.integer(self.turns, "turns", least=1)
        checks.integer(self.visited, "visited", least=0)
        checks.float64(self.temperature, "temperature", least=0)

    def groups(self) -> list[tuple[str, int, int, str]]:
        """(forward, batch, prefix, shape) of each group, in the order of measuring."""
        ways = [("runtime", 1), *(("batch", batch) for batch in self.batches)]
        return [
            (forward, batch, prefix, shape)
            for forward, batch in ways
            for prefix in self.prefixes
            for shape in self.shapes
        ]


QUICK = Grid(
    nodes=(1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128),
    prefixes=(256,),
    shapes=("sequoia",),
    batches=(),
)
"""Under three minutes on two cores: what a choice for this machine needs."""

FULL = Grid(
    nodes=(1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256),
    prefixes=(128, 512, 2048, 4096),
    shapes=SHAPES,
    batches=(1, 2, 4, 8),
    turns=5,
)
"""Hours on two cores; it goes on where it was stopped."""


def shape_of_size(kind: str, nodes: int) -> CandidateTree:
    """The shape of `kind` with `nodes` nodes, root included: rows by their ranks."""
    checks.one_of(kind, "kind", SHAPES)
    checks.integer(nodes, "nodes", least=1)
    if nodes == 1:
        return CandidateTree.from_paths([], 0)
    if kind == "chain":
        return chain(nodes - 1)
    if kind == "star":
        return cartesian([nodes - 1])
    return best_first_tree(nodes, None, list(SLOTS)).tree


def measure_verify_time(
    target: Any,
    grid: Grid = QUICK,
    *,
    batched: Any = None,
    path: str | Path | None = None,
    machine: dict[str, Any] | None = None,
    clock: Callable[[], float] = time.perf_counter,
    say: Callable[[str], None] = lambda line: None,
) -> VerifyProfile:
    """Times the grid and returns the profile.

    `target`: what decodes. `batched`: the same checkpoint with the generic forward,
    needed where the grid has batches (`load_target(..., forward="transformers")`).
    `path`: a file that is written after every group and read back first: groups that
    it holds are not measured again. `machine`: what to say about the machine, by
    default looked up. `say` is told of each group. Raises `ArtifactError` for a file
    of other settings, another target or another machine, and `ValueError` for what is
    no target, and for a grid that needs more context than the target has.
    """
    if not isinstance(grid, Grid):
        raise SpecbookError(f"grid must be a Grid, got {grid!r}")
    checked_target(target)
    if grid.batches and batched is None:
        raise SpecbookError("a grid with batches needs a batched target")
    if batched is not None and not isinstance(batched, TransformersTarget):
        raise SpecbookError(f"batched must be a TransformersTarget, got {batched!r}")
    if path is not None and not isinstance(path, (str, os.PathLike)):
        raise SpecbookError(f"path must be a file, got {path!r}")
    longest = max(grid.prefixes) + max(grid.nodes)
    if target.context_limit is not None and longest > target.context_limit:
        raise SpecbookError(
            f"the grid needs {longest} positions, the target has {target.context_limit}"
        )
    profile = _begun(target, batched, grid, path, machine)
    done = {cell.group for cell in profile.cells}
    for group in grid.groups():
        if group in done:
            continue
        say(f"{len(done) + 1} of {len(grid.groups())}: {', '.join(map(str, group))}")
        cells = _group(target, batched, grid, group, clock)
        profile = replace(profile, cells=profile.cells + tuple(cells))
        done.add(group)
        if path is not None:
            profile.save(path)
    return profile


def _begun(
    target: Any,
    batched: Any,
    grid: Grid,
    path: str | Path | None,
    machine: dict[str, Any] | None,
) -> VerifyProfile:
    """The profile as far as it is measured."""
    if machine is None:
        machine = this_machine()
    about = target.identity()
    settings: dict[str, Any] = {
        "target": about["checkpoint"],
        "dtype": about["dtype"],
        "runtime": about["backend"],
        "batch": None if batched is None else batched.identity()["backend"],
        "nodes": list(grid.nodes),
        "prefixes": list(grid.prefixes),
        "shapes": list(grid.shapes),
        "batches": list(grid.batches),
        "turns": grid.turns,
        "visited": grid.visited,
        "temperature": grid.temperature,
        "slots": list(SLOTS),
    }
    if batched is not None and batched.identity()["checkpoint"] != about["checkpoint"]:
        raise SpecbookError("the batched target is another checkpoint")
    fresh = VerifyProfile(settings, machine, ())
    if path is None or not Path(path).exists():
        return fresh
    begun = VerifyProfile.load(path)
    check_same_machine(begun.machine, machine, path, ArtifactError)
    for name, now in settings.items():
        if now != (then := begun.settings.get(name)):
            raise ArtifactError(
                f"{path} was measured with {name} {then!r}, now it is {now!r}: give "
                "another file"
            )
    asked = set(grid.groups())
    for group in begun.groups():
        sizes = tuple(cell.nodes for cell in begun.group(*group))
        turns = len(begun.group(*group)[0].seconds)
        # A group is written whole; one that is not was cut by somebody.
        if group not in asked or sizes != grid.nodes or turns != grid.turns:
            raise ArtifactError(
                f"{path} holds {turns} turns of n = {list(sizes)} for {group}, which "
                "its own settings do not ask for: give another file"
            )
    return begun


def _group(
    target: Any,
    batched: Any,
    grid: Grid,
    group: tuple[str, int, int, str],
    clock: Callable[[], float],
) -> list[Cell]:
    forward, batch, prefix, kind = group
    # Any ids will do: a forward's time does not depend on which tokens it reads.
    text = [7 * i % target.vocab_size for i in range(prefix)]
    trees = [_planted(shape_of_size(kind, n), prefix, target) for n in grid.nodes]
    runner: _Runtime | _Batched
    if forward == "runtime":
        policy = SamplingPolicy(temperature=grid.temperature)
        runner = _Runtime(target, text, policy, grid.visited, clock)
    else:
        runner = _Batched(batched, text, batch, clock)
    spent = [_Spent() for _ in trees]
    for turn in range(grid.turns + 1):
        for row, tree in zip(spent, trees, strict=True):
            timed = runner.once(tree)
            if turn:  # the first turn fills caches and warms the machine up
                row.add(timed)
    return [
        Cell(
            forward=forward,
            batch=batch,
            prefix=prefix,
            shape=kind,
            nodes=n,
            depth=tree.max_depth,
            seconds=tuple(row.seconds),
            mask_seconds=statistics.median(row.mask),
            transfer_seconds=statistics.median(row.transfer),
            sent_bytes=row.sent,
            kv_bytes=runner.kv_bytes(n),
        )
        for n, tree, row in zip(grid.nodes, trees, spent, strict=True)
    ]


def _planted(shape: CandidateTree, prefix: int, target: Any) -> CandidateTree:
    """The shape over a prefix, its ranks as tokens."""
    return CandidateTree.from_rows(
        [rank % target.vocab_size for rank in shape.token_ids], shape.parents, prefix
    )


@dataclass
class _Spent:
    seconds: list[float] = field(default_factory=list)
    mask: list[float] = field(default_factory=list)
    transfer: list[float] = field(default_factory=list)
    sent: int = 0

    def add(self, timed: tuple[float, float, float, int]) -> None:
        seconds, mask, transfer, self.sent = timed
        self.seconds.append(seconds)
        self.mask.append(mask)
        self.transfer.append(transfer)


class _Runtime:
    """A request as the engine drives it. Its mask is part of its forward, and is also
    built once more by itself, to be timed; on the CPU nothing is sent."""

    def __init__(
        self,
        target: Any,
        text: Sequence[int],
        policy: SamplingPolicy,
        visited: int,
        clock: Callable[[], float],
    ) -> None:
        self._target, self._policy, self._visited = target, policy, visited
        self._clock = clock
        self._session = target.start(text)
        # Read the prompt now: a verification finds everything before it in the cache.
        self._session.verify(CandidateTree.from_paths([], len(text)))
        self._session.commit((), text[0])

    def once(self, tree: CandidateTree) -> tuple[float, float, float, int]:
        length = len(self._session.tokens)
        tree = CandidateTree.from_rows(tree.token_ids, tree.parents, length)
        began = self._clock()
        _ = tree.ancestor_mask
        mask = self._clock() - began
        asked = [-1, *_first_path(tree)][: self._visited + 1]
        began = self._clock()
        # Without a commit the next verification starts from the same prefix.
        rows = self._session.verify(tree)
        for row in asked:
            rows.law(row, self._policy)
        return self._clock() - began, mask, 0.0, 0

    def kv_bytes(self, rows: int) -> int:
        return rows * self._session.bytes_per_row()


class _Batched:
    """Equal requests in one forward, on the CPU or on a CUDA device.

    On CUDA the forward is captured once a shape and replayed: a small model's forward
    is otherwise bound by launching its kernels, which is not what a row costs. Where
    capture is not possible it runs as it is.
    """

    def __init__(
        self,
        target: Any,
        text: Sequence[int],
        copies: int,
        clock: Callable[[], float],
    ) -> None:
        self._batch = Batch(target, text, copies)
        self._device = torch.device(target.device)
        self._clock = clock
        self._graphs: dict[CandidateTree, Callable[[], Any]] = {}

    def once(self, tree: CandidateTree) -> tuple[float, float, float, int]:
        fresh = CandidateTree.from_rows(tree.token_ids, tree.parents, tree.prefix_len)
        mask, host = self._timed(lambda: self._batch.build(fresh))
        transfer, sent = self._timed(lambda: host.on(self._device))
        if tree not in self._graphs:
            self._graphs[tree] = _replayed(self._batch.runner(sent), self._device)
        seconds, _ = self._timed(self._graphs[tree])
        return seconds, mask, transfer, host.nbytes

    def _timed(self, action: Callable[[], Any]) -> tuple[float, Any]:
        """Seconds of `action`, by the device's own events where it has them."""
        if self._device.type != "cuda":
            began = self._clock()
            made = action()
            return self._clock() - began, made
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize(self._device)
        start.record()
        made = action()
        end.record()
        torch.cuda.synchronize(self._device)
        return start.elapsed_time(end) / 1000, made

    def kv_bytes(self, rows: int) -> int:
        return self._batch.kv_bytes(rows)


def _replayed(forward: Callable[[], Any], device: torch.device) -> Callable[[], Any]:
    """`forward` as a captured graph, on CUDA; otherwise itself."""
    if device.type != "cuda":
        return forward
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        for _ in range(3):
            forward()
    torch.cuda.current_stream(device).wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            forward()
    except RuntimeError:
        # Some kernel cannot be captured: its launch is then part of what it costs.
        torch.cuda.synchronize(device)
        return forward
    return graph.replay


def _first_path(tree: CandidateTree) -> Iterable[int]:
    """Rows from the first candidate down by first children."""
    row = -1
    while children := tree.children(row):
        row = children[0]
        yield row


def measure_draft_step(
    model: Any,
    *,
    rows: Sequence[int] = (1, 2, 4, 8, 16),
    prefix: int = 256,
    turns: int = 7,
    temperature: float = 1.0,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[int, tuple[float, ...]]:
    """Seconds of one draft step by the rows of its level, `turns` of each: {rows: ...}.

    A level of a draft is one forward of the draft model over its rows, and the law of
    each. `model`: a draft model's target. Raises `ValueError` for bad counts.
    """
    sizes = sorted(
        {
            checks.integer(n, f"rows[{i}]", least=1)
            for i, n in enumerate(checks.entries(rows, "rows", "row counts"))
        }
    )
    if not sizes:
        raise SpecbookError("rows is empty: there is nothing to measure")
    if not hasattr(model, "vocab_size") or not hasattr(model, "start"):
        raise SpecbookError(f"model must be a target model, got {model!r}")
    checks.integer(prefix, "prefix", least=1)
    checks.integer(turns, "turns", least=1)
    if sizes[-1] > model.vocab_size:
        raise SpecbookError(
            f"a level of {sizes[-1]} rows needs as many tokens, the vocabulary has "
            f"{model.vocab_size}"
        )
    if model.context_limit is not None and prefix + 2 > model.context_limit:
        raise SpecbookError(
            f"a step behind {prefix} tokens needs {prefix + 2} positions, the draft "
            f"model has {model.context_limit}"
        )
    policy = SamplingPolicy(temperature=temperature)
    text = [7 * i % model.vocab_size for i in range(prefix)]
    session = model.start(text)
    session.verify(CandidateTree.from_paths([], prefix))
    session.commit((), text[0])
    spent: dict[int, list[float]] = {n: [] for n in sizes}
    for turn in range(turns + 1):
        for n in sizes:
            length = len(session.tokens)
            # What is grown here is dropped by the next verification.
            session.verify(CandidateTree.from_paths([], length))
            star = CandidateTree.from_paths([[i] for i in range(n)], length)
            began = clock()
            found = session.grow(star)
            for row in range(n):
                found.law(row, policy)
            seconds = clock() - began
            if turn:
                spent[n].append(seconds)
    return {n: tuple(seconds) for n, seconds in spent.items()}


def run(
    target: str | os.PathLike[str] | None = None,
    *,
    out: str | os.PathLike[str],
    full: bool = False,
    dtype: str = "float32",
    device: str | None = None,
    temperature: float = 0.0,
    nodes: Sequence[int] | None = None,
    prefixes: Sequence[int] | None = None,
    shapes: Sequence[str] | None = None,
    batches: Sequence[int] | None = None,
    progress: Progress | None = None,
) -> VerifyProfile:
    """Times `QUICK` or `FULL` for a target and writes the profile to `out`.

    `target`: a folder or hub id; None is the book's own. `nodes`, `prefixes`, `shapes`,
    `batches`: instead of the grid's own, see `Grid`. `device`: where the batched
    forward runs; naming one asks for it in the quick form, too. A file that was begun
    under the same circumstances is continued. Raises `ValueError` for bad options,
    before a model is loaded.
    """
    from ..models.checkpoint import checked_device, checked_dtype
    from ..models.loading import load_target

    check_checkpoints(target=target)
    checks.boolean(full, "full")
    checked_dtype(dtype)
    tell = teller(progress)
    instead: dict[str, Any] = {
        "nodes": nodes,
        "prefixes": prefixes,
        "shapes": shapes,
        "batches": batches,
    }
    grid = replace(
        FULL if full else QUICK,
        temperature=SamplingPolicy(temperature).temperature,
        **{name: value for name, value in instead.items() if value is not None},
    )
    if device is not None:
        checked_device(device)
        grid = replace(grid, batches=grid.batches or (1,))
    path = file(out)
    if path.exists():
        VerifyProfile.load(path)
    batched = None
    if grid.batches:
        batched = load_target(
            target, dtype=dtype, forward="transformers", device=device or "cpu"
        )
    ours = load_target(target, dtype=dtype)
    profile = measure_verify_time(ours, grid, batched=batched, path=path, say=tell)
    profile.save(path)
    return profile
