"""Our sources inside `generate` of transformers: the same text, sooner."""

from __future__ import annotations

import pytest
import torch

from specbook.drafts.neural.medusa import Medusa
from specbook.drafts.prompt_lookup import PromptLookup
from specbook.drafts.rest import Datastore, Rest
from specbook.drafts.suffix import Suffix
from specbook.errors import ContractError, SpecbookError, TargetError
from specbook.export.assisted import Candidates, assisted, generate
from specbook.models.tiny import tiny_model

STORE = Datastore.build([[n % 9 for n in range(i, i + 60)] for i in range(9)])
SOURCES = {
    "prompt_lookup": PromptLookup(),
    "adaptive": PromptLookup.tuned(),
    "suffix": Suffix(),
    "rest": Rest(STORE),
}
FAMILIES = ("llama", "gpt2", "qwen2")


@pytest.fixture(scope="module")
def models():
    return {family: tiny_model(family, seed=1) for family in FAMILIES}


def prompts(model, count=3):
    generator = torch.Generator().manual_seed(0)
    for length in range(6, 6 + count):
        piece = torch.randint(0, 9, (1, length), generator=generator)
        yield torch.cat((piece, piece), dim=1)


@pytest.mark.parametrize("name", SOURCES)
@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_text_is_the_same_token_by_token(models, family, name):
    model = models[family]
    for ids in prompts(model):
        plain = model.generate(ids, do_sample=False, max_new_tokens=24)
        ours = generate(model, ids, SOURCES[name], do_sample=False, max_new_tokens=24)
        assert torch.equal(ours, plain)
        assert ours.shape[1] == ids.shape[1] + 24


def test_drafts_save_forwards(models):
    model = models["llama"]
    forwards = []
    hook = model.register_forward_hook(lambda *told: forwards.append(1))
    try:
        (ids,) = prompts(model, 1)
        model.generate(ids, do_sample=False, max_new_tokens=60)
        plain = len(forwards)
        generate(model, ids, PromptLookup(), do_sample=False, max_new_tokens=60)
    finally:
        hook.remove()
    assert plain == 60
    assert len(forwards) - plain < 60


class Liar:
    """A lookup that drafts what is certainly not there."""

    contract = PromptLookup.contract

    def start(self, text, **options):
        session = PromptLookup().start([0, 1] * 9, **options)
        session.commit = lambda tokens: None
        return session


def test_a_source_that_is_wrong_costs_time_and_no_token(models):
    model = models["llama"]
    (ids,) = prompts(model, 1)
    plain = model.generate(ids, do_sample=False, max_new_tokens=30)
    ours = generate(model, ids, Liar(), do_sample=False, max_new_tokens=30)
    assert torch.equal(ours, plain)


def test_the_model_and_the_library_stay_as_they_are(models):
    model = models["llama"]
    asks = type(model)._get_candidate_generator
    held, config = set(vars(model)), model.generation_config.to_dict()
    (ids,) = prompts(model, 1)
    generate(model, ids, PromptLookup(), do_sample=False, max_new_tokens=5)
    assert type(model)._get_candidate_generator is asks
    assert set(vars(model)) == held
    assert model.generation_config.to_dict() == config


def test_the_end_token_ends(models):
    model = models["llama"]
    (ids,) = prompts(model, 1)
    plain = model.generate(ids, do_sample=False, max_new_tokens=24)
    new = plain[0, ids.shape[1] :].tolist()
    for end in sorted(set(new))[:4]:
        options = {"do_sample": False, "max_new_tokens": 24, "eos_token_id": end}
        expected = model.generate(ids, **options)
        assert expected.shape[1] == ids.shape[1] + new.index(end) + 1
        for source in SOURCES.values():
            assert torch.equal(generate(model, ids, source, **options), expected)


@pytest.mark.parametrize("new", [1, 2, 3])
def test_no_token_too_many(models, new):
    model = models["llama"]
    for ids in prompts(model):
        ours = generate(model, ids, Suffix(), do_sample=False, max_new_tokens=new)
        assert ours.shape[1] == ids.shape[1] + new


def test_processors_and_scores(models):
    model = models["llama"]
    (ids,) = prompts(model, 1)
    options = {
        "do_sample": False,
        "max_new_tokens": 20,
        "repetition_penalty": 1.3,
        "return_dict_in_generate": True,
        "output_scores": True,
    }
    plain = model.generate(ids, **options)
    ours = generate(model, ids, PromptLookup(), **options)
    assert torch.equal(ours.sequences, plain.sequences)
    assert len(ours.scores) == len(plain.scores) == 20
    for one, other in zip(ours.scores, plain.scores, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


def test_sampling_of_one_candidate_is_greedy(models):
    model = models["llama"]
    (ids,) = prompts(model, 1)
    plain = model.generate(ids, do_sample=False, max_new_tokens=20)
    ours = generate(model, ids, Suffix(), do_sample=True, top_k=1, max_new_tokens=20)
    assert torch.equal(ours, plain)


class Screen:
    def __init__(self):
        self.shown, self.ended = [], False

    def put(self, tokens):
        self.shown += tokens.flatten().tolist()

    def end(self):
        self.ended = True


def test_a_streamer_sees_the_text(models):
    model, screen = models["llama"], Screen()
    (ids,) = prompts(model, 1)
    made = generate(
        model, ids, Suffix(), streamer=screen, do_sample=False, max_new_tokens=12
    )
    assert screen.shown == made[0].tolist() and screen.ended


def test_one_request_at_a_time(models):
    model = models["llama"]
    (ids,) = prompts(model, 1)
    two = ids.repeat(2, 1)
    for bad, told in (
        ({"input_ids": two}, "2 texts are to be generated"),
        ({"input_ids": ids, "num_beams": 2}, "not for beams"),
        (
            {"input_ids": ids, "num_return_sequences": 2, "do_sample": True},
            "2 texts are to be generated",
        ),
    ):
        with pytest.raises(SpecbookError, match=told):
            model.generate(**bad, custom_generate=assisted(Suffix()), max_new_tokens=3)
    with pytest.raises(SpecbookError, match="one request at a time"):
        Candidates(Suffix()).get_candidates(two)


def test_models_that_cannot_be_drafted_for():
    from transformers import (
        MambaConfig,
        MambaForCausalLM,
        T5Config,
        T5ForConditionalGeneration,
    )

    sizes = {"vocab_size": 16, "num_layers": 1}
    made = MambaForCausalLM(
        MambaConfig(hidden_size=8, state_size=4, num_hidden_layers=1, vocab_size=16)
    )
    ids = torch.tensor([[3, 4, 3, 4]])
    with pytest.raises(TargetError, match="cannot go back before a draft"):
        generate(made, ids, Suffix(), max_new_tokens=3)
    made = T5ForConditionalGeneration(
        T5Config(
            d_model=8, d_kv=4, d_ff=8, num_heads=2, decoder_start_token_id=0, **sizes
        )
    )
    with pytest.raises(TargetError, match="encoder-decoder"):
        generate(made, ids, Suffix(), max_new_tokens=3)


def test_a_prompt_without_ids(models):
    model = models["llama"]
    embedded = model.get_input_embeddings()(torch.tensor([[3, 4, 3]]))
    with pytest.raises(SpecbookError, match="the prompt has none"):
        model.generate(
            inputs_embeds=embedded,
            custom_generate=assisted(Suffix()),
            max_new_tokens=3,
        )


def test_what_cannot_draft_for_transformers(models):
    model = models["llama"]
    (ids,) = prompts(model, 1)
    for bad in (Medusa, "suffix", None):
        with pytest.raises(ContractError):
            assisted(bad)
    for length in (0, -1, True, None, 1.5):
        with pytest.raises(SpecbookError, match="length"):
            assisted(Suffix(), length=length)
    with pytest.raises(SpecbookError, match="names another drafter"):
        generate(model, ids, Suffix(), prompt_lookup_num_tokens=3)
    small = Datastore.build([[model.config.vocab_size, 1, 2]])
    with pytest.raises(ContractError, match="vocabulary"):
        generate(model, ids, Rest(small), max_new_tokens=3)


def test_another_text_is_noticed():
    candidates = Candidates(PromptLookup(), length=3, vocab_size=9)
    ids = torch.tensor([[1, 2, 1, 2]])
    found, logits = candidates.get_candidates(ids)
    assert (found.tolist(), logits) == ([[1, 2, 1, 2, 1, 2]], None)
    with pytest.raises(SpecbookError, match="not a continuation"):
        candidates.get_candidates(torch.tensor([[3, 2, 1, 2, 1]]))


def test_a_draft_stops_before_an_end_token():
    ids = torch.tensor([[5, 6, 7, 5, 6, 7, 5]])
    found, _ = Candidates(PromptLookup()).get_candidates(ids)
    assert found[0, 7:].tolist() == [6, 7, 5]
    found, _ = Candidates(PromptLookup(), ends=frozenset({7})).get_candidates(ids)
    assert found[0, 7:].tolist() == [6]
    for limit, drafts in ((9, 1), (8, 0), (7, 0)):
        found, _ = Candidates(PromptLookup(), limit=limit).get_candidates(ids)
        assert found.shape[1] == 7 + drafts


def test_the_drafts_are_those_of_the_whole_text():
    candidates, text = Candidates(PromptLookup(), length=4), [1, 2, 3, 4]
    for new in ([1], [2, 3], [4, 1, 2], [9, 3]):
        text = text + new
        found, _ = candidates.get_candidates(torch.tensor([text]))
        drafts = PromptLookup().start(text).propose(max_depth=4, max_nodes=4).nodes
        assert found[0, len(text) :].tolist() == [node.token_id for node in drafts]
    assert drafts
