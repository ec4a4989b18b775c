"""What killed processes, NFS and other programs leave on a volume, and who removes it."""

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.fuse_mount import OBJECT_MOUNT, fuse_mount

from tiers.bodies import BytesBody
from tiers.errors import ObjectNotFound, Unsupported
from tiers.protocol import Key, Upload, all_parts, walk
from tiers.testing import content, read_all
from tiers.volume import VolumeTier
from tiers.volume_facts import VolumeMode

DAY = 86_400
MODES = [VolumeMode.RENAME, VolumeMode.DIRECT]
SILLY = [".nfs00000000023c4a8100000001", ".fuse_hidden0000001200000003"]


@pytest.fixture(params=[*MODES, "object mount"])
def volume(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, VolumeMode]]:
    if request.param != "object mount":
        yield tmp_path, request.param
        return
    with fuse_mount(tmp_path, OBJECT_MOUNT) as mounted:
        yield mounted.point, VolumeMode.DIRECT


def begun(tier: VolumeTier, key: str) -> Upload:
    """Begin an upload and send one of its two parts."""
    upload = tier.begin_upload(Key(key), size=20, part_size=10)
    tier.put_part(upload, 1, BytesBody(content(10)))
    return upload


def age(root: Path, upload: Upload, days: float) -> Path:
    """Make an upload look as if nobody had written to it for that long."""
    folder = root / ".ckptier" / "uploads" / upload.upload_id
    for path in (*folder.iterdir(), folder):
        moment = path.stat().st_mtime - days * DAY
        os.utime(path, (moment, moment))
    return folder


class TestUploads:
    """Of uploads: idle for a week by the volume's own clock, and held by nobody."""

    def test_old_ones_go_and_others_stay(self, volume: tuple[Path, VolumeMode]) -> None:
        root, mode = volume
        tier = VolumeTier("volume", root, mode=mode)
        old, young = begun(tier, "old"), begun(tier, "young")
        gone = age(root, old, 7.1)
        age(root, young, 6.9)
        tier.put(Key("same-process"), BytesBody(b"x"))
        assert gone.exists(), "one process sweeps once, when it first writes"
        next_one = VolumeTier("volume", root, mode=mode)
        next_one.stat(Key("same-process"))
        assert gone.exists(), "a reader removes nothing"
        next_one.put(Key("a"), BytesBody(b"x"))
        assert not gone.exists()
        with pytest.raises(ObjectNotFound):
            next_one.list_parts(old)
        assert [part.number for part in all_parts(next_one, young)] == [1]

    def test_one_part_that_was_just_written_keeps_it(self, volume: tuple[Path, VolumeMode]) -> None:
        root, mode = volume
        tier = VolumeTier("volume", root, mode=mode)
        upload = begun(tier, "a")
        folder = age(root, upload, 30)
        part = tier.put_part(upload, 2, BytesBody(content(10, seed=1)))
        VolumeTier("volume", root, mode=mode).put(Key("b"), BytesBody(b"x"))
        assert folder.exists()
        tier.complete(upload, [next(all_parts(tier, upload)), part])
        assert read_all(tier.open(Key("a"))) == content(10) + content(10, seed=1)

    def test_one_that_is_held_stays(self, volume: tuple[Path, VolumeMode]) -> None:
        root, mode = volume
        tier = VolumeTier("volume", root, mode=mode)
        folder = age(root, begun(tier, "a"), 30)
        held = next(path for path in folder.iterdir() if path.name.endswith("data"))
        with held.open("rb") as holder:
            fcntl.flock(holder, fcntl.LOCK_SH)
            VolumeTier("volume", root, mode=mode).put(Key("b"), BytesBody(b"x"))
            assert folder.exists()
        VolumeTier("volume", root, mode=mode).put(Key("c"), BytesBody(b"x"))
        assert not folder.exists()

    @pytest.mark.parametrize("mode", MODES)
    def test_without_locks_none_goes(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: VolumeMode) -> None:
        def refuse(_fd: int, _mode: int) -> None:
            raise OSError(errno.EOPNOTSUPP, "Operation not supported")

        folder = age(tmp_path, begun(VolumeTier("volume", tmp_path, mode=mode), "a"), 30)
        monkeypatch.setattr(fcntl, "flock", refuse)
        VolumeTier("volume", tmp_path, mode=mode).put(Key("b"), BytesBody(b"x"))
        assert folder.exists()

    def test_what_is_no_upload_stays(self, tmp_path: Path) -> None:
        VolumeTier("volume", tmp_path).put(Key("a"), BytesBody(b"x"))
        notes = tmp_path / ".ckptier" / "uploads" / "notes"
        notes.mkdir(parents=True)
        os.utime(notes, (0, 0))
        VolumeTier("volume", tmp_path).put(Key("b"), BytesBody(b"x"))
        assert notes.exists()


class TestProbes:
    def test_scratch_folders_of_killed_probes(self, volume: tuple[Path, VolumeMode]) -> None:
        root, mode = volume
        VolumeTier("volume", root, mode=mode).put(Key("a"), BytesBody(b"x"))
        old, young = (root / ".ckptier" / f"probe-{name}" for name in ("old", "young"))
        for folder in (old, young):
            (folder / "x").mkdir(parents=True)
            (folder / "x" / "file").write_bytes(b"x")
        moment = old.stat().st_mtime - 3700
        os.utime(old, (moment, moment))
        VolumeTier("volume", root, mode=mode).put(Key("b"), BytesBody(b"x"))
        assert not old.exists()
        assert young.exists()


class TestForeignFiles:
    """Files of other makers are neither listed nor removed."""

    @pytest.mark.parametrize("name", SILLY)
    @pytest.mark.parametrize("mode", MODES)
    def test_files_that_were_deleted_while_open(self, tmp_path: Path, mode: VolumeMode, name: str) -> None:
        """The server keeps them, under such names, for whoever has them open; then they go by themselves."""
        tier = VolumeTier("volume", tmp_path, mode=mode)
        tier.put(Key("run/a"), BytesBody(b"x"))
        folder = age(tmp_path, begun(tier, "b"), 30)
        hidden = tmp_path / ".ckptier"
        (hidden / "tmp").mkdir(exist_ok=True)
        places = [tmp_path / "run" / name, tmp_path / name, hidden / "tmp" / name, folder / name]
        for place in places:
            place.write_bytes(b"held")
        os.utime(folder / name, (0, 0))
        os.utime(folder, (0, 0))
        again = VolumeTier("volume", tmp_path, mode=mode)
        again.put(Key("run/c"), BytesBody(b"x"))
        assert [info.key for info in walk(again, "")] == ["run/a", "run/c"]
        assert all(place.exists() for place in places[:3])
        again.delete(Key("run/a"))
        again.delete(Key("run/c"))
        assert places[0].exists()

    @pytest.mark.parametrize("name", SILLY)
    def test_such_names_are_not_taken(self, tmp_path: Path, name: str) -> None:
        """They would be stored and never listed."""
        tier = VolumeTier("volume", tmp_path)
        acts: list[Callable[[Key], object]] = [
            lambda key: tier.put(key, BytesBody(b"x")),
            lambda key: tier.create(key, b"x"),
            lambda key: tier.begin_upload(key, size=1, part_size=1),
        ]
        for act in acts:
            with pytest.raises(Unsupported) as caught:
                act(Key(f"run/{name}"))
            assert "another name" in caught.value.hint

    @pytest.mark.parametrize("name", [".nfs", ".nfs12", ".nfsettings", ".fuse_hidden"])
    def test_names_that_only_look_like_it(self, tmp_path: Path, name: str) -> None:
        tier = VolumeTier("volume", tmp_path)
        tier.put(Key(f"run/{name}"), BytesBody(b"x"))
        assert [info.key for info in walk(tier, "")] == [f"run/{name}"]

    def test_parts_of_uploads_of_a_volume_that_also_speaks_s3(self, tmp_path: Path) -> None:
        (tmp_path / ".s3compat_uploads" / "1").mkdir(parents=True)
        (tmp_path / ".s3compat_uploads" / "1" / "part").write_bytes(b"x")
        tier = VolumeTier("volume", tmp_path)
        tier.put(Key("run/a"), BytesBody(b"x"))
        assert [info.key for info in walk(tier, "")] == ["run/a"]
        with pytest.raises(ValueError, match="not for objects"):
            tier.put(Key(".s3compat_uploads/x"), BytesBody(b"x"))


class TestC70:
    """Names that others take for patterns."""

    @pytest.mark.parametrize("mode", MODES)
    def test_they_are_names(self, tmp_path: Path, mode: VolumeMode) -> None:
        """Such letters are written as %XX in keys; beside them lie files that a pattern would catch."""
        tier = VolumeTier("volume", tmp_path, mode=mode)
        keys = [Key(f"run/{name}") for name in ("a%2A.pt", "file%3F", "layer%5B0%5D.bin", "layer0.bin")]
        for number, key in enumerate(keys):
            tier.put(key, BytesBody(b"%d" % number))
        (tmp_path / "run" / "a*.pt").write_bytes(b"foreign")
        (tmp_path / "run" / "layer[0].bin").write_bytes(b"foreign")
        assert [info.key for info in walk(tier, "")] == keys
        tier.delete(keys[0])
        tier.delete(keys[2])
        assert [info.key for info in walk(tier, "run/")] == [keys[1], keys[3]]
        assert read_all(tier.open(keys[3])) == b"3"
        assert (tmp_path / "run" / "a*.pt").exists()
