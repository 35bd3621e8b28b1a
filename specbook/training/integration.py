"""What each source makes mutable: to be trained, versioned, loaded and rolled back.

The matrix of section 0x0B, which the article has lost. It is read from what there is:
the contract of each registered source, and the manifests of the artifacts that ship.
Register another source, or ship another artifact, and the matrix has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .. import checks, drafts, paths
from ..contract import SourceContract
from ..errors import ArtifactError
from . import artifact

SEARCHED = "skip vector"
"""The kind of artifact that no training made: `models.skip_storage.KIND`, which a test
compares, so that reading needs no torch."""


@dataclass(frozen=True)
class Shipped:
    """An artifact on disk. `source`: who loads it; `size`: bytes of its files."""

    source: str
    folder: Path
    manifest: Mapping[str, Any]
    size: int


@dataclass(frozen=True)
class Mutable:
    """One source. `trained`: what training has to make, as our artifacts tell;
    `versioned`: the changes after which it must be made or started anew; `loaded`:
    what is in memory before the first request; `rolled_back`: what a request holds,
    where no refused candidate may be left."""

    source: str
    trained: str
    versioned: str
    loaded: str
    rolled_back: str


def shipped(root: Path | None = None) -> list[Shipped]:
    """Every trained artifact below `root`, by default the package's data, checked
    against its manifest, by source and name. A skip vector was searched for, has no
    numbers of its own, and is not among them. Raises `ArtifactError` for a damaged one
    and for one that no registered source loads."""
    folder = paths.data_path() if root is None else root
    found = []
    for path in sorted(folder.glob(f"*/*/{artifact.MANIFEST}")):
        manifest = artifact.load_manifest(path.parent)
        if manifest["kind"] == SEARCHED:
            continue
        number = manifest.get("parameters")
        checks.integer(number, f"{path}: parameters", least=0, error=ArtifactError)
        size = sum((path.parent / name).stat().st_size for name in manifest["files"])
        found.append(Shipped(_source(manifest, path), path.parent, manifest, size))
    return sorted(found, key=lambda one: (one.source, one.folder.name))


def _source(manifest: Mapping[str, Any], path: Path) -> str:
    settings = manifest.get("settings")
    kind = settings.get("kind") if isinstance(settings, Mapping) else None
    stored = str(manifest["kind"])
    # A draft model, draft heads of a kind, a kangaroo adapter, or told by the name.
    first = stored.split(" ")[0]
    for name in (kind, stored.replace(" ", "_"), first, manifest["name"]):
        if name in drafts.names():
            return str(name)
    raise ArtifactError(f"{path}: no registered source loads a {manifest['kind']!r}")


def matrix(artifacts: list[Shipped] | None = None) -> list[Mutable]:
    """A row for each registered source, in the registry's order. `artifacts`: by
    default those that ship."""
    ours = shipped() if artifacts is None else artifacts
    found = []
    for name in drafts.names():
        source: Any = drafts.get(name)
        theirs = [one for one in ours if one.source == name]
        found.append(_row(source.contract, theirs))
    return found


def _row(contract: SourceContract, artifacts: list[Shipped]) -> Mutable:
    told = [
        f"{one.manifest['name']}: {one.manifest['parameters']:,} weights, "
        f"{one.size / 1e6:.1f} MB"
        for one in artifacts
    ]
    nothing = "nothing" if contract.weights == "none" else "nothing that ships"
    return Mutable(
        source=contract.name,
        trained="; ".join(told) or nothing,
        versioned="; ".join(contract.invalidated_by),
        loaded=contract.weights,
        rolled_back=f"{contract.state}. Cache: {contract.cache}",
    )
