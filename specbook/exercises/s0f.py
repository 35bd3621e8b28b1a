"""The exercises of 0x0F_assertions: a wrong row, a commit, a gate."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..contract import SourceContract, VerifierContract, negotiate
from ..errors import ContractError
from ..proposal import ProbabilitySemantics, SamplingRelation, Topology
from ..tree import CandidateTree
from . import Exercise

Row = dict[str, Any]


def _tree(rng: np.random.Generator, paths: int, prefix_len: int = 0) -> CandidateTree:
    """A random tree over five tokens that is no chain."""
    while True:
        found = [
            rng.integers(0, 5, size=rng.integers(1, 5)).tolist() for _ in range(paths)
        ]
        order = ("breadth", "depth")[int(rng.integers(2))]
        tree = CandidateTree.from_paths(found, prefix_len, order)
        if len(tree) > tree.max_depth > 1:
            return tree


# --------------------------------------------------------------- 0x0F-first-fault

Graph = tuple[list[Row], int]


def _rows(tree: CandidateTree) -> list[Row]:
    columns = zip(
        tree.token_ids,
        tree.parents,
        tree.depths,
        tree.position_ids,
        tree.predictor_rows,
        strict=True,
    )
    names = "token", "parent", "depth", "position", "predictor"
    return [dict(zip(names, row, strict=True)) for row in columns]


def _fault_cases(rng: np.random.Generator) -> Iterator[Graph]:
    tree = _tree(rng, 4, 5)
    yield _rows(tree), 5
    for field in ("depth", "position", "predictor", "parent", "position", "token"):
        prefix_len = int(rng.integers(1, 9))
        tree = _tree(rng, 5, prefix_len)
        rows = _rows(tree)
        deep = [r for r in range(len(tree)) if tree.depths[r] != r + 1]
        at = int(rng.choice(deep))
        if field == "position":
            rows[at]["position"] = prefix_len + at  # by row, and not by depth
        elif field == "predictor":
            rows[at]["predictor"] = at
        elif field == "parent":
            rows[at]["parent"] = at
        elif field == "token":
            # Two rows of one full prefix: one more row like a row that is there.
            rows.append(dict(rows[at]))
        else:
            rows[at]["depth"] += 1
        yield rows, prefix_len


def _first_fault(case: Graph) -> int:
    rows, prefix_len = case
    seen = set()
    for number, row in enumerate(rows):
        parent = row["parent"]
        if not -1 <= parent < number:
            return number
        depth = rows[parent]["depth"] + 1 if parent >= 0 else 1
        if (
            row["depth"] != depth
            or row["position"] != prefix_len + depth - 1
            or row["predictor"] != parent
            or (parent, row["token"]) in seen
        ):
            return number
        seen.add((parent, row["token"]))
    return -1


def _fault_mistake(case: Graph, value: Any, truth: int) -> str | None:
    rows, prefix_len = case
    if truth < 0:
        return f"nothing is wrong here, and row {value} was named."
    row = rows[truth]
    parent = row["parent"]
    told = f"row {truth} is wrong: "
    if parent >= truth:
        return told + f"its parent {parent} does not come before it."
    if any(
        rows[r]["parent"] == parent and rows[r]["token"] == row["token"]
        for r in range(truth)
    ):
        return told + "it repeats the full prefix of an earlier row."
    if row["predictor"] != parent:
        return told + "the row that scores it is its parent."
    depth = rows[parent]["depth"] + 1 if parent >= 0 else 1
    if row["depth"] != depth:
        return told + f"it hangs at depth {depth}."
    return told + f"depth {depth} sits at position {prefix_len + depth - 1}."


# ---------------------------------------------------------------- 0x0F-may-commit

Commit = tuple[list[int], list[int]]


def _commit_cases(rng: np.random.Generator) -> Iterator[Commit]:
    yield [-1, 0, 1, 1], []
    yield [-1, 0, 1, 1], [0, 1, 3]
    yield [-1, 0, 1, 1], [0, 1, 2, 3]  # two siblings
    yield [-1, 0, 1, 1], [1, 3]  # no first token
    yield [-1, 0, 1, 1], [0, 3]  # a gap
    yield [-1, 0, 1, 1], [1, 0]  # turned round
    for size in (5, 7, 9):
        tree = _tree(rng, size)
        path = tree.path_rows(int(rng.integers(len(tree))))
        yield list(tree.parents), list(path)
        yield list(tree.parents), [*path, int(rng.integers(len(tree)))]


def _may_commit(case: Commit) -> bool:
    parents, rows = case
    tree = CandidateTree.from_rows(range(len(parents)), parents, 0)
    try:
        tree.check_path(rows)
    except ValueError:
        return False
    return True


def _commit_mistake(case: Commit, value: Any, truth: bool) -> str | None:
    parents, rows = case
    if truth and not rows:
        return "nothing accepted is a commit, too: no row and one token."
    if truth:
        return f"{rows} is a path: each row hangs below the one before it."
    if rows and parents[rows[0]] != -1:
        return f"a path begins below the prefix; row {rows[0]} hangs below another row."
    above = next(a for a, b in zip(rows, rows[1:], strict=False) if parents[b] != a)
    return f"the row after {above} in {rows} does not hang below it."


# ----------------------------------------------------------------------- 0x0F-gate

Gate = tuple[dict[str, str], dict[str, Any], bool]
_ASKED = {
    "probability": ProbabilitySemantics,
    "sampling": SamplingRelation,
    "topology": Topology,
}


def _gate_cases(rng: np.random.Generator) -> Iterator[Gate]:
    drawn = {
        "probability": "normalized_conditional",
        "sampling": "iid",
        "topology": "tree",
    }
    copied = {
        "probability": "frequency",
        "sampling": "deterministic_lookup",
        "topology": "sequence",
    }
    residual = {
        "reads_q": True,
        "exact": True,
        "probability": ["normalized_conditional"],
        "sampling": ["iid", "independent"],
        "topology": ["sequence", "set", "tree"],
    }
    anything: dict[str, Any] = {
        "reads_q": False,
        "exact": True,
        **{name: [v.value for v in kind] for name, kind in _ASKED.items()},
    }
    # No row of the target hangs below two others, whatever a rule may list.
    anything["topology"] = ["sequence", "set", "tree"]
    yield drawn, residual, True
    yield copied, residual, True
    yield {**drawn, "topology": "metadata_graph"}, anything, True
    yield copied, {**anything, "exact": False}, True
    yield copied, {**anything, "exact": False}, False
    for _ in range(5):
        source = {name: str(rng.choice([*kind])) for name, kind in _ASKED.items()}
        rule: dict[str, Any] = {"reads_q": False, "exact": bool(rng.integers(2))}
        for name in _ASKED:
            listed = anything[name]
            kept = rng.random(len(listed)) < 0.6
            rule[name] = [
                value for value, keep in zip(listed, kept, strict=True) if keep
            ]
        yield source, rule, bool(rng.integers(2))


def _gate(case: Gate) -> list[str]:
    source, rule, exact = case
    contract = VerifierContract(name="rule", **rule)
    offered = SourceContract(
        "source",
        source["probability"],  # type: ignore[arg-type]
        source["sampling"],  # type: ignore[arg-type]
        source["topology"],  # type: ignore[arg-type]
    )
    try:
        negotiate([offered], contract, exact=exact)
    except ContractError as refusal:
        told = str(refusal)
        found = [name for name in _ASKED if f"source: {name} " in told]
        return found + ["mode"] * ("the mode is exact" in told)
    return []


def _gate_mistake(case: Gate, value: Any, truth: list[str]) -> str | None:
    source, rule, exact = case
    missed = [name for name in truth if name not in value]
    if missed == ["mode"]:
        return "the mode is exact and the rule is a heuristic."
    if missed and list(value) == truth[: len(value)] != []:
        return f"name everything that clashes, not the first alone: {missed} too."
    if missed:
        return f"the rule does not admit {missed[0]} {source.get(missed[0])!r}."
    extra = [name for name in value if name not in truth]
    if extra == ["mode"]:
        return (
            "a heuristic is refused in exact mode only."
            if not rule["exact"]
            else ("an exact rule fits every mode.")
        )
    if extra:
        return f"{extra[0]} {source.get(extra[0])!r} is admitted."
    return None


EXERCISES = {
    exercise.id: exercise
    for exercise in (
        Exercise(
            id="0x0F-first-fault",
            question=(
                "first_fault(rows, prefix_len): rows are dicts with token, parent, "
                "depth, position and predictor. Return the number of the first row "
                "that cannot be right, or -1 if there is none."
            ),
            cases=_fault_cases,
            oracle=_first_fault,
            diagnose=_fault_mistake,
        ),
        Exercise(
            id="0x0F-may-commit",
            question=(
                "may_commit(parents, rows): True if the rows, in this order, are one "
                "path that begins right below the prefix (-1). No row is a path, too."
            ),
            cases=_commit_cases,
            oracle=_may_commit,
            diagnose=_commit_mistake,
        ),
        Exercise(
            id="0x0F-gate",
            question=(
                "gate(source, rule, exact): the source states its probability, "
                "sampling and topology, the rule lists what it admits of each and "
                "whether it is exact. List what clashes, in the order 'probability', "
                "'sampling', 'topology', 'mode'."
            ),
            cases=_gate_cases,
            oracle=_gate,
            diagnose=_gate_mistake,
        ),
    )
}
