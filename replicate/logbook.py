"""Reading and appending the log over a tier.

Reading starts at the last slot with folded state that ``head.json`` hints at, and
follows the tail by GETs until a slot is not there; a LIST is only the fallback for a
hint that is missing or wrong.  Damaged slots are reported and stepped over.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from itertools import islice

from replicate import canonical
from replicate.errors import CkptierError, IntegrityFailure, TrustFailure
from replicate.layout import FOLD_EVERY, RemoteRun
from replicate.log import MAX_ENTRY_BYTES, Damage, Entry, LogView
from replicate.log.admission import Admission
from replicate.signing.anchor import Anchor
from replicate.signing.trust import NotTrusted
from tiers.bodies import BytesBody
from tiers.errors import ObjectExists, ObjectNotFound, TierError, TierUnavailable
from tiers.protocol import Key, ObjectInfo, Tier, walk

MAX_HEAD_BYTES = 4096
MAX_SLOT = 10**12
"""A slot has twelve digits in its key."""
MAX_TAIL = 65_536
"""Entries that are followed beyond a folded one: 256 in good order, more only where no hint was ever written."""
MAX_LISTED = 2_000_000
MAX_LOST = 10_000
"""Missing or damaged slots that are stepped over; a slot further off was put there to keep readers busy."""


def read_small(tier: Tier, key: Key, max_bytes: int) -> bytes:
    """Read a whole small object; IntegrityFailure where it is larger than it may be."""
    data = _read_up_to(tier, key, max_bytes + 1)
    if len(data) > max_bytes:
        raise IntegrityFailure(f"{key} is larger than the {max_bytes} bytes that it may have")
    return data


def _read_up_to(tier: Tier, key: Key, limit: int) -> bytes:
    """Read an object to its end or to ``limit`` bytes; a raw stream may give less than it is asked for."""
    data = bytearray()
    with tier.open(key) as stream:
        while len(data) < limit and (piece := stream.read(limit - len(data))):
            data += piece
    return bytes(data)


class Logbook:
    """The log of one run on one tier."""

    def __init__(self, tier: Tier, remote: RemoteRun) -> None:
        self.tier = tier
        self.remote = remote
        self._admission = Admission(remote.trust, tier=tier.name, run=remote.run, read=self._bytes)
        self._digests: dict[int, str] = {}

    def read(self, known: LogView | None = None, *, thorough: bool = False) -> LogView:
        """Return the log as it stands; with ``known``, only what came since is asked for.

        The tail ends at the first slot that is not there.  ``thorough`` lists as well, so that
        a lost entry cannot hide those after it: what a restore does, since it decides once.

        Raises TierError where the tier does not answer, RolledBack where the log is not the one that this
        machine has seen, and TrustFailure where it is of another run than the trust root says.  An empty log is
        a view whose state is None and next_slot 0, which only a listing that answered can establish.
        """
        if known is not None and not known.damaged:
            view = self._follow(known)
            if not view.disputed:
                return view
        remembered = self.remote.memory(self.tier.name)  # before the log, which grows meanwhile
        view = self._read_anew(thorough=thorough)
        if view.disputed:
            given_up = self._come_back(view)
            view = replace(self._read_anew(given_up, thorough=thorough) if given_up else view, disputed=())
        self._check_run(view)
        if remembered is not None and self.contradicts(view, remembered):
            raise RolledBack(self.tier.name, view, remembered)
        return view

    def holds(self, view: LogView, anchor: Anchor) -> bool:
        """Whether the log as viewed goes as far as an anchor and has that very entry there, undamaged.

        With a trust root, what it is read from has to follow from the anchor: a signed entry with folded state is
        genuine in the log of another tier too, and in an earlier one of the same run.
        """
        if anchor.slot >= view.next_slot or _is_hurt(view, anchor.slot):
            return False
        if anchor.slot == view.next_slot - 1:
            return anchor.sha256 == view.last_sha256
        try:
            found = self._digests.get(anchor.slot) or canonical.sha256(self.entry(anchor.slot)[1])
        except (ObjectNotFound, IntegrityFailure):
            return False
        return found == anchor.sha256 and (not self._admission.rooted or self._leads_to(view.first_slot, anchor))

    def _leads_to(self, slot: int, anchor: Anchor) -> bool:
        """Whether the entry in a slot goes back to an anchor before it, entry by entry."""
        try:
            expected = self.entry(slot)[0].prev if slot > anchor.slot else anchor.sha256
            for before in range(slot - 1, anchor.slot, -1):
                entry, data = self.entry(before)
                if canonical.sha256(data) != expected:
                    return False
                expected = entry.prev
        except (ObjectNotFound, IntegrityFailure):
            return False
        return expected == anchor.sha256

    def contradicts(self, view: LogView, seen: Anchor) -> bool:
        """Whether the log as viewed is not the one of which an entry was seen; damage there is told as such."""
        return not _is_hurt(view, seen.slot) and not self.holds(view, seen)

    def _check_run(self, view: LogView) -> None:
        wanted, state = self.remote.trust.run_uid, view.state
        if wanted is not None and state is not None and state.founded and state.run_uid != wanted:
            raise TrustFailure(
                f"{self.tier.name}: the log is that of run {state.run_uid}, and the trust root is for run {wanted}",
                hint="an older run of this name was put back, or `run_uid` under [trust] is out of date",
            )

    def _come_back(self, view: LogView) -> frozenset[int]:
        """Return the slots that a repair gave up as damaged, and in which other bytes stand by now."""
        return frozenset(slot for slot, due in view.disputed if self.digest(slot) != due)

    def _read_anew(self, given_up: frozenset[int] = frozenset(), *, thorough: bool) -> LogView:
        hint = self._hint()
        if hint is not None:
            try:
                view = self._from_base(hint, given_up)
            except Endless:
                view = None  # a hint that could never be rewritten is as far off as that: the listing tells
            if view is not None and view.next_slot > hint:
                # Claims alone could be all that one lost entry leaves to be seen: only a listing tells.
                sure = not thorough and view.state is not None and view.state.founded
                return view if sure else self._past_gaps(view, self._listed())
        return self._by_listing(given_up)

    def entry(self, slot: int) -> tuple[Entry, bytes]:
        """Read and check one entry; raises ObjectNotFound or IntegrityFailure."""
        data = read_small(self.tier, self.remote.log(slot), MAX_ENTRY_BYTES)
        return self._admission.admit(data, slot=slot), data

    def digest(self, slot: int) -> str:
        """Return the digest of whatever stands in a slot; raises ObjectNotFound."""
        return canonical.sha256(self._bytes(slot))

    def _bytes(self, slot: int) -> bytes:
        return _read_up_to(self.tier, self.remote.log(slot), MAX_ENTRY_BYTES + 1)

    def append(self, view: LogView, entry: Entry, *, mending: bool = False) -> LogView:
        """Create ``entry`` in the next slot and read it back; returns the view after it.

        Raises SlotTaken where another entry stands there: the caller reads on and decides
        again.  A lost reply, a conflict or a 5xx is resolved by reading the slot, never by
        believing the status code.  Only a repair, ``mending``, appends to a damaged log.
        """
        if not mending:
            self.refuse_damaged(view)
        return view.extended(entry, self.write(entry))

    def refuse_damaged(self, view: LogView) -> None:
        """Raise where nothing may be appended: TrustFailure or IntegrityFailure."""
        untrusted = next((damage for damage in view.damaged if not damage.trusted), None)
        if untrusted is not None:
            raise TrustFailure(
                f"{self.tier.name}: {untrusted.reason}: nothing is appended",
                hint="somebody else may write there, or keys have changed: `ckptier explain` says who could, "
                "and `ckptier keys adopt` pins what was written before signing began",
            )
        if view.damaged:
            raise IntegrityFailure(
                f"{self.tier.name}: {name_slots([one.slot for one in view.damaged])} damaged, so nothing is appended",
                hint="what is intact can still be restored; "
                f"`ckptier repair --tier {self.tier.name}` says how the log can go on",
            )

    def write(self, entry: Entry) -> bytes:
        """Create ``entry`` in its own slot and read it back; returns its bytes.  Raises as ``append`` does."""
        data = self.remote.trust.seal(entry.encode(), tier=self.tier.name, slot=entry.slot)
        key = self.remote.log(entry.slot)
        unclear: TierError | None = None
        try:
            self.tier.create(key, data)
        except ObjectExists:
            pass
        except TierUnavailable as error:
            unclear = error
        try:
            found = read_small(self.tier, key, MAX_ENTRY_BYTES)
        except ObjectNotFound:
            if unclear is not None:
                raise unclear from None
            raise TierUnavailable(
                "a log entry that was accepted could not be read back",
                tier=self.tier.name,
                operation="create",
                key=key,
                hint="the store may be losing writes: run `ckptier check` before trusting it",
            ) from None
        if found != data:
            raise SlotTaken(entry.slot)
        return data

    def write_head(self, slot: int) -> ObjectInfo:
        """Rewrite the hint; a failure is harmless and is the caller's to report."""
        return self.tier.put(self.remote.head, BytesBody(canonical.dump({"format": 1, "slot": slot}) + b"\n"))

    def written_at(self, slot: int) -> datetime | None:
        """Return when an entry was written, by the store's clock; None where the store does not say."""
        return self.tier.stat(self.remote.log(slot)).modified

    def store_time(self, slot: int) -> datetime | None:
        """Return what time it is by the store's clock, by rewriting the hint; None where the store does not say."""
        written = self.write_head(slot)
        return written.modified or self.tier.stat(self.remote.head).modified

    def _hint(self) -> int | None:
        try:
            data = read_small(self.tier, self.remote.head, MAX_HEAD_BYTES)
            slot = canonical.load(data, what="head.json", max_bytes=MAX_HEAD_BYTES).get("slot")
        except (ObjectNotFound, IntegrityFailure):
            return None  # a hint that is absent or damaged says nothing: the listing does
        return slot if isinstance(slot, int) and 0 <= slot < MAX_SLOT else None

    def _from_base(self, hint: int, given_up: frozenset[int]) -> LogView | None:
        """Start at the last folded slot at or before the hint; None where that cannot be read, or was given up."""
        base = hint - hint % FOLD_EVERY
        if base == 0:
            view = self._follow(LogView(state=None, given_up=given_up))
            return view if view.next_slot > 0 else None
        if base in given_up:
            return None
        try:
            entry, data = self.entry(base)
        except (ObjectNotFound, IntegrityFailure):
            return None
        self._digests[base] = canonical.sha256(data)
        view = LogView(state=entry.state, next_slot=base, last_sha256=entry.prev, first_slot=base, given_up=given_up)
        view = self._follow(view.extended(entry, data))
        # Where the next entry does not follow it, its state may be that of another history: an earlier one tells.
        return None if any(one.slot == base + 1 for one in view.damaged) else view

    def _follow(self, view: LogView) -> LogView:
        """Follow the tail to the first slot that is not there; Endless where none comes."""
        for _ in range(MAX_TAIL):
            try:
                view = self._step(view)
            except ObjectNotFound:
                return view
            if len(view.damaged) > MAX_LOST:
                break
        raise self._endless(f"slot {view.next_slot} follows {MAX_TAIL} others, or {len(view.damaged)} damaged ones")

    def _step(self, view: LogView) -> LogView:
        slot = view.next_slot
        # Read twice before it is called damaged: bytes that flipped on the way must not look like a lost claim.
        for _ in range(2):
            data = self._bytes(slot)
            self._digests[slot] = digest = canonical.sha256(data)
            try:
                entry = self._admitted(view, data)
                break
            except IntegrityFailure as error:
                trusted = not isinstance(error, NotTrusted)
                damage = Damage(slot=slot, reason=error.message, sha256=digest, trusted=trusted)
        else:
            return replace(view, next_slot=slot + 1, last_sha256=digest, damaged=(*view.damaged, damage))
        if entry.prev == view.last_sha256 or view.tolerates_break_at(slot):
            return view.extended(entry, data)
        damage = Damage(slot=slot, reason="it does not follow the entry before it", sha256=digest)
        if self._admission.rooted:  # signed, and for another history: it counts for nothing
            unrelated = replace(damage, trusted=False)
            return replace(view, next_slot=slot + 1, last_sha256=digest, damaged=(*view.damaged, unrelated))
        view = view.extended(entry, data)
        return replace(view, damaged=(*view.damaged, damage))

    def _admitted(self, view: LogView, data: bytes) -> Entry:
        """Return the entry of the next slot of a view; raises IntegrityFailure where it does not count."""
        if view.next_slot in view.given_up:
            raise IntegrityFailure("a repair gave this slot up, and other bytes stand there by now")
        return self._admission.admit(data, slot=view.next_slot)

    def _listed(self) -> list[int]:
        """Return the slots that a listing shows, in order."""
        found = (self.remote.slot(info.key) for info in walk(self.tier, self.remote.log_prefix))
        slots = list(islice((slot for slot in found if slot is not None), MAX_LISTED + 1))
        if len(slots) > MAX_LISTED:
            raise self._endless(f"a listing shows more than {MAX_LISTED} slots")
        return sorted(slots)

    def _endless(self, why: str) -> "Endless":
        return Endless(
            f"{self.tier.name}: the log does not end where one can: {why}",
            hint=f"look at what lies under {self.remote.log_prefix}: others write there, or the store is at fault",
        )

    def _by_listing(self, given_up: frozenset[int]) -> LogView:
        listed = self._listed()
        if not listed:
            return LogView(state=None)
        for base in reversed([slot for slot in listed if slot and slot % FOLD_EVERY == 0]):
            view = self._from_base(base, given_up)
            if view is not None:
                return self._past_gaps(view, listed)
        return self._past_gaps(self._follow(LogView(state=None, given_up=given_up)), listed)

    def _past_gaps(self, view: LogView, listed: list[int]) -> LogView:
        """Step over slots that are missing below one that exists: entries are never deleted, so that is damage."""
        last = listed[-1] if listed else -1
        while view.next_slot <= last:
            there = listed[bisect_left(listed, view.next_slot)]
            if there - view.next_slot + len(view.damaged) > MAX_LOST:
                raise self._endless(f"slot {there} is there, and {there - view.next_slot} before it are not")
            reason, nothing = "the entry is missing", canonical.sha256(b"")
            gap = Damage(slot=view.next_slot, reason=reason, sha256=nothing, missing=True)
            view = replace(view, next_slot=view.next_slot + 1, damaged=(*view.damaged, gap))
            view = self._follow(view)
        return view


def _is_hurt(view: LogView, slot: int) -> bool:
    return any(damage.slot == slot for damage in (*view.damaged, *view.voided))


class Endless(IntegrityFailure):
    """A log that goes on, or is said to go on, for longer than one does."""


class SlotTaken(CkptierError):
    """Another entry stands in the slot; ``slot`` says which."""

    def __init__(self, slot: int) -> None:
        super().__init__(f"log slot {slot} was taken by another writer")
        self.slot = slot


class RolledBack(TrustFailure):
    """A log is shorter than, or other than, what this machine has seen of it; ``view`` is what it says now."""

    def __init__(self, tier: str, view: LogView, seen: Anchor) -> None:
        shorter = seen.slot >= view.next_slot
        found = f"it ends before slot {seen.slot}" if shorter else f"another entry stands in slot {seen.slot}"
        super().__init__(
            f"{tier}: the log was rolled back: {found}, which this machine has seen",
            hint=_what_happened(tier, empty=not view.next_slot),
        )
        self.view = view


def _what_happened(tier: str, *, empty: bool) -> str:
    """Return what to look at first where a log is shorter or other than it was: an unmounted volume looks empty too."""
    first = (
        "nothing of the log is there: is the volume mounted, and the url right? If somebody emptied the place"
        if empty
        else "somebody put an old state back or removed entries: find out who. Where it is meant"
    )
    return (
        f"{first}: `ckptier repair --tier {tier} --rebuild-log`; "
        "where you pointed the tier at another place, give it another name"
    )


def name_slots(slots: Sequence[int]) -> str:
    """Put slots into words, as the subject of a sentence."""
    return f"log slot {slots[0]} is" if len(slots) == 1 else f"log slots {', '.join(map(str, slots))} are"


def check_related(view: LogView, run_uid: str, tier: str) -> None:
    """Refuse a log that belongs to another run of the same name; one that never committed belongs to nobody."""
    if view.state is not None and view.state.founded and view.state.run_uid != run_uid:
        raise TrustFailure(
            f"{tier}: the generations under this run's name belong to another run "
            f"(run_uid {view.state.run_uid}, this store has {run_uid})",
            hint="continue that run with `ckptier restore`, or give this one another name",
        )
