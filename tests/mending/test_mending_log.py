"""A damaged log is mended: every kind of entry, gaps, and whatever is damaged together."""

from collections.abc import Callable
from pathlib import Path

import pytest
from core.builders import FIRST, REMOTE, SECOND
from core.intruders import Intruder, intrude
from core.logs import commit, generation
from hypothesis import given, settings
from hypothesis import strategies as st
from mending.slots import (
    SCRIPT,
    chain_of,
    check_mended,
    cut,
    data_at,
    flip,
    late_entry,
    live_of,
    lose,
    machine_of,
    mend,
    of,
    put,
    still_said,
    view_of,
    written,
)

from replicate import canonical
from replicate.errors import Fenced, IntegrityFailure, TrustFailure
from replicate.layout import FOLD_EVERY
from replicate.log import Claim, Pin, Verdict, Void, parse_entry
from replicate.logappender import LogAppender
from replicate.logbook import Logbook
from replicate.mending.steps import Kind
from replicate.terms import Descent
from tiers.errors import ObjectExists
from tiers.memory import MemoryStore
from tiers.testing import ManualClock

Hurt = Callable[[MemoryStore, int], None]
LAST = len(SCRIPT) - 1


@pytest.fixture
def store() -> MemoryStore:
    made = MemoryStore()
    written(made, SCRIPT)
    assert live_of(view_of(made)) == [2, 4, 5, 6]
    return made


@pytest.mark.parametrize("hurt", [flip, lose])
@pytest.mark.parametrize("slot", range(LAST))
def test_one_slot_of_each_kind_is_mended(store: MemoryStore, tmp_path: Path, slot: int, hurt: Hurt) -> None:
    """Claims, commits, retirements and pins; the last slot cannot be missed by who has not seen it."""
    hurt(store, slot)
    expected = still_said(store, SCRIPT)
    with machine_of(tmp_path, store) as machine:
        done = [step.kind for step in mend(machine)]
        assert done == [Kind.FILL] * (hurt is lose) + [Kind.CLAIM, Kind.VOID]
        check_mended(store, expected)
        assert mend(machine) == ()


def test_the_last_slot_is_mended(store: MemoryStore, tmp_path: Path) -> None:
    flip(store, LAST)
    with machine_of(tmp_path, store) as machine:
        mend(machine)
        check_mended(store, [2, 4, 5])


@settings(max_examples=15)
@given(hurt=st.dictionaries(st.integers(0, LAST), st.sampled_from([flip, cut, lose]), min_size=1))
def test_whatever_is_damaged_what_is_intact_stays(
    hurt: dict[int, Hurt], tmp_path_factory: pytest.TempPathFactory
) -> None:
    store = MemoryStore()
    written(store, SCRIPT)
    for slot, act in hurt.items():
        act(store, slot)
    if not chain_of(store):
        return
    expected = still_said(store, SCRIPT)
    with machine_of(tmp_path_factory.mktemp("machine"), store) as machine:
        mend(machine)
        check_mended(store, expected)
        assert mend(machine) == ()


def test_a_void_entry_that_is_damaged_itself_is_mended_with_what_it_named(store: MemoryStore, tmp_path: Path) -> None:
    with machine_of(tmp_path, store) as machine:
        flip(store, 2)
        mend(machine)
        entry = parse_entry(data_at(store, LAST + 2), slot=LAST + 2, run=REMOTE.run)
        assert isinstance(entry.body, Void)
        flip(store, LAST + 1)  # its claim as well
        flip(store, LAST + 2)
        assert [one.slot for one in view_of(store).damaged] == [2, LAST + 1, LAST + 2]
        mend(machine)
        check_mended(store, [4, 5, 6])
        assert machine.tracker.term("remote") is not None


def test_bytes_that_change_again_are_damage_again_and_never_count(store: MemoryStore, tmp_path: Path) -> None:
    """Also where what comes back is the entry itself, from a backup: its generation may have been committed anew."""
    original = data_at(store, 2)
    flip(store, 2)
    with machine_of(tmp_path, store) as machine:
        mend(machine)
        put(store, 2, b"something else")
        assert [one.slot for one in view_of(store).damaged] == [2]
        mend(machine)
        check_mended(store, [4, 5, 6])
        put(store, 2, original)
        found = view_of(store)
        assert [one.slot for one in found.damaged] == [2]
        assert live_of(found) == [4, 5, 6]
        mend(machine)
        check_mended(store, [4, 5, 6])


def test_a_late_entry_cannot_come_to_stand_in_a_gap_that_was_filled(store: MemoryStore, tmp_path: Path) -> None:
    lose(store, 2)
    with machine_of(tmp_path, store) as machine:
        mend(machine)
    with pytest.raises(ObjectExists):
        of(store).create(REMOTE.log(2), late_entry(2).encode())
    check_mended(store, [4, 5, 6])


def test_a_late_entry_that_comes_before_the_filler_is_kept_and_acknowledged(store: MemoryStore, tmp_path: Path) -> None:
    lose(store, 2)
    late = late_entry(2, canonical.sha256(data_at(store, 1)))
    with machine_of(tmp_path, store) as machine:
        intrude(machine, 2, lambda: of(store).create(REMOTE.log(2), late.encode()))
        assert [one.kind for one in mend(machine, again=False)] == [Kind.CLAIM, Kind.VOID]
    found = view_of(store)
    assert found.damaged == ()
    assert [one.slot for one in found.voided] == [3]
    assert live_of(found) == [4, 5, 6, 9]


def test_a_reader_that_began_before_goes_on_without_seeing_two_histories(store: MemoryStore, tmp_path: Path) -> None:
    """It has read the entry that is damaged now, and drops it as everybody does once it is given up."""
    book = Logbook(of(store), REMOTE)
    before = book.read()
    flip(store, 8)
    assert live_of(book.read(before)) == [2, 4, 5, 6]
    with machine_of(tmp_path, store) as machine:
        mend(machine)
    after = book.read(before)
    assert (after.damaged, after.state) == ((), view_of(store).state)
    assert live_of(after) == [2, 4, 6]
    again = book.read(after)
    assert again == after


def test_a_writer_whose_claim_is_lost_is_shut_out_and_told(store: MemoryStore, tmp_path: Path) -> None:
    """It knows of no damage and would commit under a term that nobody else has heard of."""
    with machine_of(tmp_path / "mine", store) as mine, machine_of(tmp_path / "other", store) as other:
        mine.replication.log.refresh(SECOND)
        other.replication.log.refresh(SECOND)
        held = other.replication.log.ensure_term(SECOND)  # its tracker was lost: it may
        flip(store, LAST + 1)
        mend(mine)
        mended = view_of(store)
        assert mended.state is not None
        assert mended.state.term > held
        with pytest.raises(Fenced):
            other.replication.log.append_decided(SECOND, lambda: (other.replication.log.held_term(SECOND), commit(7)))
        check_mended(store, [2, 4, 5, 6])


def test_who_holds_the_term_claims_it_anew_where_a_later_claim_may_be_lost(store: MemoryStore, tmp_path: Path) -> None:
    """To this store its own claim looks like the last one; the other's commits would count for nobody else."""
    with machine_of(tmp_path / "mine", store) as mine, machine_of(tmp_path / "other", store) as other:
        mine.replication.log.refresh(SECOND)
        own = mine.replication.log.ensure_term(SECOND)
        other.replication.log.refresh(SECOND)
        lost = other.replication.log.ensure_term(SECOND)
        flip(store, LAST + 2)
        assert [one.kind for one in mend(mine)] == [Kind.CLAIM, Kind.VOID]
        held, state = mine.tracker.term("remote"), view_of(store).state
        assert held is not None
        assert state is not None
        assert own < lost < held.term == state.term
        with pytest.raises(Fenced):
            other.replication.log.append_decided(SECOND, lambda: (other.replication.log.held_term(SECOND), commit(7)))
        assert [one.kind for one in mend(mine)] == []


def test_a_gap_cannot_be_acknowledged_as_it_is(store: MemoryStore) -> None:
    lose(store, 2)
    log = LogAppender(tier=of(store), remote=REMOTE, clock=ManualClock(), view=view_of(store), mending=True)
    assert log.append(log.entry(SECOND, 2, Void(slot=2, found_sha256=canonical.sha256(b""))))
    found = view_of(store)
    assert [(one.slot, one.missing) for one in found.damaged] == [(2, True)]
    assert found.voided == ()


@pytest.mark.parametrize(
    ("term", "of_term", "sequence", "verdict"),
    [
        (2, 1, 7, Verdict.APPLIED),
        (2, 2, 7, Verdict.APPLIED),
        (2, 3, 7, Verdict.FOREIGN_PREFIX),
        (2, 1, 8, Verdict.FOREIGN_PREFIX),
        (1, 1, 7, Verdict.STALE_TERM),
    ],
)
def test_an_adopted_commit_names_a_prefix_of_its_generation_and_of_no_later_term(
    store: MemoryStore, term: int, of_term: int, sequence: int, verdict: Verdict
) -> None:
    body = commit(7, term=of_term).model_copy(
        update={"manifest_key": commit(sequence, term=of_term).manifest_key, "adopted": True}
    )
    written(store, [(term, SECOND, body)])
    found = view_of(store)
    assert dict(found.refused).get(LAST + 1, Verdict.APPLIED) == verdict
    live = found.state.find(body.generation) if found.state else None
    assert (live.term if live else None) == (of_term if verdict is Verdict.APPLIED else None)


def test_the_log_is_not_appended_to_by_others_while_it_is_damaged(store: MemoryStore, tmp_path: Path) -> None:
    """Nor does a store take the loss of its own claim for somebody else's."""
    with machine_of(tmp_path, store) as machine:
        log = machine.replication.log
        log.refresh(SECOND)
        log.ensure_term(SECOND)
        flip(store, LAST + 1)
        machine.start()
        log = machine.replication.log
        log.refresh(SECOND)
        with pytest.raises(IntegrityFailure) as caught:
            log.ensure_term(SECOND)
        assert "ckptier repair" in caught.value.hint
        held = machine.tracker.term("remote")
        assert held is not None
        assert held.fenced is None
        assert [one.kind for one in mend(machine)] == [Kind.CLAIM, Kind.VOID]
        assert machine.replication.log.ensure_term(SECOND) > held.term


@pytest.mark.parametrize(
    ("descent", "error"),
    [
        (FIRST, Fenced),
        (Descent(run_uid=SECOND.run_uid, attempt=2, attempt_id="another"), TrustFailure),
        (Descent(run_uid="another run", attempt=9, attempt_id="x"), TrustFailure),
    ],
)
def test_a_store_that_does_not_continue_the_log_repairs_nothing(
    store: MemoryStore, tmp_path: Path, descent: Descent, error: type[Exception]
) -> None:
    flip(store, 2)
    before = dict(store.objects)
    with machine_of(tmp_path, store, descent) as machine, pytest.raises(error):
        mend(machine)
    assert store.objects == before


def test_a_store_that_was_overtaken_in_its_attempt_repairs_nothing(store: MemoryStore, tmp_path: Path) -> None:
    with machine_of(tmp_path, store) as machine:
        machine.replication.log.refresh(SECOND)
        machine.replication.log.ensure_term(SECOND)
        written(store, [(4, SECOND, Claim(writer="somebody"))])
        flip(store, 2)
        before = dict(store.objects)
        with pytest.raises(Fenced):
            mend(machine)
        assert store.objects == before


@pytest.mark.parametrize(
    ("slot", "before"), [(LAST + 1, []), (LAST + 2, [Kind.CLAIM]), (LAST + 3, [Kind.CLAIM, Kind.VOID])]
)
def test_two_repairs_at_once_come_to_one(store: MemoryStore, tmp_path: Path, slot: int, before: list[Kind]) -> None:
    """Whoever claimed last has the term; the other one finds that nothing is left to be said."""
    flip(store, 1)
    flip(store, 8)
    with machine_of(tmp_path / "a", store) as a, machine_of(tmp_path / "b", store) as b:
        intrude(a, slot, lambda: mend(b))
        done = [one.kind for one in mend(a, again=False)]
        assert isinstance(a.recorder, Intruder)
        assert a.recorder.done
        assert done == (before or [Kind.CLAIM])
        holder = a if slot == LAST + 1 else b
        held, state = holder.tracker.term("remote"), view_of(store).state
        assert held is not None
        assert state is not None
        assert held.claim_nonce == state.claim_nonce
    voids = [parse_entry(data_at(store, one), slot=one, run=REMOTE.run).body for one in chain_of(store)[LAST + 1 :]]
    assert sorted(one.slot for one in voids if isinstance(one, Void)) == [1, 8]
    check_mended(store, [2, 4, 6])


def long_log(length: int) -> MemoryStore:
    """Return a log that is this long, with folded states on its way."""
    made = MemoryStore()
    pins = [(2, SECOND, Pin(generation=str(generation(100 + n)), reason="")) for n in range(length - len(SCRIPT))]
    written(made, [*SCRIPT, *pins])
    return made


@pytest.mark.parametrize("hurt", [flip, lose])
def test_a_slot_with_folded_state_is_mended_wherever_a_reader_begins(tmp_path: Path, hurt: Hurt) -> None:
    store = long_log(FOLD_EVERY + 3)
    hurt(store, FOLD_EVERY)
    with machine_of(tmp_path, store) as machine:
        mend(machine)
        check_mended(store, [2, 4, 5, 6])
        assert view_of(store).first_slot == 0
        held = machine.tracker.term("remote")
        assert held is not None
        written(
            store,
            [(held.term, SECOND, Pin(generation=str(generation(n)), reason="")) for n in range(900, 900 + FOLD_EVERY)],
        )
        assert view_of(store).first_slot == 2 * FOLD_EVERY
        check_mended(store, [2, 4, 5, 6])


def test_damage_below_a_folded_state_hides_nothing_and_needs_no_repair(tmp_path: Path) -> None:
    """Its writer knew what stood there; a reader that comes by sees what one that begins there sees."""
    store = long_log(FOLD_EVERY + 3)
    flip(store, 8)
    with machine_of(tmp_path, store) as machine:
        assert mend(machine) == ()
    check_mended(store, [2, 4, 5, 6])


@pytest.mark.parametrize("room", [1, 2, 3])
def test_a_repair_that_comes_to_write_a_folded_state_is_as_good(tmp_path: Path, room: int) -> None:
    store = long_log(FOLD_EVERY - room)
    flip(store, 6)
    flip(store, 8)
    with machine_of(tmp_path, store) as machine:
        mend(machine)
        check_mended(store, [2, 4, 6])
