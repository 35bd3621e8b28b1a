"""Faults between the tree's buffers and the target's rows: masks, positions, rows that
are read, rows that are broken, and rows that cannot be taken back."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import numpy as np
import torch

from ..models import tiny
from ..models.checkpoint import load_transformers_model
from ..models.fetch import quiet_transformers
from ..models.table import TableTarget
from ..models.target import TransformersTarget, check_config
from ..policy import SamplingPolicy
from ..tree import CandidateTree
from . import plant
from .fault import LOGITS, VARIATION, Fault
from .plant import Planted


@cache
def target(attention: str = "sdpa") -> TransformersTarget:
    """A tiny random Llama whose logits are far from flat."""
    return TransformersTarget(tiny.tiny_llama(attn_implementation=attention))


def self_test(
    planted: Callable[[], Planted], attention: str = "sdpa"
) -> Callable[[bool], Any]:
    """The self-test of the tiny target, with the fault or without it."""

    def attempt(wrong: bool) -> float:
        made = target(attention)
        world = planted() if wrong else plant.nothing()
        return plant.check(made, made.plain_logits, world)

    return attempt


def logit_gap(
    planted: Callable[[], Planted], attention: str = "sdpa"
) -> Callable[[bool], float]:
    """The largest logit gap of the same trees."""

    def harm(wrong: bool) -> float:
        made = target(attention)
        world = planted() if wrong else plant.nothing()
        return plant.gap(made, made.plain_logits, world)

    return harm


def _stateful(planted: bool) -> None:
    """A recurrent model keeps what it has read: a refused token stays in its state."""
    import transformers

    kind: Any = transformers.MambaConfig if planted else transformers.LlamaConfig
    sizes = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2}
    check_config(kind(**sizes))


# ---------------------------------------------------------------- tied weights


def _tied(planted: bool) -> Any:
    """A model whose head is its embedding is saved and loaded again. `planted`: its
    config no longer says so, and the file holds the one tensor for both."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "model")
        with quiet_transformers():
            tiny.tiny_llama(tied=True).save_pretrained(path)
        if planted:
            config = path / "config.json"
            about = json.loads(config.read_text(encoding="utf-8"))
            about["tie_word_embeddings"] = False
            config.write_text(json.dumps(about), encoding="utf-8")
        return load_transformers_model(path)


def _tied_harm(planted: bool) -> float:
    """The head is initialised afresh, as a loader does with what it does not find."""
    model = tiny.tiny_llama(tied=True)
    right = model.get_output_embeddings().weight
    fresh = torch.empty_like(right).normal_(
        std=model.config.initializer_range, generator=torch.Generator().manual_seed(0)
    )
    with torch.inference_mode():
        states = model.model(torch.tensor([[3, 1, 4, 1, 5]])).last_hidden_state[0]
        gap = states @ (fresh if planted else right).T - states @ right.T
    return float(gap.abs().max())


# ------------------------------------------------------------- prefix and context


def _old_prefix(planted: bool) -> Any:
    """A tree of the round before, offered to a session that has moved on."""
    session = target().start([3, 1, 4, 1])
    session.verify(CandidateTree.from_rows([5, 9], [-1, 0], 4))
    session.commit([0], 2)
    prefix = 4 if planted else len(session.tokens)
    return session.verify(CandidateTree.from_rows([6, 5], [-1, 0], prefix))


def _old_prefix_harm(planted: bool) -> float:
    from ..models import target as module

    made = target()
    with mock.patch.object(module, "check_tree", lambda *asked: None):
        rows = _old_prefix(planted)
    text = [3, 1, 4, 1, 5, 2, 6, 5]
    wanted = made.plain_logits(text)[5:]
    return max(
        float(np.abs(rows.logits(row) - wanted[row + 1]).max()) for row in (-1, 0, 1)
    )


def _context(planted: bool) -> Any:
    made = TableTarget(lambda prefix: [1.0, 0.0], vocab_size=2, context_limit=6)
    depth = 3 if planted else 2
    tree = CandidateTree.from_rows([0] * depth, range(-1, depth - 1), 4)
    return made.start([0] * 4).verify(tree)


# ------------------------------------------------------------------- broken rows


def _not_a_number(planted: bool) -> np.ndarray:
    logits = np.array([1.0, np.nan if planted else 2.0, 3.0])
    return SamplingPolicy(1.0).law_from_logits(logits, "row 0")


def _not_a_number_harm(planted: bool) -> Fraction:
    """What somebody gets who turns NaN into 0 and goes on: here logit 9 was lost."""
    right = SamplingPolicy(0.0).law_from_logits([1.0, 9.0, 3.0])
    found = SamplingPolicy(0.0).law_from_logits(
        np.nan_to_num([1.0, np.nan if planted else 9.0, 3.0])
    )
    return Fraction(int(np.abs(found - right).sum()), 2)


def _temperature(planted: bool) -> SamplingPolicy:
    return SamplingPolicy(-1.0 if planted else 1.0)


def _temperature_harm(planted: bool) -> float:
    logits = np.array([1.0, 4.0, 2.0])
    divided = np.exp(logits / (-1.0 if planted else 1.0))
    right = SamplingPolicy(1.0).law_from_logits(logits)
    return float(np.abs(divided / divided.sum() - right).sum() / 2)


FAULTS: tuple[Fault, ...] = (
    Fault(
        "sibling-leak",
        "target",
        "0x07E",
        "the candidates are masked as a chain: a lower triangle",
        "fluent text, a little unlike the target's, more so in wide trees",
        "the mask has its shape, its type and its zeros above the diagonal",
        "specbook.models.selftest.Plan.check",
        self_test(plant.siblings_leak),
        "logits of row 1 differ",
        logit_gap(plant.siblings_leak),
        LOGITS,
        ("PaddlePaddle/FastDeploy #3514",),
        "a leak smaller than what the dtype rounds away",
    ),
    Fault(
        "mask-added-as-numbers",
        "target",
        "0x0CA",
        "a mask of True and False reaches an attention that adds masks",
        "everything sees everything, and what may be seen a little better",
        "True and False are added as 1 and 0 without a word",
        "specbook.models.selftest.Plan.check",
        self_test(plant.mask_of_numbers, "eager"),
        "logits of row -1 differ",
        logit_gap(plant.mask_of_numbers, "eager"),
        LOGITS,
    ),
    Fault(
        "position-by-row",
        "target",
        "0x07E",
        "candidates stand at prefix + row in the rotary embedding",
        "the first candidates are right, siblings and their children are not",
        "one integer a row, and every one a position that exists",
        "specbook.models.selftest.Plan.check",
        self_test(plant.positions_by_row),
        "logits of row 1 differ",
        logit_gap(plant.positions_by_row),
        LOGITS,
        ("lablup/mlxcel #1214",),
    ),
    Fault(
        "output-one-row-off",
        "target",
        "0x07E",
        "the output of the row before is read as the row's own",
        "accepted candidates look like chance, the text stays fluent",
        "as many output rows as there were input rows",
        "specbook.models.selftest.Plan.check",
        self_test(plant.row_before),
        "logits of row 0 differ",
        logit_gap(plant.row_before),
        LOGITS,
    ),
    Fault(
        "state-that-cannot-go-back",
        "target",
        "0x0CB",
        "a recurrent model is verified on a tree",
        "refused tokens stay in the state, and the text drifts",
        "the forward takes any ids and gives a row for each",
        "specbook.models.target.check_config",
        _stateful,
        "keeps a recurrent state",
        seen=(
            "huggingface/transformers #46937",
            "huggingface/transformers #49036",
        ),
    ),
    Fault(
        "tied-weight-lost",
        "target",
        "0x0F",
        "a model with one tensor for embedding and head is saved, and loaded as one "
        "that has two",
        "a loaded model that writes noise",
        "the file is whole, and each weight in it has its shape",
        "specbook.models.fetch.check_loading_report",
        _tied,
        "missing keys: lm_head.weight",
        _tied_harm,
        LOGITS,
        ("huggingface/transformers #38870", "huggingface/transformers #43159"),
    ),
    Fault(
        "tree-of-the-last-round",
        "target",
        "0x0C",
        "a tree that was built before the last commit is verified after it",
        "candidates stand one round too early",
        "rows, parents and mask fit each other; only the prefix has grown",
        "specbook.models.protocol.check_tree",
        _old_prefix,
        "built for a prefix of 4 tokens",
        _old_prefix_harm,
        LOGITS,
        blind="a session that moved on and came back to the same length",
    ),
    Fault(
        "beyond-the-context",
        "target",
        "0x0C",
        "a tree is as deep as ever near the end of the context window",
        "rubbish or a crash in the last round; rotary models say nothing",
        "a position is an integer, and the next one is, too",
        "specbook.models.protocol.check_tree",
        _context,
        "would sit at position 6",
        seen=("turboderp-org/exllamav2 #274", "vllm-project/vllm #42533"),
    ),
    Fault(
        "nan-becomes-a-token",
        "target",
        "0x0F",
        "a NaN in a row of logits is turned into a number, and decoding goes on",
        "a token that no law ever gave",
        "the row has V numbers before and after",
        "specbook.policy.SamplingPolicy.law_from_logits",
        _not_a_number,
        "row 0: the target's logits have NaN",
        _not_a_number_harm,
        VARIATION,
        ("vllm-project/vllm #45060", "vllm-project/vllm #53029"),
    ),
    Fault(
        "temperature-below-zero",
        "target",
        "0x02B",
        "logits are divided by a temperature that nobody looked at",
        "the least probable token becomes the most probable one",
        "the division works, and the law sums to 1",
        "specbook.policy.SamplingPolicy",
        _temperature,
        "temperature must be at least 0",
        _temperature_harm,
        VARIATION,
        seen=("vllm-project/vllm #27077", "NVIDIA-NeMo/Automodel #3627"),
    ),
)
