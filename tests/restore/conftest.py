"""What every restore test needs: a store, a clock, and tiers that are written by hand."""

from pathlib import Path

import pytest
from support.commits import RUN, Restore, Writer

from replicate.layout import LocalRun, RemoteRun
from replicate.restore import RestoreOptions, RestoreReport, RestoreRequest, restore
from tiers.memory import MemoryTier
from tiers.protocol import Tier
from tiers.testing.manual_clock import ManualClock


@pytest.fixture
def local(tmp_path: Path) -> LocalRun:
    return LocalRun(tmp_path / "runs" / RUN)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def writer() -> Writer:
    """Return the hand that writes to a tier called ``a``."""
    return Writer(MemoryTier("a"))


@pytest.fixture
def other() -> Writer:
    """Return the hand that writes to a second tier, ``b``."""
    return Writer(MemoryTier("b"))


@pytest.fixture
def run_restore(local: LocalRun, clock: ManualClock) -> Restore:
    """Return a restore with the given request fields."""

    def run(
        *tiers: Tier, options: RestoreOptions | None = None, dry_run: bool = False, **request: object
    ) -> RestoreReport:
        wanted = RestoreRequest(**request)  # type: ignore[arg-type]
        return restore(wanted, tiers, local, clock, remote=RemoteRun.of(RUN), options=options, dry_run=dry_run)

    return run
