"""How much the daemon yields to training: nice, and the priority of its disk I/O.

Both are of the thread that asks, and threads and processes that it starts later inherit
them: ask first.  A priority is only ever lowered.  What cannot be had is told and not
missed: the daemon then runs as any other process.
"""

import ctypes
import errno
import os
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class IoPriority(StrEnum):
    """``idle`` only where nobody else wants the disk; ``low`` after everybody else, but in the end."""

    IDLE = "idle"
    LOW = "low"
    NORMAL = "normal"


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """What was done: the nice value now, and what could not be had and why."""

    nice: int
    io: IoPriority
    missed: tuple[str, ...] = ()


_NUMBERS = MappingProxyType(
    {
        **dict.fromkeys(("x86_64", "amd64"), 251),
        **dict.fromkeys(("aarch64", "arm64", "riscv64", "loongarch64"), 30),
        **dict.fromkeys(("i386", "i686"), 289),
        **dict.fromkeys(("armv7l", "armv6l"), 314),
        **dict.fromkeys(("ppc64le", "ppc64"), 273),
        "s390x": 282,
    }
)
"""ioprio_set has no function in the C library; the kernel's number of it depends on the machine."""
_WHO_PROCESS = 1
_CLASS_SHIFT = 13
_VALUES = MappingProxyType({IoPriority.IDLE: 3 << _CLASS_SHIFT, IoPriority.LOW: (2 << _CLASS_SHIFT) | 7})

SetIo = Callable[[int], None]


def system_call(value: int) -> None:
    """Set the I/O priority of this thread; raises OSError, ENOSYS where this machine's number is not known."""
    number = _NUMBERS.get(platform.machine())
    if not sys.platform.startswith("linux") or number is None:
        raise OSError(errno.ENOSYS, f"no ioprio_set is known on {platform.system()} {platform.machine()}")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(number, _WHO_PROCESS, 0, value) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def yield_to_others(nice: int, io: IoPriority, set_io: SetIo = system_call) -> Applied:
    """Lower this thread's priorities, and with them those of what it starts from now on."""
    missed: list[str] = []
    try:
        current = os.getpriority(os.PRIO_PROCESS, 0)
        if current < nice:
            os.setpriority(os.PRIO_PROCESS, 0, nice)
            current = nice
    except (OSError, AttributeError) as error:
        current = 0
        missed.append(f"nice {nice}: {error}")
    if io is not IoPriority.NORMAL:
        try:
            set_io(_VALUES[io])
        except (OSError, AttributeError) as error:
            missed.append(f"io_priority {io}: {error}")
    return Applied(nice=current, io=io, missed=tuple(missed))
