"""Transfers that go wrong, and local bytes that are not the seal's: told apart, and never counted as sent."""

import threading
from dataclasses import replace
from pathlib import Path

import pytest
from core.builders import READ_BACK, Machine, RecordingTier
from core.senders import BIG, FILES, Sender, machine_with

from replicate import digests
from replicate.errors import LocalDisk
from replicate.origins import LocalDamage
from replicate.upload import RESENDS, Draining
from tiers.bodies import Body
from tiers.errors import AccessDenied, IntegrityError, ObjectNotFound, TierError, TierUnavailable
from tiers.memory import MEMORY_CAPABILITIES, MemoryTier
from tiers.protocol import Capabilities, Key, ObjectInfo, Part, Upload
from tiers.testing import Action, Fault, When


def test_corrupted_transfer_is_sent_again(sender: Sender) -> None:
    """The store refuses what is not the seal; the other parts are not in vain."""
    done = sender.send(
        Fault(verb="put_part", nth=2, action=Action.CORRUPT, at=3),
        Fault(verb="put", key="*/small.bin", action=Action.CORRUPT, at=0),
    )
    sender.check_arrived(done, FILES)
    assert sender.requests("put_part") <= 8


@pytest.mark.parametrize("verb", ["put", "put_part"])
def test_transfer_that_is_always_corrupted_ends(sender: Sender, verb: str) -> None:
    key = "*/small.bin" if verb == "put" else "*/big.bin"
    with pytest.raises(IntegrityError):
        sender.send(Fault(verb=verb, key=key, times=1000, action=Action.CORRUPT), connections=1)
    if verb == "put":
        assert sum(1 for one in sender.machine.faulty.fired if one.verb == "put") == 1 + RESENDS


class LyingTier(RecordingTier):
    """Answers puts with a digest that is not the sealed one, so many times."""

    def __init__(self, inner: MemoryTier, times: int) -> None:
        super().__init__(inner)
        self.left = times

    def put(self, key: Key, body: Body) -> ObjectInfo:
        info = super().put(key, body)
        if key.endswith("small.bin") and self.left:
            self.left -= 1
            return replace(info, sha256="0" * 64)
        return info


@pytest.mark.parametrize(("lies", "arrives"), [(RESENDS, True), (RESENDS + 1, False)])
def test_wrong_stored_bytes_are_sent_again_so_often_and_no_more(sender: Sender, lies: int, arrives: bool) -> None:
    sender.machine.recorder = LyingTier(MemoryTier("remote", sender.machine.store), lies)
    if arrives:
        sender.check_arrived(sender.send(), FILES)
    else:
        with pytest.raises(IntegrityError, match="not the sealed one"):
            sender.send()
    small = [key for verb, key in sender.machine.recorder.requests if verb == "put" and key.endswith("small.bin")]
    assert len(small) == 1 + RESENDS


def test_complete_whose_reply_was_lost_is_settled_by_a_stat(sender: Sender) -> None:
    """A retry of the complete finds no such upload."""

    def gone(tier: str, verb: str, key: str) -> Exception:
        return ObjectNotFound("no such upload", tier=tier, operation=verb, key=key)

    sender.check_arrived(sender.send(Fault(verb="complete", when=When.AFTER, error=gone)), FILES)
    assert sender.requests("complete") == 1


def test_complete_that_timed_out_is_looked_for_and_nothing_is_aborted(sender: Sender) -> None:
    sender.check_arrived(sender.send(Fault(verb="complete", action=Action.LOST_REPLY)), FILES)
    assert (sender.requests("put_part"), sender.requests("complete"), sender.requests("abort")) == (6, 1, 0)


def test_complete_that_was_lost_and_never_happened_is_done_again(sender: Sender) -> None:
    with pytest.raises(TierUnavailable):
        sender.send(Fault(verb="complete"))
    sender.check_arrived(sender.send(resumed=True), FILES)
    assert (sender.requests("put_part"), sender.requests("complete")) == (6, 1)


def test_complete_that_happened_before_a_kill_is_found(sender: Sender) -> None:
    """Also where the store did not even say so afterwards."""
    with pytest.raises(TierUnavailable):
        sender.send(Fault(verb="complete", action=Action.LOST_REPLY), Fault(verb="stat", times=100))
    sender.machine.start()
    sender.check_arrived(sender.send(resumed=True), FILES)
    assert (sender.requests("put_part"), sender.requests("complete")) == (6, 1)


@pytest.mark.parametrize("key", ["*/big.bin", "*/small.bin"])
def test_flipped_bit_is_caught_by_reading_back(reading: Sender, key: str) -> None:
    """Once: the next try arrives.  Always: it fails, and nothing counts as sent."""
    done = reading.send(Fault(verb="open", key=key, action=Action.CORRUPT, at=2))
    reading.check_arrived(done, FILES)
    assert {item.verified_by for item in done} == {"read-back"}
    with pytest.raises(IntegrityError, match="other bytes"):
        reading.send(Fault(verb="open", key=key, times=100, action=Action.CORRUPT, at=2), resumed=True)


@pytest.mark.parametrize("action", [Action.SILENT_SHORT_READ, Action.SHORT_READ])
def test_object_that_reads_back_short_is_not_proved(reading: Sender, action: Action) -> None:
    wanted = IntegrityError if action is Action.SILENT_SHORT_READ else TierUnavailable
    with pytest.raises(wanted):
        reading.send(Fault(verb="open", key="*/big.bin", times=100, action=action, at=50))


def overwrite(path: Path, data: bytes) -> None:
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["big.bin", "small.bin"])
@pytest.mark.parametrize("how", ["flipped", "short", "long", "gone", "link"])
@pytest.mark.parametrize("part_size", [None, 100])
def test_local_damage_is_told_and_nothing_is_proved(
    machine: Machine, tmp_path: Path, name: str, how: str, part_size: int | None
) -> None:
    """Also where the stat identity gives no hint: the store refuses, and the seal tells why."""
    one = Sender(machine, tmp_path, FILES, part_size=part_size)
    path = one.source.files / name
    data = FILES[name]
    bad = {"flipped": data[:-1] + bytes([data[-1] ^ 1]), "short": data[:-1], "long": data + b"x"}.get(how)
    path.unlink()
    if bad is not None:
        path.write_bytes(bad)
    if how == "link":
        path.symlink_to("/dev/null")
    if how == "long":  # the sealed part of it is intact: only what was touched is looked at
        with pytest.raises(LocalDamage):
            one.send(changed=(name,))
        return
    with pytest.raises(LocalDamage, match=name):
        one.send()
    assert name not in machine.tracker.verified("remote", one.source.id)


@pytest.mark.parametrize("capabilities", [MEMORY_CAPABILITIES, READ_BACK])
def test_touched_file_is_hashed_before_it_is_sent(tmp_path: Path, capabilities: Capabilities) -> None:
    machine = machine_with(tmp_path, capabilities)
    one = Sender(machine, tmp_path, FILES)
    before = digests.HASHED.value
    one.check_arrived(one.send(changed=("small.bin",)), FILES)
    assert digests.HASHED.value - before == 20
    overwrite(one.source.files / "small.bin", b"y" * 20)
    with pytest.raises(LocalDamage):
        one.send(changed=("small.bin",), resumed=True)
    machine.tracker.close()


def test_damage_during_the_upload_is_told(sender: Sender) -> None:
    """The file changes after its first parts went up."""

    class Meddler(RecordingTier):
        def put_part(self, upload: Upload, number: int, body: Body) -> Part:
            if number == 3:
                overwrite(sender.source.files / "big.bin", b"z" * len(BIG))
            return super().put_part(upload, number, body)

    sender.machine.recorder = Meddler(MemoryTier("remote", sender.machine.store))
    with pytest.raises(LocalDamage):
        sender.send(connections=1)


def test_disk_that_fails_while_the_file_is_sound_is_no_damage(sender: Sender) -> None:
    """A reading error that is over by the time one looks: a matter for the next pass, not for quarantine."""

    def broken(_tier: str, _verb: str, _key: str) -> Exception:
        return OSError(5, "Input/output error")

    with pytest.raises(LocalDisk, match="could not be read"):
        sender.send(Fault(verb="put", key="*/small.bin", error=broken))


def test_stop_leaves_what_can_be_resumed(sender: Sender) -> None:
    class Stopper(RecordingTier):
        def put_part(self, upload: Upload, number: int, body: Body) -> Part:
            part = super().put_part(upload, number, body)
            if number == 2:
                sender.machine.stop.set()
            return part

    sender.machine.recorder = Stopper(MemoryTier("remote", sender.machine.store))
    with pytest.raises(Draining):
        sender.send(connections=1)
    sent = sender.requests("put_part")
    assert 2 <= sent < 6
    sender.machine.stop.clear()
    sender.machine.recorder = RecordingTier(MemoryTier("remote", sender.machine.store))
    sender.machine.start()
    sender.check_arrived(sender.send(resumed=True), FILES)
    assert sender.requests("put_part") == 6 - sent


def test_failure_that_says_most_is_raised(sender: Sender) -> None:
    """The others stop because of it; what is told is the reason, not that they stopped."""

    def denied(tier: str, verb: str, key: str) -> TierError:
        return AccessDenied("no", tier=tier, operation=verb, key=key)

    with pytest.raises(AccessDenied):
        sender.send(Fault(verb="put_part", nth=2, error=denied))


class GaugeTier(RecordingTier):
    """Counts the requests that are under way at once; each waits a little for company."""

    def __init__(self, inner: MemoryTier) -> None:
        super().__init__(inner)
        self.lock = threading.Lock()
        self.now = self.most = 0
        self.company = threading.Event()

    def _enter(self) -> None:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
            if self.now > 2:
                self.company.set()
        self.company.wait(0.02)

    def _leave(self) -> None:
        with self.lock:
            self.now -= 1

    def put(self, key: Key, body: Body) -> ObjectInfo:
        self._enter()
        try:
            return super().put(key, body)
        finally:
            self._leave()

    def put_part(self, upload: Upload, number: int, body: Body) -> Part:
        self._enter()
        try:
            return super().put_part(upload, number, body)
        finally:
            self._leave()


def test_no_more_requests_at_once_than_connections(machine: Machine, tmp_path: Path) -> None:
    """Parts and whole files share the limit."""
    gauge = GaugeTier(MemoryTier("remote", machine.store))
    machine.recorder = gauge
    files = {"big.bin": BIG} | {f"s{number}": b"x" for number in range(6)}
    Sender(machine, tmp_path, files).send(connections=2)
    assert gauge.most <= 2
