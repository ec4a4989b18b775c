"""Whether bytes found in a slot count: their size, then who signed them, and only then what they say."""

from collections.abc import Callable

from replicate import canonical
from replicate.errors import IntegrityFailure
from replicate.log.entry import Entry, parse_entry, parse_lines, take_apart
from replicate.signing.anchor import Anchor
from replicate.signing.trust import LogTrust, NotTrusted
from tiers.errors import ObjectNotFound

Read = Callable[[int], bytes]
"""Reads a slot, up to one byte more than an entry may have; raises ObjectNotFound."""


class Admission:
    """Judges the entries of one run's log on one tier.

    Entries at or below an anchor count by their digest: the anchor gives that of its own slot, and each
    entry that of the one before it.  Finding those out reads that part of the log once more, backwards.
    """

    def __init__(self, trust: LogTrust, *, tier: str, run: str, read: Read) -> None:
        self._trust = trust
        self._tier = tier
        self._run = run
        self._read = read
        self._digests: dict[int, str] = {}
        self._walked_to: int | None = None

    @property
    def rooted(self) -> bool:
        """Whether there is a trust root."""
        return self._trust.keyring is not None

    def admit(self, data: bytes, *, slot: int) -> Entry:
        """Return the entry of a slot; raises IntegrityFailure, NotTrusted where nobody who counts vouches for it."""
        lines = take_apart(data, slot=slot)
        refusal = self._trust.refusal(lines, tier=self._tier, slot=slot, pinned=lambda: self._pinned(slot, data))
        if refusal is not None:
            raise NotTrusted(
                f"log entry {slot}: {refusal}",
                hint="somebody else may write there: find out who before going on; "
                "`ckptier keys adopt` pins what was written before signing began",
            )
        return parse_lines(lines, slot=slot, run=self._run)

    def _pinned(self, slot: int, data: bytes) -> bool:
        """Whether this is the entry that leads to an anchor."""
        if self._walked_to is None or slot < self._walked_to:
            for anchor in self._trust.anchors(self._tier):
                self._walk(anchor, slot)
            self._walked_to = slot
        return self._digests.get(slot) == canonical.sha256(data)

    def _walk(self, anchor: Anchor, down_to: int) -> None:
        """Note the digest that each slot has to have, from an anchor back to ``down_to`` or the chain's break."""
        slot, expected = anchor.slot, anchor.sha256
        while slot >= down_to:
            known = self._digests.setdefault(slot, expected)
            if known != expected:
                return  # two anchors that contradict each other: the further one counts
            prev = self._digests.get(slot - 1) or self._previous(slot, expected)
            if prev is None:
                return
            slot, expected = slot - 1, prev

    def _previous(self, slot: int, expected: str) -> str | None:
        """Return the digest that an entry gives for the one before it; None where it is not the expected entry."""
        for _ in range(2):  # bytes that flipped on the way must not break the chain
            try:
                data = self._read(slot)
                if canonical.sha256(data) == expected:
                    return parse_entry(data, slot=slot, run=self._run).prev
            except (ObjectNotFound, IntegrityFailure):
                continue
        return None
