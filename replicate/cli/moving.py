"""Commands that move bytes: ``replicate``, ``restore``, ``copy``, ``wait``."""

import logging
from pathlib import Path
from typing import Annotated

import typer

from replicate.cli.options import (
    ConfigOption,
    GenerationOption,
    JsonOption,
    TierOption,
    VerboseOption,
    configured,
    generation_id,
    replicator,
)
from replicate.cli.reporting import reporting

_log = logging.getLogger(__name__)


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command(short_help="Copy sealed generations to the tiers.")(replicate)
    app.command(short_help="Bring back the newest provable generation.")(restore)
    app.command(short_help="Copy what one tier has to another.")(copy)
    app.command(short_help="Wait until the newest is on the tiers.")(wait)


def replicate(
    *,
    once: Annotated[bool, typer.Option("--once", help="Replicate all that is pending, then exit.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done; change nothing.")] = False,
    no_prune: Annotated[bool, typer.Option("--no-prune", help="Remove nothing, whatever keep_last says.")] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Replicate sealed generations to the tiers, beside training until a signal (or --once).

    SIGTERM finishes what is sealed within drain_seconds; a second signal leaves at once.
    """
    with reporting(as_json=as_json, verbose=verbose or not once) as out:
        from replicate.render import moving as shown  # noqa: PLC0415 - keeps --help fast
        from replicate.render.progress import progress_events  # noqa: PLC0415 - as above

        if dry_run:
            previews = replicator(config).preview()
            out.show(previews, shown.render_preview(previews), exit_code=shown.preview_exit(previews))
        elif once:
            with progress_events(as_json=as_json) as events:
                report = replicator(config).replicate_once(events, prune=not no_prune)
            out.show(report, shown.render_replicated(report), exit_code=report.exit_code)
        else:
            with progress_events(as_json=as_json) as events:
                engine = replicator(config)
                names = ", ".join(tier.name for tier in engine.config.tier)
                _log.info("replicating %s to %s until SIGTERM or Ctrl-C", engine.config.run, names or "no tier")
                code = engine.replicate_forever(events, prune=not no_prune)
                _log.info("stopped; what is not done yet is resumed by the next start")
            out.show({"run": engine.config.run, "stopped": True}, "", exit_code=code)


def restore(
    *,
    to: Annotated[Path | None, typer.Option("--to", help="Only the files, into this new or empty folder.")] = None,
    generation: GenerationOption = None,
    tier: TierOption = None,
    path: Annotated[
        list[str] | None, typer.Option("--path", metavar="PATTERN", help="With --to: only these paths.")
    ] = None,
    accept_older: Annotated[
        bool, typer.Option("--accept-older", help="Go on although a tier that does not answer may hold a newer one.")
    ] = False,
    if_absent: Annotated[bool, typer.Option("--if-absent", help="Do nothing where the store has it already.")] = False,
    fresh_ok: Annotated[
        bool, typer.Option("--fresh-ok", help="Exit 0 where provably nothing exists anywhere yet.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 3 instead of falling back to an older one.")] = False,
    min_sequence: Annotated[
        str | None, typer.Option("--min-sequence", metavar="N|ID", help="Refuse anything older than this.")
    ] = None,
    max_age: Annotated[
        str | None, typer.Option("--max-age", metavar="12h", help="Refuse if the newest commit is older than this.")
    ] = None,
    expect_anchor: Annotated[
        list[str] | None,
        typer.Option("--expect-anchor", metavar="SLOT:SHA256", help="Use only tiers whose log holds this; repeatable."),
    ] = None,
    unsafe_allow_rollback: Annotated[
        bool,
        typer.Option("--unsafe-allow-rollback", help="Although a log is shorter than this machine has seen it."),
    ] = False,
    spread: Annotated[
        bool, typer.Option("--spread", help="Read from all tiers that have it at once; each may charge for egress.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done; write nothing.")] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Bring back the newest provable generation, into the store by default; exact or not at all."""
    with reporting(as_json=as_json, verbose=verbose) as out:
        from replicate.render.moving import render_restored  # noqa: PLC0415 - keeps --help fast
        from replicate.restore import RestoreRequest  # noqa: PLC0415 - as above
        from replicate.restore.freshness import known_from_elsewhere  # noqa: PLC0415 - as above

        request = RestoreRequest(
            generation=generation_id(generation),
            to=to,
            tier=tier,
            accept_older=accept_older,
            strict=strict,
            if_absent=if_absent,
            fresh_ok=fresh_ok,
            paths=tuple(path or ()),
            spread=spread,
            fresh=known_from_elsewhere(
                min_sequence, max_age, expect_anchor or (), allow_rollback=unsafe_allow_rollback
            ),
        )
        report = replicator(config).restore(request, dry_run=dry_run)
        out.show(report, render_restored(report))


def copy(
    *,
    source: Annotated[str, typer.Option("--from", metavar="NAME", help="The tier that has it.")],
    target: Annotated[str, typer.Option("--to", metavar="NAME", help="The tier that is to have it.")],
    generation: GenerationOption = None,
    everything: Annotated[bool, typer.Option("--all", help="Every generation that the source has.")] = False,
    newest: Annotated[bool, typer.Option("--newest", help="Only the newest (the default).")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be copied; change nothing.")] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Copy committed generations from one tier to another, proved on the way and committed like any other.

    A copy that was interrupted goes on where it was when it is run again.
    """
    with reporting(as_json=as_json, verbose=verbose) as out:
        from replicate.copyplan import CopyRequest  # noqa: PLC0415 - keeps --help fast
        from replicate.errors import UsageError  # noqa: PLC0415 - as above
        from replicate.render.copying import render_copied  # noqa: PLC0415 - as above
        from replicate.render.progress import progress_events  # noqa: PLC0415 - as above

        if sum((newest, everything, generation is not None)) > 1:
            raise UsageError("which generations?", hint="give one of --generation ID, --all and --newest")
        request = CopyRequest(source=source, target=target, generation=generation_id(generation), everything=everything)
        with progress_events(as_json=as_json) as events:
            report = replicator(config).copy(request, dry_run=dry_run, events=events)
        out.show(report, render_copied(report), exit_code=report.exit_code)


def wait(
    *,
    generation: GenerationOption = None,
    tier: TierOption = None,
    timeout: Annotated[float | None, typer.Option("--timeout", help="Seconds to wait (default: no limit).")] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Wait until the newest sealed generation is committed on the tiers (the daemon must run)."""
    with reporting(as_json=as_json) as out:
        from replicate.engine import Replicator  # noqa: PLC0415 - keeps --help fast

        report = Replicator(configured(config)).wait(tier=tier, generation=generation_id(generation), timeout=timeout)
        places = ", ".join(report.tiers) or "no tier (milestones only go there, and this is none)"
        out.show(report, f"{report.generation} is on {places}")
