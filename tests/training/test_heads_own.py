"""Self-conditioning: heads are given what they said, and the target's law there."""

import dataclasses

import pytest
import torch

from specbook.errors import SpecbookError
from specbook.models.heads import KINDS
from specbook.models.tiny import tiny_llama
from specbook.training import heads as loop
from specbook.training import packed
from specbook.training.packed import path_states

from .test_heads_training import CUT, HEADS, settings_of, shaken, taught, teacher

TOKENS = [3, 9, 11, 40, 7, 33, 60]
SEGMENTS = [0, 0, 0, 1, 1, 1, 1]
ROWS = torch.tensor([1, 2, 3, 5, 1])
PATHS = torch.tensor([[5, 6], [7, 8], [9, 1], [2, 3], [6, 5]])


@pytest.fixture(scope="module")
def sequences():
    return taught(4)


def plain_states(model):
    found = []
    for row, path in zip(ROWS.tolist(), PATHS.tolist(), strict=True):
        first = SEGMENTS.index(SEGMENTS[row])
        ids = torch.tensor([TOKENS[first : row + 1] + path])
        found.append(model.model(input_ids=ids).last_hidden_state[0, -2:])
    return torch.stack(found)


def test_a_path_is_read_as_if_it_were_the_text():
    model = tiny_llama(0).requires_grad_(False)
    found = path_states(model, TOKENS, SEGMENTS, ROWS, PATHS)
    torch.testing.assert_close(found, plain_states(model), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("fault", ["siblings", "places"])
def test_paths_that_see_each_other_or_stand_elsewhere_would_be_seen(monkeypatch, fault):
    """The planted faults: a causal mask over all rows, and places in the stream."""
    real = packed._states

    def wrong(model, ids, visible, position):
        if fault == "siblings":
            visible = visible.clone()
            visible[7:, 7:] = torch.ones(10, 10, dtype=torch.bool).tril()
        else:
            position = torch.arange(len(ids))
        return real(model, ids, visible, position)

    model = tiny_llama(0).requires_grad_(False)
    monkeypatch.setattr(packed, "_states", wrong)
    found = path_states(model, TOKENS, SEGMENTS, ROWS, PATHS)
    assert float((found - plain_states(model)).abs().max()) > 1e-2


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"segments": SEGMENTS[1:]}, "do not fit"),
        ({"rows": ROWS[1:]}, "do not fit"),
        ({"paths": PATHS[:, :0]}, "no path"),
        ({"rows": ROWS + 2}, "outside 0 .. 6"),
        ({"rows": ROWS - 2}, "outside 0 .. 6"),
        ({"paths": PATHS + 60}, "paths"),
    ],
    ids=[f"case{i}" for i in range(6)],
)
def test_paths_that_do_not_fit_are_refused(changes, told):
    options = {"segments": SEGMENTS, "rows": ROWS, "paths": PATHS, **changes}
    with pytest.raises(SpecbookError, match=told):
        path_states(tiny_llama(0), TOKENS, *options.values())


def plain_loss(heads, frozen, sequences):
    """Row by row: a chain of the heads' own tokens, and the target on that text."""
    sums, rows = [0.0] * HEADS, [0] * HEADS
    embed = frozen.model.get_input_embeddings().weight
    whole = frozen.model.get_output_embeddings().weight
    ids = frozen.ids(torch.arange(len(frozen.head())))
    place = {int(token): i for i, token in enumerate(ids)}
    for s in sequences:
        tokens = torch.from_numpy(s.tokens)
        base = heads.base(frozen.model.model(input_ids=tokens[None])[0][0])
        for t in range(1, len(tokens) - 1):
            given = [*tokens[: t + 1].tolist()]
            state = heads.start(base[t - 1 : t], embed[tokens[t]][None])
            for i in range(1, min(HEADS, len(tokens) - t - 1) + 1):
                if i > 1:
                    state = heads.step(state, torch.tensor([0]), embed[given[-1:]])
                q = torch.softmax(heads.features(state)[0] @ frozen.head().T, -1)
                read = torch.tensor([given])
                p = torch.softmax(
                    frozen.model.model(input_ids=read)[0][0, -1] @ whole.T, 0
                )
                given.append(int(ids[q.argmax()]))
                if t + i <= s.first_row:
                    continue
                top = p.topk(4)
                cells = [
                    (float(mass), place[token])
                    for mass, token in zip(
                        top.values.tolist(), top.indices.tolist(), strict=True
                    )
                    if token in place
                ]
                rows[i - 1] += 1
                if not cells:
                    continue
                masses = torch.tensor([mass for mass, _ in cells])
                other = torch.ones(len(q), dtype=torch.bool)
                other[[c for _, c in cells]] = False
                law = torch.cat([masses, 1 - masses.sum()[None]])
                mine = torch.cat([q[[c for _, c in cells]], q[other].sum()[None]])
                sums[i - 1] += (law * (law / mine).log()).sum()
    return sum(total / n for total, n in zip(sums, rows, strict=True))


@pytest.mark.parametrize("cut", [False, True], ids=["whole", "cut"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_loss_is_the_targets_law_behind_own_tokens(sequences, kind, cut):
    settings = settings_of(kind, self_share=1.0)
    frozen = teacher(CUT if cut else None)
    heads = shaken(settings)
    fast = loop.batch_loss(heads, frozen, sequences, settings)
    with torch.no_grad():
        slow = plain_loss(heads, frozen, sequences)
    torch.testing.assert_close(fast.detach(), slow, rtol=1e-3, atol=1e-4)
    # Independent heads do not look at the tokens, but the law behind them is another.
    forced = dataclasses.replace(settings, self_share=0.0)
    text = loop.batch_loss(heads, frozen, sequences, forced)
    assert abs(float((fast - text).detach())) > 1e-2


@pytest.mark.parametrize("heads", [3, 4])
def test_a_document_as_long_as_the_context_is_taught_by_its_text_at_its_end(
    sequences, heads
):
    """Behind its last tokens there is no place for all that the heads say. Three heads
    miss no row for that; the fourth's own tokens leave one to the text."""
    settings = settings_of("hydra", self_share=1.0, heads=heads)
    made, frozen = shaken(settings), teacher()

    def loss(limit, share=1.0):
        frozen.model.config.max_position_embeddings = limit
        changed = dataclasses.replace(settings, self_share=share)
        return float(loop.batch_loss(made, frozen, sequences, changed).detach())

    longest = max(len(s.tokens) for s in sequences)
    free, text, found = loss(512), loss(512, 0.0), loss(longest)
    assert abs(text - free) > 1e-2
    if heads == 3:
        assert found == pytest.approx(free, rel=1e-6)
    else:
        assert found not in (pytest.approx(free, rel=1e-6), pytest.approx(text))
    # Where there is a place for everything that is read, nothing is different.
    assert loss(longest + heads) == free


def test_the_text_s_law_behind_own_tokens_would_be_seen(sequences, monkeypatch):
    """The planted fault: own tokens go in, and the stored law stays."""
    settings, frozen = settings_of("hydra", self_share=1.0), teacher()
    heads = shaken(settings)
    right = loop.batch_loss(heads, frozen, sequences, settings)
    monkeypatch.setattr(
        loop,
        "path_states",
        lambda model, tokens, segments, rows, paths: packed.segment_causal_states(
            model, tokens, segments
        )[(rows[:, None] + torch.arange(1, HEADS)).clamp_max(len(tokens) - 1)],
    )
    wrong = loop.batch_loss(heads, frozen, sequences, settings)
    assert abs(float((right - wrong).detach())) > 1e-2


def test_a_share_is_drawn_for_each_step(sequences):
    settings, frozen = settings_of("hydra", self_share=0.5), teacher()
    heads = shaken(settings)

    def loss(seed, share=0.5):
        generator = torch.Generator().manual_seed(seed)
        changed = dataclasses.replace(settings, self_share=share)
        options = {"generator": generator}
        return loop.batch_loss(heads, frozen, sequences, changed, **options).item()

    assert loss(0) == loss(0)
    assert len({loss(0), loss(1), loss(0, 0.0), loss(0, 1.0)}) == 4
