"""Whoever interferes: other writers between two requests, and processes that die at a chosen effect."""

from collections.abc import Callable

import pytest
from core.builders import FIRST, REMOTE, LocalSource, Machine, RecordingTier

from replicate.log import Claim, Entry, Pin
from replicate.logbook import Logbook
from replicate.terms import Descent
from tiers.effects import Effect, Moment, observing
from tiers.memory import MemoryStore, MemoryTier
from tiers.protocol import Key, ObjectInfo

COMMIT = "*/log/00000000000[1-9].json"
"""The slots after the first claim."""


class Intruder(RecordingTier):
    """Lets somebody else write right before one create."""

    def __init__(self, inner: MemoryTier, slot: int, act: Callable[[], object]) -> None:
        super().__init__(inner)
        self.slot = slot
        self.act = act
        self.done = False

    def create(self, key: Key, data: bytes) -> ObjectInfo:
        if key == REMOTE.log(self.slot) and not self.done:
            self.done = True
            self.act()
        return super().create(key, data)


def intrude(machine: Machine, slot: int, act: Callable[[], object]) -> None:
    machine.recorder = Intruder(MemoryTier("remote", machine.store), slot, act)
    machine.schedule()


def add_entry(store: MemoryStore, body: Claim | Pin, descent: Descent = FIRST, *, term: int = 1) -> None:
    """Write as some other program would."""
    book = Logbook(MemoryTier("intruder", store), REMOTE)
    view = book.read()
    made = Entry(
        format=1,
        run=REMOTE.run,
        run_uid=descent.run_uid,
        slot=view.next_slot,
        term=term,
        attempt=descent.attempt,
        attempt_id=descent.attempt_id,
        prev=view.last_sha256,
        nonce="intruder",
        at="2026-01-01T00:00:00.000Z",
        body=body,
    )
    book.append(view, made)


def crash_at(machine: Machine, source: LocalSource, where: Callable[[Effect, str, Moment], bool]) -> None:
    """Run a pass that dies where told, and start again as a new process."""

    def die(effect: Effect, what: str, moment: Moment) -> None:
        if where(effect, what, moment):
            raise KeyboardInterrupt(what)

    with observing(die), pytest.raises(KeyboardInterrupt):
        machine.run(source)
    machine.start()
