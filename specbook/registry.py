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
    "specinfer": "specbook.verifiers.specinfer:VERIFIER",
    "sequoia": "specbook.verifiers.sequoia:VERIFIER",
    "kseq": "specbook.verifiers.kseq:VERIFIER",
    "one_hot": "specbook.verifiers.one_hot:VERIFIER",
    "greedy_draft": "specbook.verifiers.greedy_draft:VERIFIER",
    "spechub": "specbook.verifiers.spechub:VERIFIER",
    "optimal": "specbook.verifiers.optimal:VERIFIER",
    "block": "specbook.verifiers.block:VERIFIER",
    "traversal": "specbook.verifiers.traversal:VERIFIER",
    "typical": "specbook.verifiers.typical:VERIFIER",
    "ensemble": "specbook.verifiers.ensemble:VERIFIER",
}

DRAFTS: Mapping[str, str] = {
    "prompt_lookup": "specbook.drafts.prompt_lookup:PromptLookup",
    "rest": "specbook.drafts.rest:Rest",
    "draft_model": "specbook.drafts.neural.draft_model:DraftModel",
    "staged": "specbook.drafts.neural.staged:Staged",
    "suffix": "specbook.drafts.suffix:Suffix",
    "medusa": "specbook.drafts.neural.medusa:Medusa",
    "hydra": "specbook.drafts.neural.hydra:Hydra",
    "hydra_plus": "specbook.drafts.neural.hydra_plus:HydraPlus",
    "clover": "specbook.drafts.neural.clover:Clover",
    "markov": "specbook.drafts.neural.markov:Markov",
    "draft_verify": "specbook.drafts.neural.draft_verify:DraftVerify",
    "kangaroo": "specbook.drafts.neural.kangaroo:Kangaroo",
}


def resolve(table: Mapping[str, str], kind: str, name: Any) -> Any:
    """The object that `name` stands for in `table`; an unknown name is an error."""
    if not isinstance(name, str) or name not in table:
        raise SpecbookError(f"no {kind} is called {name!r}; there are {sorted(table)}")
    module, attribute = table[name].split(":")
    return getattr(import_module(module), attribute)
