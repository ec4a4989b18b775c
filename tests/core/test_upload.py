"""Sending: only what is missing, hashed once, and proved by what the tier attests."""

from dataclasses import replace
from pathlib import Path

import pytest
from core.builders import LEAF, READ_BACK, Machine, RecordingTier
from core.senders import BIG, FILES, Sender, machine_with

from replicate import digests
from replicate.upload import Progress
from tiers.bodies import Body
from tiers.errors import TierUnavailable
from tiers.memory import MEMORY_CAPABILITIES, MemoryTier
from tiers.protocol import Capabilities, Key, Part, PartPage, Upload
from tiers.testing import Fault, content


def test_everything_arrives_and_says_how_it_was_proved(sender: Sender) -> None:
    done = sender.send()
    sender.check_arrived(done, FILES)
    assert {item.verified_by for item in done} == {"store-sha256"}
    assert {item.path: item.part_size for item in done} == {"big.bin": LEAF, "small.bin": 0, "empty": 0}
    assert all(item.parts == () for item in done)
    assert sender.progress[-1] == Progress(done_bytes=len(BIG) + 20, total_bytes=len(BIG) + 20)


def test_empty_files_go_by_plain_put(sender: Sender) -> None:
    """Stores refuse uploads of no parts."""
    sender.send()
    assert ("put", sender.prefix + "files/empty") in sender.machine.recorder.requests


@pytest.mark.parametrize("capabilities", [MEMORY_CAPABILITIES, READ_BACK])
def test_nothing_is_hashed_again_where_a_part_is_a_leaf(tmp_path: Path, capabilities: Capabilities) -> None:
    machine = machine_with(tmp_path, capabilities)
    one = Sender(machine, tmp_path, FILES)
    before = digests.HASHED.value
    one.check_arrived(one.send(), FILES)
    assert digests.HASHED.value == before
    machine.tracker.close()


def test_other_part_sizes_are_hashed_once_more_and_listed(machine: Machine, tmp_path: Path) -> None:
    """In the same pass the leaves are checked: both hashes are counted."""
    one = Sender(machine, tmp_path, FILES, part_size=100)
    before = digests.HASHED.value
    done = one.send()
    assert digests.HASHED.value - before == 2 * len(BIG)
    one.check_arrived(done, FILES)
    assert [len(item.parts) for item in done] == [-(-len(BIG) // 100), 0, 0]


def test_single_part_upload_is_proved(tmp_path: Path) -> None:
    """A file that is one leaf and too large for one request."""
    machine = machine_with(tmp_path, replace(MEMORY_CAPABILITIES, max_put=10))
    one = Sender(machine, tmp_path, {"f": content(20)})
    one.check_arrived(one.send(), {"f": content(20)})
    machine.tracker.close()


def test_resume_sends_only_the_missing_parts(sender: Sender) -> None:
    """What was accepted before the tier failed stays; verified objects are looked at and not sent."""
    with pytest.raises(TierUnavailable):
        sender.send(Fault(verb="put_part", nth=4, times=10), connections=1)
    assert sender.requests("put_part") == 3
    done = sender.send(resumed=True, connections=1)
    assert sender.requests("put_part") == 6
    assert sender.requests("complete") == 1
    sender.check_arrived(done, FILES)
    puts = sender.requests("put")
    assert sender.send(resumed=True) == done
    assert (sender.requests("put_part"), sender.requests("put")) == (6, puts)


def test_resume_after_a_kill_reads_the_journal(sender: Sender) -> None:
    with pytest.raises(TierUnavailable):
        sender.send(Fault(verb="put_part", nth=3, times=10), connections=1)
    sender.machine.start()
    sender.check_arrived(sender.send(resumed=True), FILES)
    assert sender.requests("put_part") == 6


class BlindTier(RecordingTier):
    """A store that lists parts without attesting their digests; ``etags`` replaces what it calls them."""

    def __init__(self, inner: MemoryTier) -> None:
        super().__init__(inner)
        self.etags: dict[int, str] = {}

    def put_part(self, upload: Upload, number: int, body: Body) -> Part:
        return replace(super().put_part(upload, number, body), sha256=None)

    def list_parts(self, upload: Upload, token: str | None = None) -> PartPage:
        page = self.inner.list_parts(upload, token)
        parts = tuple(replace(p, sha256=None, etag=self.etags.get(p.number, p.etag)) for p in page.parts)
        return PartPage(parts=parts, next_token=page.next_token)


def half_sent(sender: Sender) -> None:
    with pytest.raises(TierUnavailable):
        sender.send(Fault(verb="put_part", nth=4, times=10), connections=1)
    assert sender.requests("put_part") == 3


def use_blind_tier(sender: Sender) -> BlindTier:
    blind = BlindTier(MemoryTier("remote", sender.machine.store))
    sender.machine.recorder = blind
    return blind


def test_listed_part_counts_by_the_journalled_etag(sender: Sender) -> None:
    use_blind_tier(sender)
    half_sent(sender)
    sender.check_arrived(sender.send(resumed=True), FILES)
    assert sender.requests("put_part") == 6


def test_listed_part_with_another_etag_is_sent_again(sender: Sender) -> None:
    """Somebody else's bytes under our upload id: the journal does not know them."""
    blind = use_blind_tier(sender)
    half_sent(sender)
    blind.etags = {2: "somebody-else"}
    sender.check_arrived(sender.send(resumed=True), FILES)
    assert sender.requests("put_part") == 7


def test_listed_part_that_was_never_journalled_is_sent_again(sender: Sender) -> None:
    """Accepted by the store, and killed before the journal: unproved without a digest."""
    use_blind_tier(sender)
    half_sent(sender)
    with sender.machine.tracker._change("forget") as db:
        db.execute("DELETE FROM part WHERE number=3")
    sender.check_arrived(sender.send(resumed=True), FILES)
    assert sender.requests("put_part") == 7


def test_listed_part_with_another_digest_is_sent_again(sender: Sender) -> None:
    half_sent(sender)
    upload = sender.machine.tracker.upload_of(
        "remote", sender.source.id, "big.bin", Key(sender.prefix + "files/big.bin"), len(BIG)
    )
    assert upload is not None
    pending = sender.machine.store.uploads[upload.upload_id]
    part, _ = pending.parts[1]
    pending.parts[1] = (replace(part, sha256="0" * 64), b"x" * LEAF)
    sender.check_arrived(sender.send(resumed=True), FILES)
    assert sender.requests("put_part") == 7


def test_upload_that_expired_is_begun_again(sender: Sender) -> None:
    half_sent(sender)
    sender.machine.store.uploads.clear()
    sender.check_arrived(sender.send(resumed=True), FILES)
    assert sender.requests("put_part") == 9


def test_object_of_the_right_size_and_wrong_bytes_does_not_count_on_resume(sender: Sender) -> None:
    """Size from a stat alone is no proof."""
    MemoryTier("other", sender.machine.store).create(Key(sender.prefix + "files/small.bin"), b"x" * 20)
    sender.check_arrived(sender.send(resumed=True), FILES)
