"""What the search explores: the state of two writers and a tier, in the fewest words."""

from dataclasses import dataclass, field
from functools import cache
from typing import NamedTuple

from model.search_log import RUN_UID, Log, Slot, Upload

from replicate.layout import GenerationId
from replicate.log import LogView
from replicate.prune import plan_tier
from replicate.retention import Policy
from replicate.terms import Descent, Standing, decide_term
from replicate.tracker import HeldTerm

WEAKENINGS = (
    "unconditional-put",
    "age-only-gc",
    "no-nonce-check",
    "manifest-first",
    "no-directory-fsync",
    "size-only",
    "old-slots-deleted",
    "claim-without-lineage",
)


class Held(NamedTuple):
    """The term that a tracker remembers."""

    term: int
    nonce: str
    line: str
    fenced: bool = False


class Writer(NamedTuple):
    """One machine: where its process is, and (from ``attempt`` on) what its disk says."""

    name: str
    at: str = "idle"
    known: int = -1
    pending: Slot | None = None
    again: bool = False
    upload: Upload | None = None
    heals: Upload | None = None
    listed: frozenset[Upload] = frozenset()
    attempt: int = 1
    line: str = "a"
    local: tuple[GenerationId, ...] = ()
    held: Held | None = None
    plans: tuple[Upload, ...] = ()
    given_up: frozenset[Upload] = frozenset()
    done: tuple[tuple[GenerationId, int], ...] = ()
    seen: int = -1
    drawn: int = 0

    def crashed(self) -> "Writer":
        return self._replace(
            at="idle", known=-1, pending=None, again=False, upload=None, heals=None, listed=frozenset()
        )


class Budget(NamedTuple):
    """How often what may go wrong still may."""

    crashes: int = 0
    losses: int = 0
    restores: int = 0
    pins: int = 0
    forgets: int = 0
    sweeps: int = 0
    rot: int = 0
    hurts: int = 0
    repairs: int = 0


class World(NamedTuple):
    """Everything.  ``objects`` holds (upload, what); ``flying`` are creates that may still arrive."""

    log: Log
    objects: frozenset[tuple[Upload, str]]
    flying: frozenset[tuple[int, Slot]]
    writers: tuple[Writer, ...]
    acks: frozenset[tuple[GenerationId, int, str]]
    budget: Budget
    due: int = 0
    """Retirements in slots below have waited long enough."""
    volatile: int = -1
    """First slot that a power failure of the tier would take, -1 for none."""
    hidden: int = 0
    """Slots below this were deleted: readers begin here."""
    pinner: int = -1
    hurt: frozenset[Upload] = frozenset()
    """Copies that fate has damaged since they were committed."""


@dataclass(frozen=True)
class Scenario:
    """Where a search begins, and what is allowed to happen in it."""

    name: str
    writers: tuple[Writer, ...]
    budget: Budget
    keep_last: int | None = None
    collects: bool = False
    weak: frozenset[str] = field(default_factory=frozenset)

    def begin(self) -> World:
        return World(Log(), frozenset(), frozenset(), self.writers, frozenset(), self.budget)


@cache
def standing(log: Log, held: Held | None, attempt: int, line: str, *, blind: bool) -> Standing:
    """Ask the product who may write; ``blind`` is the weakening that asks nobody."""
    known = None
    if held is not None:
        fenced = "fenced" if held.fenced else None
        known = HeldTerm(term=held.term, claim_nonce=held.nonce, attempt_id=held.line, fenced=fenced)
    found = decide_term(log.state, known, Descent(run_uid=RUN_UID, attempt=attempt, attempt_id=line)).standing
    return Standing.MAY_CLAIM if blind and found is not Standing.HOLDS else found


@cache
def leaving(log: Log, keep_last: int | None) -> tuple[GenerationId, ...]:
    """Ask the product what retention takes back, oldest first."""
    policy = Policy(keep_last=keep_last, min_generations=1)
    return tuple(verdict.id for verdict in plan_tier(log.state, policy, {}, {}).removed)


@cache
def view_of(log: Log) -> LogView:
    """Return what the product's collector decides from."""
    return LogView(state=log.state, next_slot=len(log))


def has_retired(log: Log) -> bool:
    """Tell whether something was taken back and may lie there still."""
    return log.state is not None and bool(log.state.retired)


def put(world: World, index: int, writer: Writer) -> World:
    """Return the world with another state of one writer."""
    writers = world.writers
    return world._replace(writers=(*writers[:index], writer, *writers[index + 1 :]))


def created(world: World, number: int, slot: Slot, scenario: Scenario) -> World:
    """Put if absent."""
    if number < len(world.log):
        if "unconditional-put" not in scenario.weak:
            return world
        slots = world.log.slots
        return world._replace(log=world.log.rebuilt((*slots[:number], slot, *slots[number + 1 :])))
    if number > len(world.log):
        return world  # only after a power failure: nobody would ask for it
    volatile = world.volatile
    if "no-directory-fsync" in scenario.weak and volatile < 0:
        volatile = number
    return world._replace(log=world.log.with_(slot), volatile=volatile)
