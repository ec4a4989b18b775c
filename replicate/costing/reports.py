"""What the ``cost`` commands answer: from a question to a report, with one function a command."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path

from cost.budget import Budget, Judgement, Per, judge
from cost.compare import Candidate, Comparison, Needs, Row, compare
from cost.errors import PlanInvalid
from cost.estimate import Estimate, estimate
from cost.rates.together import CardSet
from cost.reconcile import Reconciliation, counted, reconcile
from cost.report.cadence import study
from cost.report.contents import Report, report
from cost.report.sensitivity import sensitivity
from replicate.config import Config, TierConfig
from replicate.costing.actual import counted_plan, counts_of, expected_plan
from replicate.costing.cards import as_ours, configured_cards, load
from replicate.costing.forecast import Forecast
from replicate.costing.planfile import LoadedPlan, read_plan
from replicate.costing.sites import Choices, candidates_of, from_config, from_plan, needs_of
from replicate.errors import CkptierError, UsageError
from replicate.manifest import GenerationRecord

Measure = Callable[[], GenerationRecord]
"""Returns the record of the generation that a forecast goes by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is asked.  ``plan`` is a plan file; without one the configuration's tiers are meant.

    ``choices`` are needed without a plan file, ``config`` too.  ``actual``: what was counted is
    priced, not what is to come.  ``needs`` are for comparing configured tiers.
    """

    now: datetime
    plan: Path | None = None
    config: Callable[[], Config] | None = None
    tier: str | None = None
    rates: tuple[Path, ...] = ()
    choices: Choices | None = None
    measure: Measure | None = None
    needs: Needs | None = None
    actual: bool = False
    allow_stale: bool = False
    budget: Decimal | None = None
    per: Per = Per.RUN


@dataclass(frozen=True, kw_only=True)
class _Priced:
    """A forecast with its cards and estimate."""

    forecast: Forecast
    cards: CardSet
    estimate: Estimate


def answer_estimate(question: Question, *, studied: bool = False) -> Report:
    """Return the report of one estimate; ``studied`` adds what moves it: cadence, and one change at a time."""
    if studied and question.needs is None and question.plan is not None:
        loaded = read_plan(question.plan)
        question = replace(question, needs=needs_of(loaded) if loaded.plan.needs is not None else None)
    priced = _priced(question)
    return _report(question, priced, studied=studied)


def answer_compare(question: Question) -> Report:
    """Return the report of the best candidate, with all of them by rank.

    Raises ConfigInvalid where no candidate can be carried out at all.
    """
    candidates, needs, cards, notes = _candidates(question)
    with as_ours():
        found: Comparison = compare(candidates, needs, question.now.date())
        row, best = _best(found)
        told = replace(best, assumptions=(*best.assumptions, *notes))
        return report(
            row.candidate.plan,
            told,
            cards.cards,
            needs=needs,
            comparison=found,
            judgements=_judged(question, told),
            version=version("ckptier"),
        )


def _best(found: Comparison) -> tuple[Row, Estimate]:
    """Return the first row that could be estimated; raises PlanInvalid where none could."""
    for row in found.rows:
        if row.estimate is not None:
            return row, row.estimate
    reasons = "; ".join(f"{row.candidate.name}: {row.reason}" for row in found.rows)
    raise PlanInvalid(f"no candidate can be carried out: {reasons}", hint="store less, or name another tier")


def answer_reconcile(question: Question) -> Report:
    """Return the report of what was counted, set against what was to be expected."""
    config, tiers = _configured(question)
    loaded = read_plan(question.plan) if question.plan is not None else None
    cards = _cards(question, config, tiers, loaded)
    counts = counts_of(config)
    actual = _estimated(question, counted_plan(config, tiers, counts, cards, question.now), cards)
    if loaded is not None:
        forecast = from_plan(loaded, cards, question.tier)
    elif question.choices is not None and question.choices.cadence:
        forecast = from_config(config, tiers, _record(question), cards, question.choices)
    else:
        choices = question.choices or Choices(start=question.now, length=1, cadence=1)
        forecast = expected_plan(config, tiers, counts, _record(question), cards, replace(choices, start=question.now))
    expected = _estimated(question, forecast, cards)
    with as_ours():
        found: Reconciliation = reconcile(
            counted("estimate", expected.forecast.plan, expected.estimate, cards.cards),
            counted("tracker", actual.forecast.plan, actual.estimate, cards.cards),
        )
    return _report(question, actual, reconciliation=found)


def _priced(question: Question) -> _Priced:
    if question.plan is not None:
        loaded = read_plan(question.plan)
        cards = load([*loaded.rates, *question.rates], question.now.date(), allow_stale=question.allow_stale)
        return _estimated(question, from_plan(loaded, cards, question.tier), cards)
    config, tiers = _configured(question)
    cards = _cards(question, config, tiers, None)
    if question.actual:
        return _estimated(question, counted_plan(config, tiers, counts_of(config), cards, question.now), cards)
    return _estimated(question, from_config(config, tiers, _record(question), cards, _choices(question)), cards)


def _configured(question: Question) -> tuple[Config, tuple[TierConfig, ...]]:
    if question.config is None:
        raise UsageError("a plan file or a configuration is needed")
    config = question.config()
    tiers = config.select(question.tier)
    if not tiers:
        raise UsageError("no tier is configured", hint="add a [[tier]] to ckptier.toml, or give a plan file")
    return config, tiers


def _cards(question: Question, config: Config, tiers: Sequence[TierConfig], loaded: LoadedPlan | None) -> CardSet:
    more = [*(loaded.rates if loaded else ()), *question.rates]
    return configured_cards(config, tiers, more, question.now.date(), allow_stale=question.allow_stale)


def _choices(question: Question) -> Choices:
    if question.choices is None or not question.choices.cadence:
        raise UsageError(
            "how often and for how long is not known",
            hint="give --every and --for, such as 2h and 30d; or a plan file; or --actual for what was counted",
        )
    return question.choices


def _record(question: Question) -> GenerationRecord:
    if question.measure is None:
        raise UsageError("no generation to go by")
    return question.measure()


def _estimated(question: Question, forecast: Forecast, cards: CardSet) -> _Priced:
    plan = replace(forecast.plan, allow_stale=question.allow_stale)
    with as_ours():
        found = estimate(plan, cards.cards, question.now.date())
    told = replace(found, assumptions=(*found.assumptions, *forecast.notes))
    return _Priced(forecast=replace(forecast, plan=plan), cards=cards, estimate=told)


def _judged(question: Question, found: Estimate) -> tuple[Judgement, ...]:
    if question.budget is None:
        return ()
    with as_ours():
        return (judge(found, Budget(limit=question.budget, currency=found.currency, per=question.per)),)


def _report(
    question: Question, priced: _Priced, *, studied: bool = False, reconciliation: Reconciliation | None = None
) -> Report:
    plan, cards, today = priced.forecast.plan, priced.cards.cards, question.now.date()
    single = len(plan.runs) == 1 and plan.runs[0].cadence is not None
    with as_ours():
        return report(
            plan,
            priced.estimate,
            cards,
            needs=question.needs,
            judgements=_judged(question, priced.estimate),
            cadence=study(plan, cards, today) if studied and single else None,
            sensitivity=sensitivity(plan, cards, today) if studied and single else (),
            reconciliation=reconciliation,
            version=version("ckptier"),
        )


def _candidates(question: Question) -> tuple[list[Candidate], Needs, CardSet, list[str]]:
    if question.plan is not None:
        loaded = read_plan(question.plan)
        cards = load([*loaded.rates, *question.rates], question.now.date(), allow_stale=question.allow_stale)
        needs = question.needs or needs_of(loaded)
        found = [
            (site.name, site.ref, site.mode, forecast) for site, forecast in candidates_of(loaded, cards, question.tier)
        ]
    else:
        config, tiers = _configured(question)
        cards = _cards(question, config, tiers, None)
        if question.needs is None:
            raise UsageError("what a tier has to do is not known", hint="give --recover-within and --bandwidth")
        needs, record, choices = question.needs, _record(question), _choices(question)
        found = []
        for settings in tiers:
            forecast = from_config(config, [settings], record, cards, choices)
            found.append((settings.name, forecast.plan.runs[0].tiers[0].tier, "", forecast))
    candidates = [
        Candidate(
            name=name,
            plan=replace(forecast.plan, plan_id=name, allow_stale=question.allow_stale),
            cards=cards.cards,
            restore_from=ref,
            mode=mode,
        )
        for name, ref, mode, forecast in found
    ]
    return candidates, needs, cards, [note for _, _, _, forecast in found for note in forecast.notes]


def exit_is_partial(found: Report) -> bool:
    """Whether a budget is exceeded, or a meter is further off than its gate allows."""
    over = any(not judged.within for judged in found.judgements)
    return over or (found.reconciliation is not None and not found.reconciliation.passed)


def write_html(found: Report, path: Path) -> None:
    """Write the report as one HTML file; raises CkptierError where the extra for it is not installed."""
    try:
        from cost.report import html  # noqa: PLC0415 - needs the extra
    except ModuleNotFoundError as error:
        raise CkptierError(
            f"HTML reports need {error.name}, which is not installed", hint="pip install 'ckptier[cost]'"
        ) from error
    path.write_text(html.render(found), encoding="utf-8")
