"""Where things may be mentioned: one module knows transformers' cache objects."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import specbook

PACKAGE = Path(specbook.__file__).parent
ONLY = PACKAGE / "models" / "cache.py"

CACHE_NAMES = {
    "DynamicCache",
    "StaticCache",
    "DynamicLayer",
    "EncoderDecoderCache",
    "cache_utils",
    "past_key_values",
    "key_cache",
    "value_cache",
    "key_states",
    "crop",
    "get_seq_length",
    "get_mask_sizes",
    "batch_select_indices",
    "reorder_cache",
    "is_sliding",
    "is_linear",
    "cumulative_length",
}


def mentions(source: str) -> set[str]:
    """Cache names that code (not prose) of `source` uses: names, attributes,
    keywords, imports and strings that are exactly such a name."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.keyword) and node.arg:
            found.add(node.arg)
        elif isinstance(node, ast.alias):
            found.update(node.name.split("."))
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.update(node.module.split("."))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found & CACHE_NAMES


@pytest.mark.parametrize(
    "path",
    sorted(PACKAGE.rglob("*.py")),
    ids=lambda path: str(path.relative_to(PACKAGE)),
)
def test_only_one_module_touches_cache_objects(path):
    found = mentions(path.read_text(encoding="utf-8"))
    if path == ONLY:
        assert {"DynamicCache", "get_seq_length", "past_key_values"} <= found
    else:
        assert not found, f"{path.name} must leave {sorted(found)} to {ONLY.name}"


@pytest.mark.parametrize(
    "code",
    [
        "out.past_key_values[0]",
        "model(ids, past_key_values=c)",
        "from transformers import DynamicCache",
        "from transformers.cache_utils import Cache",
        "import transformers.cache_utils as c",
        "cache.crop(-1)",
        "getattr(cache, 'key_cache')",
        "f(**{'past_key_values': c})",
    ],
)
def test_the_boundary_check_sees_a_breach(code):
    assert mentions(code)


def test_the_boundary_check_lets_prose_pass():
    assert not mentions('"""What past_key_values was is history."""\nx = 1')


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_models_import_no_torch_until_they_are_needed():
    out = run(
        "import sys, specbook.models, specbook.models.protocol, specbook.models.table\n"
        "import specbook.models.fetch\n"
        "print(sorted({'torch', 'transformers'} & set(sys.modules)))\n"
        "assert callable(specbook.models.fetch)\n"
        "from specbook.models import load_target\n"
        "print('torch' in sys.modules)\n"
    )
    assert out.split("\n")[:2] == ["[]", "True"]


def test_an_unknown_name_is_an_attribute_error():
    import specbook.models

    with pytest.raises(AttributeError, match="nothing_here"):
        specbook.models.nothing_here  # noqa: B018


def test_every_promised_name_is_there():
    import specbook.models

    for name in specbook.models.__all__:
        assert getattr(specbook.models, name) is not None
