"""Bytes that stand on the tier already: copied there instead of sent, as long as that can be proved."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from replicate.plan import CopySource
from tiers.errors import AccessDenied, IntegrityError, ObjectNotFound, Unsupported
from tiers.protocol import Key, ObjectInfo, Part, Tier, Verification

REFUSALS = (ObjectNotFound, IntegrityError, Unsupported, AccessDenied)
"""What a copy may fail with without harm: the bytes are sent from here.

Not that the tier did not answer: such a copy may still come about, after what is sent.
"""


Copied = TypeVar("Copied", ObjectInfo, Part)


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
        self._attests = tier.capabilities.verification is Verification.STORE_SHA256
        self._lock = threading.Lock()
        self._seen: dict[Key, _Seen] = {}

    def take(
        self, source: CopySource | None, sealed: str | None, copy: Callable[[ObjectInfo], Copied | None]
    ) -> Copied | None:
        """Return what ``copy`` made of the object that holds the bytes; None where they have to be sent.

        It counts with the ``sealed`` digest, or until it is read back where the tier gives none.
        """
        info = self._find(source) if source is not None else None
        if info is None:
            return None
        try:
            copied = copy(info)
        except REFUSALS:
            copied = None
        if copied is not None and self._as_sealed(sealed, copied.sha256):
            return copied
        self._give_up(info.key)
        return None

    def _as_sealed(self, sealed: str | None, found: str | None) -> bool:
        if self._attests:
            return found is not None and found == sealed
        return found is None or found == sealed

    def _find(self, source: CopySource) -> ObjectInfo | None:
        """Describe the object."""
        with self._lock:
            seen = self._seen.setdefault(source.key, _Seen())
        with seen.lock:  # whoever wants the same source meanwhile gets the same answer
            if not seen.asked:
                seen.asked = True
                seen.info = self._look(source.key)
            return seen.info

    def _give_up(self, key: Key) -> None:
        """Note that a source is gone, changed, or cannot be copied."""
        with self._lock:
            self._seen.setdefault(key, _Seen()).info = None

    def _look(self, key: Key) -> ObjectInfo | None:
        try:
            return self._tier.stat(key)
        except REFUSALS:
            return None
