"""Bytes that stand on the tier already: copied there where that is proved, sent in every other case."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from core.builders import LEAF, READ_BACK, Machine, RecordingTier
from core.senders import Sender, machine_with

from replicate.manifest import ManifestObject
from replicate.plan import CopySource, ObjectPlan, PartPlan, UploadPlan, plan_upload
from replicate.upload import Progress, Uploader
from tiers.bodies import BytesBody
from tiers.errors import AccessDenied, IntegrityError, ObjectNotFound, TierError, TierUnavailable, Unsupported
from tiers.memory import MEMORY_CAPABILITIES, MemoryTier
from tiers.protocol import Capabilities, Key, ObjectInfo, Part, Upload
from tiers.testing import Action, Fault, content

BIG = content(5 * LEAF + 7)
OLD = Key("older/big.bin")
SMALL = Key("older/small.bin")
FILES = {"big.bin": BIG, "small.bin": content(40, seed=1)}
COPIED = 4 * LEAF
"""All of the big file but its third leaf, which is new, and its last."""


class Copying(Sender):
    """A generation most of which the tier has already, under other keys."""

    def __init__(self, machine: Machine, root: Path) -> None:
        super().__init__(machine, root, FILES)
        self.there = MemoryTier("earlier", machine.store)
        self.put_sources()
        self.uploader: Uploader | None = None

    def put_sources(self, big: bytes = b"?" * 8 + BIG, small: bytes = FILES["small.bin"]) -> None:
        """Store an object that has the bytes of the big file from its 9th byte on, and one that is the small file."""
        self.there.put(OLD, BytesBody(big))
        self.there.put(SMALL, BytesBody(small))

    def plan(self) -> UploadPlan:
        plan = plan_upload(self.source.record, self.prefix, self.machine.tier.capabilities)
        return replace(plan, objects=tuple(self._sourced(item) for item in plan.objects))

    def _sourced(self, item: ObjectPlan) -> ObjectPlan:
        def of(part: PartPlan) -> PartPlan:
            if not item.part_size:
                return replace(part, source=CopySource(key=SMALL, start=0))
            return part if part.number in (3, 6) else replace(part, source=CopySource(key=OLD, start=part.start + 8))

        return replace(item, parts=tuple(of(part) for part in item.parts))

    def send(
        self, *faults: Fault, resumed: bool = False, changed: tuple[str, ...] = (), connections: int = 1
    ) -> tuple[ManifestObject, ...]:
        self.machine.schedule(*faults)
        self.uploader = Uploader(
            self.machine.tier,
            self.machine.tracker,
            connections=connections,
            stop=self.machine.stop,
            on_progress=self.progress.append,
        )
        done = self.uploader.upload(self.plan(), self.source.origin, changed, resumed=resumed)
        self.machine.faulty.assert_all_fired()
        self.check_arrived(done, FILES)
        return done

    @property
    def copied(self) -> int:
        assert self.uploader is not None
        return self.uploader.copied_bytes

    def asked(self, verb: str) -> int:
        return sum(count for (one, _), count in self.machine.meter.snapshot().requests.items() if one == verb)


@pytest.fixture
def copying(machine: Machine, tmp_path: Path) -> Copying:
    return Copying(machine, tmp_path)


def test_what_stands_there_is_copied_and_counted(copying: Copying) -> None:
    done = copying.send(connections=4)
    assert {item.verified_by for item in done} == {"store-sha256"}
    assert (copying.asked("copy_part"), copying.asked("put_part")) == (4, 2)
    assert (copying.asked("copy"), copying.asked("put")) == (1, 0)
    assert copying.asked("stat") == 2, "each source is looked at once"
    total = len(BIG) + 40
    assert copying.copied == COPIED + 40
    assert copying.progress[-1] == Progress(done_bytes=total, total_bytes=total, copied_bytes=COPIED + 40)
    assert copying.machine.meter.snapshot().sent() == total - copying.copied


def test_a_copied_part_is_journalled_like_a_sent_one(copying: Copying) -> None:
    """The upload stops before its end; the next start copies and sends nothing of what was accepted."""
    with pytest.raises(TierUnavailable):
        copying.send(Fault(verb="complete"))
    upload = copying.machine.tracker.upload_of(
        "remote", copying.source.id, "big.bin", Key(copying.prefix + "files/big.bin"), len(BIG)
    )
    assert upload is not None
    assert len(copying.machine.tracker.parts_of("remote", copying.source.id, "big.bin", upload)) == 6
    before = copying.asked("copy_part"), copying.asked("put_part")
    copying.machine.start()
    copying.send(resumed=True)
    assert (copying.asked("copy_part"), copying.asked("put_part")) == before == (4, 2)


def refusal(kind: type[TierError]) -> Callable[[str, str, str], Exception]:
    def make(tier: str, verb: str, key: str) -> Exception:
        hint = {"hint": "send it"} if kind is Unsupported else {}
        return kind("no", tier=tier, operation=verb, key=key, **hint)

    return make


@pytest.mark.parametrize("kind", [ObjectNotFound, IntegrityError, Unsupported, AccessDenied])
@pytest.mark.parametrize("verb", ["copy_part", "stat"])
def test_a_source_that_fails_is_given_up_and_its_parts_are_sent(
    copying: Copying, kind: type[TierError], verb: str
) -> None:
    copying.send(Fault(verb=verb, key="*big.bin", error=refusal(kind)))
    assert copying.asked("put_part") == 6
    assert copying.asked("copy_part") == (1 if verb == "copy_part" else 0), "it is not tried again"
    assert (copying.asked("copy"), copying.copied) == (1, 40), "the other source serves all the same"


@pytest.mark.parametrize("kind", [ObjectNotFound, IntegrityError, Unsupported, AccessDenied])
def test_a_whole_file_whose_copy_fails_is_sent(copying: Copying, kind: type[TierError]) -> None:
    copying.send(Fault(verb="copy", error=refusal(kind)))
    assert (copying.asked("copy"), copying.asked("put")) == (1, 1)
    assert copying.copied == COPIED


def test_a_source_that_was_overwritten_after_it_was_looked_at_is_not_copied(copying: Copying) -> None:
    """What the plan saw is gone: the ETag tells."""

    class Overwriter(RecordingTier):
        def stat(self, key: Key) -> ObjectInfo:
            info = self.inner.stat(key)
            copying.put_sources()  # the same bytes, another object
            return info

    copying.machine.recorder = Overwriter(MemoryTier("remote", copying.machine.store))
    copying.send()
    assert (copying.copied, copying.asked("put_part"), copying.asked("put")) == (0, 6, 1)
    assert (copying.asked("copy_part"), copying.asked("copy")) == (1, 1)


def test_a_source_with_other_bytes_does_not_count(copying: Copying) -> None:
    """The same length, one bit off: the store's digest tells, nothing is copied from it again."""
    copying.put_sources(b"?" * 8 + bytes([BIG[0] ^ 1]) + BIG[1:], bytes([FILES["small.bin"][0] ^ 1]) * 40)
    copying.send()
    assert (copying.copied, copying.asked("copy_part"), copying.asked("copy")) == (0, 1, 1)
    assert (copying.asked("put_part"), copying.asked("put")) == (6, 1)


def test_a_source_of_another_size_is_not_copied_whole(copying: Copying) -> None:
    copying.put_sources(small=FILES["small.bin"] + b"more")
    copying.send()
    assert (copying.asked("copy"), copying.asked("put"), copying.copied) == (0, 1, COPIED)


class Silent(RecordingTier):
    """Copies, and says nothing of what it copied."""

    def copy_part(self, upload: Upload, number: int, source: ObjectInfo, start: int, length: int) -> Part:
        return replace(self.inner.copy_part(upload, number, source, start, length), sha256=None)

    def copy(self, key: Key, source: ObjectInfo) -> ObjectInfo:
        return replace(self.inner.copy(key, source), sha256=None)


def test_a_copy_without_a_digest_does_not_count_where_the_store_should_attest(copying: Copying) -> None:
    copying.machine.recorder = Silent(MemoryTier("remote", copying.machine.store))
    copying.send()
    assert (copying.copied, copying.asked("put_part"), copying.asked("put")) == (0, 6, 1)


@pytest.fixture
def silent(tmp_path: Path) -> Copying:
    """Return a generation on its way to a tier that attests nothing."""
    machine = machine_with(tmp_path, READ_BACK)
    machine.recorder = Silent(MemoryTier("remote", machine.store, capabilities=READ_BACK))
    return Copying(machine, tmp_path)


def test_where_nothing_is_attested_a_copy_is_read_back(silent: Copying) -> None:
    done = silent.send()
    assert {item.verified_by for item in done} == {"read-back"}
    assert silent.copied == COPIED + 40
    assert silent.asked("open") == 2
    silent.machine.tracker.close()


def test_a_wrong_copy_is_found_by_reading_back_and_then_sent(silent: Copying) -> None:
    """Nobody attests anything: other bytes are copied, found, and replaced by the sealed ones."""
    silent.put_sources(b"?" * 8 + bytes([BIG[0] ^ 1]) + BIG[1:], bytes([FILES["small.bin"][0] ^ 1]) * 40)
    silent.send()
    assert silent.copied == 0
    assert (silent.asked("copy_part"), silent.asked("copy")) == (4, 1)
    assert (silent.asked("put_part"), silent.asked("put")) == (2 + 6, 1)
    silent.machine.tracker.close()


@pytest.mark.parametrize("able", [replace(MEMORY_CAPABILITIES, copy=False, copy_part=False)])
def test_a_tier_that_cannot_copy_is_not_asked(tmp_path: Path, able: Capabilities) -> None:
    one = Copying(machine_with(tmp_path, able), tmp_path)
    one.send()
    assert (one.asked("copy_part"), one.asked("copy"), one.asked("stat"), one.copied) == (0, 0, 0, 0)
    one.machine.tracker.close()


@pytest.mark.parametrize("verb", ["copy_part", "copy"])
def test_a_copy_whose_outcome_is_not_known_ends_the_upload(copying: Copying, verb: str) -> None:
    """It may still come about, over what would be sent instead; the next start looks what there is."""
    with pytest.raises(TierUnavailable):
        copying.send(Fault(verb=verb, action=Action.LOST_REPLY))
    copying.machine.start()
    copying.send(resumed=True)
