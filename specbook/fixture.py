"""The article's deterministic fixture, step by step and exact (section 0x0CA).

It is said to compile four paths into seven rows, to keep two rows of token B apart, to
verify every mask entry, to enumerate SpecInfer's output, to solve one transport
instance, to run the depth-indexed recurrence and to hash what comes out. Each of these
is a step here. It runs the code that decodes, looks at its result in another way than
the one that made it, and compares with what the article publishes.

Which four paths, the article does not say: the graph that it draws has five (`DRAWN`).
Four of them leave seven rows and both B when they are left out, and of these only A F
leaves rows 3 and 4 below predictor row 1, which the article says of its trace. So
`ARTICLE` is the drawn graph without A F.

Nothing is rounded, and nothing depends on a solver's choice among equal plans, so the
hash is the same on every machine.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from itertools import product
from math import prod
from typing import Any

import numpy as np

from . import checks
from .contract import SourceContract, bind
from .drafts import samplers
from .errors import ContractError, SpecbookError
from .manifest import RoundManifest
from .oracles import position_law, transport
from .proposal import (
    PREFIX_FRONTIER,
    ProbabilitySemantics,
    Proposal,
    ProposalNode,
    ProposalStateHandle,
    SamplingRelation,
    Topology,
)
from .topologies.acceptance import selected_from_conditional
from .topologies.best_first import best_first_tree
from .topologies.hardware import Candidate, choose
from .topologies.sequoia import solve
from .tree import CandidateTree

NAMES = "ABCDEFX"
"""The article's tokens; a token's id is its place."""

HASH = "2c27f72e2811b991266feb406ec0574e5ad74ca3f1bbf836ebfb66eda446dd4a"
"""What the artifact of `ARTICLE` hashes to."""

HYDRA = SourceContract(
    "hydra",
    ProbabilitySemantics.NORMALIZED_CONDITIONAL,
    SamplingRelation.WITHOUT_REPLACEMENT,
    Topology.TREE,
)
REST = SourceContract(
    "rest",
    ProbabilitySemantics.FREQUENCY,
    SamplingRelation.DETERMINISTIC_LOOKUP,
    Topology.TREE,
    cost_term="retrieval",
)


def ids(path: str) -> list[int]:
    """The token ids of a path in letters. Raises `SpecbookError` for other letters."""
    if not isinstance(path, str) or set(path) - set(NAMES):
        raise SpecbookError(f"a path is letters of {NAMES}, got {path!r}")
    return [NAMES.index(letter) for letter in path]


Compile = Callable[[Sequence[Proposal], int, str], CandidateTree]


@dataclass(frozen=True)
class Instance:
    """What the fixture is about; everything is the article's unless it says otherwise.

    `hydra`, `rest`: the paths of the two sources, in letters of `NAMES`. `prefix_len`:
    tokens before them (ours). `p`, `q`, `drafts`: one position, its target and draft
    laws. `sibling_rates`: h, the rates at which a sibling is taken if it is tested.
    `verify_times`: {n: t(n)} as pairs, `draft_time`: c, `max_depth`: in edges.
    `verifier`: the rule for the merged graph, one that the article names.
    `temperature`: of the sampling policy (ours).
    """

    hydra: tuple[str, ...] = ("ABC", "ABD", "XB")
    rest: tuple[str, ...] = ("ABE",)
    prefix_len: int = 5
    p: tuple[Fraction, ...] = tuple(Fraction(n, 10) for n in (5, 3, 2))
    q: tuple[Fraction, ...] = tuple(Fraction(n, 10) for n in (4, 4, 2))
    drafts: int = 2
    sibling_rates: tuple[Fraction, ...] = tuple(Fraction(n, 100) for n in (82, 48, 24))
    verify_times: tuple[tuple[int, Fraction], ...] = tuple(
        (n, Fraction(t, 100))
        for n, t in enumerate((100, 103, 108, 116, 128, 143, 162), start=2)
    )
    draft_time: Fraction = Fraction(9, 100)
    max_depth: int = 4
    verifier: str = "membership"
    temperature: int = 1

    def __post_init__(self) -> None:
        """Raises `SpecbookError`, naming the field, for what is no such instance: a
        float among them, which would hash another way elsewhere."""
        for name in ("hydra", "rest"):
            for path in checks.entries(getattr(self, name), name, "paths"):
                ids(path)
        for name in ("prefix_len", "drafts", "max_depth", "temperature"):
            checks.integer(getattr(self, name), name, least=0)
        checks.text(self.verifier, "verifier")
        times = checks.entries(self.verify_times, "verify_times", "pairs")
        for n, pair in enumerate(times):
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise SpecbookError(f"verify_times[{n}] must be a pair, got {pair!r}")
            checks.integer(pair[0], f"the rows of verify_times[{n}]", least=1)
        for name, numbers in (
            ("p", self.p),
            ("q", self.q),
            ("sibling_rates", self.sibling_rates),
            ("verify_times", [time for _, time in times]),
            ("draft_time", [self.draft_time]),
        ):
            for number in checks.entries(numbers, name, "fractions"):
                checks.instance(number, f"an entry of {name}", Fraction)


ARTICLE = Instance()
DRAWN = replace(ARTICLE, rest=("ABE", "AF"))
"""The graph as the article draws it: five paths, eight rows."""


@dataclass(frozen=True)
class Step:
    """One step: what is checked, what was found and what should be. A refusal is a
    finding, too."""

    name: str
    checked: str
    found: str
    wanted: str

    @property
    def held(self) -> bool:
        """Whether the two agree."""
        return self.found == self.wanted


@dataclass(frozen=True)
class Fixture:
    """All steps, and the artifact that they end in."""

    steps: tuple[Step, ...]
    artifact: Mapping[str, Any]

    @property
    def hash(self) -> str:
        """SHA-256 (hex) of the artifact in canonical JSON."""
        return digest(self.artifact)

    @property
    def held(self) -> bool:
        """Whether every step found what it should."""
        return all(step.held for step in self.steps)

    def as_dict(self) -> dict[str, Any]:
        """Steps, artifact and hash, for JSON."""
        steps = [{**asdict(step), "held": step.held} for step in self.steps]
        return {
            "steps": steps,
            "artifact": dict(self.artifact),
            "hash": self.hash,
            "held": self.held,
        }


ROWS = 7
"""Rows that the article's fixture has."""

OUTPUT = (Fraction("0.5"), Fraction("0.3"), Fraction("0.2"))
"""The marginal that it prints for the residual rule."""

PROGRESS, STEPS = Fraction("3.49588976"), Fraction("1.16") + 4 * Fraction("0.09")
"""Of the chosen chain, as it prints them: tokens a round, and what the round takes."""


def run(
    instance: Instance = ARTICLE,
    *,
    compiler: Compile = CandidateTree.from_proposals,
    rule: Any = "specinfer",
    slots: Callable[[Iterable[Any]], list[Any]] = selected_from_conditional,
) -> Fixture:
    """Runs every step on `instance` and compares with what the article publishes.

    `compiler(proposals, prefix_len, order)` merges and flattens; `rule` is the residual
    rule, by name or as a `Verifier`; `slots` makes selected-child probabilities of
    sibling rates. They are arguments so that a wrong one can be put in and found. What
    a part refuses is noted as its finding. Raises `SpecbookError` for what is no
    `Instance`, and what the compiler refuses.
    """
    if not isinstance(instance, Instance):
        raise SpecbookError(f"not an Instance of the fixture: {instance!r}")
    tree = tree_of(instance, "depth", compiler)
    paths = [*instance.hydra, *instance.rest]
    entries = len(tree) * (instance.prefix_len + len(tree))
    plan = _finding(lambda: _planned(instance, slots))
    steps = [
        Step("paths", "paths of two sources", f"{len(paths)}", "4"),
        Step("rows", "letters, one row a full prefix", _letters(tree), _merged(paths)),
        Step("count", "rows", f"{len(tree)}", f"{ROWS}"),
        Step("two B", "paths of the rows of B", _paths_to(tree, "B"), "A B, X B"),
        Step(
            "mask",
            "entries right, by the letters of the paths",
            f"{_right_entries(tree)}",
            f"{entries}",
        ),
        Step(
            "coordinates",
            "rows with position and predictor right, by the letters",
            f"{_right_addresses(tree)}",
            f"{len(tree)}",
        ),
        Step(
            "contract",
            "what the mixed graph may meet",
            _met(instance, rule),
            f"{instance.verifier} is bound, the residual rule is refused",
        ),
        Step(
            "output",
            "the residual rule's marginal, enumerated",
            _finding(lambda: _told(_output(instance, rule))),
            _told(OUTPUT),
        ),
        Step(
            "transport",
            "acceptance; vectors and tokens with their mass",
            _finding(lambda: _transported(instance)),
            _told([1, len(instance.q) ** instance.drafts, len(instance.p)]),
        ),
        Step(
            "recurrence",
            "nodes, edges, tokens a round, time a token",
            plan if isinstance(plan, str) else _chosen(plan),
            _told([5, 4, PROGRESS, STEPS / PROGRESS]),
        ),
        Step(
            "every size",
            "sizes and depths at which best-first agrees",
            _finding(lambda: _agreeing(instance, slots)),
            f"{len(instance.verify_times) * instance.max_depth}",
        ),
    ]
    made = artifact(instance, tree, plan)
    steps.append(Step("artifact", "SHA-256 of all that was made", digest(made), HASH))
    return Fixture(tuple(steps), made)


# ----------------------------------------------------------------------- the graph


def manifest(instance: Instance = ARTICLE) -> RoundManifest:
    """The round manifest that the fixture's proposals are made under."""
    return RoundManifest(
        target_checkpoint="none: the fixture runs no model",
        tokenizer=f"the letters {NAMES}",
        output_head="none",
        sampling_policy="categorical",
        temperature=instance.temperature,
        truncation="none",
        rng_policy="none: every law is enumerated",
        proposal_artifact=f"paths {' '.join(instance.hydra + instance.rest)}",
        probability_semantics=" + ".join(
            c.probability_semantics for c in (HYDRA, REST)
        ),
        sampling_relation=" + ".join(c.sampling_relation for c in (HYDRA, REST)),
        topology_compiler="merge by full prefix, depth order",
        max_nodes=16,
        max_depth=4,
        verifier=instance.verifier,
        mode="exact",
        target_cache_generation=0,
        proposal_cache_generation=0,
        backend="exact fractions",
        dtype="none",
        batch_regime="one request",
        hardware_profile=json.dumps(_profile(instance)),
        temporary_state_bytes=0,
    )


def proposals(instance: Instance, manifest_hash: str) -> list[Proposal]:
    """The two typed proposals. The article gives no numbers, so `hydra` is a drafter
    that knows nothing: siblings drawn uniformly, without replacement. `rest` counts the
    paths that go through a node."""
    found = []
    for about, paths in ((HYDRA, instance.hydra), (REST, instance.rest)):
        tree = CandidateTree.from_paths(map(ids, paths), instance.prefix_len)
        drawn = about is HYDRA
        nodes = _drawn(tree) if drawn else _counted(tree, paths)
        found.append(
            Proposal(
                tuple(nodes),
                about.probability_semantics,
                about.sampling_relation,
                about.topology,
                ProposalStateHandle(about.name, "request-0", 0),
                manifest_hash,
            )
        )
    return found


def _drawn(tree: CandidateTree) -> Iterable[ProposalNode]:
    uniform = np.array([Fraction(1, len(NAMES))] * len(NAMES), dtype=object)
    for row, token in enumerate(tree.token_ids):
        parent = tree.parents[row]
        before = [tree.token_ids[r] for r in tree.children(parent) if r < row]
        law = samplers.rest(uniform, before) if before else uniform
        draw = samplers.Draw(token, law)
        yield samplers.node(draw, parent, tree.depths[row], HYDRA.name)


def _counted(tree: CandidateTree, paths: Sequence[str]) -> Iterable[ProposalNode]:
    for row, prefix in enumerate(tree.full_prefixes):
        count = sum(tuple(ids(path))[: len(prefix)] == prefix for path in paths)
        yield ProposalNode(
            tree.token_ids[row],
            tree.parents[row],
            tree.depths[row],
            score=count,
            source=REST.name,
        )


def tree_of(
    instance: Instance = ARTICLE,
    order: str = "depth",
    compiler: Compile = CandidateTree.from_proposals,
) -> CandidateTree:
    """Both proposals, merged and flattened by `compiler`."""
    offered = proposals(instance, manifest(instance).hash)
    return compiler(offered, instance.prefix_len, order)


def left_out() -> dict[str, tuple[int, int, bool]]:
    """For each path of the drawn graph, what is left without it: rows, rows of B, and
    whether rows 3 and 4 then hang below row 1, depth first, as the article says."""
    found = {}
    for path in DRAWN.hydra + DRAWN.rest:
        fewer = [tuple(p for p in ps if p != path) for ps in (DRAWN.hydra, DRAWN.rest)]
        tree = tree_of(replace(DRAWN, hydra=fewer[0], rest=fewer[1]))
        shared = tree.predictor_rows[3:5] == (1, 1)
        found[path] = len(tree), tree.token_ids.count(NAMES.index("B")), shared
    return found


# ------------------------------------------------------------------ what is looked at


def _words(tree: CandidateTree) -> list[str]:
    """The letters of each row's path, from parents and tokens alone."""
    words: list[str] = []
    for token, parent in zip(tree.token_ids, tree.parents, strict=True):
        above = "" if parent == PREFIX_FRONTIER else words[parent]
        words.append(above + NAMES[token])
    return words


def _letters(tree: CandidateTree) -> str:
    return " ".join(NAMES[token] for token in tree.token_ids)


def _merged(paths: Sequence[str]) -> str:
    """The letters of depth-first rows, from the paths alone: their beginnings, each
    before what it begins, siblings in order of first appearance."""
    words = [path[:n] for path in paths for n in range(1, len(path) + 1)]
    first = {word: at for at, word in reversed([*enumerate(words)])}

    def way(word: str) -> list[int]:
        return [first[word[:n]] for n in range(1, len(word) + 1)]

    return " ".join(word[-1] for word in sorted(first, key=way))


def _paths_to(tree: CandidateTree, letter: str) -> str:
    return ", ".join(" ".join(w) for w in _words(tree) if w[-1] == letter)


def _right_entries(tree: CandidateTree) -> int:
    """Mask entries that are as they should be: the prefix is open, and a row sees those
    whose path its own begins with."""
    words = _words(tree)
    mask = np.asarray(tree.ancestor_mask)
    if mask.shape != (len(tree), tree.prefix_len + len(tree)):
        return 0
    right = int((mask[:, : tree.prefix_len] == 1).sum())
    for u, word in enumerate(words):
        for v, other in enumerate(words):
            right += bool(mask[u, tree.prefix_len + v]) == word.startswith(other)
    return right


def _right_addresses(tree: CandidateTree) -> int:
    words = _words(tree)
    place = {word: row for row, word in enumerate(words)}
    place[""] = PREFIX_FRONTIER
    return sum(
        tree.position_ids[row] == tree.prefix_len + len(word) - 1
        and tree.predictor_rows[row] == place[word[:-1]]
        for row, word in enumerate(words)
    )


def _met(instance: Instance, rule: Any) -> str:
    frozen = manifest(instance)
    offered = proposals(instance, frozen.hash)
    told = []
    for name, verifier, bound in (
        (instance.verifier, instance.verifier, frozen),
        ("the residual rule", rule, None),
    ):
        try:
            bind(offered, verifier, manifest=bound)
        except ContractError:
            told.append(f"{name} is refused")
        else:
            told.append(f"{name} is bound")
    return ", ".join(told)


def _output(instance: Instance, rule: Any) -> tuple[Any, ...]:
    p, q = _laws(instance)
    return position_law(rule, p, q, instance.drafts).output


def _laws(instance: Instance) -> list[np.ndarray]:
    return [np.array(law, dtype=object) for law in (instance.p, instance.q)]


def _transported(instance: Instance) -> str:
    """The acceptance, and how many vectors and tokens get the mass that they have: the
    vectors' is a product of q, which no flow was asked for."""
    p, q = _laws(instance)
    found = transport(p, q, instance.drafts)
    supplied, served = Counter[Any](), Counter[Any]()
    for (drafts, token), mass in found.coupling.items():
        supplied[drafts] += mass
        served[token] += mass
    vectors = product(range(len(q)), repeat=instance.drafts)
    rows = sum(supplied[x] == prod(q[t] for t in x) for x in vectors)
    columns = sum(served[token] == mass for token, mass in enumerate(p))
    return _told([found.acceptance, rows, columns])


def _slots(
    instance: Instance, slots: Callable[[Iterable[Any]], list[Any]]
) -> list[Any]:
    return slots([Fraction(0), *instance.sibling_rates])


def _planned(
    instance: Instance, slots: Callable[[Iterable[Any]], list[Any]]
) -> Candidate:
    times = dict(instance.verify_times)
    asked = {"max_depth": instance.max_depth}
    return choose(_slots(instance, slots), times, instance.draft_time, **asked).best


def _chosen(plan: Candidate) -> str:
    return _told([plan.nodes, plan.depth, plan.progress, plan.time_per_token])


def _agreeing(instance: Instance, slots: Callable[[Iterable[Any]], list[Any]]) -> str:
    """How often the recurrence finds what growing the tree row by row finds."""
    found = _slots(instance, slots)
    sizes = [n for n, _ in instance.verify_times]
    table = solve(max(sizes), instance.max_depth, found)
    return str(
        sum(
            table.most(n, d)[1] == best_first_tree(n, d, found).score
            for n in sizes
            for d in range(1, instance.max_depth + 1)
        )
    )


# --------------------------------------------------------------------- the artifact


def artifact(
    instance: Instance, tree: CandidateTree, plan: Candidate | str
) -> dict[str, Any]:
    """What a runtime would load, as text and integers: the flattened rows with every
    coordinate and claim, the tree that was planned with the profile behind it, the
    policy and the manifest. Change any of it, and `digest` is another."""
    rows = [
        {
            "token": NAMES[token],
            "parent": tree.parents[row],
            "depth": tree.depths[row],
            "position": tree.position_ids[row],
            "predictor": tree.predictor_rows[row],
            "sees": np.flatnonzero(tree.ancestor_mask[row]).tolist(),
            "claims": [
                [mark.source, _text(mark.q), _text(mark.score)]
                for mark in tree.sources[row]
            ],
        }
        for row, token in enumerate(tree.token_ids)
    ]
    topology: Any = plan
    if not isinstance(plan, str):
        topology = {
            "parents": list(plan.tree.parents),
            "ranks": list(plan.tree.token_ids),
            "tokens a round": str(plan.progress),
        }
    return {
        "manifest": manifest(instance).hash,
        "policy": {"temperature": instance.temperature, "rule": instance.verifier},
        "profile": _profile(instance),
        "rows": rows,
        "topology": topology,
    }


def _profile(instance: Instance) -> dict[str, Any]:
    return {
        "verify": [[n, str(t)] for n, t in instance.verify_times],
        "draft": str(instance.draft_time),
        "sibling rates": [str(rate) for rate in instance.sibling_rates],
    }


def digest(made: Mapping[str, Any]) -> str:
    """SHA-256 (hex) of an artifact in canonical JSON: sorted, no spaces, ASCII. Raises
    `SpecbookError` for floats, whose text would be a platform's."""
    _refuse_floats(made, "artifact")
    text = json.dumps(made, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _refuse_floats(value: Any, where: str) -> None:
    if isinstance(value, Mapping):
        for key, entry in value.items():
            _refuse_floats(entry, f"{where}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        for index, entry in enumerate(value):
            _refuse_floats(entry, f"{where}[{index}]")
    elif not (value is None or isinstance(value, (str, int))):
        raise SpecbookError(f"{where} is {value!r}; write fractions and floats as text")


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _told(values: Iterable[Any]) -> str:
    return " ".join(str(value) for value in values)


def _finding(look: Callable[[], Any]) -> Any:
    """What `look` finds; its message if it is refused."""
    try:
        return look()
    except ValueError as refusal:
        return f"refused: {refusal}"
