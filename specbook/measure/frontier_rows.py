"""The rows of a frontier: what was measured, each kind with its own checks.

A row is refused where its numbers contradict each other, so that what is worked out
from it later cannot fall over it, or be wrong in silence. Nothing here knows of files
(`frontier_data`) or of torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .. import checks
from ..errors import SpecbookError
from ..ledger import COST_TERMS

FAMILIES = ("plain", "copying", "model", "heads", "self", "peer")
"""What drafts: nothing, the text, a second model, heads, the target itself; and the
decoding of another library, which is measured beside ours."""

OWN = "own"
"""The topology of a source that says itself what shape it proposes."""

BINS = 10
"""Of q, for its calibration, and of the place of a token in the target's law."""

COUNTED = (
    "drafted_by_depth",
    "accepted_by_depth",
    "path_lengths",
    "rounds_by_nodes",
    "match_lengths",
    "round_seconds",
    "places",
)
HELD = ("weight_bytes", "state_bytes", "tree_bytes")


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
        if not rounds or min(self.round_tokens) < 1:
            raise SpecbookError("round_tokens needs a round, and a token in each")
        self._check_numbers()
        for name in ("path_lengths", "rounds_by_nodes"):
            if sum(getattr(self, name)) != rounds:
                raise SpecbookError(f"{name} does not add up to the {rounds} rounds")
        if self.first_child > self.covered or self.covered > self.made:
            raise SpecbookError("first_child, covered and made must not fall")
        self._check_depths(rounds)

    def _check_numbers(self) -> None:
        for name in COUNTED:
            if min(getattr(self, name), default=0) < 0:
                raise SpecbookError(f"{name} has a number below 0")
        for name in ("first_child", "distinct", *HELD):
            if getattr(self, name) < 0:
                raise SpecbookError(f"{name} is below 0")
        if min(self.cost_terms.values()) < 0:
            raise SpecbookError("cost_terms has a number below 0")
        for name, rows, columns in (
            ("q_bins", BINS, 3),
            ("draft_seconds_by_depth", 1 + len(self.drafted_by_depth), 2),
        ):
            table = getattr(self, name)
            if len(table) != rows or any(len(row) != columns for row in table):
                raise SpecbookError(f"{name} must have {rows} rows of {columns}")
            if any(min(row) < 0 for row in table):
                raise SpecbookError(f"{name} has a number below 0")
        for name, sizes in (
            ("match_lengths", (2,)),
            ("likelihood", (0, 4)),
            ("places", (0, BINS)),
        ):
            if len(getattr(self, name)) not in sizes:
                raise SpecbookError(f"{name} has {len(getattr(self, name))} numbers")
        if bool(self.likelihood) != bool(self.places):
            raise SpecbookError("likelihood and places must both be there, or neither")

    def _check_depths(self, rounds: int) -> None:
        """Three counts of the same rounds must agree, at every depth."""
        counts = [count for count, _ in self.draft_seconds_by_depth]
        if sum(counts) != rounds:
            raise SpecbookError("draft_seconds_by_depth does not add up to the rounds")
        nodes = sum(n * count for n, count in enumerate(self.rounds_by_nodes))
        if self.drafted != nodes:
            raise SpecbookError("rounds_by_nodes and drafted_by_depth disagree")
        published = [
            sum(self.path_lengths[depth:])
            for depth in range(1, max(len(self.path_lengths), len(counts)))
        ]
        taken = [*self.accepted_by_depth]
        taken += [0] * (len(published) - len(taken))
        if taken != published or len(self.accepted_by_depth) != len(counts) - 1:
            raise SpecbookError("path_lengths and accepted_by_depth disagree")
        for depth, accepted in enumerate(taken, 1):
            if accepted > sum(counts[depth:]):
                raise SpecbookError(f"depth {depth} was accepted and never drafted")

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
        greedy = self.temperature == 0
        if (self.same is not None) != greedy or (self.gap is None) == (
            self.same is False
        ):
            raise SpecbookError(
                f"{self.prompt}: same {self.same}, gap {self.gap} at temperature "
                f"{self.temperature:g}: greedy tokens are the same or have a gap"
            )
        if (self.trace is None) != (self.configuration.family == "peer"):
            raise SpecbookError(f"{self.prompt}: only another library has no trace")
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
