"""Reading and appending the log over a tier.

Reading starts at the last slot with folded state that ``head.json`` hints at, and
follows the tail by GETs until a slot is not there; a LIST is only the fallback for a
hint that is missing or wrong.  Damaged slots are reported and stepped over.
"""

from dataclasses import replace
from datetime import datetime

from replicate import canonical
from replicate.errors import CkptierError, IntegrityFailure, TrustFailure
from replicate.layout import FOLD_EVERY, RemoteRun
from replicate.log import MAX_ENTRY_BYTES, Damage, Entry, LogView, parse_entry
from tiers.bodies import BytesBody
from tiers.errors import ObjectExists, ObjectNotFound, TierError, TierUnavailable
from tiers.protocol import Key, ObjectInfo, Tier, walk

MAX_HEAD_BYTES = 4096
MAX_SLOT = 10**12
"""A slot has twelve digits in its key."""


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

    def read(self, known: LogView | None = None, *, thorough: bool = False) -> LogView:
        """Return the log as it stands; with ``known``, only what came since is asked for.

        The tail ends at the first slot that is not there.  ``thorough`` lists as well, so that
        a lost entry cannot hide those after it: what a restore does, since it decides once.

        Raises TierError where the tier does not answer.  An empty log is a view whose
        state is None and next_slot 0, which only a listing that answered can establish.
        """
        if known is not None and not known.damaged:
            return self._follow(known)
        hint = self._hint()
        if hint is not None:
            view = self._from_base(hint)
            if view is not None and view.next_slot > hint:
                # Claims alone could be all that one lost entry leaves to be seen: only a listing tells.
                sure = not thorough and view.state is not None and view.state.founded
                return view if sure else self._past_gaps(view, self._last_listed())
        return self._by_listing()

    def entry(self, slot: int) -> tuple[Entry, bytes]:
        """Read and check one entry; raises ObjectNotFound or IntegrityFailure."""
        data = read_small(self.tier, self.remote.log(slot), MAX_ENTRY_BYTES)
        return parse_entry(data, slot=slot, run=self.remote.run), data

    def append(self, view: LogView, entry: Entry) -> LogView:
        """Create ``entry`` in the next slot and read it back; returns the view after it.

        Raises SlotTaken where another entry stands there: the caller reads on and decides
        again.  A lost reply, a conflict or a 5xx is resolved by reading the slot, never by
        believing the status code.
        """
        if view.damaged:
            slots = ", ".join(str(damage.slot) for damage in view.damaged)
            raise IntegrityFailure(
                f"{self.tier.name}: log slot {slots} is damaged, so nothing is appended",
                hint="intact generations can still be restored; to go on replicating, give the run another name",
            )
        data = entry.encode()
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
        return view.extended(entry, data)

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

    def _from_base(self, hint: int) -> LogView | None:
        """Start at the last folded slot at or before the hint; None where that cannot be read."""
        base = hint - hint % FOLD_EVERY
        if base == 0:
            view = self._follow(LogView(state=None))
            return view if view.next_slot > 0 else None
        try:
            entry, _ = self.entry(base)
        except (ObjectNotFound, IntegrityFailure):
            return None
        return self._follow(LogView(state=entry.state, next_slot=base, last_sha256=entry.prev, first_slot=base))

    def _follow(self, view: LogView) -> LogView:
        while True:
            try:
                view = self._step(view)
            except ObjectNotFound:
                return view

    def _step(self, view: LogView) -> LogView:
        slot = view.next_slot
        # Read twice before it is called damaged: bytes that flipped on the way must not look like a lost claim.
        for _ in range(2):
            data = _read_up_to(self.tier, self.remote.log(slot), MAX_ENTRY_BYTES + 1)
            try:
                entry = parse_entry(data, slot=slot, run=self.remote.run)
                break
            except IntegrityFailure as error:
                damage = Damage(slot=slot, reason=error.message, sha256=canonical.sha256(data))
        else:
            return replace(view, next_slot=slot + 1, last_sha256=damage.sha256, damaged=(*view.damaged, damage))
        broken = entry.prev != view.last_sha256
        view = view.extended(entry, data)
        if not broken or (view.damaged and view.damaged[-1].slot == slot - 1):
            return view
        damage = Damage(slot=slot, reason="it does not follow the entry before it", sha256=canonical.sha256(data))
        return replace(view, damaged=(*view.damaged, damage))

    def _last_listed(self) -> int:
        """Return the last slot that a listing shows, -1 where there is none."""
        found = (self.remote.slot(info.key) for info in walk(self.tier, self.remote.log_prefix))
        return max((slot for slot in found if slot is not None), default=-1)

    def _by_listing(self) -> LogView:
        last = self._last_listed()
        if last < 0:
            return LogView(state=None)
        for base in range(last - last % FOLD_EVERY, 0, -FOLD_EVERY):
            view = self._from_base(base)
            if view is not None:
                return self._past_gaps(view, last)
        return self._past_gaps(self._follow(LogView(state=None)), last)

    def _past_gaps(self, view: LogView, last: int) -> LogView:
        """Step over slots that are missing below one that exists: entries are never deleted, so that is damage."""
        while view.next_slot <= last:
            gap = Damage(slot=view.next_slot, reason="the entry is missing", sha256=canonical.sha256(b""))
            view = replace(view, next_slot=view.next_slot + 1, damaged=(*view.damaged, gap))
            view = self._follow(view)
        return view


class SlotTaken(CkptierError):
    """Another entry stands in the slot; ``slot`` says which."""

    def __init__(self, slot: int) -> None:
        super().__init__(f"log slot {slot} was taken by another writer")
        self.slot = slot


def check_related(view: LogView, run_uid: str, tier: str) -> None:
    """Refuse a log that belongs to another run of the same name; one that never committed belongs to nobody."""
    if view.state is not None and view.state.founded and view.state.run_uid != run_uid:
        raise TrustFailure(
            f"{tier}: the generations under this run's name belong to another run "
            f"(run_uid {view.state.run_uid}, this store has {run_uid})",
            hint="continue that run with `ckptier restore`, or give this one another name",
        )
