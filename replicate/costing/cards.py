"""Rate cards as they are named: by a tier of the configuration, by a plan file, or on the command line."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from cost.errors import BudgetExceeded, CostError, RateMissing
from cost.rates.loading import check_card, load_cards
from cost.rates.model import RateCard
from cost.rates.terms import TransferPath
from cost.rates.together import CardSet
from replicate.config import Config, TierConfig
from replicate.errors import CkptierError, ConfigInvalid, PartialFailure

MANY_TIERS = "name one with rates_tier in its [[tier]]"


@contextmanager
def as_ours() -> Iterator[None]:
    """Turn what the money side raises into an error with an exit code: 3 above a budget, else 10."""
    try:
        yield
    except BudgetExceeded as error:
        raise PartialFailure(error.message, hint=error.hint) from error
    except CostError as error:
        raise ConfigInvalid(error.message, hint=error.hint) from error


def load(paths: Sequence[Path], today: date, *, allow_stale: bool = False) -> CardSet:
    """Read the cards that are named, each once; raises ConfigInvalid with every fault."""
    unique = list({path.resolve(): path for path in paths}.values())
    with as_ours():
        return load_cards(unique, today=today, allow_too_old=allow_stale)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A card that is right; ``warnings`` say what is old, or whose prices they are."""

    file: Path
    card: str
    as_of: str
    warnings: tuple[str, ...]


def check_files(files: Sequence[Path], today: date) -> tuple[Checked, ...]:
    """Judge cards one by one and together, whatever their age; raises ConfigInvalid with every fault."""
    with as_ours():
        load_cards(files, today=today, allow_too_old=True)
        found = [(file, *check_card(file, today=today)) for file in files]
    return tuple(
        Checked(file=file, card=card.card_id, as_of=card.oldest_as_of.isoformat(), warnings=warnings)
        for file, card, warnings in found
    )


def render_checked(checked: Sequence[Checked]) -> str:
    """Show a line a card, and its warnings."""
    lines = []
    for one in checked:
        lines.append(f"{one.file}: ok: {one.card}, prices of {one.as_of}")
        lines += [f"  warning: {warning}" for warning in one.warnings]
    return "\n".join(lines)


def rates_path(config: Config, settings: TierConfig) -> Path | None:
    """Return the card of a tier, relative to ckptier.toml; None where none is named."""
    return None if settings.rates is None else config.base / settings.rates


def configured_cards(
    config: Config, tiers: Sequence[TierConfig], more: Sequence[Path], today: date, *, allow_stale: bool = False
) -> CardSet:
    """Read the cards of some tiers and those named beside; raises ConfigInvalid where there is none at all."""
    named = [path for settings in tiers if (path := rates_path(config, settings)) is not None]
    if not named and not more:
        raise ConfigInvalid(
            "no rate card is named, and none is ever assumed",
            hint='set rates = "FILE" in the [[tier]], or name one with --rates; `ckptier cost rates new` starts one',
        )
    return load([*named, *more], today, allow_stale=allow_stale)


def card_of(cards: CardSet, path: Path) -> RateCard:
    """Return the card that came from a file."""
    wanted = path.resolve()
    return next(each.card for each in cards.loaded if Path(each.file).resolve() == wanted)


def tier_ref(config: Config, settings: TierConfig, cards: CardSet) -> str:
    """Return ``card/tier`` for a configured tier: on its own card, else on one that was named on the command line.

    Another tier's card is never taken for it.  Raises ConfigInvalid where none is meant, or more than one.
    """
    own = rates_path(config, settings)
    if own is not None:
        return find_ref((card_of(cards, own),), settings.rates_tier or "", f"tier {settings.name}")
    theirs = {path.resolve() for other in config.tier if (path := rates_path(config, other)) is not None}
    free = [each.card for each in cards.loaded if Path(each.file).resolve() not in theirs]
    if not free:
        raise ConfigInvalid(
            f"tier {settings.name} has no rate card, and none is ever assumed",
            hint='set rates = "FILE" in its [[tier]], name a card with --rates, or leave it out with --tier',
        )
    return find_ref(free, settings.rates_tier or "", f"tier {settings.name}")


def find_ref(cards: Sequence[RateCard], name: str, what: str) -> str:
    """Return ``card/tier`` for a name that may be ``card/tier``, ``tier``, or empty where there is one tier only."""
    card_id, _, tier_id = name.rpartition("/")
    refs = [
        f"{card.card_id}/{tier.tier_id}"
        for card in cards
        for tier in card.tiers
        if (not name or tier.tier_id == tier_id) and (not card_id or card.card_id == card_id)
    ]
    if len(refs) == 1:
        return refs[0]
    known = ", ".join(f"{card.card_id}/{tier.tier_id}" for card in cards for tier in card.tiers)
    if refs:
        raise ConfigInvalid(f"{what}: several rates could be meant: {', '.join(refs)}", hint=MANY_TIERS)
    raise ConfigInvalid(f"{what}: no rate for {name!r}", hint=f"the cards have: {known}")


def path_between(cards: Sequence[RateCard], from_zone: str, to_zone: str, wanted: str | None) -> TransferPath:
    """Return the network path of a leg: the one that is named, or the only one that a card has.

    Raises ConfigInvalid where no card prices the leg, or more than one path is priced.
    """
    entries = {
        entry.path
        for card in cards
        for entry in card.transfers
        if (entry.from_zone, entry.to_zone) == (from_zone, to_zone)
    }
    if wanted is not None:
        try:
            return TransferPath(wanted)
        except ValueError as error:
            words = ", ".join(TransferPath)
            raise ConfigInvalid(f"{wanted!r} is no network path", hint=f"network_path is one of {words}") from error
    if len(entries) == 1:
        return entries.pop()
    with as_ours():
        if not entries:
            known = {f"{e.from_zone} to {e.to_zone} by {e.path}" for c in cards for e in c.transfers}
            raise RateMissing(
                f"no rate for the leg {from_zone} to {to_zone}",
                hint=f"add a [[transfer]] or correct `zone`; the cards have: {', '.join(sorted(known)) or 'none'}",
            )
    raise ConfigInvalid(
        f"the leg {from_zone} to {to_zone} is priced by several paths: {', '.join(sorted(entries))}",
        hint="name one with network_path in its [[tier]]",
    )


def warnings_of(error: CkptierError) -> str:
    """Return an error as one line: for commands that go on without figures."""
    return " ".join(error.message.splitlines()[:1])
