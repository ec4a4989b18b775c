"""Noticing new generations: inotify through watchdog where it works, and polling always.

NFS and FUSE mounts are silent about what other machines write, so the poll is the
promise and the notification only makes it sooner.
"""

import logging
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Self

from watchdog.events import DirCreatedEvent, DirMovedEvent, FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer

_log = logging.getLogger(__name__)


class Wake:
    """Ends a wait; may be set from a signal handler.

    An Event may not: its handler would wait for a lock that the interrupted thread holds,
    and a daemon that was asked to drain would hang instead.
    """

    def __init__(self) -> None:
        self._set: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        """End the wait that is on, or else the next one."""
        self._set.put(None)

    def wait(self, seconds: float) -> None:
        """Wait until it is set, at most ``seconds``; what was set until then is used up."""
        with suppress(Empty):
            self._set.get(timeout=seconds)
            while True:
                self._set.get_nowait()


class StoreWatcher:
    """Sets ``wake`` when a generation may have appeared in a store; a context manager."""

    def __init__(self, root: Path, wake: Wake) -> None:
        self._root = root
        self._wake = wake
        self._observer = Observer()

    def __enter__(self) -> Self:
        try:
            for folder in (self._root, self._root / "generations"):
                folder.mkdir(parents=True, exist_ok=True)
                self._observer.schedule(
                    _Handler(self._wake), str(folder), event_filter=[DirCreatedEvent, DirMovedEvent]
                )
            self._observer.start()
        except OSError as error:
            # The limit of inotify instances is a setting of the machine; polling goes on without it.
            _log.warning("%s cannot be watched (%s): new generations are noticed by polling only", self._root, error)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._observer.is_alive():
            self._observer.stop()
            self._observer.join(timeout=5)


class _Handler(FileSystemEventHandler):
    def __init__(self, wake: Wake) -> None:
        self._wake = wake

    def on_any_event(self, event: FileSystemEvent) -> None:  # noqa: ARG002 - watchdog's signature; any event means "look"
        self._wake.set()


def fingerprint(root: Path) -> tuple[str, ...]:
    """Return the names whose appearance means that there is something to look at; one scan of two folders."""
    names: list[str] = []
    for folder, prefix in ((root / "generations", ""), (root, ".staged-")):
        with suppress(FileNotFoundError):
            names += [entry.name for entry in folder.iterdir() if entry.name.startswith(prefix)]
    with suppress(FileNotFoundError):
        names.append(f"lineage:{(root / 'lineage.json').stat().st_mtime_ns}")
    with suppress(FileNotFoundError):  # a rehearsal may be what a local generation waits for
        names.append(f"rehearsals:{(root / 'rehearsals').stat().st_mtime_ns}")
    return tuple(sorted(names))
