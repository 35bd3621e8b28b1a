"""The floors of the package: a module imports from its own floor or from below.

One table, read by the test that holds the rule and by the site's API page. The
longest matching name decides. Floors 1 and 2 never import torch.
"""

from __future__ import annotations

TITLES = {
    1: "Exact mathematics",
    2: "Rules and sources without a model",
    3: "Models",
    4: "Engine, measurement, drawing",
    5: "Command line, claims, exercises",
}
FLOORS = {
    "specbook": 1,
    "specbook.errors": 1,
    "specbook.checks": 1,
    "specbook.paths": 1,
    "specbook.reading": 1,
    "specbook.chance": 1,
    "specbook.policy": 1,
    "specbook.proposal": 1,
    "specbook.contract": 1,
    "specbook.fixture": 2,
    "specbook.manifest": 1,
    "specbook.ledger": 1,
    "specbook.tree": 1,
    "specbook.merging": 1,
    "specbook.registry": 1,
    "specbook.prompts": 1,
    "specbook.tables": 1,
    "specbook.verifiers": 2,
    "specbook.oracles": 2,
    "specbook.drafts": 2,
    "specbook.drafts.neural": 3,
    "specbook.topologies": 2,
    "specbook.corpora": 2,
    "specbook.models": 3,
    "specbook.training": 3,
    "specbook.engine": 4,
    "specbook.measure": 4,
    "specbook.export": 4,
    "specbook.advice": 4,
    "specbook.controls": 4,
    "specbook.faults": 4,
    "specbook.display": 4,
    "specbook.plotting": 4,
    "specbook.lab": 4,
    "specbook.trace": 4,
    "specbook.release": 4,
    "specbook.assertions": 4,
    "specbook.walkthrough": 4,
    "specbook.cli": 5,
    "specbook.cli_common": 5,
    "specbook.cli_advise": 5,
    "specbook.cli_export": 5,
    "specbook.cli_fixture": 5,
    "specbook.cli_frontier": 5,
    "specbook.cli_gate": 5,
    "specbook.cli_heads": 5,
    "specbook.cli_self": 5,
    "specbook.cli_measure": 5,
    "specbook.cli_options": 5,
    "specbook.cli_train": 5,
    "specbook.cli_skip": 5,
    "specbook.cli_trees": 5,
    "specbook.claims": 5,
    "specbook.gate": 5,
    "specbook.errata": 5,
    "specbook.neighbours": 5,
    "specbook.exercises": 5,
    "specbook.doctor": 5,
    "specbook.__main__": 5,
}
NO_TORCH = (1, 2)


def floor(module: str) -> int:
    """Return a module's floor; ValueError for one that the table does not know."""
    name = module
    while name not in FLOORS or (name == "specbook" and module != "specbook"):
        if "." not in name:
            raise ValueError(f"{module} has no floor: add it to tools/floors.py")
        name = name.rpartition(".")[0]
    return FLOORS[name]
