"""The steps of one object, as work for the pipeline."""

from collections.abc import Callable, Sequence

from replicate.plan import ObjectPlan
from replicate.upload.lanes import SMALL_BYTES, Lane, Work
from tiers.errors import IntegrityError
from tiers.protocol import ObjectInfo

BEGIN = 0
END = 1 << 30
"""Places within an object: its beginning, the numbers of its parts, its end."""

Act = Callable[[], Sequence[Work]]
Arrived = Callable[[ObjectInfo], Sequence[Work]]
"""What is done with an object that the tier has accepted."""


def lane_of(item: ObjectPlan) -> Lane:
    """Return the lane of an object."""
    return Lane.SMALL if not item.part_size and item.file.size <= SMALL_BYTES else Lane.LARGE


class Steps:
    """Makes work of what an object has to do; ``failed`` says what follows where its bytes were not the sealed ones.

    ``copied`` counts the bytes that the store copied for it.
    """

    def __init__(
        self, place: int, item: ObjectPlan, failed: Callable[[IntegrityError | OSError], Sequence[Work]]
    ) -> None:
        self._place = place
        self.lane = lane_of(item)
        self.copied = 0
        self._failed = failed

    def work(self, step: int, act: Act, size: int = 0) -> Work:
        """Return one step that is still to be done; ``size`` is what it will have in flight."""
        return Work(place=self._place, step=step, lane=self.lane, size=size, run=lambda: self.tried(act))

    def tried(self, act: Act) -> Sequence[Work]:
        """Do it; errors that are the object's own affair, and nobody else's, go to ``failed``."""
        try:
            return act()
        except (IntegrityError, OSError) as error:
            return self._failed(error)
