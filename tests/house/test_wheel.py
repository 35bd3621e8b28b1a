"""What a reader gets from ``pip install``: the package, its data, and no torch."""

import email
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel made from the source distribution, as an installer would make it."""
    folder = tmp_path_factory.mktemp("dist")
    run = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout[-2000:] + run.stderr[-2000:]
    return folder


def test_the_wheel_holds_package_data_and_type_marker(built):
    (wheel,) = built.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {"specbook/py.typed", "specbook/tree.py"} <= names
    data = [p for p in (ROOT / "data").rglob("*") if p.is_file()]
    assert data
    for path in data:
        inside = "specbook/_data/" + path.relative_to(ROOT / "data").as_posix()
        assert inside in names
    # The chapters too: the gate and the errata are read from their texts.
    for path in (ROOT / "notebooks").glob("*.md"):
        assert f"specbook/_notebooks/{path.name}" in names
    assert not [n for n in names if n.split("/")[0] in ("tests", "tools", "docs")]


def test_the_metadata_asks_for_no_torch_and_pins_nothing(built):
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        metadata = email.message_from_string(archive.read(name).decode("utf-8"))
    wishes = metadata.get_all("Requires-Dist")
    core = [wish for wish in wishes if "extra ==" not in wish]
    assert core and not any(wish.startswith(("torch", "transformers")) for wish in core)
    assert not [wish for wish in wishes if "==" in wish.split(";")[0]]
    assert metadata["License-Expression"] == "Apache-2.0"
    assert "specbook decode" in metadata.get_payload()


def test_the_source_distribution_is_complete(built):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for wanted in (
        "Makefile",
        "constraints.txt",
        "environment.yml",
        "LICENSE",
        "CITATION.cff",
        "docs/conf.py",
        "tools/pairs.py",
        "tools/web/package-lock.json",
        "tests/house/test_wheel.py",
        "specbook/py.typed",
        "data/claims.toml",
        ".ci/run",
    ):
        assert wanted in names, wanted
