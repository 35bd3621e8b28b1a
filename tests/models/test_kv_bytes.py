"""Key/value bytes: each schema's formula against the bytes of a real cache."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import transformers

from specbook.errors import SpecbookError
from specbook.models import kv_bytes, tiny
from specbook.models.cache import (
    KINDS,
    cache_argument,
    measured_growth,
    payload_bytes,
    sliding_windows,
)
from specbook.models.kv_bytes import (
    CacheSchema,
    FullLayer,
    GroupedLayer,
    WindowLayer,
    attention_shape,
    dense_bytes,
    dense_schema,
    fp8_schema,
    grouped_schema,
    latent_scalars,
    latent_schema,
    pages,
    window_schema,
)
from specbook.models.lean import LeanTarget
from specbook.models.target import TransformersTarget
from specbook.tree import CandidateTree

TREE = CandidateTree.from_rows([5, 6, 7, 8, 9], [-1, -1, 0, 0, 1], 3)
NO_TOKENS = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}


def gemma3() -> torch.nn.Module:
    """Three layers with a window of 8 and one without."""
    config = transformers.Gemma3TextConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=512,
        sliding_window=8,
        layer_types=[*["sliding_attention"] * 3, "full_attention"],
        **NO_TOKENS,
    )
    return tiny.build(transformers.Gemma3ForCausalLM, config)


# -------------------------------------------------------------------- real caches


@pytest.mark.parametrize("family", sorted({*tiny.families()} - {"deepseek_v3"}))
def test_dense_rows_cost_what_the_formula_says(family: str) -> None:
    model = tiny.tiny_model(family)
    layers, heads, width = attention_shape(model.config)
    for dtype, size in (("float32", 4), ("bfloat16", 2)):
        model = model.to(getattr(torch, dtype))
        for prefix, rows in ((1, 1), (5, 7)):
            payload, allocated = measured_growth(model, prefix, rows)
            expected = dense_bytes(
                rows, layers=layers, kv_heads=heads, head_dim=width, scalar_bytes=size
            )
            assert payload == expected == allocated
            assert dense_schema(model.config, dtype).growth(prefix, rows) == expected


def test_a_formula_that_forgets_the_values_is_found() -> None:
    model = tiny.tiny_llama()
    layers, heads, width = attention_shape(model.config)
    assert measured_growth(model, 2, 3)[0] != 3 * layers * heads * width * 4


def test_falcon_caches_the_repeated_heads_and_not_the_shared_ones() -> None:
    config = tiny.tiny_model("falcon").config
    assert config.num_kv_heads == 2 and attention_shape(config)[1] == 4


@pytest.mark.parametrize("kind", ["generic", "lean"])
def test_a_session_holds_the_rows_of_its_open_tree_and_then_those_of_a_path(
    kind: str,
) -> None:
    model = tiny.tiny_llama()
    target = TransformersTarget(model) if kind == "generic" else LeanTarget(model)
    session = target.start([1, 2, 3])
    row = dense_schema(model.config, "float32").growth(0, 1)
    assert row == session.bytes_per_row()
    session.verify(TREE)
    assert session.kv_bytes()[0] == (3 + len(TREE)) * row
    assert session.kv_bytes()[1] >= session.kv_bytes()[0]
    session.commit([0, 3], 4)
    assert session.kv_bytes()[0] == (3 + 2) * row


def test_a_latent_cache_keeps_the_latent_and_serves_trees() -> None:
    model = tiny.tiny_model("deepseek_v3")
    schema = latent_schema(model.config, "float32")
    assert latent_scalars(model.config) == (8 + 4, 4 * (8 + 4 + 8))
    for prefix, rows in ((1, 1), (5, 7)):
        measured = measured_growth(model, prefix, rows)[0]
        assert measured == schema.growth(prefix, rows) == rows * 2 * 12 * 4
        expanded = latent_schema(model.config, "float32", expanded=True)
        assert measured < expanded.growth(prefix, rows) == rows * 2 * 80 * 4
    # The target's self-test compares a tree with plain forwards.
    assert TransformersTarget(model).start([1]).bytes_per_row() == schema.growth(0, 1)
    with pytest.raises(SpecbookError, match="compressed"):
        attention_shape(model.config)


@pytest.mark.parametrize("family", ["gemma3", "mistral"])
def test_a_window_keeps_what_it_can_see(family: str) -> None:
    model = (
        gemma3() if family == "gemma3" else tiny.tiny_model(family, sliding_window=8)
    )
    windows = sliding_windows(model.config)
    assert windows
    for prefix, rows in product((1, 3, 6, 7, 8, 20), (1, 4, 9)):
        for kind, records in (("own", False), ("recording", True)):
            schema = window_schema(model.config, "float32", windows, records=records)
            measured = measured_growth(model, prefix, rows, kind)[0]
            assert measured == schema.growth(prefix, rows)
    own = window_schema(model.config, "float32", windows)
    dense = dense_schema(model.config, "float32")
    assert own.growth(20, 4) < dense.growth(20, 4)
    # A cache that can be rolled back keeps all candidates, windowed or not.
    kept = window_schema(model.config, "float32", windows, records=True)
    assert kept.growth(20, 4) == dense.growth(20, 4)


def test_what_a_window_holds_is_counted_without_its_counters() -> None:
    model = tiny.tiny_model("mistral", sliding_window=8)
    windows = sliding_windows(model.config)
    own, kept = (
        window_schema(model.config, "float32", windows, records=records)
        for records in (False, True)
    )
    for prefix in (3, 7, 20):
        cache = transformers.DynamicCache(config=model.config)
        ids = torch.zeros((1, prefix), dtype=torch.long)
        with torch.inference_mode():
            model(
                input_ids=ids, use_cache=True, **{cache_argument(model.forward): cache}
            )
        assert payload_bytes(cache) == own.held(prefix) == kept.held(prefix)


def test_a_slice_keeps_what_it_was_cut_from() -> None:
    model = tiny.tiny_model("mistral", sliding_window=8)
    payload, allocated = measured_growth(model, 7, 4, "own")
    assert payload == 0 < allocated == 4 * 2 * 2 * 2 * 8 * 4


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_quantised_rows_cost_what_the_formula_says(dtype: str) -> None:
    model = tiny.tiny_llama().to(getattr(torch, dtype))
    for prefix, rows in ((1, 1), (5, 7)):
        schema = fp8_schema(model.config)
        measured = measured_growth(model, prefix, rows, "fp8")[0]
        assert measured == schema.growth(prefix, rows)
        assert schema.held(prefix) == 2 * (prefix * 2 * 2 * 8 + 2 * 4)
    schema = grouped_schema(model.config, dtype, bits=4, group=16, residual=8)
    for prefix, rows in product((2, 6), (1, 7, 8, 9)):
        measured = measured_growth(model, prefix, rows, "grouped", group=16, residual=8)
        assert measured[0] == schema.growth(prefix, rows)
    # Seven rows that wait cost more than eight that are packed.
    assert schema.growth(6, 7) > schema.growth(6, 8)


def test_one_number_of_rows_many_numbers_of_bytes() -> None:
    config = tiny.tiny_model("mistral", sliding_window=8).config
    windows = sliding_windows(config)
    schemas = [
        dense_schema(config, "float32"),
        dense_schema(config, "bfloat16"),
        window_schema(config, "float32", windows),
        window_schema(config, "bfloat16", windows, records=True),
        fp8_schema(config),
        grouped_schema(config, "float32", bits=4, group=16, residual=8),
    ]
    assert len({schema.identity() for schema in schemas}) == len(schemas)
    same = replace(schemas[0], name="by another name")
    assert same.identity() == schemas[0].identity()


# -------------------------------------------------------------------------- pages


def simulated(tree: CandidateTree, page_rows: int, *, share: bool) -> int:
    """Page by page and token by token: how many pages the leaves' sequences open."""
    prefix = [("prefix", i) for i in range(tree.prefix_len)]
    whole = len(prefix) // page_rows * page_rows  # rows in full pages, which all share
    reused = whole < len(prefix)
    count, seen = 0, set()
    for path in tree.paths():
        tokens = [*prefix, *path]
        for start in range(whole, len(tokens), page_rows):
            page = tuple(tokens[: start + page_rows])
            if share and page in seen:
                continue
            seen.add(page)
            if reused and start == whole:
                reused = False  # the first branch goes on in the open page
                continue
            count += 1
    return count


def trees() -> list[CandidateTree]:
    paths = [p for d in (1, 2, 3) for p in product(range(2), repeat=d)]
    sets = [paths, paths[-2:], paths[:1], [(0, 1, 1), (0, 0, 1), (1,)], []]
    return [
        CandidateTree.from_paths(chosen, prefix)
        for chosen in sets
        for prefix in range(6)
    ]


@pytest.mark.parametrize("page_rows", [1, 2, 3, 4, 16])
def test_pages_are_those_of_a_simulation(page_rows: int) -> None:
    for tree in trees():
        found = pages(tree, page_rows)
        assert found.branches == simulated(tree, page_rows, share=True)
        assert found.copies == simulated(tree, page_rows, share=False)
        held = [
            -(-n // page_rows) for n in (tree.prefix_len + len(tree), tree.prefix_len)
        ]
        assert found.flat == held[0] - held[1]


def test_siblings_share_a_page_until_they_differ_in_it() -> None:
    pair = CandidateTree.from_paths([(1, 2, 3), (1, 2, 4)], 4)
    found = pages(pair, 2)
    assert (found.flat, found.branches, found.copies) == (2, 3, 4)
    apart = CandidateTree.from_paths([(1, 2, 3), (5, 2, 4)], 4)
    assert pages(apart, 2).branches == 4
    assert pages(CandidateTree.from_paths([], 3), 2).branches == 0


# ---------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (
            lambda: dense_bytes(-1, layers=1, kv_heads=1, head_dim=1, scalar_bytes=1),
            "rows must be at least 0",
        ),
        (
            lambda: dense_bytes(1, layers=True, kv_heads=1, head_dim=1, scalar_bytes=1),
            "layers must be an integer",
        ),
        (
            lambda: dense_bytes(1, layers=1, kv_heads=1, head_dim=1, scalar_bytes=0.5),
            "scalar_bytes must be an integer",
        ),
        (lambda: FullLayer(0, 4), "scalars must be at least 1"),
        (lambda: WindowLayer(4, 4, 1), "window must be at least 2"),
        (lambda: GroupedLayer(3, 4, 2, 4, 8, 4), "keys and values"),
        (lambda: CacheSchema("x", ()), "layers is empty"),
        (lambda: CacheSchema("x", (4,)), r"layers\[0\] is no layer schema"),
        (lambda: dense_schema(object(), "float32"), "no num_attention_heads"),
        (lambda: dense_schema(tiny.tiny_llama().config, "int8"), "dtype"),
        (lambda: latent_scalars(tiny.tiny_llama().config), "no kv_lora_rank"),
        (
            lambda: window_schema(tiny.tiny_llama().config, "float32", {2: 4}),
            "layer must be at most 1",
        ),
        (lambda: pages([(1,)], 2), "not a CandidateTree"),
        (lambda: pages(TREE, 0), "page_rows must be at least 1"),
        (lambda: measured_growth(tiny.tiny_llama(), 0, 1), "prefix must be at least"),
        (lambda: measured_growth(tiny.tiny_llama(), 1, 1, "odd"), "kind"),
        (
            lambda: measured_growth(tiny.tiny_llama(), 1, 1, "grouped", group=5),
            "groups of 5",
        ),
    ],
)
def test_bad_input_is_refused_by_name(action, words: str) -> None:
    with pytest.raises(SpecbookError, match=words):
        action()


def test_every_kind_of_cache_is_measured_here() -> None:
    model = tiny.tiny_llama()
    for kind in KINDS:
        assert measured_growth(model, 4, 2, kind, group=16, residual=8)[0] > 0
    assert set(kv_bytes.BYTES) == {"float64", "float32", "bfloat16", "float16"}


def test_numpys_integers_are_integers_of_a_schema() -> None:
    """They would wrap in a product, and spell another identity."""
    plain = CacheSchema("plain", (FullLayer(2**20, 4), WindowLayer(2**20, 4, 9)))
    counts = np.int32(2**20), np.int32(4)
    ours = CacheSchema("numpy", (FullLayer(*counts), WindowLayer(*counts, np.int32(9))))
    assert ours.identity() == plain.identity()
    assert ours.held(np.int32(1000), np.int8(100)) == plain.held(1000, 100) > 2**32


@pytest.mark.parametrize(
    "layer", [FullLayer(8, 4), WindowLayer(8, 4, 4), GroupedLayer(8, 4, 32, 8, 8, 4)]
)
def test_a_layer_holds_rows_that_are_counted(layer) -> None:
    for prefix, rows in ((-1, 2), (2, -1), (1.5, 1), ("a", 1), (None, 1), (True, 1)):
        with pytest.raises(SpecbookError, match="prefix|rows"):
            layer.held(prefix, rows)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"head_dim": "x"}, "head_dim must be an integer"),
        ({"head_dim": -4}, "head_dim must be at least 1"),
        ({"head_dim": 1.5}, "head_dim must be an integer"),
        ({"num_key_value_heads": "x"}, "num_key_value_heads must be an integer"),
        ({"num_key_value_heads": 0}, "num_key_value_heads must be at least 1"),
        ({"hidden_size": 2}, "hidden_size is below"),
        ({"num_hidden_layers": 10**12}, "num_hidden_layers must be at most"),
        ({"model_type": "falcon"}, "multi_query must be True or False"),
    ],
)
def test_a_config_that_cannot_be_right_is_refused_by_name(change, words: str) -> None:
    good = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 32}
    assert attention_shape(SimpleNamespace(**good)) == (2, 4, 8)
    with pytest.raises(SpecbookError, match=words):
        attention_shape(SimpleNamespace(**{**good, **change}))


@pytest.mark.parametrize("windows", [5, None, [4, 5], [(0, 4)]])
def test_windows_are_a_mapping(windows) -> None:
    with pytest.raises(SpecbookError, match="windows must map layers"):
        window_schema(tiny.tiny_llama().config, "float32", windows)
