"""Commands that put right and take over: ``repair``, ``takeover``."""

from shlex import quote
from typing import Annotated

import typer

from replicate.cli.options import ApplyOption, ConfigOption, JsonOption, TierOption, VerboseOption, configured
from replicate.cli.reporting import reporting


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command(short_help="Mend a tier's log and hurt copies (--apply).")(repair)
    app.command(short_help="Go on here although another writer holds the run.")(takeover)


def repair(
    *,
    tier: TierOption = None,
    read_data: Annotated[
        str | None, typer.Option("--read-data", help="Also read stored bytes: 100%, 10%, 1/7 or a size.")
    ] = None,
    apply: ApplyOption = False,
    rebuild_log: Annotated[
        bool, typer.Option("--rebuild-log", help="Commit complete uploads again that no log entry names.")
    ] = False,
    unsafe_retire_hurt: Annotated[
        bool, typer.Option("--unsafe-retire-hurt", help="Give up hurt copies of which no good one is known.")
    ] = False,
    unsafe_void_untrusted: Annotated[
        bool, typer.Option("--unsafe-void-untrusted", help="Go on over log entries that nobody trusted has signed.")
    ] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Show what is damaged on the tiers and what can be done about it, and with --apply do it.

    Damaged log slots are named in the log, so that it can go on.  Hurt copies are replaced by a
    good one, from the store or from another tier, and only once that lies there verified.
    """
    with reporting(as_json=as_json, verbose=verbose) as out:
        from replicate.mending.steps import RepairOptions  # noqa: PLC0415 - keeps --help fast
        from replicate.mending.verbs import Repairing  # noqa: PLC0415 - as above
        from replicate.render.mending import render_repaired, repair_exit  # noqa: PLC0415 - as above
        from replicate.verify import parse_share  # noqa: PLC0415 - as above

        options = RepairOptions(
            read_data=parse_share(read_data) if read_data is not None else None,
            rebuild_log=rebuild_log,
            retire_hurt=unsafe_retire_hurt,
            void_untrusted=unsafe_void_untrusted,
        )
        report = Repairing(configured(config)).repair(options, tier=tier, apply=apply)
        flags = {
            "--rebuild-log": rebuild_log,
            "--unsafe-retire-hurt": unsafe_retire_hurt,
            "--unsafe-void-untrusted": unsafe_void_untrusted,
        }
        named = {"--tier": tier, "--read-data": read_data, "--config": config}
        given = [f"{name} {quote(str(value))}" for name, value in named.items() if value is not None]
        command = " ".join(["ckptier repair", *given, *(name for name, on in flags.items() if on), "--apply"])
        text = render_repaired(report, command, read=read_data is not None)
        out.show(report, text, exit_code=repair_exit(report))


def takeover(
    *,
    reason: Annotated[str, typer.Option("--reason", help="Why; kept in the log.")],
    tier: TierOption = None,
    apply: ApplyOption = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Show who holds the run's logs, and with --apply claim them for this store.

    For a store that was overtaken in its own attempt.  The other writer is shut out for good
    and is told so; what it has not committed yet stays on its machine alone.
    """
    with reporting(as_json=as_json, verbose=verbose) as out:
        from replicate.mending.takeover import TakingOver  # noqa: PLC0415 - keeps --help fast
        from replicate.render.mending import render_takeover, takeover_exit  # noqa: PLC0415 - as above

        report = TakingOver(configured(config)).takeover(reason, tier=tier, apply=apply)
        out.show(report, render_takeover(report), exit_code=takeover_exit(report))
