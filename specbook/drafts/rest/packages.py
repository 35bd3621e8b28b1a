"""A datastore of the installed packages' sources, for a loaded target (0x04C)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from ... import corpora
from ...errors import SpecbookError
from . import leakage
from .datastore import Datastore

NORMALISATION = "source text as the file's own encoding reads it, no special tokens"


def build_for_target(
    path: str | os.PathLike[str],
    target: Any,
    *,
    packages: Iterable[str] = corpora.PACKAGES,
    held_out: Fraction = Fraction(1, 20),
    evaluation: Mapping[str, Iterable[int]] | None = None,
    n: int = leakage.NGRAM,
    **options: Any,
) -> Datastore:
    """Builds the file `path` from what `corpora.split` keeps of the packages.

    `target`: has `encode(text)` and `identity()`, as a loaded target does; the index is
    bound to both. `evaluation`: token sequences by name; files that share an n-gram of
    `n` tokens with one are left out, and what was asked for is bound. `options`: as in
    `Datastore.build_to` (`shard_tokens`, `continuation_length`, ...).
    """
    if not hasattr(target, "encode") or not hasattr(target, "identity"):
        raise SpecbookError(f"a target that encodes text is needed, got {target!r}")
    kept, held = corpora.split(corpora.package_sources(packages), held_out)
    documents: Iterable[Any] = (target.encode(file.text) for file in kept)
    exclusions = f"{len(held)} held-out files, snapshot {corpora.snapshot(held)}"
    if evaluation is not None:
        clean = leakage.exclude(documents, evaluation, n)
        documents = (document for _, document in clean)
        exclusions += f"; {leakage.manifest(evaluation, n)}"
    about = target.identity()
    return Datastore.build_to(
        path,
        documents,
        corpus="Python sources of " + ", ".join(corpora.licences(kept)),
        corpus_snapshot=corpora.snapshot(kept),
        licence="; ".join(f"{k}: {v}" for k, v in corpora.licences(kept).items()),
        exclusions=exclusions,
        tokenizer=about["tokenizer"],
        normalisation=NORMALISATION,
        calibrated_for=about["checkpoint"],
        **options,
    )
