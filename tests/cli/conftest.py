"""A tiny target in a folder, with a byte tokenizer: one token a byte, so that most
characters beyond ASCII span several tokens."""

import inspect

import pytest
from typer.testing import CliRunner

from tests.cli.helpers import Report

TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.fixture(autouse=True)
def plain_surroundings(monkeypatch):
    for name in ("SPECBOOK_TARGET", "FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def runner():
    return CliRunner()


@pytest.fixture
def no_model(monkeypatch):
    """Fails where a model is loaded."""
    from specbook import models
    from specbook.models import checkpoint, loading

    def never(*arguments, **options):
        raise AssertionError("a model was loaded for bad input")

    for module, name in (
        (models, "load_target"),
        (loading, "load_target"),
        (loading, "read_model"),
        (checkpoint, "load_transformers_model"),
        (checkpoint, "read_model"),
    ):
        monkeypatch.setattr(module, name, never)


@pytest.fixture
def calls_of(monkeypatch):
    """Called with a benchmark's module, puts a stand-in in the place of its `run` and
    gives the list of calls. It takes just the options that `run` takes."""

    def stand_in(module):
        calls, signature = [], inspect.signature(module.run)

        def run(*arguments, **options):
            signature.bind(*arguments, **options)
            options["progress"]("loading")
            calls.append((arguments, options))
            return Report()

        monkeypatch.setattr(module, "run", run)
        return calls

    return stand_in


def save_tiny(folder, template=TEMPLATE, max_positions=256):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    from specbook.models.tiny import tiny_llama

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: index for index, letter in enumerate(alphabet)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    if template:
        fast.chat_template = template
    model = tiny_llama(vocab_size=256, max_positions=max_positions)
    model.save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    return save_tiny(tmp_path_factory.mktemp("targets") / "tiny")


@pytest.fixture(scope="session")
def tiny_without_template(tmp_path_factory):
    return save_tiny(tmp_path_factory.mktemp("targets") / "base", template=None)
