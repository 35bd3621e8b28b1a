"""`specbook bench verifiers`: what a rule's own choice costs at a real vocabulary.

Every rule of the registry chooses among drafts that its own contract admits, at single
nodes whose laws are the real target's and a real draft model's. The rules take turns on
every row, in an order that rotates, so that a slow moment of the machine falls on all
of them alike. Beside them stand the optimum (`optimal_acceptance`), the plan of it on a
small problem (`transport`, against networkx on the same graph), and the one rule that
cannot serve a whole vocabulary (`optimal`), by the tokens that it can serve.
"""

from __future__ import annotations

import gc
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from .. import checks, oracles, prompts, verifiers
from ..chance import Sampler
from ..contract import Selection, Verifier
from ..drafts.samplers import MOST_DRAWS, SAMPLERS, position_tree
from ..errors import FetchError, SpecbookError
from ..models.protocol import FRONTIER
from ..oracles.drafted import RELATIONS, ask, vectors
from ..paths import data_path
from ..policy import SamplingPolicy
from ..proposal import Topology
from ..tree import CandidateTree
from ..verifiers import optimal
from .report import save
from .setup import Clock, Progress, check_checkpoints, clock_of, folder, machine, teller
from .verifiers_report import (
    FlowTimes,
    ListTimes,
    NodeTimes,
    OptimumTimes,
    VerifiersReport,
)

VOCABULARY = 49_152
"""Tokens of the book's own target."""
MOST_VOCABULARY = 1 << 22
"""Synthetic rows of more tokens belong to no model, and fill the memory."""
ROWS, REPEATS = 32, 5
QUICK_ROWS, QUICK_REPEATS = 4, 2
SLOW_ROWS = 4
"""So many rows where one answer takes about a second."""
OPTIMA = tuple(("iid", k) for k in range(2, 9)) + (
    ("without_replacement", 2),
    ("without_replacement", 8),
)
FLOW = (5, 4)
FLOW_PROBLEMS = 6
BUDGET, QUICK_BUDGET = 1.0, 0.05
"""`optimal` is tried on more tokens while a choice takes no longer, in seconds."""

Row = tuple[np.ndarray, np.ndarray]


def run(
    target: str | os.PathLike[str] | None = None,
    draft: str | os.PathLike[str] | None = None,
    *,
    synthetic: bool = False,
    vocabulary: int | None = None,
    children: int = 4,
    temperature: float = 1.0,
    repeats: int = REPEATS,
    seed: int = 0,
    clock: str = "wall",
    quick: bool = False,
    out: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
) -> VerifiersReport:
    """Runs the benchmark on rows of two models and returns its report.

    `target`, `draft`: as in `bench_draft.run`; their laws at `temperature` after the
    development prompts are the rows. `synthetic`, or a `vocabulary`, asks for Zipf rows
    instead. Where no model is named and the book's own cannot be had, the rows are
    synthetic too; the report says which they are. `out`: a folder for
    `verifiers.json`, `verifiers.md` and `verifiers.png`. The others are those of
    `bench_verifiers`. Raises `ValueError` for bad options, before anything is loaded.
    """
    check_checkpoints(target=target, draft=draft)
    named = target is not None or draft is not None
    synthetic = checks.boolean(synthetic, "synthetic") or vocabulary is not None
    if named and synthetic:
        raise SpecbookError(
            "synthetic rows, or rows of another vocabulary, belong to no model"
        )
    temperature = SamplingPolicy(temperature).temperature
    if temperature == 0:
        raise SpecbookError("temperature must be above 0: at 0 no rule reads q")
    options: dict[str, Any] = {
        "vocabulary": VOCABULARY if vocabulary is None else vocabulary,
        "children": children,
        "repeats": repeats,
        "seed": seed,
        "clock": clock,
        "quick": quick,
    }
    _, tell = _checked(progress=progress, **options)
    if out is not None:
        out = folder(out)
    rows: list[Row] | None = None
    told, models = "", dict[str, Any]()
    if not synthetic:
        try:
            rows, told, models = _rows_of_models(
                target, draft, temperature, QUICK_ROWS if quick else ROWS, seed, tell
            )
        except (FetchError, ModuleNotFoundError) as error:
            if named:
                raise
            tell(f"synthetic rows, since no target could be loaded: {error}")
    report = bench_verifiers(rows, about=told, progress=progress, **options)
    report = replace(report, settings={**models, **report.settings})
    if out is not None:
        save(report, out)
    return report


def bench_verifiers(
    rows: Iterable[Row] | None = None,
    *,
    vocabulary: int = VOCABULARY,
    children: int = 4,
    repeats: int = REPEATS,
    seed: int = 0,
    clock: str = "wall",
    quick: bool = False,
    about: str = "",
    progress: Progress | None = None,
) -> VerifiersReport:
    """Times every rule on `rows`, and the optimum, a plan, and the rule `optimal`.

    `rows`: pairs (p, q) of laws [V]; None makes synthetic ones of `vocabulary` tokens.
    `children`: drafts a node, for the rules that take so many. `repeats`: choices a
    row, each among other drafts; their median counts. `seed`: of rows and drafts.
    `clock`: "wall" or "cpu". `quick`: few rows, two repeats, in ten seconds at most.
    `about`: what the rows are, for the report. Raises `ValueError` for bad options and
    for what is no law.
    """
    now, tell = _checked(vocabulary, children, repeats, seed, clock, quick, progress)
    checks.text(about, "about")
    count = QUICK_ROWS if quick else ROWS
    repeats = QUICK_REPEATS if quick else repeats
    if rows is None:
        rows = synthetic_rows(vocabulary, count, seed=seed)
        about = f"{count} synthetic Zipf rows, seed {seed}; no model was asked"
    chosen = _laws(rows)[:count]
    vocabulary = len(chosen[0][0])
    about = about or f"{len(chosen)} rows that the caller gave"
    budget = QUICK_BUDGET if quick else BUDGET
    with _no_collections():
        tell(f"rules on {len(chosen)} rows of {vocabulary:,} tokens")
        nodes = time_nodes(
            chosen, children=children, repeats=repeats, seed=seed, clock=now
        )
        tell("the optimum")
        optima = time_optima(
            chosen, repeats=repeats, slow=1 if quick else SLOW_ROWS, clock=now
        )
        tell("a plan by maximum flow, and by networkx")
        flows = time_flow(
            problems=2 if quick else FLOW_PROBLEMS,
            repeats=repeats,
            seed=seed,
            clock=now,
        )
        tell("the rule optimal")
        lists = time_lists(
            chosen[: 2 if quick else 6],
            children=children,
            budget=budget,
            seed=seed,
            clock=now,
        )
    return VerifiersReport(
        vocabulary=vocabulary,
        nodes=tuple(nodes),
        optima=tuple(optima),
        flows=(flows,),
        lists=tuple(lists),
        settings={
            "rows": about,
            "children": children,
            "repeats": repeats,
            "seed": seed,
            "clock": clock,
            "quick": bool(quick),
            "budget": budget,
        },
        machine=machine(),
    )


@contextmanager
def _no_collections() -> Iterator[None]:
    """No garbage collection falls into a time, as in Python's own `timeit`: what one
    costs depends on the size of the process, not on the rule."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


# ------------------------------------------------------------------------------- rows


def synthetic_rows(vocabulary: int, count: int, *, seed: int = 0) -> list[Row]:
    """Pairs of laws like a language model's: Zipf's law over the ranks with noise, and
    a draft that orders them nearly alike. They say how long a rule takes, and nothing
    about how often it accepts."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        logits = -rng.uniform(1.0, 1.6) * np.log(np.arange(1, vocabulary + 1))
        logits = rng.permutation(logits + 0.5 * rng.normal(size=vocabulary))
        weights = np.exp([logits, logits + 0.7 * rng.normal(size=vocabulary)])
        p, q = weights / weights.sum(axis=1, keepdims=True)
        rows.append((p, q))
    return rows


def law_rows(
    target: Any,
    draft: Any,
    encoded: Iterable[Sequence[int]],
    *,
    per_prompt: int = 4,
    temperature: float = 1.0,
    seed: int = 0,
) -> list[Row]:
    """The laws of two models along the target's own answers: pairs (p, q), float64 [V].

    `target`, `draft`: two `Target`s of one vocabulary. `encoded`: ids of prompts. Each
    prompt gives `per_prompt` rows, one a token that the target is sampled for.
    """
    policy = SamplingPolicy(temperature)
    chance = Sampler(seed)
    rows = []
    for ids in encoded:
        sessions = [model.start(ids) for model in (target, draft)]
        for _ in range(per_prompt):
            p, q = (
                session.verify(CandidateTree.from_paths([], len(session.tokens))).law(
                    FRONTIER, policy
                )
                for session in sessions
            )
            rows.append((p, q))
            token = chance.draw(p)
            for session in sessions:
                session.commit((), token)
    return rows


def _rows_of_models(
    target: Any, draft: Any, temperature: float, count: int, seed: int, tell: Progress
) -> tuple[list[Row], str, dict[str, Any]]:
    """`count` rows of the two models, spread over the workloads; what they are, in
    words; and the identities of the models."""
    from ..drafts.neural.draft_model import SHIPPED, DraftModel
    from ..models.loading import load_target

    tell("loading the target and the draft model")
    ours = load_target(target)
    drafter = load_target(data_path(*SHIPPED) if draft is None else draft)
    DraftModel(drafter).check_target(ours)
    each = max(1, count // (4 * len(prompts.WORKLOADS)))
    chosen = [
        prompt
        for name in prompts.WORKLOADS
        for prompt in prompts.load(name, "development")[:each]
    ]
    encoded = [
        ours.encode_chat(p.messages) if p.is_chat else ours.encode(p.text)
        for p in chosen
    ]
    per_prompt = math.ceil(count / len(encoded))
    rows = law_rows(
        ours,
        drafter,
        encoded,
        per_prompt=per_prompt,
        temperature=temperature,
        seed=seed,
    )
    about = {"target": ours.identity(), "draft": drafter.identity()}
    names = [item["checkpoint"].partition(" sha256:")[0] for item in about.values()]
    told = (
        f"{len(rows)} positions in sampled answers to {len(encoded)} development "
        f"prompts, temperature {temperature:g}; target {names[0]}, draft model "
        f"{names[1]}"
    )
    return rows, told, about


def _laws(rows: Any) -> list[Row]:
    """Rows of one size, as float64."""
    found: list[Row] = []
    for number, row in enumerate(checks.entries(rows, "rows", "pairs (p, q)")):
        if not isinstance(row, Sequence) or len(row) != 2:
            raise SpecbookError(f"rows[{number}] must be a pair (p, q)")
        size = len(found[0][0]) if found else None
        p, q = (
            checks.law(law, f"rows[{number}][{i}]", size=size)
            for i, law in enumerate(row)
        )
        if len(p) != len(q):
            raise SpecbookError(f"rows[{number}]: p has {len(p)} tokens and q {len(q)}")
        found.append((p.astype(np.float64), q.astype(np.float64)))
    if not found:
        raise SpecbookError("rows is empty: at least one pair (p, q) is needed")
    return found


# ------------------------------------------------------------------------------ times


def time_nodes(
    rows: Sequence[Row], *, children: int, repeats: int, seed: int, clock: Clock
) -> list[NodeTimes]:
    """Every rule of the registry with every sampling that it admits, taking turns.

    A rule without q cannot tell samplings apart and is timed with ranked candidates; no
    rule can tell independent draws of one q from iid ones. A rule for chains gets one
    child, a rule for pairs two.
    """
    asked = [
        question
        for question in _asked(children)
        # Where it serves all tokens, `time_lists` times it, within a budget.
        if question[0].contract.name != "optimal" or len(rows[0][0]) > optimal.MOST
    ]
    spent: list[list[list[float]]] = [[[] for _ in rows] for _ in asked]
    refused = [""] * len(asked)
    for turn in range(-1, repeats):  # the first one warms up
        for number, (p, q) in enumerate(rows):
            first = (number + turn) % len(asked)
            for place in [*range(first, len(asked)), *range(first)]:
                rule, sampling, k = asked[place]
                if refused[place]:
                    continue
                law = _certain(p) if rule.contract.greedy_only else p
                chance = Sampler(np.random.default_rng([seed, turn + 1, number, place]))
                tree = position_tree(SAMPLERS[RELATIONS[sampling]](q, k, chance))
                try:
                    seconds, found = _choice(rule, tree, law, chance, clock)
                except SpecbookError as error:
                    if type(error) is not SpecbookError:
                        raise  # a fault of the rows or of the drafts, not a limit
                    refused[place] = str(error)
                    continue
                tree.check_path(found.rows)
                if turn >= 0:
                    spent[place][number].append(seconds)
    return [
        NodeTimes(
            rule.contract.name,
            sampling,
            k,
            rule.contract.reads_q,
            () if why else tuple(median(times) for times in found),
            why,
        )
        for (rule, sampling, k), found, why in zip(asked, spent, refused, strict=True)
    ]


def _asked(children: int) -> Iterable[tuple[Verifier, str, int]]:
    """The rules, each with the samplings it is timed with and its children."""
    for name in verifiers.names():
        rule = verifiers.get(name)
        contract = rule.contract
        chain = not contract.topology & {Topology.SET, Topology.TREE}
        samplings = [
            sampling
            for sampling, relation in RELATIONS.items()
            if contract.supports_sampling_relation(relation)
            and sampling != "independent"
        ]
        for sampling in samplings if contract.reads_q else ["top_k"]:
            yield rule, sampling, 1 if chain else 2 if sampling == "hub" else children


def _choice(
    rule: Verifier, tree: CandidateTree, p: np.ndarray, chance: Sampler, clock: Clock
) -> tuple[float, Selection]:
    """Seconds of one choice, and the choice."""
    start = clock()
    found = rule.select(tree, lambda row: p, chance)
    return clock() - start, found


def _certain(p: np.ndarray) -> np.ndarray:
    """The law of temperature 0, at which a greedy rule works."""
    return SamplingPolicy(0.0).law_from_probabilities(p)


def time_optima(
    rows: Sequence[Row], *, repeats: int, slow: int, clock: Clock
) -> list[OptimumTimes]:
    """`optimal_acceptance` on every row, the questions taking turns. Where a row takes
    long, `slow` rows are asked once."""
    asked = [(s, k) for s, k in OPTIMA if k < len(rows[0][0])]
    spent: dict[tuple[str, int], list[list[float]]] = {}
    for question in asked:
        lasting = question == ("without_replacement", 8)
        spent[question] = [[] for _ in (rows[:slow] if lasting else rows)]
    for turn in range(repeats):
        for number, (p, q) in enumerate(rows):
            first = (number + turn) % max(1, len(asked))  # tiny rows have no question
            for question in asked[first:] + asked[:first]:
                lasting = question == ("without_replacement", 8)
                if number >= len(spent[question]) or (lasting and turn):
                    continue
                sampling, k = question
                start = clock()
                oracles.optimal_acceptance(p, q, k, sampling)
                spent[question][number].append(clock() - start)
    return [
        OptimumTimes(
            sampling,
            k,
            tuple(median(times) for times in spent[sampling, k]),
        )
        for sampling, k in asked
    ]


def time_flow(*, problems: int, repeats: int, seed: int, clock: Clock) -> FlowTimes:
    """`transport` on random laws in tenths, and networkx on the same graphs: its
    default algorithm and the one that is fastest here, taking turns."""
    import networkx
    from networkx.algorithms.flow import preflow_push, shortest_augmenting_path

    tokens, drafts = FLOW
    rng = np.random.default_rng(seed)
    spent: dict[str, list[float]] = {"ours": [], "default": [], "fastest": []}
    methods: dict[str, None] = {}
    agreed = 0
    for _ in range(problems):
        p, q = (_tenths(rng, tokens) for _ in range(2))
        found = oracles.transport(p, q, drafts)
        methods[found.method] = None
        graph = _graph(networkx, p, q, drafts, found.scale)
        flow = partial(networkx.maximum_flow, graph, "p", "q")
        solvers = {
            "ours": partial(oracles.transport, p, q, drafts),
            "default": partial(flow, flow_func=preflow_push),
            "fastest": partial(flow, flow_func=shortest_augmenting_path),
        }
        times: dict[str, list[float]] = {name: [] for name in solvers}
        values = set()
        for _ in range(repeats):
            for name, solve in solvers.items():
                start = clock()
                solved = solve()
                times[name].append(clock() - start)
                values.add(
                    solved.acceptance
                    if name == "ours"
                    else Fraction(solved[0], found.scale)
                )
        agreed += len(values) == 1
        for name in solvers:
            spent[name].append(median(times[name]))
    return FlowTimes(
        tokens,
        drafts,
        " and ".join(methods),
        tuple(spent.pop("ours")),
        {name: tuple(seconds) for name, seconds in spent.items()},
        agreed,
    )


def _tenths(rng: np.random.Generator, tokens: int) -> list[Fraction]:
    """A random law of positive tenths."""
    cuts = np.sort(rng.choice(np.arange(1, 10), tokens - 1, replace=False))
    return [Fraction(int(n), 10) for n in np.diff([0, *cuts, 10])]


def _graph(
    networkx: Any, p: Sequence[Fraction], q: Sequence[Fraction], k: int, scale: int
) -> Any:
    """Source, every vector of drafts, every token in it, sink, in whole numbers."""
    graph = networkx.DiGraph()
    parts, whole = vectors(ask(p, q, k, "iid"))
    for vector, part in parts.items():
        amount = int(Fraction(part * scale, whole))
        graph.add_edge("p", vector, capacity=amount)
        graph.add_edges_from(((vector, x) for x in set(vector)), capacity=amount)
    for token, mass in enumerate(p):
        graph.add_edge(token, "q", capacity=int(mass * scale))
    return graph


def time_lists(
    rows: Sequence[Row], *, children: int, budget: float, seed: int, clock: Clock
) -> list[ListTimes]:
    """The rule `optimal` on the most probable tokens of each row, more and more of
    them, up to what it serves, and while a choice takes no longer than `budget`."""
    rule = verifiers.get("optimal")
    found = []
    for sampling in ("iid", "without_replacement"):
        for tokens in range(2, min(optimal.MOST, len(rows[0][0])) + 1):
            spent = []
            for number, (p, q) in enumerate(rows):
                kept = np.argsort(-p, kind="stable")[:tokens]
                p, q = (law[kept] / law[kept].sum() for law in (p, q))
                chance = Sampler(np.random.default_rng([seed, tokens, number]))
                k = min(children, tokens)
                tree = position_tree(SAMPLERS[RELATIONS[sampling]](q, k, chance))
                # A decoder meets every law once; here the next node has another one.
                optimal._plan.cache_clear()
                spent.append(_choice(rule, tree, p, chance, clock)[0])
            found.append(ListTimes(sampling, tokens, tuple(spent)))
            if median(spent) > budget:
                break
    return found


def _checked(
    vocabulary: Any,
    children: Any,
    repeats: Any,
    seed: Any,
    clock: Any,
    quick: Any,
    progress: Any,
) -> tuple[Clock, Progress]:
    """The options, checked; returns the clock, and what takes lines of progress."""
    checks.integer(vocabulary, "vocabulary", least=2, most=MOST_VOCABULARY)
    checks.integer(children, "children", least=1, most=MOST_DRAWS)
    checks.integer(repeats, "repeats", least=1)
    checks.integer(seed, "seed", least=0)
    checks.boolean(quick, "quick")
    return clock_of(clock), teller(progress)
