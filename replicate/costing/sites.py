"""Tiers of a plan file or of the configuration, as the sites that a forecast is made for."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from cost.compare import Needs
from cost.pricing.book import Book
from cost.rates.model import RateCard
from cost.rates.terms import Retrieval
from cost.rates.together import CardSet
from replicate.config import Config, TierConfig
from replicate.costing.cards import as_ours, find_ref, tier_ref
from replicate.costing.forecast import EVERYTHING, Course, Forecast, Site, forecast
from replicate.costing.operations import PLAIN, s3_traits, traits_of
from replicate.costing.places import route_between
from replicate.costing.planfile import LoadedPlan, PlannedTier, Store, fault_in
from replicate.costing.shape import Described, capabilities_of, described_record
from replicate.errors import CkptierError, ConfigInvalid
from replicate.manifest import GenerationRecord
from replicate.verify import Share, parse_share
from tiers.profiles import PROFILES
from tiers.volume import VOLUME_CAPABILITIES


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What the command line adds to the configuration; spans in seconds.

    ``updates`` is how many updates lie between two generations, for tiers that count in them.
    """

    start: datetime
    length: int
    cadence: int
    keep_last: int | None = None
    keep_every: int | None = None
    updates: int | None = None
    restores: int = 0
    upload: int = 0
    verify_every: int = 0
    share: Share | None = None

    @property
    def course(self) -> Course:
        """When generations come."""
        if self.cadence > self.length:
            raise ConfigInvalid("no generation comes within the run", hint="give --every at most what --for is")
        return Course(start=self.start, length=self.length, cadence=self.cadence)


def on_card(site: Site, cards: Sequence[RateCard], record: GenerationRecord) -> Site:
    """Complete a site by what its card says; raises ConfigInvalid where the tier cannot take the files."""
    with as_ours():
        _, tier = Book(tuple(cards), cards[0].currency).tier(site.ref)
        for file in record.files:
            tier.require_object(file.size, site.part_size if file.size > (site.part_size or file.size) else None)
    thaws = tier.retrieval is Retrieval.RESTORE
    if thaws and site.share is not None and site.verify_every:
        raise ConfigInvalid(
            f"{site.name}: what has to be thawed cannot be verified by reading it",
            hint="leave read_data out: `verify` looks at each object without it",
        )
    modes = [mode.mode for mode in tier.retrieval_modes]
    if tier.retrieval is not Retrieval.NONE and not site.mode and len(modes) > 1 and site.restores:
        raise ConfigInvalid(f"{site.name}: a restore has several modes: {', '.join(modes)}", hint="name one with mode")
    return replace(site, meters_reads=tier.retrieval is not Retrieval.NONE, thaws=thaws)


def from_plan(loaded: LoadedPlan, cards: CardSet, only: str | None = None) -> Forecast:
    """Return the forecast of a plan file on all of its tiers together, or on ``only`` one (name or card/tier)."""
    record, sites = described(loaded, cards, only)
    return _planned(loaded, record, sites, loaded.plan.name)


def candidates_of(loaded: LoadedPlan, cards: CardSet, only: str | None = None) -> list[tuple[Site, Forecast]]:
    """Return the forecast of each tier of a plan file on its own."""
    record, sites = described(loaded, cards, only)
    return [(site, _planned(loaded, record, [site], site.name)) for site in sites]


def needs_of(loaded: LoadedPlan) -> Needs:
    """Return what a candidate has to do; raises ConfigInvalid where the plan does not say."""
    needs = loaded.plan.needs
    if needs is None:
        raise fault_in(loaded, ("needs",), None, "add [needs] with recover_within and bandwidth: what is compared")
    return Needs(
        recover_within=needs.recover_within,
        bandwidths=(needs.bandwidth,),
        detect=needs.detect,
        provision=needs.provision,
        load=needs.load,
        private=needs.private,
    )


def described(loaded: LoadedPlan, cards: CardSet, only: str | None = None) -> tuple[GenerationRecord, list[Site]]:
    """Return the generation and the tiers of a plan file; raises ConfigInvalid where ``only`` is none of them."""
    names = [tier.name or tier.tier for tier in loaded.plan.tiers]
    wanted = [(index, tier) for index, tier in enumerate(loaded.plan.tiers) if only in (None, names[index], tier.tier)]
    if not wanted:
        raise ConfigInvalid(f"no tier of the plan is called {only!r}", hint=f"its tiers: {', '.join(names)}")
    record = described_record("plan", _named(loaded))
    return record, [_planned_site(loaded, index, tier, cards, record) for index, tier in wanted]


def _named(loaded: LoadedPlan) -> list[Described]:
    """Return the objects under names that differ."""
    return [
        Described(f"{one.name}-{index}", one.bytes, one.count, one.unchanged)
        for index, one in enumerate(loaded.plan.objects)
    ]


def _planned(loaded: LoadedPlan, record: GenerationRecord, sites: Sequence[Site], name: str) -> Forecast:
    plan = loaded.plan
    course = Course(
        start=plan.start, length=plan.length, cadence=plan.every, hold=plan.hold, delete_at_end=plan.delete_at_end
    )
    with as_ours():
        unchanged = frozenset(path for one in _named(loaded) if one.unchanged for path in one.paths)
        return forecast(
            name, record, sites, course, seats=plan.seats, currency=plan.currency or "", unchanged=unchanged
        )


def _planned_site(loaded: LoadedPlan, index: int, tier: PlannedTier, cards: CardSet, record: GenerationRecord) -> Site:
    at = ("tier", index)
    if tier.profile is not None and tier.profile not in PROFILES:
        raise fault_in(loaded, (*at, "profile"), tier.profile, f"known profiles: {', '.join(sorted(PROFILES))}")
    try:
        ref = find_ref(cards.cards, tier.tier, "tier")
        share = parse_share(tier.read_data) if tier.read_data is not None else None
    except CkptierError as error:
        key = "read_data" if tier.read_data is not None and error.exit_code is not ConfigInvalid.exit_code else "tier"
        raise fault_in(loaded, (*at, key), getattr(tier, key), f"{error.message}; {error.hint}") from error
    site = Site(
        name=tier.name or ref,
        ref=ref,
        capabilities=VOLUME_CAPABILITIES
        if tier.store is Store.VOLUME
        else capabilities_of("s3://", tier.profile, None),
        traits=PLAIN if tier.store is Store.VOLUME else s3_traits(tier.profile),
        part_size=tier.part_size,
        every=tier.every,
        keep_last=tier.keep_last or EVERYTHING,
        keep_every=tier.keep_every,
        upload=tier.upload,
        restores=tier.restores,
        verify_every=tier.verify_every or 0,
        share=share,
        route=route_between(cards.cards, loaded.plan.zone, tier.zone, tier.network_path),
        mode=tier.mode or "",
        keep_days=tier.keep_days,
        provisioned_bytes=tier.provisioned_bytes,
    )
    return on_card(site, cards.cards, record)


def from_config(
    config: Config, tiers: Sequence[TierConfig], record: GenerationRecord, cards: CardSet, choices: Choices
) -> Forecast:
    """Return the forecast of the configured run, its generations being like ``record``."""
    sites, notes = [], []
    for settings in tiers:
        site, told = configured_site(config, settings, record, cards, choices)
        sites.append(site)
        notes += told
    with as_ours():
        found = forecast(config.run, record, sites, choices.course)
    return replace(found, notes=(*found.notes, *notes))


def configured_site(
    config: Config, settings: TierConfig, record: GenerationRecord, cards: CardSet, choices: Choices
) -> tuple[Site, list[str]]:
    """Return a configured tier as a site, and what was taken for something else."""
    every, told = _in_generations(settings, "replicate_every", choices)
    keep_every, more = _in_generations(settings, "keep_every", choices)
    site = Site(
        name=settings.name,
        ref=tier_ref(config, settings, cards),
        capabilities=capabilities_of(settings.url, settings.profile, settings.endpoint_url),
        traits=traits_of(settings),
        part_size=settings.part_size,
        every=every or 1,
        keep_last=choices.keep_last or settings.keep_last or EVERYTHING,
        keep_every=choices.keep_every or keep_every,
        upload=choices.upload,
        restores=choices.restores,
        verify_every=choices.verify_every,
        share=choices.share,
        route=route_between(cards.cards, config.zone, settings.zone, settings.network_path),
        provisioned_bytes=settings.provisioned_bytes,
    )
    return on_card(site, cards.cards, record), [*told, *more]


def _in_generations(settings: TierConfig, key: str, choices: Choices) -> tuple[int | None, list[str]]:
    """Turn a number of updates into a number of generations; raises ConfigInvalid where that is not known."""
    wanted: int | None = getattr(settings, key)
    if wanted is None:
        return None, []
    if choices.updates is None:
        raise ConfigInvalid(
            f"tier {settings.name}: {key} counts updates, and how many lie between two generations is not known",
            hint="give --updates N: the updates from one generation to the next",
        )
    count = -(-wanted // choices.updates)
    if count * choices.updates == wanted:
        return count, []
    return count, [f"{settings.name}: {key} = {wanted} updates is taken as every {count}. generation"]
