"""Two writers at once, by each means that keeps them apart: cas, posix with links and without, git.

Promise 8: one wins, the other is told (exit 7) and stays out, however often it is started again.
"""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
from fencing.writers import (
    LIMIT,
    Meeting,
    SkewedClock,
    Stall,
    check_stays_out,
    claims,
    code,
    digests,
    entries,
    outcome,
    via,
)
from flows.kinds import KINDS, Running
from flows.machines import REMOTE, Machine, Place

from replicate.clearing import Clearing
from replicate.engine import Replicator
from replicate.errors import ExitCode
from replicate.log import Pin
from replicate.logappender import LogAppender
from replicate.terms import Descent
from tiers import volume_files, volume_probe
from tiers.clock import SystemClock
from tiers.protocol import Fencing

Make = Callable[..., Machine]
MODES = {
    "memory": Fencing.CAS,
    "s3-seaweedfs": Fencing.CAS,
    "volume": Fencing.POSIX,
    "volume without links": Fencing.POSIX,
    "hub": Fencing.GIT,
}


@contextmanager
def without_links() -> Iterator[list[str]]:
    """Let hard links be refused as on a volume that has none; yields what was renamed instead."""
    renamed: list[str] = []
    real = volume_files.rename_no_replace

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    def noted(source: os.PathLike[str], target: os.PathLike[str]) -> None:
        renamed.append(os.fspath(target))
        real(source, target)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "link", refuse)
        patch.setattr(volume_files, "rename_no_replace", noted)
        patch.setattr(volume_probe, "rename_no_replace", noted)
        yield renamed


EVERYWHERE = pytest.mark.parametrize("running", MODES, indirect=True, scope="module")
LOCALLY = pytest.mark.parametrize(
    "running",
    [pytest.param(name, marks=[pytest.mark.long] if name in ("s3-seaweedfs", "hub") else []) for name in MODES],
    indirect=True,
    scope="module",
)
"""The same, of which CI leaves those out that go through a server."""


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Running]]:
    """Start what each mode needs, once; pytest runs the tests of one mode together."""
    name: str = request.param
    server: Any = request.getfixturevalue("seaweed") if "seaweed" in name else None
    with KINDS[name.partition(" ")[0]](tmp_path_factory.mktemp("kind"), server) as kind:
        yield name, kind


@pytest.fixture
def place(running: tuple[str, Running]) -> Iterator[Place]:
    """Return a place that nobody else has, and check that it keeps writers apart by what is being tested."""
    name, kind = running
    place = kind.place(accept_advisory=False, keep_last=2, retire_delay_seconds=0)
    with without_links() if name == "volume without links" else nullcontext([REMOTE.log(0)]) as renamed:
        yield place
        with place.raw() as tier:
            assert tier.capabilities.fencing is MODES[name]
        assert any(path.endswith(REMOTE.log(0)) for path in renamed), "the log was not renamed into place"


def log_slots(place: Place) -> int:
    return len(entries(place))


@LOCALLY
def test_of_two_that_claim_at_once_the_older_attempt_is_told(place: Place, machine: Make) -> None:
    """Both stand before the same slot; whoever gets it, the newer attempt ends with the highest claim."""
    one = machine("one", place)
    one.push(10)
    two = machine("two", place)
    two.restore()
    two.publish(20)
    one.publish(15)
    (one.folder / "runs" / REMOTE.run / "tracker.sqlite").unlink()  # so that it has to claim again
    barrier, came = threading.Barrier(2, timeout=LIMIT), list[str]()
    slot = REMOTE.log(log_slots(place))
    both = [via(each, lambda tier: Meeting(tier, slot, barrier, came)) for each in (one, two)]
    with ThreadPoolExecutor(2) as pool:
        older, newer = pool.map(outcome, both)
    assert came == [slot, slot]
    assert code(newer) is ExitCode.OK, newer.failure
    assert claims(place) in ([(1, 1), (2, 2)], [(1, 1), (2, 1), (3, 2)])
    live = [one.next_update for one in place.live()]
    # The older one may have been faster with its claim, and even with its commit; never after the newer claim.
    assert live[0] == 20
    assert set(live) <= {20, 15, 10}
    assert (15 in live) is (code(older) is ExitCode.OK)
    if code(older) is ExitCode.OK:
        one.publish(16)
    check_stays_out(one)
    assert [one.next_update for one in place.live()] == live


@EVERYWHERE
def test_a_writer_that_slept_through_a_takeover_changes_nothing(place: Place, machine: Make) -> None:
    """Its objects and manifest are up when another machine takes over, commits and collects what it left.

    Its clock is hours ahead, the other's hours behind: no rule goes by them.
    """
    one = machine("one", place)
    one.push(10)
    one.publish(15)
    two = machine("two", place)
    seen: dict[str, str] = {}

    def take_over() -> None:
        heir = Replicator(two.config, clock=SkewedClock(-9), opener=two.engine._given_opener)
        two.restore()
        two.publish(20)
        assert heir.replicate_once().exit_code == ExitCode.OK
        collected = Clearing(two.config, clock=SkewedClock(-9)).gc(apply=True).places[0].report
        assert collected is not None
        assert [one.generation.next_update for one in collected.deleted] == [15]
        assert collected.objects == 4, "three files and the manifest"
        seen.update(digests(place))

    came: list[str] = []
    slot = REMOTE.log(log_slots(place))
    sleeper = via(one, lambda tier: Stall(tier, slot, take_over, came))
    engine = Replicator(sleeper.config, clock=SkewedClock(9), opener=sleeper.engine._given_opener)
    (result,) = engine.replicate_once().results
    assert came == [slot], "it never got as far as its commit"
    assert code(result) is ExitCode.FENCED
    assert "taken over" in (result.failure.message if result.failure else "")
    assert digests(place) == seen, "the sleeper changed something"
    assert [one.next_update for one in place.live()] == [20, 10]
    check_stays_out(one)
    assert digests(place) == seen
    assert machine("three", place).restore().generation == place.live()[0]


@LOCALLY
def test_a_restore_opens_the_way_again_and_shuts_out_the_other(place: Place, machine: Make) -> None:
    one, two = machine("one", place), machine("two", place)
    one.push(10)
    two.restore()
    two.push(20)
    one.publish(15)
    assert code(outcome(one)) is ExitCode.FENCED
    one.restore()
    one.push(30)
    two.publish(25)
    check_stays_out(two)
    assert claims(place) == [(1, 1), (2, 2), (3, 3)]
    assert place.live()[0].next_update == 30


@LOCALLY
def test_entries_that_race_for_the_same_slots_all_get_one(place: Place, machine: Make) -> None:
    """Pins need no term: none of them is lost, doubled or overwritten, whoever was faster."""
    machine("one", place).push(10)
    (commit,) = place.log().live
    assert place.log().state is not None
    descent = Descent(run_uid=entries(place)[0].run_uid, attempt=1, attempt_id="racer")
    count = 4
    start = threading.Barrier(count, timeout=LIMIT)

    def race(number: int) -> str:
        with place.raw() as tier:
            log = LogAppender(tier=tier, remote=REMOTE, clock=SystemClock())
            log.view = log._book.read()
            start.wait()
            pin = Pin(generation=commit.generation, reason=f"racer {number}")
            made = log.append_decided(descent, lambda: (0, pin))
            assert made is not None
            return made.nonce

    with ThreadPoolExecutor(count) as pool:
        nonces = list(pool.map(race, range(count)))
    found = [entry for entry in entries(place) if isinstance(entry.body, Pin)]
    assert sorted(entry.nonce for entry in found) == sorted(nonces)
    assert {entry.body.reason for entry in found if isinstance(entry.body, Pin)} == {
        f"racer {number}" for number in range(count)
    }
