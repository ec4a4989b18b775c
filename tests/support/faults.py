"""What the fault proxy can do, and what it says it did."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

LONGEST_PAUSE = 30.0
"""Seconds; no fault holds a request for longer."""


class When(StrEnum):
    """At which point of a request a fault acts."""

    BEFORE = "before"  # upstream is not asked
    AFTER = "after"  # upstream has answered, and done what it was asked
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
