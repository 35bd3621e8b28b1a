"""Options of a command line as a mapping, and back.

A mapping is what a schema can check; a line is what a user pastes. Values are quoted
for a POSIX shell; a list of numbers is joined by commas, as llama.cpp reads it.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

from .. import checks
from ..errors import SpecbookError
from . import schema


def line(options: Mapping[str, Any]) -> str:
    """`--name value` for each option, in order."""
    words = []
    for name, value in checks.instance(options, "options", Mapping).items():
        told = ",".join(map(repr, value)) if isinstance(value, list) else str(value)
        words += [f"--{name}", shlex.quote(told)]
    return " ".join(words)


def parse(text: str, name: str) -> dict[str, Any]:
    """The options in a line, with values as the schema called `name` types them.
    Raises `SpecbookError` for one that it does not know or that stands twice."""
    known = schema.load(name)["properties"]
    try:
        words = shlex.split(checks.text(text, "text"))
    except ValueError as problem:
        raise SpecbookError(f"not a command line: {problem}") from None
    found: dict[str, Any] = {}
    for place in range(0, len(words), 2):
        option = words[place].removeprefix("--")
        if not words[place].startswith("--") or option not in known:
            raise SpecbookError(f"{words[place]!r} is no option of this export")
        if option in found or place + 1 == len(words):
            told = "stands twice" if option in found else "has no value"
            raise SpecbookError(f"--{option} {told}")
        found[option] = _typed(words[place + 1], known[option], option)
    schema.check(found, name)
    return found


def _typed(word: str, kind: Mapping[str, Any], option: str) -> Any:
    try:
        if kind.get("type") == "integer":
            return int(word)
        if kind.get("type") == "array":
            return [float(part) for part in word.split(",")]
    except ValueError:
        raise SpecbookError(f"--{option} {word!r} is no number") from None
    return word
