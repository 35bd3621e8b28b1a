"""Draft sources, one module each. A line in `specbook.registry` makes one known here.

A source is made with its options (`get("prompt_lookup")(max_ngram=3)`), has a
`contract`, an `identity()` for the manifest, and `start(...)`s one session a request.
A session answers `propose(...)` and is told by `commit(...)` what was published.
Sources that need a model load it only when they are asked for.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from .. import checks, registry


def names() -> list[str]:
    """The names of all draft sources."""
    return list(registry.DRAFTS)


def make(name: str, **options: Any) -> Any:
    """The source called `name`, with the options that were tuned for it, if any, and
    `options`. Raises `SpecbookError` for one that it does not have."""
    factory = get(name)
    make_it = getattr(factory, "tuned", factory)
    known = list(inspect.signature(factory).parameters)
    for option in options:
        checks.one_of(option, f"option of {name}", known)
    return make_it(**options)


def get(name: str) -> Callable[..., Any]:
    """The factory of the source called `name`; an unknown name lists the known ones."""
    return registry.resolve(registry.DRAFTS, "draft source", name)
