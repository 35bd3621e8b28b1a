"""A module imports from its own floor or from below; the lower two need no torch."""

import ast
import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tools import floors

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "specbook").rglob("*.py"))
HEAVY = ("torch", "transformers", "accelerate", "safetensors", "gguf")


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path, name: str) -> Iterator[str]:
    """Every module of ours that a file imports, wherever in the file it does."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                dots = "." * node.level + base
                base = importlib.util.resolve_name(dots, package)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)


def known(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def floor_faults(path: Path) -> list[str]:
    """Name each import of a file that goes up, or that a lower floor may not make."""
    name = module_name(path)
    own = floors.floor(name)
    faults = []
    for other in imports(path, name):
        if other.split(".")[0] in HEAVY and own in floors.NO_TORCH:
            faults.append(f"{name} (floor {own}) imports {other}")
        if other.startswith("specbook.") and known(other) and floors.floor(other) > own:
            faults.append(
                f"{name} (floor {own}) imports {other} (floor {floors.floor(other)})"
            )
    return sorted(set(faults))


@pytest.mark.parametrize("path", FILES, ids=module_name)
def test_imports_stay_on_their_floor(path):
    assert floor_faults(path) == []


def test_an_import_from_above_is_caught(tmp_path, monkeypatch):
    folder = tmp_path / "specbook"
    folder.mkdir()
    (folder / "engine.py").write_text("", encoding="utf-8")
    low = folder / "chance.py"
    low.write_text("def f():\n    from . import engine\n    import torch\n", "utf-8")
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    assert floor_faults(low) == [
        "specbook.chance (floor 1) imports specbook.engine (floor 4)",
        "specbook.chance (floor 1) imports torch",
    ]


def test_a_module_without_a_floor_is_refused():
    with pytest.raises(ValueError, match="has no floor"):
        floors.floor("specbook.nowhere")


def run(code: str) -> str:
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


def test_the_lower_floors_import_with_torch_hidden():
    names = [module_name(p) for p in FILES]
    low = [n for n in names if floors.floor(n) in floors.NO_TORCH]
    assert "specbook.tree" in low
    assert "specbook.verifiers.greedy" in low
    hidden = {name: None for name in HEAVY}
    code = (
        f"import sys; sys.modules.update({hidden!r})\n"
        f"import importlib\nfor n in {low!r}: importlib.import_module(n)\n"
        "print('ok')"
    )
    assert run(code) == "ok"


def test_import_specbook_is_light():
    code = (
        "import sys; import specbook\n"
        "print(*sorted({m.split('.')[0] for m in sys.modules}))"
    )
    loaded = set(run(code).split())
    assert not loaded & {*HEAVY, "numpy", "scipy", "networkx", "matplotlib", "rich"}


def test_the_command_line_starts_without_torch():
    code = "import sys; import specbook.cli\nprint('torch' in sys.modules)"
    assert run(code) == "False"
