"""Every assertion of section 0x0F: what must hold, who holds it, which test shows it.

One table. A test looks up each test that is named here, so that no row can point at
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from . import engine, proposal, release
from .contract import bind, negotiate
from .drafts.neural.draft_model import DraftModel
from .drafts.rest import leakage
from .errors import (
    ArtifactError,
    ContractError,
    SpecbookError,
    TargetError,
    TreeError,
)
from .lab import Table, table
from .models.heads import storage
from .models.target import ModelSession
from .topologies.artifact import TreeArtifact
from .tree import CandidateTree

GROUPS = ("candidate graph", "commit", "release")


@dataclass(frozen=True)
class Assertion:
    """One assertion. `held_by`: the functions that raise `error`, the one that runs
    while decoding first. `test`: the test that links it to a planted fault, as pytest
    names it."""

    group: str
    text: str
    held_by: tuple[Callable[..., Any], ...]
    error: type[SpecbookError]
    test: str

    def names(self) -> list[str]:
        """The holders by their full names."""
        return [f"{f.__module__}.{f.__qualname__}" for f in self.held_by]


def _of(
    group: str, *rows: tuple[str, Any, type[SpecbookError], str]
) -> list[Assertion]:
    return [
        Assertion(
            group, text, held if isinstance(held, tuple) else (held,), error, test
        )
        for text, held, error, test in rows
    ]


_TREE = "tests/core/test_tree.py::"
_BUFFERS = f"{_TREE}test_validate_catches_each_changed_buffer"
_CONTRACT = "tests/core/test_contract.py::"
_STRUCTURE = CandidateTree._check_structure

ASSERTIONS = (
    *_of(
        "candidate graph",
        (
            "the prefix has no negative length",
            CandidateTree.__post_init__,
            TreeError,
            f"{_TREE}test_a_prefix_has_a_length",
        ),
        (
            "a parent is the frontier or an earlier row",
            _STRUCTURE,
            TreeError,
            f"{_TREE}test_h11_malformed_graphs_are_refused_quickly",
        ),
        ("a row is one deeper than its parent", _STRUCTURE, TreeError, _BUFFERS),
        (
            "the position follows the depth",
            CandidateTree.validate,
            TreeError,
            _BUFFERS,
        ),
        (
            "the full prefix is the parent's and the token",
            CandidateTree.validate,
            TreeError,
            _BUFFERS,
        ),
        (
            "q is absent or between 0 and 1",
            (proposal.ProposalNode.__post_init__, CandidateTree.validate),
            SpecbookError,
            "tests/core/test_proposal.py::test_a_node_names_its_bad_field",
        ),
        (
            "the predictor row is the parent",
            CandidateTree.validate,
            TreeError,
            f"{_TREE}test_predictor_rows_of_another_order_are_caught",
        ),
        (
            "every row sees the whole prefix",
            CandidateTree.validate,
            TreeError,
            _BUFFERS,
        ),
        (
            "a row sees itself, its ancestors and no other",
            CandidateTree.validate,
            TreeError,
            _BUFFERS,
        ),
    ),
    *_of(
        "commit",
        (
            "the rows are one path from the root",
            (CandidateTree.check_path, ModelSession.commit),
            SpecbookError,
            f"{_TREE}test_what_is_no_root_to_node_path_is_refused",
        ),
        (
            "the session's tokens are those that were published",
            engine._check_session,
            TargetError,
            "tests/core/test_lying_parts.py::test_a_session_is_in_step",
        ),
        (
            "no sibling is among the rows",
            (CandidateTree.check_path, ModelSession.commit),
            SpecbookError,
            f"{_TREE}test_siblings_are_no_path",
        ),
    ),
    *_of(
        "release",
        (
            "tokenizers are equal",
            (DraftModel.check_target, release.same_tokenizer),
            ContractError,
            "tests/models/test_vocabulary.py::test_h23_as_a_draft_model",
        ),
        (
            "checkpoint fits the target",
            (storage.check_target, release.compatible_checkpoint),
            ArtifactError,
            "tests/heads/test_storage.py::test_another_checkpoint_or_tokenizer_is_refused",
        ),
        (
            "protected material is kept out",
            (leakage.refuse, release.protected_excluded),
            ArtifactError,
            "tests/drafts/rest/test_rest_leakage.py::test_every_item_over_the_limit_is_named",
        ),
        (
            "probability semantics accepted",
            (bind, negotiate, release.semantics_accepted),
            ContractError,
            f"{_CONTRACT}test_h17b_what_is_no_q_never_meets_a_rule_that_reads_q",
        ),
        (
            "sampling relation accepted",
            (bind, negotiate, release.relation_accepted),
            ContractError,
            f"{_CONTRACT}test_h17c_another_sampling_relation_never_meets_the_iid_rule",
        ),
        (
            "nodes fit the temporary state",
            (bind, release.budget_fits),
            ContractError,
            f"{_CONTRACT}test_budgets_are_limits_that_are_met_exactly",
        ),
        (
            "every kind of proposal supported",
            (bind, negotiate, release.metadata_supported),
            ContractError,
            f"{_CONTRACT}test_a_metadata_graph_becomes_no_target_rows",
        ),
        (
            "exact mode, no heuristic",
            (negotiate, release.exact_mode_is_exact),
            ContractError,
            f"{_CONTRACT}test_exact_mode_refuses_heuristics_however_it_is_asked_for",
        ),
        (
            "profile is of what is deployed",
            release.profile_is_current,
            ArtifactError,
            "tests/lab/test_release.py::test_each_fault_is_told_by_its_own_assertion",
        ),
        (
            "hash binds tree, profile, policy",
            (TreeArtifact.load, engine._check_manifest, release.hash_binds),
            SpecbookError,
            "tests/topologies/test_hardware.py::test_every_damaged_byte_is_refused",
        ),
    ),
)


def overview(group: str) -> Table:
    """The table of one group: assertion, who holds it while decoding, which test."""
    rows = [
        (a.text, a.names()[0].removeprefix("specbook."), a.test.partition("::")[2])
        for a in ASSERTIONS
        if a.group == group
    ]
    if not rows:
        raise SpecbookError(f"there is no group {group!r}; there are {GROUPS}")
    return table(["what must hold", "held by", "linked by"], rows)
