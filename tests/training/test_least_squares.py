"""The linear start of draft heads: the closed form, and where it applies."""

import dataclasses

import pytest
import torch

from specbook.errors import SpecbookError
from specbook.models.heads import KINDS, build, config_of
from specbook.training import heads as loop
from specbook.training import least_squares
from specbook.training.losses import forced_tokens
from specbook.training.settings import WITH_A_LINEAR_WAY, HeadsSettings

from .test_heads_training import HEADS, SETTINGS, WIDTH, taught, teacher


@pytest.fixture(scope="module")
def sequences():
    return taught()


def made(kind, seed=0):
    return build(
        dataclasses.replace(SETTINGS, kind=kind, start=None).config(WIDTH), seed
    )


def rows_of(heads, frozen, sequence):
    """(head, its linear way, inputs, what it should add) for each head of a text."""
    stream = loop.pack([sequence])
    hidden = frozen.states(stream)
    mask = loop.row_mask(stream, HEADS)
    for head in range(HEADS):
        at = mask[:, head].nonzero()[:, 0]
        given = frozen.embed(forced_tokens(stream.tokens, at, HEADS))
        state = heads.start(heads.base(hidden)[at - 1], given[:, 0])
        for depth in range(1, head + 1):
            state = heads.step(state, torch.arange(len(at)), given[:, depth])
        mix, added_to, inputs = heads.linear(state)
        yield head, mix, inputs, hidden[at + head] - added_to


@pytest.mark.parametrize("tokens", [1, 30, 1024])
@pytest.mark.parametrize("kind", WITH_A_LINEAR_WAY)
def test_it_is_the_least_squares_of_all_rows(kind, tokens, sequences, monkeypatch):
    """Against a solver that is given the rows themselves, and the ridge as rows."""
    heads, frozen = made(kind), teacher()
    found = {}
    for sequence in sequences:
        for _, mix, inputs, wanted in rows_of(heads, frozen, sequence):
            columns = found.setdefault(mix, ([], []))
            columns[0].append(torch.cat([inputs, torch.ones(len(inputs), 1)], 1))
            columns[1].append(wanted)
    expected = {}
    for mix, (inputs, wanted) in found.items():
        x, y = torch.cat(inputs).double(), torch.cat(wanted).double()
        ridge = (least_squares.RIDGE * len(x)) ** 0.5 * torch.eye(x.shape[1])
        rows = torch.cat([x, ridge.double()])
        zeros = torch.zeros(x.shape[1], WIDTH, dtype=torch.float64)
        expected[mix] = torch.linalg.lstsq(rows, torch.cat([y, zeros])).solution
    monkeypatch.setattr(least_squares, "TOKENS", tokens)
    least_squares.start(heads, frozen, sequences)
    assert len(expected) == (1 if kind == "clover" else HEADS)
    for mix, solution in expected.items():
        weight, bias = mix.linear.weight, mix.linear.bias
        assert not bool(weight[WIDTH:].any()) and not bool(bias[WIDTH:].any())
        # What it says of the rows: with few of them the weights alone are ill defined.
        x = torch.cat(found[mix][0])
        said = x[:, :-1] @ weight[:WIDTH].T + bias[:WIDTH]
        close = {"atol": 1e-4, "rtol": 1e-3}
        torch.testing.assert_close(said.double(), x.double() @ solution, **close)


@pytest.mark.parametrize("kind", WITH_A_LINEAR_WAY)
def test_features_come_nearer_to_the_targets_states(kind, sequences):
    frozen, distances = teacher(), []
    for is_started in (False, True):
        heads = made(kind)
        if is_started:
            least_squares.start(heads, frozen, sequences)
        total = 0.0
        for sequence in sequences:
            stream = loop.pack([sequence])
            mask = loop.row_mask(stream, HEADS)
            at, _, features = loop.stream_features(heads, frozen, stream, mask)
            hidden, features = frozen.states(stream), features.detach()
            for head in range(HEADS):
                rows = mask[at, head]
                truth = hidden[at[rows] + head]
                total += float((features[rows, head] - truth).square().sum())
        distances.append(total)
    assert distances[1] < distances[0] / 2


def test_the_kinds_with_a_linear_way_are_those_that_have_one():
    linear = []
    for kind in KINDS:
        heads = made(kind)
        state = heads.start(torch.ones(2, WIDTH), torch.ones(2, WIDTH))
        linear += [kind] if heads.linear(state) is not None else []
    assert tuple(linear) == WITH_A_LINEAR_WAY


def test_a_start_is_that_of_its_kind_unless_told():
    found = {kind: HeadsSettings(kind).described()["start"] for kind in KINDS}
    assert {kind for kind, start in found.items() if start == "least_squares"} == {
        *WITH_A_LINEAR_WAY
    }
    assert HeadsSettings("hydra", start="identity").begins == "identity"
    with pytest.raises(SpecbookError, match="linear way, which medusa heads do not"):
        HeadsSettings("medusa", start="least_squares")
    with pytest.raises(SpecbookError, match="start"):
        HeadsSettings("hydra", start="random")


def test_what_cannot_start_is_refused(sequences):
    with pytest.raises(SpecbookError, match="medusa heads have no linear way"):
        least_squares.start(made("medusa"), teacher(), sequences)
    with pytest.raises(SpecbookError, match="there is no"):
        least_squares.start(made("hydra"), teacher(), [])
    with pytest.raises(SpecbookError, match="sequences must be"):
        least_squares.start(made("hydra"), teacher(), None)
    other = build(config_of("hydra", 2 * WIDTH, heads=HEADS))
    with pytest.raises(SpecbookError, match="hidden must be"):
        least_squares.start(other, teacher(), sequences)


def test_a_sequence_too_short_for_a_row_adds_nothing(sequences, monkeypatch):
    # So few rows that without a firm ridge their rounding would be seen.
    monkeypatch.setattr(least_squares, "RIDGE", 0.1)
    short = dataclasses.replace(
        sequences[0],
        tokens=sequences[0].tokens[:2],
        first_row=0,
        top_ids=sequences[0].top_ids[:1],
        top_logps=sequences[0].top_logps[:1],
    )
    said = []
    for texts in (sequences, [short, *sequences]):
        heads = made("hydra")
        least_squares.start(heads, teacher(), texts)
        stream = loop.pack(sequences)
        mask = loop.row_mask(stream, HEADS)
        said.append(loop.stream_features(heads, teacher(), stream, mask)[2])
    torch.testing.assert_close(*said, atol=1e-4, rtol=1e-3)
