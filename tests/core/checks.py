"""What must be true of a tier and of trackers at every moment (the invariants of the protocol)."""

import hashlib

from core.builders import REMOTE, RUN, LocalSource, Machine, RecordingTier

from replicate import canonical
from replicate.layout import GenerationId
from replicate.log import NO_ENTRY, Claim, Commit, Entry, LogState, fold, parse_entry
from replicate.logbook import Logbook
from replicate.manifest import MAX_MANIFEST_BYTES, parse_manifest
from replicate.tracker import Tracker
from tiers.memory import MemoryStore, MemoryTier
from tiers.protocol import Key, walk
from tiers.testing import read_all


def log_bytes(store: MemoryStore) -> list[bytes]:
    """Return the bytes of every slot; fails where the slots are not contiguous."""
    tier = MemoryTier("check", store)
    slots = [REMOTE.slot(info.key) for info in walk(tier, REMOTE.log_prefix)]
    assert slots == list(range(len(slots)))
    return [read_all(tier.open(REMOTE.log(slot))) for slot in range(len(slots))]


def log_entries(store: MemoryStore) -> list[Entry]:
    return [parse_entry(data, slot=slot, run=RUN) for slot, data in enumerate(log_bytes(store))]


def kinds(store: MemoryStore) -> list[str]:
    return [entry.body.kind for entry in log_entries(store)]


def check_complete(store: MemoryStore, sources: dict[GenerationId, LocalSource]) -> None:
    """I1: each live commit has its manifest and every object, with that size and digest; I12: bytes as published."""
    tier = MemoryTier("check", store)
    for live in Logbook(tier, REMOTE).read().live:
        data = read_all(tier.open(Key(live.manifest_key)))
        assert (len(data), canonical.sha256(data)) == (live.manifest_size, live.manifest_sha256)
        assert len(data) <= MAX_MANIFEST_BYTES
        manifest = parse_manifest(data)
        source = sources[live.id]
        assert manifest.generation_bytes == source.record_bytes
        assert {item.path: read_all(tier.open(Key(item.key))) for item in manifest.objects} == {
            file.path: (source.files / file.path).read_bytes() for file in source.record.files
        }
        assert all(item.key.startswith(live.manifest_key.removesuffix("manifest.json")) for item in manifest.objects)


def check_chain(store: MemoryStore, before: list[bytes]) -> list[bytes]:
    """I2: contiguous, chained, and what stood there before is unchanged.  Returns the log as it is."""
    now = log_bytes(store)
    assert now[: len(before)] == before
    previous = NO_ENTRY
    for entry, data in zip(log_entries(store), now, strict=True):
        assert entry.prev == previous
        previous = hashlib.sha256(data).hexdigest()
    return now


def check_terms(store: MemoryStore) -> None:
    """I3: claims raise the term, and no commit of a lower term counts after a higher claim."""
    terms = [entry.term for entry in log_entries(store) if isinstance(entry.body, Claim)]
    assert terms == sorted(set(terms))


def check_once(store: MemoryStore) -> None:
    """I4: a generation is committed once, however often processes die and replies are lost."""
    state: LogState | None = None
    applied: list[str] = []
    for entry in log_entries(store):
        after, _ = fold(state, entry)
        if isinstance(entry.body, Commit) and after != state:
            applied.append(entry.body.generation)
        state = after
    assert len(applied) == len(set(applied))


def check_tracker(store: MemoryStore, tracker: Tracker) -> None:
    """I6: the tracker says nothing that the log does not say."""
    now = log_bytes(store)
    seen = tracker.seen("remote")
    if seen is not None:
        assert seen.slot < len(now)
        assert seen.sha256 == canonical.sha256(now[seen.slot])
    for item in tracker.completed("remote"):
        assert seen is not None
        assert item.slot <= seen.slot
        body = log_entries(store)[item.slot].body
        assert isinstance(body, Commit)
        assert (body.generation, body.manifest_sha256) == (str(item.generation), item.manifest_sha256)


def check_not_overwritten(*recorders: RecordingTier) -> None:
    """I8: over all writers, no key but the hint was written with two contents."""
    contents: dict[str, set[str]] = {}
    for recorder in recorders:
        for key, seen in recorder.written.items():
            contents.setdefault(key, set()).update(seen)
    assert [key for key, seen in contents.items() if len(seen) > 1 and key != REMOTE.head] == []


def check_all(store: MemoryStore, sources: dict[GenerationId, LocalSource], *machines: Machine) -> None:
    check_chain(store, [])
    check_complete(store, sources)
    check_terms(store)
    check_once(store)
    for machine in machines:
        check_tracker(store, machine.tracker)
    check_not_overwritten(*(machine.recorder for machine in machines))
