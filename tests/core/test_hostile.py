"""Whatever is handed to a public function, it works or says so by name.

Every argument of every public function of the core is replaced by every hostile value
in turn. The only errors allowed are the package's own (all of them ValueErrors).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from specbook import chance, contract, ledger, registry, topologies, verifiers
from specbook.engine import generate, round_manifest
from specbook.errors import SpecbookError
from specbook.manifest import RoundManifest
from specbook.policy import SamplingPolicy
from specbook.proposal import Proposal, ProposalNode, ProposalStateHandle
from specbook.tree import CandidateTree, SourceMark

from .helpers import must_fail
from .helpers.laws import table_of
from .helpers.manifests import FIELDS, manifest
from .helpers.rules import contract as rule_contract
from .helpers.sources import FixedSource, proposal_of
from .helpers.targets import WatchedTarget


class OneWay:
    """Stands for a generator: a new one for every call, since one that was read is
    empty, and an empty one is refused for another reason."""


HOSTILE: dict[str, Any] = {
    "a generator": OneWay(),
    "None": None,
    "True": True,
    "-1": -1,
    "0": 0,
    "3": 3,
    "1.5": 1.5,
    "-0.0": -0.0,
    "nan": math.nan,
    "inf": math.inf,
    "10**30": 10**30,
    "10**400": 10**400,
    "a tiny fraction": Fraction(1, 10**400),
    "1j": 1j,
    "empty text": "",
    "text": "x",
    "bytes": b"x",
    "[]": [],
    "[None]": [None],
    "[[1]]": [[1]],
    "[[[1]]]": [[[1]]],
    "['x']": ["x"],
    "[nan]": [math.nan],
    "[10**400]": [10**400],
    "{}": {},
    "{1: 2}": {1: 2},
    "{1}": {1},
    "object": object(),
    "a type": int,
    "a function": lambda *a, **k: None,
    "no array": np.array([]),
    "a matrix": np.array([[1]]),
    "a scalar array": np.array(1),
    "np.nan": np.float32(math.nan),
    "np.True_": np.True_,
}

TARGET = WatchedTarget(table_of([[1, 2], [3, 1]]), vocab_size=2)
HANDLE = ProposalStateHandle("o", "r", 0)
TREE = CandidateTree.from_paths([[0, 1], [1]], 2)
RULE = verifiers.get("membership")
LEDGER = ledger.RoundLedger(1, 1, 1, 1, 1, 1, committed_tokens=2)
FROZEN = manifest()
SOURCE = contract.SourceContract("s", "absent", "iid", "tree")  # type: ignore[arg-type]

CALLS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "Sampler": (chance.Sampler, {"seed": 1}),
    "Sampler.flip": (chance.Sampler(0).flip, {"probability": 0.5}),
    "Sampler.draw": (chance.Sampler(0).draw, {"weights": [0.5, 0.5]}),
    "law": (
        chance.law,
        {"program": lambda c: c.flip(Fraction(1, 2)), "max_branches": 9},
    ),
    "SamplingPolicy": (SamplingPolicy, {"temperature": 1, "top_k": 2, "top_p": 0.5}),
    "law_from_logits": (SamplingPolicy(0.7, 2).law_from_logits, {"logits": [1.0, 2.0]}),
    "law_from_probabilities": (
        SamplingPolicy(0.7, top_p=0.9).law_from_probabilities,
        {"law": [0.5, 0.5]},
    ),
    "ProposalNode": (
        ProposalNode,
        {
            "token_id": 1,
            "parent": -1,
            "depth": 1,
            "q": 0.5,
            "score": 1.0,
            "source": "s",
            "state_owner": "o",
            "origin_request": "r",
        },
    ),
    "ProposalStateHandle": (
        ProposalStateHandle,
        {"owner": "o", "request": "r", "generation": 0},
    ),
    "Proposal": (
        Proposal,
        {
            "nodes": (ProposalNode(1),),
            "probability_semantics": "absent",
            "sampling_relation": "iid",
            "topology": "tree",
            "state_handle": HANDLE,
            "manifest_hash": "m",
        },
    ),
    "SourceContract": (
        contract.SourceContract,
        {
            "name": "s",
            "probability_semantics": "absent",
            "sampling_relation": "iid",
            "topology": "tree",
            "cost_term": "proposal",
        },
    ),
    "VerifierContract": (
        contract.VerifierContract,
        {
            "name": "v",
            "reads_q": False,
            "exact": True,
            "probability": {"absent"},
            "sampling": {"iid"},
            "topology": {"tree"},
            "merges_q": False,
            "greedy_only": False,
        },
    ),
    "Verifier": (
        contract.Verifier,
        {"contract": rule_contract("v"), "select": RULE.select},
    ),
    "bind": (
        contract.bind,
        {
            "proposal": proposal_of([[1]], manifest_hash=FROZEN.hash),
            "verifier": "membership",
            "exact": True,
            "manifest": FROZEN,
            "bytes_per_node": 1,
        },
    ),
    "negotiate": (
        contract.negotiate,
        {"sources": [SOURCE], "verifier": "membership", "exact": True},
    ),
    "contract_of": (contract.contract_of, {"verifier": "greedy"}),
    "verifiers.get": (verifiers.get, {"name": "greedy"}),
    "resolve": (
        lambda name: registry.resolve(registry.DRAFTS, "draft source", name),
        {"name": "prompt_lookup"},
    ),
    "RoundManifest": (RoundManifest, FIELDS),
    "RoundManifest.replace": (FROZEN.replace, dict(list(FIELDS.items())[:3])),
    "RoundManifest.from_json": (RoundManifest.from_json, {"text": FROZEN.to_json()}),
    "RoundManifest.differences": (FROZEN.differences, {"other": FROZEN}),
    "RoundLedger": (ledger.RoundLedger, LEDGER.as_dict()),
    "RoundLedger.speedup": (LEDGER.speedup, {"target_step_cost": 1}),
    "RoundLedger.break_even": (LEDGER.break_even_tokens, {"target_step_cost": 1}),
    "RoundLedger.total": (ledger.RoundLedger.total, {"ledgers": [LEDGER]}),
    "Selection": (contract.Selection, {"rows": (0, 1), "token": 2}),
    "Stopwatch": (ledger.Stopwatch, {"clock": lambda: 0.0}),
    "Stopwatch.close": (ledger.Stopwatch().close, {"committed_tokens": 1}),
    "CandidateTree": (
        CandidateTree,
        {
            "token_ids": (1, 2),
            "parents": (-1, 0),
            "depths": (1, 2),
            "prefix_len": 3,
            "sources": ((SourceMark("s"),), ()),
        },
    ),
    "from_rows": (
        CandidateTree.from_rows,
        {"token_ids": [1, 2], "parents": [-1, 0], "prefix_len": 3, "depths": [1, 2]},
    ),
    "from_paths": (
        CandidateTree.from_paths,
        {"paths": [[1]], "prefix_len": 3, "order": "depth", "sources": ["s"]},
    ),
    "from_proposals": (
        CandidateTree.from_proposals,
        {"proposals": [proposal_of([[1]])], "prefix_len": 3, "order": "depth"},
    ),
    "children": (TREE.children, {"row": 0}),
    "child_with_token": (TREE.child_with_token, {"row": 0, "token": 1}),
    "path_rows": (TREE.path_rows, {"row": 0}),
    "check_path": (TREE.check_path, {"rows": [0]}),
    "validate": (TREE.validate, {"vocab_size": 2}),
    "cartesian": (topologies.cartesian, {"branching": [2]}),
    "chain": (topologies.chain, {"depth": 2}),
    "kary": (topologies.kary, {"k": 2, "depth": 2}),
    "independent_chains": (topologies.independent_chains, {"width": 2, "depth": 2}),
    "round_manifest": (
        round_manifest,
        {
            "target": TARGET,
            "source": FixedSource([[1]]),
            "verifier": "membership",
            "policy": SamplingPolicy(1),
            "rng_policy": "r",
            "topology_compiler": "t",
            "hardware_profile": "h",
            "max_nodes": 4,
            "max_depth": 4,
            "temporary_state_bytes": 9,
            "mode": "exact",
        },
    ),
    "generate": (
        generate,
        {
            "target": TARGET,
            "prompt_ids": [0],
            "source": FixedSource([[1, 0], [0]]),
            "verifier": "membership",
            "max_new_tokens": 4,
            "temperature": 1,
            "seed": 0,
            "eos_token_id": 1,
            "chance": chance.Sampler(0),
            "manifest": None,
            "top_k": 2,
            "top_p": 0.5,
            "max_nodes": 4,
            "max_depth": 4,
            "temporary_state_bytes": 9,
            "order": "breadth",
            "exact": True,
            "on_round": lambda record: None,
            "clock": lambda: 0.0,
        },
    ),
}

# An output of this size is a fair request, and what a caller's own function does wrong
# comes through as it is.
LEFT_OUT = {
    ("generate", "max_new_tokens", "10**30"),
    ("generate", "max_new_tokens", "10**400"),
}


def check_says_so(call: Callable[..., Any], arguments: dict[str, Any]) -> None:
    given = {
        name: (x for x in (0.5, 0.5)) if isinstance(value, OneWay) else value
        for name, value in arguments.items()
    }
    try:
        call(**given)
    except SpecbookError:
        pass
    except Exception as error:
        raise AssertionError(f"{type(error).__name__}: {error}") from error


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", CALLS)
def test_hostile_values_work_or_are_refused_by_name(name: str) -> None:
    call, good = CALLS[name]
    call(**good)
    for argument in good:
        for label, value in HOSTILE.items():
            if (name, argument, label) in LEFT_OUT:
                continue
            try:
                check_says_so(call, {**good, argument: value})
            except AssertionError as error:
                raise AssertionError(f"{argument} = {label}: {error}") from error


def test_an_error_of_another_kind_fails_the_same_check() -> None:
    check_says_so(lambda x: SamplingPolicy(x), {"x": None})
    for fault in (lambda x: len(x), lambda x: x.size, lambda x: 1 / int(not x) / 0):
        must_fail(check_says_so, fault, {"x": None})
