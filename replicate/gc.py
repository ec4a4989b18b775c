"""Orphans: what uploads left under a run's prefix that no commit names.

A prefix carries the term of its writer.  Once a higher term stands in the log, no writer
of a lower one can ever commit, so that what it left belongs to nothing; and what this
tracker gave up is known not to be under way.  Age proves nothing: a writer may stall for
days.  Only in advisory mode, where terms fence nobody, is age all there is, and then
nothing younger than a week is touched.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from replicate.errors import IntegrityFailure
from replicate.layout import GenerationId, RemoteRun, UploadPrefix
from replicate.leftovers import Leftovers
from replicate.log import LogView
from replicate.prune import delete_under
from tiers.protocol import ObjectInfo, Tier, walk

ADVISORY_FLOOR = timedelta(days=7)
"""In advisory mode, how long nothing may have been written under a prefix before it counts as left behind."""


class Fate(StrEnum):
    """What becomes of a prefix."""

    LIVE = "live"
    RETIRED = "retired"
    ORPHAN = "orphan"
    KEPT = "kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What lies under one prefix; ``newest`` is when the store last wrote there, None where it does not say.

    ``complete``: its manifest is there, which is written last.
    """

    prefix: UploadPrefix
    objects: int
    total_bytes: int
    newest: datetime | None
    complete: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A prefix, what becomes of it, and why."""

    found: Found
    fate: Fate
    reason: str

    @property
    def generation(self) -> GenerationId:
        """The generation that was uploaded there."""
        return self.found.prefix.generation


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanPlan:
    """Every prefix of a run on one tier.  ``unknown`` counts keys below it that no upload of ours has."""

    judged: tuple[Judged, ...] = ()
    unknown: int = 0

    @property
    def orphans(self) -> tuple[Judged, ...]:
        """What would be deleted."""
        return tuple(one for one in self.judged if one.fate is Fate.ORPHAN)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanReport:
    """What collecting came to."""

    plan: OrphanPlan
    deleted: tuple[Judged, ...] = ()
    objects: int = 0
    aborted: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """What deciding rests on besides the log.

    ``given_up`` are prefixes that this tracker abandoned, with the reason; ``under_way``
    those that it is uploading to.  ``advisory``: terms fence nobody here, and ``now`` is
    the store's clock, None where it does not say.
    """

    given_up: Mapping[str, str] = field(default_factory=dict)
    under_way: frozenset[str] = frozenset()
    advisory: bool = False
    now: datetime | None = None


def survey(tier: Tier, remote: RemoteRun) -> tuple[tuple[Found, ...], int]:
    """List what lies under each prefix of the run, and count the keys that no upload of ours has."""
    groups: dict[str, list[ObjectInfo]] = {}
    prefixes: dict[str, UploadPrefix] = {}
    unknown = 0
    for info in walk(tier, remote.generations_prefix):
        prefix = remote.prefix_of(info.key)
        if prefix is None:
            unknown += 1
            continue
        prefixes[prefix.text] = prefix
        groups.setdefault(prefix.text, []).append(info)
    return tuple(_found(remote, prefixes[text], infos) for text, infos in sorted(groups.items())), unknown


def _found(remote: RemoteRun, prefix: UploadPrefix, infos: list[ObjectInfo]) -> Found:
    times = [info.modified for info in infos]
    return Found(
        prefix=prefix,
        objects=len(infos),
        total_bytes=sum(info.size for info in infos),
        newest=None if None in times else max(time for time in times if time is not None),
        complete=any(info.key == remote.manifest(prefix.text) for info in infos),
    )


def plan_orphans(found: Iterable[Found], unknown: int, view: LogView, known: Knowledge) -> OrphanPlan:
    """Decide for every prefix; raises IntegrityFailure for a log that hides what it commits."""
    if view.damaged:
        slots = ", ".join(str(damage.slot) for damage in view.damaged)
        raise IntegrityFailure(
            f"log slot {slots} is damaged: what it commits cannot be told from what was left behind",
            hint="`ckptier repair` first; nothing is deleted until then",
        )
    return OrphanPlan(judged=tuple(_judge(one, view, known) for one in found), unknown=unknown)


def _judge(found: Found, view: LogView, known: Knowledge) -> Judged:
    fate, reason = _standing(found, view) or _ownership(found, view, known)
    return Judged(found=found, fate=fate, reason=reason)


def _standing(found: Found, view: LogView) -> tuple[Fate, str] | None:
    """Return the fate of a prefix that the log names."""
    state, text = view.state, found.prefix.text
    for live in state.live if state else ():
        if live.manifest_key.startswith(text):
            return Fate.LIVE, f"committed in slot {live.slot}"
    for gone in state.retired if state else ():
        if gone.manifest_key.startswith(text):
            return Fate.RETIRED, f"retired in slot {gone.slot}: `ckptier prune` deletes it after its delay"
    return None


def _ownership(found: Found, view: LogView, known: Knowledge) -> tuple[Fate, str]:
    """Return the fate of a prefix that the log does not name: by whose it is, and whether that can still commit."""
    prefix = found.prefix
    if prefix.text in known.under_way:
        return Fate.KEPT, "this store is uploading it"
    if prefix.text in known.given_up:
        return Fate.ORPHAN, f"given up by this store: {known.given_up[prefix.text]}"
    if view.voided and found.complete:
        slot = view.voided[0].slot
        return Fate.KEPT, f"log slot {slot}, which a repair gave up, may be its commit: `ckptier repair --rebuild-log`"
    if known.advisory:
        return _by_age(found, known.now)
    return _by_term(prefix, view.state.term if view.state else 0)


def _by_term(prefix: UploadPrefix, term: int) -> tuple[Fate, str]:
    if prefix.term < term:
        return Fate.ORPHAN, f"its writer held term {prefix.term}, the log is at {term}: it can never be committed"
    if prefix.term > term:
        return Fate.KEPT, f"its term {prefix.term} is above the log's {term}: entries are missing from the log"
    return Fate.KEPT, f"the writer of term {term} may be at work on it"


def _by_age(found: Found, now: datetime | None) -> tuple[Fate, str]:
    if now is None or found.newest is None:
        return Fate.KEPT, "this tier fences nobody and does not tell the time: nothing proves that it was left behind"
    age = now - found.newest
    if age < ADVISORY_FLOOR:
        return Fate.KEPT, f"this tier fences nobody, and something was written there {age.days} days ago"
    return Fate.ORPHAN, f"this tier fences nobody; nothing was written there for {age.days} days"


def collect(
    tier: Tier,
    plan: OrphanPlan,
    tracker: Leftovers,
    *,
    connections: int = 4,
    interrupted: Callable[[], bool] = lambda: False,
) -> OrphanReport:
    """Delete the orphans of a plan and abort the uploads that this tracker gave up; raises TierError.

    Repeating it after a kill finishes it: what is gone is no longer found, and what was
    given up is forgotten only when nothing is left of it.
    """
    deleted: list[Judged] = []
    objects = aborted = 0
    for upload in tracker.strays(tier.name):
        tier.abort(upload)
        tracker.aborted(tier.name, upload)
        aborted += 1
    for one in plan.orphans:
        count = delete_under(tier, one.found.prefix.text, connections=connections, interrupted=interrupted)
        if count is None:
            break
        objects += count
        deleted.append(one)
        tracker.collected(tier.name, one.found.prefix.text)
    _forget_others(tier.name, plan, tracker)
    return OrphanReport(plan=plan, deleted=tuple(deleted), objects=objects, aborted=aborted)


def _forget_others(tier: str, plan: OrphanPlan, tracker: Leftovers) -> None:
    """Forget prefixes that were given up and under which there is nothing, or something that is committed."""
    orphans = {one.found.prefix.text for one in plan.orphans}
    for one in tracker.abandoned(tier):
        if one.prefix not in orphans:
            tracker.collected(tier, one.prefix)
