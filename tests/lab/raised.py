"""A pytest plugin: which holder of an assertion raised what, in which test.

`test_assertions.py` runs the linked tests with it, in a process of their own.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from specbook import assertions

OUT = "SPECBOOK_RAISED"
HOLDERS = {
    (holder.__module__, holder.__qualname__)
    for assertion in assertions.ASSERTIONS
    for holder in assertion.held_by
}
_found: dict[str, set[tuple[str, str]]] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Notes every exception that passes through a holder while `item` runs."""
    raised = _found.setdefault(item.nodeid.partition("[")[0], set())

    def inside(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "exception":
            name = f"{frame.f_globals['__name__']}.{frame.f_code.co_qualname}"
            for kind in argument[0].__mro__:
                raised.add((name, kind.__name__))
        return inside

    def entered(frame: FrameType, event: str, argument: Any) -> Any:
        here = frame.f_globals.get("__name__"), frame.f_code.co_qualname
        return inside if here in HOLDERS else None

    before = sys.gettrace()
    sys.settrace(entered)
    try:
        return (yield)
    finally:
        sys.settrace(before)


def pytest_sessionfinish() -> None:
    """Writes {test: [[holder, error], ...]} to the file that `OUT` names."""
    told = {test: sorted(pairs) for test, pairs in _found.items()}
    with open(os.environ[OUT], "w", encoding="utf-8") as stream:
        json.dump(told, stream)
