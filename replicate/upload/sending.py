"""What becomes of one object: looked for, sent, proved, and sent again where it is wrong.

Each step is a piece of work for the pipeline and returns those that it leads to; none
waits for another.
"""

from collections.abc import Sequence

from replicate.errors import LocalDisk
from replicate.manifest import ManifestObject
from replicate.plan import ObjectPlan
from replicate.upload.lanes import Work
from replicate.upload.parts import InParts
from replicate.upload.proving import attested, read_back
from replicate.upload.shared import Shared
from replicate.upload.steps import BEGIN, END, Steps
from replicate.upload.whole import Whole
from tiers.errors import IntegrityError, ObjectNotFound
from tiers.protocol import ObjectInfo, Verification

RESENDS = 2
"""How often an object whose stored bytes turn out wrong is sent again with the same sealed bytes."""


class Sending:
    """One object on its way; ``done`` takes its entry in the manifest once it is proved.

    Only one step of it is under way at a time, but for its parts.
    """

    def __init__(
        self, shared: Shared, place: int, item: ObjectPlan, known: str | None, done: dict[int, ManifestObject]
    ) -> None:
        self._shared = shared
        self._item = item
        self._place = place
        self._known = known
        self._done = done
        self._steps = Steps(place, item, self._failed)
        self._resends = 0

    def first(self) -> Work:
        """Return what has to be done first."""
        return self._steps.work(BEGIN, self._start)

    def _start(self) -> Sequence[Work]:
        shared, item = self._shared, self._item
        shared.check_stop()
        touched = item.path in shared.changed
        if touched or not shared.attests:
            shared.origin.check(item.file, force=touched)
        if item.second_hash:
            self._item = self._with_digests(item, touched=touched)
        return self._look() if shared.resumed else self._send()

    def _with_digests(self, item: ObjectPlan, *, touched: bool) -> ObjectPlan:
        """Hash once for all tries: a store that refuses every write must not cost a hash of everything each time."""
        digested = self._shared.digested
        known = digested.get(item.key) if not touched else None
        if known is None:
            known = digested[item.key] = self._shared.origin.digested(item, checked=self._shared.attests)
        return known

    def _look(self) -> Sequence[Work]:
        """Find out whether an earlier process finished this object: size alone never counts."""
        try:
            means = attested(self._shared, self._item, self._shared.tier.stat(self._item.key))
        except (ObjectNotFound, IntegrityError):
            return self._send()  # not there, or not the sealed bytes: over what no log entry names yet
        if means is not None:
            return self._found(means)
        return [self._steps.work(END, self._read_what_was_found)]

    def _read_what_was_found(self) -> Sequence[Work]:
        try:
            means = read_back(self._shared, self._item)
        except (ObjectNotFound, IntegrityError):
            return self._send()
        return self._found(means)

    def _found(self, means: Verification) -> Sequence[Work]:
        self._shared.counter.add(self._item.file.size)
        # A manifest may be there already, with what was journalled: no proof since then may change its bytes.
        return self._record(means, journal=self._known is None)

    def _send(self) -> Sequence[Work]:
        way = InParts if self._item.part_size else Whole
        copying = self._resends == 0  # once something was wrong it is the sealed bytes, whatever it was
        return way(self._shared, self._item, self._steps, self._arrived, copying=copying).begin()

    def _arrived(self, info: ObjectInfo) -> Sequence[Work]:
        means = attested(self._shared, self._item, info)
        if means is not None:
            return self._record(means, journal=True)
        return [self._steps.work(END, self._read_what_was_sent)]

    def _read_what_was_sent(self) -> Sequence[Work]:
        return self._record(read_back(self._shared, self._item), journal=True)

    def _failed(self, error: IntegrityError | OSError) -> Sequence[Work]:
        """Tell the file that is hurt from the transfer that was, which is tried again."""
        item, origin = self._item, self._shared.origin
        origin.check(item.file, force=True)
        if isinstance(error, OSError):  # tiers raise TierError: it was reading our own file that failed
            raise LocalDisk(
                f"{origin.where(item.path)} could not be read: {error}",
                hint="check that disk; the next pass tries again",
            ) from error
        self._resends += 1
        if self._resends > RESENDS:
            raise error
        self._steps.copied = 0
        return [self._steps.work(BEGIN, self._send)]

    def _record(self, means: Verification, *, journal: bool) -> Sequence[Work]:
        item, shared = self._item, self._shared
        means = Verification(self._known) if self._known else means
        shared.origin.spare(item.file)
        if self._steps.copied:
            shared.counter.add(0, copied=self._steps.copied)
        if journal:
            shared.batch.add(item.path, means)
        self._done[self._place] = ManifestObject(
            path=item.path,
            key=item.key,
            size=item.file.size,
            sha256=item.file.sha256,
            verified_by=str(means),
            part_size=item.part_size,
            parts=tuple(part.sha256 or "" for part in item.parts) if item.second_hash and item.part_size else (),
        )
        return ()
