"""Log entries from before the folded state: nobody needs them while that can be read, and then nothing else will do."""

import threading
from collections.abc import Iterable
from functools import partial

from replicate import canonical
from replicate.errors import IntegrityFailure
from replicate.log import NO_ENTRY, LogView, Void
from replicate.logbook import Logbook
from replicate.verify.crew import Job, work_through
from tiers.errors import IntegrityError, ObjectNotFound


def early_faults(book: Logbook, view: LogView, workers: int) -> tuple[str, ...]:
    """Read the entries that the view began after, and return what is wrong with them; raises TierError."""
    if not view.first_slot:
        return ()
    early = _Early(book)
    work_through((partial(early.read, slot) for slot in range(view.first_slot + 1)), workers)
    told = f"slot {view.first_slot} has what it came to"
    return tuple(f"log slot {slot}: {words}; {told}" for slot, words in sorted(early.faults().items()))


class _Early:
    """What each entry is, and what it says is before it."""

    def __init__(self, book: Logbook) -> None:
        self._book = book
        self._digests: dict[int, str] = {-1: NO_ENTRY}
        self._before: dict[int, str] = {}
        self._wrong: dict[int, str] = {}
        self._given_up: set[int] = set()
        self._lock = threading.Lock()

    def read(self, slot: int) -> Iterable[Job]:
        """Read one entry."""
        try:
            entry, data = self._book.entry(slot)
        except ObjectNotFound:
            self._wrong[slot] = "the entry is missing"
        except (IntegrityError, IntegrityFailure) as error:
            self._wrong[slot] = error.message
        else:
            with self._lock:
                self._before[slot], self._digests[slot] = entry.prev, canonical.sha256(data)
                if isinstance(entry.body, Void):
                    self._given_up.add(entry.body.slot)
        return ()

    def faults(self) -> dict[int, str]:
        """Return what is wrong by slot, but for slots that a repair gave up; who comes after those is believed."""
        loose = {
            slot: "it does not follow the entry before it"
            for slot, before in self._before.items()
            if slot - 1 not in self._given_up and self._digests.get(slot - 1, before) != before
        }
        return {slot: words for slot, words in (self._wrong | loose).items() if slot not in self._given_up}
