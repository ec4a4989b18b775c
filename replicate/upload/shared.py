"""What the objects of one upload share: whom they work for, when to stop, and what is counted."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from replicate.errors import CkptierError
from replicate.origins import Origin
from replicate.plan import ObjectPlan, UploadPlan
from replicate.tracker import Tracker
from replicate.upload.batch import VerifiedBatch
from replicate.upload.copies import Copies
from tiers.protocol import Key, Tier, Verification


class Draining(CkptierError):
    """The upload was stopped on request; what was accepted is journalled and will be resumed."""

    def __init__(self) -> None:
        super().__init__("stopped while uploading; the next start resumes it")


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far an upload is, in bytes that the tier has accepted; ``copied_bytes`` of them stood there already."""

    done_bytes: int
    total_bytes: int
    copied_bytes: int = 0


class Counter:
    """Counts what the tier has accepted and tells ``on_progress``; what is sent again counts once."""

    def __init__(self, total_bytes: int, on_progress: Callable[[Progress], None]) -> None:
        self._lock = threading.Lock()
        self._on_progress = on_progress
        self._now = Progress(done_bytes=0, total_bytes=total_bytes)

    @property
    def now(self) -> Progress:
        """How far it is."""
        return self._now

    def add(self, size: int, *, copied: int = 0) -> None:
        """Count bytes that were accepted, and such (of these or before) as are now proved to be copies."""
        with self._lock:
            before = self._now
            progress = self._now = Progress(
                done_bytes=min(before.done_bytes + size, before.total_bytes),
                total_bytes=before.total_bytes,
                copied_bytes=before.copied_bytes + copied,
            )
        self._on_progress(progress)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """The surroundings of every object of one upload.

    ``digested`` keeps what was hashed, for other tries of the same upload.  Any of ``ends``
    that is set ends the upload at its next request.
    """

    tier: Tier
    tracker: Tracker
    plan: UploadPlan
    origin: Origin
    changed: frozenset[str]
    resumed: bool
    digested: dict[Key, ObjectPlan]
    ends: tuple[threading.Event, ...]
    counter: Counter
    batch: VerifiedBatch
    copies: Copies
    attests: bool = field(init=False)

    def __post_init__(self) -> None:
        attests = self.tier.capabilities.verification is Verification.STORE_SHA256
        object.__setattr__(self, "attests", attests)

    def check_stop(self) -> None:
        """Raise Draining where the upload is to end."""
        if any(event.is_set() for event in self.ends):
            raise Draining
