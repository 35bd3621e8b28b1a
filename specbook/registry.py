"""The two registries: one line adds a draft source or a verifier to the book.

A line names a module of the package and an attribute in it. Nothing is imported
until somebody asks for the name, so the torch-free floors stay torch-free.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from .errors import SpecbookError

VERIFIERS: Mapping[str, str] = {
    "greedy": "specbook.verifiers.greedy:VERIFIER",
    "membership": "specbook.verifiers.membership:VERIFIER",
    "single": "specbook.verifiers.single:VERIFIER",
}

DRAFTS: Mapping[str, str] = {
    "prompt_lookup": "specbook.drafts.prompt_lookup:PromptLookup",
    "rest": "specbook.drafts.rest:Rest",
    "draft_model": "specbook.drafts.neural.draft_model:DraftModel",
    "staged": "specbook.drafts.neural.staged:Staged",
    "suffix": "specbook.drafts.suffix:Suffix",
}


def resolve(table: Mapping[str, str], kind: str, name: Any) -> Any:
    """The object that `name` stands for in `table`; an unknown name is an error."""
    if not isinstance(name, str) or name not in table:
        raise SpecbookError(f"no {kind} is called {name!r}; there are {sorted(table)}")
    module, attribute = table[name].split(":")
    return getattr(import_module(module), attribute)
