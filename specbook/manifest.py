"""The immutable round manifest (section 0x02B).

It freezes, before the first proposal of a round, everything that the round's
validity or its calibration rests on. A proposal carries the manifest's hash; one
made under another manifest (another tokenizer, another policy, an earlier cache
generation) is recognised and refused.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, fields, replace
from typing import Any

from . import checks
from .errors import ManifestError

MODES = ("exact", "heuristic")


@dataclass(frozen=True, kw_only=True)
class RoundManifest:
    """All fields are required: a manifest that leaves something open binds nothing.

    Text fields identify an artifact or a choice; `temperature` has no unit;
    `max_nodes` and `max_depth` count candidate rows and edges;
    `temporary_state_bytes` is the most that a round's candidate rows may occupy, in
    bytes; the cache generations count commits. Raises `ManifestError`.
    """

    target_checkpoint: str
    tokenizer: str
    output_head: str
    sampling_policy: str
    temperature: float
    truncation: str
    rng_policy: str
    proposal_artifact: str
    probability_semantics: str
    sampling_relation: str
    topology_compiler: str
    max_nodes: int
    max_depth: int
    verifier: str
    mode: str
    target_cache_generation: int
    proposal_cache_generation: int
    backend: str
    dtype: str
    batch_regime: str
    hardware_profile: str
    temporary_state_bytes: int

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "str":
                if not isinstance(value, str) or not value:
                    raise ManifestError(f"{field.name} must be text, got {value!r}")
                value = str(value)
            elif field.type == "int":
                value = checks.integer(value, field.name, least=0, error=ManifestError)
            else:
                value = checks.float64(value, field.name, least=0, error=ManifestError)
            # One form for each value: 1 and 1.0 are the same temperature, and equal
            # manifests have one hash.
            object.__setattr__(self, field.name, value)
        if self.mode not in MODES:
            raise ManifestError(f"mode must be one of {MODES}, got {self.mode!r}")

    @property
    def hash(self) -> str:
        """SHA-256 (hex) of the fields in canonical JSON."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        """The fields as canonical JSON: sorted, no spaces, ASCII."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return json.dumps(values, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> RoundManifest:
        """The manifest that `to_json` wrote; missing or unknown fields are refused."""
        try:
            values = json.loads(text)
        except (TypeError, ValueError, RecursionError) as error:
            raise ManifestError(f"not a manifest: {error}") from error
        if not isinstance(values, dict):
            raise ManifestError("not a manifest: a JSON object is expected")
        names = {f.name for f in fields(cls)}
        if wrong := sorted(names ^ set(values)):
            raise ManifestError(f"missing or unknown manifest fields: {wrong}")
        return cls(**values)

    def replace(self, **changes: Any) -> RoundManifest:
        """A manifest with some fields changed (and so with another hash)."""
        if unknown := sorted(set(changes) - {f.name for f in fields(self)}):
            raise ManifestError(f"unknown manifest fields: {unknown}")
        return replace(self, **changes)

    def differences(self, other: RoundManifest) -> dict[str, tuple[Any, Any]]:
        """`{field: (mine, theirs)}` for the fields that differ."""
        if not isinstance(other, RoundManifest):
            raise ManifestError(f"not a manifest: {other!r}")
        pairs = {
            f.name: (getattr(self, f.name), getattr(other, f.name))
            for f in fields(self)
        }
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
