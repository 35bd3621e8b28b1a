"""Texts and code of the whole project: nothing that only works where it was written."""

import ast
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

ROOT = Path(__file__).resolve().parents[2]
TEXT = {".py", ".md", ".toml", ".yml", ".yaml", ".txt", ".cff", ".css", ".mjs", ".json"}
BUILT = {"build", "dist", ".venv", ".git", "node_modules"}


def texts() -> Iterator[Path]:
    """The project's own text files (data is checked by its manifests)."""
    for path in sorted(ROOT.rglob("*")):
        parts = path.relative_to(ROOT).parts
        hidden = any(p.startswith(".") and p not in (".ci", ".github") for p in parts)
        if hidden or BUILT & set(parts) or parts[0] == "data" or not path.is_file():
            continue
        if path.suffix in TEXT or path.name in ("Makefile", "run", "LICENSE"):
            yield path


# ---- no machine but the reader's -------------------------------------------------

MACHINE = re.compile(r"(?<![\w./~:}\]-])/(?:home|root|work|tmp|Users|mnt|opt)/[\w.]")


def test_no_path_of_one_machine():
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()[:80]}"
        for path in texts()
        for line in path.read_text(encoding="utf-8").splitlines()
        if MACHINE.search(line)
    ]
    assert found == []


@pytest.mark.parametrize("name", ["home/me/x", "tmp/x", "root/.cache"])
def test_a_path_of_one_machine_is_found(name):
    assert MACHINE.search(f"open('/{name}')")
    assert not MACHINE.search(f"build/{name}")


def test_file_names_work_on_every_system():
    for path in texts():
        name = path.relative_to(ROOT).as_posix()
        assert len(name) <= 80 and not re.search(r'[:*?"<>|\\]', name), name


# ---- text files are UTF-8 on every machine ---------------------------------------

TEXT_CALLS = {"open", "read_text", "write_text", "fdopen", "NamedTemporaryFile"}


def unnamed_encodings(source: str) -> list[int]:
    """Lines that open a text file without naming its encoding."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        name = getattr(function, "id", None) or getattr(function, "attr", "")
        if name not in TEXT_CALLS:
            continue
        owner = getattr(getattr(function, "value", None), "id", "")
        if owner in {"webbrowser", "zipfile", "tarfile", "Image", "os"}:
            continue
        words = {keyword.arg for keyword in node.keywords}
        plain = [a.value for a in node.args if isinstance(a, ast.Constant)]
        modes = [k.value.value for k in node.keywords if k.arg == "mode"]
        binary = any(isinstance(v, str) and "b" in v for v in (*plain[-1:], *modes))
        by_place = name == "read_text" and plain or "utf-8" in plain
        in_archive = (
            name == "open"
            and isinstance(function, ast.Attribute)
            and (owner in {"archive"})
        )
        if "encoding" not in words and not (binary or by_place or in_archive):
            found.append(node.lineno)
    return found


def python_files() -> list[Path]:
    return [path for path in texts() if path.suffix == ".py"]


def test_every_text_file_names_its_encoding():
    found = {
        str(path.relative_to(ROOT)): lines
        for path in python_files()
        if (lines := unnamed_encodings(path.read_text(encoding="utf-8")))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("line", "good"),
    [
        ("open('x')", False),
        ("open('x', 'w')", False),
        ("p.read_text()", False),
        ("p.write_text('x')", False),
        ("open('x', 'rb')", True),
        ("p.open('wb')", True),
        ("open('x', encoding='utf-8')", True),
        ("p.read_text(encoding='utf-8')", True),
        ("p.read_text('utf-8')", True),
    ],
)
def test_an_unnamed_encoding_is_found(line, good):
    assert (unnamed_encodings(line) == []) is good


# ---- transformers' caches stay behind one module ---------------------------------

CACHE_WORDS = re.compile(
    r"\.(?:key_cache|value_cache|index_select\(-2|get_seq_length|crop\()"
    r"|DynamicCache|StaticCache"
)
CACHE_MODULES = {"cache.py", "lean.py"}


def test_cache_classes_are_touched_in_their_own_module():
    found = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "specbook").rglob("*.py")
        if path.name not in CACHE_MODULES
        and CACHE_WORDS.search(path.read_text(encoding="utf-8"))
    ]
    assert found == []
    assert CACHE_WORDS.search("past.key_cache[0]")


# ---- README ----------------------------------------------------------------------

DOCUMENTS = ["README.md", "CONTRIBUTING.md", "docs/index.md", "docs/troubleshooting.md"]
DOCUMENTS += ["docs/choosing.md", "docs/exporting.md"]


def commands(text: str) -> list[str]:
    """Lines that a document tells the reader to type."""
    blocks = re.findall(
        r"^```(?:console|\{code-block\} console)\n(.*?)^```", text, re.M | re.S
    )
    return [
        line[2:]
        for block in blocks
        for line in block.splitlines()
        if line.startswith("$ ")
    ]


def make_targets() -> set[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.findall(r"^([a-z]+):", text, re.MULTILINE))


def command_fault(line: str) -> str | None:
    """Say what is wrong with a command that a document shows; None when it is good."""
    from specbook.cli import app

    words = shlex.split(line)
    if words[0] == "make":
        for word in words[1:]:
            name, equals, _ = word.partition("=")
            makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
            if equals and not re.search(rf"^{name} \?=", makefile, re.MULTILINE):
                return f"{line}: the Makefile has no variable {name}"
            if not equals and word not in make_targets():
                return f"{line}: the Makefile has no target {word}"
        return None
    if words[0] == ".venv/bin/specbook":
        command = typer.main.get_command(app)
        rest = words[1:]
        while hasattr(command, "commands"):
            if not rest or rest[0] not in command.commands:
                return f"{line}: no such command"
            command = command.commands[rest.pop(0)]
        known = {name for parameter in command.params for name in parameter.opts}
        for word in rest:
            if word.startswith("--") and word.partition("=")[0] not in known:
                return f"{line}: no option {word}"
        return None
    return f"{line}: nothing tests such a command"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_command_shown_exists(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    found = commands(text)
    assert found
    assert [fault for line in found if (fault := command_fault(line))] == []


@pytest.mark.parametrize(
    "line",
    [
        "make nothing",
        "make book NOTHING=1",
        ".venv/bin/specbook nothing",
        ".venv/bin/specbook decode --nothing 1",
        "sudo rm x",
    ],
)
def test_a_command_that_does_not_exist_is_found(line):
    assert command_fault(line)


def paths_named(text: str) -> set[str]:
    """Paths of the project that a text links to or names in backquotes."""
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)\)", text)
    quoted = re.findall(r"`([\w./-]+\.(?:py|md|toml|yml|txt|cff|ipynb))`", text)
    return {*links, *quoted}


@pytest.mark.parametrize("name", DOCUMENTS[:2])
def test_every_path_named_exists(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    named = {
        path for path in paths_named(text) if "NAME" not in path and "NN" not in path
    }
    assert [path for path in sorted(named) if not (ROOT / path).exists()] == []
    assert paths_named("[x](a/b.md) and `c.py`") == {"a/b.md", "c.py"}


def test_badges_and_citation_name_the_projects_repository():
    import tomllib

    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    address = tomllib.loads(text)["project"]["urls"]["Repository"]
    slug = address.removeprefix("https://github.com/")
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"mybinder.org/v2/gh/{slug}/main" in readme
    assert f"colab.research.google.com/github/{slug}/blob/main" in readme
    assert address in (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_one_version_everywhere():
    from specbook import __version__

    assert f"\n## {__version__} (" in (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert f"\nversion: {__version__}\n" in (ROOT / "CITATION.cff").read_text("utf-8")


@pytest.mark.real
def test_the_readmes_python_runs():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    names: dict = {}
    exec(compile(block, "README.md", "exec"), names)
    assert len(names["result"].tokens) == 32
    assert names["result"].stop_reason == "length"


def test_ci_gates_on_every_step():
    text = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert text.splitlines()[0].startswith("#!")
    assert "\nset -eo pipefail\n" in text
    order = [text.index(f"make {step} ") for step in ("test", "site", "audit")]
    assert order == sorted(order)
    assert "|| true" not in text and "set +e" not in text


def test_makefile_recipes_parse():
    for target in sorted(make_targets()):
        run = subprocess.run(
            ["make", "-n", target], cwd=ROOT, capture_output=True, text=True
        )
        assert run.returncode == 0, run.stderr


def test_the_workflow_calls_the_same_commands():
    import yaml

    path = ROOT / ".github" / "workflows" / "test.yml"
    workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
    job = workflow["jobs"]["test"]
    lines = [step["run"] for step in job["steps"] if "run" in step]
    assert lines == ["make test", "make site", "make audit"]
    assert job["strategy"]["matrix"]["python"] == ["3.11", "3.13"]
    assert "schedule" in workflow[True]  # YAML reads the key `on` as a boolean
    assert [command_fault(line) for line in lines] == [None] * 3
