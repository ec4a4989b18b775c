"""The log of one run on one tier: its entries, and what they add up to.

An entry is two lines: canonical JSON, and the SHA-256 of that line.  Entries are
created once, numbered without gaps from 0, chained by ``prev`` (the SHA-256 of the
whole previous entry) and never deleted.  A commit entry is what makes a remote
generation exist.  Folding is pure; reading from a tier is in replicate.logbook.
"""

from replicate.log.bodies import Body, Claim, Commit, Pin, Retire, Unpin, Void
from replicate.log.entry import MAX_ENTRY_BYTES, NO_ENTRY, Entry, parse_entry
from replicate.log.folding import Verdict, fold
from replicate.log.state import Attempt, LiveCommit, LogState, Retired
from replicate.log.view import Damage, LogView

__all__ = [
    "MAX_ENTRY_BYTES",
    "NO_ENTRY",
    "Attempt",
    "Body",
    "Claim",
    "Commit",
    "Damage",
    "Entry",
    "LiveCommit",
    "LogState",
    "LogView",
    "Pin",
    "Retire",
    "Retired",
    "Unpin",
    "Verdict",
    "Void",
    "fold",
    "parse_entry",
]
