"""Bytes that stand on the tier already: copied there instead of sent, as long as that can be proved."""

import threading
from dataclasses import dataclass, field

from replicate.plan import CopySource
from tiers.errors import AccessDenied, IntegrityError, ObjectNotFound, Unsupported
from tiers.protocol import Key, ObjectInfo, Tier

REFUSALS = (ObjectNotFound, IntegrityError, Unsupported, AccessDenied)
"""What a copy may fail with without harm: the bytes are sent from here.

Not that the tier did not answer: such a copy may still come about, after what is sent.
"""


@dataclass(slots=True)
class _Seen:
    """One source: whether it was looked at, and what it is as long as it serves."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    asked: bool = False
    info: ObjectInfo | None = None


class Copies:
    """The sources of one upload, each looked at once; one that failed once is not tried again."""

    def __init__(self, tier: Tier) -> None:
        self._tier = tier
        self._lock = threading.Lock()
        self._seen: dict[Key, _Seen] = {}

    def find(self, source: CopySource | None) -> ObjectInfo | None:
        """Describe the object that holds the bytes; None where they have to be sent."""
        if source is None:
            return None
        with self._lock:
            seen = self._seen.setdefault(source.key, _Seen())
        with seen.lock:  # whoever wants the same source meanwhile gets the same answer
            if not seen.asked:
                seen.asked = True
                seen.info = self._look(source.key)
            return seen.info

    def give_up(self, key: Key) -> None:
        """Note that a source is gone, changed, or cannot be copied."""
        with self._lock:
            self._seen.setdefault(key, _Seen()).info = None

    def _look(self, key: Key) -> ObjectInfo | None:
        try:
            return self._tier.stat(key)
        except REFUSALS:
            return None
