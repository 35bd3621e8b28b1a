"""What the tests of the core share: sources with fixed trees, tables, and checks.

A check is a function that raises `AssertionError`. Each is run twice: on the real part,
which must pass it, and on a part with a planted fault, which must not (`must_fail`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest


def must_fail(check: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    """`check` on a part with a planted fault: it has to find the fault."""
    with pytest.raises(AssertionError):
        check(*arguments, **options)


def named(value: Any) -> str:
    """The name of a test's case: its `repr`, as far as that is the same in every
    process. Addresses differ between processes, and so does the order of a set; workers
    that name one test differently cannot share the work."""
    text = re.sub(r" at 0x[0-9a-f]+", "", repr(value))
    return type(value).__name__ if "set({" in text else text
