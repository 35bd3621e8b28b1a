"""Teacher rows of dependent heads, by the boundary rule of the article.

Head i (from 1) predicts x_{t+i} from the target's state after x_{t-1} and from the
embeddings of x_t .. x_{t+i-1} (section 0x06B). All of these, the label among them, must
be active tokens of one segment. The first token of a segment has no state before it, so
it is skipped: nothing wraps around, nothing is clamped, and no row borrows the state of
the document before. A segment of L tokens gives head i exactly max(L - i - 1, 0) rows.

Hidden rows must come from a target forward that was segment-causal itself. Which rows
are taken cannot repair a state that has seen another document.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from .. import checks
from ..errors import SpecbookError


def hydra_teacher_rows(
    tokens: Sequence[int],
    hidden: Any,
    max_future: int,
    *,
    segment_ids: Sequence[Any],
    valid: Sequence[bool],
    embed: Callable[[int], Any],
) -> list[tuple[int, Any, int]]:
    """Rows (head, conditioning, label) of one packed stream of n tokens.

    `hidden[j]` [d]: the target's state after `tokens[j]`. `segment_ids`: n numbers or
    names of document occurrences. `valid`: n booleans, whether a token is an input at
    all; a mask of the loss alone is applied to the rows afterwards. `embed(token)`
    gives a vector [e]. `conditioning` is the hidden row and head's i embeddings in one
    vector [d + i e]: a list where the vectors are sequences (entries are not touched),
    an array or a tensor where they are such. By position, then by head.

    Raises `SpecbookError` for inputs of different lengths, a negative `max_future`,
    flags that are no booleans, and vectors of different widths. Section 0x06B.
    """
    tokens = checks.token_ids(tokens)
    segments, active = checked_stream(segment_ids, valid)
    hidden = _rows(hidden)
    if not len(hidden) == len(segments) == len(tokens):
        raise SpecbookError(
            f"{len(tokens)} tokens, {len(hidden)} hidden rows and {len(segments)} "
            "segment ids: a packed stream has one of each a position"
        )
    checks.integer(max_future, "max_future", least=0)
    if not callable(embed):
        raise SpecbookError(f"embed must be a function of a token, got {embed!r}")
    found: list[tuple[int, Any, int]] = []
    widths: dict[str, int] = {}
    for t in range(1, len(tokens)):
        parts: list[Any] = []
        for i in range(1, min(max_future, len(tokens) - t - 1) + 1):
            # Predecessor, embeddings and label: one active run of one segment.
            run = range(t - 1, t + i + 1)
            if not all(active[j] and segments[j] == segments[t] for j in run):
                break  # a longer run holds this one
            if not parts:
                parts.append(_vector(hidden[t - 1], f"hidden[{t - 1}]", widths))
            what = f"embed({tokens[t + i - 1]})"
            parts.append(_vector(embed(tokens[t + i - 1]), what, widths))
            found.append((i, _joined(parts), tokens[t + i]))
    return found


class HeadRows(NamedTuple):
    """The rows of one head as positions in the stream, all int64.

    `hidden` [R]: whose state a row reads, t - 1. `embedded` [R, i]: whose embeddings,
    t .. t + i - 1. `labels` [R]: t + i. Indices into the stream, not token ids.
    """

    head: int
    hidden: torch.Tensor
    embedded: torch.Tensor
    labels: torch.Tensor


def eligible(segment_ids: Any, valid: Any, max_future: int) -> torch.Tensor:
    """Boolean [n, max_future]: whether position t has a row for head i, in column
    i - 1. The rule of `hydra_teacher_rows` without a loop over positions.

    `segment_ids`: integers [n], `valid`: booleans [n], as sequences, arrays or tensors.
    """
    checks.integer(max_future, "max_future", least=0)
    segments, active = checked_stream(segment_ids, valid)
    n = len(active)
    if n == 0:
        return torch.zeros((0, max_future), dtype=torch.bool)
    # Only whether neighbours are equal matters, so names of segments are numbered.
    numbers = {name: number for number, name in enumerate(dict.fromkeys(segments))}
    segment = torch.tensor([numbers[name] for name in segments])
    usable = torch.tensor(active)
    # Link j joins tokens j and j + 1; behind the last token there is none.
    link = torch.zeros(n, dtype=torch.bool)
    link[:-1] = usable[:-1] & usable[1:] & (segment[:-1] == segment[1:])
    broken = torch.where(link, n, torch.arange(n))
    end = broken.flip(0).cummin(0).values.flip(0)
    # Row (t, i) needs the links t - 1 .. t + i - 1 and nothing else.
    length = end - torch.arange(n)
    length[1:][~link[:-1]] = 0
    length[0] = 0
    return length[:, None] >= torch.arange(1, max_future + 1)


def head_rows(segment_ids: Any, valid: Any, max_future: int) -> list[HeadRows]:
    """The rows of heads 1 .. `max_future` as index tensors, positions ascending: what
    `hydra_teacher_rows` would build, without building it. Arguments as `eligible`."""
    found = []
    for head, column in enumerate(eligible(segment_ids, valid, max_future).T, start=1):
        t = column.nonzero()[:, 0]
        found.append(
            HeadRows(head, t - 1, t[:, None] + torch.arange(head), t + head),
        )
    return found


def check_rows(rows: Sequence[HeadRows], segment_ids: Any, valid: Any) -> None:
    """Raises `SpecbookError` for the first row that reads what it must not: a place
    outside the stream, another document, a token that is no input, or its own label.

    `rows` as `head_rows` gives them, from whoever made them; the other arguments as
    `eligible`. Whether rows are missing it does not ask. Section 0x06B.
    """
    segments, active = checked_stream(segment_ids, valid)
    for found in checks.entries(rows, "rows", "HeadRows"):
        if not isinstance(found, HeadRows):
            raise SpecbookError(f"not HeadRows: {found!r}")
        for state, embedded, label in zip(
            found.hidden.tolist(),
            found.embedded.tolist(),
            found.labels.tolist(),
            strict=True,
        ):
            where = f"head {found.head}, the row with its label at {label}"
            places = [state, *embedded, label]
            if not all(0 <= place < len(segments) for place in places):
                raise SpecbookError(f"{where}: reads {places}, outside the stream")
            for place in places:
                if segments[place] != segments[label]:
                    raise SpecbookError(
                        f"{where}: reads place {place} of document "
                        f"{segments[place]!r}, the label is of {segments[label]!r}"
                    )
                if not active[place]:
                    raise SpecbookError(f"{where}: place {place} is no input")
            if places != list(range(state, label + 1)):
                raise SpecbookError(
                    f"{where}: reads {places}, not the run that ends at its label"
                )


def checked_stream(segment_ids: Any, valid: Any) -> tuple[list[Any], list[bool]]:
    """Both as lists: integers or names, and booleans, as many of each."""
    segments = checks.entries(segment_ids, "segment_ids", "segment ids")
    for place, name in enumerate(segments):
        if not isinstance(name, str):
            checks.integer(name, f"segment_ids[{place}]")
    active = [
        checks.boolean(flag, f"valid[{place}]")
        for place, flag in enumerate(checks.entries(valid, "valid", "booleans"))
    ]
    if len(active) != len(segments):
        raise SpecbookError(
            f"{len(segments)} segment ids and {len(active)} flags in valid: a packed "
            "stream has one of each a position"
        )
    return segments, active


def _rows(hidden: Any) -> Any:
    """`hidden` as something with a length and rows: arrays and tensors stay."""
    if isinstance(hidden, (np.ndarray, torch.Tensor)) and hidden.ndim:
        return hidden
    return checks.entries(hidden, "hidden", "vectors")


def _vector(value: Any, what: str, widths: dict[str, int]) -> Any:
    """`value` as a vector; all hidden rows are of one width, all embeddings too."""
    if not isinstance(value, (np.ndarray, torch.Tensor)):
        value = checks.entries(value, what, "numbers")
    elif value.ndim != 1:
        raise SpecbookError(f"{what} must be a vector, its shape is {value.shape}")
    kind = what.partition("[")[0].partition("(")[0]
    if widths.setdefault(kind, len(value)) != len(value):
        raise SpecbookError(
            f"{what} has {len(value)} entries, another {kind} has {widths[kind]}"
        )
    return value


def _joined(parts: list[Any]) -> Any:
    if all(isinstance(part, torch.Tensor) for part in parts):
        return torch.cat(parts)
    if all(isinstance(part, np.ndarray) for part in parts):
        return np.concatenate(parts)
    return [entry for part in parts for entry in part]
