"""The cards of one estimate: which tier, leg or fee is meant, at which rate, in which currency."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

from cost.errors import CurrencyMixed, PlanInvalid, RateMissing
from cost.pricing.brackets import Prices
from cost.pricing.pools import Allowance, Meter
from cost.rates.meters import Billing, FreeAllowance
from cost.rates.model import FixedFee, RateCard, Transfer
from cost.rates.terms import Period, TransferPath
from cost.rates.tier import Tier
from cost.usage import Transfer as Leg

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Book:
    """Cards, and the currency that amounts are given in."""

    cards: tuple[RateCard, ...]
    currency: str

    def tier(self, ref: str) -> tuple[RateCard, Tier]:
        """Return the card and tier of ``card/tier``, or of a name that only one card has; raises RateMissing."""
        card_id, _, tier_id = ref.rpartition("/")
        found = [card for card in self.cards if card.card_id == card_id or not card_id]
        known = [(card, tier) for card in found for tier in card.tiers if tier.tier_id == tier_id]
        return _only(known, f"tier {ref!r}", [f"{c.card_id}/{t.tier_id}" for c in self.cards for t in c.tiers])

    def leg(self, leg: Leg) -> tuple[RateCard, Transfer]:
        """Return the entry that prices a leg; raises RateMissing."""
        entries = [(card, entry) for card in self.cards for entry in card.transfers]
        asked = (leg.from_zone, leg.to_zone, leg.path)
        known = [(card, entry) for card, entry in entries if (entry.from_zone, entry.to_zone, entry.path) == asked]
        return _only(known, f"leg {_leg(*asked)}", [_leg(e.from_zone, e.to_zone, e.path) for _, e in entries])

    def fee(self, fee_id: str) -> tuple[RateCard, FixedFee]:
        """Return an hourly fee; raises RateMissing."""
        fees = [(card, fee) for card in self.cards for fee in card.fixed_fees]
        return _only([each for each in fees if each[1].id == fee_id], f"fee {fee_id!r}", [fee.id for _, fee in fees])

    def exchange(self, card: RateCard) -> Fraction:
        """Return the book's currency for one unit of the card's, by a dated rate either way; raises CurrencyMixed."""
        if card.currency == self.currency:
            return Fraction(1)
        for rate in (rate for each in self.cards for rate in each.fx):
            if (rate.from_currency, rate.to_currency) == (card.currency, self.currency):
                return Fraction(rate.rate)
            if (rate.to_currency, rate.from_currency) == (card.currency, self.currency):
                return 1 / Fraction(rate.rate)
        raise CurrencyMixed(
            f"{card.card_id} is in {card.currency} and the estimate in {self.currency}",
            hint=f"add a dated [[fx]] rate from {card.currency} to {self.currency} to a card",
        )

    def meter(
        self,
        card: RateCard,
        name: str,
        unit: str,
        prices: Prices,
        *,
        billing: Billing | None = None,
        allowances: tuple[Allowance, ...] = (),
    ) -> Meter:
        """Return a meter of a card, under the name that baselines and lines use."""
        return Meter(
            name=f"{card.card_id}/{name}",
            card=card.card_id,
            unit=unit,
            currency=card.currency,
            prices=prices,
            allowances=allowances,
            billing=billing,
            exchange=self.exchange(card),
        )


def _leg(from_zone: str, to_zone: str, path: TransferPath) -> str:
    return f"{from_zone} to {to_zone} by {path}"


def _only(found: Sequence[Found], what: str, known: list[str]) -> Found:
    if len(found) == 1:
        return found[0]
    if found:
        raise RateMissing(f"{what} is on {len(found)} cards", hint="write card/tier, or name one of the cards only")
    raise RateMissing(f"no rate for {what}", hint=f"the cards have: {', '.join(known) or 'none'}")


def allowances(
    card: RateCard, owner: str, declared: Sequence[FreeAllowance], applies_to: str, base: Fraction
) -> tuple[Allowance, ...]:
    """Return the allowances of one meter whose unit is ``base`` bytes (or requests).

    Raises RateMissing for one that starts anew within a month, and PlanInvalid where two of a meter
    are taken off in different orders: neither can be estimated.
    """
    chosen = [each for each in declared if each.applies_to == applies_to]
    for each in chosen:
        if each.period is not Period.MONTH:
            raise RateMissing(
                f"{card.card_id}: a free allowance per {each.period} for {applies_to} is not estimated",
                hint="write the allowance per month, or leave it out of the card",
            )
    if len({(each.rounding_order, each.bracket_order) for each in chosen}) > 1:
        raise PlanInvalid(f"{card.card_id}: allowances for {applies_to} differ in their orders", hint="give them one")
    return tuple(
        Allowance(
            pool=f"{card.card_id}/{each.pool or f'{owner}/{applies_to}/{index}'}",
            quantity=Fraction(each.quantity) * (each.byte_unit or 1) / base,
            base=base,
            rounding=each.rounding_order,
            brackets=each.bracket_order,
        )
        for index, each in enumerate(chosen)
    )
