"""What the scenarios and those who judge them agree on: the run, its files, its configuration."""

import json
import random
from collections.abc import Mapping
from pathlib import Path

from crash.stage import RUN

TOLD = "durability.scenarios"
"""The module whose hooks say aloud that a modal volume was committed."""


def content(update: int, size: int = 6000) -> bytes:
    """Return bytes that no other update has, longer than a page."""
    return random.Random(update).randbytes(size)


def files_of(update: int) -> dict[str, bytes]:
    """Return what a generation of the run holds."""
    return {"model.bin": content(update), "optim/state.bin": content(1000 + update, 700), "optim/empty": b""}


def commit() -> None:
    """Be the commit of a modal volume to which nothing happens any more."""


reload = commit


def configure(
    folder: Path,
    modes: Mapping[str, str],
    *,
    keep_last: int | None = None,
    tier: Mapping[str, object] | None = None,
    hooks: str = "durability.world",
) -> None:
    """Write ``ckptier.toml``: a store, and a tier on the volume in ``folder/NAME`` for each name and mode."""
    lines = [f'run = "{RUN}"', 'store = "runs"', "hash_workers = 1"]
    if keep_last is not None:
        lines.append(f"keep_last = {keep_last}")
    for name, mode in modes.items():
        where = "volume" if name == "v" else name
        settings: dict[str, object] = {"name": name, "url": (folder / where).as_uri(), "mode": mode, "connections": 1}
        settings |= {"accept_advisory": mode != "rename", **(tier or {})}
        lines += ["[[tier]]", *(f"{key} = {json.dumps(value)}" for key, value in settings.items())]
        if mode == "modal":
            lines.append(f'options = {{ commit = "{hooks}:commit", reload = "{hooks}:reload" }}')
    (folder / "ckptier.toml").write_text("\n".join(lines) + "\n")
