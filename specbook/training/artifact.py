"""A trained artifact: safetensors, plain JSON, and a manifest that binds them.

The manifest says what made the files and lists the sha256 of each. It is checked
whenever the artifact is loaded: a file that was changed, is missing or does not belong
there is named. A folder is written under another name and renamed when it is whole.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .. import checks
from ..errors import ArtifactError, SpecbookError
from .shards import file_sha256

MANIFEST = "manifest.json"
FORMAT = 1
_FIELDS = ("format", "kind", "name", "files")
_PLAIN = (".safetensors", ".json", ".jinja", ".txt", ".model")


def load_manifest(folder: str | os.PathLike[str]) -> dict[str, Any]:
    """The manifest of the artifact in `folder`, after checking every file against it.

    Raises `ArtifactError` naming the first file that is missing, changed or not
    listed, and for a manifest of another format. Names that begin with a dot are the
    system's own business.
    """
    if not isinstance(folder, (str, os.PathLike)):
        raise ArtifactError(f"an artifact is a folder, got {folder!r}")
    root = Path(folder)
    path = root / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ArtifactError(f"no {MANIFEST} in {root}: no artifact") from None
    except (OSError, ValueError, RecursionError) as problem:
        raise ArtifactError(f"{path} cannot be read: {problem}") from problem
    if not isinstance(manifest, dict) or not set(_FIELDS) <= set(manifest):
        raise ArtifactError(f"{path} is no manifest: it needs {', '.join(_FIELDS)}")
    if manifest["format"] != FORMAT or isinstance(manifest["format"], bool):
        raise ArtifactError(f"{path} has format {manifest['format']!r}, not {FORMAT}")
    files = manifest["files"]
    if not isinstance(files, dict) or not files:
        raise ArtifactError(f"{path} lists no files")
    for name, sha256 in sorted(files.items()):
        if "\0" in name or Path(name).name != name or name == MANIFEST:
            raise ArtifactError(f"{path} lists {name!r}, which is no file of its own")
        if not name.endswith(_PLAIN):
            raise ArtifactError(f"{root / name}: only safetensors and text are read")
        found = file_sha256(root / name)
        if found != sha256:
            raise ArtifactError(
                f"{root / name} was changed: sha256 {found[:12]}..., the manifest "
                f"says {str(sha256)[:12]}..."
            )
    for name in sorted(os.listdir(root)):
        if name not in files and name != MANIFEST and not name.startswith("."):
            raise ArtifactError(f"{root / name} does not belong there: not listed")
    return manifest


def check_target(manifest: Mapping[str, Any], identity: Mapping[str, str]) -> None:
    """Raise `ArtifactError` when an artifact was not trained for the target whose
    `identity()` is given: another tokenizer means other ids."""
    trained = manifest.get("target")
    if not isinstance(trained, dict) or "tokenizer" not in trained:
        raise ArtifactError("the manifest does not say what target it was trained for")
    if trained["tokenizer"] != identity.get("tokenizer"):
        raise ArtifactError(
            f"{manifest.get('name')!r} was trained for the tokenizer "
            f"{trained['tokenizer']}, the target has {identity.get('tokenizer')}"
        )


def publish(
    made: Path,
    final: Path,
    manifest: Mapping[str, Any],
    check: Callable[[Path], None] | None = None,
) -> dict[str, Any]:
    """Write the manifest of the files in `made` and rename the folder to `final`.

    `manifest`: its fields without "format" and "files". An older artifact at `final`
    is replaced; a folder that is no artifact is not. `check` is called with the whole
    folder before it gets its name, and raises for one that is not what it should be.
    Returns the whole manifest.
    """
    check_free(final)
    for name in ("kind", "name"):
        checks.text(manifest.get(name), f"manifest[{name!r}]")
    whole = {
        "format": FORMAT,
        **manifest,
        "files": {
            path.name: file_sha256(path)
            for path in sorted(made.iterdir())
            if path.name != MANIFEST
        },
    }
    text = json.dumps(whole, indent=1, ensure_ascii=False, allow_nan=False)
    (made / MANIFEST).write_text(text + "\n", encoding="utf-8")
    load_manifest(made)
    if check is not None:
        check(made)
    final.parent.mkdir(parents=True, exist_ok=True)
    aside = final.with_name(f".{final.name}-{os.getpid()}-{time.monotonic_ns()}")
    if final.exists():
        os.rename(final, aside)
    try:
        os.rename(made, final)
    except BaseException:
        if aside.exists():
            os.rename(aside, final)
        raise
    shutil.rmtree(aside, ignore_errors=True)
    return whole


def check_free(final: Path) -> None:
    """Raise `SpecbookError` when `final` holds something that is not ours to replace:
    looked at before a long run, not after it."""
    if final.is_symlink():
        # Renaming would put the folder in the link's place, not where it points to.
        raise SpecbookError(f"{final} is a symbolic link: name the folder itself")
    if not final.exists():
        return
    if not final.is_dir():
        raise SpecbookError(f"{final} is a file, not a folder")
    if any(final.iterdir()) and not (final / MANIFEST).is_file():
        raise SpecbookError(
            f"{final} is not empty and holds no {MANIFEST}: it is not replaced"
        )


def check_writable(folder: Path) -> None:
    """Raise `ArtifactError` when nothing can be written to `folder`, which is made
    when it is not there."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as problem:
        raise ArtifactError(f"{folder} cannot be written to: {problem}") from problem
