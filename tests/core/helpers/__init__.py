"""What the tests of the core share: sources with fixed trees, tables, and checks.

A check is a function that raises `AssertionError`. Each is run twice: on the real part,
which must pass it, and on a part with a planted fault, which must not (`must_fail`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def must_fail(check: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    """`check` on a part with a planted fault: it has to find the fault."""
    with pytest.raises(AssertionError):
        check(*arguments, **options)
