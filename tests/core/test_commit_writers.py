"""Two writers, and others who write: one wins, the other is told and stays out."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from core.builders import RUN_UID, SECOND, LocalSource, Machine, make_source, several
from core.checks import check_all, kinds, log_bytes
from core.intruders import COMMIT, add_entry, intrude

from replicate.errors import Fenced, TrustFailure
from replicate.log import Claim, Pin
from replicate.terms import Descent
from tiers.errors import TierUnavailable
from tiers.memory import MemoryStore
from tiers.protocol import walk
from tiers.testing import Fault


@pytest.fixture
def other(tmp_path: Path, store: MemoryStore) -> Iterator[Machine]:
    """Another machine on the same tier, which restored and so opened attempt 2."""
    machine = Machine(tmp_path / "two", store, descent=SECOND, writer="two")
    yield machine
    machine.tracker.close()


def test_slot_that_a_pin_took_is_passed_over(machine: Machine, store: MemoryStore, tmp_path: Path) -> None:
    one, two = several(tmp_path, 2)
    machine.run(one)
    intrude(machine, 2, lambda: add_entry(store, Pin(generation=str(one.id), reason="paper"), term=0))
    assert machine.run(one, two).committed[0].slot == 3
    assert kinds(store) == ["claim", "commit", "pin", "commit"]
    check_all(store, {item.id: item for item in (one, two)}, machine)


def test_slot_that_a_pin_took_after_a_lost_request_is_passed_over(
    machine: Machine, store: MemoryStore, source: LocalSource
) -> None:
    """The create failed, was offered again, and found another entry by then."""
    intrude(machine, 1, lambda: add_entry(store, Pin(generation=str(source.id), reason="early"), term=0))
    machine.schedule(Fault(verb="create", key=COMMIT))
    assert machine.run(source).committed[0].slot == 2
    assert kinds(store) == ["claim", "pin", "commit"]
    check_all(store, {source.id: source}, machine)


def test_higher_claim_in_between_fences(
    machine: Machine, other: Machine, store: MemoryStore, tmp_path: Path, source: LocalSource
) -> None:
    """The other restored and committed while we were about to: we stay out, now and later, also after a restart."""
    theirs = make_source(tmp_path / "elsewhere", {"m": b"1"}, sequence=2, descent=SECOND, parent=source.id)
    intrude(machine, 1, lambda: other.run(theirs))
    with pytest.raises(Fenced, match="taken over"):
        machine.run(source)
    held = machine.tracker.term("remote")
    assert held is not None
    assert held.fenced
    assert machine.tracker.completed("remote") == () or source.id not in {
        item.generation for item in machine.tracker.completed("remote")
    }
    before = log_bytes(store)
    for _ in range(2):
        with pytest.raises(Fenced):
            machine.run(source)
        machine.start()
    assert log_bytes(store) == before
    assert kinds(store) == ["claim", "claim", "commit"]
    check_all(store, {theirs.id: theirs}, machine, other)


def test_fenced_store_goes_on_after_a_restore(
    machine: Machine, other: Machine, store: MemoryStore, tmp_path: Path, source: LocalSource
) -> None:
    theirs = make_source(tmp_path / "elsewhere", {"m": b"1"}, sequence=2, descent=SECOND, parent=source.id)
    machine.run(source)
    other.run(theirs)
    third = Descent(run_uid=RUN_UID, attempt=3, attempt_id="attempt-three")
    later = make_source(tmp_path / "store", {"m": b"2"}, sequence=3, descent=third, parent=theirs.id)
    with pytest.raises(Fenced):
        machine.run(source, later)
    machine.descent = third
    assert [done.generation for done in machine.run(source, later).committed] == [later.id]
    with pytest.raises(Fenced):
        other.run(make_source(tmp_path / "elsewhere", {"m": b"3"}, sequence=4, descent=SECOND))
    check_all(store, {item.id: item for item in (source, theirs, later)}, machine, other)


def test_term_that_was_lost_without_being_fenced_writes_no_stale_commit(
    machine: Machine, store: MemoryStore, tmp_path: Path, source: LocalSource
) -> None:
    """A restore opened attempt 2 here while term 1 is held; a copy of attempt 1 claims in between.

    Our line is the newer one, so we may claim again, and then have to send under the new term.
    """
    machine.run(source)
    machine.descent = SECOND
    later = make_source(tmp_path / "store", {"m": b"2"}, sequence=2, descent=SECOND, parent=source.id)
    intrude(machine, 2, lambda: add_entry(store, Claim(writer="copy"), term=2))
    with pytest.raises(TierUnavailable, match="term was lost"):
        machine.run(source, later)
    assert kinds(store) == ["claim", "commit", "claim"]
    machine.run(source, later)
    assert kinds(store) == ["claim", "commit", "claim", "claim", "commit"]
    check_all(store, {source.id: source, later.id: later}, machine)


def test_fork_is_told_and_nothing_is_written(machine: Machine, store: MemoryStore, source: LocalSource) -> None:
    machine.run(source)
    fork = Descent(run_uid=RUN_UID, attempt=1, attempt_id="other-one")
    copy = Machine(machine.local.root.parent / "copy", store, descent=fork)
    again = make_source(copy.local.root, {"m": b"1"}, sequence=2, descent=fork)
    before = log_bytes(store)
    with pytest.raises(TrustFailure, match="share a number"):
        copy.run(again)
    assert log_bytes(store) == before
    assert not [info.key for info in walk(machine.tier, "") if str(again.id) in info.key]
    copy.tracker.close()


def test_unrelated_run_of_the_same_name_is_refused(machine: Machine, store: MemoryStore, source: LocalSource) -> None:
    machine.run(source)
    stranger = Descent(run_uid="another-run", attempt=5, attempt_id="x")
    theirs = Machine(machine.local.root.parent / "stranger", store, descent=stranger)
    before = log_bytes(store)
    with pytest.raises(TrustFailure, match="another run"):
        theirs.run(make_source(theirs.local.root, {"m": b"1"}, descent=stranger))
    assert log_bytes(store) == before
    theirs.tracker.close()
