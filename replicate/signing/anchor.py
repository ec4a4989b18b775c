"""An anchor: one slot of a log and the SHA-256 of its entry, which chains back to everything before it."""

import re
from dataclasses import dataclass
from typing import Self

from replicate.errors import UsageError

_ANCHOR = re.compile(r"(0|[1-9][0-9]{0,11}):([0-9a-f]{64})")


@dataclass(frozen=True, slots=True)
class Anchor:
    """``SLOT:SHA256``.  Who knows one from elsewhere knows that the log was at least this long, and what it said."""

    slot: int
    sha256: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``SLOT:SHA256``; raises UsageError."""
        match = _ANCHOR.fullmatch(text)
        if match is None:
            raise UsageError(
                f"{text[:80]!r} is not an anchor: a slot, a colon and 64 hex digits",
                hint="`ckptier explain` and `ckptier status --json` show the anchor of each tier",
            )
        return cls(int(match[1]), match[2])

    def __str__(self) -> str:
        return f"{self.slot}:{self.sha256}"
