"""Commands that look: ``status``, ``list``, ``show``, ``explain``, ``verify``, ``safe-to-terminate``."""

from typing import Annotated

import typer

from replicate.cli.options import ConfigOption, GenerationOption, JsonOption, TierOption, generation_id, replicator
from replicate.cli.reporting import reporting
from replicate.errors import ExitCode


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command()(status)
    app.command("list")(list_)
    app.command()(show)
    app.command()(explain)
    app.command()(verify)
    app.command("safe-to-terminate")(safe_to_terminate)


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
        from replicate.render import render_status, status_exit  # noqa: PLC0415 - keeps --help fast

        engine = replicator(config)
        run, view = engine.status(ask_tiers=remote)
        alive = engine.replicating()
        value = {"status": run, "daemon": view, "replicating": alive}
        text = render_status(run, view, replicating=alive, now=engine.clock.now())
        out.show(value, text, exit_code=status_exit(run))


def list_(*, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List the generations, newest first, and where each one is."""
    with reporting(as_json=as_json) as out:
        from replicate.render import render_list  # noqa: PLC0415 - keeps --help fast

        listed, tiers = replicator(config).list_generations()
        unanswered = {one.tier: one.failure.message for one in tiers if one.failure is not None}
        code = ExitCode.PARTIAL if unanswered else ExitCode.OK if listed else ExitCode.NOTHING
        out.show({"generations": listed, "unanswered": unanswered}, render_list(listed, unanswered), exit_code=code)


def show(
    generation: Annotated[str, typer.Argument(help="Generation id; `ckptier list` shows them.")],
    *,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show everything that is recorded of one generation: files, digests, contract, environment."""
    with reporting(as_json=as_json) as out:
        from replicate.layout import GenerationId  # noqa: PLC0415 - as above
        from replicate.render import render_shown  # noqa: PLC0415 - keeps --help fast

        shown = replicator(config).show(GenerationId.parse(generation))
        out.show(shown, render_shown(shown))


def explain(
    generation: Annotated[str | None, typer.Argument(help="Generation id (default: the newest).")] = None,
    *,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Explain one generation: where it is, how well it is proved, what restoring it now would do."""
    with reporting(as_json=as_json) as out:
        from replicate.render import render_explained  # noqa: PLC0415 - keeps --help fast

        found = replicator(config).explain(generation_id(generation))
        out.show(found, render_explained(found))


def verify(
    *,
    tier: TierOption = None,
    generation: GenerationOption = None,
    read_data: Annotated[
        str | None, typer.Option("--read-data", help="Also read and hash this share: 100%, 10%, 1/7 or 5GiB.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Which part of the share; count up to cover everything.")] = 0,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check the log, the manifests and every object; with --read-data the bytes too."""
    with reporting(as_json=as_json) as out:
        from replicate.render import render_verified, verify_exit  # noqa: PLC0415 - keeps --help fast
        from replicate.verify import parse_share  # noqa: PLC0415 - as above

        share = None if read_data is None else parse_share(read_data)
        reports = replicator(config).verify(tier=tier, share=share, generation=generation_id(generation), seed=seed)
        out.show(reports, render_verified(reports), exit_code=verify_exit(reports))


def safe_to_terminate(
    *,
    tier: Annotated[list[str] | None, typer.Option("--tier", "-t", help="Tiers that have to hold it.")] = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Exit 0 when the newest sealed generation is committed on the tiers, 20 with what is at risk."""
    with reporting(as_json=as_json) as out:
        from replicate.render import render_safety  # noqa: PLC0415 - keeps --help fast

        safety = replicator(config).safe_to_terminate(tuple(tier or ()))
        code = ExitCode.OK if safety.safe else ExitCode.NOT_SAFE
        out.show(safety, render_safety(safety), exit_code=code)
