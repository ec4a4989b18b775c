"""The upload of one generation to one tier."""

import threading
from collections.abc import Callable, Iterable, Iterator

from replicate.manifest import ManifestObject
from replicate.origins import Origin
from replicate.plan import ObjectPlan, UploadPlan
from replicate.tracker import Tracker
from replicate.upload.batch import VerifiedBatch
from replicate.upload.copies import Copies
from replicate.upload.lanes import Lane, Lanes, Work
from replicate.upload.pipeline import Pipeline
from replicate.upload.sending import Sending
from replicate.upload.shared import Counter, Progress, Shared
from replicate.upload.steps import lane_of
from tiers.protocol import Key, Tier


class Uploader:
    """Uploads to one tier with at most ``connections`` requests at once.

    ``digested`` keeps what was hashed for one upload, for its other tries.  ``stop`` and
    ``set_aside`` end an upload at its next request; it is resumed another time.
    """

    def __init__(
        self,
        tier: Tier,
        tracker: Tracker,
        *,
        connections: int,
        stop: threading.Event,
        on_progress: Callable[[Progress], None] = lambda _progress: None,
        digested: dict[Key, ObjectPlan] | None = None,
        set_aside: threading.Event | None = None,
    ) -> None:
        self._tier = tier
        self._digested = digested if digested is not None else {}
        self._set_aside = set_aside if set_aside is not None else threading.Event()
        self._tracker = tracker
        self._connections = connections
        self._stop = stop
        self._on_progress = on_progress
        self.copied_bytes = 0
        """What the last upload copied inside the store instead of sending it."""

    def upload(
        self, plan: UploadPlan, origin: Origin, changed: Iterable[str] = (), *, resumed: bool
    ) -> tuple[ManifestObject, ...]:
        """Send and verify every object; ``origin`` has the files, ``changed`` names those touched since sealing.

        Raises SourceDamage where its bytes are not what was sealed, Draining when stopped,
        and TierError where a tier fails.  Nothing is visible before the caller commits.
        """
        failed = threading.Event()
        counter = Counter(plan.total_bytes, self._on_progress)
        shared = Shared(
            tier=self._tier,
            tracker=self._tracker,
            plan=plan,
            origin=origin,
            changed=frozenset(changed),
            resumed=resumed,
            digested=self._digested,
            ends=(self._stop, failed, self._set_aside),
            counter=counter,
            batch=VerifiedBatch(self._tracker, self._tier.name, plan.generation, self._tracker.clock),
            copies=Copies(self._tier),
        )
        known = self._tracker.verified(self._tier.name, plan.generation)
        done: dict[int, ManifestObject] = {}
        pipeline = Pipeline(_lanes(shared, known, done), self._threads(plan), failed)
        try:
            pipeline.run()
        except BaseException:
            for item in plan.objects:
                origin.spare(item.file)
            raise
        finally:
            self.copied_bytes = counter.now.copied_bytes
            shared.batch.close()
        return tuple(done[place] for place in range(len(plan.objects)))

    def _threads(self, plan: UploadPlan) -> int:
        return min(self._connections, sum(len(item.parts) for item in plan.objects))


def _lanes(shared: Shared, known: dict[str, str], done: dict[int, ManifestObject]) -> Lanes:
    """Queue each object in the lane of its size, in the plan's order."""

    def of(lane: Lane) -> Iterator[Work]:
        for place, item in enumerate(shared.plan.objects):
            if lane_of(item) is lane:
                yield Sending(shared, place, item, known.get(item.path), done).first()

    return Lanes({lane: of(lane) for lane in Lane})
