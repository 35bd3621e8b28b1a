"""REST with the real target: an index of real sources, bound to its tokenizer, and
greedy equality with it."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from specbook import corpora
from specbook.drafts.rest import Rest, build_for_target, leakage
from specbook.engine import generate
from specbook.models import load_target
from tests.real.test_real_target import check_same_output

pytestmark = [pytest.mark.real, pytest.mark.slow]

PACKAGES = ("mpmath",)
HELD_OUT = Fraction(1, 10)
NEW_TOKENS = 24


@pytest.fixture(scope="module")
def target() -> Any:
    return load_target()


def test_real_sources_draft_for_the_real_target(target: Any, tmp_path: Path) -> None:
    store = build_for_target(
        tmp_path / "index", target, packages=PACKAGES, held_out=HELD_OUT
    )
    assert store.release.undeclared == ()
    assert store.release.tokenizer == target.identity()["tokenizer"]
    kept, held = corpora.split(corpora.package_sources(PACKAGES), HELD_OUT)
    # What was indexed is found whole, and what was held out is not.
    text = target.encode(kept[0].text)
    (found, other) = leakage.overlap(
        store, {"kept": text[:400], "held": target.encode(held[0].text)[:400]}
    )
    assert found.share == 1 and other.share < 1
    # A file's beginning, then decoding: the target may not follow it.
    prompt = text[:60]
    plain, drafted = (
        generate(target, prompt, source, max_new_tokens=NEW_TOKENS)
        for source in (None, Rest(store))
    )
    check_same_output(target, prompt, plain.tokens, drafted.tokens)
    # Equality without any accepted candidate would show nothing.
    assert sum(round_.accepted for round_ in drafted.rounds) > 0
    assert len(drafted.rounds) < len(plain.rounds)
