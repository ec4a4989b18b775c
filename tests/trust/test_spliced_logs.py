"""Genuine entries of another log: one with folded state, where readers begin, must not bring a past back."""

from functools import partial

import pytest
from support.commits import Writer
from trust.stage import ONE, READER, TIER, entries, lay, made, read, remembering

from replicate import canonical
from replicate.layout import FOLD_EVERY
from replicate.log import Pin
from replicate.logbook import Logbook, RolledBack
from replicate.signing.anchor import Anchor
from tiers.memory import MemoryStore, MemoryTier

SEEN = 200


def long(serial: int, *sequences: int) -> list[bytes]:
    """Return a signed log of these generations, and of pins to beyond its first folded state."""
    store = MemoryStore()
    writer = Writer(MemoryTier(TIER, store), remote=ONE, serial=serial)
    for sequence in sequences:
        writer.commit(made(sequence))
    pin = partial(writer.append, attempt=1, attempt_id="attempt-1")
    while writer.view.next_slot <= FOLD_EVERY + 2:
        pin(Pin(generation=str(made(sequences[0]).id), reason=""))
    return entries(store)


@pytest.fixture(scope="module")
def logs() -> tuple[list[bytes], list[bytes]]:
    """Return the log of a tier, and an older one of the same run by the same key."""
    return long(0, 1, 5, 6), long(500, 1, 2)


@pytest.mark.parametrize("up_to", [SEEN + 1, FOLD_EVERY - 1, FOLD_EVERY])
def test_the_folded_state_of_another_log_hides_nothing_that_was_seen(
    logs: tuple[list[bytes], list[bytes]], up_to: int
) -> None:
    true, other = logs
    spliced = lay({**dict(enumerate(true[:up_to])), **{slot: other[slot] for slot in range(FOLD_EVERY, len(other))}})
    seen = Anchor(SEEN, canonical.sha256(true[SEEN]))
    assert read(spliced, READER).live[0].id == made(2).id, "nobody who remembers nothing could tell"
    for thorough in (True, False):
        with pytest.raises(RolledBack):
            read(spliced, remembering(READER, seen), thorough=thorough)
    book = Logbook(MemoryTier(TIER, spliced), READER)
    assert not book.holds(book.read(thorough=True), seen), "--expect-anchor asks the same"


def test_the_true_log_still_holds_what_was_seen(logs: tuple[list[bytes], list[bytes]]) -> None:
    true, _ = logs
    for slot in (0, SEEN, FOLD_EVERY - 1, FOLD_EVERY, len(true) - 1):
        seen = Anchor(slot, canonical.sha256(true[slot]))
        view = read(lay(dict(enumerate(true))), remembering(READER, seen))
        assert view.first_slot == FOLD_EVERY
        assert view.live[0].id == made(6).id
