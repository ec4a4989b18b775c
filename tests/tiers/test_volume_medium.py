"""Reading back what the medium holds, and saying how: around the page cache, without its pages, or neither."""

import errno
import fcntl
import mmap
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.fuse_mount import FuseMount, fuse_mount
from support.fuse_server import Rules

from tiers import volume_reading
from tiers.bodies import BytesBody
from tiers.clock import SystemClock
from tiers.errors import TierUnavailable
from tiers.medium import MediumReading, current_reading, reading_the_medium
from tiers.opening import TierSpec, open_tier
from tiers.protocol import Key, Verification
from tiers.testing import content, read_all
from tiers.volume import VolumeTier
from tiers.volume_facts import VolumeMode
from tiers.volume_mounts import MountKind, find_mount
from tiers.volume_reading import drop_pages, resident_pages

KEY = Key("run/a")
DATA = content(3_000_001)


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[FuseMount]:
    with fuse_mount(tmp_path) as mounted:
        yield mounted


def stored(root: Path) -> VolumeTier:
    tier = VolumeTier("volume", root)
    tier.put(KEY, BytesBody(DATA))
    return tier


def bytes_from_the_device() -> int:
    """Return how many bytes this process has had read from block devices."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["read_bytes"])


def read_directly(path: Path) -> bool:
    """Whether the filesystem of a path takes O_DIRECT."""
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
    except OSError:
        return False
    return True


class TestProof:
    def test_bytes_come_from_the_device(self, tmp_path: Path) -> None:
        """Right after writing, a plain read is served from memory and a medium read is not: the kernel's own count."""
        found = find_mount(tmp_path)
        assert found is not None
        tier = stored(tmp_path)
        before = bytes_from_the_device()
        assert read_all(tier.open(KEY)) == DATA
        plain = bytes_from_the_device() - before
        before = bytes_from_the_device()
        with reading_the_medium() as reading:
            assert read_all(tier.open(KEY)) == DATA
        around = bytes_from_the_device() - before
        assert plain < len(DATA) // 10
        if found.kind is MountKind.LOCAL and found.source.startswith("/dev/"):  # overlays and memory have no device
            assert around >= len(DATA)
        assert reading.proof in (Verification.READ_BACK_DIRECT, Verification.READ_BACK_UNCACHED)

    def test_without_direct_reads_the_pages_are_dropped(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        tier = stored(tmp_path)
        monkeypatch.setattr(volume_reading, "open_direct", lambda _path, _fd: -1)
        before = bytes_from_the_device()
        with reading_the_medium() as reading:
            assert read_all(tier.open(KEY)) == DATA
        assert reading.proof is Verification.READ_BACK_UNCACHED
        found = find_mount(tmp_path)
        if found is not None and found.kind is MountKind.LOCAL and found.source.startswith("/dev/"):
            assert bytes_from_the_device() - before >= len(DATA)

    def test_pages_that_stay_are_not_called_gone(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A kernel need not do as it is advised; it is looked at, not believed."""
        tier = stored(tmp_path)
        monkeypatch.setattr(volume_reading, "open_direct", lambda _path, _fd: -1)
        monkeypatch.setattr(os, "posix_fadvise", lambda *_: None)
        read_all(tier.open(KEY))
        with reading_the_medium() as reading:
            assert read_all(tier.open(KEY)) == DATA
        assert reading.proof is Verification.READ_BACK

    def test_a_flag_that_was_taken_and_is_not_kept(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Some filesystems open with O_DIRECT and refuse the read: the next best way is taken in mid-stream."""
        tier = stored(tmp_path)
        preadv = os.preadv
        refused: list[int] = []

        def refuse(fd: int, buffers: list[bytearray], offset: int) -> int:
            if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT:
                refused.append(fd)
                raise OSError(errno.EINVAL, "Invalid argument")
            return preadv(fd, buffers, offset)

        monkeypatch.setattr(os, "preadv", refuse)
        with reading_the_medium() as reading:
            assert read_all(tier.open(KEY)) == DATA
        assert len(refused) == read_directly(tmp_path / KEY)
        assert reading.proof is Verification.READ_BACK_UNCACHED

    @pytest.mark.parametrize("no_direct", [False, True])
    def test_on_fuse(self, mount: FuseMount, no_direct: bool) -> None:
        mount.rule(Rules(no_direct=no_direct))
        tier = stored(mount.point)
        with reading_the_medium() as reading:
            assert read_all(tier.open(KEY)) == DATA
        ways = (Verification.READ_BACK_DIRECT, Verification.READ_BACK_UNCACHED)
        assert reading.proof is ways[no_direct]

    def test_what_the_medium_holds_is_what_is_compared(self, mount: FuseMount) -> None:
        """The cache says one thing and the medium another: only a medium read notices."""
        tier = stored(mount.point)
        assert read_all(tier.open(KEY)) == DATA
        with (mount.backing / KEY).open("r+b") as file:
            file.seek(1_000_000)
            file.write(b"rotten")
        with tier.open(KEY) as stream:
            stream.read(1)
            with reading_the_medium():
                assert read_all(tier.open(KEY)) != DATA

    @pytest.mark.parametrize(("start", "length"), [(0, 1), (1, 4095), (4095, 2), (4096, 4096), (2_999_999, 2), (5, 0)])
    @pytest.mark.parametrize("window", [4096, 8192, volume_reading.WINDOW])
    def test_ranges(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start: int, length: int, window: int
    ) -> None:
        """Alignment is the stream's affair, not the caller's."""
        monkeypatch.setattr(volume_reading, "WINDOW", window)
        tier = stored(tmp_path)
        with reading_the_medium():
            assert read_all(tier.open(KEY, start, length)) == DATA[start : start + length]

    def test_small_windows_read_it_all(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(volume_reading, "WINDOW", 12_288)
        tier = stored(tmp_path)
        for chunk in (1000, 4096, 100_000):
            with reading_the_medium():
                assert read_all(tier.open(KEY), chunk) == DATA

    def test_a_file_that_is_cut_meanwhile(self, tmp_path: Path) -> None:
        tier = stored(tmp_path)
        with reading_the_medium(), tier.open(KEY) as stream:
            os.truncate(tmp_path / KEY, 100)
            with pytest.raises(TierUnavailable):
                read_all(stream)

    def test_a_file_that_is_replaced_meanwhile(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Two descriptors of one stream have to be of one file."""
        tier = stored(tmp_path)
        really = volume_reading.open_direct
        opening = os.open

        def without_the_flag(path: Path, flags: int) -> int:
            return opening(path, flags & ~os.O_DIRECT)

        def replaced(path: Path, fd: int) -> int:
            (tmp_path / "other").write_bytes(DATA)
            (tmp_path / "other").replace(path)
            with monkeypatch.context() as patch:
                patch.setattr(os, "open", without_the_flag)  # the check is the same where a filesystem has none
                return really(path, fd)

        monkeypatch.setattr(volume_reading, "open_direct", replaced)
        before = len(list(Path("/proc/self/fd").iterdir()))
        with reading_the_medium(), pytest.raises(TierUnavailable, match="ESTALE"):
            tier.open(KEY)
        assert len(list(Path("/proc/self/fd").iterdir())) == before

    def test_no_descriptor_stays_open(self, tmp_path: Path) -> None:
        tier = stored(tmp_path)
        before = len(list(Path("/proc/self/fd").iterdir()))
        for _ in range(3):
            with reading_the_medium(), tier.open(KEY) as stream:
                stream.read(10)
        assert len(list(Path("/proc/self/fd").iterdir())) == before


class TestAsking:
    """Who asks for the medium gets the weakest of what was done, through all that is wrapped around a tier."""

    def test_nobody_asked(self, tmp_path: Path) -> None:
        assert current_reading() is None
        with reading_the_medium() as reading:
            assert current_reading() is reading
        assert current_reading() is None
        assert reading.proof is Verification.READ_BACK

    def test_the_weakest_counts(self) -> None:
        reading = MediumReading()
        for noted, proof in (
            (Verification.READ_BACK_DIRECT, Verification.READ_BACK_DIRECT),
            (Verification.READ_BACK_UNCACHED, Verification.READ_BACK_UNCACHED),
            (Verification.READ_BACK_DIRECT, Verification.READ_BACK_UNCACHED),
            (Verification.READ_BACK, Verification.READ_BACK),
        ):
            reading.note(noted)
            assert reading.proof is proof

    def test_through_the_whole_stack(self, tmp_path: Path) -> None:
        tier = open_tier(TierSpec(name="v", url=f"file://{tmp_path}"), clock=SystemClock())
        tier.put(KEY, BytesBody(DATA))
        with reading_the_medium() as reading:
            assert read_all(tier.open(KEY)) == DATA
        assert reading.proof is not Verification.READ_BACK
        tier.close()

    def test_other_threads_are_not_meant(self, tmp_path: Path) -> None:
        found: list[object] = []
        with reading_the_medium():
            thread = threading.Thread(target=lambda: found.append(current_reading()))
            thread.start()
            thread.join()
        assert found == [None]

    def test_in_mode_direct(self, tmp_path: Path) -> None:
        tier = VolumeTier("volume", tmp_path, mode=VolumeMode.DIRECT)
        tier.put(KEY, BytesBody(DATA))
        with reading_the_medium() as reading:
            assert read_all(tier.open(KEY)) == DATA
        assert reading.proof is not Verification.READ_BACK


class TestPages:
    def test_counting_and_dropping(self, tmp_path: Path) -> None:
        path = tmp_path / "file"
        path.write_bytes(DATA)
        fd = os.open(path, os.O_RDWR)
        try:
            assert resident_pages(fd) == -(-len(DATA) // 4096)
            os.fsync(fd)
            assert drop_pages(fd) is Verification.READ_BACK_UNCACHED
            assert resident_pages(fd) == 0
            os.ftruncate(fd, 0)
            assert resident_pages(fd) == 0
        finally:
            os.close(fd)

    @pytest.mark.parametrize(
        "break_it",
        [
            lambda patch: patch.delattr(os, "posix_fadvise"),
            lambda patch: patch.setattr(mmap, "mmap", _unmappable),
        ],
        ids=["no fadvise", "no mmap"],
    )
    def test_a_system_that_cannot_tell(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, break_it: Callable[[pytest.MonkeyPatch], None]
    ) -> None:
        """Not knowing is not proof."""
        path = tmp_path / "file"
        path.write_bytes(b"x" * 5000)
        fd = os.open(path, os.O_RDWR)
        try:
            break_it(monkeypatch)
            assert drop_pages(fd) is Verification.READ_BACK
        finally:
            os.close(fd)


def _unmappable(*_: object, **__: object) -> None:
    raise OSError(errno.ENODEV, "No such device")
