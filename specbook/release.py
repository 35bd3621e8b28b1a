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

from . import engine, paths
from .contract import SourceContract, contract_of, negotiate
from .drafts.rest import Datastore, leakage
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
    """What is to run. `source`: one source, a list of them, or None for plain decoding.
    `manifest`: frozen by `freeze`. `plan`, `profile`: the tree that `source` drafts,
    and the times that it was chosen by, where there is one. `machine`:
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
        for name in ("identity", "start"):
            if not callable(getattr(self.target, name, None)):
                raise SpecbookError(f"target has no {name}(): {self.target!r}")
        for source in self.sources:
            if isinstance(source, type) or not _is_source(source):
                raise SpecbookError(f"this is no draft source: {source!r}")
        for name, kind, may_lack in (
            ("policy", SamplingPolicy, False),
            ("manifest", RoundManifest, False),
            ("plan", TreeArtifact, True),
            ("profile", VerifyProfile, True),
        ):
            value = getattr(self, name)
            if not isinstance(value, kind) and not (may_lack and value is None):
                raise SpecbookError(f"{name} must be a {kind.__name__}, got {value!r}")

    @property
    def sources(self) -> list[Any]:
        """The draft sources, none for plain decoding."""
        some = self.source if isinstance(self.source, (list, tuple)) else [self.source]
        return [source for source in some if source is not None]

    @property
    def parts(self) -> list[Any]:
        """The sources, each followed by those that it is made of: a switch has one
        within, a staged draft has two."""
        found: list[Any] = []
        left = self.sources[::-1]
        while left:
            part = left.pop()
            if not any(part is other for other in found):
                found.append(part)
                inner = getattr(part, "__dict__", {}).values()
                left += [value for value in inner if _is_source(value)]
        return found


def _is_source(value: Any) -> bool:
    return isinstance(getattr(value, "contract", None), SourceContract) and callable(
        getattr(value, "start", None)
    )


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
    return engine.round_manifest(
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
    """Whatever the source reads or keeps as ids, a draft model or a corpus, means by
    them what the target does, and says so. Raises `ContractError`."""
    reads = [part for part in d.parts if hasattr(part, "model") or _corpora([part])]
    if not reads:
        return "the source has no tokenizer of its own"
    for part in reads:
        for store in _corpora([part]):
            if "tokenizer" in store.release.undeclared:
                raise ContractError("the datastore does not say whose ids it holds")
    for source in d.sources:
        if hasattr(source, "check_target"):
            source.check_target(d.target)
    return None


def compatible_checkpoint(d: Deployment) -> str | None:
    """The proposal artifact is for this target's version, and a plan is for this
    artifact. Raises `ArtifactError` or `ContractError`."""
    bound = [source for source in d.sources if hasattr(source, "check_target")]
    for source in bound:
        source.check_target(d.target)
    if d.plan is not None:
        _current(
            d.plan,
            target_checkpoint=d.target.identity()["checkpoint"],
            tokenizer=d.target.identity()["tokenizer"],
            proposal_artifact=" + ".join(map(_artifact, d.sources)) or "none",
        )
    elif not bound:
        return "the source has no checkpoint, and there is no plan"
    return None


def protected_excluded(d: Deployment) -> str | None:
    """No corpus holds any of the protected material, and each says what was kept out
    of it. Raises `ArtifactError`."""
    corpora = _corpora(d.parts)
    if not corpora:
        return "the source holds no corpus"
    if not d.protected:
        raise ArtifactError("nothing is named that the corpus must not hold")
    for store in corpora:
        leakage.refuse(store, d.protected)
        if "exclusions" in store.release.undeclared:
            raise ArtifactError("the datastore does not say what was kept out of it")
    return None


def _corpora(parts: Iterable[Any]) -> list[Datastore]:
    kept = (getattr(part, "datastore", None) for part in parts)
    return [store for store in kept if isinstance(store, Datastore)]


def semantics_accepted(d: Deployment) -> str | None:
    """The rule may read numbers of this meaning. Raises `ContractError`."""
    return _admitted(d, "supports_probability", "probability_semantics")


def relation_accepted(d: Deployment) -> str | None:
    """The rule's proof covers candidates drawn this way. Raises `ContractError`."""
    return _admitted(d, "supports_sampling_relation", "sampling_relation")


def metadata_supported(d: Deployment) -> str | None:
    """The rule can walk every shape that the sources make, and what they become when
    they are merged. Raises `ContractError`."""
    reason = _admitted(d, "supports_topology", "topology")
    rule = contract_of(d.verifier)
    contracts = [source.contract for source in d.sources]
    if all(
        rule.supports_probability(c.probability_semantics)
        and rule.supports_sampling_relation(c.sampling_relation)
        for c in contracts
    ):
        # What is left to be refused is named by neither of the two assertions above:
        # a merge, or a rule that says yes to what no rule of its kind may read.
        negotiate(contracts, rule, exact=False)
    return reason


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
    if d.profile is None:
        if d.plan is None:
            return "no tree was planned, and no times are given"
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
    if d.plan is None:
        return None
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
    for contract in (source.contract for source in d.sources):
        if not getattr(rule, supports)(getattr(contract, of)):
            negotiate([contract], rule, exact=False)
            raise ContractError(f"verifier {rule.name!r} does not admit the {of}")
    return None if d.sources else "nothing is drafted"


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
