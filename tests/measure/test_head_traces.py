"""Heads watched at work: what is written down is what a plain forward says."""

from __future__ import annotations

import dataclasses
from itertools import product
from typing import Any

import pytest
import torch

from specbook import drafts
from specbook.errors import SpecbookError
from specbook.measure import head_traces
from specbook.measure.recording import RecordedOutput
from specbook.models.heads import KINDS
from specbook.models.target import TransformersTarget
from specbook.models.tiny import tiny_llama
from specbook.topologies import cartesian
from specbook.training.packed import segment_causal_states
from specbook.tree import CandidateTree
from tests.heads.making import WIDTH, normal, shaken

PROMPT = [5, 9, 2]


@pytest.fixture(scope="module")
def target() -> Any:
    model = tiny_llama(hidden_size=WIDTH, num_heads=2, num_kv_heads=1).double()
    return TransformersTarget(model)


def source(kind: str, **options: Any) -> Any:
    return drafts.get(kind)(shaken(kind), **options)


def check_watched(target: Any, kind: str) -> None:
    made = source(kind, widths=(2, 1), children="top_k")
    found = head_traces.watched(target, made, PROMPT, 14)
    model = target.transformers_model()
    ids = list(found.tokens)
    base = made.heads.base(segment_causal_states(model, ids, [0] * len(ids)))
    assert len(found.pending) == len(found.base) == len(found.read) > 3
    rounds = zip(found.pending, found.base, found.embedded, found.read, strict=True)
    first = 0
    for t, given, word, read in rounds:
        assert (given - base[t - 1]).abs().max() <= 1e-9
        assert torch.equal(word, target.embed_tokens(torch.tensor(ids[t])))
        if made.heads.config.prefix_layers:
            assert read == (first, t)
        else:
            assert read is None
        first = t
    assert found.ended[0] == "ordinary" and len(found.ended) == len(found.pending)
    assert "start" not in vars(made.heads)


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_heads_were_given_is_written_down(target: Any, kind: str) -> None:
    check_watched(target, kind)


def test_a_state_of_another_row_would_be_seen(
    target: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault: the pending token is said to be one further on."""
    right = head_traces.watched

    def shifted(*given: Any) -> Any:
        from dataclasses import replace

        found = right(*given)
        return replace(found, pending=tuple(t + 1 for t in found.pending[:-1]) + (4,))

    monkeypatch.setattr(head_traces, "watched", shifted)
    with pytest.raises((AssertionError, IndexError)):
        check_watched(target, "hydra")


@pytest.mark.parametrize("kind", KINDS)
def test_levels_and_paths_agree_and_a_wrong_parent_is_seen(kind: str) -> None:
    heads, shape = shaken(kind), cartesian((3, 2, 1))
    base, words = normal(1, WIDTH), normal(len(shape) + 1, WIDTH, seed=1)
    alone = head_traces.path_by_path(heads, base, words, shape)
    found = head_traces.level_by_level(heads, base, words, shape)
    assert (found - alone).abs().max() <= 1e-9
    careless = head_traces.level_by_level(heads, base, words, shape, careless=True)
    assert ((careless - alone).abs().max() > 1e-3) == (kind in KINDS[1:4])


def test_the_gap_to_a_fresh_forward(target: Any) -> None:
    for kind in ("hydra", "hydra_plus"):
        made = source(kind, widths=(2, 1), children="top_k")
        run = head_traces.watched(target, made, PROMPT, 8)
        last, own = head_traces.state_gaps(target, made, run).T
        assert last.max() <= 1e-9 and own.min() > 0.1 and len(last) == len(run.base)


def test_runs_of_the_lm_head(target: Any) -> None:
    for kind, vocabulary in product(KINDS, (None, (1, 5, 7, 9))):
        options = {"children": "top_k", "vocabulary": vocabulary}
        made = source(kind, widths=(3, 2, 1), **options)
        runs = head_traces.lm_head_runs(target, made, PROMPT)
        assert runs == ([3] if kind == "medusa" else [1, 3, 6])
        assert not {"read_out", "cut_head"} & set(vars(target))


def test_where_two_kinds_part() -> None:
    def chains(third: list[float], first: list[int]) -> Any:
        drafted = torch.tensor([[a, 0, 0] for a in first])
        tokens = torch.arange(8)
        at = torch.tensor([0, 1, 2, 3])
        return head_traces.OwnChains(tokens, at, drafted, torch.tensor(third))

    one = chains([0.1, 0.0, 0.5, 0.2], [1, 2, 3, 0])
    other = chains([0.4, 0.9, 0.4, 0.9], [1, 2, 3, 4])
    assert head_traces.clashes(one, other, 3) == [1, 0]
    assert head_traces.clashes(one, other, 1) == [1]
    assert head_traces.clashes(one, other, 3, least=0.5) == [1]


def test_made_up_heads_are_repeatable() -> None:
    one, same = (head_traces.made_up("hydra", 12).state_dict() for _ in range(2))
    other = head_traces.made_up("hydra", 12, seed=7).state_dict()
    assert all(torch.equal(one[k], same[k]) for k in one)
    assert all(not torch.equal(one[k], other[k]) for k in one)
    assert head_traces.made_up("markov", 12, rank=3).config.rank == 3


def test_what_heads_see() -> None:
    above = [[j <= i for j in range(4)] for i in range(4)]
    wanted = dict.fromkeys(KINDS, above)
    wanted["medusa"] = [[False] * 4] * 4
    wanted["markov"] = [[j == i for j in range(4)] for i in range(4)]
    assert {kind: head_traces.sees(shaken(kind)) for kind in KINDS} == wanted


@pytest.mark.parametrize("kind", ["medusa", "hydra"])
@torch.no_grad()
@pytest.mark.parametrize("vocabulary", [None, (0, 3, 4, 11, 17, 29)])
def test_own_chains_against_plain_forwards(
    target: Any, kind: str, vocabulary: Any
) -> None:
    made = source(kind, vocabulary=vocabulary)
    ruled_out = torch.zeros(target.vocab_size)
    if vocabulary is not None:
        ruled_out[:] = -torch.inf
        ruled_out[list(vocabulary)] = 0
    answer = RecordedOutput((5, 9, 2), (7, 1, 30, 22, 8, 3), "length")
    found = head_traces.own_chains(target, made, answer, every=2)
    ids = [*answer.prompt_ids, *answer.tokens]
    assert found.tokens.tolist() == ids and found.at.tolist() == [3, 5]
    model = target.transformers_model()
    for row, t in enumerate(found.at.tolist()):
        states = segment_causal_states(model, ids, [0] * len(ids)).clone()
        base = made.heads.base(states)
        path = [ids[t]]
        for depth in range(3):
            words = target.embed_tokens(torch.tensor([*path, 0, 0, 0][:4]))
            said = made.heads(base[t - 1 : t], words[None])[0, depth]
            path.append(int((target.read_out(said[None])[0] + ruled_out).argmax()))
        assert found.drafted[row].tolist() == path[1:]
        with torch.no_grad():
            whole = torch.tensor([[*ids[: t + 1], *path[1:3]]])
            law = torch.softmax(model(whole).logits[0, -1], -1)
        # Laws are float32 here.
        assert float(found.believed[row]) == pytest.approx(
            float(law[path[3]]), rel=1e-5
        )
        right = [a == b for a, b in zip(path[1:], ids[t + 1 : t + 4], strict=True)]
        assert found.right()[row].tolist() == right


def test_what_has_no_chain_is_refused(target: Any) -> None:
    answer = RecordedOutput((5, 9, 2), (7, 1, 30), "length")
    with pytest.raises(SpecbookError, match="no chain"):
        head_traces.own_chains(target, source("hydra"), answer, every=1)
    made = drafts.get("hydra")(shaken("hydra", heads=3))
    with pytest.raises(SpecbookError, match="4 heads or more"):
        head_traces.own_chains(target, made, answer, every=1)


def test_chains_at_other_places_are_not_compared(target: Any) -> None:
    """As many of them: without a look at the places they would be compared."""
    made = source("hydra")
    answer = RecordedOutput((1, 2), (3, 4, 5, 6, 7), "length", "p", "w")
    other = dataclasses.replace(answer, prompt_ids=(2, 2))
    whole = head_traces.own_chains(target, made, answer, 1)
    assert head_traces.clashes(whole, whole, 3) == []
    for part in (
        head_traces.own_chains(target, made, answer, 2),
        head_traces.own_chains(target, made, other, 1),
    ):
        with pytest.raises(SpecbookError, match="other places, or in other texts"):
            head_traces.clashes(whole, part, 3)


def test_a_run_without_candidates_has_no_gap(target: Any) -> None:
    made = source("hydra")
    assert head_traces.state_gaps(
        target, made, head_traces.watched(target, made, [1], 1)
    ).shape == (0, 2)


@pytest.mark.parametrize("by", [head_traces.level_by_level, head_traces.path_by_path])
@pytest.mark.parametrize(
    ("paths", "words"), [([], 1), ([(1, 2)], 2), ([(1, 2, 3, 4)], 5)]
)
def test_a_tree_that_cannot_be_asked_is_refused(
    by: Any, paths: Any, words: int
) -> None:
    heads = head_traces.made_up("hydra", 4, heads=4)
    base = torch.zeros(5, 4, dtype=torch.float64)
    tree = CandidateTree.from_paths(paths, 0)
    with pytest.raises(SpecbookError, match="tree"):
        by(heads, base[:1], base[:words], tree)
