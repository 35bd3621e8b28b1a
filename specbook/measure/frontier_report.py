"""What the file of `specbook measure frontier` says: winners, the frontier, tables.

Everything is a plain function of a `FrontierFile` (`frontier_data.read`, or `load`
here, which knows the file that is shipped). What others build on:

    load(path=None)                                  the file; None is the shipped one
    standings(file, workload, dtype, temperature)    every configuration, fastest first
    winner(file, workload, dtype, temperature)       the fastest, and how sure it is
    pareto(file, workload, dtype, temperature)       none is faster and smaller
    against(file, workload, side)                    ours over "plain" or "peer"
    table(...), figure(...)                          for people

`workload` None takes all together, `dtype` None the number format in which plain
decoding is faster. Speeds are sums over sums: all tokens over all seconds of the same
prompts, the reading of the prompt included. Intervals are 95 %, from drawing prompts
again, because prompts are what varies from one text to the next. By default only exact
configurations of ours may win.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import checks, lab, paths
from ..errors import ArtifactError, SpecbookError
from ..ledger import RoundLedger
from .frontier_data import PLAIN, Configuration, Decoded, FrontierFile, Screened, read
from .report import RESAMPLES, Ratio, resampled

if TYPE_CHECKING:
    from ..plotting import FramedFigure

SHIPPED = "frontier"
"""The folder in `data/` with the files of machines that the book was run on."""

SIDES = ("plain", "peer")

DEEPEST = 8
"""Of the depths that are drawn: a long copy would leave no room for the others."""

RARE = 0.02
"""A depth that fewer of the drafting rounds offered is not drawn, nor what is below it:
its share would be that of a handful of rounds."""


@dataclass(frozen=True)
class Standing:
    """One configuration on the prompts of one workload (or of all, where None).

    `per_token`: seconds a committed token; `tokens_per_round`; `speedup`: tokens a
    second over plain decoding's in the same number format; all sums over sums.
    `prompts`: their number. `extra_bytes`: the most that the source held beside the
    target, its weights and its state; 0 for another library, of which it is not known.
    """

    configuration: Configuration
    workload: str | None
    dtype: str
    temperature: float
    prompts: int
    per_token: Ratio
    tokens_per_round: Ratio
    speedup: Ratio
    extra_bytes: int


@dataclass(frozen=True)
class Winner:
    """The fastest configuration. `wins`: in which share of worlds with other prompts it
    is the fastest too; it was chosen on the prompts that it is told of, so it looks a
    little better than it is. `runner_up`: the next; `lead`: the tokens a second of the
    winner over those of the runner-up. Both None where there is one alone."""

    standing: Standing
    wins: float
    runner_up: Standing | None
    lead: Ratio | None


def load(path: str | Path | None = None) -> FrontierFile:
    """The file at `path`; None is the one that is shipped, the first by name where
    there are several. Raises `ArtifactError` for what is no such file."""
    if path is None:
        files = sorted(Path(paths.data_path(SHIPPED)).glob("*.jsonl"))
        if not files:
            raise ArtifactError("no frontier is shipped with this specbook")
        path = files[0]
    return read(path)


def shipped() -> dict[str, FrontierFile]:
    """The files of `data/frontier`, by name without its ending; {} where there are
    none."""
    try:
        folder = Path(paths.data_path(SHIPPED))
    except ArtifactError:
        return {}
    return {path.stem: read(path) for path in sorted(folder.glob("*.jsonl"))}


def sides(file: FrontierFile) -> list[str]:
    """Of `SIDES` those that were decoded greedily."""
    families = {one.family for one in configurations(file)}
    return [side for side in SIDES if side in families]


# ------------------------------------------------------------------------- selections


def decoded(
    file: FrontierFile,
    configuration: Configuration,
    workload: str | None = None,
    dtype: str | None = None,
    temperature: float = 0.0,
) -> list[Decoded]:
    """The rows of one configuration."""
    dtype = faster_dtype(file, temperature) if dtype is None else dtype
    return [
        row
        for row in _decoded(file)
        if (row.configuration, row.dtype, row.temperature)
        == (configuration, dtype, temperature)
        and workload in (None, row.workload)
    ]


def configurations(
    file: FrontierFile, dtype: str | None = None, temperature: float = 0.0
) -> list[Configuration]:
    """Those that were decoded, in order. `dtype` None is every number format."""
    return list(
        dict.fromkeys(
            row.configuration
            for row in _decoded(file)
            if row.temperature == temperature and dtype in (None, row.dtype)
        )
    )


def dtypes(file: FrontierFile, temperature: float | None = None) -> list[str]:
    """The number formats that were decoded in, in order."""
    return list(
        dict.fromkeys(
            row.dtype
            for row in _decoded(file)
            if temperature in (None, row.temperature)
        )
    )


def workloads(file: FrontierFile) -> list[str]:
    """The workloads that were decoded, in order."""
    return list(dict.fromkeys(row.workload for row in _decoded(file)))


def temperatures(file: FrontierFile) -> list[float]:
    """The temperatures that were decoded at, in order."""
    return list(dict.fromkeys(row.temperature for row in _decoded(file)))


def faster_dtype(file: FrontierFile, temperature: float = 0.0) -> str:
    """The number format in which plain decoding is faster. Raises `SpecbookError` where
    plain decoding was not measured."""
    spent = {}
    for name in dtypes(file, temperature):
        rows = decoded(file, PLAIN, None, name, temperature)
        if rows:
            spent[name] = sum(r.seconds for r in rows) / sum(r.new_tokens for r in rows)
    if not spent:
        raise SpecbookError(f"plain decoding was not measured at {temperature:g}")
    return min(spent, key=lambda name: spent[name])


def _decoded(file: FrontierFile) -> list[Decoded]:
    if not isinstance(file, FrontierFile):
        raise SpecbookError(f"not a FrontierFile: {file!r}")
    return file.of("decoded")


def _paired(one: Sequence[Decoded], other: Sequence[Decoded]) -> list[Any]:
    """Rows (tokens, seconds of one, then of the other), a prompt each. Raises where the
    prompts are not the same: a comparison on different prompts is none."""
    sides = [{row.prompt: row for row in rows} for rows in (one, other)]
    if not sides[0] or sides[0].keys() != sides[1].keys():
        names = [r[0].configuration.name if r else "nothing" for r in (one, other)]
        raise SpecbookError(f"{names[0]} and {names[1]} ran on different prompts")
    return [
        (mine.new_tokens, mine.seconds, sides[1][p].new_tokens, sides[1][p].seconds)
        for p, mine in sides[0].items()
    ]


def _quotient(sums: np.ndarray) -> np.ndarray:
    value: np.ndarray = sums[:, 0] / sums[:, 1]
    return value


def speed(one: Sequence[Decoded], other: Sequence[Decoded]) -> Ratio:
    """Tokens a second of one configuration over those of another on the same prompts,
    sums over sums, with its interval."""
    return resampled(
        _paired(one, other), lambda s: s[:, 0] / s[:, 1] / (s[:, 2] / s[:, 3])
    )


def standing(
    file: FrontierFile,
    configuration: Configuration,
    workload: str | None = None,
    dtype: str | None = None,
    temperature: float = 0.0,
) -> Standing:
    """How one configuration did. Raises `SpecbookError` where it was not decoded, and
    where plain decoding was not on the same prompts."""
    dtype = faster_dtype(file, temperature) if dtype is None else dtype
    rows = decoded(file, configuration, workload, dtype, temperature)
    plain = decoded(file, PLAIN, workload, dtype, temperature)
    over_plain = speed(rows, plain)  # raises where there is nothing to compare
    traces = [row.trace for row in rows if row.trace is not None]
    return Standing(
        configuration,
        workload,
        dtype,
        temperature,
        len(rows),
        resampled([(r.seconds, r.new_tokens) for r in rows], _quotient),
        resampled([(r.new_tokens, r.rounds) for r in rows], _quotient),
        over_plain,
        max((t.weight_bytes + t.state_bytes for t in traces), default=0),
    )


def standings(
    file: FrontierFile,
    workload: str | None = None,
    dtype: str | None = None,
    temperature: float = 0.0,
    *,
    exact: bool = True,
    peers: bool = False,
) -> list[Standing]:
    """Every configuration that was decoded, fastest first, of equals the smaller one;
    plain decoding is among them. `exact`: only those that keep the target's law.
    `peers`: other libraries too."""
    dtype = faster_dtype(file, temperature) if dtype is None else dtype
    found = [
        standing(file, one, workload, dtype, temperature)
        for one in configurations(file, dtype, temperature)
        if (one.exact or not exact)
        and (peers or one.family != "peer")
        and decoded(file, one, workload, dtype, temperature)
    ]
    return sorted(found, key=lambda one: (one.per_token.value, one.extra_bytes))


def winner(
    file: FrontierFile,
    workload: str | None = None,
    dtype: str | None = None,
    temperature: float = 0.0,
    *,
    exact: bool = True,
) -> Winner:
    """The configuration of ours with the least time a token, and how sure that is."""
    found = standings(file, workload, dtype, temperature, exact=exact)
    if not found:
        raise SpecbookError(f"nothing was decoded for {workload!r}, {dtype!r}")
    best = found[0]
    rows = [
        decoded(file, one.configuration, workload, one.dtype, temperature)
        for one in found
    ]
    tables = [
        {row.prompt: (row.seconds, row.new_tokens) for row in listed} for listed in rows
    ]
    names = list(tables[0])
    values = np.array([[table[name] for name in names] for table in tables])
    drawn = np.random.default_rng(0).integers(len(names), size=(RESAMPLES, len(names)))
    sums = values[:, drawn].sum(axis=2)
    wins = float((np.argmin(sums[..., 0] / sums[..., 1], axis=0) == 0).mean())
    if len(found) == 1:
        return Winner(best, wins, None, None)
    return Winner(best, wins, found[1], speed(rows[0], rows[1]))


def pareto(
    file: FrontierFile,
    workload: str | None = None,
    dtype: str | None = None,
    temperature: float = 0.0,
    *,
    exact: bool = True,
) -> list[Standing]:
    """The configurations that no other one beats, fastest first: none is better in time
    a token or in memory beside the target and no worse in the other. The last one needs
    the least memory."""
    kept: list[Standing] = []
    for one in standings(file, workload, dtype, temperature, exact=exact):
        if not kept or one.extra_bytes < kept[-1].extra_bytes:
            kept.append(one)
    return kept


def against(
    file: FrontierFile, workload: str | None = None, side: str = "plain"
) -> tuple[Standing, Standing, Ratio]:
    """Our fastest exact greedy configuration, the fastest of the other side, and the
    tokens a second of ours over theirs; each in the number format that is the faster
    one for it. `side`: "plain" is our plain decoding, "peer" another library's ways.
    """
    checks.one_of(side, "side", SIDES)
    ours, theirs = [], []
    for dtype in dtypes(file, 0.0):
        for one in standings(file, workload, dtype, peers=True):
            if one.configuration.family != "peer":
                ours.append(one)
            if one.configuration.family == side:
                theirs.append(one)
    if not ours or not theirs:
        raise SpecbookError(f"nothing of side {side!r} was decoded")
    best, other = (min(o, key=lambda s: s.per_token.value) for o in (ours, theirs))
    rows = [decoded(file, s.configuration, workload, s.dtype) for s in (best, other)]
    return best, other, speed(*rows)


# -------------------------------------------------------------------------- for people


def screened(
    file: FrontierFile, dtype: str | None = None, temperature: float = 0.0
) -> list[Screened]:
    """What was screened, the fastest prediction first."""
    dtype = faster_dtype(file, temperature) if dtype is None else dtype
    found = [
        row
        for row in file.of("screened")
        if (row.dtype, row.temperature) == (dtype, temperature)
    ]
    return sorted(found, key=lambda row: row.per_token)


def told(ratio: Ratio) -> str:
    """A ratio with its interval; one prompt alone has none."""
    return str(ratio) if ratio.prompts > 1 else f"{ratio.value:.2f}, one prompt"


def table(
    file: FrontierFile,
    workload: str | None = None,
    dtype: str | None = None,
    temperature: float = 0.0,
    *,
    exact: bool = False,
) -> lab.Table:
    """All standings of one workload, fastest first, for people."""
    rows = [
        [
            one.configuration.name,
            "exact" if one.configuration.exact else "heuristic",
            str(one.prompts),
            f"{one.tokens_per_round.value:.2f}",
            f"{1000 * one.per_token.value:.1f}",
            str(one.speedup),
            ""
            if one.configuration.family == "peer"
            else f"{one.extra_bytes / 1e6:.0f}",
        ]
        for one in standings(
            file, workload, dtype, temperature, exact=exact, peers=True
        )
    ]
    return lab.table(
        [
            "configuration",
            "output",
            "prompts",
            "tokens a round",
            "ms a token",
            "speed over plain",
            "extra MB",
        ],
        rows,
    )


def winners(file: FrontierFile, temperature: float = 0.0) -> lab.Table:
    """The winner of each workload, and by how much, for people."""
    rows = []
    for workload in [*workloads(file), None]:
        for dtype in dtypes(file, temperature):
            if not decoded(file, PLAIN, workload, dtype, temperature):
                continue  # of a run that was stopped, or is not yet so far
            best = winner(file, workload, dtype, temperature)
            rows.append(
                [
                    (workload or "all").replace("_", " "),
                    dtype,
                    best.standing.configuration.name,
                    told(best.standing.speedup),
                    f"{best.wins:.0%}" if best.standing.prompts > 1 else "",
                    "" if best.runner_up is None else best.runner_up.configuration.name,
                    "" if best.lead is None else told(best.lead),
                ]
            )
    return lab.table(
        [
            "workload",
            "dtype",
            "winner",
            "speed over plain",
            "wins",
            "runner-up",
            "winner over it",
        ],
        rows,
    )


def ledgers(rows: Sequence[Decoded]) -> list[RoundLedger]:
    """The six cost terms of a configuration, one ledger a round: a prompt's terms stand
    in its first, since the file keeps their sums, and the others are empty. Rows
    without a trace have none."""
    return [
        ledger
        for row in rows
        if row.trace is not None
        for ledger in (
            RoundLedger(**row.trace.cost_terms, committed_tokens=row.new_tokens),
            *[RoundLedger()] * (row.rounds - 1),
        )
    ]


def depths(rows: Sequence[Decoded], rare: float = 0.0) -> list[float]:
    """Acceptance by depth: entry d - 1 is the share, of the rounds that had a candidate
    at depth d, of those that published one there. [] where nothing was drafted. `rare`:
    it ends above the first depth that less than this share of the drafting rounds had.
    """
    traces = [row.trace for row in rows if row.trace is not None]
    deepest = max((len(t.drafted_by_depth) for t in traces), default=0)
    shares: list[float] = []
    drafting: float = 0
    for depth in range(1, deepest + 1):
        offered = sum(
            count
            for t in traces
            for reached, (count, _) in enumerate(t.draft_seconds_by_depth)
            if reached >= depth
        )
        drafting = drafting or offered
        if offered < rare * drafting:
            break
        taken = sum(
            t.accepted_by_depth[depth - 1]
            for t in traces
            if depth <= len(t.accepted_by_depth)
        )
        shares.append(taken / offered)
    return shares


def figure(
    file: FrontierFile,
    kind: str = "frontier",
    workload: str | None = None,
    dtype: str | None = None,
    temperature: float = 0.0,
) -> FramedFigure:
    """One of the pictures: "tokens" (time a token over tokens a round), "ledger" (where
    the time of each goes), "depth" (acceptance by depth), "frontier" (time a token over
    memory, with the ones that nothing beats)."""
    from .. import plotting

    checks.one_of(kind, "kind", tuple(FIGURES))
    dtype = faster_dtype(file, temperature) if dtype is None else dtype
    found = standings(file, workload, dtype, temperature, exact=False)
    return FIGURES[kind](file, found, plotting)


def _where(file: FrontierFile, found: Sequence[Standing]) -> str:
    one = found[0]
    text = "all workloads" if one.workload is None else one.workload.replace("_", " ")
    policy = "greedy" if one.temperature == 0 else f"temperature {one.temperature:g}"
    line = file.machine.get("line", "machine not recorded")
    clock = file.settings.get("clock", "wall")
    told = line if clock == "wall" else f"{line}, {clock} time"
    return f"{text}, {one.dtype}, {policy}. Measured on {told}."


def _points(found: Sequence[Standing], x: Callable[[Standing], float]) -> Any:
    return {
        one.configuration.name: (
            x(one),
            1000 * one.per_token.value,
            one.configuration.family,
        )
        for one in found
    }


def _tokens_figure(file: FrontierFile, found: Any, draw: Any) -> FramedFigure:
    most = max(found, key=lambda one: one.tokens_per_round.value)
    best = found[0]
    told = (
        "The most tokens a round is also the least time a token"
        if most is best
        else f"{most.configuration.name} commits the most a round, "
        f"{most.tokens_per_round.value:.2f} tokens, and {best.configuration.name} "
        "takes the least time a token"
    )
    plain = next(one for one in found if one.configuration == PLAIN)
    return draw.figure(
        draw.scatter(
            _points(found, lambda one: one.tokens_per_round.value),
            "committed tokens a round",
            "milliseconds a committed token",
            level=(1000 * plain.per_token.value, "plain decoding"),
        ),
        f"One point for each of {len(found)} configurations: milliseconds a committed "
        "token over committed tokens a round, with a line at plain decoding.",
        f"{told}: {_where(file, found)}",
    )


def _frontier_figure(file: FrontierFile, found: Any, draw: Any) -> FramedFigure:
    one = found[0]
    kept = pareto(file, one.workload, one.dtype, one.temperature)
    names = [s.configuration.name for s in kept]
    exact = [s for s in found if s.configuration.exact]
    told = f"{names[0]} is the fastest; with no memory to spare it is {names[-1]}"
    if len(names) == 1:
        told = f"{names[0]} is the fastest and needs no memory that another saves"
    return draw.figure(
        draw.scatter(
            _points(exact, lambda s: s.extra_bytes / 1e6),
            "memory beside the target, MB",
            "milliseconds a committed token",
            steps=names,
        ),
        f"One point for each of {len(exact)} exact configurations: milliseconds a "
        "committed token over megabytes beside the target. A stepped line joins those "
        f"that nothing beats in both: {', '.join(names)}.",
        f"{told}: {_where(file, found)}",
    )


def _ledger_figure(file: FrontierFile, found: Any, draw: Any) -> FramedFigure:
    spent = {
        s.configuration.name: ledgers(
            decoded(file, s.configuration, s.workload, s.dtype, s.temperature)
        )
        for s in found
    }
    total = {name: RoundLedger.total(listed) for name, listed in spent.items()}
    share = {
        name: float(ledger.target_verify / ledger.round_cost)
        for name, ledger in total.items()
    }
    least = min(share, key=lambda name: share[name])
    listed = ", ".join(f"{name} {part:.0%}" for name, part in share.items())
    return draw.figure(
        draw.ledger_bars(spent),
        f"Stacked bars: milliseconds a committed token by cost term. Of which target "
        f"verification: {listed}.",
        f"The target takes {share[least]:.0%} of the time with {least}, where it takes "
        f"least: {_where(file, found)}",
    )


def _depth_figure(file: FrontierFile, found: Any, draw: Any) -> FramedFigure:
    lines = {}
    for one in found:
        if one.configuration == PLAIN:
            continue
        rows = decoded(
            file, one.configuration, one.workload, one.dtype, one.temperature
        )
        if shares := depths(rows, RARE)[:DEEPEST]:
            lines[one.configuration.name] = shares
    if not lines:
        raise SpecbookError("no configuration drafted anything")
    best = max(lines, key=lambda name: lines[name][0])
    return draw.figure(
        draw.by_depth(lines),
        "Lines: the share of rounds that published a candidate at each depth. First "
        + "; ".join(f"{name} {line[0]:.2f}" for name, line in lines.items())
        + ".",
        f"At depth 1 {best} is published most often, in {lines[best][0]:.0%} of the "
        f"rounds that offer one; what counts is how long that lasts: "
        f"{_where(file, found)}",
    )


FIGURES: dict[str, Callable[[FrontierFile, Any, Any], Any]] = {
    "tokens": _tokens_figure,
    "ledger": _ledger_figure,
    "depth": _depth_figure,
    "frontier": _frontier_figure,
}
