"""Making a recording: the target decodes the frozen prompts once (see `recording`).

Prompt lookup speeds it up and changes nothing: greedy verification follows the argmax,
and membership publishes the very draws that plain sampling with the same seed makes.
(In floating point a draw or an argmax at a tie to rounding may fall the other way,
since a forward over other rows rounds differently; the recording is what was said.)
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from .. import __version__, checks, engine, prompts
from ..drafts.prompt_lookup import PromptLookup
from ..errors import ArtifactError, SpecbookError
from ..policy import SamplingPolicy
from . import recording
from .recording import RecordedOutput, Recording
from .report import write_whole
from .setup import machine

MAX_NEW_TOKENS = 128
SEEDS = "one a prompt: its place in the frozen order"


def record(
    target: Any,
    folder: str | os.PathLike[str],
    *,
    temperature: float = 0.0,
    max_new_tokens: int = MAX_NEW_TOKENS,
    items: Sequence[prompts.Prompt] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Recording:
    """Decodes the frozen prompts with `target`, writes what it said, and returns it.

    `target`: one with a tokenizer (`load_target()`). `folder` gets a file of ids for
    this `temperature` and a manifest; what is recorded there at other temperatures
    stays. `items`: some of `prompts.load()`, by default all. `progress` is called with
    a line of text after each prompt.

    Each finished prompt is kept in a file ending in `.partial`, so that a run that
    was broken off goes on from there. Raises `ArtifactError` when the folder holds
    something that was recorded otherwise (it names what differs, and overwrites
    nothing) or cannot be written, and another `SpecbookError` for bad arguments; all
    before any decoding.
    """
    for name in ("identity", "encode", "encode_chat", "start", "vocab_size"):
        if not hasattr(target, name) or isinstance(target, type):
            raise SpecbookError(f"target must be one with a tokenizer, got {target!r}")
    if progress is not None and not callable(progress):
        raise SpecbookError(f"progress must be a function, got {progress!r}")
    folder = recording.checked_folder(folder)
    policy = SamplingPolicy(temperature)
    checks.integer(max_new_tokens, "max_new_tokens", least=1)
    places = {prompt: place for place, prompt in enumerate(prompts.load())}
    chosen = _chosen(items, places)
    source = PromptLookup.tuned()
    verifier = "greedy" if policy.greedy else "membership"
    settings = {
        "temperature": policy.temperature,
        "max_new_tokens": int(max_new_tokens),
        "vocab_size": int(target.vocab_size),
        "eos_token_ids": list(recording.end_tokens(target.eos_token_id)),
        "context_limit": target.context_limit,
        "target": dict(target.identity()),
        "source": source.identity(),
        "verifier": verifier,
        "seeds": "none" if policy.greedy else SEEDS,
    }
    path = folder / recording.file_name(policy.temperature)
    wanted = [prompt.id for prompt in chosen]
    if (kept := _finished(path, settings, wanted)) is not None:
        return kept
    partial = path.with_name(path.name + ".partial")
    done = _begun(partial, settings, wanted)
    # Before hours of decoding: what could not be written at their end is refused now.
    _write(partial, _partial(settings, done))
    for prompt in chosen[len(done) :]:
        ids = (
            target.encode_chat(prompt.messages)
            if prompt.is_chat
            else target.encode(prompt.text)
        )
        seed = None if policy.greedy else places[prompt]
        result = engine.generate(
            target,
            ids,
            source,
            verifier,
            max_new_tokens=max_new_tokens,
            temperature=policy.temperature,
            seed=seed or 0,
            eos_token_id=target.eos_token_id,
        )
        done.append(
            RecordedOutput(
                prompt_ids=tuple(ids),
                tokens=tuple(result.tokens),
                stop_reason=result.stop_reason,
                prompt_id=prompt.id,
                workload=prompt.workload,
                half=prompt.half,
                seed=seed,
            )
        )
        _write(partial, _partial(settings, done))
        if progress is not None:
            progress(
                f"{path.name}: {prompt.id} ({len(done)} of {len(chosen)}), "
                f"{len(result.tokens)} tokens in {len(result.rounds)} rounds, "
                f"{result.stop_reason}"
            )
    text = recording.dump(done)
    entry = {
        **settings,
        "sha256": hashlib.sha256(text.encode("utf-8")).hexdigest(),
        "outputs": len(done),
        "command": _command(target, settings, items, wanted),
        "specbook": __version__,
        "machine": machine(),
    }
    found = recording.parse(text.encode("utf-8"), entry, path)
    # The manifest last: a file without its entry is refused, never half believed.
    _write(path, text)
    _enter(folder / "manifest.json", path.name, entry)
    partial.unlink(missing_ok=True)
    return found


def _chosen(items: Any, places: dict[prompts.Prompt, int]) -> list[prompts.Prompt]:
    if items is None:
        return list(places)
    chosen = checks.entries(items, "items", "prompts")
    for index, prompt in enumerate(chosen):
        if not isinstance(prompt, prompts.Prompt) or prompt not in places:
            raise SpecbookError(f"items[{index}] is no frozen prompt: {prompt!r}")
    if not chosen or len(set(chosen)) < len(chosen):
        raise SpecbookError("items must hold one prompt or more, none of them twice")
    return sorted(chosen, key=places.__getitem__)


def _finished(path: Path, settings: dict[str, Any], wanted: list[str]) -> Any:
    """The recording that `path` already holds, if it is the one that is asked for."""
    held = path.parent / "manifest.json"
    if not held.exists():
        return None
    content = recording.manifest(path.parent)
    recording.check_prompts(content["prompts"], held)
    if path.name not in content["files"]:
        return None
    _same(settings, content["files"][path.name], path)
    found = recording.load(settings["temperature"], folder=path.parent)
    _same({"prompts": wanted}, {"prompts": [o.prompt_id for o in found.outputs]}, path)
    return found


def _begun(
    partial: Path, settings: dict[str, Any], wanted: list[str]
) -> list[RecordedOutput]:
    """What a run that was broken off has left, if it was the same run."""
    if not partial.exists():
        return []
    try:
        content = json.loads(prompts.read_bytes(partial).decode("utf-8"))
        body = json.dumps(content["recorded"]).encode("utf-8")
        held, files = content["settings"], content["prompts"]
        if not isinstance(held, dict) or not isinstance(files, dict):
            raise TypeError("settings and prompts must be objects")
        # One digit of an id may change and leave JSON that reads well.
        if content["sha256"] != hashlib.sha256(body).hexdigest():
            raise ValueError("the SHA-256 of what was recorded differs")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ArtifactError(
            f"{partial} is damaged ({error}); remove it to begin again"
        ) from error
    recording.check_prompts(files, partial)
    _same(settings, held, partial)
    found = list(recording.parse(body, held, partial).outputs)
    names = [output.prompt_id for output in found]
    _same({"prompts": wanted[: len(names)]}, {"prompts": names}, partial)
    return found


def _partial(settings: dict[str, Any], done: list[RecordedOutput]) -> str:
    recorded = json.loads(recording.dump(done))
    content = {
        "settings": settings,
        "prompts": prompts.manifest()["files"],
        "recorded": recorded,
        "sha256": hashlib.sha256(json.dumps(recorded).encode("utf-8")).hexdigest(),
    }
    return json.dumps(content)


def _same(wanted: dict[str, Any], held: dict[str, Any], path: Path) -> None:
    for name, value in wanted.items():
        if held.get(name) != value:
            raise ArtifactError(
                f"{path} was recorded with another {name}: {held.get(name)!r}, asked "
                f"for {value!r}; remove it to record anew"
            )


def _enter(path: Path, name: str, entry: dict[str, Any]) -> None:
    files = {}
    if path.exists():
        files = recording.manifest(path.parent)["files"]
    files[name] = entry
    content = {
        "format": recording.FORMAT,
        "prompts": prompts.manifest()["files"],
        "files": dict(sorted(files.items())),
    }
    _write(path, json.dumps(content, indent=1, allow_nan=False) + "\n")


def _write(path: Path, text: str) -> None:
    try:
        write_whole(path, text)
    except OSError as error:
        raise ArtifactError(f"{path} cannot be written: {error}") from error


def _command(
    target: Any, settings: dict[str, Any], items: Any, wanted: list[str]
) -> str:
    """The call that makes this recording again."""
    some = "" if items is None else f", items=<{len(wanted)} prompts>"
    return (
        f"record(load_target(dtype="
        f"{settings['target']['dtype']!r}), folder, temperature="
        f"{settings['temperature']}, max_new_tokens={settings['max_new_tokens']}{some})"
    )
