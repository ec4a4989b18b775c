"""Logs in memory whose slots are hurt behind everybody's back, and what must be true of them after a repair."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from core.builders import FIRST, REMOTE, RUN, SECOND, Machine
from core.logs import commit, generation

from replicate.layout import GenerationId
from replicate.log import NO_ENTRY, Body, Claim, Entry, LogView, Pin, Retire, parse_entry
from replicate.logappender import LogAppender
from replicate.logbook import Logbook
from replicate.mending.logmending import LogMender
from replicate.mending.steps import Step
from replicate.terms import Descent
from tiers.bodies import BytesBody
from tiers.memory import MemoryStore, MemoryTier
from tiers.protocol import Key
from tiers.testing import ManualClock, read_all

Said = tuple[int, Descent, Body]
"""An entry's term, whose it is, and what it says."""


def retire(sequence: int, *, attempt: int = 1, term: int = 1) -> Retire:
    return Retire(
        generation=str(generation(sequence, attempt)),
        manifest_key=commit(sequence, term=term, attempt=attempt).manifest_key,
        reason="by hand",
    )


SCRIPT: Sequence[Said] = (
    (1, FIRST, Claim(writer="one")),
    (1, FIRST, commit(1)),
    (1, FIRST, commit(2)),
    (1, FIRST, Pin(generation=str(generation(2)), reason="")),
    (1, FIRST, commit(3)),
    (1, FIRST, retire(1)),
    (2, SECOND, Claim(writer="two", start=str(generation(3)))),
    (2, SECOND, commit(4, term=2, attempt=2)),
    (2, SECOND, commit(5, term=2, attempt=2)),
    (2, SECOND, retire(3)),
    (2, SECOND, commit(6, term=2, attempt=2)),
)
"""Two attempts; what stays of it are generations 2, 4, 5 and 6."""


def written(store: MemoryStore, said: Iterable[Said]) -> None:
    """Write a log as its writers would have."""
    tier = MemoryTier("hand", store)
    log = LogAppender(tier=tier, remote=REMOTE, clock=ManualClock(), view=Logbook(tier, REMOTE).read())
    for term, descent, body in said:
        assert log.append(log.entry(descent, term, body))


def of(store: MemoryStore) -> MemoryTier:
    return MemoryTier("reader", store)


def data_at(store: MemoryStore, slot: int) -> bytes:
    return read_all(of(store).open(REMOTE.log(slot)))


def put(store: MemoryStore, slot: int, data: bytes) -> None:
    """Let other bytes stand in a slot."""
    tier = of(store)
    tier.delete(REMOTE.log(slot))
    tier.put(REMOTE.log(slot), BytesBody(data))


def flip(store: MemoryStore, slot: int) -> None:
    data = data_at(store, slot)
    put(store, slot, data[:40] + bytes([data[40] ^ 1]) + data[41:])


def cut(store: MemoryStore, slot: int) -> None:
    put(store, slot, data_at(store, slot)[:-70])


def lose(store: MemoryStore, slot: int) -> None:
    of(store).delete(REMOTE.log(slot))


def unreadable(store: MemoryStore, slot: int) -> bool:
    try:
        parse_entry(data_at(store, slot), slot=slot, run=RUN)
    except Exception:  # noqa: BLE001 - missing or damaged, whatever says so
        return True
    return False


def view_of(store: MemoryStore) -> LogView:
    """Read the log as somebody new does, from its listing."""
    return Logbook(of(store), REMOTE).read(thorough=True)


def live_of(view: LogView) -> list[int]:
    return sorted(one.id.sequence for one in view.live)


def still_said(store: MemoryStore, script: Sequence[Said]) -> list[int]:
    """Return what the entries that can be read add up to: their commits, without their retirements."""
    live: set[str] = set()
    for slot, (_, _, body) in enumerate(script):
        if unreadable(store, slot):
            continue
        if body.kind == "commit":
            live.add(body.generation)
        elif body.kind == "retire":
            live.discard(body.generation)
    return sorted(GenerationId.parse(one).sequence for one in live)


@contextmanager
def machine_of(folder: Path, store: MemoryStore, descent: Descent = SECOND) -> Iterator[Machine]:
    machine = Machine(folder, store, descent=descent, writer="repairer")
    yield machine
    machine.tracker.close()


def mend(machine: Machine, *, again: bool = True) -> tuple[Step, ...]:
    """Mend the log, as a new process unless ``again`` is False."""
    if again:
        machine.start()
    log = machine.replication.log
    log.look(machine.descent)
    done = LogMender(log=log, descent=machine.descent).mend()
    log.reconcile()
    return done


def check_mended(store: MemoryStore, expected: list[int]) -> None:
    """Check that every reader, wherever it begins, sees the same sound log, and that it can be appended to."""
    whole = view_of(store)
    assert whole.damaged == ()
    assert live_of(whole) == expected
    assert chain_of(store) == list(range(whole.next_slot))
    for hint in {0, whole.next_slot // 2, whole.next_slot - 1}:
        of(store).put(REMOTE.head, BytesBody(b'{"format":1,"slot":%d}\n' % hint))
        seen = Logbook(of(store), REMOTE).read()
        assert (seen.damaged, seen.state) == ((), whole.state), f"a reader whose hint is {hint}"
    state = whole.state
    assert state is not None
    pin = Pin(generation=str(generation(2)), reason="goes on")
    written(store, [(state.term, FIRST, pin)])
    assert view_of(store).damaged == ()


def chain_of(store: MemoryStore) -> list[int]:
    """Return the slots that are there."""
    found = [REMOTE.slot(Key(key)) for key in store.objects]
    return sorted(slot for slot in found if slot is not None)


def late_entry(slot: int, prev: str = NO_ENTRY) -> Entry:
    """Return what a stalled writer of term 1 has on its way to a slot."""
    body = commit(9)
    return Entry(
        format=1,
        run=RUN,
        run_uid=FIRST.run_uid,
        slot=slot,
        term=1,
        attempt=FIRST.attempt,
        attempt_id=FIRST.attempt_id,
        prev=prev,
        nonce="late",
        at="2026-01-01T00:00:00.000Z",
        body=body,
    )
