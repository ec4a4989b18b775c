"""Carrying out retention on one tier: retiring in the log, and deleting what was retired long enough ago.

A retire entry ends a generation; its bytes stay for a delay, for readers elsewhere that
have begun with it.  The delay runs by the store's clock: from when the store says that
the entry was written, to when it says that something is written now.  Then the manifest
goes first, so that no reader starts on what is half gone, and the objects after it.  All
of it can be repeated: what is retired and not yet gone stands in the log.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice

from replicate.errors import IntegrityFailure, PartialFailure, UsageError
from replicate.layout import GenerationId, RemoteRun
from replicate.log import Body, LogState, Retire, Retired
from replicate.logwriter import LogWriter
from replicate.retention import Member, Policy, Reason, RetentionPlan, Rule, Verdict, apply_policy
from replicate.terms import Descent
from tiers.errors import TierUnavailable
from tiers.protocol import Key, Tier, walk

_AT_ONCE = 1000
"""Keys that are listed before they are deleted: a page of most stores."""
Holds = Mapping[GenerationId, Sequence[Reason]]
Starts = Mapping[int, GenerationId]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetiredNow:
    """A generation that was taken back: the slot of its entry, and why."""

    generation: GenerationId
    slot: int
    reason: str
    total_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A retired generation whose bytes are still there.

    ``due_in`` are the seconds of its delay that are left, None where the store does not tell
    the time.  ``reason`` says what it waits for.
    """

    generation: GenerationId
    slot: int
    total_bytes: int
    due_in: float | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """A retired generation of which nothing is left: how many objects were deleted now."""

    generation: GenerationId
    objects: int
    total_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepReport:
    """What deleting came to.  ``more``: something that may go now is still there."""

    swept: tuple[Swept, ...] = ()
    pending: tuple[Pending, ...] = ()
    aborted: int = 0
    more: bool = False


class TooMany(PartialFailure):
    """More would go than may at a time."""


def plan_tier(
    state: LogState | None,
    policy: Policy,
    holds: Holds,
    starts: Starts,
    *,
    coming: Sequence[Member] = (),
    hurt: frozenset[GenerationId] = frozenset(),
) -> RetentionPlan:
    """Decide for the live commits of a log, and for those that are ``coming``; pins and forks are in the log itself.

    What is ``hurt`` there stays for a repair and counts for nothing: it pushes out nothing that is good.
    """
    live = [Member(id=commit.id, parent=parent_of(commit.parent)) for commit in state.live] if state else []
    starts = {**_starts_by_log(state), **starts}
    members = {member.id: member for member in (*coming, *live)}
    reasons = {one: list(why) for one, why in holds.items()}
    pins, forks = (frozenset(state.pins), state.forks) if state else (frozenset(), ())
    for one in members:
        reasons.setdefault(one, []).extend(_by_log(pins, forks, one))
    good = [member for one, member in members.items() if one not in hurt]
    plan = apply_policy(good, policy, starts=starts, holds=reasons)
    why = Reason(rule=Rule.HURT, text="its copy here was found hurt: it stays for `ckptier repair`, and does not count")
    kept = [Verdict(id=one, keep=True, reasons=(why,)) for one in members if one in hurt]
    return replace(plan, verdicts=tuple(sorted((*plan.verdicts, *kept), key=lambda one: one.id, reverse=True)))


def _starts_by_log(state: LogState | None) -> dict[int, GenerationId]:
    found = {attempt.number: parent_of(attempt.start) for attempt in state.attempts} if state else {}
    return {number: start for number, start in found.items() if start is not None}


def _by_log(pins: frozenset[str], forks: Sequence[int], generation: GenerationId) -> list[Reason]:
    """Return what in the log itself keeps a generation."""
    reasons = []
    if pins and str(generation) in pins:
        reasons.append(Reason(rule=Rule.PINNED, text="pinned in the tier's log"))
    if forks:
        words = f"attempt {forks[0]} stands in the log under two ids: nothing is decided for you"
        reasons.append(Reason(rule=Rule.FORKED, text=words))
    return reasons


def parent_of(text: str | None) -> GenerationId | None:
    """Parse the parent that a commit names; None for what is no generation id."""
    try:
        return GenerationId.parse(text) if text else None
    except UsageError:
        return None


@dataclass(slots=True, kw_only=True)
class Pruner:
    """Retention on one tier, over its log.  ``delay`` in seconds by the store's clock.

    ``holds`` and ``starts`` are asked each time, since what is restored or pinned changes.
    ``being_read`` are generations that this machine is restoring.
    """

    log: LogWriter
    policy: Policy
    delay: float
    connections: int = 4
    holds: Callable[[], Holds] = dict
    starts: Callable[[], Starts] = dict
    being_read: Callable[[], frozenset[GenerationId]] = frozenset
    hurt: Callable[[LogState], frozenset[GenerationId]] = lambda _state: frozenset()
    _written: dict[int, datetime | None] = field(default_factory=dict)

    def plan(self) -> RetentionPlan:
        """Decide from the log as it was last read."""
        state = self.log.state
        hurt = self.hurt(state) if state else frozenset()
        return plan_tier(state, self.policy, self.holds(), self.starts(), hurt=hurt)

    def retire(self, descent: Descent, *, most: bool = False) -> tuple[RetiredNow, ...]:
        """Take back what the policy lets go, oldest first; the term has to be held.

        Raises TooMany unless ``most``, Fenced, TierError, IntegrityFailure (a damaged log).
        """
        plan = self.plan()
        if plan.too_many and not most:
            raise TooMany(
                f"{self.log.name}: nothing is pruned: {plan.too_many}",
                hint="look at `ckptier prune`; if that is meant: ckptier prune --apply --unsafe-remove-most",
            )
        done = [one for verdict in plan.removed if (one := self._retire(descent, verdict.id)) is not None]
        if done:
            self.log.reconcile()
            self.log.hint()
            self._forget_swept()
        return tuple(done)

    def _retire(self, descent: Descent, generation: GenerationId) -> RetiredNow | None:
        """Append one retire entry; None where a pin or another entry came first and it is to stay after all."""
        before = self.log.state.find(generation) if self.log.state else None

        def decide() -> tuple[int, Body] | None:
            verdict = next((one for one in self.plan().removed if one.id == generation), None)
            commit = self.log.state.find(generation) if self.log.state else None
            if verdict is None or commit is None:
                return None
            return self.log.held_term(descent), self._body(verdict, commit.manifest_key)

        entry = self.log.append_decided(descent, decide)
        if entry is None or before is None:
            return None
        if self.log.state is not None and self.log.state.find(generation) is not None:
            raise IntegrityFailure(f"{self.log.name}: the log does not accept that {generation} is retired")
        reason = entry.body.reason if isinstance(entry.body, Retire) else ""
        return RetiredNow(generation=generation, slot=entry.slot, reason=reason, total_bytes=before.total_bytes)

    def _body(self, verdict: Verdict, manifest_key: str) -> Retire:
        listed = {one.manifest_key for one in self._retired()}
        return Retire(
            generation=str(verdict.id),
            manifest_key=manifest_key,
            reason=_words(verdict),
            swept=tuple(sorted(self.log.tracker.swept(self.log.name) & listed)),
        )

    def _retired(self) -> tuple[Retired, ...]:
        return self.log.state.retired if self.log.state else ()

    def _forget_swept(self) -> None:
        self.log.tracker.forget_swept(self.log.name, [one.manifest_key for one in self._retired()])

    def sweep(self, *, interrupted: Callable[[], bool] = lambda: False, limit: int | None = None) -> SweepReport:
        """Delete what was retired long enough ago, at most ``limit`` generations; raises TierError.

        ``interrupted`` is asked between requests: what is left is done by the next call.
        """
        aborted = self._abort_strays(interrupted)
        left = self._left()
        now = self.log.store_time() if left and self.delay else None
        due, pending = sort_retired(left, self.log.remote, self.delay, now, self._written_at, self.being_read())
        swept: list[Swept] = []
        for one in due[:limit]:
            found = self._clear(one, interrupted)
            if found is None:
                break
            swept.append(found)
        return SweepReport(swept=tuple(swept), pending=tuple(pending), aborted=aborted, more=len(swept) < len(due))

    def _left(self) -> list[Retired]:
        swept = self.log.tracker.swept(self.log.name)
        return [one for one in self._retired() if one.manifest_key not in swept]

    def _written_at(self, slot: int) -> datetime | None:
        if slot not in self._written:
            self._written[slot] = self.log.written_at(slot)
        return self._written[slot]

    def _clear(self, one: Retired, interrupted: Callable[[], bool]) -> Swept | None:
        """Delete the manifest and then everything under the prefix; None where it was interrupted."""
        prefix = own_prefix(self.log.remote, one.id, one.manifest_key)
        state = self.log.state
        if prefix is None or state is None or any(live.manifest_key.startswith(prefix) for live in state.live):
            raise IntegrityFailure(f"{self.log.name}: {one.generation} is not deleted: its prefix is in use")
        self.log.tier.delete(Key(one.manifest_key))
        count = delete_under(self.log.tier, prefix, connections=self.connections, interrupted=interrupted)
        if count is None:
            return None
        self.log.tracker.note_swept(self.log.name, one.id, one.manifest_key)
        return Swept(generation=one.id, objects=count + 1, total_bytes=one.total_bytes)

    def _abort_strays(self, interrupted: Callable[[], bool]) -> int:
        """Abort uploads in parts that this tracker began and gave up; stores bill their parts until then."""
        count = 0
        for upload in self.log.tracker.strays(self.log.name):
            if interrupted():
                break
            self.log.tier.abort(upload)
            self.log.tracker.aborted(self.log.name, upload)
            count += 1
        return count


def sort_retired(
    retired: Sequence[Retired],
    remote: RemoteRun,
    delay: float,
    now: datetime | None,
    written_at: Callable[[int], datetime | None],
    reading: frozenset[GenerationId],
) -> tuple[list[Retired], list[Pending]]:
    """Tell what may be deleted from what has to wait, and why.

    ``now`` and ``written_at`` (when a slot was written) are by the store's clock, None where it has none.
    """
    due: list[Retired] = []
    pending: list[Pending] = []
    for one in retired:
        waits: Pending | None = None
        if own_prefix(remote, one.id, one.manifest_key) is None:
            waits = _pending(one, None, f"its manifest key {one.manifest_key[:200]!r} is none of ours: left alone")
        elif one.id in reading:
            waits = _pending(one, None, "it is being restored on this machine")
        elif delay:
            waits = _delayed(one, delay, now, written_at(one.slot))
        if waits is None:
            due.append(one)
        else:
            pending.append(waits)
    return due, pending


def _delayed(one: Retired, delay: float, now: datetime | None, since: datetime | None) -> Pending | None:
    if now is None or since is None:
        return _pending(one, None, "this tier does not tell the time; retire_delay_seconds = 0 waits for nothing")
    left = delay - (now - since).total_seconds()
    return _pending(one, left, "readers elsewhere may still be at it") if left > 0 else None


def own_prefix(remote: RemoteRun, generation: GenerationId, manifest_key: str) -> str | None:
    """Return the prefix that a manifest key stands in; None unless it is this run's and this generation's."""
    prefix = remote.prefix_of(manifest_key)
    if prefix is None or prefix.generation != generation or remote.manifest(prefix.text) != manifest_key:
        return None
    return prefix.text


def delete_under(
    tier: Tier, prefix: str, *, connections: int, interrupted: Callable[[], bool] = lambda: False
) -> int | None:
    """Delete every key under a prefix and look that none is left; returns how many, None where interrupted.

    Raises TierError for the first key that cannot be deleted, and TierUnavailable where one
    that was deleted is still listed.
    """
    count = 0
    before: frozenset[Key] = frozenset()
    with ThreadPoolExecutor(connections, thread_name_prefix="ckptier-delete") as pool:
        while keys := [info.key for info in islice(walk(tier, prefix), _AT_ONCE)]:
            foreign = next((key for key in keys if not key.startswith(prefix)), None)
            if foreign is not None:
                raise IntegrityFailure(
                    f"{tier.name}: a listing of {prefix} shows {foreign}: nothing is deleted by it",
                    hint="the store does not list by prefix: run `ckptier check`",
                )
            still = before.intersection(keys)
            if still:
                raise TierUnavailable(
                    f"{len(still)} objects that were deleted are still listed",
                    tier=tier.name,
                    operation="delete",
                    key=min(still),
                    hint="the store may need a moment; the next pass looks again",
                )
            for start in range(0, len(keys), 4 * connections):
                if interrupted():
                    return None
                count += sum(1 for _ in pool.map(tier.delete, keys[start : start + 4 * connections]))
            before = frozenset(keys)
    return count


def _pending(one: Retired, due_in: float | None, reason: str) -> Pending:
    return Pending(generation=one.id, slot=one.slot, total_bytes=one.total_bytes, due_in=due_in, reason=reason)


def _words(verdict: Verdict) -> str:
    return "; ".join(reason.text for reason in verdict.reasons)
