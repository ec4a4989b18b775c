"""Machines whose generations are small, and copied all the same."""

from collections.abc import Callable, Mapping
from pathlib import Path

from core.builders import LEAF, LocalSource, Machine, RecordingTier, make_source

from replicate.manifest import Manifest, parse_manifest
from replicate.reuse import Least
from tiers.bodies import BytesBody
from tiers.memory import MemoryStore, MemoryTier
from tiers.protocol import Capabilities, Key, ObjectInfo, walk
from tiers.testing import Fault, content, read_all

ALL = Least(part=1, alone=1)


def changed(data: bytes, *leaves: int) -> bytes:
    """Return other bytes in some leaves."""
    pieces = [data[start : start + LEAF] for start in range(0, len(data), LEAF)]
    for leaf in leaves:
        pieces[leaf] = content(len(pieces[leaf]), seed=1_000 + leaf)
    return b"".join(pieces)


class Meddling(RecordingTier):
    """Lets something happen right before or after the first stat of an object of a prefix."""

    def __init__(self, store: MemoryStore, capabilities: Capabilities, prefix: str) -> None:
        super().__init__(MemoryTier("remote", store, capabilities=capabilities))
        self.prefix = prefix
        self.before: Callable[[], object] | None = None
        self.after: Callable[[], object] | None = None

    def stat(self, key: Key) -> ObjectInfo:
        if not key.startswith(self.prefix):
            return self.inner.stat(key)
        self._once("before")
        info = self.inner.stat(key)
        self._once("after")
        return info

    def _once(self, when: str) -> None:
        act = getattr(self, when)
        setattr(self, when, None)
        if act is not None:
            act()


class ReusingMachine(Machine):
    """A machine for which every leaf is worth a copy."""

    def schedule(self, *faults: Fault) -> None:
        super().schedule(*faults)
        self.replication.stock.least = ALL

    def manifest(self, source: LocalSource) -> Manifest:
        """Return what the log names for a generation, or fail."""
        state = self.view().state
        live = state.find(source.id) if state else None
        assert live is not None, f"{source.id} is not committed"
        with MemoryTier("reader", self.store).open(Key(live.manifest_key)) as stream:
            return parse_manifest(stream.read())

    def meddled(self, source: LocalSource) -> Meddling:
        """Stand between this machine and the objects of a committed generation."""
        prefix = self.manifest(source).prefix
        meddling = self.recorder = Meddling(self.store, self.recorder.capabilities, prefix)
        self.schedule()
        return meddling

    def delete_data(self, source: LocalSource, prefix: str) -> None:
        """Delete all that lies under a prefix, as pruning does."""
        tier = MemoryTier("pruner", self.store)
        keys = [info.key for info in walk(tier, prefix)]
        assert len(keys) > len(source.record.files)
        for key in keys:
            tier.delete(key)

    def damage(self, source: LocalSource, path: str) -> None:
        """Flip a bit in every leaf of an object, which then has another ETag."""
        key = next(item.key for item in self.manifest(source).objects if item.path == path)
        tier = MemoryTier("rot", self.store)
        data = bytearray(read_all(tier.open(Key(key))))
        for at in range(0, len(data), LEAF):
            data[at] ^= 1
        tier.put(Key(key), BytesBody(bytes(data)))

    def holds(self, source: LocalSource, files: Mapping[str, bytes]) -> bool:
        """Whether a reader gets exactly these files of a committed generation."""
        reader = MemoryTier("reader", self.store)
        found = {item.path: read_all(reader.open(Key(item.key))) for item in self.manifest(source).objects}
        return found == dict(files)


def line(root: Path, *generations: Mapping[str, bytes]) -> list[LocalSource]:
    """Return generations of one line of descent with these files, oldest first."""
    found: list[LocalSource] = []
    for number, files in enumerate(generations, 1):
        parent = found[-1].id if found else None
        found.append(make_source(root / "store", files, sequence=number, parent=parent))
    return found
