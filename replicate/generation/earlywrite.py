"""Writing a save to the disk while it is still being made, so that the fsync at its end finds little left.

A thread looks into the folder and lets the kernel begin with what was added since it looked
last.  It reads and promises nothing: what counts is the fsync.  Where the platform has no
way to begin without waiting, there is no thread.
"""

import logging
import os
import stat
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from replicate.generation.writeback import can_start_writeback, start_writeback
from tiers.clock import Clock

PAUSE = 0.02
"""Seconds between two looks."""
PAUSE_A_FILE = 0.0002
"""Seconds more for each file that is there: a look at one takes about a twentieth of that."""
AT_ONCE = 8 * 1024 * 1024
"""Bytes that a file must have grown by while it grows; the rest goes once it rests."""
LONGEST_RANGE = 64 * 1024 * 1024
"""Bytes begun in one call, so that the end of the block is not held up for long by a full queue."""
MOST_FILES = 4096
"""Entries looked at; the fsync takes the rest."""
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Seen:
    """How large a file was at the last look, and up to where its writing has begun."""

    size: int = 0
    begun: int = 0


@dataclass(slots=True)
class EarlyWriter:
    """The thread over one folder.  A forked child has no such thread and needs none."""

    folder: Path
    clock: Clock
    begun: int = 0
    _present: int = 0
    _seen: dict[str, _Seen] = field(default_factory=dict)
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, where the platform can; what keeps it from beginning is no error."""
        if not can_start_writeback():
            return
        thread = threading.Thread(target=self._run, name="ckptier-early", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # too many threads, or the interpreter ends
            _log.debug("no early writing: %s", error)
            return
        self._thread = thread

    def stop(self) -> None:
        """End it; what it has begun goes on in the kernel."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def look(self) -> None:
        """Let the kernel begin with what was added since the last look."""
        self._present = 0
        for path, status in _files(self.folder):
            self._present += 1
            seen = self._seen.setdefault(path, _Seen())
            grown, rests = status.st_size - seen.begun, status.st_size == seen.size
            seen.size = status.st_size
            if grown <= 0 or (grown < AT_ONCE and not rests):
                continue
            self._begin(path, seen)
            if self._stop.is_set():
                return

    def _begin(self, path: str, seen: _Seen) -> None:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:  # it is the trainer's, who may have renamed or removed it; sealing says what is wrong
            return
        try:
            while seen.begun < seen.size and not self._stop.is_set():
                length = min(LONGEST_RANGE, seen.size - seen.begun)
                if not start_writeback(fd, seen.begun, length):
                    return
                seen.begun += length
                self.begun += length
        finally:
            os.close(fd)

    def _run(self) -> None:
        while not self.clock.wait(PAUSE + PAUSE_A_FILE * self._present, self._stop):
            try:
                self.look()
            except OSError as error:  # a folder that went away in mid-look; sealing says what is wrong
                _log.debug("early writing: %s", error)


def _files(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the regular files below, a bounded number of entries."""
    pending, left = [str(folder)], MOST_FILES
    while pending and left > 0:
        with os.scandir(pending.pop()) as entries:
            for entry in entries:
                left -= 1
                status = entry.stat(follow_symlinks=False)
                if stat.S_ISDIR(status.st_mode):
                    pending.append(entry.path)
                elif stat.S_ISREG(status.st_mode):
                    yield entry.path, status
