"""Commands that begin things: ``init``, ``check``, ``demo``, ``adopt``."""

from pathlib import Path
from typing import Annotated

import typer

from replicate.cli.options import ConfigOption, JsonOption, VerboseOption, replicator
from replicate.cli.reporting import reporting


def register(app: typer.Typer) -> None:
    """Add this module's commands."""
    app.command(short_help="Kill a training run and prove that it goes on.")(demo)
    app.command(short_help="Write a first ckptier.toml.")(init)
    app.command(short_help="Try the store and every tier.")(check)
    app.command(short_help="Seal a checkpoint that something else wrote.")(adopt)


def init(
    *,
    run: Annotated[str, typer.Option("--run", help="Name of the run: a-z 0-9 . _ - (at most 63).")],
    store: Annotated[str, typer.Option("--store", help="Folder for local generations.")] = "runs",
    tier: Annotated[
        list[str] | None,
        typer.Option("--tier", metavar="NAME=URL", help="E.g. pod=file:///mnt/volume/ckptier; repeatable."),
    ] = None,
    endpoint_url: Annotated[
        str | None, typer.Option("--endpoint-url", help="For an s3:// tier that is not AWS.")
    ] = None,
    directory: Annotated[Path | None, typer.Option("--directory", help="Where to write ckptier.toml.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Write ckptier.toml, and create the folders of the store and of file tiers."""
    with reporting(as_json=as_json) as out:
        from replicate.setup import initialise  # noqa: PLC0415 - keeps --help fast

        made = initialise(
            directory or Path.cwd(), run=run, store=store, tiers=tuple(tier or ()), endpoint_url=endpoint_url
        )
        lines = [f"wrote {made.config}", *(f"created {path}" for path in made.created)]
        out.show(made, "\n".join([*lines, "next: `ckptier check`"]))


def check(
    *,
    probe: Annotated[
        bool, typer.Option("--probe", help="Try each store for real under a scratch prefix, and remember what it can.")
    ] = False,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Try the store and every tier: readable, ours, put-if-absent kept, bytes read back."""
    with reporting(as_json=as_json) as out:
        from replicate.render.checking import render_check  # noqa: PLC0415 - keeps --help fast

        report = replicator(config).check(probe=probe)
        out.show(report, render_check(report), exit_code=report.exit_code)


def adopt(
    path: Annotated[Path, typer.Argument(help="A checkpoint, file or folder, that something else wrote.")],
    *,
    update: Annotated[int, typer.Option("--update", help="The update that training would do next.", min=0)],
    payload: Annotated[str, typer.Option("--payload", help="files, or torch for a payload.pt to load.")] = "files",
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Seal a copy of a checkpoint as a generation; the original is not touched."""
    with reporting(as_json=as_json) as out:
        generation = replicator(config).store.adopt(path, next_update=update, payload=payload)
        out.show(
            {
                "generation": generation.id,
                "directory": generation.directory,
                "total_bytes": generation.record.total_bytes,
            },
            f"{generation.id}  {generation.record.total_bytes} bytes, {generation.level}",
        )


def demo(
    *,
    as_json: JsonOption = False,
    directory: Annotated[
        Path | None, typer.Option("--directory", help="Work here and keep everything (default: a temporary folder).")
    ] = None,
    s3: Annotated[bool, typer.Option("--s3/--no-s3", help="Also use a real S3 server where it is installed.")] = True,
    verbose: VerboseOption = False,
) -> None:
    """Train, replicate, lose the machine, restore, and prove that training continues bit for bit."""
    with reporting(as_json=as_json, verbose=verbose) as out:
        from replicate.demo.run import run_demo  # noqa: PLC0415 - needs torch

        run_demo(out, directory=directory, use_s3=s3)
