"""``ckptier replicate`` beside training: a loop over the same pass that ``--once`` runs.

One thread a tier, so that a slow or broken one holds up nobody.  The main thread seals,
validates and watches.  SIGTERM drains: what is sealed still goes up, the newest first, within a
deadline, and what does not is left resumable.  A second signal leaves at once; the journal is
written for that.
"""

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType
from typing import NoReturn

from replicate.config import Config
from replicate.errors import CkptierError, ExitCode, Fenced, LocalDisk, TrustFailure
from replicate.keeper import Tended
from replicate.outcomes import TierResult, combined_exit
from replicate.priority import IoPriority, yield_to_others
from replicate.session import Prepared, Session
from replicate.statusboard import Phase
from replicate.watching import StoreWatcher, Wake, fingerprint
from tiers.clock import Clock
from tiers.cpu_share import CpuShare

_log = logging.getLogger(__name__)

FIRST_PAUSE = 5.0
LONGEST_PAUSE = 300.0
"""Seconds between tries of a tier that fails: doubled each time, and never the end of trying."""
LEAVE_SECONDS = 10.0
"""Seconds that a request in flight may still take once everything was told to stop."""


_DISK = "check the disk and mount of the store; the generations sealed before are untouched"


def pause_after(failures: int) -> float:
    """Return how long to leave a tier alone after so many failures in a row, in seconds."""
    return min(LONGEST_PAUSE, FIRST_PAUSE * 2.0 ** max(0, failures - 1))


def beside_training(config: Config, clock: Clock, stop: threading.Event) -> CpuShare | None:
    """Let this thread and what it starts yield to training; returns its share of the CPU, None for no bound."""
    yielded = yield_to_others(config.nice, IoPriority(config.io_priority))
    _log.info("yields to training: nice %d, io_priority %s", yielded.nice, yielded.io)
    for missed in yielded.missed:
        _log.info("%s; going on without it", missed)
    return None if config.cpu_share is None else CpuShare(config.cpu_share, clock, stop)


@dataclass(slots=True)
class Signals:
    """Signals turned into events.  ``received`` is the first one."""

    draining: threading.Event = field(default_factory=threading.Event)
    wake: Wake = field(default_factory=Wake)
    received: int = 0

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """Start draining; the second signal ends the process on the spot."""
        if self.received:
            os._exit(128 + number)
        self.received = number
        self.draining.set()
        self.wake.set()

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Handle SIGTERM and SIGINT while the block runs."""
        before = {number: signal.signal(number, self.handle) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class Daemon:
    """The running loop over one session."""

    def __init__(self, session: Session, signals: Signals, clock: Clock, share: CpuShare | None = None) -> None:
        self._session = session
        self._share = share
        self._signals = signals
        self._clock = clock
        self._changed = threading.Condition()
        self._prepared = Prepared(descent=None, sources=())
        self._version = 0
        self._final = False
        self._results: dict[str, TierResult] = {}
        self._unusable: CkptierError | None = None

    def run(self) -> ExitCode:
        """Replicate until a signal, or until another writer has taken over everywhere; returns the exit code."""
        names = [tier.name for tier in self._session.config.tier]
        threads = [
            threading.Thread(target=self._tier_loop, args=(name,), name=f"ckptier-{name}", daemon=True)
            for name in names
        ]
        with StoreWatcher(self._session.config.local.root, self._signals.wake):
            self._look()
            self._session.board.enter(Phase.RUNNING)
            for thread in threads:
                thread.start()
            while not self._signals.draining.is_set() and any(thread.is_alive() for thread in threads):
                self._signals.wake.wait(self._session.config.poll_seconds)
                self._look()
                self._tend_store()
        finished = self._drain(threads)
        self._session.board.enter(Phase.STOPPED)
        code = self._exit_code(finished=finished)
        if any(thread.is_alive() for thread in threads):
            _leave_at_once(code)
        return code

    def _look(self) -> None:
        """Seal and validate what appeared, and tell the tiers; a scan of two folders where nothing did."""
        try:
            seen = fingerprint(self._session.config.local.root)
            if seen == self._prepared.unchanged_since and self._version:
                return
            prepared = self._session.prepare(seen)
        except (CkptierError, OSError) as failure:
            error = failure if isinstance(failure, CkptierError) else LocalDisk(f"the store: {failure}", hint=_DISK)
            # A full disk or a damaged lineage is shown and tried again; the tiers go on with what is known.
            if self._unusable is None or self._unusable.message != error.message:
                _log.error("%s (%s)", error.message, error.hint)
            self._unusable = error
            return
        self._unusable = None
        self._session.keeper.store_changed()
        with self._changed:
            self._prepared = prepared
            self._version += 1
            self._changed.notify_all()

    def _tier_loop(self, name: str) -> None:
        failures = 0
        version = -1
        while True:
            with self._changed:
                version, prepared = self._version, self._prepared
            result = self._pass(name, prepared)
            self._tell(name, self._results.get(name), result)
            self._results[name] = result
            failures = failures + 1 if result.failure else 0
            if isinstance(result.failure, Fenced | TrustFailure):
                self._leave(result.failure)
                return
            if result.failure is None and self._goes_on(result):
                continue
            if self._final and version == self._version:
                return
            tended = Tended() if failures else self._tend(name, version, prepared)
            if not tended.more:
                self._wait_for_change(version, pause_after(failures) if failures else tended.next_in)

    def _tend(self, name: str, version: int, prepared: Prepared) -> Tended:
        """Prune where nothing waits to be uploaded; what comes up meanwhile goes first."""

        def interrupted() -> bool:
            return self._version != version or self._final or self._signals.draining.is_set()

        if interrupted():
            return Tended()
        try:
            return self._session.tend(name, prepared, interrupted)
        except Exception:  # noqa: BLE001 - a defect in pruning must not end replication; it is shown
            _log.exception("%s: pruning failed unexpectedly", name)
            return Tended(next_in=LONGEST_PAUSE)

    def _tend_store(self) -> None:
        """Prune the store; as above, a failure ends nothing."""
        try:
            self._session.tend_store(self._prepared)
        except Exception:  # noqa: BLE001 - as above
            _log.exception("the store: pruning failed unexpectedly")

    def _goes_on(self, result: TierResult) -> bool:
        """Whether there is more to do at once; without a report the pass was stopped, or set aside for a newer one."""
        return result.pending > 0 and (result.report is not None or not self._session.stop.is_set())

    def _tell(self, name: str, before: TierResult | None, now: TierResult) -> None:
        """Log a failure when it begins or changes, and its end; not each of its repetitions."""
        was = before.failure.message if before and before.failure else ""
        if now.failure is not None and now.failure.message != was:
            _log.warning("%s: FAILED: %s; next: %s; trying again", name, now.failure.message, now.failure.hint)
        elif now.failure is None and now.report is not None and was:
            _log.warning("%s: works again", name)

    def _pass(self, name: str, prepared: Prepared) -> TierResult:
        try:
            return self._session.run_tier(name, prepared, limit=1)
        except CkptierError as error:
            _log.error("%s: %s (%s)", name, error.message, error.hint)
            return TierResult(tier=name, failure=error)
        except Exception as error:  # noqa: BLE001 - a defect of ours must not end the other tiers; it is shown
            _log.exception("%s: unexpected failure", name)
            return TierResult(tier=name, failure=CkptierError(f"unexpected: {error!r}", hint="please report this"))

    def _leave(self, failure: CkptierError) -> None:
        """Stop for good on this tier; a fenced writer stops altogether, since its run goes on elsewhere."""
        _log.error("%s (%s)", failure.message, failure.hint)
        if isinstance(failure, Fenced):
            self._signals.draining.set()
            self._signals.wake.set()

    def _wait_for_change(self, version: int, longest: float | None) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._version != version or self._final, timeout=longest)

    def _drain(self, threads: list[threading.Thread]) -> bool:
        """Let the tiers finish what is sealed, within the deadline; then stop them at their next request."""
        deadline = self._clock.monotonic() + self._session.config.drain_seconds
        if self._share is not None:
            self._share.lift()  # training has ended, or the machine is about to
        self._session.board.enter(Phase.DRAINING)
        self._look()
        with self._changed:
            self._final = True  # not before this look: a tier that has just finished must still see what it found
            self._changed.notify_all()
        self._session.hurry(self._prepared)
        for thread in threads:
            thread.join(max(0.0, deadline - self._clock.monotonic()))
        finished = not any(thread.is_alive() for thread in threads)
        self._session.stop.set()
        for thread in threads:
            thread.join(LEAVE_SECONDS)
        return finished

    def _exit_code(self, *, finished: bool) -> ExitCode:
        if self._unusable is not None:
            return self._unusable.exit_code
        results = list(self._results.values())
        code = combined_exit(results, quarantined=self._prepared.unsealed is not None)
        if code is ExitCode.OK and not finished:
            return ExitCode(128 + self._signals.received) if self._signals.received else ExitCode.ERROR
        return code


def _leave_at_once(code: ExitCode) -> NoReturn:
    """End the process although a request is still out; an orderly end would wait for the thread that made it.

    What was accepted is journalled, and the request is one that may be repeated.
    """
    _log.warning("a request did not end in %g s and is left behind; the next start resumes", LEAVE_SECONDS)
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)
