"""What ``status``, ``list``, ``show`` and ``safe-to-terminate`` say: assembled from values alone.

Nothing here asks a tier or the disk; the caller read both.  A tier's log counts before
the tracker; where the log was not read, the tracker's completed mark does, since it
never runs ahead of the log.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from replicate.errors import CkptierError, ExitCode, TrustFailure
from replicate.forks import Fork, find_forks
from replicate.generation.evidence import Level
from replicate.layout import GenerationId
from replicate.log import Attempt, LiveCommit, LogState, LogView
from replicate.priced import Priced
from replicate.signing.anchor import Anchor
from replicate.statusfile import StatusFile, TierStatus

LOCAL = "local"
VERIFY = "`ckptier verify` says which entries; docs/signing.md says what to do about them"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalEntry:
    """A sealed generation of the store.  ``at`` is when its level was reached; ``reason`` why it is quarantined.

    ``attempt_id`` is None where its own document cannot be read.
    """

    generation: GenerationId
    level: Level
    at: str | None
    reason: str
    sealed_at: str
    total_bytes: int
    objects: int
    attempt_id: str | None
    parent: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A generation that a tier committed: its log slot, and when."""

    generation: GenerationId
    slot: int
    at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """An upload under way, in bytes."""

    generation: str
    done_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What the tracker says of one tier.  ``failure`` is the last error that no success followed.

    ``untrusted``: what was written down may no longer be there.
    """

    completed: Mark | None = None
    under_way: Transfer | None = None
    failure: str | None = None
    failing_since: str | None = None
    hint: str | None = None
    untrusted: bool = False
    backlog: int = 0
    skipped: int = 0
    anchor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TierInput:
    """One tier: its log, or why that was not read (both None: nobody asked), and the tracker's view.

    ``found`` is what this machine knows of copies there beyond their commit; quarantined: found hurt.
    """

    tier: str
    view: LogView | None = None
    failure: CkptierError | None = None
    progress: Progress | None = None
    found: Mapping[GenerationId, Level] = field(default_factory=dict)

    def level(self, generation: GenerationId) -> Level:
        """Return how well a committed copy is known to be good."""
        return self.found.get(generation, Level.REPLICATED)


class Known(StrEnum):
    """What a statement about a tier rests on."""

    LOG = "log"
    TRACKER = "tracker"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """How far a tier is behind the newest usable local generation."""

    generations: int
    updates: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TierView:
    """One tier in ``status``.  ``live`` counts committed generations, None where the log was not read.

    ``anchor`` (``SLOT:SHA256``) is the last log entry that is known; ``untrusted``: the log is not to be believed.
    ``hurt`` are copies that ``verify`` found hurt here, ``restart`` is the newest that is not one of them.
    """

    tier: str
    known_by: Known
    newest: Mark | None
    evidence: Level | None
    lag: Lag | None
    live: int | None
    pins: tuple[str, ...]
    under_way: Transfer | None
    backlog: int
    skipped: int
    error: str | None
    hint: str | None
    failing_since: str | None
    damaged_slots: tuple[int, ...]
    unrelated: bool
    anchor: str | None = None
    untrusted: bool = False
    untrusted_slots: tuple[int, ...] = ()
    hurt: tuple[GenerationId, ...] = ()
    restart: Mark | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """The whole run.  ``newest_sealed`` counts no quarantined one; those are named apart.

    ``money`` has the tiers that a rate card is configured for.
    """

    run: str
    run_uid: str | None
    newest_sealed: LocalEntry | None
    newest_validated: LocalEntry | None
    quarantined: tuple[LocalEntry, ...]
    tiers: tuple[TierView, ...]
    forks: tuple[Fork, ...]
    money: tuple[Priced, ...] = ()

    def tier(self, name: str) -> TierView | None:
        """Return one tier's view."""
        return next((view for view in self.tiers if view.tier == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Risk:
    """What would be lost with this machine: what is not on which tier, how far it is ahead, what to do first."""

    tier: str
    generation: GenerationId | None
    updates: int
    reason: str
    hint: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Safety:
    """Whether the machine may go.  ``restart_from`` is the newest generation proved to be on every tier asked for.

    ``silent`` tiers do not answer now; what was committed there before counts.
    """

    safe: bool
    risks: tuple[Risk, ...]
    newest: GenerationId | None
    restart_from: GenerationId | None
    silent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceView:
    """A generation at one place: how well it is known to be good, and since when."""

    place: str
    level: Level
    at: str | None
    slot: int | None
    pinned: bool
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A line of ``list``."""

    generation: GenerationId
    next_update: int
    total_bytes: int
    objects: int
    newest: bool
    places: tuple[PlaceView, ...]


def progress_from(status: StatusFile | None) -> dict[str, Progress]:
    """Take each tier's progress from the view that the replicating process left."""
    return {tier.name: _progress(tier) for tier in status.tiers} if status else {}


def _progress(tier: TierStatus) -> Progress:
    newest, running, failure = tier.newest, tier.under_way, tier.failure
    return Progress(
        completed=Mark(generation=GenerationId.parse(newest.generation), slot=newest.slot, at=newest.at)
        if newest
        else None,
        under_way=Transfer(
            generation=running.generation, done_bytes=running.done_bytes, total_bytes=running.total_bytes
        )
        if running
        else None,
        failure=failure.message if failure else None,
        failing_since=failure.since if failure else None,
        hint=failure.hint or None if failure else None,
        untrusted=failure is not None and failure.exit_code == ExitCode.TRUST,
        backlog=len(tier.waiting),
        skipped=tier.skipped,
        anchor=tier.anchor,
    )


def assemble(run: str, run_uid: str | None, local: Sequence[LocalEntry], tiers: Sequence[TierInput]) -> RunStatus:
    """Put the status of a run together."""
    usable = _usable(local)
    attempts: dict[str, Sequence[Attempt]] = {
        LOCAL: tuple(
            Attempt(number=entry.generation.attempt, id=entry.attempt_id) for entry in local if entry.attempt_id
        )
    }
    attempts |= {
        tier.tier: state.attempts for tier in tiers if tier.view and (state := tier.view.state) and state.founded
    }
    return RunStatus(
        run=run,
        run_uid=run_uid,
        newest_sealed=usable[0] if usable else None,
        newest_validated=next((entry for entry in usable if entry.level.reaches(Level.VALIDATED)), None),
        quarantined=tuple(entry for entry in local if entry.level is Level.QUARANTINED),
        tiers=tuple(_tier_view(tier, run_uid, usable) for tier in tiers),
        forks=find_forks(attempts),
    )


def _usable(local: Sequence[LocalEntry]) -> list[LocalEntry]:
    good = [entry for entry in local if entry.level is not Level.QUARANTINED]
    return sorted(good, key=lambda entry: entry.generation, reverse=True)


def _tier_view(tier: TierInput, run_uid: str | None, usable: Sequence[LocalEntry]) -> TierView:
    progress = tier.progress or Progress()
    state = tier.view.state if tier.view else None
    unrelated = bool(state and state.founded and run_uid and state.run_uid != run_uid)
    known_by = Known.LOG if tier.view else Known.TRACKER if tier.progress else Known.NOTHING
    newest = None if unrelated else _mark(state.newest if state else None) if tier.view else progress.completed
    hurt = _hurt(tier, state)
    return TierView(
        tier=tier.tier,
        known_by=known_by,
        newest=newest,
        hurt=hurt,
        restart=_restart(newest, state, hurt),
        evidence=tier.level(newest.generation) if newest else None,
        lag=_lag(newest, usable) if known_by is not Known.NOTHING else None,
        live=len(state.live) if state else 0 if tier.view else None,
        pins=state.pins if state else (),
        under_way=progress.under_way,
        backlog=progress.backlog,
        skipped=progress.skipped,
        error=tier.failure.message if tier.failure else progress.failure,
        hint=tier.failure.hint if tier.failure else progress.hint,
        failing_since=progress.failing_since,
        damaged_slots=tuple(damage.slot for damage in tier.view.damaged) if tier.view else (),
        unrelated=unrelated,
        anchor=anchor_of(tier.view) or progress.anchor,
        untrusted=_untrusted(tier, progress),
        untrusted_slots=tuple(one.slot for one in tier.view.damaged if not one.trusted) if tier.view else (),
    )


def _untrusted(tier: TierInput, progress: Progress) -> bool:
    if tier.failure is not None:
        return isinstance(tier.failure, TrustFailure)
    return any(not damage.trusted for damage in tier.view.damaged) if tier.view else progress.untrusted


def anchor_of(view: LogView | None) -> str | None:
    """Return the anchor of a log as read, None for an empty one."""
    return str(Anchor(view.next_slot - 1, view.last_sha256)) if view and view.next_slot else None


def _hurt(tier: TierInput, state: LogState | None) -> tuple[GenerationId, ...]:
    """Return the copies that were found hurt, newest first; of those, where the log was read, that still count."""
    hurt = {one for one, level in tier.found.items() if level is Level.QUARANTINED}
    live = {commit.id for commit in state.live} if state else hurt
    return tuple(sorted(hurt & live, reverse=True))


def _restart(newest: Mark | None, state: LogState | None, hurt: Sequence[GenerationId]) -> Mark | None:
    """Return the newest copy that is not known to be hurt; None also where only the tracker knows of any."""
    if newest is None or newest.generation not in hurt:
        return newest
    good = [commit for commit in state.live if commit.id not in hurt] if state else []
    return _mark(max(good, key=lambda commit: commit.id, default=None))


def _mark(commit: LiveCommit | None) -> Mark | None:
    return Mark(generation=commit.id, slot=commit.slot, at=commit.at) if commit else None


def _lag(newest: Mark | None, usable: Sequence[LocalEntry]) -> Lag:
    ahead = [entry for entry in usable if newest is None or entry.generation > newest.generation]
    reached = newest.generation.next_update if newest else 0
    updates = max(0, ahead[0].generation.next_update - reached) if ahead else 0
    return Lag(generations=len(ahead), updates=updates, bytes=sum(entry.total_bytes for entry in ahead))


def assess_termination(status: RunStatus, tiers: Sequence[str]) -> Safety:
    """Say whether this machine may go: only where the newest local generation is on every one of ``tiers``.

    Updates since the last publish live in the trainer's memory and are not known here.
    """
    newest = status.newest_sealed
    risks = [risk for name in tiers if (risk := _risk(name, status, newest)) is not None]
    if not tiers and newest is not None:
        risks.append(_at_risk("", newest, newest.generation.next_update, "no tier is configured"))
    views = [view for name in tiers if (view := status.tier(name)) is not None]
    known = [view.restart.generation for view in views if view.restart is not None]
    return Safety(
        safe=not risks,
        risks=tuple(risks),
        newest=newest.generation if newest else None,
        restart_from=min(known) if known and len(known) == len(tiers) else None,
        silent=tuple(view.tier for view in views if view.known_by is Known.TRACKER),
    )


def _risk(name: str, status: RunStatus, newest: LocalEntry | None) -> Risk | None:
    if newest is None:
        return None
    view = status.tier(name)
    ahead = newest.generation.next_update
    if view is None or view.known_by is Known.NOTHING:
        why = view.error if view and view.error else "it was not asked"
        return _at_risk(name, newest, ahead, f"what it holds is unknown: {why}", view.hint if view else None)
    if view.unrelated or view.untrusted:
        other = "it holds another run of this name" if view.unrelated else view.error
        return _at_risk(name, newest, ahead, other or "entries of its log are not to be trusted", view.hint or VERIFY)
    if view.newest is None or view.newest.generation < newest.generation:
        return _at_risk(name, newest, view.lag.updates if view.lag else ahead, _not_there(view), _mending(view))
    if newest.generation in view.hurt:
        good = view.restart.generation.next_update if view.restart else 0
        words = f"`ckptier verify` found its copy there hurt{_instead(view)}"
        return _at_risk(name, newest, ahead - good, words, f"`ckptier repair --tier {name}`")
    return None


def _mending(view: TierView) -> str | None:
    return f"`ckptier repair --tier {view.tier}`" if view.damaged_slots else view.hint


def _instead(view: TierView) -> str:
    return f"; the newest good one is {view.restart.generation}" if view.restart else ""


def _at_risk(name: str, newest: LocalEntry, updates: int, reason: str, hint: str | None = None) -> Risk:
    return Risk(tier=name, generation=newest.generation, updates=updates, reason=reason, hint=hint or "")


def _not_there(view: TierView) -> str:
    newest = f"its newest is {view.newest.generation}" if view.newest else "it holds nothing yet"
    if view.under_way:
        newest += f"; {view.under_way.generation} is under way"
    return f"{newest}; last error: {view.error.removeprefix(f'{view.tier}: ')}" if view.error else newest


def list_generations(local: Sequence[LocalEntry], tiers: Sequence[TierInput]) -> tuple[Listed, ...]:
    """Return every generation that is anywhere, newest first, with where it is."""
    here = {entry.generation: entry for entry in local}
    remote = {commit.id: commit for tier in tiers for commit in (tier.view.live if tier.view else ())}
    good = {commit.id for tier in tiers for commit in (tier.view.live if tier.view else ()) if _counts(tier, commit)}
    usable = {entry.generation for entry in _usable(local)} | good
    newest = max(usable, default=None)
    return tuple(
        _listed(generation, here.get(generation), remote.get(generation), tiers, newest=generation == newest)
        for generation in sorted({**here, **remote}, reverse=True)
    )


def _counts(tier: TierInput, commit: LiveCommit) -> bool:
    return tier.level(commit.id) is not Level.QUARANTINED


def _listed(
    generation: GenerationId,
    entry: LocalEntry | None,
    commit: LiveCommit | None,
    tiers: Sequence[TierInput],
    *,
    newest: bool,
) -> Listed:
    known = entry or commit
    places = [_here(entry)] if entry else []
    places += [place for tier in tiers if (place := _there(generation, tier)) is not None]
    return Listed(
        generation=generation,
        next_update=generation.next_update,
        total_bytes=known.total_bytes if known else 0,
        objects=known.objects if known else 0,
        newest=newest,
        places=tuple(places),
    )


def _here(entry: LocalEntry) -> PlaceView:
    at = entry.at or entry.sealed_at
    return PlaceView(place=LOCAL, level=entry.level, at=at, slot=None, pinned=False, note=entry.reason)


def _there(generation: GenerationId, tier: TierInput) -> PlaceView | None:
    state: LogState | None = tier.view.state if tier.view else None
    commit = state.find(generation) if state else None
    if state is None or commit is None:
        return None
    return PlaceView(
        place=tier.tier,
        level=tier.level(generation),
        at=commit.at,
        slot=commit.slot,
        pinned=str(generation) in state.pins,
        note="" if _counts(tier, commit) else "`ckptier verify` found this copy hurt",
    )
