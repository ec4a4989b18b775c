"""Mode direct on bad days: an object that is written under its own name must not show before it is whole."""

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.fuse_mount import OBJECT_MOUNT, FuseMount, fuse_mount
from support.fuse_server import Failure, Rules
from support.killing import at_once, sweep

from tiers.bodies import BytesBody
from tiers.errors import AccessDenied, CapacityExceeded, IntegrityError, ObjectExists, ObjectNotFound, TierUnavailable
from tiers.protocol import Key, Tier, Upload, walk
from tiers.retrying import RetryingTier, RetryPolicy
from tiers.testing import ManualClock, content, read_all
from tiers.volume import VolumeTier
from tiers.volume_facts import VolumeMode

KEY = Key("run/a")
OLD, NEW = content(700, seed=1), content(1_000)


def direct(root: Path) -> VolumeTier:
    return VolumeTier("volume", root, mode=VolumeMode.DIRECT)


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[FuseMount]:
    with fuse_mount(tmp_path, OBJECT_MOUNT) as mounted:
        yield mounted


@pytest.fixture(params=["disk", "object mount"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """Return an empty folder on an ordinary filesystem, and on one that can only write once."""
    if request.param == "disk":
        yield tmp_path
        return
    with fuse_mount(tmp_path, OBJECT_MOUNT) as mounted:
        yield mounted.point


def upload(tier: Tier) -> Upload:
    begun = tier.begin_upload(KEY, size=len(NEW), part_size=600)
    parts = [tier.put_part(begun, 1, BytesBody(NEW[:600])), tier.put_part(begun, 2, BytesBody(NEW[600:]))]
    tier.complete(begun, parts)
    return begun


VERBS: dict[str, Callable[[Tier], object]] = {
    "put": lambda tier: tier.put(KEY, BytesBody(NEW)),
    "create": lambda tier: tier.create(KEY, NEW),
    "complete": upload,
}


def debris(root: Path) -> list[str]:
    """Return the files in ckptier's own folder that are not its marker or an object's mark."""
    hidden = root / ".ckptier"
    found = (str(path.relative_to(hidden)) for path in hidden.rglob("*") if path.is_file())
    return sorted(path for path in found if path != "volume.json" and not path.startswith("done/"))


class TestKilled:
    """Killed at any effect, an object is whole or absent for every reader, and the same work succeeds afterwards."""

    @pytest.mark.parametrize("verb", VERBS)
    def test_where_nothing_was(self, place: Path, verb: str) -> None:
        points = half_written = 0
        for number in sweep(lambda n: VERBS[verb](direct(made(place / str(n))))):
            root = made(place / str(number))
            points, tier = number, direct(root)
            keys = [info.key for info in walk(tier, "")]
            assert keys in ([], [KEY]), f"killed at {number}"
            if keys:
                assert read_all(tier.open(KEY)) == NEW
                assert read_all(VolumeTier("reader", root).open(KEY)) == NEW
            else:
                half_written += (root / KEY).exists()
                with pytest.raises(ObjectNotFound):
                    tier.stat(KEY)
                with pytest.raises(ObjectNotFound):
                    VolumeTier("reader", root).open(KEY)
                VERBS[verb](tier)
            assert read_all(tier.open(KEY)) == NEW
            shutil.rmtree(root)
        assert points > 12, "the sweep reached the end, and killed at every effect before"
        assert half_written > 1, "files without a mark were there, and nobody took them for objects"

    def test_in_place_of_another(self, place: Path) -> None:
        """The old bytes, the new ones, or none: never a mixture."""
        seen = set()
        for number in sweep(lambda n: overwrite(made(place / str(n)))):
            root = made(place / str(number))
            tier = direct(root)
            found = read_all(tier.open(KEY)) if list(walk(tier, "run/")) else None
            assert found in (OLD, NEW, None), f"killed at {number}"
            seen.add(found)
            tier.put(KEY, BytesBody(NEW))
            assert read_all(tier.open(KEY)) == NEW
            assert debris(root) == []
            shutil.rmtree(root)
        assert seen == {OLD, NEW, None}

    def test_a_delete(self, place: Path) -> None:
        """A killed delete leaves the object whole or absent."""
        seen = set()
        for number in sweep(lambda n: erase(made(place / str(n)))):
            root = made(place / str(number))
            found = [info.key for info in walk(direct(root), "run/")]
            seen.add(len(found))
            direct(root).delete(KEY)
            direct(root).create(KEY, NEW)
            assert read_all(direct(root).open(KEY)) == NEW
            shutil.rmtree(root)
        assert seen == {0, 1}


def made(root: Path) -> Path:
    root.mkdir(exist_ok=True)
    return root


def overwrite(root: Path) -> None:
    tier = direct(root)
    tier.put(KEY, BytesBody(OLD))
    tier.put(KEY, BytesBody(NEW))


def erase(root: Path) -> None:
    tier = direct(root)
    tier.put(KEY, BytesBody(OLD))
    tier.delete(KEY)


class TestRaces:
    """Several processes on one machine; locks and O_EXCL keep them apart there."""

    def test_one_creator_wins(self, place: Path) -> None:
        direct(place).put(Key("first"), BytesBody(b"x"))

        def create(number: int) -> bool:
            try:
                direct(place).create(key, content(300, seed=number))
            except ObjectExists:
                return False
            return True

        for round_number in range(10):
            key = Key(f"log/{round_number}")
            won = at_once(6, create)
            assert sum(won) == 1
            assert read_all(direct(place).open(key)) == content(300, seed=won.index(True))

    def test_creators_beside_debris(self, place: Path) -> None:
        """What a killed creator left is removed by exactly as many as it takes."""
        direct(place).put(Key("log/first"), BytesBody(b"x"))

        def create(number: int) -> bool:
            try:
                direct(place).create(key, content(300, seed=number))
            except ObjectExists:
                return False
            return True

        for round_number in range(10):
            key = Key(f"log/{round_number}")
            (place / key).write_bytes(b"half an ent")
            won = at_once(6, create)
            assert sum(won) == 1
            assert read_all(direct(place).open(key)) == content(300, seed=won.index(True))

    def test_concurrent_puts_of_one_key(self, place: Path) -> None:
        """One of them stands, whole; the others may be told to try again, and now and then all of them."""
        direct(place).put(KEY, BytesBody(OLD))

        def put(number: int) -> bool:
            try:
                direct(place).put(KEY, BytesBody(content(50_000, seed=number)))
            except TierUnavailable:
                return False
            return True

        stored = 0
        for _ in range(5):
            stored += sum(at_once(4, put))
            found = read_all(direct(place).open(KEY)) if list(walk(direct(place), "run/")) else None
            assert found in [None, OLD, *(content(50_000, seed=n) for n in range(4))]
        assert stored

    def test_a_living_writer_is_left_alone(self, place: Path) -> None:
        """Its file is no object yet, and not debris: create counts it as taken, put comes back later."""
        direct(place).put(Key("run/other"), BytesBody(b"x"))
        with (place / KEY).open("xb") as writer:
            writer.write(b"half")
            writer.flush()
            fcntl.flock(writer, fcntl.LOCK_EX)
            with pytest.raises(ObjectExists):
                direct(place).create(KEY, NEW)
            with pytest.raises(TierUnavailable):
                direct(place).put(KEY, BytesBody(NEW))
            direct(place).delete(KEY)
            assert [info.key for info in walk(direct(place), "")] == ["run/other"]
            assert (place / KEY).read_bytes() == b"half"
        direct(place).create(KEY, NEW)
        assert read_all(direct(place).open(KEY)) == NEW


class TestMarks:
    """The mark and the file have to fit."""

    @pytest.mark.parametrize("mark", [b"", b"1000", b"999\n", b"-1\n", b"x\n", b"1000\n1000\n"])
    def test_marks_that_do_not_fit(self, tmp_path: Path, mark: bytes) -> None:
        tier = direct(tmp_path)
        tier.put(KEY, BytesBody(NEW))
        (tmp_path / ".ckptier" / "done" / KEY).write_bytes(mark)
        with pytest.raises(ObjectNotFound):
            tier.open(KEY)
        assert list(walk(tier, "")) == []
        tier.create(KEY, NEW)
        assert read_all(tier.open(KEY)) == NEW

    def test_a_file_that_was_cut_is_no_object(self, tmp_path: Path) -> None:
        tier = direct(tmp_path)
        tier.put(KEY, BytesBody(NEW))
        os.truncate(tmp_path / KEY, 500)
        with pytest.raises(ObjectNotFound):
            tier.stat(KEY)

    def test_the_same_bytes_again_touch_nothing(self, mount: FuseMount) -> None:
        """Where files cannot be replaced at all, repeating a put after a lost reply still works."""
        tier = direct(mount.point)
        tier.put(KEY, BytesBody(NEW))
        before = (mount.backing / KEY).stat()
        tier.put(KEY, BytesBody(NEW))
        assert (mount.backing / KEY).stat().st_ino == before.st_ino
        assert debris(mount.point) == []

    def test_a_body_that_fails_costs_nothing(self, place: Path) -> None:
        class Short:
            size = 2_000
            sha256 = None

            def open(self) -> object:
                return BytesBody(NEW).open()

        tier = direct(place)
        for before in (None, OLD):
            if before:
                tier.put(KEY, BytesBody(before))
            with pytest.raises(IntegrityError):
                tier.put(KEY, Short())  # type: ignore[arg-type]
            assert [read_all(tier.open(info.key)) for info in walk(tier, "")] == ([before] if before else [])
        assert debris(place) == []

    def test_without_locks_age_tells(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A file without mark may be one that is written elsewhere, for an hour by the volume's clock."""

        def refuse(_fd: int, _mode: int) -> None:
            raise OSError(errno.EOPNOTSUPP, "no locks")

        tier = direct(tmp_path)
        tier.put(Key("run/other"), BytesBody(b"x"))
        monkeypatch.setattr(fcntl, "flock", refuse)
        (tmp_path / KEY).write_bytes(b"half")
        with pytest.raises(TierUnavailable):
            tier.put(KEY, BytesBody(NEW))
        old = (tmp_path / KEY).stat().st_mtime - 3700
        os.utime(tmp_path / KEY, (old, old))
        tier.put(KEY, BytesBody(NEW))
        assert read_all(tier.open(KEY)) == NEW


class TestFailures:
    """What the filesystem answers at a write, an fsync or a close is never a success."""

    @pytest.mark.parametrize("operation", ["WRITE", "FSYNC", "FLUSH"])
    @pytest.mark.parametrize(
        ("number", "kind"),
        [
            (errno.ENOSPC, CapacityExceeded),
            (errno.EDQUOT, CapacityExceeded),
            (errno.EROFS, AccessDenied),
            (errno.EIO, TierUnavailable),
        ],
    )
    @pytest.mark.parametrize("mode", [VolumeMode.DIRECT, VolumeMode.RENAME])
    def test_at_every_step(
        self, mount: FuseMount, mode: VolumeMode, operation: str, number: int, kind: type[Exception]
    ) -> None:
        mount.rule(OBJECT_MOUNT if mode is VolumeMode.DIRECT else Rules())
        tier = VolumeTier("volume", mount.point, mode=mode)
        tier.put(Key("first"), BytesBody(b"x"))
        within = "run/a" if mode is VolumeMode.DIRECT else "tmp/"
        failing = [Failure(operation, number, within=within)]
        mount.rule(Rules(failures=OBJECT_MOUNT.failures + failing if mode is VolumeMode.DIRECT else failing))
        for verb in ("put", "create"):
            with pytest.raises(kind):
                VERBS[verb](tier)
            assert [info.key for info in walk(tier, "")] == ["first"]
        assert mount.fired[operation] >= 2
        mount.rule(Rules())
        tier.put(KEY, BytesBody(NEW))
        assert read_all(tier.open(KEY)) == NEW

    @pytest.mark.parametrize("mode", [VolumeMode.DIRECT, VolumeMode.RENAME])
    @pytest.mark.parametrize("operation", ["FSYNC", "FLUSH"])
    def test_c39_a_retry_sends_everything_again(self, mount: FuseMount, mode: VolumeMode, operation: str) -> None:
        """After a failed flush this filesystem has dropped the bytes, and calls the next flush a success."""
        mount.rule(OBJECT_MOUNT if mode is VolumeMode.DIRECT else Rules())
        tier = VolumeTier("volume", mount.point, mode=mode)
        tier.put(Key("first"), BytesBody(b"x"))
        within = "run/a" if mode is VolumeMode.DIRECT else "tmp/"
        once = Failure(operation, errno.EIO, times=1, within=within, lose=True)
        mount.rule(Rules(failures=[*(OBJECT_MOUNT.failures if mode is VolumeMode.DIRECT else ()), once]))
        patient = RetryingTier(tier, ManualClock(), RetryPolicy())
        patient.put(KEY, BytesBody(NEW))
        assert mount.fired[operation] == 1
        assert read_all(tier.open(KEY)) == NEW
        assert (mount.backing / KEY).read_bytes() == NEW

    def test_where_nothing_may_be_deleted(self, mount: FuseMount) -> None:
        """Objects can be stored and repeated; what cannot be done says so."""
        mount.rule(Rules(failures=[*OBJECT_MOUNT.failures, Failure("UNLINK", errno.EPERM)], sequential=True))
        tier = direct(mount.point)
        tier.put(KEY, BytesBody(NEW))
        assert read_all(tier.open(KEY)) == NEW
        acts: list[Callable[[], object]] = [lambda: tier.delete(KEY), lambda: tier.put(KEY, BytesBody(OLD))]
        for act in acts:
            with pytest.raises(AccessDenied) as caught:
                act()
            assert "mount options" in caught.value.hint
        assert read_all(tier.open(KEY)) == NEW
