"""What reading a log asks for, at every length and hint: the reader itself is the judge."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from core.builders import REMOTE, RUN_UID

from replicate import canonical
from replicate.asked import PAGE, Asked, Requests, pages
from replicate.layout import FOLD_EVERY
from replicate.log import Claim, Commit, Entry, LogView, Pin
from replicate.logappender import HEAD_EVERY, head_due
from replicate.logbook import Logbook
from replicate.requests import LogPosition, head_bytes, log_requests
from tiers.bodies import BytesBody
from tiers.memory import MemoryStore, MemoryTier
from tiers.metered import Meter, MeteredTier
from tiers.protocol import Tier
from tiers.volume import VolumeTier

LENGTHS = (1, 2, 16, 255, 256, 257, 258, 511, 512, 513, 1000, 1001, 1030)

GENERATION = "a0001-g000001-u000000000001-00000000"
PIN = Pin(generation=GENERATION, reason="")
COMMIT = Commit(
    generation=GENERATION,
    parent=None,
    manifest_key=f"flow/generations/{GENERATION}.t1-n/manifest.json",
    manifest_size=1,
    manifest_sha256="0" * 64,
    total_bytes=0,
    objects=0,
)


def entry(view: LogView) -> Entry:
    """Return the next entry of a log that claims, commits once and pins."""
    slot = view.next_slot
    folded = slot > 0 and slot % FOLD_EVERY == 0
    return Entry(
        format=1,
        run=REMOTE.run,
        run_uid=RUN_UID,
        slot=slot,
        term=1,
        attempt=1,
        attempt_id="one",
        prev=view.last_sha256,
        nonce=f"{slot:016x}",
        at="2026-01-01T00:00:00.000Z",
        body=(Claim(writer="w"), COMMIT, PIN)[min(slot, 2)],
        state=view.state if folded else None,
    )


def grown(tier: Tier) -> Iterator[LogView]:
    """Yield the view of the log at each of the lengths."""
    book, view = Logbook(tier, REMOTE), LogView(state=None)
    for length in LENGTHS:
        while view.next_slot < length:
            view = book.append(view, entry(view))
        yield view


def asked(tier: Tier, known: LogView | None = None) -> Requests:
    """Return what the reader asks for, without bytes."""
    meter = Meter()
    Logbook(MeteredTier(tier, meter), REMOTE).read(known)
    counts = meter.snapshot().requests
    return Requests.of(Asked(verb=verb, outcome=outcome, count=count) for (verb, outcome), count in counts.items())


def check(position: LogPosition, found: Requests) -> None:
    assert dict(log_requests(position).usage.requests) == dict(found.usage.requests), position


def test_every_length_and_hint() -> None:
    """Around folded slots and full pages of a listing."""
    with closing(MemoryTier("m", MemoryStore())) as tier:
        check(LogPosition(), asked(tier))
        for view in grown(tier):
            length = view.next_slot
            tier.delete(REMOTE.head)
            check(LogPosition(next_slot=length), asked(tier))
            check(LogPosition(next_slot=length, read_to=length), asked(tier, view))
            for head in {0, length // 2, max(0, length - HEAD_EVERY), length - 1}:
                data = canonical.dump({"format": 1, "slot": head}) + b"\n"
                assert len(data) == head_bytes(head)
                tier.put(REMOTE.head, BytesBody(data))
                check(LogPosition(next_slot=length, head=head), asked(tier))


def test_a_volume_gives_the_same_pages(tmp_path: Path) -> None:
    with closing(VolumeTier("v", tmp_path)) as tier:
        book, view = Logbook(tier, REMOTE), LogView(state=None)
        for _ in range(3):
            view = book.append(view, entry(view))
        check(LogPosition(next_slot=3), asked(tier))


@pytest.mark.parametrize(("entries", "count"), [(0, 1), (1, 1), (PAGE, 1), (PAGE + 1, 2), (3 * PAGE, 3)])
def test_pages(entries: int, count: int) -> None:
    assert pages(entries) == count


def test_the_hint_is_due_every_sixteenth_slot_and_at_a_process_s_first() -> None:
    written: int | None = None
    rewritten = []
    for slot in range(1, 40):
        if head_due(slot, written):
            written = slot
            rewritten.append(slot)
    assert rewritten == [1, 17, 33]
