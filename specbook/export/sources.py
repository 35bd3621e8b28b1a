"""A source with its options as a file, for an adapter that runs elsewhere.

A small JSON file: the name in the registry, the options, and the identity that they
must give again. A datastore is named by its path and bound by its hash, which is part
of the identity. Nothing in it is ever run.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import checks, drafts, reading, registry
from ..errors import ArtifactError, SpecbookError
from . import schema
from .artifact import Export
from .chains import check_free


def described(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The source called `name` with `options`, made once to see that it can be, as the
    content of a file. Options that are left out are the tuned ones. Raises
    `ContractError` for a source that draws, and what the source raises."""
    checks.one_of(name, "source", list(registry.DRAFTS))
    factory = drafts.get(name)
    check_free(factory)  # before the model of one that draws is loaded
    given = dict(checks.instance(options, "options", Mapping))
    for option in given:
        checks.text(option, "the name of an option")
    if isinstance(path := given.get("datastore"), (str, os.PathLike)):
        given["datastore"] = os.path.abspath(path)
    source = drafts.make(name, **given)
    content = {
        "format": 1,
        "kind": "source",
        "source": name,
        "options": {
            option: given[option]
            if option == "datastore"
            else _plain(getattr(source, option), option)
            for option in inspect.signature(factory).parameters
        },
        "identity": source.identity(),
    }
    schema.check(content, "source")
    return content


def _plain(value: Any, name: str) -> Any:
    try:
        return json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError):
        raise SpecbookError(
            f"{name} of the source is in memory only ({type(value).__name__}): a file "
            "cannot hold it"
        ) from None


def load(path: str | os.PathLike[str]) -> Any:
    """The source of a file. Raises `ArtifactError` for a file that is none, and for one
    whose options or datastore no longer give the source that was exported."""
    content = reading.json_object(path, "a source file")
    try:
        schema.check(content, "source")
        # A source that draws is refused before its model is loaded.
        check_free(drafts.get(content["source"]))
        source = drafts.make(content["source"], **content["options"])
        check_free(source)
    except (SpecbookError, TypeError) as problem:
        raise ArtifactError(f"{path}: {problem}") from problem
    if source.identity() != content["identity"]:
        raise ArtifactError(
            f"{path} describes {content['identity']!r}, and its options now make "
            f"{source.identity()!r}"
        )
    return source


def export(
    engine: str, command: str, content: dict[str, Any], notes: tuple[str, ...] = ()
) -> Export:
    """A described source as an export for `engine`."""
    schema.check(content, "source")
    inputs = {}
    if isinstance(path := content["options"].get("datastore"), str):
        inputs[Path(path).name] = reading.sha256(path)
    return Export(
        engine=engine,
        what="source",
        schema="source",
        body=json.dumps(content, indent=1) + "\n",
        command=command,
        inputs=inputs,
        notes=notes,
    )
