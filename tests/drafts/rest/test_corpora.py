"""The corpora that every reader has: deterministic, bound, and split by whole files."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from fractions import Fraction
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specbook import corpora
from specbook.corpora import SourceFile, package_sources, snapshot, split
from specbook.errors import ArtifactError, SpecbookError
from tests.core.helpers import must_fail


@pytest.fixture(scope="module")
def mpmath() -> list[SourceFile]:
    return package_sources(["mpmath"])


def made(path: str, text: str = "x = 1\n", package: str = "made") -> SourceFile:
    digest = hashlib.sha256(text.encode()).hexdigest()
    return SourceFile(package, "1", path, digest, "MIT", text)


# ------------------------------------------------------------------ what is installed


def test_the_files_are_those_on_disk(mpmath: list[SourceFile]) -> None:
    package = metadata.distribution("mpmath")
    for file in mpmath:
        content = Path(str(package.locate_file(file.path))).read_bytes()
        assert hashlib.sha256(content).hexdigest() == file.sha256
        assert content.decode("utf-8") == file.text and file.text
        assert file.package == "mpmath" and file.version == package.version
    listed = {f.as_posix() for f in package.files or () if f.suffix == ".py"}
    empty = {p for p in listed if not Path(str(package.locate_file(p))).read_bytes()}
    assert {file.path for file in mpmath} == listed - empty
    assert "BSD" in mpmath[0].licence


def test_the_order_is_that_of_the_names(mpmath: list[SourceFile]) -> None:
    assert [f.key for f in mpmath] == sorted(f.key for f in mpmath)
    both = package_sources(["rich", "mpmath"])
    assert both == package_sources(["mpmath", "rich"])
    assert [f for f in both if f.package == "mpmath"] == mpmath


def test_the_default_packages_are_enough() -> None:
    installed = {name: metadata.distribution(name) for name in corpora.PACKAGES}
    size = 0
    for package in installed.values():
        for file in package.files or ():
            if file.suffix == ".py":
                size += Path(str(package.locate_file(file))).stat().st_size
        # The same wheel for every platform, so the same snapshot.
        assert "Root-Is-Purelib: true" in (package.read_text("WHEEL") or "")
    # Fewer than five characters a token, whatever the tokenizer: over 5 million.
    assert size > 5 * 5_000_000


def test_a_package_that_is_not_installed_is_named() -> None:
    with pytest.raises(
        ArtifactError, match="'no-such-package', which is not installed"
    ):
        package_sources(["mpmath", "no-such-package"])
    with pytest.raises(
        ArtifactError, match="'no-such-package', which is not installed"
    ):
        corpora.check_installed(["mpmath", "no-such-package"])
    corpora.check_installed(["mpmath"])
    corpora.check_installed()


def test_a_package_twice_is_refused() -> None:
    with pytest.raises(SpecbookError, match=r"packages\[1\]: 'MPmath' is listed twice"):
        package_sources(["mpmath", "MPmath"])


class FakePackage:
    """A distribution whose files are in `folder`."""

    def __init__(self, folder: Path, fields: str, names: list[str] | None) -> None:
        from email import message_from_string

        self.metadata = message_from_string(f"Name: fake\nVersion: 3\n{fields}")
        self.version = "3"
        self.files = None if names is None else [self._path(folder, n) for n in names]

    def _path(self, folder: Path, name: str) -> Any:
        path = metadata.PackagePath(name)
        path.dist = self  # type: ignore[assignment]
        self.folder = folder
        return path

    def locate_file(self, path: Any) -> Path:
        return self.folder / path


def fake(
    monkeypatch: pytest.MonkeyPatch, folder: Path, fields: str, names: Any
) -> None:
    package = FakePackage(folder, fields, names)
    monkeypatch.setattr(metadata, "distribution", lambda name: package)


@pytest.mark.parametrize(
    ("fields", "licence"),
    [
        ("License-Expression: MIT\nLicense: other\n", "MIT"),
        (
            "Classifier: License :: OSI Approved :: MIT License\nLicense: long text\n",
            "MIT License",
        ),
        ("License: BSD\n", "BSD"),
    ],
    ids=["expression", "classifier", "text"],
)
def test_the_licence_is_what_the_package_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fields: str, licence: str
) -> None:
    (tmp_path / "a.py").write_text("a = 1\n", "utf-8")
    fake(monkeypatch, tmp_path, fields, ["a.py"])
    (file,) = package_sources(["fake"])
    assert file.licence == licence and file.key == "fake:a.py"
    assert corpora.licences([file]) == {"fake 3": licence}


def test_encodings_empty_files_and_strangers(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "latin.py").write_bytes(b"# coding: latin-1\n# caf\xe9\r\n")
    (tmp_path / "empty.py").write_bytes(b"")
    (tmp_path / "data.txt").write_text("data", "utf-8")
    names = ["latin.py", "empty.py", "data.txt", "../bin/tool.py"]
    fake(monkeypatch, tmp_path, "License: MIT\n", names)
    (file,) = package_sources(["fake"])
    assert file.path == "latin.py"
    assert file.text == "# coding: latin-1\n# café\r\n"


@pytest.mark.parametrize(
    ("fields", "content", "names", "told"),
    [
        ("", b"a = 1", ["a.py"], "declares no licence"),
        ("License: MIT\n", b"a = 1", None, "no record of its files"),
        ("License: MIT\n", b"# \xff", ["a.py"], "a.py is not Python text"),
        ("License: MIT\n", b"# coding: klingon", ["a.py"], "a.py is not Python text"),
        ("License: MIT\n", b"a = 1", ["a.py", "gone.py"], "gone.py"),
    ],
    ids=range(5),
)
def test_what_cannot_be_bound_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    fields: str,
    content: bytes,
    names: Any,
    told: str,
) -> None:
    (tmp_path / "a.py").write_bytes(content)
    fake(monkeypatch, tmp_path, fields, names)
    with pytest.raises(ArtifactError, match=told):
        package_sources(["fake"])


# -------------------------------------------------------------------- split, snapshot

Split = Any


def check_split(split: Split, files: list[SourceFile], share: Fraction) -> None:
    """Whole files, each on one side and in order; copies together; and a file's side
    does not hang on what else there is."""
    kept, held = split(files, share)
    assert [f for f in files if f in kept] == kept
    assert [f for f in files if f in held] == held
    assert sorted(f.key for f in kept + held) == sorted(f.key for f in files)
    assert not {f.sha256 for f in kept} & {f.sha256 for f in held}
    again = split(files[::-1], share)
    assert [sorted(f.key for f in side) for side in again] == [
        sorted(f.key for f in side) for side in (kept, held)
    ]
    newer = [replace(f, version="2") for f in files]
    assert [f.key for f in split(newer, share)[1]] == [f.key for f in held]


names_of_files = st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8)


@settings(max_examples=150, deadline=None)
@given(names_of_files, st.fractions(0, 1))
def test_any_split_is_sound(names: list[str], share: Fraction) -> None:
    # Some of the files have the same text.
    check_split(split, [made(n, text=str(ord(n) % 5)) for n in names], share)


def test_the_split_of_real_files(mpmath: list[SourceFile]) -> None:
    check_split(split, mpmath, Fraction(1, 4))
    kept, held = split(mpmath, Fraction(1, 4))
    assert kept and held
    assert split(mpmath, Fraction(0)) == (mpmath, [])
    assert split(mpmath, Fraction(1)) == ([], mpmath)
    # A larger share holds out the same files and more.
    assert set(held) <= set(split(mpmath, Fraction(1, 2))[1])


def test_most_files_are_kept_by_default(mpmath: list[SourceFile]) -> None:
    many = [made(str(n), text=str(n)) for n in range(2000)]
    assert 60 < len(split(many)[1]) < 140


def by_position(files: list[SourceFile], share: Fraction) -> Any:
    cut = int(len(files) * share)
    return files[cut:], files[:cut]


def copies_apart(files: list[SourceFile], share: Fraction) -> Any:
    kept: list[SourceFile] = []
    held: list[SourceFile] = []
    for file in files:
        digest = hashlib.sha256(file.key.encode()).digest()
        (held if digest[0] < 256 * share else kept).append(file)
    return kept, held


def by_version(files: list[SourceFile], share: Fraction) -> Any:
    held = [file for file in files if int(file.version) % 2]
    return [file for file in files if file not in held], held


@pytest.mark.parametrize(
    "faulty", [by_position, copies_apart, by_version], ids=lambda f: f.__name__
)
def test_a_split_with_a_fault_is_found(faulty: Split) -> None:
    files = [made(name, text=str(ord(name) % 3)) for name in "abcdefgh"]
    check_split(split, files, Fraction(1, 2))
    must_fail(check_split, faulty, files, Fraction(1, 2))


def test_the_snapshot_binds_every_file() -> None:
    files = [made("a", "1"), made("b", "2")]
    changes: list[dict[str, str]] = [
        {name: "other"} for name in ("package", "version", "path", "sha256", "licence")
    ]
    hashes = [snapshot([replace(files[0], **c), files[1]]) for c in changes]
    hashes += [snapshot(files), snapshot(files[:1]), snapshot([])]
    assert len(set(hashes)) == len(hashes)
    assert snapshot(files) == snapshot(files[::-1])


@pytest.mark.parametrize(
    "call",
    [
        lambda: package_sources("mpmath"),
        lambda: package_sources(3),  # type: ignore[arg-type]
        lambda: package_sources([3]),  # type: ignore[list-item]
        lambda: package_sources([""]),
        lambda: split([1]),  # type: ignore[list-item]
        lambda: split([], Fraction(3, 2)),
        lambda: split([], True),
        lambda: split([], float("nan")),  # type: ignore[arg-type]
        lambda: snapshot(["a"]),  # type: ignore[list-item]
        lambda: snapshot({}),  # type: ignore[arg-type]
    ],
    ids=range(10),
)
def test_bad_input_is_refused(call: Any) -> None:
    with pytest.raises(SpecbookError):
        call()
