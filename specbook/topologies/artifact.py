"""An optimised tree as a file: the tree, and all that it was right for.

A tree is chosen from measurements, and measurements grow old: another checkpoint,
temperature, kind of text, batch or kernel makes another tree the best. A stale tree
under an exact rule still gives the right text. It is only slow, and nothing fails, so
the file says what it was made for and `stale` says what is different now (0x0AE).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__, checks, reading
from ..errors import ArtifactError, SpecbookError
from ..tree import CandidateTree
from .acceptance import by_depth
from .progress import reached

FORMAT = 1


def topology_hash(shape: CandidateTree) -> str:
    """SHA-256 (hex) of a shape: its parents and ranks, row by row."""
    if not isinstance(shape, CandidateTree):
        raise SpecbookError(f"not a CandidateTree: {type(shape).__name__}")
    rows = json.dumps([shape.parents, shape.token_ids], separators=(",", ":"))
    return hashlib.sha256(rows.encode()).hexdigest()


def kernel_text(backend: Any, threads: Any) -> str:
    """What ran a verification, as `TreeArtifact.kernel` says it: the target's own
    `backend` text, the threads, and this version."""
    return f"{backend}; threads {threads}; specbook {__version__}"


@dataclass(frozen=True, kw_only=True)
class TreeArtifact:
    """A chosen tree. All fields are required.

    Text names an artifact or a choice. `temperatures`: the lowest and highest that it
    was calibrated for. `verify_curve`: (n, t(n)) pairs; `draft_step`: c; both in target
    steps of one row. `acceptance`: rows of slots, as they were used; one row stands for
    every depth. `method`: how the tree was found; smoothed slots are part of it.
    `parents`, `ranks`: the shape, within the slots that `acceptance` knows. Raises
    `ArtifactError`.
    """

    target_checkpoint: str
    tokenizer: str
    proposal_artifact: str
    verifier: str
    sampling_policy: str
    temperatures: tuple[float, float]
    calibration_data: str
    calibration_date: str
    batch_regime: str
    hardware: str
    kernel: str
    verify_curve: tuple[tuple[int, float], ...]
    draft_step: float
    acceptance: tuple[tuple[float, ...], ...]
    method: str
    parents: tuple[int, ...]
    ranks: tuple[int, ...]

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type == "str":
                if not isinstance(value, str) or not value:
                    raise ArtifactError(f"{field.name} must be text, got {value!r}")
                object.__setattr__(self, field.name, str(value))
        try:
            self._check_numbers()
        except ArtifactError:
            raise
        except SpecbookError as problem:
            raise ArtifactError(f"a tree artifact is malformed: {problem}") from problem

    def _check_numbers(self) -> None:
        temperatures = _floats(self.temperatures, "temperatures")
        if len(temperatures) != 2 or temperatures[0] > temperatures[1]:
            raise ArtifactError(f"temperatures are lowest and highest: {temperatures}")
        curve = []
        for place, pair in enumerate(
            checks.entries(self.verify_curve, "verify_curve", "pairs")
        ):
            n, t = _pair(pair, f"verify_curve[{place}]")
            curve.append(
                (
                    checks.integer(n, f"verify_curve[{place}][0]", least=1),
                    checks.float64(t, f"verify_curve[{place}][1]", least=0),
                )
            )
            if curve[-1][1] == 0:
                raise ArtifactError(f"verify_curve[{place}]: no verification takes 0")
        sizes = [n for n, _ in curve]
        if not sizes or len(set(sizes)) != len(sizes):
            raise ArtifactError(f"verify_curve needs sizes that differ, got {sizes}")
        rows, _ = by_depth(self.acceptance)
        object.__setattr__(self, "temperatures", temperatures)
        object.__setattr__(self, "verify_curve", tuple(curve))
        step = checks.float64(self.draft_step, "draft_step", least=0)
        object.__setattr__(self, "draft_step", step)
        floats = tuple(_floats(row, f"acceptance[{i}]") for i, row in enumerate(rows))
        object.__setattr__(self, "acceptance", floats)
        shape = self.tree()
        object.__setattr__(self, "parents", shape.parents)
        object.__setattr__(self, "ranks", shape.token_ids)
        reached(shape, floats if len(floats) > 1 else floats[0])

    def tree(self) -> CandidateTree:
        """The shape, without the root."""
        return CandidateTree.from_rows(self.ranks, self.parents, 0)

    @property
    def topology_hash(self) -> str:
        """SHA-256 of the shape."""
        return topology_hash(self.tree())

    def stale(self, **now: Any) -> dict[str, tuple[Any, Any]]:
        """{field: (then, now)} for each field given that is not as it was.

        `temperature` may be given for `temperatures`: it has to lie between them.
        Nothing to report means only that what was asked for is unchanged. Raises
        `ArtifactError` for a field that there is none.
        """
        known = {field.name for field in fields(self)} | {"topology_hash"}
        if unknown := sorted(set(now) - known - {"temperature"}):
            raise ArtifactError(f"a tree artifact has no {', '.join(unknown)}")
        found = {}
        for name, value in now.items():
            if name == "temperature":
                value = checks.float64(value, "temperature", least=0)
                low, high = self.temperatures
                if not low <= value <= high:
                    found[name] = (self.temperatures, value)
            elif _plain(getattr(self, name)) != _plain(value):
                found[name] = (getattr(self, name), value)
        return found

    # ------------------------------------------------------------------------ file

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the artifact as JSON, under another name first, and returns its path.
        A file that is there is replaced. Raises `ArtifactError` where nothing can be
        written."""
        path = Path(path)
        body = {"format": FORMAT, "kind": "tree", **asdict(self)}
        text = json.dumps({**body, "sha256": _digest(body)}, indent=1, allow_nan=False)
        aside = path.with_name(f".{path.name}-{os.getpid()}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                aside.write_text(text + "\n", encoding="utf-8")
                os.replace(aside, path)
            except BaseException:
                aside.unlink(missing_ok=True)
                raise
        except (OSError, ValueError) as problem:
            raise ArtifactError(f"{path} cannot be written: {problem}") from problem
        return path

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> TreeArtifact:
        """The artifact that `save` wrote. Raises `ArtifactError`, naming file and
        reason, for one that is missing, damaged, changed or of another format."""
        try:
            values = json.loads(reading.text(path))
        except (ValueError, RecursionError) as problem:
            raise ArtifactError(f"{path} is no tree artifact: {problem}") from problem
        if not isinstance(values, Mapping) or values.get("kind") != "tree":
            raise ArtifactError(f"{path} is no tree artifact")
        if values.get("format") != FORMAT:
            raise ArtifactError(
                f"{path} has format {values.get('format')!r}, not {FORMAT}"
            )
        body = {name: value for name, value in values.items() if name != "sha256"}
        if values.get("sha256") != _digest(body):
            raise ArtifactError(f"{path} was changed: its sha256 is another")
        names = {field.name for field in fields(cls)}
        if wrong := sorted(names ^ (set(body) - {"format", "kind"})):
            raise ArtifactError(f"{path}: missing or unknown fields: {wrong}")
        try:
            return cls(**{name: body[name] for name in names})
        except SpecbookError as problem:
            raise ArtifactError(f"{path}: {problem}") from problem


def _digest(body: Mapping[str, Any]) -> str:
    text = json.dumps(_plain(body), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _plain(value: Any) -> Any:
    """`value` as JSON would give it back; numpy's arrays and Fractions as the floats
    that the artifact keeps."""
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, Fraction):
        return float(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (tuple, list)):
        return [_plain(entry) for entry in value]
    return value


def _floats(values: Any, name: str) -> tuple[float, ...]:
    entries = checks.entries(values, name, "numbers")
    return tuple(
        checks.float64(entry, f"{name}[{i}]", least=0)
        for i, entry in enumerate(entries)
    )


def _pair(value: Any, name: str) -> tuple[Any, Any]:
    entries = checks.entries(value, name, "two numbers")
    if len(entries) != 2:
        raise ArtifactError(f"{name} must be a pair, got {value!r}")
    return entries[0], entries[1]
