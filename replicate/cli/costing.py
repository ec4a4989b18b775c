"""``ckptier cost``: what a run costs, from rate cards that the user named.

Exit codes: 0; 3 where the budget is exceeded or what was counted is further off than
allowed; 10 for a card, plan or rate that is invalid, missing or too old.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from replicate.cli.options import (
    ConfigOption,
    GenerationOption,
    JsonOption,
    TierOption,
    configured,
    generation_id,
)
from replicate.cli.reporting import Reporter, reporting

if TYPE_CHECKING:
    from cost.report.contents import Report
    from replicate.costing.reports import Question

PlanArgument = Annotated[
    Path | None, typer.Argument(metavar="[PLAN]", help="Plan file (default: the tiers of ckptier.toml).")
]
RatesOption = Annotated[
    list[Path] | None, typer.Option("--rates", metavar="FILE", help="Rate card; repeatable. None is used unnamed.")
]
EveryOption = Annotated[str | None, typer.Option("--every", metavar="SPAN", help="A generation each: 15min, 2h.")]
ForOption = Annotated[str | None, typer.Option("--for", metavar="SPAN", help="How long the run is: 30d.")]
StartOption = Annotated[str | None, typer.Option("--start", metavar="DAY", help="First day, UTC (default: today).")]
KeepLastOption = Annotated[int | None, typer.Option("--keep-last", min=1, help="Generations kept (default: config).")]
KeepEveryOption = Annotated[int | None, typer.Option("--keep-every", min=1, help="Each how-manieth generation stays.")]
UpdatesOption = Annotated[int | None, typer.Option("--updates", min=1, help="Updates between two generations.")]
RestoresOption = Annotated[int, typer.Option("--restores", min=0, help="Restores within the run.")]
VerifyOption = Annotated[str | None, typer.Option("--verify-every", metavar="SPAN", help="Verify that often.")]
ReadOption = Annotated[str | None, typer.Option("--read-data", metavar="SHARE", help="Share that is read then.")]
BudgetOption = Annotated[str | None, typer.Option("--budget", metavar="AMOUNT", help="Exit 3 above it, such as 50.00.")]
MonthlyOption = Annotated[bool, typer.Option("--monthly", help="The budget is for each calendar month.")]
StaleOption = Annotated[bool, typer.Option("--allow-stale", help="Use cards that are too old; the report says so.")]
HtmlOption = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Also write a page that opens offline.")
]
ActualOption = Annotated[bool, typer.Option("--actual", help="Price what was counted so far.")]
RecoverOption = Annotated[str | None, typer.Option("--recover-within", metavar="SPAN", help="Recovery target.")]
BandwidthOption = Annotated[
    int | None, typer.Option("--bandwidth", metavar="BYTES", min=1, help="Bytes a second of a restore.")
]

cost = typer.Typer(help="What it costs, from rate cards that you name.", no_args_is_help=True, rich_markup_mode=None)
rates = typer.Typer(help="Rate cards: check one, start one.", no_args_is_help=True, rich_markup_mode=None)
cost.add_typer(rates, name="rates")


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.add_typer(cost, name="cost", short_help="What it costs, from dated rates.")


@cost.command(short_help="What a run costs.")
def estimate(
    plan: PlanArgument = None,
    *,
    rates: RatesOption = None,
    tier: TierOption = None,
    generation: GenerationOption = None,
    every: EveryOption = None,
    length: ForOption = None,
    start: StartOption = None,
    keep_last: KeepLastOption = None,
    keep_every: KeepEveryOption = None,
    updates: UpdatesOption = None,
    restores: RestoresOption = 0,
    verify_every: VerifyOption = None,
    read_data: ReadOption = None,
    actual: ActualOption = False,
    budget: BudgetOption = None,
    monthly: MonthlyOption = False,
    allow_stale: StaleOption = False,
    html: HtmlOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate a run: from a plan file, from ckptier.toml and a measured generation, or from what was counted.

    The requests are those of the planner that uploads. A plan file is TOML: plan = 1, name, rates,
    start, length, every, [[object]] with bytes and count, [[tier]] with tier (card/tier) and profile.
    """
    options = dict(locals())
    with reporting(as_json=as_json) as out:
        from replicate.costing.reports import answer_estimate  # noqa: PLC0415 - keeps --help fast

        _show(out, answer_estimate(_question(options)), html)


@cost.command(short_help="Estimate, with what moves it.")
def report(
    plan: PlanArgument = None,
    *,
    rates: RatesOption = None,
    tier: TierOption = None,
    generation: GenerationOption = None,
    every: EveryOption = None,
    length: ForOption = None,
    start: StartOption = None,
    keep_last: KeepLastOption = None,
    keep_every: KeepEveryOption = None,
    updates: UpdatesOption = None,
    restores: RestoresOption = 0,
    verify_every: VerifyOption = None,
    read_data: ReadOption = None,
    recover_within: RecoverOption = None,
    bandwidth: BandwidthOption = None,
    budget: BudgetOption = None,
    monthly: MonthlyOption = False,
    allow_stale: StaleOption = False,
    html: HtmlOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write the whole report of an estimate: with recovery time, cadence, and what a change would do."""
    options = dict(locals())
    with reporting(as_json=as_json) as out:
        from replicate.costing.reports import answer_estimate  # noqa: PLC0415 - keeps --help fast

        _show(out, answer_estimate(_question(options), studied=True), html)


@cost.command(short_help="Which tier, by what it must do and costs.")
def compare(
    plan: PlanArgument = None,
    *,
    rates: RatesOption = None,
    tier: TierOption = None,
    generation: GenerationOption = None,
    every: EveryOption = None,
    length: ForOption = None,
    start: StartOption = None,
    keep_last: KeepLastOption = None,
    keep_every: KeepEveryOption = None,
    updates: UpdatesOption = None,
    restores: RestoresOption = 0,
    recover_within: RecoverOption = None,
    bandwidth: BandwidthOption = None,
    budget: BudgetOption = None,
    monthly: MonthlyOption = False,
    allow_stale: StaleOption = False,
    html: HtmlOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Rank tiers, each for the whole run: those that meet the recovery target first, then by cost.

    The budget is judged for the best one. In a plan file the target is in [needs].
    """
    options = dict(locals())
    with reporting(as_json=as_json) as out:
        from replicate.costing.reports import answer_compare  # noqa: PLC0415 - keeps --help fast

        _show(out, answer_compare(_question(options)), html)


@cost.command(short_help="The estimate against what was counted.")
def reconcile(
    plan: PlanArgument = None,
    *,
    rates: RatesOption = None,
    tier: TierOption = None,
    generation: GenerationOption = None,
    every: EveryOption = None,
    length: ForOption = None,
    start: StartOption = None,
    keep_last: KeepLastOption = None,
    keep_every: KeepEveryOption = None,
    updates: UpdatesOption = None,
    allow_stale: StaleOption = False,
    html: HtmlOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Set the estimate against what was counted; exit 3 where a meter is further off than allowed.

    Without a plan file or --every, generations are expected when they were really committed.
    Example cards are refused.
    """
    options = dict(locals())
    with reporting(as_json=as_json) as out:
        from replicate.costing.reports import answer_reconcile  # noqa: PLC0415 - keeps --help fast

        _show(out, answer_reconcile(_question(options)), html)


@rates.command("check", short_help="Judge rate cards.")
def check(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Rate cards.")], *, as_json: JsonOption = False
) -> None:
    """Check rate cards: every fault with its line. A stale card passes with a warning."""
    with reporting(as_json=as_json) as out:
        from replicate.costing.cards import check_files, render_checked  # noqa: PLC0415 - keeps --help fast
        from tiers.clock import SystemClock  # noqa: PLC0415 - as above

        checked = check_files(files, SystemClock().now().date())
        out.show(checked, render_checked(checked))


@rates.command("new", short_help="Start a rate card.")
def new() -> None:
    """Print a rate card to fill in: every price is left for you to read at its source."""
    with reporting(as_json=False) as out:
        from cost.rates.template import new_card  # noqa: PLC0415 - keeps --help fast

        out.show(None, new_card().rstrip("\n"))


@rates.command("schema", short_help="The JSON schema, for editors.")
def schema() -> None:
    """Print the JSON schema of rate cards, for editors that complete and check TOML."""
    with reporting(as_json=False) as out:
        from cost.rates.schema import schema_text  # noqa: PLC0415 - keeps --help fast

        out.show(None, schema_text().rstrip("\n"))


def _show(out: Reporter, found: "Report", html: Path | None) -> None:
    """Print a report, write it as a page where that is asked for, and decide the exit code."""
    from cost.report import document, text  # noqa: PLC0415 - keeps --help fast
    from replicate.costing.reports import exit_is_partial, write_html  # noqa: PLC0415 - as above
    from replicate.errors import ExitCode  # noqa: PLC0415 - as above

    if html is not None:
        write_html(found, html)
    code = ExitCode.PARTIAL if exit_is_partial(found) else ExitCode.OK
    out.show(document.document(found), text.render(found).rstrip("\n"), exit_code=code)


def _question(options: dict[str, Any]) -> "Question":
    """Return what the options of a command ask."""
    from cost.budget import Per  # noqa: PLC0415 - keeps --help fast
    from replicate.costing.options import amount, choices, needs  # noqa: PLC0415 - as above
    from replicate.costing.reports import Question  # noqa: PLC0415 - as above
    from replicate.engine import Replicator  # noqa: PLC0415 - as above
    from tiers.clock import SystemClock  # noqa: PLC0415 - as above

    config: Path | None = options["config"]
    wanted = generation_id(options.get("generation"))
    now = SystemClock().now()
    return Question(
        now=now,
        plan=options["plan"],
        config=lambda: configured(config),
        tier=options.get("tier"),
        rates=tuple(options.get("rates") or ()),
        choices=choices(options, now),
        measure=lambda: Replicator(configured(config)).measured(wanted),
        needs=needs(options.get("recover_within"), options.get("bandwidth")),
        actual=options.get("actual", False),
        allow_stale=options.get("allow_stale", False),
        budget=amount(options.get("budget")),
        per=Per.MONTH if options.get("monthly") else Per.RUN,
    )
