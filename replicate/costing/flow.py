"""Money beside what commands do: nothing without a card, and one line of warning with a bad one."""

import os
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal

from cost.errors import CostError
from cost.estimate import Amount, Estimate, Plan, add_up, estimate
from cost.ledger import Ending, Interval, Ledger, Reason
from cost.pricing.book import Book
from cost.pricing.lines import Category
from cost.pricing.periods import second
from cost.pricing.volumes import Size, Volume
from cost.rates.terms import TierKind
from cost.rates.together import CardSet
from cost.schedule import ObjectGroup
from cost.units import Month, subtract
from cost.usage import Retrieval, Transfer, Usage
from replicate.asked import Requests
from replicate.config import Config, TierConfig
from replicate.costing.cards import as_ours, configured_cards, warnings_of
from replicate.costing.counted import Counts, read_counts, usage_of
from replicate.costing.forecast import NO_ZONE, groups
from replicate.costing.places import Place, place_of, shape_in
from replicate.costing.usage import RESTORE, UPLOAD, used, wire
from replicate.errors import CkptierError
from replicate.log import LogView
from replicate.logappender import HEAD_EVERY
from replicate.priced import Item, Priced
from replicate.requests import Fetching, LogPosition, Sending, Writer, replicate_requests, restore_requests

ALONE = "brackets and allowances count from zero, without other usage of the account"
_WORDS = {
    Category.REQUESTS: "requests",
    Category.UPLOAD_TRANSFER: "transfer",
    Category.RESTORE_TRANSFER: "transfer",
    Category.RETRIEVAL: "retrieval",
}


class Pricing:
    """One configured tier with its card, at one moment."""

    def __init__(self, config: Config, settings: TierConfig, now: datetime) -> None:
        self.now = now
        self.today: date = now.date()
        self.settings = settings
        self.cards: CardSet = configured_cards(config, [settings], (), self.today)
        self.place: Place = place_of(config, settings, self.cards)
        self.listing_pages = not self.place.traits.whole_listing
        self.config = config

    def estimated(self, plan: Plan) -> Estimate:
        """Return the estimate of a plan; raises ConfigInvalid, for a rate that is missing too."""
        with as_ours():
            return estimate(plan, self.cards.cards, self.today)

    def used(self, asked: Requests, label: str) -> Usage:
        """Return requests, legs and reads that happen now."""
        place, at = self.place, int(self.now.timestamp())
        legs: list[Transfer] = []
        if place.route is not None:
            legs = [place.route.sent(place.ref, asked.up, at), place.route.received(place.ref, asked.down, at, label)]
        read = Retrieval(tier=place.ref, bytes=asked.down, objects=0, at=at, label=label)
        return Usage(
            requests=used(place.ref, wire(asked, place.traits), at, label=label),
            transfers=tuple(leg for leg in legs if leg.bytes),
            retrievals=(read,) if place.meters_reads and asked.down else (),
        )

    def items(self, usage: Usage, prefix: str = "") -> list[Item]:
        """Return what usage costs, by what is paid for."""
        if not usage.instants:
            return []
        found = self.estimated(Plan(plan_id="now", usage=usage)).by(
            lambda line: _WORDS.get(line.about.category, line.about.category)
        )
        return [Item(what=f"{prefix}{what}", low=one.low, high=one.high) for what, one in found.items()]

    def month(self, stored: Sequence[ObjectGroup]) -> Amount:
        """Return what it costs to hold objects for the whole of this month."""
        month = Month.of(self.now)
        start, end = second(month.start), second(month.end)
        intervals = tuple(_held(self.place.ref, group, (start, end)) for group in stored)
        size = self.settings.provisioned_bytes
        volumes = () if size is None else (Volume(tier=self.place.ref, sizes=(Size(at=start, bytes=size),), end=end),)
        if not intervals and not volumes:
            return Amount(Decimal(0), Decimal(0))
        return add_up(
            self.estimated(Plan(plan_id="month", ledger=Ledger(intervals, start, end), volumes=volumes)).lines
        )

    @property
    def provisioned(self) -> bool:
        """Whether the tier is paid for by its size."""
        with as_ours():
            _, tier = Book(self.cards.cards, self.cards.cards[0].currency).tier(self.place.ref)
        return tier.kind is TierKind.VOLUME_PROVISIONED

    def result(self, items: Iterable[Item], notes: Iterable[str] = ()) -> Priced:
        """Return the money of the tier."""
        told = [*notes, *([NO_ZONE] if self.place.route is None else [])]
        return Priced(
            tier=self.settings.name,
            currency=self.cards.cards[0].currency,
            items=tuple(items),
            notes=tuple(told),
            warning="; ".join(self.cards.warnings),
        )


def _held(ref: str, group: ObjectGroup, span: tuple[int, int]) -> Interval:
    return Interval(
        tier=ref,
        bytes=group.bytes,
        objects=group.count,
        start=span[0],
        end=span[1],
        reason=Reason.LAST_K,
        ending=Ending.ALIVE,
        entered=span[0],
        created=span[0],
    )


def guarded(config: Config, settings: TierConfig, now: datetime, work: Callable[[Pricing], Priced]) -> Priced | None:
    """Return the money of a tier: None without a card, and only a warning where the card cannot be used."""
    if settings.rates is None:
        return None
    try:
        return work(Pricing(config, settings, now))
    except CkptierError as error:
        return Priced(tier=settings.name, warning=f"not priced: {warnings_of(error)}")
    except (CostError, OSError) as error:
        return Priced(tier=settings.name, warning=f"not priced: {str(error).splitlines()[0]}")


def position_in(view: LogView, *, holds_term: bool = False) -> LogPosition:
    """Return where a log stands that was read, its hint where a writer leaves it."""
    last = view.next_slot - 1
    head = None if view.next_slot == 0 else last - last % HEAD_EVERY
    return LogPosition(next_slot=view.next_slot, head=head, holds_term=holds_term)


def price_upload(
    config: Config, settings: TierConfig, sending: Sequence[Sending], view: LogView, now: datetime
) -> Priced | None:
    """Return what sending some generations costs, and what they then cost more each month."""

    def work(pricing: Pricing) -> Priced:
        if not sending:
            return replace(pricing.result(()), notes=())
        at = position_in(view, holds_term=view.state is not None)
        signed = config.trust.keyring is not None
        writer = Writer(name=f"{socket.gethostname()}:{os.getpid()}", signed=signed)
        asked, _ = replicate_requests(sending, at, writer, listing_pages=pricing.listing_pages)
        items = pricing.items(pricing.used(asked, UPLOAD))
        notes = [ALONE]
        if pricing.provisioned:
            notes.append("stored bytes cost nothing more: the volume is paid for by its size")
        else:
            shape = shape_in(config)
            there = [
                group
                for commit in view.live
                for group in shape(commit.generation) or (ObjectGroup(bytes=commit.total_bytes),)
            ]
            before, after = (
                pricing.month(there),
                pricing.month([*there, *(g for s in sending for g in groups(s.record))]),
            )
            low, high = subtract(after.low, before.low), subtract(after.high, before.high)
            items.append(Item(what="stored bytes", low=low, high=high, monthly=True))
        return pricing.result(items, notes)

    return guarded(config, settings, now, work)


def price_restore(
    config: Config, settings: TierConfig, at: LogPosition, fetching: Fetching, now: datetime
) -> Priced | None:
    """Return what a restore costs on one tier: requests, retrieval, and the leg back."""

    def work(pricing: Pricing) -> Priced:
        asked = restore_requests(at, fetching, listing_pages=pricing.listing_pages)
        return pricing.result(pricing.items(pricing.used(asked, RESTORE)), [ALONE])

    return guarded(config, settings, now, work)


def price_status(config: Config, settings: TierConfig, now: datetime) -> Priced | None:
    """Return what this month's requests so far cost, and what is stored costs in a month."""

    def work(pricing: Pricing) -> Priced:
        counts = read_counts(config.state)
        if counts is None:
            return replace(pricing.result(()), notes=("nothing was counted yet",))
        since = pricing.today.replace(day=1)
        usage = usage_of(counts.of(settings.name, since), pricing.place)
        items = pricing.items(usage, "this month so far: ")
        return pricing.result([*items, *_stored(pricing, counts)], _told(pricing, counts))

    return guarded(config, settings, now, work)


def _stored(pricing: Pricing, counts: Counts) -> list[Item]:
    if pricing.provisioned and pricing.settings.provisioned_bytes is None:
        return []
    shape = shape_in(pricing.config)
    held = [
        group
        for each in counts.held(pricing.settings.name)
        for group in shape(each.generation) or (ObjectGroup(bytes=each.bytes),)
    ]
    amount = pricing.month(held)
    return [Item(what="stored bytes", low=amount.low, high=amount.high, monthly=True)]


def _told(pricing: Pricing, counts: Counts) -> list[str]:
    told = [ALONE]
    if counts.unnamed:
        told.append(f"{counts.unnamed} requests that an older version counted by class only are not priced")
    if pricing.provisioned and pricing.settings.provisioned_bytes is None:
        told.append("the volume is not priced: no provisioned_bytes configured")
    return told
