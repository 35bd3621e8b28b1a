"""pyproject.toml is the truth; what is made from it has not drifted."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tools import environment, lock, setup_env

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
PROJECT = tomllib.loads(PYPROJECT)["project"]


def all_requirements() -> list[str]:
    lines = list(PROJECT["dependencies"])
    for extra in PROJECT["optional-dependencies"].values():
        lines += extra
    return lines


def pinned(lines: list[str]) -> list[str]:
    """Requirements that name one exact version: they break the next reader."""
    return [line for line in lines if re.search(r"===?", line)]


def test_no_exact_version_in_the_metadata():
    assert pinned(all_requirements()) == []
    assert pinned(["numpy==2.0", "scipy>=1"]) == ["numpy==2.0"]


def test_the_core_is_free_of_torch():
    core = {Requirement(line).name for line in PROJECT["dependencies"]}
    assert not core & {"torch", "transformers", "accelerate", "matplotlib"}


def test_environment_yml_is_what_pyproject_gives(capsys, monkeypatch, tmp_path):
    assert environment.main(["--check"]) == 0
    drifted = tmp_path / "environment.yml"
    drifted.write_text("name: other\n", encoding="utf-8")
    monkeypatch.setattr(environment, "TARGET", drifted)
    assert environment.main(["--check"]) == 1
    assert "make lock" in capsys.readouterr().out


def test_environment_yml_installs_what_is_tested():
    import yaml

    content = yaml.safe_load(environment.render(PYPROJECT))
    assert content["channels"] == ["conda-forge", "nodefaults"]
    *conda, pip = content["dependencies"]
    assert conda == [f"python{PROJECT['requires-python']}", "pip"]
    assert pip == {"pip": ["-c constraints.txt", "-e .[book]"]}


def test_constraints_cover_every_direct_requirement():
    pins = lock.read_pins(lock.PINS.read_text(encoding="utf-8"))
    assert lock.range_faults(pins, lock.requirements("dev")) == []
    assert pins["torch"] == "2.13.0"
    assert "specbook" not in pins


def test_a_missing_or_outlying_pin_is_named():
    wishes = [Requirement("numpy>=2,<3"), Requirement("scipy>=1")]
    faults = lock.range_faults({"numpy": "1.26"}, wishes)
    assert faults[0].startswith("numpy==1.26 is outside")
    assert faults[1].startswith("scipy: no pin")


def test_drift_of_an_installed_version_is_named():
    assert lock.drift({"numpy": "2.4.6"}, {"numpy": "2.4.6"}) == []
    (fault,) = lock.drift({"numpy": "2.4.6"}, {"numpy": "2.5.0"})
    assert fault == "numpy: 2.5.0 is installed, constraints.txt says 2.4.6"


@pytest.mark.parametrize(
    "line", ["numpy>=2", "torch==2.13.0+cpu", "-e .", "numpy", "x @ file:y"]
)
def test_a_line_that_is_no_pin_is_refused(line):
    with pytest.raises(ValueError, match="line 2: not name==version"):
        lock.read_pins(f"# head\n{line}\n")


def test_extras_build_on_each_other():
    names = [{r.name for r in lock.requirements(e)} for e in (None, "models", "book")]
    assert names[0] < names[1] < names[2] < {r.name for r in lock.requirements("dev")}


def test_closure_names_what_is_missing():
    found = lock.closure([Requirement("numpy"), Requirement("rich")])
    assert {"numpy", "rich", "pygments"} <= set(found)
    with pytest.raises(ValueError, match="no-such-thing is not installed"):
        lock.closure([Requirement("no-such-thing")])


@pytest.mark.parametrize("version", [(3, 11, 0), (3, 12, 9), (3, 13, 1)])
def test_supported_pythons(version):
    assert setup_env.wrong_python(version) is None


@pytest.mark.parametrize("version", [(3, 10, 13), (3, 14, 0), (2, 7, 18)])
def test_other_pythons_are_told_what_to_do(version):
    message = setup_env.wrong_python(version)
    assert f"{version[0]}.{version[1]}" in message
    assert "make book PYTHON=" in message


def test_setup_agrees_with_requires_python():
    low, high = setup_env.OLDEST, setup_env.NEWEST
    wish = f">={low[0]}.{low[1]},<{high[0]}.{high[1] + 1}"
    assert PROJECT["requires-python"] == wish


def test_a_finished_installation_is_left_alone(tmp_path, monkeypatch):
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("something was installed")

    monkeypatch.setattr(setup_env.subprocess, "run", refuse)
    stamp = tmp_path / setup_env.STAMP
    stamp.write_text(setup_env.wanted("constraints.txt", "dev"), encoding="utf-8")
    assert not setup_env.install(tmp_path, "constraints.txt", "dev")
    with pytest.raises(AssertionError):
        setup_env.install(tmp_path, "none", "dev")


def test_the_stamp_follows_its_inputs(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").write_text("a", encoding="utf-8")
    (tmp_path / "pins").write_text("b", encoding="utf-8")
    monkeypatch.setattr(setup_env, "ROOT", tmp_path)
    first = setup_env.wanted("pins", "dev")
    assert setup_env.wanted("pins", "book") != first
    assert setup_env.wanted("none", "dev") != first
    assert setup_env.wanted("pins", "dev", "an index of torch") != first
    (tmp_path / "pins").write_text("c", encoding="utf-8")
    second = setup_env.wanted("pins", "dev")
    (tmp_path / "pyproject.toml").write_text("d", encoding="utf-8")
    assert len({first, second, setup_env.wanted("pins", "dev")}) == 3
