"""Configured tiers as the cost model sees them: where they are on a card, and the way to them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cost.pricing.book import Book
from cost.rates.model import RateCard
from cost.rates.terms import Retrieval
from cost.rates.together import CardSet
from cost.schedule import ObjectGroup
from replicate.config import Config, TierConfig
from replicate.costing.cards import as_ours, path_between, tier_ref
from replicate.costing.forecast import Route, groups
from replicate.costing.operations import Traits, traits_of
from replicate.errors import CkptierError
from replicate.generation.local import load_generation
from replicate.layout import GenerationId

Shape = Callable[[str], Sequence[ObjectGroup] | None]
"""Tells what a generation consists of, by its id; None where nobody here knows any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A tier that was counted: its name, and what pricing it needs."""

    name: str
    ref: str
    traits: Traits
    route: Route | None = None
    meters_reads: bool = False


def route_between(cards: Sequence[RateCard], machine: str | None, tier: str | None, path: str | None) -> Route | None:
    """Return the legs there and back; None where a zone is not known, which is told and never taken for free."""
    if machine is None or tier is None:
        return None
    return Route(
        machine=machine,
        tier=tier,
        up=path_between(cards, machine, tier, path),
        down=path_between(cards, tier, machine, path),
    )


def place_of(config: Config, settings: TierConfig, cards: CardSet) -> Place:
    """Return what pricing a configured tier's counts needs."""
    ref = tier_ref(config, settings, cards)
    with as_ours():
        _, tier = Book(cards.cards, cards.cards[0].currency).tier(ref)
    return Place(
        name=settings.name,
        ref=ref,
        traits=traits_of(settings),
        route=route_between(cards.cards, config.zone, settings.zone, settings.network_path),
        meters_reads=tier.retrieval is not Retrieval.NONE,
    )


def shape_in(config: Config) -> Shape:
    """Return what tells the files of a generation that is still in the store."""

    def shape(generation: str) -> Sequence[ObjectGroup] | None:
        try:
            return groups(load_generation(config.local, GenerationId.parse(generation)).record)
        except CkptierError:
            return None

    return shape
