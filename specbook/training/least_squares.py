"""A start for draft heads: the best linear guess of the target's next state.

What a head says is a state for the LM head, and what it should be is known: the state
that the target itself had before the label. The linear way of a head (`Heads.linear`)
that comes nearest to it has a closed form, from one pass over the rows. Gradient steps
from there only have to learn what is not linear.

Untrained heads repeat what the target said one token earlier, and are sure of it. To
unlearn that takes hundreds of steps; the closed form takes one pass over the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from accelerate import PartialState
from accelerate.utils import reduce

from .. import checks
from ..errors import SpecbookError
from ..models.heads.base import Heads, State
from ..models.heads.parts import Mix
from .decoding import TaughtSequence
from .heads import Teacher, pack, row_mask, taught_sequences
from .losses import forced_tokens

RIDGE = 1e-3
"""Added to the mean square of every input, which is 1: it keeps what few rows have seen
from growing."""

TOKENS = 1024
"""Of the sequences that are added at once: the sums are large, and rows are cheap."""

Progress = Callable[[str], None]


class _Sums:
    """Sums over rows for one linear way: X^T X and X^T Y in float64, and the rows."""

    def __init__(self, mix: Mix) -> None:
        weight = mix.linear.weight
        width, inputs = weight.shape[0], weight.shape[1] + 1
        nothing = torch.zeros((), dtype=torch.float64, device=weight.device)
        self.inputs = nothing.new_zeros((inputs, inputs))
        self.outputs = nothing.new_zeros((inputs, width))
        self.rows = nothing.clone()

    def add(self, inputs: torch.Tensor, wanted: torch.Tensor) -> None:
        """Rows [R, parts d] and what they should give, [R, d]."""
        x = torch.cat([inputs, inputs.new_ones((len(inputs), 1))], dim=1)
        self.inputs += (x.T @ x).double()
        self.outputs += (x.T @ wanted).double()
        self.rows += len(inputs)

    def solution(self) -> torch.Tensor:
        """Weights and bias [inputs + 1, d] with the least squares, over the rows of
        all processes."""
        inputs, outputs, rows = map(_over_all, (self.inputs, self.outputs, self.rows))
        if not rows:
            raise SpecbookError("there is no row to start from")
        held = RIDGE * rows * torch.eye(len(inputs)).to(inputs)
        return torch.linalg.solve(inputs + held, outputs)


@torch.no_grad()
def start(
    heads: Heads,
    teacher: Teacher,
    sequences: Sequence[TaughtSequence],
    progress: Progress | None = None,
) -> None:
    """Set the linear ways of `heads` to their least squares over `sequences`.

    `heads`: untrained, so that what else they have adds nothing yet. The rows are those
    that are taught (`heads.row_mask`), with true tokens going in. No draws. Raises
    `SpecbookError` for heads without a linear way, and where there is no row.
    """
    checks.instance(heads, "heads", Heads)
    checks.instance(teacher, "teacher", Teacher)
    if progress is not None:
        checks.function(progress, "progress")
    say = progress or (lambda line: None)
    world = PartialState()
    sums: dict[Mix, _Sums] = {}
    mine = taught_sequences(sequences)[world.process_index :: world.num_processes]
    done = 0
    for group in _groups(mine):
        _add(sums, heads, teacher, group)
        before, done = done, done + len(group)
        if done // 200 > before // 200:
            say(f"least squares: {done} of {len(mine)} sequences")
    if not sums:
        raise SpecbookError(
            f"{heads.config.kind} heads have no linear way to start from, or there is "
            "no sequence"
        )
    for mix, found in sums.items():
        solution = found.solution().to(mix.linear.weight)
        mix.linear.weight.copy_(solution[:-1].T)
        mix.linear.bias.copy_(solution[-1])


def _groups(sequences: Sequence[TaughtSequence]) -> Iterator[list[TaughtSequence]]:
    """Neighbours, as many as have `TOKENS` together, but one at least."""
    group: list[TaughtSequence] = []
    for sequence in sequences:
        if group and sum(len(s.tokens) for s in (*group, sequence)) > TOKENS:
            yield group
            group = []
        group.append(sequence)
    if group:
        yield group


def _add(
    sums: dict[Mix, _Sums],
    heads: Heads,
    teacher: Teacher,
    sequences: Sequence[TaughtSequence],
) -> None:
    """Add the rows of `sequences` to the sums of each linear way."""
    count = heads.config.heads
    stream = pack(sequences)
    hidden = teacher.states(stream)
    device = hidden.device
    base = heads.base(hidden, stream.segments.to(device))
    mask = row_mask(stream, count)
    positions = mask.any(dim=1).nonzero()[:, 0]
    if not len(positions):
        return
    given = teacher.embed(forced_tokens(stream.tokens, positions, count))
    rows = torch.arange(len(positions), device=device)
    state: State | None = None
    for head in range(count):
        if state is None:
            state = heads.start(base[(positions - 1).to(device)], given[:, 0])
        else:
            state = heads.step(state, rows, given[:, head])
        found = heads.linear(state)
        if found is None:
            return
        mix, added_to, inputs = found
        chosen = mask[positions, head].nonzero()[:, 0].to(device)
        wanted = hidden[(positions.to(device)[chosen] + head)] - added_to[chosen]
        sums.setdefault(mix, _Sums(mix)).add(inputs[chosen], wanted)


def _over_all(part: torch.Tensor) -> torch.Tensor:
    """The sum of `part` over all processes."""
    if PartialState().num_processes == 1:
        return part
    return reduce(part, "sum")
