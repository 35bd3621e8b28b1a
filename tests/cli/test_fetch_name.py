"""`models.fetch` is the function, whatever was imported before it."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "first", ["", "models.load_target", "import specbook.models.fetch"]
)
def test_the_submodule_does_not_hide_the_function(first):
    code = f"from specbook import models\n{first}\nprint(callable(models.fetch))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "True\n"
