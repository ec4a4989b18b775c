"""An object that goes up in one request."""

from collections.abc import Sequence

from replicate.plan import ObjectPlan
from replicate.upload.lanes import Lane, Work
from replicate.upload.shared import Shared
from replicate.upload.steps import BEGIN, Arrived, Steps
from tiers.protocol import ObjectInfo


class Whole:
    """One try to send it, or with ``copying`` to have the store copy it from an object that is the same."""

    def __init__(self, shared: Shared, item: ObjectPlan, steps: Steps, arrived: Arrived, *, copying: bool) -> None:
        self._shared = shared
        self._item = item
        self._steps = steps
        self._arrived = arrived
        self._copying = copying and item.parts[0].source is not None and shared.tier.capabilities.copy

    def begin(self) -> Sequence[Work]:
        """Return what is done first; what is small and has to wait for nothing goes at once."""
        if self._copying:
            return [self._steps.work(BEGIN, self._copy)]
        if self._steps.lane is Lane.SMALL:
            return self._put()
        return [self._steps.work(BEGIN, self._put, self._item.file.size)]

    def _put(self) -> Sequence[Work]:
        shared, item = self._shared, self._item
        shared.check_stop()
        with shared.origin.body(item.file, item.parts[0]) as body:
            info = shared.tier.put(item.key, body)
        shared.counter.add(item.file.size)
        return self._arrived(info)

    def _copy(self) -> Sequence[Work]:
        self._shared.check_stop()
        shared, item = self._shared, self._item

        def copy(source: ObjectInfo) -> ObjectInfo | None:
            return shared.tier.copy(item.key, source) if source.size == item.file.size else None

        copied = shared.copies.take(item.parts[0].source, item.parts[0].sha256, copy)
        if copied is None:
            return [self._steps.work(BEGIN, self._put, item.file.size)]
        self._steps.copied = item.file.size
        shared.counter.add(item.file.size)
        return self._arrived(copied)
