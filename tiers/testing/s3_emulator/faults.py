"""Faults of the network and of servers: what can be broken, when, and what was."""

import socket
import struct
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Generic, Protocol, TypeVar

LONGEST_PAUSE = 30.0
"""Seconds; no fault holds a request for longer."""


class When(StrEnum):
    """At which point of a request a fault acts."""

    BEFORE = "before"  # the store is not asked
    AFTER = "after"  # the store has answered, and done what it was asked
    MID_BODY = "mid-body"  # halfway through the request's body, or the answer's where the request has none


class Action(StrEnum):
    """What a fault does."""

    DROP = "drop"  # reset the connection
    TRUNCATE = "truncate"  # end the connection in good order
    DELAY = "delay"  # wait ``seconds``, then go on
    STALL = "stall"  # wait ``seconds``, then reset
    STATUS = "status"  # answer ``status``, ``headers`` and ``body`` (not in mid-body)
    CORRUPT = "corrupt"  # flip a bit in the middle (mid-body only)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What to break: the ``nth`` request (from 1) of an operation on a key; both are globs."""

    operation: str
    action: Action
    when: When = When.BEFORE
    key: str = "*"
    nth: int = 1
    status: int = 503
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    seconds: float = LONGEST_PAUSE

    def __post_init__(self) -> None:
        if self.when is When.MID_BODY and self.action is Action.STATUS:
            raise ValueError("a status cannot be sent in the middle of a body")
        if self.when is not When.MID_BODY and self.action is Action.CORRUPT:
            raise ValueError("only a body can be corrupted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What passed.  ``received`` and ``sent`` are bytes of bodies as the client saw them."""

    operation: str
    key: str
    status: int | None
    received: int
    sent: int
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fired:
    """A fault that acted, and on what."""

    fault: Fault
    operation: str
    key: str


class Scheduled(Protocol):
    """Something that is due at the ``nth`` request which its globs match."""

    @property
    def operation(self) -> str:
        """A glob over operations."""
        ...

    @property
    def key(self) -> str:
        """A glob over keys."""
        ...

    @property
    def nth(self) -> int:
        """Which matching request, from 1."""
        ...


Item = TypeVar("Item", bound=Scheduled)


class Schedule(Generic[Item]):
    """What is still to go wrong; each item once, counted from when it was added."""

    def __init__(self) -> None:
        self._items: list[tuple[Item, list[int]]] = []
        self._lock = threading.Lock()

    def add(self, items: Iterable[Item]) -> None:
        """Add items, which count requests from now."""
        with self._lock:
            self._items += [(item, [0]) for item in items]

    def match(self, operation: str, key: str, *aliases: str) -> Item | None:
        """Count a request; return the item whose turn it is, the first added where several are due.

        ``aliases`` are further names of the operation.
        """
        names = (operation, *aliases)
        due: Item | None = None
        with self._lock:
            for item, seen in self._items:
                named = any(fnmatchcase(name, item.operation) for name in names)
                if named and fnmatchcase(key, item.key):
                    seen[0] += 1
                    if seen[0] == item.nth and due is None:
                        due = item
        return due


def hang_up(connection: socket.socket, *, reset: bool) -> None:
    """End a connection, rudely (``reset``) or in good order."""
    try:
        if reset:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        else:
            # Past a TLS layer, which would wait for the client to agree.
            socket.socket.shutdown(connection, socket.SHUT_WR)
    except OSError:  # the client was faster
        return
