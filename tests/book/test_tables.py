"""The files of tables are read in one place, and each refuses what no such file is."""

import ast
from pathlib import Path

import pytest

from specbook import claims, gate, neighbours, paths, tables
from specbook.claims import ClaimError
from specbook.errors import ArtifactError, SpecbookError
from specbook.gate import GateError
from specbook.neighbours import NeighbourError
from specbook.training import recipes

PACKAGE = Path(tables.__file__).parent
LOADERS = {
    "claim": (claims.load, "claims.toml", ClaimError),
    "line": (gate.load, "gate.toml", GateError),
    "neighbour": (neighbours.load, "neighbours.toml", NeighbourError),
}


def test_no_other_module_reads_such_files():
    """The prompts are hashed before they are parsed, so their loader has the bytes."""
    readers = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import) and node.names[0].name == "tomllib"
    }
    assert readers == {"tables.py", "prompts.py"}


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "nothing else"),
        (b"# only words\n", "nothing else"),
        (b"NAME = []", "nothing else"),
        (b"NAME = {}", "nothing else"),
        (b"[NAME]\nid = 1", "nothing else"),
        (b"[[NAME]]\n[more]\n", "nothing else"),
        (b"NAME = [[]]", "is no table"),
        (b"[[NAME]]\nid = 'x'\nbogus = 1", r"NAME 1 \('x'\): unknown \['bogus'\]"),
        (b"[[NAME]]", r"NAME 1: no \["),
        (b"[[NAME]]\nid = 'a'\nid = 'b'", "no TOML file"),
        (b"\xff", "no TOML file"),
        (b"x = " + b"[" * 100_000, "no TOML file"),
    ],
)
def test_what_is_no_such_file_is_refused(tmp_path, name, content, told):
    load, file, error = LOADERS[name]
    path = tmp_path / file
    path.write_bytes(content.replace(b"NAME", name.encode()))
    with pytest.raises(error, match=told.replace("NAME", name)):
        load(path)


@pytest.mark.parametrize("name", LOADERS)
@pytest.mark.parametrize("path", [3, True, ["x"], b"x", "nowhere", "a\0b", "."])
def test_what_is_no_path_is_refused(name, path):
    load, _, error = LOADERS[name]
    with pytest.raises(error):
        load(path)


@pytest.mark.parametrize("content", ["", "recipe = []", "[[recipe]]", "[[recipe]"])
def test_recipes_are_read_there_too(tmp_path, monkeypatch, content):
    (tmp_path / "recipes.toml").write_text(content, encoding="utf-8")
    monkeypatch.setattr(paths, "data_path", lambda *parts: tmp_path.joinpath(*parts))
    with pytest.raises(ArtifactError, match=r"recipes\.toml"):
        recipes.reported()


def test_lists_of_texts_are_checked():
    assert tables.texts(["a", "b"], "x", SpecbookError) == ["a", "b"]
    for bad in ("ab", None, ["a", "a"], [" "], [1], {"a": 1}):
        with pytest.raises(SpecbookError, match="x"):
            tables.texts(bad, "x", SpecbookError)
