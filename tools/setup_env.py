"""Create .venv and install the book's environment into it, once.

    python3 tools/setup_env.py [--venv .venv] [--pins constraints.txt] [--extras dev]

Runs with nothing but the standard library of Python 3.11 to 3.13. A stamp inside the
environment holds a hash of pyproject.toml, the pins and the options; while it
matches, nothing is installed and no network is used. ``--pins none`` installs the
newest versions that pyproject.toml allows. ``--torch-index URL`` takes torch from that
index first, for example from the one that holds the small CPU builds.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST, NEWEST = (3, 11), (3, 13)
STAMP = "specbook-installed"


def wrong_python(found: tuple[int, ...]) -> str | None:
    """Return what to do when this Python is not supported, None when it is."""
    if OLDEST <= found[:2] <= NEWEST:
        return None
    return (
        f"specbook needs Python {OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}; "
        f"this is Python {found[0]}.{found[1]}. "
        f"Name another one: make book PYTHON=python{NEWEST[0]}.{NEWEST[1]}"
    )


def wanted(pins: str, extras: str, torch_index: str = "") -> str:
    """Return the stamp that a finished installation of these inputs has."""
    digest = hashlib.sha256(f"{extras}\n{torch_index}\n".encode())
    digest.update((ROOT / "pyproject.toml").read_bytes())
    if pins != "none":
        digest.update((ROOT / pins).read_bytes())
    return digest.hexdigest()


def interpreter(venv: Path) -> Path:
    """Return the environment's own Python."""
    windows = venv / "Scripts" / "python.exe"
    return windows if sys.platform == "win32" else venv / "bin" / "python"


def create(venv: Path) -> None:
    """Create the environment unless a usable one stands there.

    Raises SystemExit with what to do where Python came without its venv module.
    """
    python = interpreter(venv)
    if python.exists():
        probe = [str(python), "-m", "pip", "--version"]
        if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
            return
    print(f"creating {venv.name} with Python {sys.version.split()[0]}", flush=True)
    made = subprocess.run(
        [sys.executable, "-m", "venv", "--clear", str(venv)],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        raise SystemExit(
            f"{made.stdout}{made.stderr}\n"
            "Python could not create a virtual environment. On Debian and Ubuntu: "
            "apt-get install python3-venv"
        )


def pip_install(venv: Path, *words: str) -> None:
    """Run pip; SystemExit when it fails."""
    # Twice: pip's warnings, one for each package on some machines, would drown the
    # progress. Its errors are still shown.
    command = [str(interpreter(venv)), "-m", "pip", "install", "--quiet", "--quiet"]
    command += ["--disable-pip-version-check", *words]
    if subprocess.run(command, cwd=ROOT, check=False).returncode:
        raise SystemExit("the installation failed: see pip's message above")


def install(venv: Path, pins: str, extras: str, torch_index: str = "") -> bool:
    """Install the package in editable form with its extras; return whether it did."""
    stamp = venv / STAMP
    wish = wanted(pins, extras, torch_index)
    if stamp.exists() and stamp.read_text(encoding="utf-8").strip() == wish:
        return False
    create(venv)
    under = [] if pins == "none" else ["-c", pins]
    print(f"installing .[{extras}] (once; some minutes on a new machine)", flush=True)
    if torch_index:
        # The build of another index can have the same version number, so it replaces
        # what an earlier installation left.
        words = ("--force-reinstall", "--no-deps", "--index-url", torch_index)
        pip_install(venv, *words, "torch", *under)
    pip_install(venv, "-e", f".[{extras}]", *under)
    stamp.write_text(wish + "\n", encoding="utf-8")
    return True


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--venv", default=".venv")
    parser.add_argument("--pins", default="constraints.txt")
    parser.add_argument("--extras", default="dev")
    parser.add_argument("--torch-index", default="")
    options = parser.parse_args(arguments)
    message = wrong_python(sys.version_info[:3])
    if message:
        print(message, file=sys.stderr)
        return 1
    install(ROOT / options.venv, options.pins, options.extras, options.torch_index)
    return 0


if __name__ == "__main__":
    sys.exit(main())
