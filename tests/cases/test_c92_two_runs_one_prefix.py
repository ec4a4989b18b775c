"""C92: two jobs, one output place: different runs that nobody told apart."""

import shutil
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from fencing.writers import LIMIT, Meeting, check_stays_out, code, digests, entries, outcome, via
from flows.machines import REMOTE, Machine, Place, payload
from support.commits import tree

from replicate.errors import ExitCode, TrustFailure
from replicate.log import Commit

Make = Callable[..., Machine]


def files_of(machine: Machine) -> dict[str, bytes]:
    return {path: data for path, data in tree(machine.resumed().files).items() if data is not None}


def other_payload(update: int) -> dict[str, bytes]:
    return {path: data[::-1] for path, data in payload(update).items()}


def test_c92_the_second_run_is_refused_and_changes_nothing(volume: Place, machine: Make) -> None:
    """Same name, same place, both at update 100 with other bytes, one after the other and in turns."""
    one, two = machine("one", volume), machine("two", volume)
    one.push(100)
    before = digests(volume)
    two.publish(100, other_payload(100))
    result = outcome(two)
    assert isinstance(result.failure, TrustFailure)
    assert "another run" in result.failure.message
    assert "name" in result.failure.hint
    assert digests(volume) == before
    one.push(200)
    before = digests(volume)
    two.publish(200, other_payload(200))
    assert code(outcome(two)) is ExitCode.TRUST
    assert digests(volume) == before
    three = machine("three", volume)
    three.restore()
    assert files_of(three) == payload(200)


def test_c92_two_runs_that_start_at_the_same_moment_end_as_one(volume: Place, machine: Make) -> None:
    """Both find the place empty and stand before the first slot; one founds it, the other is told.

    No generation mixes objects of both: what is committed is one run's, bit for bit.
    """
    one, two = machine("one", volume), machine("two", volume)
    one.publish(100)
    two.publish(100, other_payload(100))
    barrier, came = threading.Barrier(2, timeout=LIMIT), list[str]()
    both = [via(each, lambda tier: Meeting(tier, REMOTE.log(0), barrier, came)) for each in (one, two)]
    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(outcome, both))
    assert came == [REMOTE.log(0)] * 2
    codes = [code(result) for result in results]
    assert codes.count(ExitCode.OK) == 1, codes
    winner = codes.index(ExitCode.OK)
    loser = (one, two)[1 - winner]
    assert codes[1 - winner] in (ExitCode.TRUST, ExitCode.FENCED)
    committed = [entry for entry in entries(volume) if isinstance(entry.body, Commit)]
    assert len({entry.run_uid for entry in committed}) == 1
    (live,) = volume.live()
    assert live in {each.id for each in (one, two)[winner].store.generations()}
    reader = machine("reader", volume)
    reader.restore()
    assert files_of(reader) == (payload(100) if winner == 0 else other_payload(100))
    before = digests(volume)
    for update in (101, 102):
        loser.publish(update, other_payload(update))
        assert code(outcome(loser)) in (ExitCode.TRUST, ExitCode.FENCED)
    assert digests(volume) == before


def test_c92_a_writer_that_comes_back_under_another_host_name_is_the_same_writer(
    volume: Place, machine: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Identity is the store's, not the host's: it was killed and restarted elsewhere with its disk."""
    one = machine("one", volume)
    one.push(100)
    monkeypatch.setattr(socket, "gethostname", lambda: "another-host")
    one.push(200)
    assert [entry.term for entry in entries(volume)] == [1, 1, 1], "no new claim"


def test_c92_a_copy_of_the_run_that_wakes_after_a_takeover_is_fenced_off(volume: Place, machine: Make) -> None:
    """The disk was copied, the copy restored and went on; the first one wakes with something to commit."""
    one, two = machine("one", volume), machine("two", volume)
    one.push(100)
    one.publish(150)
    shutil.copytree(one.folder / "runs", two.folder / "runs")
    two.restore()
    two.push(200)
    before = digests(volume)
    check_stays_out(one)
    assert digests(volume) == before
