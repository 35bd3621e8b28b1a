"""The data of a distillation: what the frozen target says, and how probable it was.

Two kinds of text are taught. The target answers asks in the form of the benchmark
workloads, some greedily and some warm; and it reads stretches of package sources.
Every batch is one shard in the cache folder; an interrupted run goes on with the
first missing shard, and shard i is the same whether others were made before or not.

Nothing that is reported on is taught: held-out files and the frozen prompts stay
outside, and a separate file holds the target's greedy answers to the development
prompts and its rows on held-out files, for validation.
"""

from __future__ import annotations

import gc
import itertools
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .. import checks, corpora, prompts
from ..errors import SpecbookError
from ..models.checkpoint import checked_source, load_transformers_model
from ..models.target import TransformersTarget
from ..paths import cache_dir
from . import asks, shards
from .decoding import TaughtSequence, continue_all
from .settings import CYCLE, NEW_TOKENS, TEMPERATURES, Recipe

VALIDATION_WINDOWS = 16
VALIDATION_TOKENS = 128
"""New tokens of an answer to a development prompt, as the benchmarks ask for."""

_MORE_SOURCE = 1 << 33
"""Beyond the number of any other shard: what extra stretches of source are drawn from.
"""

_PATIENCE = 50
"""Asks drawn for each that is used, before we say that they are too long."""

Progress = Callable[[str], None]


@dataclass(frozen=True)
class TeacherData:
    """Shards that are on disk. `files`: name to sha256, in order; `counts`: sequences
    and taught rows, in all and by kind; `validation`: name to sha256."""

    folder: Path
    key: str
    target: dict[str, str]
    recipe: dict[str, Any]
    corpus: dict[str, Any]
    files: dict[str, str]
    counts: dict[str, Any]
    validation: dict[str, str]

    @property
    def digest(self) -> str:
        """What a run that is taught with these files is bound to."""
        return self.key + "".join(self.files.values())

    def described(self) -> dict[str, Any]:
        """As plain JSON, for a manifest; the target has a place of its own there."""
        return {
            "recipe": self.recipe,
            "corpus": self.corpus,
            "key": self.key,
            "counts": self.counts,
            "files": self.files,
            "validation": self.validation,
        }

    def sequences(self) -> list[TaughtSequence]:
        """All sequences that are taught, in order."""
        found: list[TaughtSequence] = []
        for name in self.files:
            found += shards.read(self.folder / name, key=self.key)[0]
        return found

    def validation_sequences(self) -> dict[str, list[TaughtSequence]]:
        """The sequences of each validation set by name: the four workloads and
        "source"."""
        return {
            Path(name).stem.removeprefix("validation-"): shards.read(
                self.folder / name, key=self.key
            )[0]
            for name in self.validation
        }


def make(
    target: str | None = None,
    recipe: Recipe | None = None,
    *,
    rows: int,
    source_rows: int = 0,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> TeacherData:
    """Teacher data of at least `rows` taught rows; what is on disk already is used.

    `source_rows`: so many more on stretches of package sources alone, which the target
    only reads: several times cheaper than what it has to write.
    `target`: a folder or hub id, None for the default target; it must be Llama-like.
    `folder`: by default one of its own in the cache, named by what makes the data.
    The number of shards depends on `rows` alone, so one command gives one data set.
    """
    recipe = recipe or Recipe()
    checks.integer(rows, "rows", least=1)
    checks.integer(source_rows, "source_rows", least=0)
    say = progress or (lambda line: None)
    source = checked_source(target)
    kept, held = corpora.split(
        corpora.package_sources(recipe.packages), recipe.held_out
    )
    if not kept or not held:
        raise SpecbookError(
            f"{len(kept)} files to teach and {len(held)} held out: both are needed"
        )
    taught_files, held_files = asks.by_package(kept), asks.by_package(held)
    corpus = {
        "taught": {"files": len(kept), "snapshot": corpora.snapshot(kept)},
        "held_out": {"files": len(held), "snapshot": corpora.snapshot(held)},
        "licences": corpora.licences([*kept, *held]),
    }
    maker = _Maker(source, recipe, corpus)
    where = folder or cache_dir() / "training" / f"teacher-{maker.key[:16]}"
    validation = _validation(maker, held_files, where, say)
    files: dict[str, str] = {}
    by_kind: dict[str, dict[str, int]] = {}

    def add(path: Path, kind: str, number: int, goal: str) -> int:
        """The rows of a shard, which is made if it is not there."""
        if not path.exists():
            begun = time.monotonic()
            taught = maker.shard(kind, number, taught_files)
            made = sum(len(s.top_ids) for s in taught)
            shards.write(path, taught, key=maker.key, about={"kind": kind})
            seconds = time.monotonic() - begun
            say(f"{path.stem} ({kind}), {goal}: {made / seconds:.0f} rows a second")
        taught, about = shards.read(path, key=maker.key)
        if about.get("kind") != kind:
            raise SpecbookError(f"{path} holds {about.get('kind')!r}, not {kind!r}")
        files[path.name] = shards.file_sha256(path)
        count = by_kind.setdefault(kind, {"sequences": 0, "rows": 0, "prompts": 0})
        found = sum(len(s.top_ids) for s in taught)
        count["sequences"] += len(taught)
        count["rows"] += found
        count["prompts"] += sum(s.prompt_length for s in taught)
        return found

    done = more = 0
    while done < rows:
        index = len(files)
        path = where / f"teacher-{index:04d}.safetensors"
        goal = f"teacher rows: {done} of {rows} before"
        done += add(path, CYCLE[index % len(CYCLE)], index, goal)
    for index in itertools.count():
        if more >= source_rows:
            break
        path = where / f"source-{index:04d}.safetensors"
        goal = f"source rows: {more} of {source_rows} before"
        more += add(path, "source", _MORE_SOURCE + index, goal)
    done += more
    counts = {"rows": done, "by_kind": dict(sorted(by_kind.items()))}
    return TeacherData(
        where,
        maker.key,
        maker.identity,
        recipe.described(),
        corpus,
        files,
        counts,
        validation,
    )


class _Maker:
    """The frozen target, loaded when the first shard has to be made."""

    def __init__(self, source: str, recipe: Recipe, corpus: dict[str, Any]) -> None:
        from ..models.target import files_identity

        self.source = source
        self.recipe = recipe
        found = files_identity(source, None)
        if found is None:
            raise SpecbookError(
                f"{source!r} is not a folder: teacher rows are bound to the files of "
                "their target; fetch it to a folder first"
            )
        self.identity = {"checkpoint": found[0], "tokenizer": found[1]}
        self.key = shards.digest(
            [
                json.dumps(self.identity, sort_keys=True),
                json.dumps(recipe.described(), sort_keys=True),
                json.dumps(corpus, sort_keys=True),
            ]
        )
        self._loaded: tuple[str, TransformersTarget] | None = None

    def target(self, dtype: str) -> TransformersTarget:
        if self._loaded is None or self._loaded[0] != dtype:
            self._loaded = None
            gc.collect()
            model = load_transformers_model(self.source, dtype=dtype)
            self._loaded = (
                dtype,
                TransformersTarget(model, source=self.source, self_test=False),
            )
        return self._loaded[1]

    def shard(
        self, kind: str, number: int, files: asks.Sources
    ) -> list[TaughtSequence]:
        """A shard of one kind, drawn from the recipe's seed and the shard's number."""
        recipe = self.recipe
        generator = np.random.default_rng([recipe.seed, number])
        target = self.target(recipe.dtype)
        most = recipe.window_tokens if kind == "source" else recipe.prompt_tokens
        asked: list[list[int]] = []
        for _ in range(_PATIENCE * recipe.sequences):
            ids = self._ids(target, asks.make(kind, files, generator))
            if kind == "source":
                ids = ids[:most]
            if 2 <= len(ids) <= most:
                asked.append(ids)
            if len(asked) == recipe.sequences:
                break
        else:
            raise SpecbookError(
                f"hardly any {kind} ask fits into {most} tokens: allow more"
            )
        heat = [TEMPERATURES[i % len(TEMPERATURES)] for i in range(len(asked))]
        return self._answers(
            target,
            asked,
            heat,
            NEW_TOKENS[kind],
            is_chat=kind not in ("continue_code", "source"),
            seed=int(generator.integers(1 << 62)),
        )

    def _ids(self, target: TransformersTarget, ask: asks.Ask) -> list[int]:
        if ask.is_chat:
            return target.encode_chat(ask.text)
        return target.encode(ask.text)

    def _answers(
        self,
        target: TransformersTarget,
        asked: Sequence[Sequence[int]],
        heat: Sequence[float],
        new_tokens: int,
        *,
        is_chat: bool,
        seed: int,
    ) -> list[TaughtSequence]:
        first = self._template_length(target) if is_chat else 0
        return continue_all(
            target.transformers_model(),
            asked,
            temperatures=heat,
            max_new_tokens=new_tokens,
            top_k=min(self.recipe.top_k, target.vocab_size),
            eos_token_id=target.eos_token_id,
            generator=torch.Generator().manual_seed(seed),
            first_rows=[first] * len(asked),
        )

    def _template_length(self, target: TransformersTarget) -> int:
        """How many tokens every chat prompt begins with: there is nothing to teach in
        them."""
        one, other = target.encode_chat("One"), target.encode_chat("two")
        same = [a == b for a, b in zip(one, other, strict=False)]
        return same.index(False)


def _validation(
    maker: _Maker, held: asks.Sources, where: Path, say: Progress
) -> dict[str, str]:
    """The target in float32 on what is not taught: its greedy answers to the
    development prompts, and held-out source files."""
    found = {}
    for kind in (*prompts.WORKLOADS, "source"):
        path = where / f"validation-{kind}.safetensors"
        if not path.exists():
            say(f"validation rows: {kind}")
            target = maker.target("float32")
            if kind == "source":
                generator = np.random.default_rng([maker.recipe.seed, 1 << 32])
                asked: list[list[int]] = []
                while len(asked) < VALIDATION_WINDOWS:
                    ask = asks.make(kind, held, generator)
                    ids = target.encode(ask.text)[: maker.recipe.window_tokens]
                    if len(ids) > 1:
                        asked.append(ids)
                new_tokens = 0
            else:
                asked = [
                    target.encode_chat(prompt.text)
                    if prompt.is_chat
                    else target.encode(prompt.text)
                    for prompt in prompts.load(kind, "development")
                ]
                new_tokens = VALIDATION_TOKENS
            taught = maker._answers(
                target,
                asked,
                [0.0] * len(asked),
                new_tokens,
                is_chat=kind not in ("continue_code", "source"),
                seed=0,
            )
            shards.write(path, taught, key=maker.key, about={"kind": kind})
        shards.read(path, key=maker.key)
        found[path.name] = shards.file_sha256(path)
    return found
