"""The five architectures: one path, a whole tree and a training batch agree; what each
head looks at is what its section says; and no two blocks are one."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specbook.errors import SpecbookError
from specbook.models.heads import (
    KINDS,
    HeadsConfig,
    build,
    config_from_json,
    config_of,
    parts,
)
from specbook.models.heads.base import State
from specbook.models.heads.config import MIXING

from .making import CONFIGS, WIDTH, normal, shaken

EXACT = 1e-10
"""float64, a handful of products: what is off by more is another formula."""


@pytest.fixture(scope="module", params=KINDS)
def kind(request: Any) -> str:
    return request.param


# ------------------------------------------------- one path, a tree, a batch


def check_tree(heads: Any, seed: int, parents: list[int]) -> None:
    """A tree in levels, batched: every node's features are those of `forward` along
    its own path. `parents`: by node, earlier nodes or -1 for the pending token."""
    depth = {-1: 0}
    for node, parent in enumerate(parents):
        depth[node] = depth[parent] + 1
    base = normal(1, WIDTH, seed=seed)
    pending = normal(1, WIDTH, seed=seed + 1)
    tokens = normal(max(len(parents), 1), WIDTH, seed=seed + 2)
    states, row = {0: heads.start(base, pending)}, {-1: 0}
    for level in range(1, max(depth.values()) + 1):
        nodes = [n for n in range(len(parents)) if depth[n] == level]
        row.update({n: number for number, n in enumerate(nodes)})
        above = torch.tensor([row[parents[n]] for n in nodes])
        states[level] = heads.step(states[level - 1], above, tokens[nodes])
    count = heads.config.heads
    for node in (-1, *range(len(parents))):
        if depth[node] >= count:
            continue
        path: list[int] = []
        at = node
        while at >= 0:
            path.insert(0, at)
            at = parents[at]
        along = torch.cat([pending, tokens[path], normal(count, WIDTH, seed=99)])
        wanted = heads(base, along[None, :count])[0, len(path)]
        found = heads.features(states[depth[node]])[row[node]]
        assert (found - wanted).abs().max() <= EXACT


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1000), st.data())
def test_every_node_of_a_tree_is_on_its_own_path(seed: int, data: Any) -> None:
    count = data.draw(st.integers(0, 9))
    parents = [data.draw(st.integers(-1, node - 1)) for node in range(count)]
    for kind in KINDS:
        check_tree(shaken(kind), seed, parents)


def test_a_child_of_another_row_would_be_seen(monkeypatch: Any) -> None:
    """The planted fault: children take the rows of a level in order."""
    for kind in ("hydra", "hydra_plus", "clover"):
        heads = shaken(kind)
        right = heads.step

        def careless(state: State, rows: Any, tokens: Any, right: Any = right) -> State:
            return right(state, torch.zeros_like(rows), tokens)

        check_tree(heads, 0, [-1, -1, 0, 1])
        monkeypatch.setattr(heads, "step", careless)
        with pytest.raises(AssertionError):
            check_tree(heads, 0, [-1, -1, 0, 1])


def check_prefix(heads: Any, lengths: list[int], chunks: list[int]) -> None:
    """A packed stream, all at once, equals each segment read alone as it is committed,
    in pieces of `chunks` rows (over and over)."""
    segments = torch.tensor([s for s, n in enumerate(lengths) for _ in range(n)])
    hidden = normal(len(segments), WIDTH)
    whole = heads.base(hidden, segments)
    for segment in range(len(lengths)):
        cache, read = heads.cache(), []
        rows, turn = hidden[segments == segment], 0
        while len(rows):
            size = chunks[turn % len(chunks)]
            read.append(cache.extend(rows[:size]))
            rows, turn = rows[size:], turn + 1
        assert len(cache) == lengths[segment]
        difference = torch.cat(read) - whole[segments == segment]
        assert difference.abs().max() <= EXACT


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=3),
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
)
def test_the_prefix_is_read_alike_packed_and_as_committed(
    lengths: list[int], chunks: list[int]
) -> None:
    for kind in KINDS:
        check_prefix(shaken(kind), lengths, chunks)


def test_segments_that_are_not_told_apart_would_be_seen(monkeypatch: Any) -> None:
    """The planted fault: attention over the packed stream, whatever its segments."""
    right = parts.PrefixLayers.forward
    monkeypatch.setattr(
        parts.PrefixLayers,
        "forward",
        lambda self, hidden, segments: right(self, hidden),
    )
    for kind in ("hydra_plus", "clover"):
        check_prefix(shaken(kind), [5], [2])
        with pytest.raises(AssertionError):
            check_prefix(shaken(kind), [3, 4], [2])


def test_no_row_sees_a_later_one(kind: str) -> None:
    heads = shaken(kind)
    hidden = normal(6, WIDTH)
    changed = hidden.clone()
    changed[4] += 1
    difference = (heads.base(hidden) - heads.base(changed)).abs().amax(-1)
    assert difference[:4].max() == 0 and difference[4] > 0.1
    assert bool(difference[5] > 0.001) == bool(heads.config.prefix_layers)


# ------------------------------------------------------- what a head looks at


def reads(heads: Any) -> list[list[bool]]:
    """Whether head i (row) sees the embedding of the j-th token from x_t on."""
    count = heads.config.heads
    base, embeddings = normal(1, WIDTH), normal(1, count, WIDTH, seed=1)
    plain = heads(base, embeddings)[0]
    found = []
    for place in range(count):
        changed = embeddings.clone()
        changed[0, place] += normal(WIDTH, seed=2)
        difference = (heads(base, changed)[0] - plain).abs().amax(-1)
        found.append((difference > 1e-9).tolist())
    return [list(column) for column in zip(*found, strict=True)]


def test_independent_heads_see_no_token_at_all() -> None:
    assert reads(shaken("medusa")) == [[False] * 4] * 4
    assert shaken("medusa").independent


@pytest.mark.parametrize("kind", ["hydra", "hydra_plus", "clover"])
def test_dependent_heads_see_the_pending_token_and_all_before_them(kind: str) -> None:
    assert reads(shaken(kind)) == [[j <= i for j in range(4)] for i in range(4)]
    assert not shaken(kind).independent


def test_a_markov_head_sees_the_last_token_only() -> None:
    assert reads(shaken("markov")) == [[j == i for j in range(4)] for i in range(4)]
    assert not shaken("markov").independent


@pytest.mark.parametrize("kind", ["hydra", "hydra_plus"])
def test_hydra_head_i_is_i_plus_one_widths_wide(kind: str) -> None:
    widths = [n.mix.linear.in_features for n in shaken(kind).networks]
    assert widths == [(i + 1) * WIDTH for i in (1, 2, 3, 4)]


@pytest.mark.parametrize("kind", MIXING)
def test_heads_without_a_bent_way_are_linear_in_the_state(kind: str) -> None:
    straight, bent = (shaken(kind, bent=width, layers=1) for width in (0, 3))
    assert straight.config.bent == 0
    for heads, wanted in ((straight, True), (bent, False)):
        state = heads.start(normal(2, WIDTH), normal(2, WIDTH, seed=1))
        mix, added_to, inputs = heads.linear(state)
        ends = [mix(scale * added_to, scale * inputs) for scale in (0, 1, 2)]
        middle = (ends[0] + ends[2]) / 2
        assert ((middle - ends[1]).abs().max() <= EXACT) == wanted


def test_untrained_heads_repeat_the_targets_own_state(kind: str) -> None:
    heads = build(config_of(kind, WIDTH)).double()
    hidden, embeddings = normal(5, WIDTH), normal(5, 4, WIDTH, seed=1)
    base = heads.base(hidden)
    assert torch.equal(base, hidden)
    assert torch.equal(heads(base, embeddings), hidden[:, None].expand(5, 4, WIDTH))


def test_the_gate_over_one_key_starts_as_the_softmax_does() -> None:
    heads = shaken("clover")
    with torch.no_grad():
        heads.offset.fill_(1)
        heads.query.weight.zero_()  # a cosine of 0
    base, token = normal(3, WIDTH), normal(3, WIDTH, seed=1)
    carried = heads.start(base, token).parts[0]
    wanted = base + parts.unit(token) @ heads.value.weight.T
    assert (carried - wanted).abs().max() <= EXACT
    shape = (3, 3, 1, 4)  # rows, attention heads, one key, width of a head
    query, key, value = (normal(*shape, seed=n) for n in (5, 6, 7))
    softmax = torch.nn.functional.scaled_dot_product_attention(query, key, value)
    assert torch.equal(softmax, value)  # why one key needs another gate


# ----------------------------------------------------------- what it is made of


def check_distinct(heads: Any) -> None:
    """Each number is stored once, and there are as many as the config says."""
    stored = list(heads.state_dict().values())
    assert len({tensor.data_ptr() for tensor in stored}) == len(stored)
    assert len(stored) == len(list(heads.parameters()))
    assert sum(tensor.numel() for tensor in stored) == wanted_count(heads.config)


def wanted_count(c: HeadsConfig) -> int:
    """Numbers in a set of heads, from its config."""
    d, k = c.width, c.heads
    block = d * d + d
    decoder = 2 * d + 4 * d * d + 3 * d * c.inner

    def network(parts: int) -> int:
        mix = (parts * d * d + d) + c.bent * (parts * d + 1 + d)
        return mix + (c.layers - 1) * block

    own = {
        "medusa": k * c.layers * block,
        "hydra": sum(network(i + 1) for i in range(1, k + 1)),
        "clover": 3 * d * d + c.attention_heads + network(2),
        "markov": k * c.layers * block + 2 * c.rank * d,
    }
    own["hydra_plus"] = own["hydra"]
    return own[c.kind] + c.prefix_layers * decoder


def test_no_block_is_shared_and_none_is_forgotten(kind: str) -> None:
    check_distinct(shaken(kind))


def test_one_block_used_several_times_would_be_seen() -> None:
    """The planted fault of two official repositories: `[block] * n`."""
    heads: Any = build(config_of("medusa", WIDTH, layers=3))
    for head in range(4):
        heads.networks[head] = torch.nn.Sequential(*[heads.networks[head][0]] * 3)
    with pytest.raises(AssertionError):
        check_distinct(heads)


def test_every_parameter_learns(kind: str) -> None:
    """Zeros at the start leave some without a gradient for a step, none for three."""
    heads = build(config_of(kind, WIDTH, **CONFIGS[kind])).double()
    before = {name: p.detach().clone() for name, p in heads.named_parameters()}
    optimizer = torch.optim.SGD(heads.parameters(), lr=0.1)
    hidden, embeddings = normal(6, WIDTH), normal(6, 4, WIDTH, seed=1)
    for _ in range(4):
        features = heads(heads.base(hidden), embeddings)
        loss = (features - normal(6, 4, WIDTH, seed=2)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    for name, parameter in heads.named_parameters():
        assert not torch.equal(parameter, before[name]), name


def test_a_build_is_repeatable_and_moves_no_generator(kind: str) -> None:
    config = config_of(kind, WIDTH, **CONFIGS[kind])
    state = torch.get_rng_state()
    one, same, other = (build(config, seed).state_dict() for seed in (1, 1, 2))
    assert torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(one[name], same[name]) for name in one)
    # All of Medusa's numbers start at zero, whatever the seed.
    drawn = any(not torch.equal(one[name], other[name]) for name in one)
    assert drawn == (kind != "medusa")


@pytest.mark.parametrize("kind", ["hydra_plus", "clover"])
def test_a_segment_that_comes_back_is_another(kind: str) -> None:
    """As for rows and for the target's states: only neighbours are one document."""
    heads, hidden = shaken(kind), normal(5, WIDTH)
    back = heads.base(hidden, torch.tensor([0, 0, 1, 0, 0]))
    apart = heads.base(hidden, torch.tensor([0, 0, 1, 2, 2]))
    joined = heads.base(hidden[[0, 1, 3, 4]], torch.zeros(4))
    assert torch.equal(back, apart)
    assert (joined[2:] - back[3:]).abs().max() > 1e-3


# ------------------------------------------------------------------- bad input


def test_a_config_is_json_and_comes_back(kind: str) -> None:
    config = config_of(kind, 24, **CONFIGS[kind])
    assert config_from_json(json.loads(json.dumps(config.to_json()))) == config
    numpys = {name: np.int64(value) for name, value in CONFIGS[kind].items() if value}
    same = config_of(kind, np.int64(24), **numpys)
    assert json.dumps(same.to_json()) == json.dumps(config.to_json())
    with pytest.raises(SpecbookError, match="exactly"):
        config_from_json({**config.to_json(), "dropout": 0})
    with pytest.raises(SpecbookError, match="exactly"):
        config_from_json([1])


def test_the_usual_numbers_for_a_real_width() -> None:
    plus = config_of("hydra_plus", 576)
    assert (plus.heads, plus.layers, plus.prefix_layers) == (4, 4, 1)
    assert (plus.attention_heads, plus.inner) == (9, 1152)
    assert (plus.bent, config_of("medusa", 576).bent) == (144, 0)
    assert config_of("clover", 100).attention_heads == 1
    assert config_of("clover", 64, prefix_layers=0).inner == 0


@pytest.mark.parametrize(
    ("kind", "changes", "told"),
    [
        ("eagle", {}, "kind must be one of"),
        ("hydra", {"heads": 0}, "heads must be at least 1"),
        ("hydra", {"layers": True}, "layers must be an integer"),
        ("hydra", {"prefix_layers": 1}, "prefix_layers of hydra must be at most 0"),
        ("hydra", {"rank": 2}, "rank of hydra"),
        ("hydra", {"bent": -1}, "bent of hydra must be at least 0"),
        ("markov", {"bent": 3}, "bent of markov must be at most 0"),
        ("medusa", {"attention_heads": 1}, "attention_heads of medusa"),
        ("markov", {"rank": 0}, "rank of markov must be at least 1"),
        ("hydra_plus", {"prefix_layers": 0}, "prefix_layers of hydra_plus"),
        ("hydra_plus", {"attention_heads": 5}, "does not split"),
        ("clover", {"attention_heads": 12}, "even width"),
        ("clover", {"depth": 2}, "field of clover"),
        ("medusa", {"inner": 4}, "inner of medusa"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(
    kind: str, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(SpecbookError, match=told):
        config_of(kind, WIDTH, **changes)
    with pytest.raises(SpecbookError, match="width"):
        config_of("hydra", 0)
    with pytest.raises(SpecbookError, match="not a HeadsConfig"):
        build("hydra")  # type: ignore[arg-type]
    build(config_of("hydra", WIDTH), 2**64 - 1)
    with pytest.raises(SpecbookError, match="seed must be at most"):
        build(config_of("hydra", WIDTH), 2**64)


def test_shapes_that_do_not_fit_are_refused(kind: str) -> None:
    heads = shaken(kind)
    for hidden in (normal(3, WIDTH + 2), normal(WIDTH)):
        with pytest.raises(SpecbookError, match="hidden must be"):
            heads.base(hidden)
    with pytest.raises(SpecbookError, match=r"3 hidden rows and segments \[2\]"):
        heads.base(normal(3, WIDTH), torch.tensor([0, 1]))
    with pytest.raises(SpecbookError, match="base must be"):
        heads(normal(2, WIDTH + 1), normal(2, 4, WIDTH))
    with pytest.raises(SpecbookError, match="embeddings must be"):
        heads(normal(2, WIDTH), normal(2, 3, WIDTH))


def test_beyond_the_last_head_nothing_is_predicted(kind: str) -> None:
    heads = shaken(kind, heads=1)
    state = heads.start(normal(1, WIDTH), normal(1, WIDTH))
    assert len(state) == 1
    deeper = heads.step(state, torch.tensor([0]), normal(1, WIDTH))
    with pytest.raises(SpecbookError, match="no candidate of depth 2"):
        heads.features(deeper)
