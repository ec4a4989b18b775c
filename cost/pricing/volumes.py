"""Volumes that are paid for by their size, whatever lies on them, from when to when they have it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from cost.errors import PlanInvalid
from cost.ledger import Ledger, peaks
from cost.pricing.book import Book
from cost.pricing.brackets import NOTHING, Prices, Slice
from cost.pricing.lines import About, Category, Line, charge
from cost.pricing.periods import Months, month_seconds, second
from cost.rates.meters import Provisioned
from cost.rates.terms import TierKind
from cost.rates.tier import Tier
from cost.units import Month


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A size that a volume has from an instant on, in bytes."""

    at: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """One provisioned volume: its sizes in order of time, until ``end``."""

    tier: str
    sizes: tuple[Size, ...]
    end: int
    label: str = ""

    def __post_init__(self) -> None:
        instants = [size.at for size in self.sizes]
        if not instants or [*instants, self.end] != sorted([*instants, self.end]):
            raise PlanInvalid(f"{self.tier}: sizes are not in order of time", hint="one at least, earliest first")

    def spans(self) -> Iterator[tuple[Size, int]]:
        """Yield each size and when it ends."""
        yield from zip(self.sizes, [*(size.at for size in self.sizes[1:]), self.end], strict=True)


def require(book: Book, volumes: Sequence[Volume], ledger: Ledger) -> None:
    """Raise PlanInvalid for a size that is not sold, shrinks, is not given, or does not hold what is stored."""
    for volume in volumes:
        _, tier = book.tier(volume.tier)
        if tier.provisioned is None:
            raise PlanInvalid(f"{volume.tier} is no provisioned volume", hint="give no sizes for it")
        _require_sizes(volume, tier.provisioned)
        _require_room([each for each in volumes if each.tier == volume.tier], ledger)
    given = {volume.tier for volume in volumes}
    for ref in ledger.by_tier:
        if book.tier(ref)[1].kind is TierKind.VOLUME_PROVISIONED and ref not in given:
            raise PlanInvalid(f"{ref}: the volume's size is not given", hint="add the provisioned size to the plan")


def _require_sizes(volume: Volume, sold: Provisioned) -> None:
    for size in volume.sizes:
        if not sold.min_bytes <= size.bytes <= sold.max_bytes or size.bytes % sold.step_bytes:
            raise PlanInvalid(
                f"{volume.tier}: a size of {size.bytes} bytes is not sold",
                hint=f"from {sold.min_bytes} to {sold.max_bytes} bytes in steps of {sold.step_bytes}",
            )
    sizes = [size.bytes for size in volume.sizes]
    if sold.grow_only and sizes != sorted(sizes):
        raise PlanInvalid(f"{volume.tier}: the volume cannot shrink", hint="plan a new volume, or keep the size")


def _require_room(volumes: Sequence[Volume], ledger: Ledger) -> None:
    """Raise PlanInvalid where more is stored, parts in flight included, than all volumes of a tier hold."""
    edges = {ledger.start, ledger.end}
    edges.update(at for v in volumes for size, end in v.spans() for at in (size.at, end))
    bounds = sorted(edges)
    for start, highest in zip(bounds, peaks(ledger.of(volumes[0].tier), bounds), strict=False):
        held = sum(size.bytes for v in volumes for size, end in v.spans() if size.at <= start < end)
        if highest > held:
            raise PlanInvalid(
                f"{volumes[0].tier}: {highest} bytes do not fit into {held} bytes",
                hint="provision more, or keep fewer generations",
            )


def lines(book: Book, volumes: Sequence[Volume], months: Months) -> Iterator[Line]:
    """Yield what each size costs in each month: its price by brackets of size, times its part of the month."""
    for volume in volumes:
        card, tier = book.tier(volume.tier)
        meter = book.meter(
            card,
            f"{tier.tier_id}/provisioned",
            f"{tier.bytes_per_unit.label}-month",
            Prices(tier.storage_brackets, tier.bracket_mode),
        )
        about = About(tier=volume.tier, category=Category.STORAGE, reason="provisioned", label=volume.label)
        for month in months.all:
            slices = tuple(_slices(tier, volume, meter.prices, month))
            units = sum((each.quantity for each in slices), NOTHING)
            if units:
                charged = charge(units, slices, meter.exchange)
                yield Line(
                    card=meter.card,
                    meter=meter.name,
                    about=about,
                    month=month,
                    unit=meter.unit,
                    price_currency=meter.currency,
                    low=charged,
                    high=charged,
                )


def _slices(tier: Tier, volume: Volume, prices: Prices, month: Month) -> Iterator[Slice]:
    for size, end in volume.spans():
        seconds = min(end, second(month.end)) - max(size.at, second(month.start))
        if seconds > 0:
            share = Fraction(seconds, month_seconds(month, tier.month))
            for each in prices.slices(NOTHING, Fraction(size.bytes, tier.bytes_per_unit)):
                yield replace(each, quantity=each.quantity * share)
