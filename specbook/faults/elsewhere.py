"""Public threads whose fault is none of a round: where the book shows them.

The lab plants what goes wrong between a proposal and a published token. People who
build such a runtime also met faults of the tools around it. They get no row, because no
round has them; each has a test of its own, which is named here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Elsewhere:
    """`mistake`: what was done. `seen`: public threads. `test`: the test that has the
    fault in it, as pytest names it."""

    mistake: str
    seen: tuple[str, ...]
    test: str


ELSEWHERE = (
    Elsewhere(
        "ids are turned into text one by one, and half a character has none",
        ("antonellof/ferrox #124", "Blaizzy/mlx-vlm #1665"),
        "tests/drafts/rest/test_rest_datastore.py::"
        "test_h08_characters_of_several_tokens",
    ),
    Elsewhere(
        "an oracle's flow is computed with capacities that were rounded",
        ("networkx/networkx #8761", "networkx/networkx #7775"),
        "tests/oracles/test_transport.py::test_capacities_that_are_rounded_are_found",
    ),
    Elsewhere(
        "a slow cell meets the runner's own time limit, or a kernel of one machine",
        ("treebeardtech/nbmake #50", "treebeardtech/nbmake #122"),
        "tests/house/test_execute.py::test_the_command_has_limits_and_one_kernel",
    ),
    Elsewhere(
        "a notebook and its text are compared by their time stamps",
        ("jupytext/jupytext #63",),
        "tests/house/test_pairs.py::test_time_stamps_say_nothing",
    ),
    Elsewhere(
        "every worker of a test run starts a thread for each core",
        ("pytest-dev/pytest-xdist #1012", "scikit-learn/scikit-learn #15078"),
        "tests/house/test_threads.py::test_workers_of_a_test_run_have_one_thread_each",
    ),
)
