"""Commands that try what a restart would meet: ``rehearse``, ``compare``."""

from pathlib import Path
from typing import Annotated

import typer

from replicate.cli.options import ConfigOption, GenerationOption, JsonOption, VerboseOption, configured, generation_id
from replicate.cli.reporting import reporting


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command(short_help="Restore into scratch and make one update.")(rehearse)
    app.command(short_help="Name the first difference of two states.")(compare)


def rehearse(
    *,
    tier: Annotated[
        str | None, typer.Option("--tier", "-t", help="The copy on this tier (default: the first with the newest).")
    ] = None,
    generation: GenerationOption = None,
    function: Annotated[
        str | None, typer.Option("--function", "-f", metavar="M:F", help="package.module:function to call.")
    ] = None,
    scratch: Annotated[
        Path | None, typer.Option("--scratch", metavar="DIR", help="Restore below this (default: beside the run).")
    ] = None,
    expect: Annotated[
        Path | None, typer.Option("--expect", metavar="FILE", help="Observations that it has to make, as JSON.")
    ] = None,
    no_compare: Annotated[
        bool, typer.Option("--no-compare", help="Not with what an earlier rehearsal observed.")
    ] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Restore a copy into scratch and call your function on it: build, load, one update.

    It runs in a process of its own, in the folder of ckptier.toml, with your environment,
    and is given the folder of the restored files.  What it returns (loss, digests, ...) is
    kept and compared the next time.  Exit 0 is evidence, 5 means that it failed.
    """
    with reporting(as_json=as_json, verbose=verbose) as out:
        from replicate.rehearsal import RehearsalRequest, Rehearsing  # noqa: PLC0415 - keeps --help fast
        from replicate.render.rehearsing import rehearsed_exit, render_rehearsed  # noqa: PLC0415 - as above

        request = RehearsalRequest(
            generation=generation_id(generation),
            tier=tier,
            function=function,
            scratch=scratch,
            expect=expect,
            compare=not no_compare,
        )
        report = Rehearsing(configured(config)).rehearse(request)
        out.show(report, render_rehearsed(report), exit_code=rehearsed_exit(report))


def compare(
    first: Annotated[str, typer.Argument(metavar="A", help="Generation id, ID@TIER, or a folder of files.")],
    second: Annotated[str, typer.Argument(metavar="B", help="The same.")],
    *,
    tensors: Annotated[
        bool, typer.Option("--tensors", help="Load the torch files that differ, and name the first tensor.")
    ] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Compare two generations in causal order: what differs first explains the rest.

    Contract and environment, then clocks, then files by their sealed digests: no bytes are
    read for that.  Exit 0 where they are equal, 1 where they differ.
    """
    with reporting(as_json=as_json, verbose=verbose) as out:
        from replicate.comparison import Comparing  # noqa: PLC0415 - keeps --help fast
        from replicate.render.rehearsing import compared_exit, render_compared  # noqa: PLC0415 - as above

        report = Comparing(configured(config)).compare(first, second, tensors=tensors)
        out.show(report, render_compared(report), exit_code=compared_exit(report))
