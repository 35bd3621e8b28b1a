"""The skip vector: two entries a layer, three forms, and what is none."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from specbook.errors import SpecbookError
from specbook.models.skip_layers import SkipVector
from specbook.models.state import full_path


def test_every_vector_survives_its_forms() -> None:
    seen = set()
    for bits in itertools.product((False, True), repeat=4):
        vector = SkipVector.from_bits(bits)
        assert vector.bits == bits and vector.layers == 2
        assert vector.skipped == sum(bits)
        assert SkipVector.from_text(str(vector)) == vector
        assert SkipVector.from_json(json.loads(json.dumps(vector.to_json()))) == vector
        seen.add(str(vector))
    assert len(seen) == 16


def test_the_marks_say_which_sublayer() -> None:
    vector = SkipVector((False, True, False, True), (False, False, True, True))
    assert str(vector) == "-amx"
    assert vector.attentions == (0, 2)
    assert vector.path == (
        "embedding",
        *("0.attention", "0.mlp"),
        "1.mlp",
        "2.attention",
    )


def test_a_whole_layer_is_both_of_its_sublayers() -> None:
    vector = SkipVector.whole_layers(4, [3, 1])
    assert str(vector) == "-x-x"
    assert vector.attention == vector.mlp == (False, True, False, True)


def test_skipping_nothing_is_the_targets_own_path() -> None:
    vector = SkipVector.nothing(3)
    assert vector.path == full_path(3) and not vector.skipped


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: SkipVector((), ()), "two entries a layer"),
        (lambda: SkipVector((True,), (True, False)), "1 for attentions and 2"),
        (lambda: SkipVector((1,), (True,)), r"attention\[0\] must be True or False"),
        (lambda: SkipVector("no", "no"), "attention must be a sequence"),
        (lambda: SkipVector.from_bits([True] * 3), "got 3 in all"),
        (lambda: SkipVector.from_text("-b"), "layer 1 of the skip vector"),
        (lambda: SkipVector.from_text(""), "two entries a layer"),
        (lambda: SkipVector.from_text(5), "text must be text"),
        (lambda: SkipVector.whole_layers(2, [2]), "at most 1"),
        (lambda: SkipVector.whole_layers(0, []), "at least 1"),
        (lambda: SkipVector.nothing(True), "an integer"),
        (lambda: SkipVector.from_json({"layers": 1}), "has the fields"),
        (
            lambda: SkipVector.from_json({"layers": 1, "attention": [-1], "mlp": []}),
            "at least 0",
        ),
    ],
)
def test_what_is_no_vector_is_refused(make: Any, told: str) -> None:
    with pytest.raises(SpecbookError, match=told):
        make()
