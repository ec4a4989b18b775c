"""What the tracker counted, as a plan of the cost model, and what should have been counted beside it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from cost.estimate import Plan
from cost.ledger import Interval, Ledger
from cost.pricing.volumes import Size, Volume
from cost.rates.together import CardSet
from cost.usage import Usage
from replicate.config import Config, TierConfig
from replicate.costing.cards import as_ours
from replicate.costing.counted import Counts, intervals_of, notes_of, read_counts, usage_of
from replicate.costing.forecast import Course, Forecast, forecast, together
from replicate.costing.places import Place, place_of, shape_in
from replicate.costing.sites import Choices, configured_site
from replicate.errors import NothingFound
from replicate.manifest import GenerationRecord


def counts_of(config: Config) -> Counts:
    """Return what was counted; raises NothingFound where nothing was yet."""
    counts = read_counts(config.state)
    if counts is None or not (counts.days or counts.kept):
        raise NothingFound(
            f"nothing was counted yet in {config.state}",
            hint="`ckptier replicate` counts while it replicates; give a plan file to estimate beforehand",
        )
    return counts


def counted_plan(
    config: Config, tiers: Sequence[TierConfig], counts: Counts, cards: CardSet, now: datetime
) -> Forecast:
    """Return what was counted on some tiers, from the first day on until ``now``."""
    places = [place_of(config, settings, cards) for settings in tiers]
    start, end = _span(counts, now)
    shape = shape_in(config)
    usage = Usage()
    intervals: list[Interval] = []
    for place in places:
        usage = usage + usage_of(counts.of(place.name), place)
        kept = [each for each in counts.kept if each.tier == place.name]
        intervals += intervals_of(kept, place.ref, shape, end)
    plan = Plan(
        plan_id=config.run,
        ledger=Ledger(tuple(intervals), start, end),
        usage=usage,
        volumes=tuple(_volumes(tiers, places, (start, end))),
        generations=len({each.generation for each in counts.kept}),
    )
    return Forecast(plan=plan, notes=notes_of(counts, places))


def _span(counts: Counts, now: datetime) -> tuple[int, int]:
    """Return the first instant that anything was counted for, at the start of its day, and the present one."""
    days = [datetime(each.day.year, each.day.month, each.day.day, tzinfo=now.tzinfo) for each in counts.days]
    first = min([*days, *(each.at for each in counts.kept)])
    start = first.replace(hour=0, minute=0, second=0, microsecond=0)
    return int(start.timestamp()), max(int(now.timestamp()), int(start.timestamp()) + 1)


def _volumes(tiers: Sequence[TierConfig], places: Sequence[Place], span: tuple[int, int]) -> list[Volume]:
    return [
        Volume(
            tier=place.ref,
            sizes=(Size(at=span[0], bytes=settings.provisioned_bytes),),
            end=span[1],
            label=settings.name,
        )
        for settings, place in zip(tiers, places, strict=True)
        if settings.provisioned_bytes is not None
    ]


def expected_plan(
    config: Config,
    tiers: Sequence[TierConfig],
    counts: Counts,
    record: GenerationRecord,
    cards: CardSet,
    choices: Choices,
) -> Forecast:
    """Return what should have been counted: generations like ``record``, committed when they really were.

    What then differs is what was asked more than once, kept for longer, of another size, or copied instead of sent.
    """
    start, end = _span(counts, choices.start)
    parts = []
    for settings in tiers:
        commits = {int(each.at.timestamp()) for each in counts.kept if each.tier == settings.name}
        if not commits:
            continue
        site, notes = configured_site(config, settings, record, cards, choices)
        first = datetime.fromtimestamp(start, tz=choices.start.tzinfo)
        course = Course(start=first, length=end - start, cadence=None, commits=tuple(sorted(commits)))
        with as_ours():
            found = forecast(config.run, record, [replace(site, every=1)], course)
        parts.append(replace(found, notes=(*found.notes, *notes)))
    if not parts:
        raise NothingFound("no generation was committed yet", hint="replicate something first")
    return together(config.run, parts)
