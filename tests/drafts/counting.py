"""Cost counted in bytecodes, which no other load on the machine can change."""

from __future__ import annotations

import sys
from collections.abc import Callable


def bytecodes(call: Callable[[], object]) -> int:
    """How many Python bytecodes a call executes. Exact, whatever the machine does."""
    count = 0

    def trace(frame, event, argument):  # noqa: ANN001, ANN202
        nonlocal count
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count
