"""Teacher rows: the article's boundary rule, and the vectorised form of it."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specbook.errors import SpecbookError
from specbook.training import rows as module
from specbook.training.rows import eligible, head_rows, hydra_teacher_rows


def symbolic(lengths: list[int], max_future: int, **options: Any) -> Any:
    """Rows over segments of these lengths; vectors say where they come from."""
    segments = [s for s, length in enumerate(lengths) for _ in range(length)]
    n = len(segments)
    tokens = [100 + j for j in range(n)]
    return hydra_teacher_rows(
        tokens,
        [[("h", j)] for j in range(n)],
        max_future,
        **{
            "segment_ids": segments,
            "valid": [True] * n,
            "embed": lambda token: [("e", token - 100)],
            **options,
        },
    )


def literal(segments: Any, valid: Any, max_future: int) -> list[tuple[int, int]]:
    """(t, i) of every row, by the words of the rule and nothing clever."""
    n = len(segments)
    return [
        (t, i)
        for t in range(n)
        for i in range(1, max_future + 1)
        if t - 1 >= 0
        and t + i < n
        and all(valid[j] for j in range(t - 1, t + i + 1))
        and len({segments[j] for j in range(t - 1, t + i + 1)}) == 1
    ]


def test_one_segment_by_hand() -> None:
    assert symbolic([4], 9) == [
        (1, [("h", 0), ("e", 1)], 102),
        (2, [("h", 0), ("e", 1), ("e", 2)], 103),
        (1, [("h", 1), ("e", 2)], 103),
    ]


def test_two_segments_share_nothing() -> None:
    found = symbolic([3, 3], 5)
    assert found == [
        (1, [("h", 0), ("e", 1)], 102),
        (1, [("h", 3), ("e", 4)], 105),
    ]


@pytest.mark.parametrize(
    ("length", "total"), [(0, 0), (1, 0), (2, 0), (3, 1), (4, 3), (5, 6)]
)
def test_h27_short_documents_and_ten_heads(length: int, total: int) -> None:
    found = symbolic([length], 10)
    assert len(found) == total
    for head in range(1, 11):
        count = sum(1 for row in found if row[0] == head)
        assert count == max(length - head - 1, 0)


def test_an_inactive_token_cuts_the_segment() -> None:
    found = symbolic([6], 3, valid=[True, True, True, False, True, True])
    assert [(row[0], row[2]) for row in found] == [(1, 102)]


def test_a_segment_that_comes_back_is_not_joined_over_the_gap() -> None:
    assert symbolic([4], 2, segment_ids=[7, 7, 8, 7]) == []
    assert len(symbolic([3], 2, segment_ids=["a", "a", "a"])) == 1


def test_no_heads_no_rows() -> None:
    assert symbolic([5], 0) == []
    assert head_rows([0] * 5, [True] * 5, 0) == []
    assert eligible([], [], 3).shape == (0, 3)


streams = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from([True, True, True, False])),
    max_size=14,
)


def check_equal(segments: list[int], valid: list[bool], max_future: int) -> None:
    n = len(segments)
    wanted = literal(segments, valid, max_future)
    mask = module.eligible(segments, valid, max_future)
    assert mask.shape == (n, max_future) and mask.dtype == torch.bool
    assert [(t, i + 1) for t, i in mask.nonzero().tolist()] == wanted
    explicit = hydra_teacher_rows(
        list(range(n)),
        [[j] for j in range(n)],
        max_future,
        segment_ids=segments,
        valid=valid,
        embed=lambda token: [token],
    )
    indexed = [
        (part.head, [h, *e], label)
        for part in head_rows(segments, valid, max_future)
        for h, e, label in zip(
            part.hidden.tolist(),
            part.embedded.tolist(),
            part.labels.tolist(),
            strict=True,
        )
    ]
    assert sorted(indexed) == sorted(explicit)
    assert len(explicit) == len(wanted)


@settings(max_examples=300, deadline=None)
@given(streams, st.integers(0, 5))
def test_the_vectorised_form_is_the_rule(stream: Any, max_future: int) -> None:
    check_equal([s for s, _ in stream], [v for _, v in stream], max_future)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 7), max_size=5), st.integers(0, 6))
def test_a_segment_gives_head_i_all_but_i_plus_one(lengths: Any, heads: int) -> None:
    segments = [s for s, length in enumerate(lengths) for _ in range(length)]
    for part in head_rows(segments, [True] * len(segments), heads):
        wanted = sum(max(length - part.head - 1, 0) for length in lengths)
        assert len(part.labels) == wanted


def test_a_form_that_skips_no_first_token_would_be_seen(monkeypatch: Any) -> None:
    """The planted fault: the state before the first token of a segment, which is the
    last of another."""
    right = module.eligible

    def careless(segments: Any, valid: Any, max_future: int) -> torch.Tensor:
        return torch.cat(
            [right(segments, valid, max_future)[1:], right([0], [True], 1)]
        )

    monkeypatch.setattr(module, "eligible", careless)
    with pytest.raises(AssertionError):
        check_equal([0, 0, 0, 0], [True] * 4, 1)


def test_vectors_keep_the_form_they_come_in() -> None:
    shared: dict[str, Any] = {"segment_ids": [0] * 3, "valid": [True] * 3}
    (row,) = hydra_teacher_rows(
        [0, 1, 2], np.arange(6.0).reshape(3, 2), 1, embed=np.ones(2).__mul__, **shared
    )
    assert isinstance(row[1], np.ndarray) and row[1].tolist() == [0, 1, 1, 1]
    (row,) = hydra_teacher_rows(
        [0, 1, 2],
        torch.arange(6.0).reshape(3, 2),
        1,
        embed=lambda token: torch.full((2,), float(token)),
        **shared,
    )
    assert isinstance(row[1], torch.Tensor) and row[1].tolist() == [0, 1, 1, 1]
    thirds = [[Fraction(j, 3)] for j in range(3)]
    (row,) = hydra_teacher_rows(
        [0, 1, 2], thirds, 1, embed=lambda token: [Fraction(1, 7)], **shared
    )
    assert row == (1, [Fraction(0), Fraction(1, 7)], 2)


def good(**changes: Any) -> dict[str, Any]:
    return {
        "tokens": [1, 2, 3],
        "hidden": [[0.0]] * 3,
        "max_future": 2,
        "segment_ids": [0, 0, 0],
        "valid": [True] * 3,
        "embed": lambda token: [1.0],
        **changes,
    }


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"tokens": [1, 2]}, "2 tokens, 3 hidden rows"),
        ({"hidden": [[0.0]] * 4}, "4 hidden rows"),
        ({"segment_ids": [0, 0]}, "2 segment ids and 3 flags"),
        ({"valid": [True] * 2}, "3 segment ids and 2 flags"),
        ({"valid": [True, 1, True]}, r"valid\[1\]"),
        ({"segment_ids": [0, 0.5, 0]}, r"segment_ids\[1\]"),
        ({"segment_ids": [0, None, 0]}, r"segment_ids\[1\]"),
        ({"max_future": -1}, "max_future"),
        ({"max_future": True}, "max_future"),
        ({"max_future": 1.0}, "max_future"),
        ({"tokens": [1, -2, 3]}, r"tokens\[1\]"),
        ({"tokens": "abc"}, "tokens"),
        ({"hidden": 3}, "hidden"),
        ({"hidden": [0.0] * 3}, r"hidden\[0\]"),
        ({"hidden": np.zeros((3, 1, 1))}, r"hidden\[0\] must be a vector"),
        ({"embed": None}, "embed"),
        ({"embed": lambda token: 1.0}, r"embed\(2\)"),
    ],
)
def test_bad_input_is_refused(changes: dict[str, Any], told: str) -> None:
    assert len(hydra_teacher_rows(**good())) == 1
    with pytest.raises(SpecbookError, match=told):
        hydra_teacher_rows(**good(**changes))


def test_vectors_of_different_widths_are_refused() -> None:
    four = good(tokens=[1, 2, 3, 4], segment_ids=[0] * 4, valid=[True] * 4)
    with pytest.raises(SpecbookError, match=r"hidden\[1\] has 2 entries"):
        hydra_teacher_rows(**{**four, "hidden": [[0.0], [0.0, 1.0], [0.0], [0.0]]})
    with pytest.raises(SpecbookError, match=r"embed\(3\) has 3 entries"):
        hydra_teacher_rows(
            **{**four, "hidden": [[0.0]] * 4, "embed": lambda token: [0.0] * token}
        )
