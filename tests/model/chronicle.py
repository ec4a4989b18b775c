"""Everything that was ever done to one tier, by whom, and what time it is there."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from tiers.bodies import Body
from tiers.memory import MEMORY_CAPABILITIES, MemoryStore, MemoryTier
from tiers.protocol import Capabilities, Key, ObjectInfo, ObjectPage, Part, Upload, Verification
from tiers.testing import ManualClock, PassThroughTier

IN_PARTS = replace(MEMORY_CAPABILITIES, verification=Verification.READ_BACK, min_part=32, max_part=64, max_parts=64)
"""A store that checks nothing by itself."""


@dataclass
class Chronicle:
    """One tier's bytes, its clock, and its past; ``on_delete`` is asked before anything goes."""

    name: str
    clock: ManualClock
    capabilities: Capabilities = MEMORY_CAPABILITIES
    store: MemoryStore = field(default_factory=MemoryStore)
    written: dict[str, set[str]] = field(default_factory=dict)
    times: dict[str, datetime] = field(default_factory=dict)
    deleted: int = 0
    on_delete: Callable[[str, str], None] = lambda _by, _key: None

    def wrote(self, key: str, *, known: str | None = None) -> None:
        """Note what stands under a key now, and when it came there."""
        digest = known or hashlib.sha256(self.store.objects[key].data).hexdigest()
        self.written.setdefault(key, set()).add(digest)
        self.times[key] = self.clock.now()

    def tier(self, by: str) -> "WatchedTier":
        """Return the tier as one machine reaches it."""
        return WatchedTier(self, by)

    def content(self) -> dict[str, object]:
        """Return what lies there, but for the hint, in a form that is cheap to compare."""
        return {key: held for key, held in self.store.objects.items() if not key.endswith("/head.json")}


class WatchedTier(PassThroughTier):
    """Writes into the chronicle what one machine does."""

    def __init__(self, chronicle: Chronicle, by: str) -> None:
        super().__init__(MemoryTier(chronicle.name, chronicle.store, capabilities=chronicle.capabilities))
        self.chronicle = chronicle
        self.by = by

    def put(self, key: Key, body: Body) -> ObjectInfo:
        info = self.inner.put(key, body)
        self.chronicle.wrote(key)
        return info

    def create(self, key: Key, data: bytes) -> ObjectInfo:
        info = self.inner.create(key, data)
        self.chronicle.wrote(key)
        return info

    def copy(self, key: Key, source: ObjectInfo) -> ObjectInfo:
        info = self.inner.copy(key, source)
        self.chronicle.wrote(key)
        return info

    def complete(self, upload: Upload, parts: Sequence[Part]) -> ObjectInfo:
        info = self.inner.complete(upload, parts)
        self.chronicle.wrote(upload.key)
        return info

    def delete(self, key: Key) -> None:
        if key in self.chronicle.store.objects:
            self.chronicle.on_delete(self.by, key)
            self.chronicle.deleted += 1
        self.inner.delete(key)

    def stat(self, key: Key) -> ObjectInfo:
        return self._told(self.inner.stat(key))

    def list_objects(self, prefix: str, token: str | None = None) -> ObjectPage:
        page = self.inner.list_objects(prefix, token)
        return replace(page, objects=tuple(self._told(info) for info in page.objects))

    def _told(self, info: ObjectInfo) -> ObjectInfo:
        return replace(info, modified=self.chronicle.times.get(info.key))
