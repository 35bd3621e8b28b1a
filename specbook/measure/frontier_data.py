"""The file of `specbook measure frontier`: its rows, how it grows, how it is read.

One file of JSON lines. The first line says what the file is, with which settings and on
which machine it was measured. Every further line is one row of one of four kinds:

- `skipped`: a source of the registry that could not take part, and why;
- `cost`: what a verification of so many rows takes, for a number format and a batch;
- `screened`: a configuration as a few prompts of the development half predict it;
- `decoded`: a configuration on one prompt, as it was decoded and timed.

A line ends with the start of a digest over itself and over the settings, so that a
changed number and a row of another run are both refused. The file is written whole, by
way of a temporary name, each time that rows are added; a run that was stopped goes on
where it was, if nothing that matters has changed. Reading needs no torch.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from .. import checks
from ..errors import ArtifactError, SpecbookError
from ..ledger import COST_TERMS
from .report import read_as, write_whole
from .setup import check_same_machine

KIND = "specbook frontier"
FORMAT = 1
FAMILIES = ("plain", "copying", "model", "heads", "self", "peer")
"""What drafts: nothing, the text, a second model, heads, the target itself; and the
decoding of another library, which is measured beside ours."""

OWN = "own"
"""The topology of a source that says itself what shape it proposes."""

BINS = 10
"""Of q, for its calibration, and of the place of a token in the target's law."""


@dataclass(frozen=True)
class Configuration:
    """One point of the frontier: source, drawing, topology, rule.

    `source`: a name of the registry; of plain decoding and of another library the name
    of the system. `family`: of `FAMILIES`. `topology`: a name like "chain 4", or `OWN`.
    `children`: how a planned shape is filled, "" where the source has no choice.
    `verifier`: a name of the registry. `exact`: the rule keeps the target's law.
    `switched`: the source may fall silent (`drafts.switch`). `most`: candidates that a
    round may have, 0 where only the engine limits them. `parents`, `ranks`: the
    shape, without its root; empty for `OWN`.
    """

    source: str
    family: str
    verifier: str
    exact: bool = True
    topology: str = OWN
    children: str = ""
    switched: bool = False
    most: int = 0
    parents: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("source", "verifier", "topology"):
            if not checks.text(getattr(self, name), name):
                raise SpecbookError(f"{name} must not be empty")
        checks.text(self.children, "children")
        checks.one_of(self.family, "family", FAMILIES)
        for name in ("exact", "switched"):
            checks.boolean(getattr(self, name), name)
        checks.integer(self.most, "most", least=0)
        for name in ("parents", "ranks"):
            listed = checks.entries(getattr(self, name), name, "integers")
            values = tuple(
                checks.integer(v, f"{name}[{i}]", least=-1)
                for i, v in enumerate(listed)
            )
            object.__setattr__(self, name, values)
        if len(self.parents) != len(self.ranks) or (self.topology == OWN) != (
            not self.parents
        ):
            raise SpecbookError(
                f"{self.source}: topology {self.topology!r} with {len(self.parents)} "
                f"parents and {len(self.ranks)} ranks"
            )

    @property
    def proposal(self) -> str:
        """Source, shape and drawing in a few words, without the rule."""
        if self.family in ("plain", "peer"):
            return self.source
        parts = [self.source]
        if self.topology != OWN:
            parts.append(self.topology)
        if self.children:
            parts.append(self.children.replace("_", " "))
        if self.most:
            parts.append(f"at most {self.most}")
        told = ", ".join(parts)
        return f"switch({told})" if self.switched else told

    @property
    def name(self) -> str:
        """The configuration in a few words; different ones have different names unless
        their shapes alone differ."""
        if self.family in ("plain", "peer"):
            return self.source
        return f"{self.proposal} / {self.verifier}"


PLAIN = Configuration("plain", "plain", "greedy")
"""Decoding without a draft: what everything is compared with. At a temperature its rule
is `membership`, which then has no candidate to look at."""


@dataclass(frozen=True)
class Skipped:
    """A source that took no part."""

    source: str
    why: str

    @property
    def key(self) -> tuple[Any, ...]:
        """What no other row of the kind shares."""
        return (self.source,)


@dataclass(frozen=True)
class Cost:
    """One size of a verification: median seconds of a forward over `nodes` rows, root
    included, for each of `batch` requests. `mask_seconds`, `transfer_seconds`,
    `kv_bytes` as in `verify_report.Cell`."""

    dtype: str
    batch: int
    nodes: int
    seconds: float
    mask_seconds: float = 0.0
    transfer_seconds: float = 0.0
    kv_bytes: int = 0

    def __post_init__(self) -> None:
        checks.text(self.dtype, "dtype")
        for name, least in (("batch", 1), ("nodes", 1), ("kv_bytes", 0)):
            checks.integer(getattr(self, name), name, least=least)
        for name in ("seconds", "mask_seconds", "transfer_seconds"):
            checks.float64(getattr(self, name), name, least=0)

    @property
    def key(self) -> tuple[Any, ...]:
        """What no other row of the kind shares."""
        return self.dtype, self.batch, self.nodes


@dataclass(frozen=True)
class Screened:
    """What few prompts promise: tokens a round from counted acceptance (or replay), the
    seconds of a round from the measured costs. `prompts`: so many were looked at.
    `draft_depth`: levels of a draft, the mean round's where they differ. `finalist`:
    it was chosen to be decoded."""

    configuration: Configuration
    dtype: str
    temperature: float
    prompts: int
    tokens_per_round: float
    draft_seconds: float
    verify_seconds: float
    draft_depth: float = 0.0
    finalist: bool = False

    def __post_init__(self) -> None:
        checks.text(self.dtype, "dtype")
        checks.float64(self.temperature, "temperature", least=0)
        checks.integer(self.prompts, "prompts", least=1)
        checks.float64(self.tokens_per_round, "tokens_per_round", least=1)
        checks.float64(self.draft_seconds, "draft_seconds", least=0)
        checks.float64(self.verify_seconds, "verify_seconds", least=0)
        checks.float64(self.draft_depth, "draft_depth", least=0)
        checks.boolean(self.finalist, "finalist")

    @property
    def per_token(self) -> float:
        """Predicted seconds a token."""
        return (self.draft_seconds + self.verify_seconds) / self.tokens_per_round

    @property
    def key(self) -> tuple[Any, ...]:
        """What no other row of the kind shares."""
        return self.configuration, self.dtype, self.temperature


@dataclass(frozen=True)
class Trace:
    """What only our own engine can tell of one prompt; see `frontier_report.METRICS`.

    `drafted_by_depth[d - 1]`, `accepted_by_depth[d - 1]`: candidates at depth d, and
    rounds that published one. `path_lengths[a]`: rounds that published a candidates.
    `rounds_by_nodes[n]`: rounds with n candidates. `first_child`, `covered`: of the
    rounds with a candidate, those whose first token was the first candidate, or any at
    depth 1; `distinct`: different candidates at depth 1, added up. `match_lengths`:
    (rounds with a match length, their sum), for a source that looks its text up.
    `q_bins`: by q of `BINS` equal parts, (candidates, sum of q, sum of the target's p).
    `draft_seconds_by_depth[d]`: (rounds that drafted d deep, their seconds of drafting
    and retrieval). `round_tokens`, `round_seconds`: each round. `likelihood`: (tokens
    whose law was asked for, sum of log p, sum of entropies, in nats, tokens of p = 0,
    which are in no sum), empty for greedy decoding. `places`: how the mass of these
    tokens lies in the target's law, the most probable tenth first.
    `weight_bytes`, `state_bytes`: what the source holds beside the target;
    `tree_bytes`: temporary target rows of the largest round.
    """

    drafted_by_depth: tuple[int, ...]
    accepted_by_depth: tuple[int, ...]
    path_lengths: tuple[int, ...]
    rounds_by_nodes: tuple[int, ...]
    first_child: int
    covered: int
    distinct: int
    match_lengths: tuple[int, ...]
    q_bins: tuple[tuple[float, ...], ...]
    draft_seconds_by_depth: tuple[tuple[float, ...], ...]
    cost_terms: dict[str, float]
    round_tokens: tuple[int, ...]
    round_seconds: tuple[float, ...]
    likelihood: tuple[float, ...]
    places: tuple[float, ...]
    weight_bytes: int
    state_bytes: int
    tree_bytes: int

    def __post_init__(self) -> None:
        if tuple(self.cost_terms) != COST_TERMS:
            raise SpecbookError(f"cost_terms must be {list(COST_TERMS)}")
        if len(self.round_tokens) != len(self.round_seconds):
            raise SpecbookError("round_tokens and round_seconds differ in length")
        rounds = len(self.round_tokens)
        for name in ("path_lengths", "rounds_by_nodes"):
            if sum(getattr(self, name)) != rounds:
                raise SpecbookError(f"{name} does not add up to the {rounds} rounds")
        if self.first_child > self.covered or self.covered > self.made:
            raise SpecbookError("first_child, covered and made must not fall")
        if self.accepted != sum(a * n for a, n in enumerate(self.path_lengths)):
            raise SpecbookError("path_lengths and accepted_by_depth disagree")

    @property
    def made(self) -> int:
        """Rounds with a candidate."""
        return sum(self.rounds_by_nodes[1:])

    @property
    def drafted(self) -> int:
        """Candidates."""
        return sum(self.drafted_by_depth)

    @property
    def accepted(self) -> int:
        """Candidates that were published."""
        return sum(self.accepted_by_depth)


@dataclass(frozen=True)
class Decoded:
    """One prompt decoded by one configuration.

    `seconds`: from the prompt's ids to the last new token, the median of the repeats.
    `new_tokens`: published ones, the end token among them; `rounds`: target forwards.
    `same`: whether the tokens are those of plain decoding in this number format, None
    above temperature 0; `gap`: where they are not, the distance of the two best logits
    at the first difference. `trace`: None for another library.
    """

    configuration: Configuration
    dtype: str
    temperature: float
    workload: str
    prompt: str
    prompt_tokens: int
    new_tokens: int
    seconds: float
    rounds: int
    loop_tokens: int
    same: bool | None = None
    gap: float | None = None
    trace: Trace | None = None

    def __post_init__(self) -> None:
        for name in ("dtype", "workload", "prompt"):
            checks.text(getattr(self, name), name)
        checks.float64(self.temperature, "temperature", least=0)
        for name, least in (
            ("prompt_tokens", 1),
            ("new_tokens", 1),
            ("rounds", 1),
            ("loop_tokens", 0),
        ):
            checks.integer(getattr(self, name), name, least=least)
        if not checks.float64(self.seconds, "seconds") > 0:
            raise SpecbookError(f"{self.prompt}: seconds must be above 0")
        if self.trace is not None:
            counted = sum(self.trace.round_tokens)
            if (counted, len(self.trace.round_tokens)) != (
                self.new_tokens,
                self.rounds,
            ):
                raise SpecbookError(
                    f"{self.prompt}: {self.new_tokens} tokens in {self.rounds} rounds, "
                    f"its trace has {counted} in {len(self.trace.round_tokens)}"
                )

    @property
    def key(self) -> tuple[Any, ...]:
        """What no other row of the kind shares."""
        return self.configuration, self.dtype, self.temperature, self.prompt


Row = Skipped | Cost | Screened | Decoded
KINDS: Mapping[str, type[Any]] = {
    "skipped": Skipped,
    "cost": Cost,
    "screened": Screened,
    "decoded": Decoded,
}


@dataclass
class FrontierFile:
    """The rows of a run, and the file that they are kept in. `path` None keeps them in
    memory only."""

    settings: dict[str, Any]
    machine: dict[str, Any]
    path: Path | None = None
    rows: list[Row] = field(default_factory=list)

    @classmethod
    def at(
        cls,
        path: str | os.PathLike[str] | None,
        settings: dict[str, Any],
        machine: dict[str, Any],
    ) -> FrontierFile:
        """A file to add to. One that is at `path` goes on if it is of these settings
        and of this machine (`check_same_machine`); otherwise `SpecbookError` names what
        differs. Raises `ArtifactError` for what is no such file."""
        plain = json.loads(json.dumps(settings))
        if path is None or not Path(path).exists():
            return cls(plain, machine, None if path is None else Path(path))
        found = read(path)
        for name in sorted({*plain, *found.settings}):
            if plain.get(name) != found.settings.get(name):
                raise SpecbookError(
                    f"{path} was measured with other settings: {name} was "
                    f"{found.settings.get(name)!r}, now it is {plain.get(name)!r}; "
                    "name another file, or remove it"
                )
        check_same_machine(found.machine, machine, path)
        return found

    def has(self, kind: str, *key: Any) -> bool:
        """Whether a row of the kind with this key is there."""
        return any(isinstance(r, KINDS[kind]) and r.key == key for r in self.rows)

    def of(self, kind: str) -> list[Any]:
        """The rows of one kind, in order."""
        return [row for row in self.rows if isinstance(row, KINDS[kind])]

    def add(self, rows: Iterable[Row]) -> None:
        """Appends rows and writes the file. Raises `SpecbookError` for a row that is
        there already."""
        new = list(rows)
        keys = {(type(row), row.key) for row in self.rows}
        for row in new:
            if (type(row), row.key) in keys:
                raise SpecbookError(f"a row is there already: {row.key}")
            keys.add((type(row), row.key))
        self.rows += new
        if self.path is not None:
            self.write(self.path)

    def write(self, path: str | os.PathLike[str]) -> Path:
        """Writes the file whole, or not at all. Returns its path."""
        head = {
            "kind": KIND,
            "format": FORMAT,
            "settings": self.settings,
            "machine": self.machine,
        }
        salt = settings_hash(self.settings)
        names = {kind: name for name, kind in KINDS.items()}
        lines = [_line(head, salt)]
        lines += [_line({"row": names[type(r)], **_values(r)}, salt) for r in self.rows]
        return write_whole(Path(path), "".join(lines))


def _values(row: Row) -> dict[str, Any]:
    """A row as plain values. A shape is told once and what is not there is left out:
    most rows of a file are short then."""
    values = asdict(row)
    kept = {f.name: f.default for f in fields(Configuration)}
    if "configuration" in values:
        values["configuration"] = {
            name: value
            for name, value in values["configuration"].items()
            if value != kept[name]
        }
    return values


def settings_hash(settings: Mapping[str, Any]) -> str:
    """SHA-256 of the settings, hex."""
    return _digest(settings, "")


def _digest(values: Any, salt: str) -> str:
    told = json.dumps(values, sort_keys=True, allow_nan=False)
    return hashlib.sha256(f"{salt}{told}".encode()).hexdigest()


def _line(values: Mapping[str, Any], salt: str) -> str:
    plain = json.loads(json.dumps(values, allow_nan=False))
    return json.dumps({**plain, "digest": _digest(plain, salt)[:16]}) + "\n"


def read(path: str | os.PathLike[str]) -> FrontierFile:
    """The file at `path`. Raises `ArtifactError`, naming the line, for a file that is
    missing, damaged, of another kind or version, or with rows of another run."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{path} is no {KIND} file: {error}") from error
    lines = text.split("\n")
    if lines.pop() != "" or not lines:
        raise ArtifactError(f"{path}: the file is cut off")
    head = _parsed(path, 1, lines[0])
    if head.get("kind") != KIND:
        raise ArtifactError(f"{path} is no {KIND} file")
    if head.get("format") != FORMAT:
        raise ArtifactError(
            f"{path}: format is {head.get('format')!r}, this version reads {FORMAT}"
        )
    for name in ("settings", "machine"):
        if not isinstance(head.get(name), dict):
            raise ArtifactError(f"{path}: {name} must be an object")
    salt = settings_hash(head["settings"])
    _check_digest(path, 1, head, salt)
    made = FrontierFile(head["settings"], head["machine"], path)
    keys: set[Any] = set()
    for number, line in enumerate(lines[1:], 2):
        values = _parsed(path, number, line)
        _check_digest(path, number, values, salt)
        kind = KINDS.get(values.pop("row", None))
        if kind is None:
            raise ArtifactError(f"{path}, line {number}: a row of no known kind")
        try:
            row = read_as(kind, values, "")
        except (ValueError, TypeError) as error:
            raise ArtifactError(f"{path}, line {number}: {error}") from error
        if (kind, row.key) in keys:
            raise ArtifactError(f"{path}, line {number}: a row that was there before")
        keys.add((kind, row.key))
        made.rows.append(row)
    return made


def _parsed(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        values = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{path}, line {number}: no JSON: {error}") from error
    if not isinstance(values, dict):
        raise ArtifactError(f"{path}, line {number}: no object")
    return values


def _check_digest(path: Path, number: int, values: dict[str, Any], salt: str) -> None:
    told = values.pop("digest", None)
    if told != _digest(values, salt)[:16]:
        raise ArtifactError(
            f"{path}, line {number}: changed, or a row of another run: its digest is "
            f"{told!r}"
        )
