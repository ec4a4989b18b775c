"""``ckptier``: the commands, registered; each module adds its own.

Importing this loads typer and nothing else of weight: a command imports what it needs
when it runs.
"""

from typing import Annotated

import typer

from replicate.cli import costing, inspecting, keys, mending, moving, pruning, rehearsing, releasing, starting

app = typer.Typer(
    name="ckptier",
    help="Keep a training run's state alive when the machine under it is not.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=True,
)


def _version(*, show: bool) -> None:
    if show:
        from importlib.metadata import version  # noqa: PLC0415 - only for --version

        typer.echo(f"ckptier {version('ckptier')}")
        raise typer.Exit


@app.callback()
def _root(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=lambda value: _version(show=value))
    ] = False,
) -> None:
    """Keep a training run's state alive when the machine under it is not."""


for module in (starting, moving, inspecting, rehearsing, pruning, mending, keys, costing, releasing):
    module.register(app)


def main() -> None:
    """Run the command line."""
    app(prog_name="ckptier")
