"""Telling the kernel to begin writing what will be fsynced soon; nothing here makes anything durable.

``sync_file_range`` starts the I/O of a range and returns.  Where there is none (another
system, another filesystem), the fsync that follows anyway does all of the work.
"""

import ctypes
import sys
from functools import cache
from typing import Any

_WRITE = 2
"""SYNC_FILE_RANGE_WRITE: begin to write the dirty pages of the range, wait for none."""


def start_writeback(fd: int, start: int = 0, length: int = 0) -> bool:
    """Begin to write a range of an open file; 0 is up to its end.  False where that cannot be had."""
    call = _function()
    return call is not None and call(fd, start, length, _WRITE) == 0


def can_start_writeback() -> bool:
    """Whether this platform has a way to begin without waiting."""
    return _function() is not None


@cache
def _function() -> Any:
    """Return libc's sync_file_range, None where there is none."""
    if not sys.platform.startswith("linux"):
        return None
    try:
        function = ctypes.CDLL(None).sync_file_range
    except (OSError, AttributeError):
        return None
    function.argtypes = (ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint)
    function.restype = ctypes.c_int
    return function
