"""One log entry: its bytes, and whether bytes are one."""

from typing import Literal

from replicate import canonical
from replicate.errors import IntegrityFailure
from replicate.layout import FOLD_EVERY
from replicate.log.bodies import Body
from replicate.log.state import LogState
from replicate.manifest import Count, Record, Sha256, Text, parse
from replicate.signing.lines import Lines, split

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
        """Return the exact bytes of the entry, unsigned: two lines."""
        line = canonical.dump(self.model_dump(mode="json", exclude_none=False))
        return line + b"\n" + canonical.sha256(line).encode() + b"\n"


def parse_entry(data: bytes, *, slot: int, run: str) -> Entry:
    """Read an entry and check that it belongs to this run and slot; raises IntegrityFailure.

    Whether its signature, if it has one, is anybody's that counts: replicate.log.admission.
    """
    return parse_lines(take_apart(data, slot=slot), slot=slot, run=run)


def take_apart(data: bytes, *, slot: int) -> Lines:
    """Split the bytes of an entry into lines, none of which is parsed; raises IntegrityFailure."""
    if len(data) > MAX_ENTRY_BYTES:
        raise IntegrityFailure(f"log entry {slot} has {len(data)} bytes")
    return split(data, what=f"log entry {slot}")


def parse_lines(lines: Lines, *, slot: int, run: str) -> Entry:
    """Read the first two lines of an entry and check that it belongs to this run and slot; raises IntegrityFailure."""
    what = f"log entry {slot}"
    if lines.digest != canonical.sha256(lines.content).encode():
        raise IntegrityFailure(f"{what} is damaged: its second line is not the digest of its first")
    entry = parse(Entry, lines.content, what=what, max_bytes=MAX_ENTRY_BYTES)
    if (entry.slot, entry.run) != (slot, run):
        raise IntegrityFailure(f"{what} was written for slot {entry.slot} of run {entry.run!r}: it was moved or copied")
    if (entry.slot % FOLD_EVERY == 0 and entry.slot > 0) != (entry.state is not None):
        raise IntegrityFailure(f"{what} carries the folded state where it should not, or lacks it")
    return entry
