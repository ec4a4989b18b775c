"""Many verbs, few commits: whoever waits while a commit is under way goes with the next one.

The Hub takes a limited number of commits an hour (128 are reported), and each takes seconds.
A verb still returns only once its change is in a commit: no caller can tell the difference.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from tiers.errors import TierUnavailable
from tiers.hub_errors import HubFailure, Outcome, Verdict
from tiers.hub_repo import Entry

MOST_CHANGES = 50
"""Changes of one commit; the Hub recommends at most 50 to 100 files."""
LINGER = 5.0
"""Seconds that a commit waits for changes whose bytes are still being sent; a lone caller never waits."""


class Kind(StrEnum):
    """What is to happen to a path."""

    PUT = "put"
    CREATE = "create"
    DELETE = "delete"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One path, and what it shall hold: bytes that the Hub has already, by SHA-256; nothing where it is deleted."""

    kind: Kind
    path: str
    size: int = 0
    sha256: str = ""


class Waiting:
    """A change on its way, and what became of it."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.settled = False
        self._entry: Entry | None = None
        self._failure: HubFailure | None = None

    def succeed(self, entry: Entry | None) -> None:
        """Note that the path is as was wanted; ``entry`` is how the Hub describes it."""
        self.settled, self._entry = True, entry

    def fail(self, failure: HubFailure) -> None:
        """Note that it is not, or not known to be."""
        self.settled, self._failure = True, failure

    def result(self) -> Entry | None:
        """Return what the Hub says of the path, or raise HubFailure.  Of each caller its own."""
        if self._failure is not None:
            failure = self._failure
            raise HubFailure(
                failure.verdict,
                failure.message,
                status=failure.status,
                code=failure.code,
                outcome=failure.outcome,
                retry_after=failure.retry_after,
            )
        return self._entry


class CommitQueue:
    """Groups the changes of concurrent callers; one caller at a time commits for all that wait.

    ``commit`` settles every change that it is given; those of one call have different paths.
    """

    def __init__(
        self, commit: Callable[[Sequence[Waiting]], None], *, most: int = MOST_CHANGES, linger: float = LINGER
    ) -> None:
        self._commit = commit
        self._most = most
        self._linger = linger
        self._changed = threading.Condition()
        self._waiting: list[Waiting] = []
        self._coming = 0
        self._leading = False

    @contextmanager
    def announced(self) -> Iterator["Ticket"]:
        """Tell that a change is coming, so that a commit may wait for it; it need not come."""
        ticket = Ticket(self)
        with self._changed:
            self._coming += 1
        try:
            yield ticket
        finally:
            if not ticket.used:
                self.withdraw()

    def withdraw(self) -> None:
        """Tell that an announced change is not coming."""
        with self._changed:
            self._coming -= 1
            self._changed.notify_all()

    def submit(self, change: Change) -> Entry | None:
        """Have an announced change committed, with others; returns when it is settled.  Raises HubFailure."""
        waiting = Waiting(change)
        with self._changed:
            self._coming -= 1
            self._waiting.append(waiting)
            self._changed.notify_all()
        while batch := self._lead(waiting):
            self._run(batch)
        return waiting.result()

    def _lead(self, waiting: Waiting) -> list[Waiting]:
        """Return what to commit for all, or nothing once ``waiting`` is settled."""
        with self._changed:
            self._changed.wait_for(lambda: waiting.settled or not self._leading)  # its leader's requests have deadlines
            if waiting.settled:
                return []
            self._leading = True
            try:
                self._changed.wait_for(lambda: self._coming == 0 or len(self._waiting) >= self._most, self._linger)
            except BaseException:  # an interrupt must not leave the others without a leader
                self._leading = False
                self._changed.notify_all()
                raise
            batch: dict[str, Waiting] = {}
            for each in self._waiting:
                if len(batch) < self._most:
                    batch.setdefault(each.change.path, each)
            self._waiting = [each for each in self._waiting if batch.get(each.change.path) is not each]
            return list(batch.values())

    def _run(self, batch: list[Waiting]) -> None:
        try:
            self._commit(batch)
        finally:
            left = [each for each in batch if not each.settled]
            for each in left:
                verdict = Verdict(TierUnavailable, "read the key to learn what became of it")
                each.fail(HubFailure(verdict, "the commit was interrupted", outcome=Outcome.UNKNOWN))
            with self._changed:
                self._leading = False
                self._changed.notify_all()


class Ticket:
    """An announced change; used once or not at all."""

    def __init__(self, queue: CommitQueue) -> None:
        self._queue = queue
        self.used = False

    def submit(self, change: Change) -> Entry | None:
        """Have it committed; returns when it is settled.  Raises HubFailure."""
        self.used = True
        return self._queue.submit(change)
