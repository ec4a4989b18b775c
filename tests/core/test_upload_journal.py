"""What an upload writes down and when: few transactions, nothing lost that would cost a byte, whenever it is killed."""

import contextlib
import os
import signal
import sqlite3
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from core.builders import LEAF, REMOTE, LocalSource, Machine, make_source
from core.senders import Sender

from replicate.journal import SOON_SECONDS
from replicate.manifest import ManifestObject
from replicate.plan import plan_upload
from replicate.tracker import PlannedUpload, Tracker
from replicate.upload import Uploader, batch
from replicate.upload.batch import BATCH_OBJECTS, BATCH_SECONDS
from tiers.effects import Effect, Moment, observing
from tiers.errors import TierUnavailable
from tiers.metered import Meter, MeteredTier
from tiers.protocol import Key, Part, Upload, UploadId
from tiers.testing import Fault, ManualClock, content, read_all
from tiers.volume import VolumeTier

MANY = {f"s{number:04}": b"x%d" % number for number in range(2 * BATCH_OBJECTS + 10)}


def transactions(act: Callable[[], object]) -> list[str]:
    """Return what was written down."""
    found: list[str] = []

    def note(kind: Effect, what: str, moment: Moment) -> None:
        if kind is Effect.TRANSACTION and moment is Moment.AFTER:
            found.append(what)

    with observing(note):
        act()
    return found


def test_many_small_files_take_few_transactions(machine: Machine, tmp_path: Path) -> None:
    one = Sender(machine, tmp_path, MANY)
    found = transactions(lambda: one.send(connections=4))
    assert len(found) == 3
    assert machine.tracker.verified("remote", one.source.id) == dict.fromkeys(MANY, "store-sha256")


def test_what_waits_too_long_is_written_down(machine: Machine, tmp_path: Path) -> None:
    """By the clock that the tracker was given, at the next object."""
    one = Sender(machine, tmp_path, dict(list(MANY.items())[:10]))
    original = machine.tracker.objects_verified
    seen: list[int] = []

    def note(tier: str, generation: object, means: dict[str, str]) -> None:
        seen.append(len(means))
        original(tier, one.source.id, means)

    machine.tracker.objects_verified = note  # type: ignore[method-assign,assignment]
    inner = machine.recorder.put

    def put(*arguments: object) -> object:
        machine.clock.advance(BATCH_SECONDS / 2)
        return inner(*arguments)  # type: ignore[arg-type]

    machine.recorder.put = put  # type: ignore[method-assign,assignment]
    one.send(connections=1)
    assert seen == [3, 3, 3, 1]


def test_what_was_verified_is_written_down_also_where_another_object_fails(machine: Machine, tmp_path: Path) -> None:
    files = {"a": b"1", "b": b"2", "c": b"3"}
    one = Sender(machine, tmp_path, files)
    with pytest.raises(TierUnavailable):
        one.send(Fault(verb="put", key="*/c", times=10), connections=1)
    assert set(machine.tracker.verified("remote", one.source.id)) == {"a", "b"}


def test_all_is_written_down_before_the_manifest(machine: Machine, source: LocalSource) -> None:
    """A process that finds a manifest knows how each object of it was proved, so that it writes the same bytes."""
    order: list[str] = []

    def note(kind: Effect, what: str, moment: Moment) -> None:
        if moment is Moment.BEFORE and kind in (Effect.TRANSACTION, Effect.REMOTE):
            order.append(what)

    with observing(note):
        machine.run(source)
    verified = next(place for place, what in enumerate(order) if what.startswith("verified 3 of"))
    manifest = next(place for place, what in enumerate(order) if " put " in what and what.endswith("manifest.json"))
    assert verified < manifest
    assert not [what for what in order[manifest:] if what.startswith("verified")]


@dataclass(frozen=True, slots=True)
class Place:
    """A store, a volume and a tracker on the disk, which outlive the process that uses them."""

    root: Path
    source: LocalSource

    def upload(self, meter: Meter, *, resumed: bool) -> tuple[ManifestObject, ...]:
        """Upload as a new process does."""
        tracker = Tracker.open(self.root / "tracker", ManualClock())
        try:
            planned = PlannedUpload(generation=self.source.id, term=1, nonce="n", started_at="then", part_size=None)
            if not tracker.planned("v"):
                tracker.begin("v", planned)
            tier = MeteredTier(VolumeTier("v", self.root / "volume"), meter)
            plan = plan_upload(self.source.record, REMOTE.prefix(self.source.id, 1, "n"), tier.capabilities)
            uploader = Uploader(tier, tracker, connections=1, stop=threading.Event())
            return uploader.upload(plan, self.source.origin, resumed=resumed)
        finally:
            tracker.close()

    def killed_at(self, number: int) -> bool:
        """Upload in a fork that is killed at an announcement; tell whether it got there."""
        child = os.fork()
        if not child:
            left = number

            def die(kind: Effect, _what: str, _moment: Moment) -> None:
                nonlocal left
                if kind in (Effect.TRANSACTION, Effect.REMOTE):
                    left -= 1
                    if not left:
                        os.kill(os.getpid(), signal.SIGKILL)

            with observing(die):
                self.upload(Meter(), resumed=False)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        assert status in (0, signal.SIGKILL)
        return status != 0

    def journalled(self) -> set[str]:
        """Return what the tracker says was verified, read beside it."""
        with contextlib.closing(sqlite3.connect(self.root / "tracker/tracker.sqlite")) as db:
            return {path for (path,) in db.execute("SELECT path FROM object WHERE verified_by IS NOT NULL")}


def test_killed_anywhere_the_next_start_sends_only_what_was_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also between an object's proof and the transaction that would have told of it: a look, and not a byte."""
    monkeypatch.setattr(batch, "BATCH_OBJECTS", 3)
    files = {"a-big": content(3 * LEAF)} | {f"s{number}": content(20 + number, seed=number) for number in range(7)}
    kills = unjournalled = 0
    for number in range(1, 200):
        root = tmp_path / str(number)
        place = Place(root, make_source(root, files))
        (root / "volume").mkdir()
        if not place.killed_at(number):
            break
        kills += 1
        keys = {f"{REMOTE.prefix(place.source.id, 1, 'n')}files/{path}": path for path in files}
        volume = VolumeTier("v", root / "volume")
        there = {keys[info.key] for info in volume.list_objects("").objects if info.key in keys}
        known = place.journalled() if (root / "tracker/tracker.sqlite").exists() and number > 1 else set()
        assert known <= there
        unjournalled += len(there - known) > 0
        meter = Meter()
        done = place.upload(meter, resumed=True)
        sent = meter.snapshot()
        assert sent.sent() <= sum(len(data) for path, data in files.items() if path not in there)
        assert sent.count("put") <= len(files) - 1 - len(there - {"a-big"})
        assert {item.path: read_all(volume.open(Key(item.key))) for item in done} == files
    assert kills > 40
    assert unjournalled > 10, "the fault that is looked for: proved, not yet written down"


def accepted(tracker: Tracker, source: LocalSource, number: int) -> None:
    upload = Upload(key=Key("k"), upload_id=UploadId("u"), size=100, part_size=10)
    tracker.part_accepted("t", source.id, "f", upload, Part(number=number, size=10, etag="e"))


def test_accepted_parts_outlive_the_process_and_do_not_wait_for_the_disk_each(
    tmp_path: Path, source: LocalSource
) -> None:
    """The fsync comes with the next transaction that needs one, or within a second; a reader sees them at once."""
    clock = ManualClock()
    tracker = Tracker.open(tmp_path, clock)
    executed: list[str] = []
    tracker._connection.set_trace_callback(executed.append)
    for number in range(1, 4):
        accepted(tracker, source, number)
    assert executed.count("PRAGMA synchronous=NORMAL") == 3
    (mode,) = tracker._connection.execute("PRAGMA synchronous").fetchone()
    assert mode == 2, "every other transaction is durable"
    with contextlib.closing(sqlite3.connect(tmp_path / "tracker.sqlite")) as other:
        assert other.execute("SELECT count(*) FROM part").fetchone() == (3,)
    clock.advance(SOON_SECONDS)
    accepted(tracker, source, 4)
    assert executed.count("PRAGMA synchronous=NORMAL") == 3, "this one takes the others to the disk"
    accepted(tracker, source, 5)
    assert executed.count("PRAGMA synchronous=NORMAL") == 4
    tracker.close()


def test_the_upload_id_is_durable_before_a_part_is_sent(machine: Machine, tmp_path: Path) -> None:
    """Lost, it would leave an upload that nobody aborts."""
    one = Sender(machine, tmp_path, {"f": content(3 * LEAF)})
    executed: list[str] = []
    machine.tracker._connection.set_trace_callback(executed.append)
    one.send(connections=1)
    begun = next(place for place, text in enumerate(executed) if "path, upload_id, upload_part_size) VALUES" in text)
    assert not [text for text in executed[: begun + 1] if "NORMAL" in text]
