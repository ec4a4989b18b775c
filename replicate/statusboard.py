"""Keeps ``status.json`` current while a process replicates.

A view for people: it is replaced atomically and not fsynced, because nothing is
decided from it.
"""

import logging
import os
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import takewhile

from replicate.commit import Committed, PassReport
from replicate.config import Config, TierConfig
from replicate.errors import CkptierError
from replicate.layout import GenerationId
from replicate.plan import Choice
from replicate.signing.anchor import Anchor
from replicate.statusfile import Failure, Replica, StatusFile, TierStatus, UnderWay
from replicate.tracker import Completed, Tracker
from replicate.upload import Progress
from tiers.clock import Clock, rfc3339

_log = logging.getLogger(__name__)

WRITE_EVERY = 1.0
"""Seconds between rewrites that only move a progress figure."""
KEPT_NOTES = 5


class Phase(StrEnum):
    """What the process is doing as a whole."""

    RUNNING = "running"
    DRAINING = "draining"
    STOPPED = "stopped"


@dataclass(slots=True)
class _TierBoard:
    settings: TierConfig
    under_way: UnderWay | None = None
    waiting: tuple[str, ...] = ()
    failure: Failure | None = None
    notes: tuple[str, ...] = ()
    verified_by: tuple[str, ...] = ()


@dataclass(slots=True)
class StatusBoard:
    """Collects what happens and writes it down; safe from the tiers' threads."""

    config: Config
    clock: Clock
    tracker: Tracker
    phase: Phase = Phase.RUNNING
    _boards: dict[str, _TierBoard] = field(default_factory=dict)
    _present: frozenset[GenerationId] = frozenset()
    _quarantined: dict[str, str] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _started_at: str = ""
    _written: float = float("-inf")
    _unwritable: bool = False

    def __post_init__(self) -> None:
        self._boards = {tier.name: _TierBoard(tier) for tier in self.config.tier}
        self._started_at = rfc3339(self.clock.now())

    def enter(self, phase: Phase) -> None:
        """Change the phase."""
        with self._lock:
            self.phase = phase
            self.write()

    def stopped(self) -> None:
        """Say that the process has ended."""
        self.enter(Phase.STOPPED)

    def present(self, generations: tuple[GenerationId, ...]) -> None:
        """Replace the list of local generations, of which the file says where each one is."""
        with self._lock:
            self._present = frozenset(generations)

    def quarantined(self, found: dict[GenerationId, str]) -> None:
        """Replace the list of quarantined generations."""
        with self._lock:
            self._quarantined = {str(generation): reason for generation, reason in found.items()}

    def started(self, tier: str, generation: GenerationId, size: int) -> None:
        """Show that an upload begins or resumes."""
        with self._lock:
            self._boards[tier].under_way = UnderWay(
                generation=str(generation), done_bytes=0, total_bytes=size, started_at=rfc3339(self.clock.now())
            )
            self.write()

    def progressed(self, tier: str, progress: Progress) -> None:
        """Show that bytes were accepted."""
        with self._lock:
            board = self._boards[tier]
            if board.under_way is not None:
                done = {"done_bytes": progress.done_bytes, "copied_bytes": progress.copied_bytes}
                board.under_way = board.under_way.model_copy(update=done)
            if self.clock.monotonic() - self._written >= WRITE_EVERY:
                self.write()

    def committed(self, tier: str, one: Committed) -> None:
        """Show that a generation is complete on a tier."""
        with self._lock:
            board = self._boards[tier]
            board.under_way = None
            board.failure = None
            board.verified_by = one.verified_by
            self.write()

    def noted(self, tier: str, text: str) -> None:
        """Show something that is harmless and worth knowing."""
        with self._lock:
            board = self._boards[tier]
            board.notes = (*board.notes, text)[-KEPT_NOTES:]

    def passed(self, tier: str, report: PassReport | None, failure: CkptierError | None) -> None:
        """Show what a pass over a tier came to."""
        with self._lock:
            board = self._boards[tier]
            if failure is not None:
                board.failure = self._failure(board.failure, failure)
            elif report is not None:
                board.failure = None
                board.under_way = None
                done = {str(one.generation) for one in report.committed}
                board.waiting = tuple(
                    str(one.id) for one in report.decisions if one.choice is Choice.UPLOAD and str(one.id) not in done
                )
            self.write()

    def _failure(self, before: Failure | None, failure: CkptierError) -> Failure:
        now = rfc3339(self.clock.now())
        return Failure(
            at=now,
            since=before.since if before else now,
            exit_code=int(failure.exit_code),
            message=failure.message,
            hint=failure.hint,
            count=before.count + 1 if before else 1,
        )

    def write(self) -> None:
        """Replace the file; where that fails it is logged once, since no upload may fail for its picture."""
        with self._lock:
            path = self.config.local.status
            temporary = path.with_name(f".tmp-{path.name}")  # one name, so that killed processes leave one file
            data = self.document().encode()
            try:
                temporary.write_bytes(data)
                temporary.replace(path)
            except OSError as error:
                if not self._unwritable:
                    _log.warning("%s cannot be written: %s", path, error)
                self._unwritable = True
            else:
                self._unwritable = False
            self._written = self.clock.monotonic()

    def document(self) -> StatusFile:
        """Return the present view."""
        return StatusFile(
            run=self.config.run,
            pid=os.getpid(),
            host=socket.gethostname(),
            phase=self.phase,
            started_at=self._started_at,
            updated_at=rfc3339(self.clock.now()),
            tiers=tuple(self._tier(board) for board in self._boards.values()),
            quarantined=self._quarantined,
        )

    def _tier(self, board: _TierBoard) -> TierStatus:
        name = board.settings.name
        completed = self.tracker.completed(name)
        newest = completed[0] if completed else None
        requests, sent = self.tracker.spent(name)
        return TierStatus(
            name=name,
            url=board.settings.url,
            newest=Replica(
                generation=str(newest.generation), slot=newest.slot, at=newest.at, total_bytes=newest.total_bytes
            )
            if newest
            else None,
            completed=len(completed),
            held=self._held(completed),
            under_way=board.under_way,
            waiting=board.waiting,
            skipped=self.tracker.count_skipped(name),
            failure=board.failure,
            notes=board.notes,
            verified_by=board.verified_by,
            anchor=str(Anchor(seen.slot, seen.sha256)) if (seen := self.tracker.seen(name)) else None,
            requests=requests,
            bytes_up=sent,
        )

    def _held(self, completed: Sequence[Completed]) -> tuple[str, ...]:
        """Return the local generations that are completed, newest first, of many that are completed."""
        oldest = min(self._present, default=None)
        recent = takewhile(lambda one: oldest is not None and one.generation >= oldest, completed)
        return tuple(str(one.generation) for one in recent if one.generation in self._present)
