"""environment.yml for conda, mamba and Binder, generated from pyproject.toml.

    python tools/environment.py --write
    python tools/environment.py --check

conda-forge gives Python and pip. Everything else comes through the same pinned pip
install as the Makefile's, so that what conda installs is what is tested: a mixture
of conda's and pip's torch is a known way to get two of them.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "environment.yml"


def render(pyproject: str) -> str:
    """Return environment.yml for the text of a pyproject.toml."""
    project = tomllib.loads(pyproject)["project"]
    return f"""\
# Generated from pyproject.toml by tools/environment.py: edit that file, not this one.
#     conda env create -f environment.yml && conda activate {project["name"]}
name: {project["name"]}
channels:
  - conda-forge
  - nodefaults
dependencies:
  - python{project["requires-python"]}
  - pip
  - pip:
      - -c constraints.txt
      - -e .[book]
"""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--write", action="store_true")
    mode.add_argument("--check", action="store_true")
    options = parser.parse_args(arguments)
    text = render((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    if options.write:
        part = TARGET.with_suffix(".part")
        part.write_text(text, encoding="utf-8")
        part.replace(TARGET)
        return 0
    if not TARGET.exists() or TARGET.read_text(encoding="utf-8") != text:
        print("environment.yml is not what pyproject.toml gives: run make lock")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
