"""The parts that come from npm: MathJax for the site, axe and playwright for the audit.

Installed from tools/web/package-lock.json into build/node, once for each lock file.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "tools" / "web"
FOLDER = ROOT / "build" / "node"
# What a page needs at run time, of the tens of megabytes that the packages hold. The
# speech worker (sre/) is left out: it cannot start from a page opened from disk, so
# the site gives screen readers MathML instead.
MATHJAX_PARTS = (
    ("mathjax/tex-chtml.js", "tex-chtml.js"),
    ("mathjax/input", "input"),
    ("mathjax/a11y/assistive-mml.js", "a11y/assistive-mml.js"),
    ("mathjax/ui", "ui"),
    ("mathjax/LICENSE", "LICENSE"),
    ("@mathjax/mathjax-newcm-font/chtml", "mathjax-newcm-font/chtml"),
    ("@mathjax/mathjax-newcm-font/chtml.js", "mathjax-newcm-font/chtml.js"),
)


class MissingPart(ValueError):
    """A part from npm is neither here nor to be had; the message says what to do."""


def node_modules() -> Path:
    """Return the folder of the installed npm packages, installing them when needed.

    Raises MissingPart where npm is absent or its registry does not answer.
    """
    lock = (SOURCE / "package-lock.json").read_bytes()
    wish = hashlib.sha256(lock).hexdigest()
    stamp = FOLDER / "installed"
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wish:
        return FOLDER / "node_modules"
    npm = shutil.which("npm")
    if npm is None:
        raise MissingPart("npm is not installed (it comes with Node.js 20 or newer)")
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copyfile(SOURCE / name, FOLDER / name)
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
    run = subprocess.run(
        command, cwd=FOLDER, capture_output=True, text=True, check=False
    )
    if run.returncode:
        said = (run.stderr or run.stdout).strip()
        raise MissingPart(f"npm ci failed with status {run.returncode}: {said[-400:]}")
    stamp.write_text(wish, encoding="utf-8")
    return FOLDER / "node_modules"


def copy_mathjax(static: Path) -> None:
    """Put MathJax and its fonts into ``static/mathjax``."""
    modules = node_modules()
    for source, target in MATHJAX_PARTS:
        here, there = modules / source, static / "mathjax" / target
        there.parent.mkdir(parents=True, exist_ok=True)
        if here.is_dir():
            shutil.copytree(here, there, dirs_exist_ok=True)
        else:
            shutil.copyfile(here, there)
