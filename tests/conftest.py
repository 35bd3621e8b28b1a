"""Tests marked `real` need the fetched target.

Without it a bare pytest skips them, so that the package can be worked on with no
network. `make test` fetches it first and says so; there a skip would hide a failure.
"""

import os

import pytest

REQUIRED = "SPECBOOK_TARGET_IS_FETCHED"


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("real") is None:
        return
    from specbook.models import is_fetched

    if not is_fetched():
        if os.environ.get(REQUIRED):
            pytest.fail(f"{REQUIRED} is set, and the real target is not there")
        pytest.skip("the real target is not in the cache: specbook fetch")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The files that decode with the real target first: they are the longest, and one
    of them begun last would keep one worker busy after the others are done."""
    real = {item.path for item in items if item.get_closest_marker("real")}
    items.sort(key=lambda item: item.path not in real)
