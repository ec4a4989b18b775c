"""A run that is still to come, as a plan of the cost model: every request by the planner that uploads."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from cost.estimate import Plan
from cost.ledger import Ending, Interval, Ledger, Reason
from cost.pricing.periods import Months
from cost.pricing.volumes import Size, Volume
from cost.rates.terms import TransferPath
from cost.schedule import ObjectGroup, RunPlan, TierPlan
from cost.units import Month
from cost.usage import Requests as Used
from cost.usage import Retrieval, Transfer, Usage
from replicate.asked import Requests
from replicate.costing.operations import Traits
from replicate.costing.usage import RESTORE, UPLOAD, VERIFY, used, wire
from replicate.layout import RemoteRun
from replicate.logappender import HEAD_EVERY, head_due
from replicate.manifest import GenerationRecord
from replicate.plan import plan_upload
from replicate.requests import (
    NONCE,
    Fetching,
    LogPosition,
    Sending,
    Stored,
    Writer,
    commit_body,
    entry_bytes,
    manifest_bytes,
    replicate_requests,
    restore_requests,
    verify_requests,
)
from replicate.reuse import Stock, reusing
from replicate.verify import Share
from tiers.protocol import Capabilities

EVERYTHING = 2**40
"""More generations than any run has: what a tier without ``keep_last`` keeps."""
NO_ZONE = "transfer not priced: no zone configured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """The legs between the machine and a tier, there and back."""

    machine: str
    tier: str
    up: TransferPath
    down: TransferPath

    def sent(self, ref: str, size: int, at: int) -> Transfer:
        """Return bytes on their way to the tier."""
        return Transfer(
            from_zone=self.machine, to_zone=self.tier, path=self.up, bytes=size, at=at, tier=ref, label=UPLOAD
        )

    def received(self, ref: str, size: int, at: int, label: str) -> Transfer:
        """Return bytes on their way back."""
        return Transfer(
            from_zone=self.tier, to_zone=self.machine, path=self.down, bytes=size, at=at, tier=ref, label=label
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One tier: what it can do, where it is on which card, and what it keeps.

    ``every``, ``keep_last`` and ``keep_every`` count generations; ``upload`` and ``verify_every`` are
    seconds.  ``meters_reads``: the card has a price for reading bytes, in ``mode``; a copy that has
    to be thawed first is held for ``keep_days`` and cannot be verified by reading.
    """

    name: str
    ref: str
    capabilities: Capabilities
    traits: Traits
    part_size: int | None = None
    every: int = 1
    keep_last: int = EVERYTHING
    keep_every: int | None = None
    upload: int = 0
    restores: int = 0
    verify_every: int = 0
    share: Share | None = None
    route: Route | None = None
    meters_reads: bool = False
    thaws: bool = False
    mode: str = ""
    keep_days: int = 0
    provisioned_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """When: an aware start, and spans in seconds.  ``commits`` are instants in place of a cadence."""

    start: datetime
    length: int
    cadence: int | None
    commits: tuple[int, ...] = ()
    hold: int = 0
    delete_at_end: bool = False

    @property
    def begins(self) -> int:
        """The start in whole seconds since 1970."""
        return int(self.start.timestamp())


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """A plan to estimate, and what is not in it and why."""

    plan: Plan
    notes: tuple[str, ...]


def forecast(
    name: str,
    record: GenerationRecord,
    sites: Sequence[Site],
    course: Course,
    *,
    seats: int = 1,
    currency: str = "",
    unchanged: frozenset[str] = frozenset(),
) -> Forecast:
    """Return the plan of a run whose generations are all like ``record``, on all ``sites``.

    The files that are ``unchanged`` are sent once, and copied inside the store where it can.
    """
    run = RunPlan(
        start=course.begins,
        horizon=course.length,
        cadence=course.cadence,
        commits=course.commits,
        hold=course.hold,
        delete_at_end=course.delete_at_end,
        objects=groups(record),
        tiers=tuple(_tier_plan(site) for site in sites),
    )
    parts = [_Tier(site, record, run, unchanged) for site in sites]
    manifest = ObjectGroup(bytes=max(part.stored.manifest_bytes for part in parts))
    run = replace(run, objects=(*run.objects, manifest))
    volumes = tuple(
        Volume(
            tier=site.ref,
            sizes=(Size(at=run.start, bytes=site.provisioned_bytes),),
            end=run.end,
            label=site.name,
        )
        for site in sites
        if site.provisioned_bytes is not None
    )
    usage = Usage()
    for part in parts:
        usage = usage + part.usage()
    plan = Plan(
        plan_id=name,
        runs=(run,),
        ledger=Ledger(tuple(each for part in parts for each in part.entries()), run.start, run.end),
        usage=usage,
        volumes=volumes,
        seats=seats,
        generations=len(run.instants),
        restores=sum(site.restores for site in sites),
        currency=currency,
    )
    notes = tuple(f"{site.name}: {NO_ZONE}" for site in sites if site.route is None)
    return Forecast(plan=plan, notes=notes)


def together(name: str, parts: Sequence[Forecast]) -> Forecast:
    """Return forecasts of several tiers, each with its own instants, as one plan."""
    plans = [part.plan for part in parts]
    ledger: Ledger | None = None
    usage = Usage()
    for plan in plans:
        usage = usage + plan.usage
        ledger = plan.ledger if ledger is None or plan.ledger is None else ledger + plan.ledger
    joined = Plan(
        plan_id=name,
        runs=tuple(run for plan in plans for run in plan.runs),
        ledger=ledger,
        usage=usage,
        volumes=tuple(volume for plan in plans for volume in plan.volumes),
        generations=max(plan.generations for plan in plans),
        restores=sum(plan.restores for plan in plans),
    )
    return Forecast(plan=joined, notes=tuple(note for part in parts for note in part.notes))


def groups(record: GenerationRecord) -> tuple[ObjectGroup, ...]:
    """Return the files of a generation by size."""
    sizes = Counter(file.size for file in record.files)
    return tuple(ObjectGroup(bytes=size, count=count) for size, count in sorted(sizes.items(), reverse=True))


def _tier_plan(site: Site) -> TierPlan:
    return TierPlan(
        tier=site.ref,
        keep_last=site.keep_last,
        every=site.every,
        keep_every=site.keep_every,
        upload=site.upload,
    )


def sending_of(record: GenerationRecord, capabilities: Capabilities, part_size: int | None, term: int = 1) -> Sending:
    """Return a generation as the engine would send it: its plan, under a prefix of the usual length."""
    prefix = RemoteRun.of(record.run).prefix(record.generation, term, NONCE)
    return Sending(plan=plan_upload(record, prefix, capabilities, part_size=part_size), record=record)


def _following(sending: Sending, can: Capabilities, unchanged: frozenset[str]) -> Sending:
    """Return the same generation where the one before it is there, by the hand of the same process."""
    files = [file for file in sending.record.files if file.path in unchanged]
    stock = Stock.of(sending.record.id, files, {item.path: item.key for item in sending.plan.objects})
    return replace(sending, plan=reusing(sending.plan, stock, can))


class _Tier:
    """The usage of one tier over a run: linear in its generations, which all but the first ask for the same."""

    def __init__(self, site: Site, record: GenerationRecord, run: RunPlan, unchanged: frozenset[str]) -> None:
        self.site = site
        self.run = run
        self.record = record
        self.sending = sending_of(record, site.capabilities, site.part_size)
        self.following = _following(self.sending, site.capabilities, unchanged)
        self.stored = Stored(record=record, manifest_bytes=manifest_bytes(record, self.sending.plan))
        body = commit_body(record, self.sending.plan, self.stored.manifest_bytes)
        self.entry = entry_bytes(record, body, slot=1, writer=Writer())
        self.received = [
            (ordinal, run.instants[ordinal - 1]) for ordinal in range(site.every, len(run.instants) + 1, site.every)
        ]
        self.months = Months(run.start, run.end)
        self.paged = not site.traits.whole_listing

    def entries(self) -> Iterator[Interval]:
        """Yield the log: an entry a generation, never deleted, and part of none of them."""
        for _, at in self.received:
            yield Interval(
                tier=self.site.ref,
                bytes=self.entry,
                objects=1,
                start=at,
                end=self.run.end,
                reason=Reason.LAST_K,
                ending=Ending.ALIVE,
                entered=at,
                created=at,
            )

    def usage(self) -> Usage:
        """Return all requests, legs and retrievals of the tier."""
        return self._uploads() + self._verifies() + self._restores()

    def _passes(self) -> Iterator[tuple[int, int, Requests]]:
        """Yield ordinal, instant and requests of each generation: equal ones are one object."""
        at = LogPosition()
        kinds: dict[bool, Requests] = {}
        for index, (ordinal, instant) in enumerate(self.received):
            asked, after = self._pass(at, kinds, first=index == 0)
            at = after
            yield ordinal, instant, asked

    def _pass(self, at: LogPosition, kinds: dict[bool, Requests], *, first: bool) -> tuple[Requests, LogPosition]:
        if first:
            return replicate_requests([self.sending], at, listing_pages=self.paged)
        slot = at.next_slot
        due = head_due(slot, at.head_written)
        if due not in kinds:
            kinds[due], _ = replicate_requests([self.following], at, listing_pages=self.paged)
        after = replace(at, next_slot=slot + 1, read_to=slot + 1, seen=slot)
        return kinds[due], replace(after, head=slot, head_written=slot) if due else after

    def _uploads(self) -> Usage:
        by_month: dict[Month, Counter[int]] = defaultdict(Counter)
        last: dict[Month, tuple[int, int]] = {}
        kinds: dict[int, Requests] = {}
        for ordinal, instant, asked in self._passes():
            month = self.months.of(instant)
            kinds[id(asked)] = asked
            by_month[month][id(asked)] += 1
            last[month] = (ordinal, instant)
        usage = Usage()
        for month, counts in by_month.items():
            ordinal, instant = last[month]
            together = Requests.of(one for key, count in counts.items() for one in (kinds[key] * count).asked)
            usage = usage + self._moved(together, instant, label=UPLOAD, generation=ordinal)
        return usage

    def _moved(self, asked: Requests, at: int, *, label: str, generation: int = 0) -> Usage:
        """Return requests with the bytes that they move, read at the tier and sent over the network."""
        site = self.site
        requests: tuple[Used, ...] = used(site.ref, wire(asked, site.traits), at, label=label, generation=generation)
        legs = []
        if site.route is not None:
            legs += [site.route.sent(site.ref, asked.up, at)] if asked.up else []
            legs += [site.route.received(site.ref, asked.down, at, label)] if asked.down else []
        reads = site.meters_reads and not site.thaws and asked.down and label != RESTORE
        taken = (Retrieval(tier=site.ref, bytes=asked.down, objects=0, at=at, mode=site.mode, label=label),)
        return Usage(requests=requests, transfers=tuple(legs), retrievals=taken if reads else ())

    def _position(self, until: int) -> LogPosition:
        """Return the log as a stranger meets it at an instant."""
        count = sum(1 for _, instant in self.received if instant <= until)
        if not count:
            return LogPosition()
        last = count  # slot 0 holds the claim
        return LogPosition(next_slot=count + 1, head=last - last % HEAD_EVERY, entry_bytes=self.entry)

    def _live(self, at: int) -> int:
        """Return how many generations are there at an instant."""
        numbers = [ordinal for ordinal, instant in self.received if instant <= at]
        recent = set(numbers[-self.site.keep_last :])
        every = self.site.keep_every
        return len(recent | {ordinal for ordinal in numbers if every and ordinal % every == 0})

    def _verifies(self) -> Usage:
        usage = Usage()
        if not self.site.verify_every:
            return usage
        instants = range(self.run.start + self.site.verify_every, self.run.end + 1, self.site.verify_every)
        for seed, at in enumerate(instants):
            stored = [self.stored] * self._live(at)
            asked = verify_requests(
                self._position(at), stored, share=self.site.share, seed=seed, listing_pages=self.paged
            )
            usage = usage + self._moved(asked, at, label=VERIFY)
        return usage

    def _restores(self) -> Usage:
        if not self.site.restores or not self.received:
            return Usage()
        ordinal, at = self.received[-1]
        fetching = Fetching(stored=self.stored)
        asked = restore_requests(self._position(at), fetching, listing_pages=self.paged)
        taken = Retrieval(
            tier=self.site.ref,
            bytes=sum(file.size for file in fetching.wanted) if self.site.thaws else asked.down,
            objects=len(fetching.wanted),
            at=at,
            mode=self.site.mode,
            keep_days=self.site.keep_days,
        )
        each = self._moved(asked, at, label=RESTORE, generation=ordinal)
        times = self.site.restores
        return Usage(
            requests=tuple(replace(one, count=one.count * times) for one in each.requests),
            transfers=tuple(replace(one, bytes=one.bytes * times) for one in each.transfers),
            retrievals=(taken,) * times,
        )
