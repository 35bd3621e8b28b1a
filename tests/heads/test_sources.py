"""Draft heads as sources: what they draw, what they say about it, what they refuse."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch

from specbook.chance import Sampler, law
from specbook.contract import admitted
from specbook.drafts.neural import heads as module
from specbook.drafts.neural.clover import Clover
from specbook.drafts.neural.heads import HeadsSource
from specbook.drafts.neural.hydra import Hydra
from specbook.drafts.neural.hydra_plus import HydraPlus
from specbook.drafts.neural.markov import Markov
from specbook.drafts.neural.medusa import Medusa
from specbook.drafts.neural.planned import CHILDREN
from specbook.drafts.rest import Datastore, Rest
from specbook.engine import generate
from specbook.errors import ArtifactError, ContractError, SpecbookError
from specbook.models.heads import KINDS
from specbook.models.lean import LeanTarget
from specbook.models.table import TableTarget
from specbook.models.target import TransformersTarget
from specbook.models.tiny import tiny_llama, tiny_model
from specbook.topologies import cartesian
from specbook.tree import CandidateTree
from tests.drafts.neural.drafting import PLAIN, path_to

from .making import shaken
from .targets import ModelTable

SOURCES: dict[str, type[HeadsSource]] = {
    "medusa": Medusa,
    "hydra": Hydra,
    "hydra_plus": HydraPlus,
    "clover": Clover,
    "markov": Markov,
}
assert list(SOURCES) == list(KINDS)
PROMPT = (0, 1, 1)


@pytest.fixture(scope="module", params=KINDS)
def kind(request: Any) -> str:
    return request.param


def source(kind: str, seed: int = 0, **options: Any) -> HeadsSource:
    return SOURCES[kind](shaken(kind, seed), **options)


# --------------------------------------------------------------- the output's law


def plain_law(target: ModelTable, prompt: tuple[int, ...], count: int) -> Any:
    """Token by token, from plain forwards alone."""
    found = {(): 1.0}
    for _ in range(count):
        found = {
            (*tokens, token): mass * p
            for tokens, mass in found.items()
            for token, p in enumerate(target.lookup((*prompt, *tokens)))
        }
    return found


def check_output(
    target: ModelTable, made: Any, rule: str, count: int, most: float = 1e-12
) -> None:
    def program(chance: Any) -> tuple[int, ...]:
        result = generate(
            target,
            list(PROMPT),
            made,
            rule,
            max_new_tokens=count,
            temperature=1.0,
            chance=chance,
        )
        assert not result.rounds[0].tree and any(r.tree for r in result.rounds[1:])
        return tuple(result.tokens)

    found, wanted = law(program), plain_law(target, PROMPT, count)
    assert set(found) == set(wanted)
    assert max(abs(found[key] - wanted[key]) for key in wanted) <= most


RULES = [
    ((1, 1), "without_replacement", "single", 4, 2),
    ((1, 1), "iid", "block", 4, 2),
    ((2,), "without_replacement", "sequoia", 3, 4),
    ((2,), "iid", "specinfer", 3, 4),
    ((2,), "hub", "spechub", 3, 4),
    ((2, 1), "top_k", "membership", 4, 3),
]
"""Shape, children, rule, tokens, vocabulary: a few hundred leaves each."""


@pytest.mark.parametrize(("widths", "children", "rule", "count", "vocab"), RULES)
def test_two_rounds_have_the_targets_law(
    kind: str, widths: Any, children: str, rule: str, count: int, vocab: int
) -> None:
    made = source(kind, widths=widths, children=children)
    check_output(ModelTable(vocab), made, rule, count)


def test_a_law_that_is_not_the_one_drawn_from_would_be_seen(monkeypatch: Any) -> None:
    """The planted fault: every row of a level says the law of the first."""
    made = source("hydra", widths=(2, 1), children="iid")
    check_output(ModelTable(3), made, "specinfer", 3)
    right = module.HeadsSession._children

    def careless(self: Any, row: int, count: int, chance: Any) -> Any:
        drawn = right(self, row, count, chance)
        wrong = np.roll(self._law(row, self._policy), 1)
        return [draw._replace(law=wrong) for draw in drawn]

    monkeypatch.setattr(module.HeadsSession, "_children", careless)
    with pytest.raises(AssertionError):
        check_output(ModelTable(3), made, "specinfer", 3)


def greedy_targets() -> list[Any]:
    return [
        LeanTarget(tiny_llama(hidden_size=12, num_heads=2, num_kv_heads=1)),
        TransformersTarget(tiny_model("qwen3", hidden_size=12)),
    ]


def test_greedy_output_is_plain_greedy(kind: str) -> None:
    for target, seed in itertools.product(greedy_targets(), range(2)):
        made = source(kind, seed, widths=(3, 2, 1), children="top_k")
        made.heads.float()
        prompt = np.random.default_rng(seed).integers(64, size=5).tolist()
        plain = generate(target, prompt, None, "greedy", max_new_tokens=16)
        found = generate(target, prompt, made, "greedy", max_new_tokens=16)
        assert found.tokens == plain.tokens
        assert not found.rounds[0].tree
        assert all(len(r.tree) == 3 + 6 + 6 for r in found.rounds[1:-3])


def test_a_bfloat16_target_feeds_float32_heads(kind: str) -> None:
    """States and logits come and go in the target's dtype, laws are float64 laws."""
    model = tiny_llama(hidden_size=12, num_heads=2, num_kv_heads=1).to(torch.bfloat16)
    for target in (LeanTarget(model), TransformersTarget(model)):
        for vocabulary in (None, range(0, 64, 2)):
            made = source(kind, widths=(2, 1), vocabulary=vocabulary)
            made.heads.float()
            found = generate(
                target, [1, 2], made, "sequoia", max_new_tokens=8, temperature=1.0
            )
            assert len(found.tokens) == 8 and any(r.tree for r in found.rounds)


def test_a_session_of_one_target_is_not_moved_to_another() -> None:
    """One source may serve two targets in turn; what was begun goes on with its own."""
    made = source("hydra")
    one, other = ModelTable(5), ModelTable(5, seed=1)

    def begin(target: ModelTable) -> Any:
        made.check_target(target)
        session, draft = target.start([0, 1]), made.start([0, 1])
        session.watch_hidden()
        session.verify(CandidateTree.from_rows([], [], 2))
        session.commit([], 2)
        draft.commit([2])
        draft.observe(session.committed_hidden())
        return draft

    drafts = [begin(one), begin(other)]
    for target, draft in zip((one, other), drafts, strict=True):
        proposal = draft.propose(max_depth=1, max_nodes=1, chance=Sampler(0))
        wanted = reference(target, made, [0, 1, 2], [])
        assert np.abs(proposal.nodes[0].law - wanted).max() <= 1e-10


def test_heads_that_know_the_target_are_accepted() -> None:
    """Untrained heads say what the target says after the last committed token: where it
    repeats one token, they are right every time."""
    model = tiny_llama(hidden_size=12, num_heads=2, num_kv_heads=1, num_layers=1)
    with torch.no_grad():
        model.lm_head.weight.zero_()
        model.lm_head.weight[7] = 1
        model.model.norm.weight.fill_(1)
        model.model.embed_tokens.weight.fill_(1)
        model.model.layers[0].self_attn.o_proj.weight.zero_()
        model.model.layers[0].mlp.down_proj.weight.zero_()
    from specbook.models.heads import build, config_of

    for kind in KINDS:
        made = SOURCES[kind](build(config_of(kind, 12)))
        target = TransformersTarget(model, self_test=False)
        found = generate(target, [1, 2], made, "greedy", max_new_tokens=21)
        assert found.tokens == [7] * 21
        # An ordinary round, then four candidates and a bonus token each.
        assert [len(r.committed) for r in found.rounds] == [1, 5, 5, 5, 5]


# ----------------------------------------------------------- the law of every node


def reference(target: ModelTable, made: HeadsSource, prefix: Sequence[int], path: Any):
    """The law after `path` from nothing but whole forwards: the target's over the
    committed text, the prefix layers' over all its rows, the heads' along the path."""
    with torch.inference_mode():
        ids = torch.tensor([list(prefix)[:-1]])
        base = made.heads.base(target.model.model(input_ids=ids)[0][0])[-1:]
        along = [prefix[-1], *path, 0, 0, 0][: made.heads.config.heads]
        features = made.heads(base, target.embed_tokens(torch.tensor([along])))
        logits = target.model.lm_head(features[0, len(path)])
        if made.vocabulary is not None:
            cut = torch.full_like(logits, -torch.inf)
            cut[list(made.vocabulary)] = logits[list(made.vocabulary)]
            logits = cut
        return torch.softmax(logits, -1).numpy()


def check_rounds(target: ModelTable, made: HeadsSource, rounds: int = 6) -> list[Any]:
    """Rounds with paths of any length, whole and cut; each node's law is checked."""
    random = np.random.default_rng(1)
    tokens = [0, 3, 1]
    made.check_target(target)
    session = target.start(tokens)
    session.watch_hidden()
    draft = made.start(tokens, vocab_size=target.vocab_size, policy=PLAIN)
    proposals = []
    for number in range(rounds):
        proposal = draft.propose(max_depth=9, max_nodes=99, chance=Sampler(number))
        proposals.append(proposal)
        assert proposal.state_handle.generation == number
        taken: dict[int, list[int]] = {}
        for node in proposal.nodes:
            wanted = reference(target, made, tokens, path_to(proposal, node.parent))
            if made.children == "top_k":
                assert abs(node.score - wanted[node.token_id]) <= 1e-10
                continue
            if made.children == "without_replacement":
                wanted[taken.setdefault(node.parent, [])] = 0
                wanted = wanted / wanted.sum()
                taken[node.parent].append(node.token_id)
            if made.children in ("without_replacement", "iid"):
                assert np.abs(node.law - wanted).max() <= 1e-10
                assert node.q == node.law[node.token_id]
        tree = CandidateTree.from_proposals(proposal, len(tokens))
        session.verify(tree)
        rows = (
            () if number == 2 else tree.path_rows(int(random.integers(-1, len(tree))))
        )
        token = int(random.integers(target.vocab_size))
        session.commit(rows, token)
        published = [*(tree.token_ids[row] for row in rows), token]
        tokens += published
        draft.commit(published)
        draft.observe(session.committed_hidden())
    assert not proposals[0].nodes and all(p.nodes for p in proposals[1:])
    return proposals


@pytest.mark.parametrize("children", CHILDREN)
def test_every_node_carries_the_law_it_was_drawn_from(kind: str, children: str) -> None:
    widths = (2, 2, 2) if children == "hub" else (3, 2, 1, 1)
    made = source(kind, widths=widths, children=children)
    proposals = check_rounds(ModelTable(7), made)
    for proposal in proposals:
        for name in ("probability_semantics", "sampling_relation", "topology"):
            assert getattr(proposal, name) == getattr(made.contract, name)


def test_the_usual_shape_is_a_chain_as_long_as_there_are_heads(kind: str) -> None:
    made = source(kind)
    assert [len(p.nodes) for p in check_rounds(ModelTable(5), made)] == [0] + [4] * 5
    assert made.contract.sampling_relation == "iid"
    assert made.contract.topology == "sequence"
    assert made.contract.name == kind


def test_a_shape_of_the_topologies_is_followed(kind: str) -> None:
    shape = cartesian((2, 1))
    made = source(kind, shape=shape)
    for proposal in check_rounds(ModelTable(5), made)[1:]:
        assert [node.parent for node in proposal.nodes] == list(shape.parents)


def test_a_prefix_that_is_read_again_would_be_seen(monkeypatch: Any) -> None:
    """The planted fault: the state before the last committed one."""
    right = module.HeadsSession.observe
    check_rounds(ModelTable(5), source("hydra"))
    monkeypatch.setattr(
        module.HeadsSession,
        "observe",
        lambda self, hidden: right(self, torch.cat([hidden[-1:], hidden[:-1]])),
    )
    with pytest.raises(AssertionError):
        check_rounds(ModelTable(5), source("hydra"))


def test_a_round_that_is_asked_twice_says_the_same(kind: str) -> None:
    target, made = ModelTable(5), source(kind)
    made.check_target(target)
    session, draft = target.start([0, 1]), made.start([0, 1])
    session.watch_hidden()
    session.verify(CandidateTree.from_rows([], [], 2))
    session.commit([], 2)
    draft.commit([2])
    draft.observe(session.committed_hidden())
    one, other = (
        draft.propose(max_depth=4, max_nodes=9, chance=Sampler(3)) for _ in range(2)
    )
    assert one == other and len(one.nodes) == 4


def test_levels_are_batched_and_independent_heads_need_one_run(kind: str) -> None:
    target = ModelTable(7)
    made = source(kind, widths=(3, 2, 1), children="top_k")
    generate(target, [0, 1], made, "greedy", max_new_tokens=5)
    deepest = target.head_calls[: 1 if kind == "medusa" else 3]
    assert deepest == ([3] if kind == "medusa" else [1, 3, 6])


def test_nothing_is_drafted_where_the_heads_are_not_sure_enough(kind: str) -> None:
    target = ModelTable(7)
    for stop in (0.0, 0.2, 1.0):
        made = source(kind, widths=(3, 2, 1), children="top_k", stop_below=stop)
        proposals = check_rounds_without_laws(target, made)
        for prefix, proposal in proposals:
            for node in proposal.nodes:
                path, above, sure = path_to(proposal, node.parent), node.parent, 1.0
                while above >= 0:
                    sure *= proposal.nodes[above].score
                    above = proposal.nodes[above].parent
                best = reference(target, made, prefix, path).max()
                assert sure * best >= stop - 1e-9
        if stop == 1:
            assert not any(p.nodes for _, p in proposals)


def check_rounds_without_laws(target: ModelTable, made: HeadsSource) -> list[Any]:
    made.check_target(target)
    tokens = [0, 1, 2]
    session, draft = target.start(list(tokens)), made.start(tokens)
    session.watch_hidden()
    found = []
    for token in (3, 1, 4, 2):
        proposal = draft.propose(max_depth=9, max_nodes=99)
        found.append((tuple(tokens), proposal))
        session.verify(CandidateTree.from_rows([], [], len(tokens)))
        session.commit([], token)
        tokens.append(token)
        draft.commit([token])
        draft.observe(session.committed_hidden())
    return found


# ------------------------------------------------------------- a cut vocabulary


def test_a_cut_vocabulary_has_q_zero_elsewhere(kind: str) -> None:
    made = source(kind, widths=(2, 1), vocabulary=[6, 1, 4])
    assert made.vocabulary == (1, 4, 6)
    for proposal in check_rounds(ModelTable(7), made)[1:]:
        for node in proposal.nodes:
            assert node.token_id in (1, 4, 6)
            assert node.law.shape == (7,) and node.law[[0, 2, 3, 5]].max() == 0
    check_output(
        ModelTable(4),
        source(kind, widths=(2,), vocabulary=[0, 2]),
        "sequoia",
        3,
    )


def test_a_cut_head_is_the_targets_own_on_every_target() -> None:
    for target in (
        *greedy_targets(),
        LeanTarget(tiny_llama(hidden_size=12, num_heads=2, num_kv_heads=1, tied=True)),
    ):
        made = source("hydra", widths=(2, 1), children="top_k", vocabulary=range(64))
        whole = source("hydra", widths=(2, 1), children="top_k")
        for one in (made, whole):
            one.heads.float()
        trees = [
            [
                r.tree.token_ids
                for r in generate(
                    target, [5, 9], one, "greedy", max_new_tokens=8
                ).rounds
            ]
            for one in (made, whole)
        ]
        assert trees[0] == trees[1]


@pytest.mark.parametrize(
    ("ids", "told"),
    [([], "empty"), ([1, 1], "twice"), ([-1], "negative"), ("12", "vocabulary")],
)
def test_a_bad_vocabulary_is_refused(ids: Any, told: str) -> None:
    with pytest.raises(SpecbookError, match=told):
        source("hydra", vocabulary=ids)


def test_a_vocabulary_beyond_the_targets_is_refused() -> None:
    with pytest.raises(SpecbookError, match="outside 0 .. 3"):
        source("hydra", vocabulary=[1, 4]).check_target(ModelTable(4))


# ------------------------------------------------------------------- what is refused


def test_h17_hydra_rows_and_retrieved_rows_meet_no_rule_that_reads_q() -> None:
    """Case H17 (d): refused before any target call, with the names of both."""
    target = ModelTable(4)
    rest = Rest(Datastore.build([[0, 3, 1, 2, 3, 1, 0]]), 2, 4)
    hydra = source("hydra", widths=(2, 1), children="iid")
    asked: list[Any] = []
    target.start = lambda prompt: asked.append(prompt)  # type: ignore[assignment]
    for rule in ("specinfer", "sequoia", "traversal", "single", "block", "kseq"):
        with pytest.raises(ContractError, match="refuses the proposal"):
            generate(
                target,
                [0, 3, 1],
                [hydra, rest],
                rule,
                max_new_tokens=3,
                temperature=1.0,
            )
    assert not asked
    names = admitted([hydra.contract, rest.contract])
    assert "membership" in names and not {"specinfer", "traversal"} & set(names)
    whole = ModelTable(4)
    result = generate(
        whole, [0, 3, 1], [hydra, rest], "membership", max_new_tokens=6, temperature=1.0
    )
    sources = {m.source for r in result.rounds for s in r.tree.sources for m in s}
    assert sources == {"hydra", "rest"}


def test_a_target_without_hidden_states_is_refused_before_it_is_asked(
    kind: str,
) -> None:
    asked: list[Any] = []

    def rows(prefix: tuple[int, ...]) -> Any:
        asked.append(prefix)
        return [1]

    for options in ({}, {"hidden": lambda prefix: [0.0] * 12}):
        table = TableTarget(rows, vocab_size=1, **options)  # type: ignore[arg-type]
        with pytest.raises(ContractError, match="a TableTarget does not give them"):
            generate(table, [0], source(kind), "greedy", max_new_tokens=3)
    assert not asked


def test_a_target_of_another_width_is_refused(kind: str) -> None:
    with pytest.raises(ContractError, match="width 12, the target's are 16"):
        source(kind).check_target(ModelTable(4, width=16))


def test_whoever_drives_it_must_show_the_states(kind: str) -> None:
    made = source(kind)
    with pytest.raises(SpecbookError, match="check_target"):
        made.start([0])
    made.check_target(ModelTable(4))
    draft = made.start([0, 1])
    assert not draft.propose(max_depth=9, max_nodes=9, chance=Sampler(0)).nodes
    draft.commit([2])
    with pytest.raises(SpecbookError, match="0 hidden states were shown for 2"):
        draft.propose(max_depth=9, max_nodes=9, chance=Sampler(0))
    draft.observe(torch.zeros(1, 12))
    with pytest.raises(SpecbookError, match="1 hidden states were shown for 2"):
        draft.propose(max_depth=9, max_nodes=9, chance=Sampler(0))
    for wrong, told in (
        ([[0.0] * 12], "list"),
        (torch.zeros(12), r"tensor \[n, 12\]"),
        (torch.zeros(1, 11), "width 11"),
    ):
        with pytest.raises(SpecbookError, match=told):
            draft.observe(wrong)


def test_heads_cannot_help_a_draft_model_in_silence() -> None:
    """A source that drives another does not show it any states; that is said, and not
    taken for a miss in every round."""
    from specbook.drafts.neural.draft_model import DraftModel
    from specbook.drafts.neural.staged import Staged

    target = ModelTable(4)
    helper = source("hydra")
    staged = Staged(DraftModel(target, widths=(1, 1, 1)), helper)
    with pytest.raises(SpecbookError, match="call observe"):
        generate(target, [0, 1], staged, "greedy", max_new_tokens=8)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"widths": (1,) * 5}, "5 levels deep, there are 4 heads"),
        ({"widths": (1,), "shape": cartesian((1,))}, "not both"),
        ({"widths": (3,), "children": "hub"}, "pairs"),
        ({"children": "beam"}, "children"),
        ({"stop_below": 2}, "stop_below"),
    ],
)
def test_bad_options_are_refused(kind: str, options: Any, told: str) -> None:
    with pytest.raises(SpecbookError, match=told):
        source(kind, **options)


def test_heads_of_another_kind_are_refused() -> None:
    with pytest.raises(ArtifactError, match="these are medusa heads, not hydra"):
        Hydra(shaken("medusa"))
    with pytest.raises(SpecbookError, match="folder of an artifact"):
        Hydra(3)


def test_a_bad_start_is_refused(kind: str) -> None:
    made = source(kind)
    made.check_target(ModelTable(4))
    for options in ({"prefix": []}, {"prefix": [4]}, {"vocab_size": 5}, {"policy": 1}):
        with pytest.raises(SpecbookError):
            made.start(**{"prefix": [0], **options})
    draft = made.start([0])
    with pytest.raises(SpecbookError):
        draft.commit([9])


def test_the_identity_tells_everything_apart(kind: str) -> None:
    variants = [
        source(kind),
        source(kind, seed=1),
        source(kind, widths=(1, 1)),
        source(kind, children="iid"),
        source(kind, stop_below=0.1),
        source(kind, vocabulary=[0, 1]),
        source(kind, vocabulary=[0, 2]),
    ]
    told = [made.identity() for made in variants]
    assert len(set(told)) == len(told)
    assert source(kind).identity() == told[0] and told[0].startswith(f"{kind} ")


def test_heads_that_are_not_shipped_are_said_to_be_so(
    kind: str, monkeypatch: Any
) -> None:
    def missing(*parts: str) -> Any:
        assert parts == (module.SHIPPED, kind)
        raise ArtifactError("no such file")

    monkeypatch.setattr(module.paths, "data_path", missing)
    with pytest.raises(ArtifactError, match=f"no {kind} heads are shipped"):
        SOURCES[kind]()
