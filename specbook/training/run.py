"""`specbook train draft`, from the target to a folder that transformers loads.

Data, student, training, measurement, and an artifact that is checked before it gets
its name: what is on disk must load with transformers and give the very logits that
were measured.
"""

from __future__ import annotations

import copy
import gc
import os
import shutil
import tempfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from .. import __version__, checks
from ..errors import ArtifactError
from ..models.checkpoint import checked_source, load_transformers_model
from ..models.fetch import quiet_transformers
from ..models.target import TransformersTarget
from . import agreement, artifact, draft, resuming, student, teacher
from .decoding import TaughtSequence
from .settings import Recipe, Settings

TEMPERATURE = 0.7
"""At which the shared mass is reported."""

Progress = Callable[[str], None]


def train_draft(
    out: str | os.PathLike[str],
    target: str | None = None,
    *,
    rows: int,
    settings: Settings | None = None,
    recipe: Recipe | None = None,
    resume: bool = False,
    command: str = "",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Train a draft for `target` and write it to the folder `out`; returns its
    manifest.

    `rows`: teacher rows to make (those in the cache are used). The checkpoint of an
    unfinished run lies beside `out` and is used with `resume`; it is removed when the
    artifact is written. Everything that can be refused is refused before the work.
    """
    settings = settings or Settings()
    final = Path(out).expanduser().absolute()
    artifact.check_free(final)
    checks.text(command, "command")
    checks.boolean(resume, "resume")
    say = progress or (lambda line: None)
    checkpoint = resuming.beside(final, resume)
    checks.integer(rows, "rows", least=1)
    source = checked_source(target)
    student.student_config(target_config(source), settings)
    artifact.check_writable(final.parent)
    data = teacher.make(target, recipe, rows=rows, progress=say)
    model = new_student(source, data, settings)
    sequences = data.sequences()
    validation = data.validation_sequences()
    parameters = sum(p.numel() for p in model.parameters())
    say(f"training {parameters:,} parameters on {data.counts['rows']:,} teacher rows")
    curve = draft.train(
        model,
        sequences,
        settings,
        data_key=data.digest,
        checkpoint=checkpoint,
        resume=resume,
        validate=lambda m: validation_numbers(m, validation),
        progress=say,
    )
    del sequences
    gc.collect()
    # What is shipped is what is measured: weights rounded as they go to disk.
    _round(model)
    say("measuring the draft")
    facts = {
        "kind": "draft model",
        "name": final.name,
        "command": command,
        "licence": "Apache-2.0",
        "target": data.target,
        "settings": settings.described(),
        "parameters": parameters,
        "dtype": "bfloat16",
        "data": data.described(),
        "loss_curve": curve,
        "measured": measure(model, source, validation),
        "versions": versions(),
    }
    final.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{final.name}-", dir=final.parent))
    try:
        made = work / final.name
        _write_model(model, source, made)
        _check_loads(model, made)
        manifest = artifact.publish(made, final, facts)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    checkpoint.unlink(missing_ok=True)
    say(f"written: {final}")
    return manifest


def target_config(source: str) -> Any:
    """The config of a target, without its weights."""
    from transformers import AutoConfig

    with quiet_transformers():
        return AutoConfig.from_pretrained(source, trust_remote_code=False)


def new_student(source: str, data: teacher.TeacherData, settings: Settings) -> Any:
    """The untrained draft of `settings`, cut from the target in the folder `source`.

    Its embeddings keep most of those tokens that the teacher gives most mass.
    """
    target = load_transformers_model(source)
    # Every token counts a little: rare ones are drafted too.
    weights = torch.full((target.config.vocab_size,), 1.0)
    for sequence in data.sequences():
        ids = torch.from_numpy(sequence.top_ids.reshape(-1))
        mass = torch.from_numpy(sequence.top_logps.reshape(-1)).exp()
        weights.index_add_(0, ids, mass)
    return student.build(target, settings, weights)


def validation_numbers(
    model: Any, validation: dict[str, list[TaughtSequence]]
) -> dict[str, float]:
    """Top-1 agreement with the target's best token for each validation set."""
    return {
        name: agreement.teacher_agreement(model, sequences)["top1"]
        for name, sequences in validation.items()
    }


def measure(
    model: Any, source: str, validation: dict[str, list[TaughtSequence]]
) -> dict[str, Any]:
    """For each validation set what the draft is worth on it; see `agreement`. The
    target is loaded in float32."""
    target = load_transformers_model(source)
    found: dict[str, Any] = {}
    for name, sequences in validation.items():
        if name == "source":
            found[name] = agreement.teacher_agreement(model, sequences)
            continue
        found[name] = {
            **agreement.greedy_agreement(model, sequences),
            f"shared_mass_at_{TEMPERATURE}": agreement.shared_mass(
                model, target, sequences, temperature=TEMPERATURE
            )["shared"],
        }
    return found


def versions() -> dict[str, str]:
    """Of what took part."""
    names = ("torch", "transformers", "safetensors", "numpy")
    return {"specbook": __version__, **{n: metadata.version(n) for n in names}}


@torch.no_grad()
def _round(model: Any) -> None:
    """Every weight to its nearest bfloat16. Not `model.to`: that would round the
    rotary frequencies too, which no checkpoint keeps."""
    for parameter in model.parameters():
        parameter.copy_(parameter.to(torch.bfloat16))


def _write_model(model: Any, source: str, made: Path) -> None:
    """The draft in bfloat16, with the target's tokenizer beside it."""
    from transformers import AutoTokenizer

    with quiet_transformers():
        copy.deepcopy(model).to(torch.bfloat16).save_pretrained(made)
        tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
        tokenizer.save_pretrained(made)


def _check_loads(model: Any, made: Path) -> None:
    """Raise `ArtifactError` unless the folder loads as a target would and gives the
    logits of `model` bit for bit."""
    loaded = load_transformers_model(made)
    ids = torch.arange(32)[None] % model.config.vocab_size
    with torch.inference_mode():
        same = torch.equal(loaded(ids).logits, model(ids).logits)
    if not same:
        raise ArtifactError(f"{made} gives other logits than what was trained")
    TransformersTarget(loaded, source=str(made))
