"""Execute every notebook once, in copies under build/executed.

    python tools/execute.py                  all notebooks
    python tools/execute.py 0x02 0x07        those whose names start so

``make book`` and ``make test`` both come here, and the site is built from these
copies, so nothing is executed twice. The tracked files stay untouched. What ran is
written down as a hash over the package, its data, the notebooks and the pinned
versions (``stamp.json``): the site refuses executions that are older than the code.

A run of the whole book ends at the publish gate: it fails, with a list, unless every
claim of the register was shown in it and held.

A run works in folders of its own, which take the final names when it ends: an
interrupted run leaves the last one as it was, and two runs cannot mix.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from specbook import gate  # noqa: E402

NOTEBOOKS = ROOT / "notebooks"
EXECUTED = ROOT / "build" / "executed"
RECORDS = ROOT / "build" / "records"
# Guards against a hang, far above what a cell takes on a machine that is busy with
# other work: a time never fails a run.
CELL_SECONDS = 3600
NOTEBOOK_SECONDS = 7200
SOURCES = ("specbook", "data", "notebooks", "constraints.txt")
NO_TESTS = 5
GATE_CLOSED = 1


def source_hash(root: Path = ROOT) -> str:
    """Return one hash over the contents that an execution depends on."""
    digest = hashlib.sha256()
    for name in SOURCES:
        top = root / name
        files = [top] if top.is_file() else sorted(top.rglob("*"))
        for path in files:
            if not path.is_file() or path.suffix == ".pyc":
                continue
            if ".ipynb_checkpoints" in path.parts:
                continue
            digest.update(path.relative_to(root).as_posix().encode("utf-8"))
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def command(files: list[Path], folder: Path) -> list[str]:
    """Return the pytest command that executes the copies in place."""
    return [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tools.progress",
        "-p",
        "no:cacheprovider",
        "--nbmake",
        "--overwrite",
        "--nbmake-kernel=python3",
        f"--nbmake-timeout={CELL_SECONDS}",
        f"--timeout={NOTEBOOK_SECONDS}",
        f"--timings={folder}",
        *map(str, files),
    ]


def environment(records: Path) -> dict[str, str]:
    """Return the environment of the kernels.

    The kernel must be this interpreter's own, whatever a user has installed under
    the same name; the target is in the cache already, so the hub is not asked.
    """
    env = dict(os.environ)
    env["SPECBOOK_RECORDS"] = str(records)
    env["JUPYTER_PREFER_ENV_PATH"] = "1"
    env["PYTHONHASHSEED"] = "0"
    env.setdefault("TOKENIZERS_PARALLELISM", "false")
    if "SPECBOOK_TARGET" not in env:
        env.setdefault("HF_HUB_OFFLINE", "1")
    return env


def execute(
    notebooks: Path = NOTEBOOKS,
    folder: Path = EXECUTED,
    records: Path = RECORDS,
    only: tuple[str, ...] = (),
) -> int:
    """Run copies of the notebooks and leave them in ``folder``; return pytest's status.

    Raises ValueError when no notebook is found: a run of nothing must not pass.
    """
    chosen = [
        path
        for path in sorted(notebooks.glob("*.ipynb"))
        if not only or path.name.startswith(only)
    ]
    if not chosen:
        raise ValueError(f"no notebook to execute in {notebooks}")
    finals = (folder, records)
    parts = [path.with_name(f"{path.name}.{os.getpid()}") for path in finals]
    try:
        for part in parts:
            part.mkdir(parents=True)
        complete = not only and notebooks == NOTEBOOKS
        status = run(chosen, parts[0], parts[1], complete=complete)
        for part, final in zip(parts, finals, strict=True):
            shutil.rmtree(final, ignore_errors=True)
            part.replace(final)
    finally:
        for part in parts:
            shutil.rmtree(part, ignore_errors=True)
    return status


def run(chosen: list[Path], folder: Path, records: Path, complete: bool) -> int:
    """Copy the notebooks into ``folder``, run them there, write the stamp."""
    copies = [folder / path.name for path in chosen]
    for path, copy in zip(chosen, copies, strict=True):
        shutil.copyfile(path, copy)
    before = source_hash()
    status = subprocess.run(
        command(copies, folder), cwd=ROOT, env=environment(records), check=False
    ).returncode
    if status == NO_TESTS:
        raise ValueError("pytest collected no notebook: is nbmake installed?")
    unshown = open_claims(records) if complete and status == 0 else []
    if unshown:
        print("the gate is not green:", *unshown, sep="\n  ", file=sys.stderr)
        status = GATE_CLOSED
    stamp = {
        "sources": before,
        "complete": status == 0 and complete,
        "notebooks": [path.name for path in chosen],
    }
    (folder / "stamp.json").write_text(json.dumps(stamp) + "\n", encoding="utf-8")
    return status


def open_claims(records: Path) -> list[str]:
    """Return what a run's records leave open, worst first; nothing when all is green.

    A damaged record is one line of its own: it shows nothing.
    """
    try:
        return gate.judge(records).faults()
    except ValueError as error:
        return [str(error)]


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("only", nargs="*", help="starts of notebook names")
    parser.add_argument("--notebooks", type=Path, default=NOTEBOOKS)
    options = parser.parse_args(arguments)
    try:
        return execute(options.notebooks.resolve(), only=tuple(options.only))
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
