"""What a run will store, expanded into the ledger from its plan: commits, retention and what deletions leave.

Ordinals count from 1: generation ``i`` of a run with cadence ``T`` is committed at ``start + i*T``,
the last one at the horizon itself.  Keeping the last ``K`` means that a generation goes when the
K-th one after it is committed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from cost.errors import PlanInvalid
from cost.ledger import DAY, Ending, Interval, Ledger, Reason
from cost.rates.tier import Tier

FOREVER = 2**62
"""A time that never comes: for versions that nothing expires."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectGroup:
    """Objects of one size."""

    bytes: int
    count: int = 1

    def __post_init__(self) -> None:
        if self.bytes < 0 or self.count < 1:
            raise PlanInvalid(f"{self.count} objects of {self.bytes} bytes", hint="count from 1, bytes from 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleRule:
    """The provider moves an object to another tier, ``after`` seconds from its commit."""

    after: int
    tier: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AbandonedUpload:
    """Parts of an upload that was never completed, billed until somebody or a rule aborts it."""

    at: int
    bytes: int
    objects: int = 1
    aborted_after: int = FOREVER


@dataclass(frozen=True, slots=True, kw_only=True)
class RewrittenObject:
    """One key that is overwritten again and again, at each of the instants."""

    bytes: int
    at: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftBehind:
    """What deletions and crashes leave in a tier, in seconds.

    ``noncurrent``: how long a versioned bucket keeps what was deleted or overwritten; 0 without versions.
    ``history``: a Git repository, where a deletion frees nothing.
    ``abort_after``: when the provider's rule aborts incomplete uploads.
    """

    noncurrent: int = 0
    soft_delete: int = 0
    history: bool = False
    abort_after: int = FOREVER

    def __post_init__(self) -> None:
        if min(self.noncurrent, self.soft_delete, self.abort_after) < 0:
            raise PlanInvalid("a span is negative", hint="spans are seconds from 0")


def left_behind(tier: Tier) -> LeftBehind:
    """Return what a tier's card says that deletions leave; nothing where the card is silent."""
    policy = tier.noncurrent
    if policy is None:
        return LeftBehind()
    return LeftBehind(
        noncurrent=0 if not policy.versioning else _days(policy.noncurrent_days),
        soft_delete=policy.soft_delete_days * DAY,
        history=policy.keeps_history,
        abort_after=_days(policy.abort_incomplete_days),
    )


def _days(days: int | None) -> int:
    return FOREVER if days is None else days * DAY


@dataclass(frozen=True, slots=True, kw_only=True)
class TierPlan:
    """What one tier receives and keeps; all spans in seconds.

    ``every``: each how-manieth generation goes there; ``keep_last`` counts those.
    ``keep_every``: ordinals divisible by it stay to the end, as do ``pins``.
    ``min_keep``: nothing goes earlier.  ``deletion_lag``: how long after it could, a generation goes.
    ``upload``: how long parts lie in flight before the commit, filling evenly.
    ``leaves``: None stands for what the tier's card says.
    """

    tier: str
    keep_last: int
    every: int = 1
    keep_every: int | None = None
    pins: frozenset[int] = frozenset()
    min_keep: int = 0
    deletion_lag: int = 0
    upload: int = 0
    leaves: LeftBehind | None = None
    replica: bool = False
    lifecycle: tuple[LifecycleRule, ...] = ()
    abandoned: tuple[AbandonedUpload, ...] = ()
    rewritten: tuple[RewrittenObject, ...] = ()

    def __post_init__(self) -> None:
        if (
            min(self.min_keep, self.deletion_lag, self.upload) < 0
            or min(self.keep_last, self.every, 1 if self.keep_every is None else self.keep_every) < 1
        ):
            raise PlanInvalid(f"{self.tier}: a span or count is below its least", hint="spans from 0, counts from 1")
        ages = [rule.after for rule in self.lifecycle]
        if ages != sorted(set(ages)) or any(age < 1 for age in ages):
            raise PlanInvalid(f"{self.tier}: lifecycle ages {ages} do not rise", hint="list the rules by age, from 1")


@dataclass(frozen=True, kw_only=True)
class RunPlan:
    """A run: what a generation consists of, when they come, and what each tier does with them.

    Give ``cadence``, or the instants in ``commits``.  ``hold``: how long what is left at the
    horizon is kept after it; ``delete_at_end`` says whether it is deleted then.
    """

    start: int
    horizon: int
    objects: tuple[ObjectGroup, ...]
    tiers: tuple[TierPlan, ...]
    cadence: int | None = None
    commits: tuple[int, ...] = ()
    hold: int = 0
    delete_at_end: bool = False

    def __post_init__(self) -> None:
        if self.start < 0 or self.horizon < 0 or self.hold < 0 or not self.objects:
            raise PlanInvalid("a run has a start, a length and objects", hint="spans are not negative")
        if (self.cadence is None) == (not self.commits) or (self.cadence is not None and self.cadence < 1):
            raise PlanInvalid("a run has a cadence or a list of commits", hint="give one of both, not negative")
        if list(self.commits) != sorted(set(self.commits)) or any(
            not self.start <= at <= self.start + self.horizon for at in self.commits
        ):
            raise PlanInvalid("commits do not rise or lie outside the run", hint="list instants within the horizon")

    @property
    def end(self) -> int:
        """The instant up to which storage is counted: horizon and hold."""
        return self.start + self.horizon + self.hold

    @cached_property
    def instants(self) -> tuple[int, ...]:
        """When each generation is committed, by ordinal from 1."""
        if self.cadence is None:
            return self.commits
        return tuple(range(self.start + self.cadence, self.start + self.horizon + 1, self.cadence))

    @property
    def generation_bytes(self) -> int:
        """Bytes of one generation."""
        return sum(group.bytes * group.count for group in self.objects)


def expand(plan: RunPlan) -> Ledger:
    """Return the ledger of the whole run on all its tiers; ``leaves`` of None counts as nothing left."""
    intervals = [interval for tier in plan.tiers for interval in _on_tier(plan, tier)]
    return Ledger(tuple(intervals), plan.start, plan.end)


class Phase(NamedTuple):
    """From ``start`` to ``end`` for one reason, whether or not the ledger reaches that far."""

    reason: Reason
    start: int
    end: int


def _on_tier(plan: RunPlan, tier: TierPlan) -> Iterator[Interval]:
    received = range(tier.every, len(plan.instants) + 1, tier.every)
    for index, ordinal in enumerate(received):
        commit = plan.instants[ordinal - 1]
        successor = index + tier.keep_last
        freed = plan.instants[received[successor] - 1] if successor < len(received) else FOREVER
        yield from _staged(plan, tier, ordinal, commit)
        yield from _kept(plan, tier, ordinal, _phases(plan, tier, ordinal, (commit, freed)))
    for upload in tier.abandoned:
        yield from _abandoned(plan, tier, upload)
    for rewritten in tier.rewritten:
        yield from _rewritten(plan, tier, rewritten)


def _staged(plan: RunPlan, tier: TierPlan, ordinal: int, commit: int) -> Iterator[Interval]:
    """Yield parts in flight: whole from the middle of the upload on, the same byte-seconds as filling evenly."""
    start = max(plan.start, commit - (tier.upload + 1) // 2)
    if start == commit:
        return
    for group in plan.objects:
        yield Interval(
            tier=tier.tier,
            bytes=group.bytes,
            objects=group.count,
            start=start,
            end=commit,
            reason=Reason.STAGED,
            ending=Ending.KEPT,
            entered=start,
            created=start,
            generation=ordinal,
        )


def _reason(tier: TierPlan, ordinal: int) -> Reason:
    if ordinal in tier.pins:
        return Reason.PINNED
    if tier.keep_every and ordinal % tier.keep_every == 0:
        return Reason.MILESTONE
    return Reason.REPLICA if tier.replica else Reason.LAST_K


def _phases(plan: RunPlan, tier: TierPlan, ordinal: int, window: tuple[int, int]) -> list[Phase]:
    """Return the life of one generation: committed, and then whatever its deletion leaves."""
    commit, freed = window
    reason = _reason(tier, ordinal)
    stays = reason in {Reason.PINNED, Reason.MILESTONE} or freed == FOREVER
    last = plan.end if plan.delete_at_end else FOREVER
    gone = last if stays else max(freed + tier.deletion_lag, commit + tier.min_keep)
    phases = [Phase(reason, commit, gone)]
    leaves = tier.leaves or LeftBehind()
    if leaves.history:
        return [*phases, Phase(Reason.GIT_HISTORY, gone, FOREVER)]
    if leaves.noncurrent:
        phases.append(Phase(Reason.NONCURRENT, gone, gone + leaves.noncurrent))
        gone += leaves.noncurrent
    if leaves.soft_delete:
        phases.append(Phase(Reason.SOFT_DELETED, gone, gone + leaves.soft_delete))
    return phases


class Stay(NamedTuple):
    """Time in one tier: the next rule moves the object at ``leave``."""

    tier: str
    entered: int
    leave: int


def _stays(tier: TierPlan, commit: int) -> list[Stay]:
    if not tier.lifecycle:
        return [Stay(tier.tier, commit, FOREVER)]
    moves = [(tier.tier, commit), *((rule.tier, commit + rule.after) for rule in tier.lifecycle)]
    leaves = [*(at for _, at in moves[1:]), FOREVER]
    return [Stay(name, at, leave) for (name, at), leave in zip(moves, leaves, strict=True)]


def _kept(plan: RunPlan, tier: TierPlan, ordinal: int, phases: list[Phase]) -> Iterator[Interval]:
    """Yield a generation's intervals: its phases, cut where the lifecycle moves it to another tier."""
    commit, final, ends = phases[0].start, phases[-1].end, plan.end
    for stay in _stays(tier, commit):
        for reason, first, last in phases:
            start, end = max(stay.entered, first), min(stay.leave, last)
            if start > ends or start > end or (start == end and start != commit):
                continue
            ending = _ending(ends, end, final, stay.leave)
            for group in plan.objects:
                yield Interval(
                    tier=stay.tier,
                    bytes=group.bytes,
                    objects=group.count,
                    start=start,
                    end=min(end, ends),
                    reason=reason,
                    ending=ending,
                    entered=stay.entered,
                    created=commit,
                    generation=ordinal,
                )


def _ending(ends: int, end: int, final: int, leave: int) -> Ending:
    if end > ends:
        return Ending.ALIVE
    if end == final:
        return Ending.DELETED
    return Ending.TRANSITIONED if end == leave else Ending.KEPT


def _abandoned(plan: RunPlan, tier: TierPlan, upload: AbandonedUpload) -> Iterator[Interval]:
    if not plan.start <= upload.at <= plan.end:
        raise PlanInvalid(f"{tier.tier}: an upload at {upload.at} lies outside the run", hint="check its instant")
    end = upload.at + min(upload.aborted_after, (tier.leaves or LeftBehind()).abort_after)
    yield Interval(
        tier=tier.tier,
        bytes=upload.bytes,
        objects=upload.objects,
        start=upload.at,
        end=min(end, plan.end),
        reason=Reason.INCOMPLETE_UPLOAD,
        ending=Ending.ABORTED if end <= plan.end else Ending.ALIVE,
        entered=upload.at,
        created=upload.at,
    )


def _rewritten(plan: RunPlan, tier: TierPlan, rewritten: RewrittenObject) -> Iterator[Interval]:
    """Yield every version of a key: each is current until the next is written, and then what versioning makes of it."""
    leaves = tier.leaves or LeftBehind()
    kept = FOREVER if leaves.history else leaves.noncurrent
    for at, replaced in zip(rewritten.at, [*rewritten.at[1:], FOREVER], strict=True):
        left = replaced + kept
        for reason, start, end in ((Reason.LAST_K, at, replaced), (Reason.NONCURRENT, replaced, left)):
            if start >= end or start > plan.end:
                continue
            done = Ending.KEPT if end != left else Ending.OVERWRITTEN
            yield Interval(
                tier=tier.tier,
                bytes=rewritten.bytes,
                objects=1,
                start=start,
                end=min(end, plan.end),
                reason=reason,
                ending=done if end <= plan.end else Ending.ALIVE,
                entered=at,
                created=at,
            )
