"""The advice for people, and as a file that says what it rests on.

The file holds the constraints, every estimate, the answer, and the SHA-256 of each
input; reading it works the answer out again from the estimates and refuses the file
where it is another (sections 0x02B, 0x10).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from .. import __version__, checks, lab, reading
from ..errors import ArtifactError, SpecbookError
from ..measure.frontier_data import Configuration
from ..measure.report import read_as, write_whole
from .choosing import Advice, advise
from .constraints import Constraints
from .estimate import Estimate
from .flips import Flip

KIND = "specbook advice"
FORMAT = 2
_AGREES = 1e-9
"""How near two times a token are, relatively, that may be equal: a file holds float64,
and an advice may rest on fractions."""

SHOWN_TIES = 4


def lines(advice: Advice, flips: Sequence[Flip] = ()) -> list[str]:
    """What to run, how sure that is, what comes near, and what would change it."""
    checks.instance(advice, "advice", Advice)
    flips = _flips(flips)
    best, plain = advice.best, advice.plain
    told = [f"advised: {best.name}"]
    if best is plain:
        told[0] = "advised: plain decoding; nothing that may run pays"
    told.append(
        f"{_ms(best)} ms a token ({best.how}, {best.basis or 'no basis told'}): "
        f"{float(best.tokens):.2f} tokens a round; plain decoding {_ms(plain)} ms"
    )
    interval = advice.speedup_interval
    if best is not plain:
        spread = "" if interval is None else f" [{interval[0]:.2f}, {interval[1]:.2f}]"
        told.append(
            f"{float(advice.speedup):.2f} times as fast as plain decoding{spread}"
        )
    if advice.wins is None:
        told.append("how sure: not known, since nothing was drawn again")
    else:
        told.append(
            f"how sure: the fastest in {advice.wins:.0%} of the resampled worlds, a "
            f"configuration of {best.configuration.source} in {advice.source_wins:.0%}"
        )
    if advice.runner_up is not None:
        other = advice.runner_up
        told.append(f"runner-up: {other.name}, {_ms(other)} ms a token")
    if advice.ties:
        names = [one.name for one in advice.ties[:SHOWN_TIES]]
        more = len(advice.ties) - len(names)
        told.append(
            f"not distinguishable from it: {'; '.join(names)}"
            + (f"; and {more} more" if more else "")
        )
    told += [f"would change it: {flip}" for flip in flips]
    for one in advice.refused:
        if one.estimate.per_token < best.per_token:
            why = "; ".join(reason.why for reason in one.why)
            told.append(f"faster, and kept out: {one.estimate.name} ({why})")
    return told


def _flips(flips: Any) -> list[Flip]:
    listed = checks.entries(flips, "flips", "Flips")
    return [checks.instance(f, f"flips[{i}]", Flip) for i, f in enumerate(listed)]


def _ms(one: Estimate) -> str:
    low_high = ""
    if one.interval is not None:
        low_high = f" [{1000 * one.interval[0]:.1f}, {1000 * one.interval[1]:.1f}]"
    return f"{1000 * float(one.per_token):.1f}{low_high}"


def table(advice: Advice) -> lab.Table:
    """Every configuration, those that may run first, for people."""
    rows = [
        [
            one.name,
            f"{float(one.tokens):.2f}",
            f"{1000 * float(one.draft):.1f}",
            f"{1000 * float(one.verify):.1f}",
            f"{1000 * float(one.per_token):.1f}",
            f"{one.extra_bytes / 1e6:.0f}",
            "",
        ]
        for one in advice.ranking
    ]
    for other in advice.refused:
        one = other.estimate
        rows.append(
            [
                one.name,
                f"{float(one.tokens):.2f}",
                f"{1000 * float(one.draft):.1f}",
                f"{1000 * float(one.verify):.1f}",
                f"{1000 * float(one.per_token):.1f}",
                f"{one.extra_bytes / 1e6:.0f}",
                ", ".join(name.replace("_", " ") for name in other.constraints),
            ]
        )
    head = [
        "configuration",
        "tokens a round",
        "draft ms",
        "verify ms",
        "ms a token",
        "extra MB",
        "kept out by",
    ]
    return lab.table(head, rows)


# ------------------------------------------------------------------------------ a file


def manifest(
    advice: Advice,
    flips: Sequence[Flip] = (),
    *,
    settings: Mapping[str, Any],
    machine: Mapping[str, Any],
    inputs: Mapping[str, str],
    here: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The advice as plain values. `settings`: what was asked (workload, number format,
    batch, draws); `machine`: that the times are of; `here`: the one that asked, where
    that is known; `inputs`: as `reading.digests` gives them. Times are in seconds.
    Raises `SpecbookError` for values that JSON cannot hold."""
    checks.instance(advice, "advice", Advice)
    flips = _flips(flips)
    refused = {one.estimate.configuration: one.why for one in advice.refused}
    listed = [*advice.ranking, *(one.estimate for one in advice.refused)]
    values = {
        "kind": KIND,
        "format": FORMAT,
        "specbook": __version__,
        "settings": _plain(settings, "settings"),
        "machine": _plain(machine, "machine"),
        "here": None if here is None else _plain(here, "here"),
        "inputs": _plain(inputs, "inputs"),
        "constraints": asdict(advice.constraints),
        "advised": advice.best.name,
        "configuration": asdict(advice.best.configuration),
        "wins": advice.wins,
        "source_wins": advice.source_wins,
        "ties": [one.name for one in advice.ties],
        "flips": [str(flip) for flip in flips],
        "estimates": [
            {
                **_values(one),
                "refused": [
                    f"{r.constraint}: {r.why}"
                    for r in refused.get(one.configuration, ())
                ],
            }
            for one in listed
        ],
    }
    try:
        plain = json.loads(json.dumps(values, default=float, allow_nan=False))
    except (TypeError, ValueError, OverflowError) as error:
        raise SpecbookError(f"a manifest holds plain values: {error}") from None
    return {**plain, "sha256": _digest(plain)}


def _plain(values: Any, name: str) -> dict[str, Any]:
    return dict(checks.instance(values, name, Mapping))


def _values(one: Estimate) -> dict[str, Any]:
    values = {
        "configuration": asdict(one.configuration),
        "how": one.how,
        "basis": one.basis,
        "extra_bytes": one.extra_bytes,
        "interval": one.interval,
    }
    for name in ("tokens", "draft", "verify", "rest"):
        values[name] = float(getattr(one, name))
    return values


def _digest(values: Mapping[str, Any]) -> str:
    told = json.dumps(values, sort_keys=True, allow_nan=False)
    return hashlib.sha256(told.encode()).hexdigest()


def save(values: Mapping[str, Any], path: str | os.PathLike[str]) -> Path:
    """Writes what `manifest` gave, whole or not at all. Returns the path."""
    text = json.dumps(values, indent=1, allow_nan=False) + "\n"
    return write_whole(Path(path), text)


def load(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Reads what `save` wrote. Raises `ArtifactError` for another file, for one that
    was changed, and where the estimates lead to another answer than the one told."""
    values = reading.json_object(path, f"a {KIND}")
    if values.get("kind") != KIND:
        raise ArtifactError(f"{path} is no {KIND}")
    if values.get("format") != FORMAT:
        raise ArtifactError(f"{path}: format {values.get('format')!r}, not {FORMAT}")
    try:
        if values.get("sha256") != _digest(
            {name: value for name, value in values.items() if name != "sha256"}
        ):
            raise ArtifactError("it was changed: its SHA-256 is another")
        _check_answer(values)
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise ArtifactError(f"{path} is damaged: {error}") from error
    return values


def _check_answer(values: Mapping[str, Any]) -> None:
    """Works the answer out again: it is the one told, or level with it."""
    for name in ("settings", "machine", "inputs"):
        checks.instance(values.get(name), name, dict)
    asked = read_as(Constraints, values["constraints"], "constraints")
    again = advise(
        [_estimate(one) for one in values["estimates"]], replace(asked, speedup=0)
    )
    chosen = read_as(Configuration, values["configuration"], "configuration")
    told = next((e for e in again.ranking if e.configuration == chosen), None)
    near = 1 + _AGREES
    if told is None or told.per_token > again.best.per_token * near:
        raise ArtifactError(
            f"it advises {chosen.name}, its estimates {again.best.name}"
        )
    if again.speedup * near < asked.speedup or told.name != values.get("advised"):
        raise ArtifactError(
            f"it says {values.get('advised')} and {asked.speedup} times as fast, its "
            f"estimates {told.name} and {float(again.speedup)}"
        )


def _estimate(values: Any) -> Estimate:
    one = read_as(Configuration, values["configuration"], "configuration")
    names = ("tokens", "draft", "verify", "rest", "extra_bytes", "how", "basis")
    return Estimate(one, **{name: values[name] for name in names})


def check_inputs(
    values: Mapping[str, Any], paths: Sequence[str | os.PathLike[str]]
) -> None:
    """Raises `ArtifactError`, naming it, for an input that is another now."""
    known = checks.instance(values, "values", Mapping).get("inputs")
    if not isinstance(known, Mapping):
        raise ArtifactError(f"not the manifest of an advice: {values!r:.80}")
    for path in checks.entries(paths, "paths", "files"):
        name = str(path) if str(path) in known else Path(path).name
        if known.get(name) != reading.sha256(path):
            raise ArtifactError(f"the advice does not rest on this {name}")
