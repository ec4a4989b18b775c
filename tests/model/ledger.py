"""The promises, checked on one tier after every step: over its bytes, and against what was sealed.

Nothing here asks the product what is there: the log is read slot by slot from the bytes,
and what has been looked at once is looked at again only where it changed.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from model.chronicle import Chronicle

from replicate import canonical
from replicate.layout import RemoteRun
from replicate.log import NO_ENTRY, Claim, Commit, Entry, LogState, Retire, Verdict, fold, parse_entry
from replicate.logbook import Logbook
from replicate.manifest import parse_manifest
from replicate.tracker import Tracker
from tiers.memory import MemoryTier

Tree = Mapping[str, bytes]


@dataclass
class Ledger:
    """One tier as the oracle sees it.

    ``copied``: two trackers hold one claim, so that one commit may slip through before the other is noticed.
    ``sealed`` are the trees that training ever published, by generation; ``given_up`` tells
    what a machine abandoned.  ``minimum`` and ``delay`` are what the tier's policy promises.
    """

    chronicle: Chronicle
    remote: RemoteRun
    sealed: dict[str, Tree]
    minimum: int
    delay: float
    given_up: Callable[[str, str], frozenset[str]]
    data: list[bytes] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)
    entries: list[Entry] = field(default_factory=list)
    state: LogState | None = None
    ever: set[str] = field(default_factory=set)
    proved: dict[str, tuple[object, ...]] = field(default_factory=dict)
    retired: dict[str, int] = field(default_factory=dict)
    forbidden: list[str] = field(default_factory=list)
    mended: set[int] = field(default_factory=set)
    copied: bool = False

    def __post_init__(self) -> None:
        self.chronicle.on_delete = self._deleting

    def check(self) -> None:
        """I1 to I4, I8, I9 and I10 as things stand."""
        self._unchanged()
        self._follow()
        self._contiguous()
        for live in self.state.live if self.state else ():
            self._whole(live.generation, live.manifest_key, live.manifest_sha256)
        twice = [key for key, seen in self.chronicle.written.items() if len(seen) > 1 and key != self.remote.head]
        assert twice == [], f"I8: {self.chronicle.name}: written with two contents: {twice}"
        assert self.forbidden == [], f"I9: {self.forbidden}"

    def _unchanged(self) -> None:
        """I2, I5: an entry that stood there stands there, byte for byte."""
        objects = self.chronicle.store.objects
        for slot, data in enumerate(self.data):
            held = objects.get(self.remote.log(slot))
            assert held is not None, f"I2: slot {slot} of {self.chronicle.name} is gone"
            assert held.data is data or held.data == data, f"I2: slot {slot} of {self.chronicle.name} changed"

    def _follow(self) -> None:
        """Read on; I2: chained; I3, I4, I10: each new entry keeps the rules."""
        objects = self.chronicle.store.objects
        while (held := objects.get(self.remote.log(len(self.data)))) is not None:
            slot = len(self.data)
            entry = parse_entry(held.data, slot=slot, run=self.remote.run)
            assert entry.prev == (self.digests[-1] if self.digests else NO_ENTRY), f"I2: slot {slot} does not chain"
            before, (after, verdict) = self.state, fold(self.state, entry)
            assert verdict is Verdict.APPLIED, f"slot {slot} of {self.chronicle.name} is refused: {verdict}"
            self.data.append(held.data)
            self.digests.append(hashlib.sha256(held.data).hexdigest())
            self.entries.append(entry)
            self.state = after
            self._entered(before, entry)

    def _contiguous(self) -> None:
        slots = sum(1 for key in self.chronicle.store.objects if key.startswith(self.remote.log_prefix))
        assert slots == len(self.data), f"I2: {self.chronicle.name} has {slots} slots, {len(self.data)} without a gap"

    def rebase(self, changed: set[int]) -> None:
        """Take the log for what it is after a repair: slots that fate has ``changed`` say nothing any more."""
        self.mended |= changed
        for slot in changed:
            self.chronicle.written.pop(self.remote.log(slot), None)  # fate took what stood there: it may be filled
        objects = self.chronicle.store.objects
        view = Logbook(MemoryTier("oracle", self.chronicle.store), self.remote).read(thorough=True)
        assert view.damaged == (), f"{self.chronicle.name} is damaged after its repair"
        self.state = view.state
        before = len(self.data)
        self.data = [objects[self.remote.log(slot)].data for slot in range(view.next_slot)]
        self.digests = [hashlib.sha256(data).hexdigest() for data in self.data]
        for slot in range(before, view.next_slot):
            entry = parse_entry(self.data[slot], slot=slot, run=self.remote.run)
            self.entries.append(entry)
            if isinstance(entry.body, Retire):
                self.retired[entry.body.manifest_key] = slot
            if isinstance(entry.body, Commit):
                self.ever |= {entry.body.generation, entry.body.manifest_key}

    def _entered(self, before: LogState | None, entry: Entry) -> None:
        body = entry.body
        lineage = isinstance(body, Claim) or (isinstance(body, Commit) and not body.adopted and not self.copied)
        if lineage and before is not None:
            assert entry.attempt >= before.highest_attempt, "I3: an attempt that was left goes on"
        if isinstance(body, Claim):
            assert before is None or entry.term > before.term, "I3: a claim that does not raise the term"
        elif isinstance(body, Commit):
            assert body.generation in self.sealed, f"{body.generation} was never sealed"
            assert body.adopted or body.manifest_key not in self.ever, "I4: one upload was committed twice"
            self.ever |= {body.generation, body.manifest_key}
        elif isinstance(body, Retire):
            self._taken_back(before, body, entry.slot)

    def _taken_back(self, before: LogState | None, body: Retire, slot: int) -> None:
        """I10: never the newest, and never below the minimum."""
        assert before is not None
        assert before.newest is not None
        self.retired[body.manifest_key] = slot
        if body.damaged:
            return  # another copy of it has taken its place, or will: that is looked at where it was hurt
        assert body.generation != before.newest.generation, "I10: the newest was taken back"
        count = sum(1 for one in self.ever if one in self.sealed)
        assert self.state is not None
        assert len(self.state.live) >= min(self.minimum, count), "I10: too few are left"

    def _whole(self, generation: str, manifest_key: str, digest: str) -> None:
        """I1: the manifest and every object that it names are there, with the sealed bytes."""
        objects = self.chronicle.store.objects
        known = self.proved.get(manifest_key)
        if known is not None and all(objects.get(one.info.key) is one for one in known):  # type: ignore[attr-defined]
            return
        where = f"I1: {generation} on {self.chronicle.name}"
        assert manifest_key in objects, f"{where}: its manifest is missing"
        data = objects[manifest_key].data
        assert canonical.sha256(data) == digest, f"{where}: another manifest"
        manifest = parse_manifest(data)
        missing = [item.key for item in manifest.objects if item.key not in objects]
        assert missing == [], f"{where}: {missing}"
        found = {item.path: objects[item.key].data for item in manifest.objects}
        assert found == self.sealed[generation], f"{where}: other bytes than were sealed"
        self.proved[manifest_key] = (objects[manifest_key], *(objects[item.key] for item in manifest.objects))

    def _deleting(self, by: str, key: str) -> None:
        """I9: what may be deleted is retired and past its delay, or can never be committed."""
        self._follow()
        prefix = self.remote.prefix_of(key)
        if prefix is None:
            self.forbidden.append(f"{by} deletes {key}")
            return
        state = self.state
        if any(live.manifest_key.startswith(prefix.text) for live in (state.live if state else ())):
            self.forbidden.append(f"{by} deletes {key}, which is committed")
        slot = self.retired.get(self.remote.manifest(prefix.text))
        if slot is not None:
            age = (self.chronicle.clock.now() - self._written(slot)).total_seconds()
            if age < self.delay:
                self.forbidden.append(f"{by} deletes {key} {age} seconds after it was retired")
        elif prefix.term >= (state.term if state else 0) and prefix.text not in self.given_up(by, self.chronicle.name):
            self.forbidden.append(f"{by} deletes {key}, which may still be committed")

    def _written(self, slot: int) -> datetime:
        return self.chronicle.times[self.remote.log(slot)]

    def may_go(self, key: str) -> bool:
        """Tell whether a key is of a generation that was taken back."""
        prefix = self.remote.prefix_of(key)
        return prefix is not None and self.remote.manifest(prefix.text) in self.retired

    def acknowledge(self, generation: str, slot: int) -> None:
        """I5: what is called committed stands in its slot (where it stays: I2)."""
        self._follow()
        body = self.entries[slot].body
        assert isinstance(body, Commit), f"I5: slot {slot} is a {body.kind}"
        assert body.generation == generation, f"I5: slot {slot} is of {body.generation}"

    def check_tracker(self, tracker: Tracker, floor: int) -> int:
        """I6: a tracker says nothing that the log does not say, and never goes back; returns what it has seen."""
        name = self.chronicle.name
        seen = tracker.seen(name)
        if seen is None:
            assert tracker.completed(name) == (), "I6: completed, and nothing seen"
            return floor
        assert floor <= seen.slot < len(self.data), f"I6: seen {seen.slot}, before {floor}, there {len(self.data)}"
        assert seen.sha256 == self.digests[seen.slot] or seen.slot in self.mended, "I6: seen is not what is there"
        for item in tracker.completed(name):
            if item.slot in self.mended:
                continue
            assert item.slot <= seen.slot, "I6: completed beyond what was seen"
            body = self.entries[item.slot].body
            assert isinstance(body, Commit), "I6: completed by what is no commit"
            assert (body.generation, body.manifest_sha256) == (str(item.generation), item.manifest_sha256), "I6"
        return seen.slot

    @property
    def live(self) -> set[str]:
        """Generations that are committed now."""
        self._follow()
        return {live.generation for live in self.state.live} if self.state else set()

    @property
    def attempts(self) -> dict[int, set[str]]:
        """Attempt numbers with their ids."""
        found: dict[int, set[str]] = {}
        for attempt in self.state.attempts if self.state else ():
            found.setdefault(attempt.number, set()).add(attempt.id)
        return found
