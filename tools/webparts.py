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
NPM_SECONDS = 900
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


def node_modules(audit: bool = False) -> Path:
    """Return the folder of the installed npm packages, installing them when needed.

    The site needs MathJax; ``audit`` adds what drives the browser. Raises MissingPart
    where npm is absent or its registry does not answer.
    """
    lock = (SOURCE / "package-lock.json").read_bytes()
    wish = hashlib.sha256(lock).hexdigest()
    stamp = FOLDER / "installed"
    parts = ("site", "audit") if audit else ("site",)
    if stamp.exists():
        held = stamp.read_text(encoding="utf-8").split()
        if held[:1] == [wish] and set(parts) <= set(held[1:]):
            return FOLDER / "node_modules"
    npm = shutil.which("npm")
    if npm is None:
        raise MissingPart("npm is not installed (it comes with Node.js 20 or newer)")
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copyfile(SOURCE / name, FOLDER / name)
    stamp.unlink(missing_ok=True)
    command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
    if not audit:
        command.append("--omit=dev")
    print("getting the web parts with npm (once)", flush=True)
    try:
        run = subprocess.run(
            command,
            cwd=FOLDER,
            capture_output=True,
            text=True,
            check=False,
            timeout=NPM_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise MissingPart(f"npm ci had not ended after {NPM_SECONDS} s") from None
    if run.returncode:
        said = (run.stderr or run.stdout).strip()[-400:] or "it said nothing"
        raise MissingPart(f"npm ci failed with status {run.returncode} ({said})")
    stamp.write_text(" ".join([wish, *parts]), encoding="utf-8")
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
