"""The volume tier: a tier, and what only filesystems do to it."""

import os
import stat
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

import pytest

from tiers.bodies import BytesBody, FileSlice
from tiers.errors import AccessDenied, IntegrityError, ObjectNotFound, TierError, TierUnavailable, Unsupported
from tiers.protocol import Key, ObjectInfo, Tier, Upload, UploadId, walk
from tiers.testing import RawStore, TierConformance, TierFactory, content, read_all
from tiers.volume import VolumeTier


class Files:
    """The files of a volume, without the tier."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def get(self, key: str) -> bytes | None:
        path = self.root / key
        return path.read_bytes() if path.is_file() else None

    def put(self, key: str, data: bytes) -> None:
        path = self.root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


class TestVolume(TierConformance):
    @pytest.fixture
    def tier_factory(self, tmp_path: Path) -> TierFactory:
        return lambda: VolumeTier("volume", tmp_path, page_size=3)

    @pytest.fixture
    def raw(self, tmp_path: Path) -> RawStore:
        return Files(tmp_path)


@pytest.fixture
def tier(tmp_path: Path) -> VolumeTier:
    return VolumeTier("volume", tmp_path)


def leftovers(root: Path) -> list[Path]:
    """Return the files in the hidden folder, but for the volume's marker."""
    return [path for path in (root / ".ckptier").rglob("*") if path.is_file() and path.name != "volume.json"]


VERBS: dict[str, Callable[[Tier, Key], object]] = {
    "put": lambda tier, key: tier.put(key, BytesBody(b"x")),
    "create": lambda tier, key: tier.create(key, b"x"),
    "open": lambda tier, key: tier.open(key),
    "stat": lambda tier, key: tier.stat(key),
    "delete": lambda tier, key: tier.delete(key),
    "begin_upload": lambda tier, key: tier.begin_upload(key, size=1, part_size=1),
}


def pending(key: str = "k") -> Upload:
    return Upload(key=Key(key), upload_id=UploadId("0" * 32), size=1, part_size=1)


UPLOAD_VERBS: dict[str, Callable[[Tier], object]] = {
    "list_objects": lambda tier: tier.list_objects(""),
    "put_part": lambda tier: tier.put_part(pending(), 1, BytesBody(b"x")),
    "list_parts": lambda tier: tier.list_parts(pending()),
    "copy": lambda tier: tier.copy(Key("c"), ObjectInfo(key=Key("k"), size=1, etag="e")),
    "copy_part": lambda tier: tier.copy_part(pending(), 1, ObjectInfo(key=Key("k"), size=1, etag="e"), 0, 1),
    "complete": lambda tier: tier.complete(pending(), []),
    "abort": lambda tier: tier.abort(pending()),
}


class TestRoot:
    """A volume that is not mounted must not look like one without checkpoints."""

    @pytest.fixture(params=["missing", "file"])
    def unmounted(self, request: pytest.FixtureRequest, tmp_path: Path) -> VolumeTier:
        if request.param == "file":
            (tmp_path / "root").write_bytes(b"")
        return VolumeTier("volume", tmp_path / "root")

    @pytest.mark.parametrize("verb", VERBS)
    def test_object_verbs(self, unmounted: VolumeTier, verb: str) -> None:
        with pytest.raises(TierUnavailable) as caught:
            VERBS[verb](unmounted, Key("run/a"))
        assert "is the volume mounted?" in caught.value.hint
        assert caught.value.operation == verb

    @pytest.mark.parametrize("verb", UPLOAD_VERBS)
    def test_other_verbs(self, unmounted: VolumeTier, verb: str) -> None:
        with pytest.raises(TierUnavailable) as caught:
            UPLOAD_VERBS[verb](unmounted)
        assert "is the volume mounted?" in caught.value.hint


class TestNames:
    """Keys are paths: what could leave the root, or stand in its own way."""

    @pytest.mark.parametrize("verb", VERBS)
    @pytest.mark.parametrize(
        "key",
        [
            *("", "/a", "a/", "a//b", ".", "..", "a/../b", "../a", "a/./b"),
            *("a b", "a\\b", "ä", "a\n", "a\0", "x" * 1025, ".ckptier", ".ckptier/tmp/a"),
        ],
    )
    def test_bad_keys(self, tier: VolumeTier, tmp_path: Path, verb: str, key: str) -> None:
        with pytest.raises(ValueError, match="key"):
            VERBS[verb](tier, Key(key))
        assert list(tmp_path.iterdir()) == []

    def test_name_that_is_too_long(self, tier: VolumeTier) -> None:
        with pytest.raises(Unsupported) as caught:
            tier.put(Key("x" * 300), BytesBody(b"x"))
        assert "255" in caught.value.hint

    @pytest.mark.parametrize("verb", ["put", "create"])
    def test_key_that_is_a_folder_of_keys(self, tier: VolumeTier, verb: str) -> None:
        """``a`` and ``a/b`` cannot both be files; that is said, not papered over."""
        tier.put(Key("a/b"), BytesBody(b"x"))
        tier.put(Key("c"), BytesBody(b"x"))
        for key in ("a", "c/d"):
            with pytest.raises(Unsupported) as caught:
                VERBS[verb](tier, Key(key))
            assert "folder of another key" in caught.value.hint
        assert [info.key for info in walk(tier, "")] == ["a/b", "c"]

    @pytest.mark.parametrize("verb", ["put", "create"])
    def test_empty_folder_gives_way(self, tier: VolumeTier, tmp_path: Path, verb: str) -> None:
        (tmp_path / "a").mkdir()
        VERBS[verb](tier, Key("a"))
        assert tier.stat(Key("a")).size == 1

    @pytest.mark.parametrize("verb", VERBS)
    def test_links_are_not_followed(
        self, tier: VolumeTier, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, verb: str
    ) -> None:
        """A link below the root leads out of it; nothing behind it is read, written or deleted."""
        outside = tmp_path_factory.mktemp("outside")
        (outside / "secret").write_bytes(b"s")
        (tmp_path / "folder").symlink_to(outside)
        if verb != "begin_upload":  # checked when the object appears
            with pytest.raises(AccessDenied):
                VERBS[verb](tier, Key("folder/secret"))
        assert list(walk(tier, "")) == []
        assert [p.read_bytes() for p in outside.iterdir()] == [b"s"]

    def test_link_at_the_key(self, tier: VolumeTier, tmp_path: Path) -> None:
        (tmp_path / "target").write_bytes(b"t")
        (tmp_path / "link").symlink_to(tmp_path / "target")
        for verb in ("put", "create", "open", "stat"):
            with pytest.raises(AccessDenied):
                VERBS[verb](tier, Key("link"))
        assert (tmp_path / "target").read_bytes() == b"t"

    def test_linked_root_is_fine(self, tmp_path: Path) -> None:
        """Where the root leads is the operator's choice."""
        (tmp_path / "real").mkdir()
        (tmp_path / "root").symlink_to("real")
        VolumeTier("volume", tmp_path / "root").put(Key("a"), BytesBody(b"x"))
        assert (tmp_path / "real" / "a").read_bytes() == b"x"

    def test_fifo(self, tier: VolumeTier, tmp_path: Path) -> None:
        """Something that is no file is refused, without waiting for its writer."""
        os.mkfifo(tmp_path / "fifo")
        for verb in ("open", "stat"):
            with pytest.raises(Unsupported):
                VERBS[verb](tier, Key("fifo"))
        assert list(walk(tier, "")) == []

    def test_foreign_names_are_not_listed(self, tier: VolumeTier, tmp_path: Path) -> None:
        (tmp_path / "lost+found").mkdir(mode=0)
        (tmp_path / "a b").write_bytes(b"x")
        tier.put(Key("a"), BytesBody(b"x"))
        assert [info.key for info in walk(tier, "")] == ["a"]

    @pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
    def test_modes_respect_the_umask(self, tier: VolumeTier, tmp_path: Path, umask: int, mode: int) -> None:
        before = os.umask(umask)
        try:
            tier.put(Key("d/a"), BytesBody(b"x"))
            tier.create(Key("d/b"), b"x")
            upload = tier.begin_upload(Key("d/c"), size=1, part_size=1)
            tier.complete(upload, [tier.put_part(upload, 1, BytesBody(b"x"))])
        finally:
            os.umask(before)
        for name in "abc":
            assert stat.S_IMODE((tmp_path / "d" / name).stat().st_mode) == mode
        assert stat.S_IMODE((tmp_path / "d").stat().st_mode) == 0o777 & ~umask


class TestUploads:
    def test_upload_id_from_a_forged_journal(self, tier: VolumeTier, tmp_path: Path) -> None:
        """An upload id is data from elsewhere: it must not become a path."""
        (tmp_path / "victim").write_bytes(b"v")
        tier.put(Key("run/a"), BytesBody(b"x"))
        for forged in ("../../victim", "..", "", "/etc", "0" * 31 + "/"):
            upload = Upload(key=Key("k"), upload_id=UploadId(forged), size=1, part_size=1)
            tier.abort(upload)
            with pytest.raises(ObjectNotFound):
                tier.put_part(upload, 1, BytesBody(b"x"))
        assert (tmp_path / "victim").read_bytes() == b"v"
        assert [info.key for info in walk(tier, "")] == ["run/a", "victim"]

    def test_damaged_records_are_named(self, tier: VolumeTier, tmp_path: Path) -> None:
        upload = tier.begin_upload(Key("a"), size=1, part_size=1)
        part = tier.put_part(upload, 1, BytesBody(b"x"))
        folder = tmp_path / ".ckptier" / "uploads" / upload.upload_id
        for name, data in (("000001.part", b'{"number": 1}'), ("000001.part", b"{"), ("upload.json", b"")):
            (folder / name).write_bytes(data)
            with pytest.raises(TierError, match="damaged"):
                tier.complete(upload, [part])
        tier.abort(upload)
        assert leftovers(tmp_path) == []

    def test_stopped_writer_cannot_write_into_an_object(self, tier: VolumeTier, tmp_path: Path) -> None:
        """While a part is being written the upload does not complete."""
        upload = tier.begin_upload(Key("a"), size=1, part_size=1)
        part = tier.put_part(upload, 1, BytesBody(b"x"))
        with closing_writer(tier, upload):
            with pytest.raises(TierUnavailable):
                tier.complete(upload, [part])
            with pytest.raises(ObjectNotFound):
                tier.stat(Key("a"))

    @pytest.mark.parametrize("number", [18, 22, 38, 95, 0], ids=["EXDEV", "EINVAL", "ENOSYS", "EOPNOTSUPP", "empty"])
    def test_copy_where_the_kernel_cannot(self, tier: VolumeTier, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
        """Some filesystems refuse, others copy nothing and say so: the bytes then pass through here."""

        def refuse(*_: object) -> int:
            if number:
                raise OSError(number, os.strerror(number))
            return 0

        monkeypatch.setattr(os, "copy_file_range", refuse)
        data = content(3 << 20)
        source = tier.put(Key("source"), BytesBody(data))
        upload = tier.begin_upload(Key("target"), size=(2 << 20) + 3, part_size=2 << 20)
        parts = [tier.copy_part(upload, 1, source, 5, 2 << 20), tier.copy_part(upload, 2, source, 0, 3)]
        tier.complete(upload, parts)
        assert read_all(tier.open(Key("target"))) == data[5 : 5 + (2 << 20)] + data[:3]

    @pytest.mark.parametrize(("number", "size"), [(0, 4), (3, 4), (1, 3), (2, 3), (1, 5)])
    def test_part_that_does_not_fit(self, tier: VolumeTier, number: int, size: int) -> None:
        """It would be written over its neighbour, or leave a hole."""
        upload = tier.begin_upload(Key("a"), size=6, part_size=4)
        with pytest.raises((IntegrityError, ValueError), match="part"):
            tier.put_part(upload, number, BytesBody(bytes(size)))
        assert tier.list_parts(upload).parts == ()

    def test_nothing_stays_behind(self, tier: VolumeTier, tmp_path: Path) -> None:
        upload = tier.begin_upload(Key("a"), size=1, part_size=1)
        tier.complete(upload, [tier.put_part(upload, 1, BytesBody(b"x"))])
        tier.abort(tier.begin_upload(Key("b"), size=1, part_size=1))
        assert leftovers(tmp_path) == []
        assert list((tmp_path / ".ckptier" / "uploads").iterdir()) == []


@contextmanager
def closing_writer(tier: VolumeTier, upload: Upload) -> Iterator[None]:
    """Hold a part open, as a stopped process would."""
    writer = tier._settling.to_write().uploads.write_part(upload, 1)
    try:
        writer.write(b"x")
        writer.finish()
        yield
    finally:
        writer.close()


class Endless:
    """A large body that takes no memory."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.sha256 = None

    def open(self) -> Self:
        self.left = self.size
        return self

    def readinto(self, buffer: memoryview) -> int:
        count = min(len(buffer), self.left)
        self.left -= count
        return count

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return


class TestBodies:
    def test_memory_does_not_grow_with_the_object(self, tier: VolumeTier) -> None:
        tier.put(Key("warm"), BytesBody(b"x"))
        tracemalloc.start()
        try:
            tier.put(Key("large"), Endless(48 << 20))  # type: ignore[arg-type]
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert tier.stat(Key("large")).size == 48 << 20
        assert peak < 2 << 20

    def test_error_of_the_source_is_not_the_volumes(self, tier: VolumeTier, tmp_path: Path) -> None:
        """A local file that is gone is not a failing tier: a retry would hide it."""
        body = FileSlice(path=tmp_path / "gone", start=0, size=1, sha256=None)
        with pytest.raises(FileNotFoundError):
            tier.put(Key("a"), body)
        assert leftovers(tmp_path) == []
