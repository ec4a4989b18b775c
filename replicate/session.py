"""What a replicating process holds: the store's lock, the tracker, and each tier's replication.

``replicate --once`` runs one pass of every tier over it; the daemon runs passes for ever.
A tier that fails is recorded and shown; it stops neither the others nor the trainer.
"""

import logging
import os
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from replicate.commit import Committed, Events, PassReport, Replication, Source
from replicate.config import Config
from replicate.errors import (
    CapabilityMissing,
    CkptierError,
    ConfigInvalid,
    Fenced,
    IntegrityFailure,
    LocalDisk,
    NothingFound,
    from_tier_error,
)
from replicate.generation.disk import create_directory
from replicate.generation.evidence import Level, unchanged
from replicate.generation.lineage import read_lineage
from replicate.generation.local import LocalGeneration, scan_generations
from replicate.generation.locks import Flock
from replicate.generation.store import RunStore
from replicate.keeper import Keeper, Tended
from replicate.layout import GenerationId
from replicate.logwriter import LogWriter
from replicate.manifest import GenerationRecord
from replicate.opening import Opener, open_configured, require_fencing, sharing_opener
from replicate.origins import LocalFiles, Origin
from replicate.outcomes import TierResult
from replicate.plan import LocalFact
from replicate.preview import local_fact
from replicate.prune import Pruner
from replicate.signing.anchor import Anchor
from replicate.signing.remembered import nothing
from replicate.statusboard import StatusBoard
from replicate.storekeeping import descent_of
from replicate.terms import Descent
from replicate.tracker import Tracker, detail_of
from replicate.upload import Draining, Progress
from tiers.clock import Clock
from tiers.errors import TierError
from tiers.metered import BillingClass, Meter
from tiers.opening import unencrypted_host
from tiers.protocol import Tier

_log = logging.getLogger(__name__)

LOCK_TRIES = 10
LOCK_PAUSE = 0.05
"""Seconds between them."""


@dataclass(frozen=True, slots=True)
class StoreSource:
    """A local generation as committing sees it.  ``hurt`` collects what this process quarantined."""

    store: RunStore
    generation: LocalGeneration
    hurt: set[GenerationId]

    @property
    def fact(self) -> LocalFact:
        """What deciding needs."""
        fact = local_fact(self.generation)
        return replace(fact, quarantined=True, validated=False) if self.generation.id in self.hurt else fact

    @property
    def record(self) -> GenerationRecord:
        """generation.json."""
        return self.generation.record

    @property
    def record_bytes(self) -> bytes:
        """The exact bytes of generation.json."""
        return self.generation.record_bytes

    @property
    def origin(self) -> Origin:
        """The files."""
        return LocalFiles(self.generation.files)

    def changed(self) -> tuple[str, ...]:
        """Paths that are no longer the inode, size and time that were hashed."""
        return unchanged(self.generation.directory, self.generation.record, self.generation.evidence)

    def lease(self) -> AbstractContextManager[object]:
        """Hold the files against rotation."""
        return self.store.lease(self.generation.id)

    def quarantine(self, reason: str) -> None:
        """Keep the generation as evidence."""
        self.hurt.add(self.generation.id)
        self.store.quarantine(self.generation.id, reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """The store, ready to be replicated.  ``descent`` is None where nothing was ever published.

    ``unsealed`` says what was deferred and cannot be sealed.
    """

    descent: Descent | None
    sources: tuple[Source, ...]
    quarantined: dict[GenerationId, str] = field(default_factory=dict)
    unsealed: IntegrityFailure | None = None
    unchanged_since: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is no generation at all."""
        return not self.sources


class Session:
    """An open replicating process.  Use as a context manager; only one can be open per store.

    ``leave`` is asked before each piece of bytes is hashed or moved, and waits where it has to.
    """

    def __init__(
        self,
        config: Config,
        *,
        clock: Clock,
        stop: threading.Event,
        opener: Opener,
        events: Events | None = None,
        prune: bool = True,
        leave: Callable[[], bool] | None = None,
    ) -> None:
        if not config.tier:
            raise ConfigInvalid("no tier is configured", hint="add a [[tier]] with name and url to ckptier.toml")
        self.config = config
        self.clock = clock
        self.stop = stop
        self.store = RunStore(config.local.root, clock=clock, hash_workers=config.hash_workers, leave=leave)
        self._lock = self._take_lock()
        self._meters = {tier.name: Meter() for tier in config.tier}
        self._counted = {name: meter.snapshot() for name, meter in self._meters.items()}
        self._hurt: set[GenerationId] = set()
        self._told = ""
        self._tiers: dict[str, Tier] = {}
        self._replications: dict[str, Replication] = {}
        try:
            self.tracker = Tracker.open(config.state, clock)
        except BaseException:
            self._lock.release()
            raise
        self.board = StatusBoard(config, clock, self.tracker)
        self._events = self._watched(events or Events())
        self._opener = opener if leave is None else sharing_opener(opener, leave)
        self.keeper = Keeper(
            config=config,
            store=self.store,
            tracker=self.tracker,
            clock=clock,
            enabled=prune,
            on_note=self._note_of_keeping,
        )
        if self.tracker.rebuilt_from is not None:
            _log.warning(
                "the tracker was damaged; it is kept as %s and rebuilt from the tiers' logs", self.tracker.rebuilt_from
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Release tiers, tracker and lock; what may still run ends at its next request.  Safe to repeat."""
        self.stop.set()
        for tier in self._tiers.values():
            tier.close()
        self.tracker.close()
        self._lock.release()

    def prepare(self, seen: tuple[str, ...] = ()) -> Prepared:
        """Seal what is staged, validate what is not, and return what there is to replicate.

        ``seen`` is the fingerprint of the store that this answers.

        Raises LocalDisk or IntegrityFailure (a damaged lineage); a bad generation is quarantined.
        """
        lineage = read_lineage(self.config.local)
        if lineage is None and not self.config.local.root.is_dir():
            return Prepared(descent=None, sources=(), unchanged_since=seen)
        unsealed = self._seal_staged()
        for generation in self.store.generations():
            if generation.level is Level.SEALED:
                # Rotated away between the scan and now, or of a newer format, which _readable tells.
                with suppress(NothingFound, CapabilityMissing):
                    self.store.validate(generation.id)
        lineage = read_lineage(self.config.local)
        generations = tuple(one for found in self.store.generations() if (one := self._readable(found)))
        quarantined = self._post(generations)
        descent = descent_of(lineage) if lineage else None
        sources = tuple(StoreSource(self.store, generation, self._hurt) for generation in generations)
        return Prepared(
            descent=descent, sources=sources, quarantined=quarantined, unsealed=unsealed, unchanged_since=seen
        )

    def glance(self) -> None:
        """Show on the board what the store holds, touching nothing: for work that is not about the store."""
        self._post(scan_generations(self.config.local) if self.config.local.root.is_dir() else ())

    def _post(self, generations: Sequence[LocalGeneration]) -> dict[GenerationId, str]:
        """Show these generations on the board; returns those that are quarantined, with the reason."""
        quarantined = {
            one.id: one.evidence.reason for one in generations if one.evidence and one.level is Level.QUARANTINED
        }
        self.board.quarantined(quarantined)
        self.board.present(tuple(one.id for one in generations))
        return quarantined

    def _seal_staged(self) -> IntegrityFailure | None:
        """Seal what was deferred; what cannot be is told and must not hold up everything else."""
        try:
            self.store.seal_staged()
        except IntegrityFailure as error:
            if error.message != self._told:
                _log.error("%s (%s)", error.message, error.hint)
            self._told = error.message
            return error
        return None

    def _readable(self, found: LocalGeneration) -> LocalGeneration | None:
        """Return a generation whose document can be read or which is quarantined, else None.

        One damaged ``generation.json`` would otherwise stop every pass, and with it every
        other generation.  One of a newer format is left alone: a newer ckptier wrote it.
        """
        if found.level is Level.QUARANTINED:
            return found
        try:
            _ = found.record
        except CapabilityMissing as error:
            _log.warning("%s is left alone: %s", found.id, error.message)
            return None
        except IntegrityFailure as error:
            try:
                self.store.quarantine(found.id, error.message)
                return self.store.get(found.id)
            except NothingFound:
                return None
        return found

    def run_tier(self, name: str, prepared: Prepared, *, limit: int | None = None) -> TierResult:
        """Run one pass over one tier.  Never raises for a tier's own failure: it is recorded and returned."""
        if prepared.descent is None:
            return TierResult(tier=name, report=PassReport(tier=name))
        try:
            report = self._replication(name).run_pass(prepared.descent, prepared.sources, limit=limit)
        except Draining:
            result = TierResult(tier=name)
        except TierError as error:
            result = TierResult(tier=name, failure=from_tier_error(error))
        except CkptierError as error:
            result = TierResult(tier=name, failure=error)
        except OSError as error:
            failure = LocalDisk(f"{name}: {error}", hint="a local file could not be read; see `ckptier verify`")
            result = TierResult(tier=name, failure=failure)
        else:
            result = TierResult(tier=name, report=report)
            self.keeper.committed(name, report.committed)
            if report.committed and (seen := self.tracker.seen(name)) is not None:
                _log.info("%s: the log's anchor is %s", name, Anchor(seen.slot, seen.sha256))
        self.board.passed(result.tier, result.report, result.failure)
        self.count_usage(name)
        return result

    def _replication(self, name: str) -> Replication:
        """Open a tier at its first use, so that a bad one fails alone."""
        if name in self._replications:
            return self._replications[name]
        settings = self.config.select(name)[0]
        tier = open_configured(settings, self._opener, self.clock, self._meters[name], self.stop)
        require_fencing(settings, tier)
        self._tiers[name] = tier
        host = unencrypted_host(settings.url, settings.endpoint_url)
        if host is not None:
            self._events.on_note(name, f"what goes to {host} and comes from there is not encrypted (allow_insecure)")
        self._replications[name] = Replication(
            log=LogWriter(
                tier=tier,
                remote=replace(self.config.remote, memory=nothing),  # the tracker itself is at hand
                tracker=self.tracker,
                clock=self.clock,
                writer=f"{socket.gethostname()}:{os.getpid()}",
                on_note=self._events.on_note,
            ),
            stop=self.stop,
            connections=settings.connections,
            part_size=settings.part_size,
            replicate_every=settings.replicate_every,
            backlog=self.config.backlog,
            reuse=settings.reuse,
            events=self._events,
        )
        self.keeper.attach(settings, self._replications[name])
        return self._replications[name]

    def writer(self, name: str) -> LogWriter:
        """Open a tier's log for writing, not read yet."""
        return self._replication(name).log

    def pruner(self, name: str, descent: Descent | None) -> Pruner:
        """Open a tier, follow its log, and return what prunes it."""
        self.writer(name).refresh(descent)
        return self.keeper.pruner(name)

    def tend(self, name: str, prepared: Prepared, interrupted: Callable[[], bool]) -> Tended:
        """Retire and delete on a tier, between passes; see replicate.keeper."""
        try:
            return self.keeper.tend(name, prepared.descent, interrupted)
        finally:
            self.count_usage(name)

    def tend_store(self, prepared: Prepared) -> None:
        """Remove from the store what its policy lets go, where there is cause to look."""
        self.keeper.tend_store(prepared.sources, prepared.descent)

    def keep_once(self, results: Sequence[TierResult], prepared: Prepared) -> None:
        """Prune all that may be pruned now, after a pass over every tier; what fails is told."""
        for result in results:
            while result.failure is None and self.tend(result.tier, prepared, self.stop.is_set).more:
                continue
        self.keeper.store_changed()
        self.tend_store(prepared)

    def _note_of_keeping(self, place: str, text: str) -> None:
        """Tell what retention could not do; the store has no line on the board."""
        if place in self._meters:
            self._events.on_note(place, text)
        else:
            _log.warning("%s: %s", place, text)

    def reader(self, name: str) -> Tier:
        """Open a tier that is only read from; ``count_usage`` counts what it was asked."""
        tier = open_configured(self.config.select(name)[0], self._opener, self.clock, self._meters[name], self.stop)
        self._tiers[name] = tier
        return tier

    def taking_all(self, name: str) -> Replication:
        """Open a tier for whatever it is given; what goes there by itself, and what is kept, the daemon decides."""
        replication = self._replication(name)
        replication.backlog = replication.replicate_every = None
        replication.unwanted = lambda _state, _facts: {}
        replication.after_commit = lambda _descent: None
        return replication

    def hurry(self, prepared: Prepared) -> None:
        """Let every tier send the newest generation next: this process ends soon."""
        for replication in tuple(self._replications.values()):  # a tier's thread may be opening its own just now
            replication.hurry(prepared.sources)

    def unbounded_backlog(self) -> None:
        """Let everything that is pending go up: what ``--once`` promises."""
        for tier in self.config.tier:
            try:
                self._replication(tier.name).backlog = None
            except (CkptierError, TierError):
                continue  # opening it fails again, and is reported, in its pass

    def _take_lock(self) -> Flock:
        path = self.config.local.daemon_lock
        try:
            create_directory(path.parent, settle=True)
            path.touch()
            lock = self._attempt(path)
        except OSError as error:
            raise LocalDisk(
                f"{path.parent} is not writable: {error}", hint="check `store` in ckptier.toml and its permissions"
            ) from error
        if lock is None:
            raise Fenced(
                f"another process replicates {self.config.local.root} already",
                hint="it does the work: `ckptier wait` returns once the newest generation is on the tiers",
            )
        return lock

    def _attempt(self, path: Path) -> Flock | None:
        """Try for a moment: ``wait`` and ``status`` hold the lock for an instant to see whether anybody has it."""
        for _ in range(LOCK_TRIES):
            lock = Flock.attempt(path)
            if lock is not None:
                return lock
            self.clock.wait(LOCK_PAUSE)
        return None

    def count_usage(self, name: str) -> None:
        """Move what the meter counted since the last time into the tracker's day."""
        now = self._meters[name].snapshot()
        spent = now - self._counted[name]
        up, down = spent.sent(), spent.bytes_down
        counts = {
            str(billing): (requests, up if billing is BillingClass.A else 0, down if billing is BillingClass.B else 0)
            for billing, requests in spent.by_class().items()
            if requests
        }
        if counts:
            self.tracker.add_usage(name, counts, detail_of(spent))
        self._counted[name] = now

    def _watched(self, outer: Events) -> Events:
        """Tell the status board first, then whoever watches."""

        def started(tier: str, generation: GenerationId, size: int) -> None:
            self.board.started(tier, generation, size)
            outer.on_start(tier, generation, size)

        def progressed(tier: str, generation: GenerationId, progress: Progress) -> None:
            self.board.progressed(tier, progress)
            outer.on_progress(tier, generation, progress)

        def committed(tier: str, one: Committed) -> None:
            self.board.committed(tier, one)
            outer.on_commit(tier, one)

        def noted(tier: str, text: str) -> None:
            _log.warning("%s: %s", tier, text)
            self.board.noted(tier, text)
            outer.on_note(tier, text)

        return Events(on_start=started, on_progress=progressed, on_commit=committed, on_note=noted)
