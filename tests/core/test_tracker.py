"""The tracker: survives restarts, sets damage aside, and never says completed before it is told."""

import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from core.logs import generation

from replicate.errors import LocalDisk
from replicate.journal import SCHEMA_VERSION, Journal, journal_mode_for
from replicate.layout import RemoteRun
from replicate.tracker import Completed, HeldTerm, PlannedUpload, Seen, Tracker
from tiers.effects import Effect, Moment, observing
from tiers.protocol import Key, Part, Upload, UploadId
from tiers.testing import ManualClock

ONE = generation(1)
UPLOAD = Upload(key=Key("k"), upload_id=UploadId("u1"), size=30, part_size=10)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def tracker(folder: Path) -> Iterator[Tracker]:
    one = Tracker.open(folder, ManualClock())
    yield one
    one.close()


def planned(sequence: int = 1, part_size: int | None = None) -> PlannedUpload:
    return PlannedUpload(generation=generation(sequence), term=1, nonce="n", started_at="then", part_size=part_size)


def completed(sequence: int = 1, slot: int = 1) -> Completed:
    return Completed(generation=generation(sequence), slot=slot, manifest_sha256="0" * 64, total_bytes=9, at="now")


def fill(tracker: Tracker) -> None:
    """Leave something in every table."""
    tracker.hold_term("t", term=3, claim_nonce="claim", attempt_id="a")
    tracker.begin("t", planned(1, part_size=5))
    tracker.upload_begun("t", ONE, "f", UPLOAD)
    tracker.part_accepted("t", ONE, "f", UPLOAD, Part(number=2, size=10, etag="e2"))
    tracker.objects_verified("t", ONE, {"g": "store-sha256"})
    tracker.complete("t", [completed(2)], Seen(slot=4, sha256="1" * 64))
    tracker.skip("t", generation(3), "superseded")
    tracker.add_usage("t", {"A": (2, 30, 0)})
    tracker.add_usage("t", {"A": (1, 5, 7)})


def check_filled(tracker: Tracker) -> None:
    assert tracker.term("t") == HeldTerm(term=3, claim_nonce="claim", attempt_id="a", fenced=None)
    assert tracker.planned("t") == (planned(1, part_size=5),)
    assert tracker.upload_of("t", ONE, "f", Key("k"), 30) == UPLOAD
    assert tracker.parts_of("t", ONE, "f", UPLOAD) == {2: Part(number=2, size=10, etag="e2")}
    assert tracker.verified("t", ONE) == {"g": "store-sha256"}
    assert tracker.completed("t") == (completed(2),)
    assert tracker.seen("t") == Seen(slot=4, sha256="1" * 64)
    assert tracker.skipped("t") == {generation(3): "superseded"}
    assert tracker.usage() == (("2026-01-01", "t", "A", 3, 35, 7),)


def test_restart_keeps_everything(folder: Path, tracker: Tracker) -> None:
    fill(tracker)
    tracker.close()
    again = Tracker.open(folder, ManualClock())
    check_filled(again)
    assert again.rebuilt_from is None
    again.close()


def test_process_that_was_killed_loses_nothing(folder: Path, tracker: Tracker) -> None:
    """No close: what a transaction recorded is there for the next process."""
    fill(tracker)
    again = Tracker.open(folder, ManualClock())
    check_filled(again)
    again.close()


def test_unknown_tier_has_nothing(tracker: Tracker) -> None:
    fill(tracker)
    assert (tracker.term("x"), tracker.seen("x"), tracker.planned("x"), tracker.completed("x")) == (None, None, (), ())
    assert (tracker.skipped("x"), tracker.verified("x", ONE)) == ({}, {})


@pytest.mark.parametrize("how", ["garbage", "truncated", "flipped"])
def test_damaged_tracker_is_set_aside_and_started_anew(folder: Path, tracker: Tracker, how: str) -> None:
    """It can be rebuilt from the logs; as evidence it is kept."""
    tracker.complete("t", [completed(sequence) for sequence in range(1, 400)], Seen(slot=1, sha256="1" * 64))
    tracker.close()
    path = folder / "tracker.sqlite"
    good = path.read_bytes()
    middle = len(good) // 2
    bad = {
        "garbage": b"this is no database" * 100,
        "truncated": good[: middle // 4096 * 4096 - 100],
        "flipped": good[:4096] + bytes(byte ^ 0xFF for byte in good[4096:]),
    }[how]
    path.write_bytes(bad)
    again = Tracker.open(folder, ManualClock())
    assert again.rebuilt_from is not None
    assert again.rebuilt_from.read_bytes() == bad
    assert again.completed("t") == ()
    fill(again)
    again.close()


def test_newer_schema_is_refused_and_left_alone(folder: Path, tracker: Tracker) -> None:
    fill(tracker)
    tracker.close()
    with sqlite3.connect(folder / "tracker.sqlite") as raw:
        raw.execute(f"PRAGMA user_version={SCHEMA_VERSION + 1}")
    raw.close()
    with pytest.raises(LocalDisk, match="newer ckptier"):
        Tracker.open(folder, ManualClock())
    assert sorted(path.name for path in folder.iterdir() if "bad" in path.name) == []
    with sqlite3.connect(folder / "tracker.sqlite") as raw:
        raw.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
    raw.close()
    again = Tracker.open(folder, ManualClock())
    check_filled(again)
    again.close()


def test_folder_that_cannot_be_used_is_a_local_disk_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(LocalDisk, match="cannot be opened") as caught:
        Tracker.open(tmp_path / "file", ManualClock())
    assert "state_dir" in caught.value.hint
    (tmp_path / "taken" / "tracker.sqlite").mkdir(parents=True)
    with pytest.raises(LocalDisk):
        Tracker.open(tmp_path / "taken", ManualClock())


MOUNTS = """overlay / overlay rw 0 0
server:/home /home nfs4 rw 0 0
/dev/nvme0n1 /home/fast ext4 rw 0 0
sshfs /mnt/s fuse.sshfs rw 0 0
/dev/sdb /mnt/my\\040disk xfs rw 0 0
lustre /scratch lustre rw 0 0
weird
"""


@pytest.mark.parametrize(
    ("folder", "mode"),
    [
        ("/var/x", Journal.WAL),
        ("/home/me/runs", Journal.ROLLBACK),
        ("/home", Journal.ROLLBACK),
        ("/homer", Journal.WAL),
        ("/home/fast/runs", Journal.WAL),
        ("/mnt/s/deep/er", Journal.ROLLBACK),
        ("/mnt/my disk/x", Journal.WAL),
        ("/scratch/x", Journal.ROLLBACK),
    ],
)
def test_journal_mode_follows_the_file_system(folder: str, mode: Journal) -> None:
    """WAL needs shared memory; the innermost mount decides."""
    assert journal_mode_for(Path(folder), MOUNTS) is mode
    assert journal_mode_for(Path(folder), "") is Journal.WAL


def test_last_of_two_mounts_on_one_point_counts() -> None:
    mounts = "/dev/sda /data ext4 rw 0 0\nserver:/d /data nfs rw 0 0\n"
    assert journal_mode_for(Path("/data/x"), mounts) is Journal.ROLLBACK


def test_every_change_is_durable_before_it_returns(tracker: Tracker) -> None:
    assert tracker._connection.execute("PRAGMA synchronous").fetchone() == (2,)


def test_full_disk_is_told_and_what_was_recorded_stays(folder: Path, tracker: Tracker) -> None:
    fill(tracker)
    (pages,) = tracker._connection.execute("PRAGMA page_count").fetchone()
    tracker._connection.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(LocalDisk, match="cannot be written"):
        tracker.skip("t", generation(9), "x" * 100_000)
    check_filled(tracker)
    tracker._connection.execute("PRAGMA max_page_count=100000")
    tracker.skip("t", generation(9), "x")
    assert generation(9) in tracker.skipped("t")


def test_change_is_all_or_nothing(tracker: Tracker) -> None:
    """A process that dies before the commit leaves the plan as it was."""
    fill(tracker)

    def die(effect: Effect, what: str, _moment: Moment) -> None:
        if effect is Effect.TRANSACTION:
            raise KeyboardInterrupt(what)

    with observing(die), pytest.raises(KeyboardInterrupt):
        tracker.complete("t", [completed(1)], Seen(slot=9, sha256="2" * 64))
    check_filled(tracker)


def test_reading_a_closed_tracker_is_a_local_disk_error(tracker: Tracker) -> None:
    tracker.close()
    with pytest.raises(LocalDisk, match="cannot be read"):
        tracker.planned("t")


def test_nothing_but_complete_makes_a_generation_completed(tracker: Tracker) -> None:
    """Planned, sent, verified, skipped, seen: none of it is replicated."""
    tracker.begin("t", planned(1))
    tracker.upload_begun("t", ONE, "f", UPLOAD)
    tracker.objects_verified("t", ONE, {"f": "store-sha256"})
    tracker.complete("t", [], Seen(slot=1, sha256="1" * 64))
    assert tracker.completed("t") == ()
    tracker.complete("t", [completed(1)], Seen(slot=2, sha256="2" * 64))
    assert tracker.completed("t") == (completed(1),)
    assert tracker.planned("t") == ()
    assert tracker.verified("t", ONE) == {}


def test_completed_is_newest_first_and_uncompleted_on_retire(tracker: Tracker) -> None:
    tracker.complete("t", [completed(1), completed(3, 2), completed(2, 3)], Seen(slot=3, sha256="1" * 64))
    assert [item.generation.sequence for item in tracker.completed("t")] == [3, 2, 1]
    tracker.uncomplete("t", [generation(3)])
    assert [item.generation.sequence for item in tracker.completed("t")] == [2, 1]


def test_seen_without_a_claim_holds_no_term(tracker: Tracker) -> None:
    tracker.complete("t", [], Seen(slot=1, sha256="1" * 64))
    assert tracker.term("t") is None


def test_new_claim_lifts_the_fence(tracker: Tracker) -> None:
    tracker.hold_term("t", term=1, claim_nonce="a", attempt_id="one")
    tracker.fence("t", "overtaken")
    held = tracker.term("t")
    assert held is not None
    assert held.fenced == "overtaken"
    tracker.hold_term("t", term=3, claim_nonce="b", attempt_id="two")
    assert tracker.term("t") == HeldTerm(term=3, claim_nonce="b", attempt_id="two", fenced=None)


def test_abandoned_plan_is_forgotten_with_its_uploads(tracker: Tracker) -> None:
    fill(tracker)
    prefix = RemoteRun.of("llm-7b").prefix(ONE, 1, "n")
    tracker.abandon("t", planned(1), prefix, "damaged")
    assert tracker.planned("t") == ()
    assert tracker.upload_of("t", ONE, "f", Key("k"), 30) is None
    rows = tracker._rows("SELECT prefix, reason FROM abandoned")
    assert rows == [(prefix, "damaged")]


def test_parts_of_an_older_upload_do_not_count(tracker: Tracker) -> None:
    fill(tracker)
    newer = Upload(key=Key("k"), upload_id=UploadId("u2"), size=30, part_size=10)
    tracker.upload_begun("t", ONE, "f", newer)
    assert tracker.upload_of("t", ONE, "f", Key("k"), 30) == newer
    assert tracker.parts_of("t", ONE, "f", newer) == {}


def test_two_threads_share_it(tracker: Tracker) -> None:
    barrier = threading.Barrier(2, timeout=30)
    failures: list[BaseException] = []

    def work(tier: str) -> None:
        try:
            barrier.wait()
            for number in range(1, 41):
                tracker.part_accepted(tier, ONE, "f", UPLOAD, Part(number=number, size=10, etag=f"e{number}"))
                assert len(tracker.parts_of(tier, ONE, "f", UPLOAD)) == number
        except BaseException as error:  # noqa: BLE001 - shown by the assertion below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(tier,)) for tier in ("a", "b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert failures == []
