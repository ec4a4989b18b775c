"""An object that goes up in parts: begun or resumed, its parts sent or copied side by side, completed."""

import threading
from collections.abc import Sequence
from dataclasses import replace

from replicate.plan import CopySource, ObjectPlan, PartPlan
from replicate.upload.lanes import Work
from replicate.upload.proving import counts
from replicate.upload.shared import Shared
from replicate.upload.steps import BEGIN, END, Arrived, Steps
from tiers.errors import IntegrityError, ObjectNotFound, TierError, TierUnavailable
from tiers.protocol import ObjectInfo, Part, Upload, all_parts

KEPT_TO_COMPARE = 256 << 20
"""A file of at most this size stays in the page cache until it was read back; a larger one is read from disk again."""


class InParts:
    """One try to send it; with ``copying``, parts that stand on the tier already are copied there."""

    def __init__(self, shared: Shared, item: ObjectPlan, steps: Steps, arrived: Arrived, *, copying: bool) -> None:
        self._shared = shared
        self._item = item
        self._steps = steps
        self._arrived = arrived
        self._copying = copying and shared.tier.capabilities.copy_part
        self._lock = threading.Lock()
        self._left = 0
        self._accepted: dict[int, Part] = {}
        self._failures: dict[int, IntegrityError | OSError] = {}

    def begin(self) -> Sequence[Work]:
        """Return what is done first."""
        return [self._steps.work(BEGIN, self._begin)]

    def _begin(self) -> Sequence[Work]:
        self._shared.check_stop()
        upload, self._accepted = self._resume_or_begin()
        for part in self._accepted.values():
            self._shared.counter.add(part.size)
        missing = [part for part in self._item.parts if part.number not in self._accepted]
        self._left = len(missing)
        if not missing:
            return [self._steps.work(END, lambda: self._complete(upload))]
        return [self._work_on(upload, part) for part in missing]

    def _resume_or_begin(self) -> tuple[Upload, dict[int, Part]]:
        """Return an upload and the parts of it that count."""
        shared, item = self._shared, self._item
        where = (shared.tier.name, shared.plan.generation, item.path)
        upload = shared.tracker.upload_of(*where, item.key, item.file.size)
        if upload is not None and upload.part_size == item.part_size:
            try:
                listed = list(all_parts(shared.tier, upload))
            except ObjectNotFound:
                pass  # it expired, or became an object that is not the sealed one
            else:
                journalled = shared.tracker.parts_of(*where, upload)
                return upload, {part.number: self._attested(part) for part in listed if counts(part, item, journalled)}
        upload = shared.tier.begin_upload(item.key, size=item.file.size, part_size=item.part_size)
        shared.tracker.upload_begun(*where, upload)
        return upload, {}

    def _attested(self, part: Part) -> Part:
        """Give a listed part the digest that the store accepted: a store that checks wants it in ``complete``."""
        if part.sha256 is None and self._shared.attests:
            return replace(part, sha256=self._item.parts[part.number - 1].sha256)
        return part

    def _work_on(self, upload: Upload, part: PartPlan) -> Work:
        source = part.source
        if self._copying and source is not None:
            return self._steps.work(part.number, lambda: self._copy(upload, part, source))
        return self._sending(upload, part)

    def _sending(self, upload: Upload, part: PartPlan) -> Work:
        return self._steps.work(part.number, lambda: self._put(upload, part), part.size)

    def _put(self, upload: Upload, part: PartPlan) -> Sequence[Work]:
        shared, file = self._shared, self._item.file
        shared.check_stop()
        try:
            with shared.origin.body(file, part) as body:
                accepted = shared.tier.put_part(upload, part.number, body)
        except (IntegrityError, OSError) as error:
            return self._settled(upload, part, error)  # the object's own affair, once its other parts are through
        if shared.attests or file.size > KEPT_TO_COMPARE:
            shared.origin.spare(file, part)
        return self._journalled(upload, part, accepted)

    def _copy(self, upload: Upload, part: PartPlan, source: CopySource) -> Sequence[Work]:
        """Fill a part inside the store; where that is not proved, send it."""
        self._shared.check_stop()
        copied = self._shared.copies.take(
            source,
            part.sha256,
            lambda info: self._shared.tier.copy_part(upload, part.number, info, source.start, part.size),
        )
        if copied is None:
            return [self._sending(upload, part)]
        with self._lock:
            self._steps.copied += part.size
        return self._journalled(upload, part, copied)

    def _journalled(self, upload: Upload, part: PartPlan, accepted: Part) -> Sequence[Work]:
        shared = self._shared
        shared.tracker.part_accepted(shared.tier.name, shared.plan.generation, self._item.path, upload, accepted)
        shared.counter.add(part.size)
        return self._settled(upload, part, accepted)

    def _settled(self, upload: Upload, part: PartPlan, outcome: Part | IntegrityError | OSError) -> Sequence[Work]:
        """Note what became of a part; the last one leads to the object's end."""
        with self._lock:
            if isinstance(outcome, Part):
                self._accepted[part.number] = outcome
            else:
                self._failures[part.number] = outcome
            self._left -= 1
            if self._left:
                return ()
        if self._failures:
            raise self._failures[min(self._failures)]
        return [self._steps.work(END, lambda: self._complete(upload))]

    def _complete(self, upload: Upload) -> Sequence[Work]:
        self._shared.check_stop()
        try:
            info = self._shared.tier.complete(upload, [self._accepted[part.number] for part in self._item.parts])
        except (ObjectNotFound, TierUnavailable) as failure:
            info = self._completed_after_all(failure)
        return self._arrived(info)

    def _completed_after_all(self, failure: TierError) -> ObjectInfo:
        """Return the object, or raise ``failure`` where there is none.

        A complete whose reply was lost looks like an upload that never was, and one that
        took too long may still be under way: the object tells.  Nothing is ever aborted,
        which would race with it.
        """
        tier, key = self._shared.tier, self._item.key
        try:
            info = tier.stat(key)
            with tier.open(key, 0, 1) as stream:  # stores exist that list what they cannot hand out
                stream.read(1)
        except ObjectNotFound:
            raise failure from None
        return info
