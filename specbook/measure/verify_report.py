"""A profile of verification times: the cells, what follows from them, table, figure.

Small JSON; the machine, the versions, the thread count and the settings stand in it. A
reader's own is drawn over the ones that ship in `data/profiles`.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from .. import checks, paths
from ..errors import SpecbookError
from ..topologies.hardware import Times
from .report import Report, Table

if TYPE_CHECKING:
    from ..plotting import FramedFigure


@dataclass(frozen=True)
class Cell:
    """One size of one group. `seconds`: one for each turn. `nodes` counts the root,
    `depth` edges. `mask_seconds`, `transfer_seconds`: medians; `sent_bytes`: of ids,
    positions and mask; `kv_bytes`: of the temporary keys and values."""

    forward: str
    batch: int
    prefix: int
    shape: str
    nodes: int
    depth: int
    seconds: tuple[float, ...]
    mask_seconds: float
    transfer_seconds: float
    sent_bytes: int
    kv_bytes: int

    def __post_init__(self) -> None:
        for name, least in (
            ("batch", 1),
            ("prefix", 1),
            ("nodes", 1),
            ("depth", 0),
            ("sent_bytes", 0),
            ("kv_bytes", 0),
        ):
            checks.integer(getattr(self, name), name, least=least)
        for name in ("forward", "shape"):
            checks.text(getattr(self, name), name)
        for name in ("mask_seconds", "transfer_seconds"):
            checks.float64(getattr(self, name), name, least=0)
        if self.depth >= self.nodes:
            raise SpecbookError(f"{self.nodes} nodes cannot be {self.depth} deep")
        seconds = tuple(
            checks.float64(s, f"seconds[{i}]")
            for i, s in enumerate(checks.entries(self.seconds, "seconds", "numbers"))
        )
        object.__setattr__(self, "seconds", seconds)

    @property
    def group(self) -> tuple[str, int, int, str]:
        """What its size took turns in."""
        return self.forward, self.batch, self.prefix, self.shape


@dataclass(frozen=True)
class VerifyProfile(Report):
    """Measured verification times."""

    settings: dict[str, Any]
    machine: dict[str, Any]
    cells: tuple[Cell, ...]

    KIND: ClassVar[str] = "verification profile"
    STEM: ClassVar[str] = "verify-time"

    def __post_init__(self) -> None:
        for number, cell in enumerate(checks.entries(self.cells, "cells", "cells")):
            if not isinstance(cell, Cell):
                raise SpecbookError(f"cells[{number}] is no Cell: {cell!r}")
        for group in self.groups():
            cells = self.group(*group)
            sizes = [cell.nodes for cell in cells]
            turns = {len(cell.seconds) for cell in cells}
            if 1 not in sizes or len(set(sizes)) != len(sizes):
                raise SpecbookError(f"{group}: sizes must differ and hold 1: {sizes}")
            if len(turns) != 1 or 0 in turns:
                raise SpecbookError(f"{group}: the sizes took {sorted(turns)} turns")
            if any(not s > 0 for cell in cells for s in cell.seconds):
                raise SpecbookError(f"{group}: every time must be above 0")

    def groups(self) -> list[tuple[str, int, int, str]]:
        """The groups that are measured, in order."""
        return list(dict.fromkeys(cell.group for cell in self.cells))

    def of(self, forward: str) -> VerifyProfile:
        """The same measurements by one forward alone. Raises `SpecbookError` where
        nothing was measured by it."""
        checks.text(forward, "forward")
        cells = tuple(cell for cell in self.cells if cell.forward == forward)
        if not cells:
            raise SpecbookError(
                f"nothing was measured by {forward!r}; there are {self.groups()}"
            )
        return replace(self, cells=cells)

    def group(self, forward: str, batch: int, prefix: int, shape: str) -> list[Cell]:
        """The cells of a group by size. Raises `SpecbookError` for one that was not
        measured, and lists those that were."""
        checks.text(forward, "forward")
        checks.text(shape, "shape")
        checks.integer(batch, "batch")
        checks.integer(prefix, "prefix")
        wanted = (forward, batch, prefix, shape)
        found = [cell for cell in self.cells if cell.group == wanted]
        if not found:
            raise SpecbookError(f"{wanted} was not measured; there are {self.groups()}")
        return sorted(found, key=lambda cell: cell.nodes)

    def times(
        self,
        forward: str = "runtime",
        batch: int = 1,
        prefix: int | None = None,
        shape: str | None = None,
        *,
        draft: Mapping[int, Sequence[float]] | None = None,
    ) -> Times:
        """A group as `topologies.hardware.Times`. `prefix`, `shape`: by default those
        of the first group that fits. `draft`: {rows: seconds of draft steps}."""
        checks.text(forward, "forward")
        checks.integer(batch, "batch")
        if prefix is not None:
            checks.integer(prefix, "prefix")
        if shape is not None:
            checks.text(shape, "shape")
        fitting = [
            group
            for group in self.groups()
            if group[:2] == (forward, batch)
            and prefix in (None, group[2])
            and shape in (None, group[3])
        ]
        if draft is not None and not isinstance(draft, Mapping):
            raise SpecbookError(f"draft must map rows to seconds, got {draft!r}")
        if not fitting:
            raise SpecbookError(
                f"nothing was measured for {forward}, batch {batch}, prefix {prefix}, "
                f"shape {shape}; there are {self.groups()}"
            )
        cells = self.group(*fitting[0])
        steps: dict[int, Any] = dict(draft or {})
        return Times(
            tuple(cell.nodes for cell in cells),
            np.array([cell.seconds for cell in cells]).T,
            steps,
            batch,
        )

    # ----------------------------------------------------------------- the report

    def derived(self) -> dict[str, Any]:
        """A hash of all that was measured: a flipped digit is found."""
        return {"sha256": self.sha256()}

    def tables(self) -> Iterable[Table]:
        """One table for each group: a size a row."""
        head = ["rows n", "ms", "10 % to 90 %", "t(n)", "mask ms", "sent ms", "KV MB"]
        for forward, batch, prefix, shape in self.groups():
            cells = self.group(forward, batch, prefix, shape)
            one = cells[0].seconds
            rows = []
            for cell in cells:
                ms = 1000 * np.array(cell.seconds)
                low, high = np.quantile(ms, (0.1, 0.9))
                ratios = [a / b for a, b in zip(cell.seconds, one, strict=True)]
                rows.append(
                    [
                        str(cell.nodes),
                        f"{np.median(ms):.2f}",
                        f"{low:.2f} to {high:.2f}",
                        f"{statistics.median(ratios):.2f}",
                        f"{1000 * cell.mask_seconds:.3f}",
                        f"{1000 * cell.transfer_seconds:.3f}",
                        f"{cell.kv_bytes / 1e6:.2f}",
                    ]
                )
            yield (
                f"{forward}, batch {batch}, {prefix} tokens before, {shape}",
                head,
                rows,
            )

    def options(self) -> list[str]:
        """What was timed, on what."""
        return [
            f"{self.settings.get('target')}, {self.settings.get('dtype')}; "
            f"{self.settings.get('turns')} turns; {self.where()}."
        ]

    @property
    def drawable(self) -> bool:
        """Whether a curve was measured."""
        return bool(self.cells)

    def figure(self) -> FramedFigure:
        """t(n) of every group."""
        return profiles_figure({"": self})


def shipped() -> dict[str, VerifyProfile]:
    """The profiles of `data/profiles`, by file name without its ending."""
    folder = paths.data_path("profiles")
    files = sorted(Path(folder).glob("*.json"))
    return {path.stem: VerifyProfile.load(path) for path in files}


def profiles_figure(profiles: dict[str, VerifyProfile]) -> FramedFigure:
    """t(n) over n for every group of every profile, each with its spread; the names
    tell the profiles apart."""
    from .. import plotting

    if not isinstance(profiles, dict) or not any(
        isinstance(profile, VerifyProfile) and profile.cells
        for profile in profiles.values()
    ):
        raise SpecbookError("profiles must map names to profiles with measured groups")
    curves: dict[str, tuple[list[int], list[float], list[float], list[float]]] = {}
    for name, profile in profiles.items():
        for group in profile.groups():
            cells = profile.group(*group)
            table = np.array([cell.seconds for cell in cells])
            ratios = table / table[0]
            measured = profile.groups()
            parts = (
                name,
                group[0] if group[0] == "runtime" else f"batch {group[1]}",
                f"{group[2]} before" if len({g[2] for g in measured}) > 1 else "",
                group[3] if len({g[3] for g in measured}) > 1 else "",
            )
            label = ", ".join(filter(None, parts))
            low, middle, high = np.quantile(ratios, (0.1, 0.5, 0.9), axis=1)
            curves[label] = (
                [cell.nodes for cell in cells],
                middle.tolist(),
                low.tolist(),
                high.tolist(),
            )
    last = max(curves, key=lambda label: curves[label][0][-1])
    sizes, middles, *_ = curves[last]
    where = "; ".join(dict.fromkeys(p.where() for p in profiles.values()))
    return plotting.figure(
        plotting.growth(
            curves,
            "rows of a verification, n",
            "time in forwards of one row, t(n)",
        ),
        f"Lines of t(n) over the number of rows: {'; '.join(curves)}.",
        f"{sizes[-1]} rows cost {middles[-1]:.1f} times one row ({last}). Bands: the "
        f"middle 80 % of the turns. Measured on {where}.",
    )
