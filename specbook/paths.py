"""Where the package's data and its caches live. No other module builds such a path."""

from __future__ import annotations

import os
from pathlib import Path

from platformdirs import user_cache_path

from .errors import ArtifactError


def data_path(*parts: str) -> Path:
    """The path of an artifact shipped in `data/`: `data_path("claims.toml")`, say.

    Works from a checkout (`data/` beside the package) and from an installed wheel
    (`specbook/_data/`). Raises `ArtifactError` when the file is in neither.
    """
    package = Path(__file__).resolve().parent
    for root in (package / "_data", package.parent / "data"):
        candidate = root.joinpath(*parts)
        if candidate.exists():
            return candidate
    raise ArtifactError(f"no data file {'/'.join(parts)!r} is shipped with specbook")


def chapters_path() -> Path:
    """The folder of the book's chapters: `notebooks/` of a checkout, or the copy in an
    installed wheel. Raises `ArtifactError` where neither is there."""
    package = Path(__file__).resolve().parent
    for folder in (package / "_notebooks", package.parent / "notebooks"):
        if folder.is_dir():
            return folder
    raise ArtifactError("the chapters are not beside specbook: work in a checkout")


def cache_dir() -> Path:
    """The folder for things that can be made again: `SPECBOOK_CACHE`, else the
    user's cache folder of the platform. It may not exist yet."""
    if chosen := os.environ.get("SPECBOOK_CACHE"):
        return Path(chosen).expanduser()
    return user_cache_path("specbook", appauthor=False)
