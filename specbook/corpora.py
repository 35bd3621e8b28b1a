"""Corpora that every reader already has: the Python sources of installed packages.

They come with a name, a version, a licence and a hash, they cost no download, and a
part of them can be held out. The packages of `PACKAGES` are pure Python: their wheels
are the same files on every platform, so one version gives one `snapshot` everywhere.
"""

from __future__ import annotations

import hashlib
import io
import tokenize
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from importlib import metadata
from typing import Any

from . import checks
from .errors import ArtifactError, SpecbookError

PACKAGES = (
    "ipython",
    "mpmath",
    "networkx",
    "prompt_toolkit",
    "pytest",
    "rich",
    "sphinx",
    "sympy",
)
"""Pure-Python packages under BSD or MIT licences, all of them installed by the `book`
extra: more than ten million tokens of the default target together."""


@dataclass(frozen=True)
class SourceFile:
    """One file of an installed package. `path` is as the package's own record names it
    (with slashes), `sha256` is of the file's bytes, `text` is what they say."""

    package: str
    version: str
    path: str
    sha256: str
    licence: str
    text: str

    @property
    def key(self) -> str:
        """Package and path: the file's name whatever the version."""
        return f"{self.package}:{self.path}"


def package_sources(packages: Iterable[str] = PACKAGES) -> list[SourceFile]:
    """The Python files of `packages`, by package and then by path; empty files and
    files outside the package folder are left out.

    Raises `ArtifactError` for a package that is not installed, that has no record of
    its files or that declares no licence, and for a file that is gone or is not text.
    """
    found: dict[str, SourceFile] = {}
    for index, name in enumerate(_names(packages)):
        for file in _files_of(name):
            if file.key in found:
                raise SpecbookError(f"packages[{index}]: {name!r} is listed twice")
            found[file.key] = file
    return [found[key] for key in sorted(found)]


def check_installed(packages: Iterable[str] = PACKAGES) -> None:
    """Raises `ArtifactError` for a package that `package_sources` would refuse before
    it looked into its files: not installed, without a record of them, or without a
    licence. Cheap enough to ask before a model is loaded."""
    for name in _names(packages):
        _licence(_package(name))


def split(
    files: Iterable[SourceFile], held_out: Fraction = Fraction(1, 20)
) -> tuple[list[SourceFile], list[SourceFile]]:
    """`(kept, held)`: about the share `held_out` of the files is kept apart, whole.

    A hash of package and path decides, so a file stays on its side when others come or
    go. Files of the same bytes stay together: a copy of a held-out file would leak it.
    """
    share = checks.real(held_out, "held_out", least=0, most=1)
    checked = _checked(files)
    first: dict[str, str] = {}
    for key, sha256 in sorted((file.key, file.sha256) for file in checked):
        first.setdefault(sha256, key)
    kept: list[SourceFile] = []
    held: list[SourceFile] = []
    for file in checked:
        digest = hashlib.sha256(first[file.sha256].encode()).digest()
        place = Fraction(int.from_bytes(digest[:8], "big"), 1 << 64)
        (held if place < share else kept).append(file)
    return kept, held


def snapshot(files: Iterable[SourceFile]) -> str:
    """SHA-256 (hex) of package, version, path, licence and content hash of the files,
    whatever their order."""
    lines = sorted(
        "\0".join((f.package, f.version, f.path, f.licence, f.sha256))
        for f in _checked(files)
    )
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def licences(files: Iterable[SourceFile]) -> dict[str, str]:
    """`{"package version": licence}` of the packages in `files`, sorted."""
    found = {f"{f.package} {f.version}": f.licence for f in _checked(files)}
    return dict(sorted(found.items()))


def _checked(files: Any) -> list[SourceFile]:
    listed = checks.entries(files, "files", "SourceFiles")
    for index, file in enumerate(listed):
        if not isinstance(file, SourceFile):
            raise SpecbookError(f"files[{index}] is not a SourceFile: {file!r}")
    return listed


def _names(packages: Any) -> list[str]:
    names = checks.entries(packages, "packages", "package names")
    return [checks.text(name, f"packages[{i}]") for i, name in enumerate(names)]


def _package(name: str) -> metadata.Distribution:
    try:
        package = metadata.distribution(name)
    except (metadata.PackageNotFoundError, ValueError):
        raise ArtifactError(
            f"the corpus needs the package {name!r}, which is not installed; "
            f"`python -m pip install {name}` gets it"
        ) from None
    if package.files is None:
        raise ArtifactError(f"package {name!r} has no record of its files")
    return package


def _files_of(name: str) -> list[SourceFile]:
    package = _package(name)
    licence = _licence(package)
    files = []
    for entry in package.files or ():
        path = entry.as_posix()
        if entry.suffix != ".py" or ".." in entry.parts:
            continue
        try:
            content = bytes(entry.locate().read_bytes())  # type: ignore[attr-defined]
        except OSError as problem:
            raise ArtifactError(f"package {name!r}, {path}: {problem}") from problem
        if text := _text(content, f"package {name!r}, {path}"):
            files.append(
                SourceFile(
                    package=package.metadata["Name"],
                    version=package.version,
                    path=path,
                    sha256=hashlib.sha256(content).hexdigest(),
                    licence=licence,
                    text=text,
                )
            )
    return files


def _text(content: bytes, where: str) -> str:
    """The source text, in the encoding that the file declares as Python reads it."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(content).readline)
        return content.decode(encoding)
    except (SyntaxError, UnicodeDecodeError) as problem:
        raise ArtifactError(f"{where} is not Python text: {problem}") from problem


def _licence(package: metadata.Distribution) -> str:
    def lines(field: str) -> list[str]:
        return [str(v).strip() for v in package.metadata.get_all(field) or []]

    classifiers = [c for c in lines("Classifier") if c.startswith("License :: ")]
    for declared in (
        " ".join(lines("License-Expression")),
        ", ".join(c.split(" :: ")[-1] for c in classifiers),
        "\n".join(lines("License")).partition("\n")[0],
    ):
        if declared:
            return declared
    raise ArtifactError(f"package {package.metadata['Name']!r} declares no licence")
