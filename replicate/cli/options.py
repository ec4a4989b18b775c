"""Options that several commands share, declared once."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from replicate.config import Config
    from replicate.engine import Replicator
    from replicate.layout import GenerationId
    from replicate.looking import Looking

ConfigOption = Annotated[
    Path | None, typer.Option("--config", "-c", help="ckptier.toml (default: found upwards, or $CKPTIER_CONFIG).")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
TierOption = Annotated[str | None, typer.Option("--tier", "-t", help="Only this tier (default: all).")]
GenerationOption = Annotated[
    str | None, typer.Option("--generation", "-g", help="Generation id (default: the newest).")
]
ApplyOption = Annotated[bool, typer.Option("--apply", help="Do it; without this it is only said.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Log what is done, to stderr.")]


def configured(path: Path | None) -> "Config":
    """Load the configuration that a command is to work with."""
    from replicate.config import find_config, load_config  # noqa: PLC0415 - keeps --help fast

    return load_config(find_config(path, start=Path.cwd()))


def replicator(path: Path | None) -> "Replicator":
    """Return the engine over the configuration."""
    from replicate.engine import Replicator  # noqa: PLC0415 - as above

    return Replicator(configured(path))


def looking(path: Path | None) -> "Looking":
    """Return what only looks, over the configuration: it loads less than the engine."""
    from replicate.looking import Looking  # noqa: PLC0415 - as above

    return Looking(configured(path))


def generation_id(text: str | None) -> "GenerationId | None":
    """Parse an optional generation id; raises UsageError."""
    from replicate.layout import GenerationId  # noqa: PLC0415 - as above

    return None if text is None else GenerationId.parse(text)
