"""One log entry: its bytes, and whether bytes are one."""

from typing import Literal

from replicate import canonical
from replicate.errors import IntegrityFailure
from replicate.layout import FOLD_EVERY
from replicate.log.bodies import Body
from replicate.log.state import LogState
from replicate.manifest import Count, Record, Sha256, Text, parse

MAX_ENTRY_BYTES = 32 * 1024 * 1024
NO_ENTRY = "0" * 64
"""``prev`` of slot 0."""


class Entry(Record):
    """One log entry.  ``state`` is the folded state before this slot, on every 256th slot."""

    format: Literal[1]
    run: str
    run_uid: str
    slot: Count
    term: Count
    attempt: Count
    attempt_id: str
    prev: Sha256
    nonce: str
    at: Text
    body: Body
    state: LogState | None = None

    def encode(self) -> bytes:
        """Return the exact bytes of the entry."""
        line = canonical.dump(self.model_dump(mode="json", exclude_none=False))
        return line + b"\n" + canonical.sha256(line).encode() + b"\n"


def parse_entry(data: bytes, *, slot: int, run: str) -> Entry:
    """Read an entry and check that it belongs to this run and slot; raises IntegrityFailure."""
    what = f"log entry {slot}"
    if len(data) > MAX_ENTRY_BYTES:
        raise IntegrityFailure(f"{what} has {len(data)} bytes")
    lines = data.split(b"\n")
    if len(lines) != 3 or lines[2] or lines[1] != canonical.sha256(lines[0]).encode():  # noqa: PLR2004 - two lines, each ended
        raise IntegrityFailure(f"{what} is damaged: its second line is not the digest of its first")
    entry = parse(Entry, lines[0], what=what, max_bytes=MAX_ENTRY_BYTES)
    if (entry.slot, entry.run) != (slot, run):
        raise IntegrityFailure(f"{what} was written for slot {entry.slot} of run {entry.run!r}: it was moved or copied")
    if (entry.slot % FOLD_EVERY == 0 and entry.slot > 0) != (entry.state is not None):
        raise IntegrityFailure(f"{what} carries the folded state where it should not, or lacks it")
    return entry
