"""Preparing the tiny models: one call, and stand-ins for what a process apart takes seconds for."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from support.releases import Built, expected_of

from replicate.errors import CkptierError
from replicate.release import preparing
from replicate.release.description import ReleaseDescription
from replicate.release.expected import Expected
from replicate.release.findings import Waiver
from replicate.release.preparing import PrepareReport, prepare
from replicate.release.scan.inputs import Identities
from tiers.testing.manual_clock import ManualClock

Tiny = Callable[[str], Built]
IDENTITIES = Identities(user="zyxwvut", host="node-seventeen", run="run-of-nobody", run_uid="f" * 32, places=())


def architectures_at_hand(patch: pytest.MonkeyPatch, tiny: Tiny) -> None:
    """Answer at once what a process apart would: that a payload is safe, and what an architecture is."""

    def known(description: ReleaseDescription, *_: Any, **__: Any) -> Expected | None:
        if description.adapter is not None and description.adapter.base_path is None:
            return None
        return expected_of(tiny(description.name.removeprefix("tiny-")))

    patch.setattr(preparing, "expected_tensors", known)
    patch.setattr("replicate.release.weights.reading.load_fault", lambda *_, **__: "")


def run(built: Built, out: Path, *, day: int = 1, waivers: tuple[Waiver, ...] = ()) -> PrepareReport:
    return prepare(
        built.described(),
        built.folder,
        built.source(),
        out,
        identities=IDENTITIES,
        waivers=waivers,
        clock=ManualClock(datetime(2026, 2, day, tzinfo=UTC)),
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refusal(built: Built, out: Path) -> CkptierError:
    """Prepare, expect a refusal, and that nothing is left of it."""
    with pytest.raises(CkptierError) as caught:
        run(built, out)
    assert not out.exists()
    assert list(out.parent.glob(f".{out.name}.*")) == []
    return caught.value
