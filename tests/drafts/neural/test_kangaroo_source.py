"""Kangaroo as a source: what it draws, when it stops, what it leaves to the target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from specbook.chance import Sampler, law
from specbook.drafts.neural import kangaroo as module
from specbook.drafts.neural.kangaroo import Kangaroo, KangarooSession
from specbook.drafts.prompt_lookup import PromptLookup
from specbook.engine import generate, round_manifest
from specbook.errors import ArtifactError, ContractError, SpecbookError, TargetError
from specbook.models import kangaroo as drafting
from specbook.models import kangaroo_storage
from specbook.models import trunk as trunk_module
from specbook.models.kangaroo import Adapter
from specbook.models.lean import LeanTarget
from specbook.models.shared_trunk import sharing
from specbook.models.state import StateError
from specbook.models.table import TableTarget
from specbook.models.target import TransformersTarget, UnsupportedTargetError
from specbook.models.tiny import tiny_model
from specbook.policy import SamplingPolicy
from specbook.training import artifact
from specbook.tree import CandidateTree
from tests.models.test_shared_trunk import FORMS, LEAN, counted

from .drafting import GREEDY, PLAIN

WIDTH, BOUNDARY = 16, 1
PROMPT = (0, 1, 1)


def model_of(form: str = "llama", vocab_size: int = 4, **changes: Any) -> Any:
    family = "llama" if form == LEAN else form
    width = {"n_embd": WIDTH, "n_head": 2} if family == "gpt2" else {
        "hidden_size": WIDTH,
        "intermediate_size": 16,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
    }  # fmt: skip
    return tiny_model(family, 1, vocab_size=vocab_size, **width, **changes)


def target_of(form: str = "llama", vocab_size: int = 4, **changes: Any) -> Any:
    """float64, but for the lean one, which is float32."""
    model = model_of(form, vocab_size, **changes)
    if form == LEAN:
        return LeanTarget(model)
    return TransformersTarget(model.double())


def adapter_of(seed: int = 0, width: int = WIDTH) -> Adapter:
    """One whose attention says something, in float64."""
    adapter = Adapter(width, 2).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in adapter.parameters():
            mean = float(parameter.dim() == 1)  # a norm is near to 1
            parameter.normal_(mean, 0.4, generator=generator)
    return adapter.eval()


def source(seed: int = 0, **options: Any) -> Kangaroo:
    return Kangaroo(adapter_of(seed), **{"boundary": BOUNDARY, **options})


def path_of(tokens: Sequence[int], prefix_len: int) -> CandidateTree:
    return CandidateTree.from_rows(tokens, range(-1, len(tokens) - 1), prefix_len)


def begun(
    made: Kangaroo, target: Any, prompt: Sequence[int], policy: SamplingPolicy = PLAIN
) -> tuple[Any, KangarooSession]:
    """The target's session and the drafter's, joined, as the engine joins them."""
    form = made.target_for(target)
    made.check_target(form)
    session = form.start(list(prompt))
    draft = made.start(prompt, vocab_size=target.vocab_size, policy=policy)
    draft.join(session)
    return session, draft


# --------------------------------------------------------------- the output's law


def plain_law(model: Any, prompt: tuple[int, ...], count: int) -> Any:
    """Token by token, from plain forwards alone."""

    def row(prefix: tuple[int, ...]) -> Any:
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([list(prefix)])).logits[0, -1]
        return torch.softmax(logits.double(), -1).tolist()

    found = {(): 1.0}
    for _ in range(count):
        found = {
            (*tokens, token): mass * p
            for tokens, mass in found.items()
            for token, p in enumerate(row((*prompt, *tokens)))
        }
    return found


def check_output(
    form: str,
    made: Any,
    rule: str,
    count: int,
    vocab: int,
    *,
    most: float = 1e-12,
    prompt: tuple[int, ...] = PROMPT,
) -> set[tuple[int, ...]]:
    """The law of `generate` is that of the target; the draft lengths that were seen."""
    model = model_of(form, vocab)
    plain = LeanTarget(model) if form == LEAN else TransformersTarget(model.double())
    target = sharing(plain, BOUNDARY)
    about = target.identity()
    target.identity = lambda: about  # hashing the model takes longer than decoding
    lengths: set[tuple[int, ...]] = set()

    def program(chance: Any) -> tuple[int, ...]:
        result = generate(
            target,
            list(prompt),
            made,
            rule,
            max_new_tokens=count,
            temperature=1.0,
            chance=chance,
        )
        lengths.add(tuple(len(r.tree) for r in result.rounds))
        return tuple(result.tokens)

    found, wanted = law(program), plain_law(model, prompt, count)
    assert set(found) == set(wanted)
    assert max(abs(found[key] - wanted[key]) for key in wanted) <= most
    assert any(sum(length > 0 for length in one) >= 2 for one in lengths)
    return lengths


RULES = [
    (1, 0.6, "single", 3, 4),
    (2, 0.0, "single", 4, 2),
    (2, 0.0, "block", 4, 2),
    (2, 0.9, "single", 4, 2),
    (2, 0.0, "membership", 4, 2),
]
"""Tokens of a draft, threshold, rule, tokens, vocabulary: a few hundred leaves each."""


@pytest.mark.parametrize(("most", "threshold", "rule", "count", "vocab"), RULES)
def test_two_rounds_have_the_targets_law(
    most: int, threshold: float, rule: str, count: int, vocab: int
) -> None:
    made = source(most=most, threshold=threshold)
    lengths = check_output("llama", made, rule, count, vocab)
    if threshold == 0.9:  # the second exit is taken in some rounds and not in all
        assert {length for one in lengths for length in one} >= {1, 2}


@pytest.mark.parametrize("form", ["qwen2", "qwen3", "gpt2"])
def test_two_rounds_of_other_families_have_the_targets_law(form: str) -> None:
    check_output(form, source(most=2, threshold=0.0), "single", 3, 2)


def test_two_rounds_of_the_lean_target_have_its_law() -> None:
    made = source(most=2, threshold=0.0)
    check_output(LEAN, made, "single", 3, 2, most=1e-5)


def test_after_a_prompt_of_one_token_the_law_is_the_targets() -> None:
    made = source(most=2, threshold=0.0)
    check_output("llama", made, "single", 3, 2, prompt=(1,))


def test_merged_with_a_source_that_copies_the_law_is_the_targets() -> None:
    made = [source(most=1), PromptLookup(2, 2)]
    check_output("llama", made, "membership", 4, 2, prompt=(0, 1, 0))


def test_a_law_that_is_not_the_one_drawn_from_would_be_seen(monkeypatch: Any) -> None:
    """The planted fault: each token says the law of another place."""
    right = drafting.draft_chain

    def careless(draft: Any, choose: Any, *rest: Any) -> Any:
        return right(draft, lambda row, law: choose(row, law[::-1].copy()), *rest)

    made = source(most=2, threshold=0.0)
    monkeypatch.setattr(module, "draft_chain", careless)
    # Drawn and told alike, the law may be any: nothing is wrong with that.
    check_output("llama", made, "single", 3, 2)
    node = module.ProposalNode

    def told(**fields: Any) -> Any:
        wrong = fields["law"][::-1].copy()
        return node(**{**fields, "law": wrong, "q": wrong[fields["token_id"]]})

    monkeypatch.setattr(module, "ProposalNode", told)
    with pytest.raises(AssertionError):
        check_output("llama", made, "single", 3, 2)


def test_a_token_dropped_for_falling_short_would_be_seen(monkeypatch: Any) -> None:
    """The planted fault: the second exit drops what was drawn if that itself is
    improbable, so that what is kept has another law than q says."""
    right = KangarooSession._draft

    def careless(self: Any, nodes: Any, most: int, chance: Any) -> None:
        right(self, nodes, most, chance)
        if nodes[-1].q < 0.4:
            nodes.clear()

    made = source(most=1, threshold=0.0)
    check_output("llama", made, "single", 3, 2)
    monkeypatch.setattr(KangarooSession, "_draft", careless)
    with pytest.raises(AssertionError):
        check_output("llama", made, "single", 3, 2)


def test_a_shallow_row_of_another_position_would_be_seen(monkeypatch: Any) -> None:
    """The planted fault: verification takes any drafted row of the same token."""
    made = source(most=2, threshold=0.0)
    monkeypatch.setattr(trunk_module, "_name", lambda key: key.token_id)
    # Found by the token alone, the row is still compared in all fields, and computed.
    check_output("llama", made, "single", 4, 2)
    monkeypatch.setattr(trunk_module, "may_reuse", lambda candidate, need: True)
    with pytest.raises(StateError, match="position is"):
        check_output("llama", made, "single", 4, 2)
    monkeypatch.setattr(trunk_module, "check_reuse", lambda tag, need: None)
    with pytest.raises((AssertionError, StateError)):
        check_output("llama", made, "single", 4, 2)


# ------------------------------------------------------------------ greedy decoding


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("threshold", [0.0, 0.6])
def test_greedy_output_is_plain_greedy_and_no_layer_runs_twice_for_a_row(
    form: str, threshold: float
) -> None:
    model = model_of(form, 64)
    target = (LeanTarget if form == LEAN else TransformersTarget)(model)
    made = Kangaroo(adapter_of().float(), boundary=BOUNDARY, threshold=threshold)
    layered = made.target_for(target)
    drafted = 0
    for prompt in ([5], [9, 8, 7, 9, 8]):
        plain = generate(target, prompt, None, "greedy", max_new_tokens=14)
        with counted(layered) as rows:
            found = generate(target, prompt, made, "greedy", max_new_tokens=14)
        assert found.tokens == plain.tokens
        lengths = [len(r.tree) for r in found.rounds]
        block = len(prompt) + len(lengths) - 1 + sum(lengths)
        assert rows == [block] * len(rows)
        drafted += sum(lengths)
    assert drafted > 20


def test_an_adapter_that_is_right_is_accepted_whole() -> None:
    """The target repeats one token, whatever it has read, and so does any draft that
    reads its rows by its own head."""
    model = model_of(vocab_size=8)
    with torch.no_grad():
        model.lm_head.weight.zero_()
        model.lm_head.weight[7] = 1
        model.model.norm.weight.fill_(1)
        model.model.embed_tokens.weight.fill_(1)
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
    target = TransformersTarget(model, self_test=False)
    made = Kangaroo(Adapter(WIDTH, 2), boundary=1, most=4, threshold=0.0)
    found = generate(target, [1, 2], made, "greedy", max_new_tokens=15)
    assert found.tokens == [7] * 15
    assert [len(r.committed) for r in found.rounds] == [5, 5, 5]


@pytest.mark.parametrize("form", ["llama", LEAN])
def test_any_source_may_be_merged_with_it(form: str) -> None:
    target = target_of(form, 64)
    prompt = [9, 8, 7, 9, 8, 3, 9]
    plain = generate(target, prompt, None, "greedy", max_new_tokens=12).tokens
    one, other = source(threshold=0.0), source(1, threshold=0.0, most=2)
    for made in ([one, PromptLookup(2, 3)], [PromptLookup(2, 3), one], [one, other]):
        found = generate(target, prompt, made, "greedy", max_new_tokens=12)
        assert found.tokens == plain
        assert all(len(r.tree) for r in found.rounds[:-1])


@pytest.mark.parametrize("limits", [(0, 9), (9, 0), (1, 9), (9, 1), (2, 3)])
def test_it_keeps_within_any_budget(limits: tuple[int, int]) -> None:
    depth, nodes = limits
    target, made = target_of(vocab_size=64), source(threshold=0.0)
    plain = generate(target, [1, 2], None, "greedy", max_new_tokens=9).tokens
    found = generate(
        target, [1, 2], made, "greedy",
        max_new_tokens=9, max_depth=depth, max_nodes=nodes,
    )  # fmt: skip
    assert found.tokens == plain
    assert len(found.rounds[0].tree) == min(limits)
    assert max(len(r.tree) for r in found.rounds) == min(limits)


def test_rounds_in_which_it_was_given_no_room_are_caught_up_with() -> None:
    target, made = target_of(vocab_size=64), source(threshold=0.0)
    session, draft = begun(made, target, [1, 2, 3], GREEDY)
    for token in (5, 6):
        assert not draft.propose(max_depth=0, max_nodes=9).nodes
        session.verify(path_of([], len(session.tokens)))
        session.commit([], token)
        draft.commit([token])
    assert len(draft.propose(max_depth=3, max_nodes=9).nodes) == 3
    found = torch.softmax(draft.draft.begin(), -1).numpy()
    assert np.abs(found - reference(target, made, session.tokens)).max() <= 1e-10


def reference(target: Any, made: Kangaroo, tokens: Sequence[int]) -> np.ndarray:
    """The adapter's law after `tokens` from whole forwards alone."""
    with torch.inference_mode():
        full = target.model(
            input_ids=torch.tensor([list(tokens)]), output_hidden_states=True
        )
        rows = made.adapter(full.hidden_states[made.boundary][0])
        logits = target.model.get_output_embeddings()(rows[-1])
        if made.vocabulary is not None:
            cut = torch.full_like(logits, -torch.inf)
            cut[list(made.vocabulary)] = logits[list(made.vocabulary)]
            logits = cut
        return torch.softmax(logits, -1).numpy()


@pytest.mark.parametrize("vocabulary", [None, (1, 4, 6)])
@pytest.mark.parametrize("form", ["llama", "gpt2"])
def test_every_node_carries_the_law_it_was_drawn_from(
    form: str, vocabulary: tuple[int, ...] | None
) -> None:
    """Rounds with paths of any length, whole and cut, and with tokens of others."""
    target = target_of(form, 7)
    made = source(threshold=0.0, most=3, vocabulary=vocabulary)
    session, draft = begun(made, target, [0, 3, 1])
    random = np.random.default_rng(1)
    for number in range(10):
        proposal = draft.propose(max_depth=9, max_nodes=9, chance=Sampler(number))
        assert len(proposal.nodes) == 3
        assert proposal.state_handle.generation == number
        path: list[int] = []
        for index, node in enumerate(proposal.nodes):
            assert (node.parent, node.depth) == (index - 1, index + 1)
            wanted = reference(target, made, [*session.tokens, *path])
            assert np.abs(node.law - wanted).max() <= 1e-10
            assert node.q == node.law[node.token_id]
            path.append(node.token_id)
        for name in ("probability_semantics", "sampling_relation", "topology"):
            assert getattr(proposal, name) == getattr(made.contract, name)
        length = len(session.tokens)
        kept = 3 if number % 3 == 0 else int(random.integers(4))
        tree = path_of(path, length)
        if number % 4 == 3:  # a path that another source drafted
            tree, kept = path_of(random.integers(7, size=3).tolist(), length), 2
        session.verify(tree)
        session.commit(range(kept), int(random.integers(7)))
        draft.commit(session.tokens[length:])


def test_a_path_that_others_drafted_replaces_the_adapters_rows(
    monkeypatch: Any,
) -> None:
    """The planted fault: rows are kept by their number, whatever tokens they are of."""
    target = target_of(vocab_size=7)
    made = source(threshold=0.0, most=3)

    def rounds() -> None:
        session, draft = begun(made, target, [0, 3, 1], GREEDY)
        drafted = [
            node.token_id for node in draft.propose(max_depth=3, max_nodes=3).nodes
        ]
        others = [(token + 1) % 7 for token in drafted]
        length = len(session.tokens)
        session.verify(
            CandidateTree.from_rows([*drafted, *others], [-1, 0, 1, -1, 3, 4], length)
        )
        session.commit([3, 4, 5], 2)
        draft.commit(session.tokens[length:])
        logits = draft.draft.begin()
        found = torch.softmax(logits, -1).numpy()
        wanted = reference(target, made, session.tokens)
        assert np.abs(found - wanted).max() <= 1e-10

    rounds()
    monkeypatch.setattr(drafting, "_same_token", lambda read, committed: True)
    with pytest.raises(AssertionError):
        rounds()


# --------------------------------------------------------- the adapter's own state


def played(
    made: Kangaroo, target: Any, accepted: int, then: Callable[[Any, Any], None]
) -> None:
    """One round of three tokens of which so many are kept; `then` looks at it."""
    session, draft = begun(made, target, [0, 3, 1], GREEDY)
    proposal = draft.propose(max_depth=3, max_nodes=3)
    length = len(session.tokens)
    session.verify(CandidateTree.from_proposals(proposal, length))
    session.commit(range(accepted), 2)
    draft.commit(session.tokens[length:])
    then(session, draft)


def check_next_law(made: Kangaroo, target: Any, accepted: int) -> None:
    def look(session: Any, draft: Any) -> None:
        node = draft.propose(max_depth=1, max_nodes=1).nodes[0]
        wanted = reference(target, made, session.tokens)
        assert node.token_id == wanted.argmax()
        found = torch.softmax(draft.draft.begin(), -1).numpy()
        assert np.abs(found - wanted).max() <= 1e-10

    played(made, target, accepted, look)


@pytest.mark.parametrize("accepted", range(4))
def test_the_next_draft_has_read_what_was_committed(accepted: int) -> None:
    target, made = target_of(vocab_size=7), source(threshold=0.0, most=3)
    check_next_law(made, target, accepted)


def test_rows_that_were_not_rolled_back_after_a_refusal_would_be_seen(
    monkeypatch: Any,
) -> None:
    """The planted fault: the rows of refused tokens stay in the adapter's cache; then:
    as many rows are kept as it should be, and they are others."""
    target, made = target_of(vocab_size=7), source(threshold=0.0, most=3)
    monkeypatch.setattr(drafting.KangarooDraft, "_keep", lambda self, rows: None)
    with pytest.raises(StateError, match="would be that of position"):
        check_next_law(made, target, 0)
    monkeypatch.undo()

    @torch.inference_mode()
    def keeps_the_last(self: Any, rows: int) -> None:
        dropped = self._length - rows
        for held in self._held._held or ():
            held[:, :rows] = held[:, dropped : dropped + rows].clone()
        self._length = rows

    monkeypatch.setattr(drafting.AdapterCache, "keep", keeps_the_last)
    with pytest.raises(AssertionError):
        check_next_law(made, target, 0)


def test_a_lag_that_is_not_made_up_for_would_be_seen(monkeypatch: Any) -> None:
    """The planted fault: after full acceptance the row of the last drafted token, which
    the adapter has not read, is forgotten; then: its own place is not waited for."""
    target, made = target_of(vocab_size=7), source(threshold=0.0, most=3)
    right = drafting.KangarooDraft.commit

    def forgets(self: Any) -> None:
        right(self)
        self._waiting = None

    monkeypatch.setattr(drafting.KangarooDraft, "commit", forgets)
    for accepted in range(3):  # whoever was refused lags behind by nothing
        check_next_law(made, target, accepted)
    with pytest.raises(StateError, match="row 5 would be that of position 6"):
        check_next_law(made, target, 3)
    read = drafting.KangarooDraft._read

    def renumbers(self: Any, rows: Any) -> Any:
        """Reads the pending token in the place of the one that is missing."""
        if rows.tags[0].key.position == len(self._cache) + 1:
            self._cache.extend(rows.tensor[:1])
            self._tags.append(self._tags[-1])
        return read(self, rows)

    monkeypatch.setattr(drafting.KangarooDraft, "_read", renumbers)
    with pytest.raises(AssertionError):
        check_next_law(made, target, 3)


def test_an_adapters_row_is_refused_by_the_commit() -> None:
    """The planted fault: a row that the adapter made stands for the target's own."""
    target, made = target_of(vocab_size=7), source(threshold=0.0, most=3)
    session, draft = begun(made, target, [0, 3, 1], GREEDY)
    proposal = draft.propose(max_depth=3, max_nodes=3)
    session.verify(CandidateTree.from_proposals(proposal, 3))
    state = session._state
    right, adapters = state.tags[4], draft.draft.tags[4]
    assert adapters.key == right.key  # all seven fields agree
    state.tags[4] = adapters
    with pytest.raises(StateError, match=r"row 4 .*'adapter' and cannot be published"):
        session.commit([0, 1], 2)
    session.commit([0], 2)  # without it nothing is wrong
    assert len(session.tokens) == 5


# -------------------------------------------------------------------- two exits, ends


def test_the_token_that_falls_short_is_kept_and_nothing_follows_it() -> None:
    target = target_of(vocab_size=7)
    seen = set()
    for threshold in (0.0, 0.3, 0.5, 0.9, 1.0):
        made = source(threshold=threshold)
        for first in range(7):
            _, draft = begun(made, target, [first, 3])
            proposal = draft.propose(max_depth=6, max_nodes=6, chance=Sampler(first))
            tops = [float(node.law.max()) for node in proposal.nodes]
            assert all(top >= threshold for top in tops[:-1])
            assert tops[-1] < threshold or len(tops) == 6
            seen.add(len(tops))
    assert seen >= {1, 6} and len(seen) > 2


def test_the_confidence_is_untempered_and_the_draw_is_not() -> None:
    target = target_of(vocab_size=7)
    made = source(threshold=0.5)
    cold, plain = (
        begun(made, target, [2, 3], SamplingPolicy(t, top_k=k))[1].propose(
            max_depth=6, max_nodes=6, chance=Sampler(0)
        )
        for t, k in ((0.25, 3), (1.0, None))
    )
    base = plain.nodes[0].law
    wanted = SamplingPolicy(0.25, top_k=3).law_from_probabilities(base)
    assert np.abs(cold.nodes[0].law - wanted).max() <= 1e-10
    for _, draft in [begun(made, target, [2, 3], SamplingPolicy(0.25))]:
        nodes = draft.propose(max_depth=6, max_nodes=6, chance=Sampler(0)).nodes
        tokens = [2, 3]
        for index, node in enumerate(nodes):
            sure = reference(target, made, tokens).max()
            assert (sure >= 0.5) == (index < len(nodes) - 1) or index == 5
            tokens.append(node.token_id)


def test_an_end_token_in_a_block_ends_it() -> None:
    target = target_of(vocab_size=64)
    made = source(threshold=0.0)
    plain = generate(target, [1, 2], None, "greedy", max_new_tokens=12).tokens
    for end in sorted(set(plain)):
        wanted = plain[: plain.index(end) + 1]
        found = generate(
            target, [1, 2], made, "greedy", max_new_tokens=12, eos_token_id=end
        )
        assert (found.tokens, found.stop_reason) == (wanted, "eos")


@pytest.mark.parametrize("form", ["llama", "gpt2", LEAN])
def test_it_ends_at_the_context_limit(form: str) -> None:
    limit = {"n_positions" if form == "gpt2" else "max_position_embeddings": 12}
    target = target_of(form, 64, **limit)
    made = source(threshold=0.0)
    plain = generate(target, [1, 2], None, "greedy", max_new_tokens=30)
    found = generate(target, [1, 2], made, "greedy", max_new_tokens=30)
    assert found.tokens == plain.tokens and len(found.tokens) == 10
    assert found.stop_reason == "context"
    _, draft = begun(made, target, list(range(11)), GREEDY)
    assert len(draft.propose(max_depth=9, max_nodes=9).nodes) == 1
    _, draft = begun(made, target, list(range(12)), GREEDY)
    assert not draft.propose(max_depth=9, max_nodes=9).nodes


def test_a_round_that_is_asked_twice_says_the_same() -> None:
    made = source(threshold=0.0)
    _, draft = begun(made, target_of(vocab_size=7), [0, 1])
    one, other = (
        draft.propose(max_depth=4, max_nodes=9, chance=Sampler(3)) for _ in range(2)
    )
    assert [n.token_id for n in one.nodes] == [n.token_id for n in other.nodes]
    for a, b in zip(one.nodes, other.nodes, strict=True):
        assert np.abs(a.law - b.law).max() <= 1e-12


def test_a_bfloat16_target_feeds_a_float32_adapter() -> None:
    model = model_of(vocab_size=64).to(torch.bfloat16)
    for target in (LeanTarget(model), TransformersTarget(model)):
        for vocabulary in (None, range(0, 64, 2)):
            made = Kangaroo(
                adapter_of().float(), boundary=1, vocabulary=vocabulary, threshold=0.0
            )
            found = generate(
                target, [1, 2], made, "single", max_new_tokens=8, temperature=1.0
            )
            assert len(found.tokens) == 8 and any(r.tree for r in found.rounds)


def test_a_cut_vocabulary_has_q_zero_elsewhere_and_keeps_the_law() -> None:
    made = source(vocabulary=[2, 0], most=1)
    assert made.vocabulary == (0, 2)
    _, draft = begun(made, target_of(), [0, 1])
    node = draft.propose(max_depth=1, max_nodes=1, chance=Sampler(0)).nodes[0]
    assert node.law.shape == (4,) and not node.law[[1, 3]].any()
    check_output("llama", made, "single", 3, 4)


# ------------------------------------------------------------------ forms, artifacts


def test_the_form_is_made_once_and_named_by_the_manifest() -> None:
    target, made = target_of(vocab_size=7), source()
    form = made.target_for(target)
    assert made.target_for(target) is form
    assert made.target_for(form) is form
    frozen = round_manifest(target, made, "greedy", GREEDY)
    assert f"trunk of {BOUNDARY}" in frozen.backend
    found = generate(target, [1], made, max_new_tokens=3, manifest=frozen)
    assert found.manifest == frozen
    assert made.target_for(target) is form  # also after the form itself was asked for


def test_a_form_at_another_boundary_is_refused() -> None:
    form = sharing(target_of(num_hidden_layers=3), 2)
    with pytest.raises(TargetError, match="first 2 layers already"):
        generate(form, [1], source(), max_new_tokens=2)


def published(folder: Path, target: Any, **options: Any) -> Path:
    """An artifact as a training command makes it."""
    made = folder / "making"
    made.mkdir()
    adapter = adapter_of().float()
    kangaroo_storage.write(
        made, adapter, **{"boundary": BOUNDARY, "dtype": "float32", **options}
    )
    about = {
        "kind": kangaroo_storage.KIND,
        "name": "tiny",
        "target": dict(target.identity()),
    }
    artifact.publish(made, folder / "adapter", about)
    return folder / "adapter"


@pytest.mark.parametrize("form", ["llama", LEAN])
def test_a_source_from_a_folder_drafts_as_the_adapter_in_memory(
    form: str, tmp_path: Path
) -> None:
    target = target_of(form, 16)
    folder = published(tmp_path, target, vocabulary=[9, 3, 12, 4])
    memory = Kangaroo(adapter_of().float(), boundary=BOUNDARY, vocabulary=[3, 4, 9, 12])
    trees = [
        [r.tree.token_ids for r in generate(
            target, [1, 2], made, "greedy", max_new_tokens=6
        ).rounds]
        for made in (
            memory,
            Kangaroo(folder),
            Kangaroo(str(folder), boundary=BOUNDARY),
            Kangaroo(kangaroo_storage.read(folder)),
        )
    ]  # fmt: skip
    assert all(tree == trees[0] for tree in trees) and any(trees[0])
    assert Kangaroo(folder).vocabulary == (3, 4, 9, 12)
    assert Kangaroo(folder).identity() == Kangaroo(str(folder)).identity()
    with pytest.raises(SpecbookError, match="above 1 layers, boundary is 2"):
        Kangaroo(folder, boundary=2)
    other = TransformersTarget(model_of(vocab_size=16, hidden_act="relu"))
    with pytest.raises(ArtifactError, match="trained for the checkpoint"):
        generate(other, [1], Kangaroo(folder), "greedy", max_new_tokens=2)
    with pytest.raises(ArtifactError, match="trained for the checkpoint"):
        Kangaroo(folder).check_target(sharing(other, BOUNDARY))


def test_an_adapter_that_is_not_shipped_is_said_to_be_so(monkeypatch: Any) -> None:
    def missing(*parts: str) -> Any:
        assert parts == module.SHIPPED
        raise ArtifactError("no such file")

    monkeypatch.setattr(module.paths, "data_path", missing)
    with pytest.raises(ArtifactError, match="no adapter is shipped"):
        Kangaroo()


# ------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"most": 0}, "most"),
        ({"threshold": 1.5}, "threshold"),
        ({"threshold": float("nan")}, "threshold"),
        ({"boundary": 0}, "boundary"),
        ({"boundary": None}, "give boundary"),
        ({"vocabulary": []}, "empty"),
        ({"vocabulary": [1, 1]}, "twice"),
    ],
)
def test_bad_options_are_refused(options: Any, told: str) -> None:
    with pytest.raises(SpecbookError, match=told):
        source(**options)


def test_what_is_no_adapter_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecbookError, match="folder of an artifact"):
        Kangaroo(3)
    with pytest.raises(ArtifactError, match="no artifact"):
        Kangaroo(tmp_path)


def test_a_target_whose_layers_cannot_be_reached_is_refused() -> None:
    table = TableTarget(lambda prefix: [1], vocab_size=1)
    with pytest.raises(UnsupportedTargetError, match="TableTarget has no layers"):
        generate(table, [0], source(), max_new_tokens=2)
    target = target_of()
    with pytest.raises(ContractError, match="does not share its first 1 layers"):
        source().check_target(target)
    with pytest.raises(ContractError, match="width 8, the target's are 16"):
        Kangaroo(adapter_of(width=8), boundary=1).check_target(sharing(target, 1))
    with pytest.raises(SpecbookError, match=r"outside 0 .. 3"):
        source(vocabulary=[1, 4]).check_target(sharing(target, 1))


def test_whoever_drives_it_must_join_it_to_the_targets_session() -> None:
    target, made = target_of(vocab_size=7), source(threshold=0.0)
    with pytest.raises(SpecbookError, match="check_target"):
        made.start([0])
    form = made.target_for(target)
    made.check_target(form)
    for wrong in ({"prefix": []}, {"prefix": [7]}, {"vocab_size": 8}, {"policy": 1}):
        with pytest.raises(SpecbookError):
            made.start(**{"prefix": [0], **wrong})
    draft = made.start([0, 1])
    with pytest.raises(SpecbookError, match=r"call join\(session\)"):
        draft.propose(max_depth=1, max_nodes=1, chance=Sampler(0))
    with pytest.raises(StateError, match="shares its trunk"):
        draft.join(target.start([0, 1]))
    with pytest.raises(SpecbookError, match="another target"):
        draft.join(sharing(target, 1).start([0, 1]))
    with pytest.raises(SpecbookError, match="not at this request's prompt"):
        draft.join(form.start([0, 2]))
    session = form.start([0, 1])
    draft.join(session)
    with pytest.raises(SpecbookError, match="chance is needed"):
        draft.propose(max_depth=1, max_nodes=1)
    with pytest.raises(SpecbookError, match="not what the target's session"):
        draft.commit([3])
    session.verify(path_of([], 2))
    session.commit([], 3)
    with pytest.raises(SpecbookError, match="not what the target's session"):
        draft.commit([4])
    draft.commit([3])


def test_the_identity_tells_everything_apart() -> None:
    variants = [
        source(),
        source(1),
        source(most=3),
        source(threshold=0.5),
        source(boundary=2),
        source(vocabulary=[0, 1]),
        source(vocabulary=[0, 2]),
    ]
    told = [made.identity() for made in variants]
    assert len(set(told)) == len(told)
    assert source().identity() == told[0] and told[0].startswith("kangaroo ")
    assert source(most=3).artifact_identity() == source().artifact_identity()
