"""Checks of outside input, shared by every public function.

Each returns the value in the one form that the package works with, or raises an
error that names the argument. Nothing is clipped, wrapped or renormalised.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from .errors import LawError, SpecbookError

FLOAT_TOLERANCE = 1e-9
"""How far the sum of a float64 law may be from 1. Fractions get no tolerance."""


def integer(
    value: Any,
    name: str,
    *,
    least: int | None = None,
    most: int | None = None,
    error: type[SpecbookError] = SpecbookError,
) -> int:
    """`value` as an int. Booleans and floats are refused, bounds are inclusive."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Integral):
        raise error(f"{name} must be an integer, got {value!r}")
    value = int(value)
    if least is not None and value < least:
        raise error(f"{name} must be at least {least}, got {value}")
    if most is not None and value > most:
        raise error(f"{name} must be at most {most}, got {value}")
    return value


def real(
    value: Any,
    name: str,
    *,
    least: float | None = None,
    most: float | None = None,
    error: type[SpecbookError] = SpecbookError,
) -> Any:
    """`value`, checked to be a finite real number (Fractions stay Fractions)."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, numbers.Real):
        raise error(f"{name} must be a real number, got {value!r}")
    if not isinstance(value, numbers.Rational) and not math.isfinite(value):
        raise error(f"{name} must be finite, got {value!r}")
    if least is not None and value < least:
        raise error(f"{name} must be at least {least}, got {value}")
    if most is not None and value > most:
        raise error(f"{name} must be at most {most}, got {value}")
    return value


def one_of(value: Any, name: str, allowed: Sequence[str]) -> str:
    """`value`, checked to be one of the names in `allowed`."""
    if not isinstance(value, str) or value not in allowed:
        raise SpecbookError(f"{name} must be one of {list(allowed)}, got {value!r}")
    return value


def token_ids(
    tokens: Any,
    name: str = "tokens",
    *,
    vocab_size: int | None = None,
    error: type[SpecbookError] = SpecbookError,
) -> list[int]:
    """`tokens` as a list of ints in 0 .. vocab_size - 1 (no upper bound if None)."""
    if isinstance(tokens, np.ndarray) or hasattr(tokens, "tolist"):
        tokens = tokens.tolist()
    if isinstance(tokens, (str, bytes)) or not isinstance(tokens, Iterable):
        raise error(f"{name} must be a sequence of token ids, got {tokens!r}")
    result = []
    for position, token in enumerate(tokens):
        # The common case first: this runs over whole prefixes.
        if type(token) is not int:
            token = integer(token, f"{name}[{position}]", error=error)
        if token < 0 or (vocab_size is not None and token >= vocab_size):
            bound = "" if vocab_size is None else f" .. {vocab_size - 1}"
            raise error(f"{name}[{position}] = {token} is outside 0{bound}")
        result.append(token)
    return result


def law(row: Any, name: str = "law", *, size: int | None = None) -> np.ndarray:
    """A checked probability law.

    `row`: sequence or array [V] of floats, or of Fractions / ints. Returns float64
    [V], or an object array of Fractions when every entry is rational. Raises
    `LawError` for NaN, a negative entry, a wrong length or a sum other than 1
    (exactly for Fractions, within `FLOAT_TOLERANCE` for floats).
    """
    array = row if isinstance(row, np.ndarray) else _as_array(row, name)
    if array.ndim != 1 or len(array) == 0:
        raise LawError(f"{name} must be one row of probabilities, got {array.shape}")
    if size is not None and len(array) != size:
        raise LawError(f"{name} has {len(array)} entries, expected {size}")
    if array.dtype == object or np.issubdtype(array.dtype, np.integer):
        return _exact_law(array, name)
    if not np.issubdtype(array.dtype, np.floating):
        raise LawError(f"{name} has entries of type {array.dtype}")
    array = array.astype(np.float64, copy=False)
    # One pass for the common case: a NaN or an infinity makes the sum fail too.
    total = float(array.sum())
    if not abs(total - 1.0) <= FLOAT_TOLERANCE or float(array.min()) < 0.0:
        _explain_float_law(array, name, total)
    return array


def _as_array(row: Any, name: str) -> np.ndarray:
    if hasattr(row, "tolist") and not isinstance(row, np.generic):
        row = row.tolist()
    if isinstance(row, (str, bytes)) or not isinstance(row, Iterable):
        raise LawError(f"{name} must be a sequence of probabilities, got {row!r}")
    entries = list(row)
    for index, entry in enumerate(entries):
        if isinstance(entry, bool) or not isinstance(entry, numbers.Real):
            raise LawError(f"{name}[{index}] is not a number: {entry!r}")
    if all(isinstance(entry, numbers.Rational) for entry in entries):
        return np.array(entries, dtype=object)
    return np.array([float(entry) for entry in entries], dtype=np.float64)


def _exact_law(array: np.ndarray, name: str) -> np.ndarray:
    exact = np.empty(len(array), dtype=object)
    total = Fraction(0)
    for index, entry in enumerate(array):
        if isinstance(entry, bool) or not isinstance(entry, numbers.Rational):
            raise LawError(f"{name}[{index}] is not an exact number: {entry!r}")
        exact[index] = Fraction(int(entry.numerator), int(entry.denominator))
        if exact[index] < 0:
            raise LawError(f"{name}[{index}] is negative: {entry}")
        total += exact[index]
    if total != 1:
        raise LawError(f"{name} sums to {total}, not 1")
    return exact


def _explain_float_law(array: np.ndarray, name: str, total: float) -> None:
    if np.isnan(array).any():
        raise LawError(f"{name}[{int(np.isnan(array).argmax())}] is NaN")
    if not np.isfinite(array).all():
        raise LawError(f"{name}[{int((~np.isfinite(array)).argmax())}] is infinite")
    if array.min() < 0:
        raise LawError(f"{name}[{int(array.argmin())}] is negative: {array.min()}")
    raise LawError(f"{name} sums to {total!r}, not 1")
