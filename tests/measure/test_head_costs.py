"""Stage costs: what is timed, what a planned tree takes, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from specbook import drafts
from specbook.chance import Sampler
from specbook.drafts.samplers import top_k
from specbook.errors import SpecbookError
from specbook.measure import head_costs as module
from specbook.measure.head_costs import stage_costs
from specbook.measure.head_stages import STAGES, Stage, StageCosts, level_rows
from specbook.models.heads import KINDS
from specbook.models.lean import LeanTarget
from specbook.models.tiny import tiny_llama
from specbook.topologies import cartesian, chain
from specbook.topologies.progress import shape_of
from specbook.tree import CandidateTree
from tests.heads.making import shaken

# Rows with children: the root, two of its children, one of theirs.
SHAPE = shape_of([-1, -1, -1, 0, 2, 2, 4], [0, 1, 2, 0, 0, 1, 0])


def target() -> LeanTarget:
    return LeanTarget(tiny_llama(hidden_size=12, num_heads=2, num_kv_heads=1))


def made(independent: bool, heads: int = 3) -> StageCosts:
    """Every stage of one row takes a power of ten of its own; two rows half as much
    again, four twice as much."""
    unit = {name: 10.0**place for place, name in enumerate(STAGES)}
    stages = [
        Stage(name, depth, rows, (factor * (1 + depth) * unit[name],) * 3)
        for name in STAGES
        for depth in (range(heads) if name in ("step", "features") else (0,))
        for rows, factor in ((1, 1.0), (2, 1.5), (4, 2.0))
    ]
    return StageCosts(
        "medusa" if independent else "hydra", heads, independent, (*stages,)
    )


def test_levels_are_the_rows_that_have_children() -> None:
    assert level_rows(SHAPE) == [1, 2, 1]
    assert level_rows(chain(4)) == [1, 1, 1, 1]
    assert level_rows(cartesian([3, 2])) == [1, 3]


def test_a_draft_is_the_sum_of_its_stages() -> None:
    read, step, features, lm_head, law, pick = (10.0**i for i in range(6))
    # Dependent: steps to depths 1 and 2, networks of depths 0 to 2, on 1, 2, 1 rows.
    assert made(False).drafting(SHAPE) == (
        read
        + step * (2 * 1.5 + 3)
        + features * (1 + 2 * 1.5 + 3)
        + (lm_head + law + pick) * (1 + 1.5 + 1)
    )
    # Independent: no step, networks and laws of one row, one run of the LM head over
    # three rows (the next size that was timed is four).
    assert made(True).drafting(SHAPE) == (
        read + features * (1 + 2 + 3) + lm_head * 2 + law * 3 + pick * (1 + 1.5 + 1)
    )
    for costs in (made(False), made(True)):
        assert costs.drafting(CandidateTree.from_paths([], 0)) == 0
        # More rows than were timed: in proportion.
        assert costs.seconds("pick", 0, 8) == 2 * costs.seconds("pick", 0, 4)
        with pytest.raises(SpecbookError, match="4 levels deep"):
            costs.drafting(chain(4))


def test_the_critical_path_is_one_stage_or_as_many_as_there_are_heads() -> None:
    step, features, lm_head = (10.0**i for i in (1, 2, 3))
    dependent, independent = made(False), made(True)
    assert dependent.head_stage(0) == features + lm_head
    assert dependent.head_stage(2) == 3 * step + 3 * features + lm_head
    assert dependent.critical_path(3) == sum(map(dependent.head_stage, range(3)))
    assert independent.critical_path(1) == dependent.critical_path(1)
    assert independent.critical_path(3) == 6 * features + 2 * lm_head


@pytest.mark.parametrize("vocabulary", [None, range(0, 64, 2)], ids=["whole", "cut"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_stage_is_timed_on_every_size(kind: str, vocabulary: Any) -> None:
    ticks = iter(range(100_000))
    source = drafts.get(kind)(shaken(kind).float(), vocabulary=vocabulary)
    costs = stage_costs(
        source,
        target(),
        rows=(3, 1, 3),
        turns=2,
        prefix=5,
        clock=lambda: float(next(ticks)),
    )
    assert (costs.kind, costs.heads) == (kind, 4)
    assert costs.independent == (kind == "medusa")
    keys = [(one.name, one.depth, one.rows) for one in costs.stages]
    wanted = {("read", 0, 1)}
    for n in (1, 3):
        wanted |= {(name, 0, n) for name in ("lm_head", "law", "pick")}
        wanted |= {("features", depth, n) for depth in range(4)}
        if kind != "medusa":
            wanted |= {("step", depth, n) for depth in range(1, 4)}
    assert set(keys) == wanted and len(keys) == len(wanted)
    # A clock that ticks once a reading: every stage took one, in both turns.
    assert all(one.seconds == (1.0, 1.0) for one in costs.stages)
    assert costs.drafting(chain(4)) > 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_asks_for_the_rows_that_are_paid_for(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of each stage of a real draft, counted, are those of `drafting`."""
    source = drafts.get(kind)(shaken(kind).float(), shape=SHAPE, children="top_k")
    model = target()
    source.check_target(model)
    session = model.start([3, 1, 4])
    session.watch_hidden()
    session.verify(CandidateTree.from_paths([], 3))
    session.commit((), 2)
    draft = source.start([3, 1, 4])
    draft.commit([2])
    draft.observe(session.committed_hidden())
    asked: list[tuple[str, int, int]] = []
    heads, bound = source.heads, source._bound
    step, features, logits = heads.step, heads.features, type(bound).logits

    def stepped(state: Any, rows: torch.Tensor, embeddings: torch.Tensor) -> Any:
        asked.append(("step", state.depth + 1, len(rows)))
        return step(state, rows, embeddings)

    def said(state: Any) -> torch.Tensor:
        asked.append(("features", state.depth, len(state)))
        return features(state)

    def read(self: Any, rows: torch.Tensor) -> Any:
        asked.append(("lm_head", 0, len(rows)))
        return logits(self, rows)

    monkeypatch.setattr(heads, "step", stepped)
    monkeypatch.setattr(heads, "features", said)
    monkeypatch.setattr(type(bound), "logits", read)
    proposal = draft.propose(max_depth=4, max_nodes=64, chance=Sampler(0))
    assert len(proposal.nodes) == len(SHAPE)

    paid: list[tuple[str, int, int]] = []

    def seconds(self: Any, name: str, depth: int = 0, rows: int = 1) -> float:
        if self._needs(name, depth) and name in ("step", "features", "lm_head"):
            paid.append((name, depth if name != "lm_head" else 0, rows))
        return 0.0

    monkeypatch.setattr(StageCosts, "seconds", seconds)
    made(heads.independent).drafting(SHAPE)
    assert sorted(paid) == sorted(asked)


@pytest.mark.parametrize("vocabulary", [None, range(0, 64, 2)], ids=["whole", "cut"])
def test_laws_are_made_and_picked_from_as_in_a_draft(
    vocabulary: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a cut vocabulary too a draft has laws over all tokens, and picks from those:
    that is what takes the time."""
    picked: list[int] = []
    monkeypatch.setattr(
        module, "top_k", lambda law, width: picked.append(len(law)) or top_k(law, width)
    )
    source = drafts.get("hydra")(shaken("hydra").float(), vocabulary=vocabulary)
    stage_costs(source, target(), rows=(2,), turns=1, prefix=3)
    assert picked == [64] * 4


def test_what_cannot_be_timed_is_refused() -> None:
    model = target()
    source = drafts.get("hydra")(shaken("hydra").float())
    for bad, told in (
        ({"rows": ()}, "rows is empty"),
        ({"rows": (0,)}, "rows"),
        ({"turns": 0}, "turns"),
        ({"prefix": 0}, "prefix"),
        ({"committed": 0}, "committed"),
        ({"width": 0}, "width"),
    ):
        with pytest.raises(SpecbookError, match=told):
            stage_costs(source, model, **bad)
    with pytest.raises(SpecbookError, match="must have draft heads"):
        stage_costs("hydra", model)  # type: ignore[arg-type]
    whole = made(False)
    for bad, told in (
        ({"stages": whole.stages[:1]}, "step at 1 is not timed"),
        ({"heads": 0}, "heads"),
        ({"stages": None}, "stages must be"),
        ({"stages": (3,)}, r"stages\[0\] is no Stage"),
    ):
        given = {
            "kind": "hydra",
            "heads": 3,
            "independent": False,
            "stages": whole.stages,
        }
        with pytest.raises(SpecbookError, match=told):
            StageCosts(**{**given, **bad})
    for stage in (
        {"name": "dream"},
        {"depth": -1},
        {"rows": 0},
        {"seconds": ()},
        {"seconds": (-1.0,)},
    ):
        with pytest.raises(SpecbookError):
            Stage(**{"name": "law", "depth": 0, "rows": 1, "seconds": (1.0,), **stage})
    with pytest.raises(SpecbookError, match="not a CandidateTree"):
        whole.drafting("chain")  # type: ignore[arg-type]
    assert module.ROWS[0] == 1


def test_what_is_no_tree_has_no_levels() -> None:
    assert level_rows(CandidateTree.from_paths([], 0)) == []
    with pytest.raises(SpecbookError, match="not a CandidateTree"):
        level_rows(None)  # type: ignore[arg-type]
