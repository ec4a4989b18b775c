"""Commands that look: ``status``, ``list``, ``show``, ``explain``, ``verify``, ``safe-to-terminate``."""

from typing import Annotated

import typer

from replicate.cli.options import ConfigOption, JsonOption, generation_id, looking, replicator
from replicate.cli.reporting import reporting
from replicate.errors import ExitCode


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command(short_help="Which update would you restart from?")(status)
    app.command("list", short_help="Every generation, and where it is.")(list_)
    app.command(short_help="Everything recorded of one generation.")(show)
    app.command(short_help="What one generation is worth, and why.")(explain)
    app.command(short_help="Check logs, manifests, objects, and bytes.")(verify)
    app.command("safe-to-terminate", short_help="Exit 0 if this machine may go, else 20.")(safe_to_terminate)


def status(
    *,
    remote: Annotated[
        bool, typer.Option("--remote", help="Ask the tiers, instead of what the daemon last wrote down.")
    ] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show which update you would restart from if this machine disappeared now."""
    with reporting(as_json=as_json) as out:
        from replicate.render.looking import render_status, status_exit  # noqa: PLC0415 - keeps --help fast

        engine = looking(config)
        run, view = engine.status(ask_tiers=remote)
        alive = engine.replicating()
        value = {"status": run, "daemon": view, "replicating": alive}
        text = render_status(run, view, replicating=alive, now=engine.clock.now(), asked=remote)
        out.show(value, text, exit_code=status_exit(run))


def list_(*, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List the generations, newest first, and where each one is."""
    with reporting(as_json=as_json) as out:
        from replicate.render.looking import render_list  # noqa: PLC0415 - keeps --help fast

        listed, tiers = looking(config).list_generations()
        unanswered = {one.tier: one.failure for one in tiers if one.failure is not None}
        damaged = {one.tier: [each.slot for each in one.view.damaged] for one in tiers if one.view and one.view.damaged}
        hidden = bool(unanswered or damaged)
        code = ExitCode.PARTIAL if hidden else ExitCode.OK if listed else ExitCode.NOTHING
        value = {"generations": listed, "unanswered": unanswered, "damaged": damaged}
        out.show(value, render_list(listed, unanswered, damaged), exit_code=code)


def show(
    generation: Annotated[str, typer.Argument(help="Generation id; `ckptier list` shows them.")],
    *,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show everything that is recorded of one generation: files, digests, contract, environment."""
    with reporting(as_json=as_json) as out:
        from replicate.layout import GenerationId  # noqa: PLC0415 - as above
        from replicate.render.looking import render_shown  # noqa: PLC0415 - keeps --help fast

        shown = looking(config).show(GenerationId.parse(generation))
        out.show(shown, render_shown(shown))


def explain(
    generation: Annotated[str | None, typer.Argument(help="Generation id (default: the newest).")] = None,
    *,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Explain one generation: where it is, how well it is proved, what restoring it now would do."""
    with reporting(as_json=as_json) as out:
        from replicate.render.looking import render_explained  # noqa: PLC0415 - keeps --help fast

        found = looking(config).explain(generation_id(generation))
        out.show(found, render_explained(found))


def verify(
    *,
    tier: Annotated[
        str | None, typer.Option("--tier", "-t", help="Only this tier, or `local` (default: all and the store).")
    ] = None,
    generation: Annotated[
        str | None, typer.Option("--generation", "-g", help="Only this generation (default: all).")
    ] = None,
    read_data: Annotated[
        str | None,
        typer.Option("--read-data", metavar="SHARE", help="Also read and hash 100%, or 10%, 1/7, 5GiB at a time."),
    ] = None,
    part: Annotated[
        str | None, typer.Option("--part", metavar="K/N", help="Also read and hash the K-th of N equal parts.")
    ] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check the log, the manifests and every object; with --read-data the bytes too.

    A share goes on where the last run ended, so that a schedule covers everything: 10% in ten
    runs.  Exit code 5 where something is hurt, 9 where something is not known.
    """
    with reporting(as_json=as_json) as out:
        from replicate.jsonable import jsonable  # noqa: PLC0415 - keeps --help fast
        from replicate.render.verify import render_verified, verify_exit  # noqa: PLC0415 - as above
        from replicate.scrubbing import ScrubRequest  # noqa: PLC0415 - as above
        from replicate.verify import parse_part, parse_share  # noqa: PLC0415 - as above

        request = ScrubRequest(
            tier=tier,
            share=None if read_data is None else parse_share(read_data),
            generation=generation_id(generation),
            part=None if part is None else parse_part(part),
        )
        found = replicator(config).scrub(request)
        document = {
            "result": jsonable(found.reports),
            "works": jsonable(found.works),
            "refused": jsonable(found.refused),
            "unanswered": jsonable(found.unanswered),
        }
        out.document(document, render_verified(found), exit_code=verify_exit(found))


def safe_to_terminate(
    *,
    tier: Annotated[
        list[str] | None, typer.Option("--tier", "-t", metavar="NAME", help="Tier that has to hold it; repeatable.")
    ] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Exit 0 when the newest sealed generation is committed on the tiers, 20 with what is at risk."""
    with reporting(as_json=as_json) as out:
        from replicate.render.looking import render_safety  # noqa: PLC0415 - keeps --help fast

        engine = looking(config)
        safety = engine.safe_to_terminate(tuple(tier or ()))
        code = ExitCode.OK if safety.safe else ExitCode.NOT_SAFE
        out.show(safety, render_safety(safety, engine.config.local.root), exit_code=code)
