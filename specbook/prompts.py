"""The frozen benchmark prompts: four workloads, each in two halves.

A setting that was tuned on a prompt looks better on it than it is. So the prompts were
written and hashed before anything was tuned; one half is for tuning, the other for
reporting. The loader refuses a file that is not the one that was frozen.
"""

from __future__ import annotations

import hashlib
import json
import os
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import checks, paths
from .errors import ArtifactError

WORKLOADS = ("continue_code", "edit_code", "answer_from_text", "chat")
HALVES = ("development", "evaluation")
LICENCE = "Apache-2.0"


@dataclass(frozen=True)
class Prompt:
    """One benchmark prompt.

    `text` is what the user says, or, when `is_chat` is false, the bare start of a
    document that the model continues without a chat template.
    """

    id: str
    workload: str
    half: str
    text: str
    is_chat: bool

    @property
    def messages(self) -> list[dict[str, str]]:
        """The prompt as chat messages. Raises `ValueError` for a bare document."""
        if not self.is_chat:
            raise ArtifactError(f"{self.id} is a bare document, not a chat message")
        return [{"role": "user", "content": self.text}]


def load(
    workload: str | None = None,
    half: str | None = None,
    *,
    folder: str | Path | None = None,
) -> tuple[Prompt, ...]:
    """The prompts of one workload and half (of all where None), in file order.

    `folder`: where the files and their `manifest.json` are; by default those shipped
    in `data/prompts`. Raises `ArtifactError`, naming the file, when one is missing,
    altered, malformed, or does not hold what the manifest says.
    """
    if workload is not None:
        checks.one_of(workload, "workload", WORKLOADS)
    if half is not None:
        checks.one_of(half, "half", HALVES)
    folder = _folder(folder)
    recorded = manifest(folder)["files"]
    found: list[Prompt] = []
    for name in WORKLOADS if workload is None else (workload,):
        found += _read(folder / f"{name}.toml", name, recorded)
    _check_ids(found)
    return tuple(prompt for prompt in found if half in (None, prompt.half))


def manifest(folder: str | Path | None = None) -> dict[str, Any]:
    """What was frozen: date, licence, and for each file its SHA-256 and its counts."""
    path = _folder(folder) / "manifest.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ArtifactError(f"{path} is missing") from error
    except (OSError, ValueError, RecursionError) as error:
        raise ArtifactError(f"{path} is not a prompt manifest: {error}") from error
    expected = {"format", "frozen", "licence", "files"}
    if not isinstance(content, dict) or set(content) != expected:
        raise ArtifactError(f"{path}: expected exactly the fields {sorted(expected)}")
    if content["format"] != 1:
        raise ArtifactError(f"{path}: unknown format {content['format']!r}")
    if content["licence"] != LICENCE:
        raise ArtifactError(f"{path}: licence {content['licence']!r}, not {LICENCE}")
    wanted = {f"{name}.toml" for name in WORKLOADS}
    files = content["files"]
    if not isinstance(files, dict) or set(files) != wanted:
        raise ArtifactError(f"{path}: expected exactly the files {sorted(wanted)}")
    for name, entry in files.items():
        if not isinstance(entry, dict) or set(entry) != {"sha256", "prompts"}:
            raise ArtifactError(f"{path}: {name} needs its sha256 and its prompts")
    return content


def describe(folder: str | Path) -> dict[str, Any]:
    """The manifest's `files` entry for the prompt files in `folder` as they are now.
    Raises `ArtifactError` for a file that is missing or malformed."""
    files = {}
    for name in WORKLOADS:
        path = _folder(folder) / f"{name}.toml"
        data = read_bytes(path)
        halves = Counter(prompt.half for prompt in _parse(path, name, data))
        files[path.name] = {
            "sha256": hashlib.sha256(data).hexdigest(),
            "prompts": {half: halves[half] for half in HALVES},
        }
    return files


def _folder(folder: Any) -> Path:
    if folder is None:
        return paths.data_path("prompts")
    if not isinstance(folder, (str, os.PathLike)):
        raise ArtifactError(f"folder must be a path, got {folder!r}")
    return Path(folder)


def read_bytes(path: Path) -> bytes:
    """The bytes of a file; `ArtifactError` where it cannot be read."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ArtifactError(f"{path} is missing") from None
    except (OSError, ValueError) as error:
        raise ArtifactError(f"{path} cannot be read: {error}") from None


def _read(path: Path, workload: str, recorded: dict[str, Any]) -> list[Prompt]:
    data = read_bytes(path)
    entry = recorded[path.name]
    digest = hashlib.sha256(data).hexdigest()
    if digest != entry["sha256"]:
        raise ArtifactError(
            f"{path} was altered: its SHA-256 is {digest[:12]}..., "
            f"frozen as {entry['sha256'][:12]}..."
        )
    prompts = _parse(path, workload, data)
    counts = Counter(prompt.half for prompt in prompts)
    if dict(counts) != entry["prompts"]:
        raise ArtifactError(
            f"{path} holds {dict(counts)} prompts, frozen as {entry['prompts']}"
        )
    return prompts


def _parse(path: Path, workload: str, data: bytes) -> list[Prompt]:
    try:
        content = tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{path} is not a prompt file: {error}") from error
    if content.get("workload") != workload or set(content) != {"workload", "prompt"}:
        raise ArtifactError(f"{path} is not a file of workload {workload!r}")
    if not isinstance(content["prompt"], list) or not all(
        isinstance(entry, dict) for entry in content["prompt"]
    ):
        raise ArtifactError(f"{path}: prompts are [[prompt]] tables")
    return [_prompt(path, workload, entry) for entry in content["prompt"]]


_FIELDS = {
    "continue_code": {"text"},
    "edit_code": {"ask", "text"},
    "answer_from_text": {"ask", "text"},
    "chat": {"ask"},
}


def _prompt(path: Path, workload: str, entry: dict[str, Any]) -> Prompt:
    where = f"{path}: prompt {entry.get('id', '?')!r}"
    wanted = _FIELDS[workload] | {"id", "half"}
    if set(entry) != wanted:
        raise ArtifactError(f"{where} must have exactly the fields {sorted(wanted)}")
    for field, value in entry.items():
        if not isinstance(value, str) or not value.strip():
            raise ArtifactError(f"{where}: {field} must be non-empty text")
    if entry["half"] not in HALVES:
        raise ArtifactError(f"{where}: half {entry['half']!r} is not in {HALVES}")
    text = entry.get("text", "")
    if workload == "edit_code":
        text = f"```python\n{text}```"
    if "ask" in entry:
        text = f"{entry['ask']}\n\n{text}".strip()
    return Prompt(
        id=entry["id"],
        workload=workload,
        half=entry["half"],
        text=text,
        is_chat=workload != "continue_code",
    )


def _check_ids(prompts: list[Prompt]) -> None:
    counts = Counter(prompt.id for prompt in prompts)
    if doubled := sorted(name for name, count in counts.items() if count > 1):
        raise ArtifactError(f"prompt ids occur more than once: {doubled}")
