"""Verifiers, one module each. A line in `specbook.registry` makes one known here."""

from __future__ import annotations

from .. import registry
from ..contract import Verifier


def names() -> list[str]:
    """The names of all verifiers."""
    return list(registry.VERIFIERS)


def get(name: str) -> Verifier:
    """The verifier called `name`; an unknown name raises and lists the known ones."""
    return registry.resolve(registry.VERIFIERS, "verifier", name)
