"""Retention while a process replicates: after commits, beside uploads, never in their way.

A tier is tended by its own thread once nothing waits to be uploaded; what was retired is
deleted one generation at a time, and left where something newer comes up.  The store is
tended by the main thread.  A failure here is told and tried again; it fails no upload.
"""

import logging
import threading
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from replicate.commit import Committed, Replication, Source
from replicate.config import Config, TierConfig
from replicate.errors import CkptierError, from_tier_error
from replicate.generation.evidence import Level
from replicate.generation.lineage import Lineage, read_lineage
from replicate.generation.proofs import Proof, record_proof
from replicate.generation.reading import being_read
from replicate.generation.store import RunStore
from replicate.layout import GenerationId
from replicate.localkeeping import LocalPlan
from replicate.log import LogState
from replicate.plan import LocalFact
from replicate.prune import Holds, Pruner, Starts, SweepReport, plan_tier
from replicate.retention import Member, Policy, Reason, Rule
from replicate.storekeeping import StoreKeeping, TierSide, hurt_copies, starts_of
from replicate.terms import Descent, Standing
from replicate.tracker import Tracker
from tiers.clock import Clock, rfc3339
from tiers.errors import TierError
from tiers.protocol import Verification

T = TypeVar("T")
STORE = "store"
"""What the store is called in notes."""
RETIRING = "retiring"
DELETING = "deleting"
READ_BACK = frozenset({Verification.READ_BACK_DIRECT, Verification.READ_BACK_UNCACHED, Verification.READ_BACK})
LOOK_AGAIN = 300.0
"""Seconds until retired generations that could not be deleted, or whose delay has no known end, are tried again."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tended:
    """What tending one tier came to.

    ``more``: something may be deleted at once.  ``next_in`` are the seconds until there will be something.
    """

    more: bool = False
    next_in: float | None = None


@dataclass(slots=True)
class _Kept:
    """What is remembered of a tier between passes."""

    pruner: Pruner
    replication: Replication
    next_look: float = 0.0


def policy_of(settings: TierConfig) -> Policy:
    """Return the policy that is configured for a tier."""
    return Policy(
        keep_last=settings.keep_last, keep_every=settings.keep_every, min_generations=settings.min_generations
    )


def holds_of(lineage: Lineage | None, reading: frozenset[GenerationId]) -> Holds:
    """Return what this machine needs of a tier: what it resumed from, and what it is restoring."""
    reasons: dict[GenerationId, list[Reason]] = {}
    if lineage is not None and lineage.parent is not None:
        why = Reason(rule=Rule.RESUMED_FROM, text="what this machine's attempt started from")
        reasons[GenerationId.parse(lineage.parent)] = [why]
    for one in reading:
        why = Reason(rule=Rule.BEING_RESTORED, text="it is being restored on this machine")
        reasons.setdefault(one, []).append(why)
    return reasons


def unwanted(
    state: LogState | None,
    facts: Sequence[LocalFact],
    policy: Policy,
    holds: Holds,
    starts: Starts,
    hurt: frozenset[GenerationId] = frozenset(),
) -> dict[GenerationId, str]:
    """Of generations that would go up, name those that the policy would take back at once."""
    if policy.keep_last is None or not facts:
        return {}
    coming = [Member(id=fact.id, parent=fact.parent) for fact in facts]
    plan = plan_tier(state, policy, holds, starts, coming=coming, hurt=hurt)
    going = {one.id: one for one in plan.removed}
    return {
        fact.id: f"it would be taken back at once: {going[fact.id].reasons[0].text}"
        for fact in facts
        if fact.id in going
    }


def unwanted_by(
    config: Config, settings: TierConfig
) -> Callable[[LogState | None, Sequence[LocalFact]], Mapping[GenerationId, str]]:
    """Return what tells which generations a tier would not keep, as things stand on this machine when it is asked."""

    def tell(state: LogState | None, facts: Sequence[LocalFact]) -> Mapping[GenerationId, str]:
        policy = policy_of(settings)
        if policy.keep_last is None:
            return {}
        lineage = read_lineage(config.local)
        holds = holds_of(lineage, being_read(config.local))
        hurt = hurt_copies(config.local, settings.name, state.live if state else ())
        return unwanted(state, facts, policy, holds, starts_of(lineage), hurt)

    return tell


@dataclass(slots=True, kw_only=True)
class Keeper:
    """Retention of one open session.  ``enabled`` False decides what goes up and deletes nothing."""

    config: Config
    store: RunStore
    tracker: Tracker
    clock: Clock
    enabled: bool = True
    on_note: Callable[[str, str], None] = lambda _place, _text: None
    _tiers: MutableMapping[str, _Kept] = field(default_factory=dict)
    _told: MutableMapping[tuple[str, str], str] = field(default_factory=dict)
    _store_due: threading.Event = field(default_factory=threading.Event)

    def attach(self, settings: TierConfig, replication: Replication) -> None:
        """Take care of a tier from its opening on."""
        pruner = Pruner(
            log=replication.log,
            policy=policy_of(settings),
            delay=settings.retire_delay_seconds,
            connections=settings.connections,
            holds=self.holds,
            starts=self.starts,
            being_read=lambda: being_read(self.config.local),
            hurt=lambda state: hurt_copies(self.config.local, settings.name, state.live),
        )
        self._tiers[settings.name] = _Kept(pruner, replication)
        replication.unwanted = unwanted_by(self.config, settings)
        replication.stock.hurt = lambda state: hurt_copies(self.config.local, settings.name, state.live)
        replication.after_commit = lambda descent: self._after_commit(settings.name, descent)

    def pruner(self, name: str) -> Pruner:
        """Return the pruner of an attached tier."""
        return self._tiers[name].pruner

    def holds(self) -> Holds:
        """Return what this machine needs of its tiers."""
        return holds_of(read_lineage(self.config.local), being_read(self.config.local))

    def starts(self) -> Starts:
        """Return what attempts went on from."""
        return starts_of(read_lineage(self.config.local))

    def _after_commit(self, name: str, descent: Descent) -> None:
        """Retire what a commit pushed out, and look at the store soon."""
        self._store_due.set()
        if self.enabled:
            self._guarded(name, RETIRING, lambda: self._retire(name, descent))

    def _retire(self, name: str, descent: Descent) -> None:
        pruner = self._tiers[name].pruner
        log = pruner.log
        held = self.tracker.term(name)
        if pruner.policy.keep_last is None or log.decide(log.state, held, descent).standing is not Standing.HOLDS:
            return  # pruning alone takes no term
        for one in pruner.retire(descent):
            _log.info("%s: retired %s in slot %d: %s", name, one.generation, one.slot, one.reason)

    def tend(self, name: str, descent: Descent | None, interrupted: Callable[[], bool]) -> Tended:
        """Retire and delete on one tier; what it may not, or cannot, is told and left for later."""
        kept = self._tiers.get(name)
        if not self.enabled or kept is None or descent is None or kept.replication.log.view is None:
            return Tended()
        self._guarded(name, RETIRING, lambda: self._retire(name, descent))
        now = self.clock.monotonic()
        if now < kept.next_look:
            return Tended(next_in=kept.next_look - now)
        report = self._guarded(name, DELETING, lambda: kept.pruner.sweep(interrupted=interrupted, limit=1))
        if report is None:
            kept.next_look = now + LOOK_AGAIN
            return Tended(next_in=LOOK_AGAIN)
        return self._looked(name, kept, report)

    def _looked(self, name: str, kept: _Kept, report: SweepReport) -> Tended:
        for one in report.swept:
            _log.info("%s: deleted %s, %d objects", name, one.generation, one.objects)
        if report.more:
            return Tended(more=bool(report.swept), next_in=0.0)
        if not report.pending:
            return Tended()
        soonest = min(LOOK_AGAIN if one.due_in is None else max(1.0, one.due_in) for one in report.pending)
        kept.next_look = self.clock.monotonic() + soonest
        return Tended(next_in=soonest)

    def tend_store(self, prepared: Sequence[Source], descent: Descent | None) -> tuple[GenerationId, ...]:
        """Remove from the store what its policy lets go, and say what may go for room; returns what was removed.

        Does nothing unless a commit, or ``store_changed``, has given cause to look.
        """
        if descent is None or not self._store_due.is_set():
            return ()
        self._store_due.clear()
        return self._guarded(STORE, "pruning", lambda: self._keep_store(prepared, descent)) or ()

    def committed(self, name: str, done: Sequence[Committed]) -> None:
        """Note where every byte of a commit was read back: the evidence that the store may ask for."""
        if Level(self.config.local_requires) is Level.REPLICATED:
            return
        digests = {one.generation: one.manifest_sha256 for one in self.tracker.completed(name)}
        for one in done:
            if one.generation in digests and set(one.verified_by) <= READ_BACK:
                proof = Proof(
                    generation=str(one.generation),
                    tier=name,
                    manifest_sha256=digests[one.generation],
                    level=Level.READ_BACK,
                    at=rfc3339(self.clock.now()),
                    detail="read back when it was committed",
                )
                self._guarded(name, "noting the proof", partial(record_proof, self.config.local, proof))

    def store_changed(self) -> None:
        """Look at the store at the next call: something was sealed, or this is the beginning."""
        self._store_due.set()

    def _keep_store(self, sources: Sequence[Source], descent: Descent) -> tuple[GenerationId, ...]:
        plan = self.plan_store(sources)
        removed = self._keeping.remove(plan) if self.enabled and self.config.keep_last is not None else ()
        self._keeping.release(plan, removed, descent.run_uid)
        return removed

    @property
    def _keeping(self) -> StoreKeeping:
        return StoreKeeping(config=self.config, store=self.store, tracker=self.tracker)

    def plan_store(self, sources: Sequence[Source]) -> LocalPlan:
        """Decide for the store, by what the tracker and the logs that were read say of the tiers."""
        sides = {
            name: TierSide(
                choices={one.id: one.choice for one in kept.replication.decide_all(sources)},
                pins=frozenset(state.pins) if (state := view.state) else frozenset(),
            )
            for name, kept in self._tiers.items()
            if (view := kept.replication.log.view) is not None
        }
        return self._keeping.plan([source.fact for source in sources], sides)

    def _guarded(self, name: str, doing: str, act: Callable[[], T]) -> T | None:
        """Do something whose failure must fail nothing else; it is told once, until it changes or is over."""
        told = ""
        result: T | None = None
        try:
            result = act()
        except TierError as error:
            told = _words(from_tier_error(error))
        except CkptierError as error:
            told = _words(error)
        if told and told != self._told.get((name, doing)):
            self.on_note(name, f"{doing}: {told}")
        self._told[name, doing] = told
        return result


def _words(error: CkptierError) -> str:
    return f"{error.message}; next: {error.hint}" if error.hint else error.message
