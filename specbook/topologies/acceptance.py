"""Positional acceptance: how often the child of each rank is the one that is selected.

At a node that the verification reaches, at most one child is selected. So the
probabilities p_1, p_2, ... of the child slots exclude each other and add up to 1 at
most; what is missing to 1 is the chance that the path ends there, and it must stay
missing (section 0x0AA).

Every function of this package reads the article's layout: `acceptance[0]` is an unused
zero, `acceptance[b]` belongs to slot b. A list of such rows is acceptance by depth: row
i is for candidates of depth i + 1. Two other layouts are in use elsewhere and look
alike; `from_histogram` and `selected_from_conditional` read them by name, since a
vector does not say which one it is.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from .. import checks
from ..errors import LawError

TOLERANCE = 1e-12
"""How far float slots may add up to above 1: their own rounding."""


def selected_from_conditional(h: Iterable[Any]) -> list[Any]:
    """The selected-child probabilities of conditional rates, in the article's layout.

    `h`: h[0] is the unused zero, h[b] the rate at which slot b is selected given that
    the slots before it were refused; rates need not add up to 1. Returns
    h[b] times the product of 1 - h over the slots before b, with the zero in front;
    Fractions for Fractions. Raises `LawError` for rates outside 0 to 1 (section 0x0AA).
    """
    rates = _slots(h, "h")
    left: Any = 1
    selected = [rates[0] * 0]
    for rate in rates[1:]:
        selected.append(left * rate)
        left = left * (1 - rate)
    return selected


def conditional_from_selected(acceptance: Iterable[Any]) -> list[Any]:
    """The other way: a slot's probability, divided by 1 minus those of the slots before
    it. A slot that can no longer be reached has the rate 0."""
    slots = one_row(acceptance)
    left: Any = 1
    rates = [slots[0] * 0]
    for slot in slots[1:]:
        # Float sums may leave a crumb where nothing is left.
        rates.append(min(slot / left, slot * 0 + 1) if left > 0 else slot * 0)
        left = left - slot
    return rates


def from_histogram(counts: Iterable[Any], *, none_last: bool) -> list[Any]:
    """The acceptance vector of a histogram [0, n_1, ..., n_W] of selected children.

    `none_last`: whether the last entry counts the nodes where no child was selected. It
    is no slot: a tree optimiser that keeps it plans with a child that cannot exist.
    Integers or Fractions give Fractions. Raises `LawError` for negative counts and for
    an empty histogram.
    """
    checks.boolean(none_last, "none_last")
    entries = _numbers(counts, "counts")
    if any(entry < 0 for entry in entries):
        raise LawError(f"counts must not be negative, got {entries}")
    total = sum(entries)
    if total == 0:
        raise LawError("counts are all 0: nothing was observed")
    slots = entries[: -1 if none_last else None]
    return one_row([entry / total for entry in slots], "counts")


def one_row(acceptance: Iterable[Any], name: str = "acceptance") -> list[Any]:
    """`acceptance` as a checked list [0, p_1, ..., p_B]: all Fractions, or all floats.

    Raises `LawError`, with the name and the place, for a first entry that is not 0, for
    what is no probability, and for slots of more than 1 in sum. Conditional rates
    mostly do sum to more, and must be converted, not scaled.
    """
    slots = _slots(acceptance, name)
    total = sum(slots[1:])
    if total > 1 + (TOLERANCE if isinstance(total, float) else 0):
        raise LawError(
            f"{name}: the slots sum to {float(total)!r}, more than 1; if these are "
            "rates given that earlier slots were refused, convert them by "
            "selected_from_conditional"
        )
    return slots


def by_depth(acceptance: Any, name: str = "acceptance") -> tuple[list[list[Any]], bool]:
    """The rows of `acceptance`, and whether there is one for each depth.

    A single vector is one row, which stands for every depth. Rows may have different
    numbers of slots; the shorter ones end in zeros here. Raises `LawError`.
    """
    entries = checks.entries(
        acceptance, name, "probabilities, or rows of them", LawError
    )
    if not entries:
        raise LawError(f"{name} is empty: give the unused zero and one slot at least")
    nested = [isinstance(e, Iterable) and not isinstance(e, str) for e in entries]
    if not any(nested):
        return [one_row(entries, name)], False
    rows = [one_row(row, f"{name}[{i}]") for i, row in enumerate(entries)]
    if any(isinstance(row[0], float) for row in rows):
        rows = [_floats(row, f"{name}[{i}]") for i, row in enumerate(rows)]
    width = max(map(len, rows))
    return [row + [row[0] * 0] * (width - len(row)) for row in rows], True


def increasing_slots(acceptance: Any) -> list[tuple[int, int]]:
    """Where a slot is worth more than the one before it: (depth, slot) pairs, depth 0
    if one row stands for all. Best-first is optimal where there is no such pair."""
    rows, every = by_depth(acceptance)
    return [
        (depth + 1 if every else 0, slot)
        for depth, row in enumerate(rows)
        for slot in range(2, len(row))
        if row[slot] > row[slot - 1]
    ]


def _slots(values: Any, name: str) -> list[Any]:
    entries = _numbers(values, name)
    for place, entry in enumerate(entries):
        if not 0 <= entry <= 1:
            raise LawError(f"{name}[{place}] must be from 0 to 1, got {entry}")
    if len(entries) < 2:
        raise LawError(f"{name} needs the unused zero and one slot at least: {entries}")
    if entries[0] != 0:
        raise LawError(
            f"{name}[0] is the unused zero, not a slot and not the root, got "
            f"{entries[0]}"
        )
    return entries


def _numbers(values: Any, name: str) -> list[Any]:
    """`values` as Fractions, if all of them are exact, otherwise as floats."""
    entries = [
        checks.real(entry, f"{name}[{place}]", error=LawError)
        for place, entry in enumerate(checks.entries(values, name, "numbers", LawError))
    ]
    if all(isinstance(entry, numbers.Rational) for entry in entries):
        # Integers of numpy overflow, and a Fraction keeps what it is made of.
        return [Fraction(int(e.numerator), int(e.denominator)) for e in entries]
    return _floats(entries, name)


def _floats(entries: list[Any], name: str) -> list[float]:
    return [
        checks.float64(entry, f"{name}[{place}]", error=LawError)
        for place, entry in enumerate(entries)
    ]
