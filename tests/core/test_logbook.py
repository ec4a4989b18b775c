"""Reading and appending over a tier: few requests, the same view from any hint, damage stepped over."""

import pytest
from core.builders import REMOTE, RUN, Machine
from core.logs import LogOnTier, commit, entry, generation, replace_object

from replicate.errors import IntegrityFailure, TrustFailure
from replicate.layout import FOLD_EVERY
from replicate.log import Claim, LogView, Pin, parse_entry
from replicate.logbook import MAX_HEAD_BYTES, Logbook, SlotTaken, check_related, read_small
from tiers.errors import TierUnavailable
from tiers.memory import MemoryStore, MemoryTier
from tiers.metered import Meter, MeteredTier, Usage
from tiers.testing import Action, Fault, FaultyTier, When

LONG = FOLD_EVERY + 44
"""Slots of a log that has passed its first folded state; the last one is LONG - 1."""


@pytest.fixture
def long(store: MemoryStore) -> LogOnTier:
    """Write a claim and so many commits that slot 256 carries the folded state."""
    return LogOnTier(store).write(LONG - 1)


def book(log: LogOnTier) -> Logbook:
    return Logbook(log.tier, REMOTE)


def same_log(view: LogView, wanted: LogView) -> bool:
    """Compare what readers go by; where reading began may differ."""
    return (view.state, view.next_slot, view.last_sha256, view.damaged, view.refused) == (
        wanted.state,
        wanted.next_slot,
        wanted.last_sha256,
        (),
        (),
    )


def reading(log: LogOnTier) -> tuple[LogView, Usage]:
    meter = Meter()
    return Logbook(MeteredTier(log.tier, meter), REMOTE).read(), meter.snapshot()


def test_folded_state_is_on_each_256th_slot(long: LogOnTier) -> None:
    carrying = [
        slot
        for slot in range(LONG)
        if parse_entry(read_small(long.tier, REMOTE.log(slot), 1 << 20), slot=slot, run=RUN).state is not None
    ]
    assert carrying == [256]


def test_reading_begins_at_the_last_folded_state_and_lists_nothing(long: LogOnTier) -> None:
    """A head that lags costs GETs only: the hint, the base twice, the tail, and the slot that is not there."""
    long.head(LONG - 10)
    view, usage = reading(long)
    assert same_log(view, long.view)
    assert view.first_slot == FOLD_EVERY
    assert usage.count("list_objects") == 0
    assert usage.count("open") <= (LONG - FOLD_EVERY) + 3
    assert usage.count() == usage.count("open")


@pytest.mark.parametrize(
    "head",
    [
        None,
        0,
        3,
        255,
        256,
        LONG - 1,
        LONG,
        10**9,
        10**12,
        -1,
        True,
        "7",
        b"",
        b"garbage",
        b"[" * 4000,
        b"[]",
        b'{"slot":' + b"9" * 3000 + b"}",
        b'{"slot":1.5}',
        b"x" * (MAX_HEAD_BYTES + 1),
    ],
)
def test_any_head_gives_the_same_view(long: LogOnTier, head: object) -> None:
    """The hint may be missing, stale, too high, damaged or hostile: it saves requests and decides nothing."""
    if head is not None:
        long.head(head)
    view, usage = reading(long)
    assert same_log(view, long.view)
    trusted = isinstance(head, int) and 0 <= head < LONG
    assert usage.count("list_objects") == (0 if trusted else 1)


def test_empty_log_is_established_by_a_listing(store: MemoryStore) -> None:
    """Only a store that answered may say that there is nothing."""
    log = LogOnTier(store)
    view, usage = reading(log)
    assert (view.state, view.next_slot) == (None, 0)
    assert usage.count("list_objects") == 1
    silent = FaultyTier(log.tier, [Fault(verb="list_objects")])
    with pytest.raises(TierUnavailable):
        Logbook(silent, REMOTE).read()


@pytest.mark.parametrize("verb", ["open"])
def test_tier_that_does_not_answer_is_no_empty_log(long: LogOnTier, verb: str) -> None:
    for nth in (1, 2, 5):
        with pytest.raises(TierUnavailable):
            Logbook(FaultyTier(long.tier, [Fault(verb=verb, nth=nth)]), REMOTE).read()


def test_known_view_costs_one_get_when_nothing_came(long: LogOnTier) -> None:
    meter = Meter()
    tier = MeteredTier(long.tier, meter)
    assert Logbook(tier, REMOTE).read(long.view) == long.view
    assert meter.snapshot().count() == 1


FLIP, CUT, EMPTY, GONE = "flip", "cut", "empty", "gone"


def damage(log: LogOnTier, slot: int, how: str) -> None:
    data = read_small(log.tier, REMOTE.log(slot), 1 << 20)
    found = {FLIP: data[:30] + bytes([data[30] ^ 1]) + data[31:], CUT: data[:-9], EMPTY: b"", GONE: None}[how]
    replace_object(log.tier, REMOTE.log(slot), found)


@pytest.mark.parametrize("how", [FLIP, CUT, EMPTY, GONE])
@pytest.mark.parametrize("slot", [0, 4, 7])
@pytest.mark.parametrize("head", [None, 7])
def test_damaged_slot_is_reported_and_stepped_over(store: MemoryStore, slot: int, how: str, head: int | None) -> None:
    """The others stay readable, also after the only claim, and nothing may be appended.

    A tail that is gone looks like a shorter log: only a tracker that saw it can tell.
    """
    log = LogOnTier(store).write(7)
    if head is not None:
        log.head(head)
    damage(log, slot, how)
    view = book(log).read()
    if how == GONE and slot == 7:
        assert (view.next_slot, view.damaged) == (7, ())
        return
    assert [found.slot for found in view.damaged] == [slot]
    assert view.next_slot == 8
    assert [live.id.sequence for live in view.live] == [n for n in range(7, 0, -1) if n != slot]
    with pytest.raises(IntegrityFailure, match=f"log slot {slot} is damaged") as caught:
        book(log).append(view, entry(8, commit(8), prev=view.last_sha256))
    assert caught.value.hint


@pytest.mark.parametrize("slot", range(4))
def test_bytes_that_flip_on_the_way_are_read_again(store: MemoryStore, slot: int) -> None:
    """One flipped read of a claim once made a daemon believe that it was fenced, for good."""
    log = LogOnTier(store).write(3)
    faulty = FaultyTier(log.tier, [Fault(verb="open", key=REMOTE.log(slot), action=Action.CORRUPT, at=40)])
    assert same_log(Logbook(faulty, REMOTE).read(), log.view)
    faulty.assert_all_fired()


@pytest.mark.parametrize("how", [FLIP, GONE])
def test_damaged_folded_state_is_gone_around(long: LogOnTier, how: str) -> None:
    """The slots before it add up to the same."""
    long.head(LONG - 1)
    damage(long, FOLD_EVERY, how)
    view = book(long).read()
    assert [found.slot for found in view.damaged] == [FOLD_EVERY]
    assert [live.id.sequence for live in view.live] == [n for n in range(LONG - 1, 0, -1) if n != FOLD_EVERY]


def test_damaged_claim_does_not_hide_the_commits_of_its_term(store: MemoryStore) -> None:
    """And proves no term to anybody: nothing may be appended until it was repaired."""
    log = LogOnTier(store).write(2)
    log.add(Claim(writer="two"), term=2)
    log.add(commit(3, term=2), term=2)
    damage(log, 3, FLIP)
    view = book(log).read()
    assert [live.id.sequence for live in view.live] == [3, 2, 1]
    assert view.state is not None
    assert (view.state.term, view.state.claim_nonce) == (2, "")


def test_oversized_slot_is_damage_and_not_the_end_of_reading(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = LogOnTier(store).write(5)
    monkeypatch.setattr("replicate.logbook.MAX_ENTRY_BYTES", 2000)
    monkeypatch.setattr("replicate.log.MAX_ENTRY_BYTES", 2000)
    replace_object(log.tier, REMOTE.log(3), b"x" * 5000)
    view = book(log).read()
    assert [found.slot for found in view.damaged] == [3]
    assert [live.id.sequence for live in view.live] == [5, 4, 2, 1]


def test_entry_that_does_not_follow_is_reported(store: MemoryStore) -> None:
    """A slot that was rewritten with a valid entry of its own: the chain tells."""
    log = LogOnTier(store).write(5)
    replace_object(log.tier, REMOTE.log(3), entry(3, commit(99)).encode())
    view = book(log).read()
    assert [found.slot for found in view.damaged] == [3]
    assert "does not follow" in view.damaged[0].reason


def test_entry_copied_to_another_slot_is_damage(store: MemoryStore) -> None:
    log = LogOnTier(store).write(5)
    replace_object(log.tier, REMOTE.log(3), read_small(log.tier, REMOTE.log(2), 1 << 20))
    view = book(log).read()
    assert "moved or copied" in view.damaged[0].reason
    assert [live.id.sequence for live in view.live] == [5, 4, 2, 1]


def next_entry(log: LogOnTier, sequence: int) -> tuple[LogView, bytes]:
    made = entry(log.view.next_slot, commit(sequence), prev=log.view.last_sha256)
    view = book(log).append(log.view, made)
    return view, made.encode()


def test_append_reads_back_what_it_wrote(store: MemoryStore) -> None:
    log = LogOnTier(store).write(2)
    view, data = next_entry(log, 3)
    assert view.next_slot == 4
    assert read_small(log.tier, REMOTE.log(3), 1 << 20) == data
    assert same_log(book(log).read(), view)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(verb="create", action=Action.LOST_REPLY),
        Fault(verb="create", when=When.AFTER),
    ],
)
def test_lost_reply_of_a_create_is_settled_by_reading(store: MemoryStore, fault: Fault) -> None:
    log = LogOnTier(store).write(2)
    faulty = FaultyTier(log.tier, [fault])
    made = entry(3, commit(3), prev=log.view.last_sha256)
    assert Logbook(faulty, REMOTE).append(log.view, made).next_slot == 4
    faulty.assert_all_fired()


def test_create_that_did_not_happen_is_no_success(store: MemoryStore) -> None:
    log = LogOnTier(store).write(2)
    made = entry(3, commit(3), prev=log.view.last_sha256)
    with pytest.raises(TierUnavailable):
        Logbook(FaultyTier(log.tier, [Fault(verb="create")]), REMOTE).append(log.view, made)


def test_slot_of_another_is_told_and_left_alone(store: MemoryStore) -> None:
    log = LogOnTier(store).write(2)
    behind = log.view
    theirs = log.add(Pin(generation=str(generation(1)), reason="paper")).encode()
    with pytest.raises(SlotTaken):
        book(log).append(behind, entry(3, commit(3), prev=behind.last_sha256, nonce="mine"))
    assert read_small(log.tier, REMOTE.log(3), 1 << 20) == theirs


def test_store_that_stores_other_bytes_is_noticed(store: MemoryStore) -> None:
    """What comes back is compared, not assumed."""
    log = LogOnTier(store).write(2)
    faulty = FaultyTier(log.tier, [Fault(verb="create", action=Action.CORRUPT, at=30)])
    with pytest.raises(SlotTaken):
        Logbook(faulty, REMOTE).append(log.view, entry(3, commit(3), prev=log.view.last_sha256))


def test_small_reads_are_bounded(store: MemoryStore) -> None:
    tier = MemoryTier("remote", store)
    tier.create(REMOTE.head, b"x" * 11)
    assert read_small(tier, REMOTE.head, 11) == b"x" * 11
    with pytest.raises(IntegrityFailure, match="larger"):
        read_small(tier, REMOTE.head, 10)


def test_unrelated_log_is_refused(store: MemoryStore) -> None:
    log = LogOnTier(store).write(1)
    check_related(LogView(state=None), "any", "remote")
    with pytest.raises(TrustFailure, match="another run"):
        check_related(log.view, "another", "remote")


def test_rollback_of_the_log_is_noticed_against_what_the_tracker_saw(machine: Machine, store: MemoryStore) -> None:
    """A shorter log, an emptied bucket, and another log of the same length."""
    log = LogOnTier(store).write(3)
    machine.replication.log.refresh(machine.descent)
    kept = {slot: read_small(log.tier, REMOTE.log(slot), 1 << 20) for slot in range(4)}
    other = entry(3, commit(3, nonce="other"), prev=parse_prev(kept[3])).encode()
    for slots in ([0, 1, 2], [0], []):
        for slot in range(4):
            replace_object(log.tier, REMOTE.log(slot), kept[slot] if slot in slots else None)
        machine.start()
        with pytest.raises(TrustFailure, match="rolled back"):
            machine.replication.log.refresh(machine.descent)
    for slot in range(4):
        replace_object(log.tier, REMOTE.log(slot), kept[slot] if slot < 3 else other)
    machine.start()
    with pytest.raises(TrustFailure, match="rolled back"):
        machine.replication.log.refresh(machine.descent)
    replace_object(log.tier, REMOTE.log(3), kept[3])
    machine.start()
    assert machine.replication.log.refresh(machine.descent).next_slot == 4


def parse_prev(data: bytes) -> str:
    return parse_entry(data, slot=3, run=RUN).prev


def test_log_that_went_on_is_no_rollback(machine: Machine, store: MemoryStore) -> None:
    log = LogOnTier(store).write(3)
    machine.replication.log.refresh(machine.descent)
    log.add(commit(4))
    machine.start()
    assert machine.replication.log.refresh(machine.descent).next_slot == 5
    assert len(machine.tracker.completed("remote")) == 4
