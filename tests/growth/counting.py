"""How much work something is, in a number that is the same on every machine: bytecode instructions."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def steps(act: Callable[[], object]) -> int:
    """Return how many instructions of Python run in ``act``; loops inside C functions count as one."""
    count = 0

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        act()
    finally:
        sys.settrace(before)
    return count


def growth(make: Callable[[int], Callable[[], object]], size: int) -> float:
    """Return by what the work grows from ``size`` to twice that: 2.0 is linear, 4.0 quadratic."""
    small, large = make(size), make(2 * size)
    small()  # what is made once, such as validators, is no part of it
    return steps(large) / steps(small)
