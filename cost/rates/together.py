"""Cards that one estimate uses together: no tier priced twice, no two currencies without a dated rate."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path

from cost.errors import CurrencyMixed, Fault, RateMissing
from cost.rates.faults import make_fault
from cost.rates.lines import LineIndex
from cost.rates.model import FxRate, RateCard
from cost.units import Money


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedCard:
    """A card, the file it came from as it was named, and the lines of its keys."""

    file: str
    card: RateCard
    index: LineIndex


@dataclass(frozen=True, slots=True, kw_only=True)
class CardSet:
    """Checked cards that agree with each other.  ``warnings`` belong on every report."""

    loaded: tuple[LoadedCard, ...]
    warnings: tuple[str, ...]

    @property
    def cards(self) -> tuple[RateCard, ...]:
        """The cards, in the order they were named."""
        return tuple(each.card for each in self.loaded)

    @property
    def fx(self) -> tuple[FxRate, ...]:
        """Every exchange rate on them."""
        return tuple(rate for card in self.cards for rate in card.fx)

    def card(self, card_id: str) -> RateCard:
        """Return a card by id; raises RateMissing."""
        for card in self.cards:
            if card.card_id == card_id:
                return card
        known = ", ".join(card.card_id for card in self.cards) or "none"
        raise RateMissing(f"no rate card {card_id!r}", hint=f"cards that were named: {known}")

    def convert(self, money: Money, currency: str) -> Money:
        """Return an amount in another currency by a dated rate, either way round; raises CurrencyMixed.

        The way back is a quotient, to 60 significant digits.
        """
        if money.currency == currency:
            return money
        for rate in self.fx:
            if (rate.from_currency, rate.to_currency) == (money.currency, currency):
                return Money((money * rate.rate).amount, currency)
        for rate in self.fx:
            if (rate.to_currency, rate.from_currency) == (money.currency, currency):
                return Money(money.over(rate.rate).amount, currency)
        raise CurrencyMixed(f"no rate from {money.currency} to {currency}", hint="add a dated [[fx]] rate to a card")


def faults_together(loaded: Sequence[LoadedCard]) -> Iterator[Fault]:
    """Yield what is wrong between cards that are right one by one."""
    yield from _duplicates(loaded)
    yield from _overlaps(loaded)
    yield from _fx_faults(loaded)
    yield from _currencies(loaded)


def _fault(each: LoadedCard, path: tuple[str | int, ...], found: str, right: str) -> Fault:
    return make_fault(each.file, each.index, path, found, right)


def _duplicates(loaded: Sequence[LoadedCard]) -> Iterator[Fault]:
    ids: dict[str, LoadedCard] = {}
    files: set[Path] = set()
    for each in loaded:
        real = Path(each.file).resolve()
        if real in files:
            yield _fault(each, (), "the same file again", "name each card once")
        elif each.card.card_id in ids:
            first = ids[each.card.card_id]
            yield _fault(each, ("id",), f'"{each.card.card_id}"', f"an id of its own: {first.file} has this one")
        files.add(real)
        ids.setdefault(each.card.card_id, each)


def _overlaps(loaded: Sequence[LoadedCard]) -> Iterator[Fault]:
    """Yield tiers for which two cards have a price on the same day."""
    seen: dict[tuple[str, str, str], list[LoadedCard]] = {}
    for each in loaded:
        for at, tier in enumerate(each.card.tiers):
            key = (each.card.provider, each.card.region, tier.storage_class)
            for other in seen.get(key, ()):
                if other.file != each.file and _meet(other.card, each.card):
                    right = (
                        f"one card a day and tier: {other.file} prices it too; end one with effective_to, or drop it"
                    )
                    yield _fault(each, ("tier", at, "storage_class"), f'"{tier.storage_class}"', right)
            seen.setdefault(key, []).append(each)


def _meet(one: RateCard, other: RateCard) -> bool:
    if one.product != other.product:
        return False
    latest = max(one.effective_from or date.min, other.effective_from or date.min)
    return latest < min(one.effective_to or date.max, other.effective_to or date.max)


def _fx_faults(loaded: Sequence[LoadedCard]) -> Iterator[Fault]:
    """Yield a second, different rate for one pair of currencies."""
    rates: dict[tuple[str, ...], Decimal] = {}
    for each in loaded:
        for at, fx in enumerate(each.card.fx):
            pair = (fx.from_currency, fx.to_currency)
            if pair[::-1] in rates or rates.setdefault(pair, fx.rate) != fx.rate:
                yield _fault(
                    each, ("fx", at, "rate"), f'"{fx.rate}"', f"one rate for {pair[0]} and {pair[1]}: keep one"
                )


def _currencies(loaded: Sequence[LoadedCard]) -> Iterator[Fault]:
    """Yield cards whose currency has no dated rate to the first card's."""
    pairs = {frozenset({fx.from_currency, fx.to_currency}) for each in loaded for fx in each.card.fx}
    for each in loaded[1:]:
        first, currency = loaded[0].card.currency, each.card.currency
        if currency != first and frozenset({first, currency}) not in pairs:
            right = f"the first card is in {first}: add a dated [[fx]] rate between them, or use cards of one currency"
            yield _fault(each, ("currency",), f'"{currency}"', right)
