"""The ten release assertions, asked of what is to be deployed (section 0x0F).

Each is a function that raises where it does not hold. Most only call the code that
holds the rule while decoding; two have no other home. Whether a planned tree fits the
state that the runtime allows is settled there by asking for fewer rows, and whether the
times behind a plan are of this machine is asked by nobody: neither can make the text
wrong, so a running engine has no reason to stop, and a release has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import paths
from .contract import contract_of, negotiate
from .drafts.rest import leakage
from .engine import round_manifest
from .errors import ArtifactError, ContractError, ManifestError, SpecbookError
from .manifest import RoundManifest
from .measure import setup
from .measure.verify_report import VerifyProfile
from .models import skip_storage
from .models.heads import storage
from .policy import SamplingPolicy
from .topologies.artifact import TreeArtifact, kernel_text
from .training import artifact

HELD, REFUSED, NOTHING = "held", "refused", "nothing to ask"


@dataclass(frozen=True)
class Deployment:
    """What is to run. `manifest`: frozen by `freeze`. `plan`, `profile`: the tree that
    `source` drafts, and the times that it was chosen by, where there is one. `machine`:
    as `measure.setup.machine` tells it, by default this one. `protected`: evaluation
    material by name, token ids each, that no corpus may hold. `batch_regime`: in the
    words of `TreeArtifact`."""

    target: Any
    source: Any
    verifier: Any
    policy: SamplingPolicy
    manifest: RoundManifest
    plan: TreeArtifact | None = None
    profile: VerifyProfile | None = None
    machine: Mapping[str, Any] = field(default_factory=setup.machine)
    protected: Mapping[str, Iterable[int]] = field(default_factory=dict)
    batch_regime: str = "one request"

    def __post_init__(self) -> None:
        for name, kind, may_lack in (
            ("policy", SamplingPolicy, False),
            ("manifest", RoundManifest, False),
            ("plan", TreeArtifact, True),
            ("profile", VerifyProfile, True),
        ):
            value = getattr(self, name)
            if not isinstance(value, kind) and not (may_lack and value is None):
                raise SpecbookError(f"{name} must be a {kind.__name__}, got {value!r}")


@dataclass(frozen=True)
class Finding:
    """What became of one assertion: "held", "refused" with the message, or "nothing to
    ask" with the reason."""

    name: str
    status: str
    told: str


def freeze(
    target: Any,
    source: Any,
    verifier: Any,
    policy: SamplingPolicy,
    *,
    profile: VerifyProfile | None = None,
    **limits: Any,
) -> RoundManifest:
    """The manifest of a deployment: `engine.round_manifest`, with the hash of the
    hardware profile in it. `limits`: as there (`max_nodes`, `mode`, ...)."""
    told = "unprofiled" if profile is None else f"sha256:{profile.sha256()}"
    return round_manifest(
        target, source, verifier, policy, hardware_profile=told, **limits
    )


def review(deployment: Deployment) -> list[Finding]:
    """Asks every release assertion of `deployment`; nothing is decoded. Raises
    `SpecbookError` for what is no `Deployment`."""
    if not isinstance(deployment, Deployment):
        raise SpecbookError(f"not a Deployment: {deployment!r}")
    found = []
    for name, ask in RELEASE.items():
        try:
            reason = ask(deployment)
        except ValueError as refusal:
            found.append(Finding(name, REFUSED, str(refusal)))
        else:
            found.append(Finding(name, NOTHING if reason else HELD, reason or ""))
    return found


def shipped() -> dict[str, Callable[[Mapping[str, str]], None]]:
    """The trained artifacts that the book ships, each with what raises `ArtifactError`
    unless the artifact is whole and the target of the given identity is its own."""
    found = {}
    for kind, check in _OWN_TARGET.items():
        for folder in sorted(paths.data_path(kind).iterdir()):
            if folder.is_dir():
                found[f"{kind} {folder.name}"] = _own_target(folder, check)
    return found


def _own_target(folder: Path, check: Any) -> Callable[[Mapping[str, str]], None]:
    def ask(identity: Mapping[str, str]) -> None:
        check(artifact.load_manifest(folder), identity)

    return ask


_OWN_TARGET = {
    "heads": storage.check_target,
    "adapters": storage.check_target,
    "skip": skip_storage.check_target,
    "draft": artifact.check_target,
}


# Each returns None where it holds, and a reason where there is nothing to ask.


def same_tokenizer(d: Deployment) -> str | None:
    """A draft model reads ids as the target does. Raises `ContractError`."""
    if not hasattr(d.source, "model"):
        return "the source has no tokenizer of its own"
    d.source.check_target(d.target)
    return None


def compatible_checkpoint(d: Deployment) -> str | None:
    """The proposal artifact is for this target's version, and a plan is for this
    artifact. Raises `ArtifactError` or `ContractError`."""
    if not hasattr(d.source, "check_target"):
        return "the source has no checkpoint"
    d.source.check_target(d.target)
    if d.plan is not None:
        _current(
            d.plan,
            target_checkpoint=d.target.identity()["checkpoint"],
            tokenizer=d.target.identity()["tokenizer"],
            proposal_artifact=_artifact(d.source),
        )
    return None


def protected_excluded(d: Deployment) -> str | None:
    """A corpus holds none of the protected material, and says what was kept out of it.
    Raises `ArtifactError`."""
    store = getattr(d.source, "datastore", None)
    if store is None:
        return "the source holds no corpus"
    if not d.protected:
        raise ArtifactError("nothing is named that the corpus must not hold")
    leakage.refuse(store, d.protected)
    if "exclusions" in store.release.undeclared:
        raise ArtifactError("the datastore does not say what was kept out of it")
    return None


def semantics_accepted(d: Deployment) -> str | None:
    """The rule may read numbers of this meaning. Raises `ContractError`."""
    return _admitted(d, "supports_probability", "probability_semantics")


def relation_accepted(d: Deployment) -> str | None:
    """The rule's proof covers candidates drawn this way. Raises `ContractError`."""
    return _admitted(d, "supports_sampling_relation", "sampling_relation")


def metadata_supported(d: Deployment) -> str | None:
    """The rule can walk every shape that the source makes. Raises `ContractError`."""
    return _admitted(d, "supports_topology", "topology")


def budget_fits(d: Deployment) -> str | None:
    """The planned rows, or as many as may be asked for, fit the temporary state that
    the manifest allows, and its other limits. Raises `ContractError`."""
    shape = None if d.plan is None else d.plan.tree()
    rows = d.manifest.max_nodes if shape is None else len(shape)
    depth = 0 if shape is None else shape.max_depth
    needed = rows * d.target.start([0]).bytes_per_row()
    for what, value, limit in (
        ("rows", rows, d.manifest.max_nodes),
        ("edges of depth", depth, d.manifest.max_depth),
        ("bytes of temporary state", needed, d.manifest.temporary_state_bytes),
    ):
        if value > limit:
            raise ContractError(
                f"{value} {what} are planned, the manifest allows {limit}"
            )
    return None


def exact_mode_is_exact(d: Deployment) -> str | None:
    """In exact mode the rule is no heuristic. Raises `ContractError`."""
    if d.manifest.mode != "exact":
        return f"the mode is {d.manifest.mode}"
    negotiate([], d.verifier)
    return None


def profile_is_current(d: Deployment) -> str | None:
    """The times were taken by this forward of this target on this machine, and the plan
    is for its kernel, batch regime and temperature. Raises `ArtifactError`."""
    if d.plan is None:
        return "no tree was planned"
    if d.profile is None:
        raise ArtifactError("the plan comes without the times that it was chosen by")
    setup.check_same_machine(d.profile.machine, d.machine, "the profile", ArtifactError)
    about = d.target.identity()
    now = {
        "target": about["checkpoint"],
        "dtype": about["dtype"],
        "runtime": about["backend"],
    }
    for name, value in now.items():
        if (then := d.profile.settings.get(name)) != value:
            raise ArtifactError(f"the profile has {name} {then!r}, this is {value!r}")
    _current(
        d.plan,
        hardware=str(d.machine["processor"]),
        kernel=kernel_text(about["backend"], d.machine["threads"]),
        batch_regime=d.batch_regime,
        temperature=d.policy.temperature,
        verifier=contract_of(d.verifier).name,
    )
    return None


def hash_binds(d: Deployment) -> str | None:
    """The manifest describes what runs, and through it its hash binds the tree, the
    profile and the policy. Raises `ManifestError`."""
    running = freeze(
        d.target,
        d.source,
        d.verifier,
        d.policy,
        profile=d.profile,
        rng_policy=d.manifest.rng_policy,
        topology_compiler=d.manifest.topology_compiler,
        max_nodes=d.manifest.max_nodes,
        max_depth=d.manifest.max_depth,
        temporary_state_bytes=d.manifest.temporary_state_bytes,
        mode=d.manifest.mode,
    )
    if different := sorted(d.manifest.differences(running)):
        raise ManifestError(f"the manifest does not describe what runs: {different}")
    if d.plan is not None and d.plan.topology_hash not in d.manifest.proposal_artifact:
        raise ManifestError("the source that is bound does not draft the planned tree")
    return None


def _admitted(d: Deployment, supports: str, of: str) -> str | None:
    rule = contract_of(d.verifier)
    if not getattr(rule, supports)(getattr(d.source.contract, of)):
        negotiate([d.source.contract], rule, exact=False)
        raise ContractError(f"verifier {rule.name!r} does not admit the {of}")
    return None


def _artifact(source: Any) -> str:
    name = getattr(source, "artifact_identity", source.identity)
    return name()


def _current(plan: TreeArtifact, **now: Any) -> None:
    if different := plan.stale(**now):
        told = "; ".join(
            f"{name} was {then!r}, is {value!r}"
            for name, (then, value) in different.items()
        )
        raise ArtifactError(f"the plan is stale: {told}")


RELEASE: Mapping[str, Callable[[Deployment], str | None]] = {
    "tokenizers are equal": same_tokenizer,
    "checkpoint fits the target": compatible_checkpoint,
    "protected material is kept out": protected_excluded,
    "probability semantics accepted": semantics_accepted,
    "sampling relation accepted": relation_accepted,
    "nodes fit the temporary state": budget_fits,
    "every kind of proposal supported": metadata_supported,
    "exact mode, no heuristic": exact_mode_is_exact,
    "profile is of what is deployed": profile_is_current,
    "hash binds tree, profile, policy": hash_binds,
}
"""The article's ten, in its order."""
