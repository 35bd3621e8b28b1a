"""Checks of outside input, shared by every public function.

Each returns the value in the one form that the package works with, or raises an
error that names the argument. Nothing is clipped, wrapped or renormalised.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Mapping, Sequence, Set
from enum import StrEnum
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
    number: Any = value
    if not isinstance(number, numbers.Rational) and not math.isfinite(number):
        raise error(f"{name} must be finite, got {number!r}")
    if least is not None and number < least:
        raise error(f"{name} must be at least {least}, got {number}")
    if most is not None and number > most:
        raise error(f"{name} must be at most {most}, got {number}")
    return number


def float64(
    value: Any,
    name: str,
    *,
    least: float | None = None,
    most: float | None = None,
    error: type[SpecbookError] = SpecbookError,
) -> float:
    """`value` as a float64 (-0.0 becomes 0.0). One that float64 cannot hold, or that
    would become 0 although it is not, is refused."""
    real(value, name, least=least, most=most, error=error)
    try:
        converted = float(value) + 0.0
    except OverflowError:
        raise error(f"{name} is too large for float64") from None
    if converted == 0 != value:
        raise error(f"{name} is not 0, but too small for float64")
    return converted


def entries(
    values: Any, name: str, what: str, error: type[SpecbookError] = SpecbookError
) -> list[Any]:
    """`values` as a list. Text is refused, and so is whatever has no order of its own
    (a set) or would be read by its keys (a mapping)."""
    if hasattr(values, "tolist") and not isinstance(values, np.generic):
        values = values.tolist()
    if isinstance(values, (str, bytes, Mapping, Set)) or not isinstance(
        values, Iterable
    ):
        raise error(f"{name} must be a sequence of {what}, got {values!r}")
    return list(values)


def boolean(
    value: Any, name: str, *, error: type[SpecbookError] = SpecbookError
) -> bool:
    """`value` as a bool. What is merely truthy is refused: "no" is truthy too."""
    if not isinstance(value, (bool, np.bool_)):
        raise error(f"{name} must be True or False, got {value!r}")
    return bool(value)


def instance(
    value: Any,
    name: str,
    kind: type[Any] | tuple[type[Any], ...],
    *,
    error: type[SpecbookError] = SpecbookError,
) -> Any:
    """`value`, checked to be of `kind` (or of one of several)."""
    if not isinstance(value, kind):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        told = " or ".join("None" if k is type(None) else k.__name__ for k in kinds)
        article = "an" if told[0] in "AEIOU" else "a"
        raise error(f"{name} must be {article} {told}, got {value!r}")
    return value


def function(
    value: Any, name: str, *, error: type[SpecbookError] = SpecbookError
) -> Any:
    """`value`, checked to be something that can be called, and no class."""
    if not callable(value) or isinstance(value, type):
        raise error(f"{name} must be a function, got {value!r}")
    return value


def text(value: Any, name: str, *, error: type[SpecbookError] = SpecbookError) -> str:
    """`value`, checked to be text."""
    if not isinstance(value, str):
        raise error(f"{name} must be text, got {value!r}")
    return value


def one_of(value: Any, name: str, allowed: Sequence[str]) -> str:
    """`value`, checked to be one of the names in `allowed`."""
    if not isinstance(value, str) or value not in allowed:
        raise SpecbookError(f"{name} must be one of {list(allowed)}, got {value!r}")
    return value


def member(
    value: Any,
    name: str,
    kind: type[StrEnum],
    *,
    error: type[SpecbookError] = SpecbookError,
) -> Any:
    """The member of the enumeration `kind` that `value` is, or names."""
    if not isinstance(value, str) or value not in list(kind):
        raise error(f"{name} must be one of {[str(m) for m in kind]}, got {value!r}")
    return kind(value)


def token_ids(
    tokens: Any,
    name: str = "tokens",
    *,
    vocab_size: int | None = None,
    error: type[SpecbookError] = SpecbookError,
) -> list[int]:
    """`tokens` as a list of ints in 0 .. vocab_size - 1 (no upper bound if None)."""
    if vocab_size is not None:
        integer(vocab_size, "vocab_size", least=1, error=error)
    result = []
    for position, token in enumerate(entries(tokens, name, "token ids", error)):
        # The common case first: this runs over whole prefixes.
        if type(token) is not int:
            token = integer(token, f"{name}[{position}]", error=error)
        if token < 0 or (vocab_size is not None and token >= vocab_size):
            told = (
                "negative" if vocab_size is None else f"outside 0 .. {vocab_size - 1}"
            )
            raise error(f"{name}[{position}] = {token} is {told}")
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
    numerals = entries(row, name, "probabilities", LawError)
    for index, entry in enumerate(numerals):
        if isinstance(entry, bool) or not isinstance(entry, numbers.Real):
            raise LawError(f"{name}[{index}] is not a number: {entry!r}")
    if all(isinstance(entry, numbers.Rational) for entry in numerals):
        return np.array(numerals, dtype=object)
    try:
        return np.array([float(entry) for entry in numerals], dtype=np.float64)
    except OverflowError:
        raise LawError(f"{name} has an entry too large for float64") from None


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
