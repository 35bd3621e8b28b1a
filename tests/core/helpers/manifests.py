"""A complete manifest to change one thing in."""

from __future__ import annotations

from typing import Any

from specbook.manifest import RoundManifest

FIELDS: dict[str, Any] = {
    "target_checkpoint": "target",
    "tokenizer": "tokenizer",
    "output_head": "head",
    "sampling_policy": "categorical",
    "temperature": 1.0,
    "truncation": "none",
    "rng_policy": "numpy PCG64, seed 0",
    "proposal_artifact": "index",
    "probability_semantics": "absent",
    "sampling_relation": "deterministic_lookup",
    "topology_compiler": "merge by full prefix",
    "max_nodes": 64,
    "max_depth": 8,
    "verifier": "membership",
    "mode": "exact",
    "target_cache_generation": 0,
    "proposal_cache_generation": 0,
    "backend": "table",
    "dtype": "float32",
    "batch_regime": "one request",
    "hardware_profile": "unprofiled",
    "temporary_state_bytes": 1 << 20,
}


def manifest(**changes: Any) -> RoundManifest:
    """The manifest of `FIELDS` with some of them changed."""
    return RoundManifest(**{**FIELDS, **changes})
