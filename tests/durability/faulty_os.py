"""Calls of the operating system that fail: the n-th one of a kind, on a file below a folder."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

BY_PATH = ("open", "rename", "link", "mkdir", "unlink")
BY_DESCRIPTOR = ("write", "pwrite", "fsync", "close", "posix_fallocate", "ftruncate", "fchmod")
CALLS = (*BY_PATH, *BY_DESCRIPTOR)
ERRNOS = (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.ESTALE, errno.EROFS)


@dataclass(slots=True)
class Fault:
    """One call that fails, once or for ever; ``fired`` says how often it did, ``at`` on what."""

    name: str
    number: int
    errno: int
    below: Path
    for_ever: bool = False
    seen: int = 0
    fired: int = 0
    at: str = ""
    real: Callable[..., Any] = field(default=os.open)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        where = self._where(arguments[0], named)
        if not where.startswith(str(self.below)):
            return self.real(*arguments, **named)
        self.seen += 1
        if self.seen < self.number or (self.fired and not self.for_ever):
            return self.real(*arguments, **named)
        self.fired += 1
        self.at = self.at or where
        if self.name == "close":
            self.real(*arguments)  # the descriptor is gone whatever a close says
        raise OSError(self.errno, os.strerror(self.errno), *([where] if self.name in BY_PATH else []))

    def _where(self, target: Any, named: dict[str, Any]) -> str:
        if isinstance(target, int):
            return _path_of(target)
        folder = named.get("dir_fd", named.get("src_dir_fd"))
        parent = _path_of(folder) if folder is not None else ""
        return str(Path(parent, os.fsdecode(target)))


def _path_of(descriptor: int) -> str:
    try:
        return str(Path(f"/proc/self/fd/{descriptor}").readlink())
    except OSError:
        return ""


@contextmanager
def failing(name: str, number: int, code: int, below: Path, *, for_ever: bool = False) -> Iterator[Fault]:
    """Let a call fail in the block."""
    fault = Fault(name, number, code, below, for_ever, real=getattr(os, name))
    with mock.patch.object(os, name, fault):
        yield fault


def sweep(act: Callable[[str, int, int], Fault], *, step: int = 1) -> dict[str, int]:
    """Do ``act(call, number, errno)`` for each call and every ``step``-th number until none fires.

    Returns the last number that fired, by call.
    """
    fired: dict[str, int] = {}
    for name in CALLS:
        for number in range(1, 400, step):
            fault = act(name, number, ERRNOS[(number + len(fired)) % len(ERRNOS)])
            if not fault.fired:
                break
            fired[name] = number
    return fired
