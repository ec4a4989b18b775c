"""Commands that keep and remove: ``prune``, ``gc``, ``pin``, ``unpin``, ``destroy``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from replicate.cli.options import ApplyOption, ConfigOption, JsonOption, TierOption, VerboseOption, configured
from replicate.cli.reporting import reporting

if TYPE_CHECKING:
    from replicate.clearing import Clearing

GenerationArgument = Annotated[str, typer.Argument(help="Generation id; `ckptier list` shows them.")]


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command(short_help="Remove what the policies let go (--apply).")(prune)
    app.command(short_help="Delete what uploads left behind (--apply).")(gc)
    app.command(short_help="Never retire a generation.")(pin)
    app.command(short_help="Take a pin back.")(unpin)
    app.command(short_help="Delete a whole run from its tiers.")(destroy)


def _clearing(config: Path | None) -> "Clearing":
    from replicate.clearing import Clearing  # noqa: PLC0415 - keeps --help fast

    return Clearing(configured(config))


def prune(
    *,
    tier: TierOption = None,
    apply: ApplyOption = False,
    unsafe_remove_most: Annotated[
        bool, typer.Option("--unsafe-remove-most", help="Also where most of a tier's generations would go.")
    ] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Show which generations the policies keep and why, and with --apply remove the others.

    keep_last and keep_every decide, per tier and for the store (--tier local).  On a tier,
    what goes is retired in the log first and deleted after retire_delay_seconds.
    """
    with reporting(as_json=as_json, verbose=verbose) as out:
        from replicate.pruning import Pruning  # noqa: PLC0415 - keeps --help fast
        from replicate.render.keeping import prune_exit, render_pruned  # noqa: PLC0415 - as above

        report = Pruning(configured(config)).prune(tier=tier, apply=apply, most=unsafe_remove_most)
        out.show(report, render_pruned(report, tier), exit_code=prune_exit(report))


def gc(
    *,
    tier: TierOption = None,
    apply: ApplyOption = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Show what uploads left behind that can never be committed, and with --apply delete it.

    Only what a writer left whose term is over, or what this store gave up; never by age,
    unless the tier cannot keep writers apart.
    """
    with reporting(as_json=as_json, verbose=verbose) as out:
        from replicate.render.keeping import collect_exit, render_collected  # noqa: PLC0415 - keeps --help fast

        report = _clearing(config).gc(tier=tier, apply=apply)
        out.show(report, render_collected(report, tier), exit_code=collect_exit(report))


def pin(
    generation: GenerationArgument,
    *,
    tier: TierOption = None,
    reason: Annotated[str, typer.Option("--reason", help="Why; kept in the log.")] = "",
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Keep a generation for good, on every tier that has it; from any machine, beside a daemon too."""
    with reporting(as_json=as_json) as out:
        from replicate.layout import GenerationId  # noqa: PLC0415 - keeps --help fast
        from replicate.render.keeping import pin_exit, render_pin  # noqa: PLC0415 - as above

        report = _clearing(config).pin(GenerationId.parse(generation), tier=tier, reason=reason)
        out.show(report, render_pin(report), exit_code=pin_exit(report))


def unpin(
    generation: GenerationArgument,
    *,
    tier: TierOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take a pin back: the policies decide again."""
    with reporting(as_json=as_json) as out:
        from replicate.layout import GenerationId  # noqa: PLC0415 - keeps --help fast
        from replicate.render.keeping import pin_exit, render_pin  # noqa: PLC0415 - as above

        report = _clearing(config).unpin(GenerationId.parse(generation), tier=tier)
        out.show(report, render_pin(report), exit_code=pin_exit(report))


def destroy(
    run: Annotated[str, typer.Argument(help="Name of the run, as in ckptier.toml: typed, so that it is meant.")],
    *,
    tier: TierOption = None,
    unsafe_delete_everything: Annotated[
        bool, typer.Option("--unsafe-delete-everything", help="Do it: every generation, pinned or not, and the log.")
    ] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Delete a whole run from its tiers, its log last; the local store stays.

    Stop every process that replicates the run first, on every machine.  Killed on its way
    it is finished by the same command.
    """
    with reporting(as_json=as_json, verbose=verbose) as out:
        from replicate.render.keeping import render_destroyed  # noqa: PLC0415 - keeps --help fast

        report = _clearing(config).destroy(run, tier=tier, apply=unsafe_delete_everything)
        out.show(report, render_destroyed(report))
