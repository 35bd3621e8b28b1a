"""The engines' formats as JSON Schemas, each with the place it was read from.

An engine that moves on makes a schema old, and no test of ours can see that. So every
schema says for which version it was written and where that version says so; the header
of an export repeats it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.validators import extend

from .. import checks
from ..errors import SpecbookError


def _is_integer(checker: Any, value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(checker: Any, value: Any) -> bool:
    return isinstance(value, float) or _is_integer(checker, value)


_Validator = extend(
    Draft202012Validator,
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine_many(
        {"integer": _is_integer, "number": _is_number}
    ),
)
"""JSON Schema counts 3.0 among the integers, engines and a shell's options do not; and
what has no order, such as a complex number, is no number of JSON."""


@dataclass(frozen=True)
class Origin:
    """Where a schema comes from: `engine`, the `version` that it is valid for, and the
    `source` that was read."""

    engine: str
    version: str
    source: str


def names() -> list[str]:
    """The schemas that are kept."""
    folder = resources.files(__package__) / "schemas"
    found = [item.name for item in folder.iterdir() if item.name.endswith(".json")]
    return sorted(name.removesuffix(".json") for name in found)


def load(name: str) -> Mapping[str, Any]:
    """The schema called `name`. Raises `SpecbookError` for an unknown one."""
    return _read(checks.one_of(name, "schema", names()))


@lru_cache
def _read(name: str) -> Mapping[str, Any]:
    path = resources.files(__package__) / "schemas" / f"{name}.json"
    schema = json.loads(path.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    return schema


def origin(name: str) -> Origin:
    """Engine, version and source of a schema."""
    stated = load(name)["x-origin"]
    return Origin(stated["engine"], stated["version"], stated["source"])


def check(value: Any, name: str) -> None:
    """Raises `SpecbookError` where `value` is not what the schema called `name` admits,
    with the place in it and the engine's version."""
    schema = load(name)
    _finite(value, "")
    errors = sorted(
        _Validator(schema).iter_errors(value),
        key=lambda error: ([str(part) for part in error.absolute_path], error.message),
    )
    if errors:
        place = "".join(_step(part) for part in errors[0].absolute_path)
        stated = schema["x-origin"]
        told = errors[0].message
        told = told if len(told) <= 200 else f"{told[:197]}..."
        raise SpecbookError(
            f"not what {stated['engine']} {stated['version']} takes: "
            f"{place.lstrip('.') or 'the whole'}: {told}"
        )


def _step(part: Any) -> str:
    return f"[{part}]" if isinstance(part, int) else f".{part}"


def _finite(value: Any, place: str) -> None:
    """JSON has no NaN; a schema compares with bounds, which NaN passes."""
    if isinstance(value, float) and not math.isfinite(value):
        raise SpecbookError(f"{place.lstrip('.') or 'the whole'} is {value}")
    if isinstance(value, Mapping):
        for key, entry in value.items():
            _finite(entry, f"{place}.{key}")
    elif isinstance(value, (list, tuple)):
        for index, entry in enumerate(value):
            _finite(entry, f"{place}[{index}]")
