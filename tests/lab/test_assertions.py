"""Each assertion of 0x0F is broken by the test that it names, and its holder says so.

That a test of this name exists is little: it may test something else. So the named
tests are run, and what their holders raise is watched.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from specbook import assertions

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def raised(tmp_path_factory):
    """{test: {(holder, error)}} of a run of all linked tests."""
    out = tmp_path_factory.mktemp("raised") / "raised.json"
    tests = dict.fromkeys(found.test for found in assertions.ASSERTIONS)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q"),
            *("-p", "tests.lab.raised", "-p", "no:cacheprovider"),
            *tests,
        ],
        cwd=ROOT,
        env={**os.environ, "SPECBOOK_RAISED": str(out), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    told = json.loads(out.read_text(encoding="utf-8"))
    assert set(told) == set(tests)
    return {test: {tuple(pair) for pair in pairs} for test, pairs in told.items()}


@pytest.mark.parametrize(
    "assertion", assertions.ASSERTIONS, ids=lambda found: found.text
)
def test_the_linked_test_makes_the_holder_raise(raised, assertion):
    wanted = assertion.names()[0], assertion.error.__name__
    assert wanted in raised[assertion.test]


def test_a_holder_that_was_not_asked_is_told_apart(raised):
    structure = next(a for a in assertions.ASSERTIONS if "earlier row" in a.text)
    found = {name for name, _ in raised[structure.test]}
    assert "specbook.contract.bind" not in found
