"""What the papers say of how they trained, and what our own manifests say (0x0B).

Both are told in one form, so that a table can set one beside the other. The papers'
side is `data/recipes.toml`, each line with the keys of its sources in the bibliography;
ours is read from the manifest that binds an artifact's files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from .. import checks, tables
from ..errors import ArtifactError, SpecbookError

FILE = "recipes.toml"


@dataclass(frozen=True)
class Told:
    """How one method's artifact was made, in words.

    `name` of the method; `source`: the registered source that is of its kind, if there
    is one; `makes`, `learns`, `passes` (over the data) and `steps` (optimizer and
    schedule); `said_in`: keys of the bibliography, empty for our own; `differs`: where
    the sources contradict each other.
    """

    name: str
    source: str
    makes: str
    learns: str
    passes: str
    steps: str
    said_in: tuple[str, ...] = ()
    differs: str = ""

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name != "said_in":
                checks.text(getattr(self, field.name), field.name)
        keys = checks.entries(self.said_in, "said_in", "keys")
        for place, key in enumerate(keys):
            checks.text(key, f"said_in[{place}]")
        object.__setattr__(self, "said_in", tuple(keys))


def reported() -> list[Told]:
    """The recipes of `data/recipes.toml`, in its order. Raises `ArtifactError` for a
    file that is malformed, names a field that there is not, or cites nothing."""
    known = {field.name for field in fields(Told)}
    rows = tables.load(
        None,
        FILE,
        "recipe",
        known=known,
        needed=known - {"said_in", "differs"},
        error=ArtifactError,
    )
    return [_told(row, where) for where, row in rows]


def _told(row: Mapping[str, Any], where: str) -> Told:
    keys = tables.texts(row.get("said_in", []), f"{where}: said_in", ArtifactError)
    if not keys:
        raise ArtifactError(f"{where}: {row['name']!r} cites nothing")
    for name, value in row.items():
        if name != "said_in":
            checks.text(value, f"{where}: {name}", error=ArtifactError)
    return Told(**{**row, "said_in": tuple(keys)})


def of_manifest(manifest: Mapping[str, Any], source: str) -> Told:
    """The recipe of an artifact of ours. Raises `SpecbookError` for a manifest that
    does not tell one."""
    try:
        settings = manifest["settings"]
        passes = 1 + int(manifest["loss_curve"][-1]["epoch"])
        rows = int(manifest["data"]["counts"]["rows"])
        parameters = int(manifest["parameters"])
        steps, rate = int(settings["steps"]), float(settings["learning_rate"])
        # A draft model has no choice of loss: it is distilled.
        is_label = settings.get("loss") == "label"
        weighs = float(settings.get("state_weight", 0.0))
        decay = float(settings.get("decay", 1.0))
        share = float(settings.get("self_share", 0.0))
        heat = float(settings.get("temperature", 1.0))
        name = checks.text(manifest["name"], "name")
    except (
        AttributeError,
        IndexError,
        KeyError,
        OverflowError,
        TypeError,
        ValueError,
    ) as problem:
        raise SpecbookError(f"this manifest tells no recipe: {problem!r}") from problem
    learns = "hard labels" if is_label else "the target's law"
    if weighs:
        learns += " and its next state"
    if heat != 1.0:
        learns += f", both softened by {heat:g}"
    if decay != 1.0:
        learns += f", head i weighs {decay:g} to the power i - 1"
    if share:
        learns += f", {share:.0%} of the rows on the heads' own tokens"
    begun = "least squares, then " if settings.get("start") == "least_squares" else ""
    return Told(
        name=name,
        source=source,
        makes=f"{parameters:,} weights for a frozen target",
        learns=f"{learns}, {rows:,} rows",
        passes=str(passes),
        steps=f"{begun}AdamW, warm-up, cosine from {rate:g}, {steps:,} steps",
    )
