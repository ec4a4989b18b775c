"""The volume's marker: an unmounted volume is not an empty one, and a volume is not written in two ways."""

import errno
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.fuse_mount import OBJECT_MOUNT, FuseMount, fuse_mount
from support.fuse_server import Failure, Rules
from support.killing import at_once

from tiers import effects
from tiers.bodies import BytesBody
from tiers.errors import IntegrityError, ObjectNotFound, TierUnavailable, Unsupported
from tiers.protocol import Fencing, Key, Tier, walk
from tiers.testing import read_all
from tiers.volume import VolumeTier
from tiers.volume_facts import VolumeMode

KEY = Key("run/a")


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[FuseMount]:
    with fuse_mount(tmp_path) as mounted:
        yield mounted


def marker(root: Path) -> Path:
    return root / ".ckptier" / "volume.json"


def used(root: Path, mode: VolumeMode = VolumeMode.AUTO) -> VolumeTier:
    """Open a tier and store an object."""
    root.mkdir(exist_ok=True)
    tier = VolumeTier("volume", root, mode=mode)
    tier.put(KEY, BytesBody(b"x"))
    return tier


class TestMarker:
    def test_it_is_written_once_and_before_the_first_object(self, tmp_path: Path) -> None:
        seen: list[bool] = []
        with effects.observing(
            lambda _kind, what, _moment: seen.append(marker(tmp_path).exists()) if KEY in what else None
        ):
            tier = used(tmp_path)
        assert seen
        assert all(seen)
        assert tier.identity is not None
        document = json.loads(marker(tmp_path).read_bytes())
        assert (document["format"], document["layout"], document["fencing"]) == (1, "rename", "posix")
        assert document["uuid"] == tier.identity.uuid
        assert document["created_at"].endswith("Z")
        before = marker(tmp_path).stat().st_ino
        used(tmp_path)
        assert marker(tmp_path).stat().st_ino == before

    def test_reading_writes_none(self, tmp_path: Path) -> None:
        tier = VolumeTier("volume", tmp_path)
        assert list(walk(tier, "")) == []
        with pytest.raises(ObjectNotFound):
            tier.stat(KEY)
        assert tier.identity is None
        assert list(tmp_path.iterdir()) == []

    def test_a_reader_learns_it(self, tmp_path: Path) -> None:
        written = used(tmp_path).identity
        tier = VolumeTier("volume", tmp_path)
        assert tier.identity is None, "no request was made"
        tier.stat(KEY)
        assert tier.identity == written

    @pytest.mark.parametrize("mode", [VolumeMode.AUTO, VolumeMode.DIRECT])
    def test_racing_first_writers_agree(self, tmp_path: Path, mode: VolumeMode) -> None:
        def write(number: int) -> bool:
            try:
                VolumeTier("volume", root, mode=mode).put(Key(f"run/{number}"), BytesBody(b"x"))
            except TierUnavailable:  # the marker was being written; it is tried again
                return False
            return True

        for round_number in range(5):
            root = tmp_path / str(round_number)
            root.mkdir()
            stored = at_once(4, write)
            assert any(stored)
            tier = VolumeTier("volume", root, mode=mode)
            assert len(list(walk(tier, ""))) == sum(stored)
            assert json.loads(marker(root).read_bytes())["layout"] == (
                "direct" if mode is VolumeMode.DIRECT else "rename"
            )

    @pytest.mark.parametrize("mode", [VolumeMode.AUTO, VolumeMode.DIRECT])
    def test_one_that_was_never_finished_is_none(self, tmp_path: Path, mode: VolumeMode) -> None:
        """Its writer was killed before any object was written."""
        marker(tmp_path).parent.mkdir()
        marker(tmp_path).write_bytes(b'{"format":1,"uu')
        assert list(walk(VolumeTier("volume", tmp_path), "")) == []
        assert used(tmp_path, mode).identity is not None

    @pytest.mark.parametrize(
        ("data", "words"),
        [
            (b"not json\n", "damaged"),
            (b"{}\n", "damaged"),
            (b'{"format":1,"uuid":"x","created_at":"","layout":"rename","fencing":"posix"}\n', "damaged"),
            (b'{"format":2}\n', "a newer ckptier"),
            (b" " * 5000 + b"\n", "more than 4096 bytes"),
        ],
    )
    def test_a_damaged_one_is_told(self, tmp_path: Path, data: bytes, words: str) -> None:
        """Guessing that the volume is new could hide what is on it."""
        used(tmp_path)
        marker(tmp_path).write_bytes(data)
        acts: list[Callable[[Tier], object]] = [
            lambda tier: tier.stat(KEY),
            lambda tier: tier.put(KEY, BytesBody(b"y")),
            lambda tier: tier.list_objects(""),
        ]
        for act in acts:
            with pytest.raises(IntegrityError, match=words):
                act(VolumeTier("volume", tmp_path))

    def test_one_that_is_a_folder(self, tmp_path: Path) -> None:
        marker(tmp_path).mkdir(parents=True)
        with pytest.raises(IntegrityError, match="no regular file"):
            VolumeTier("volume", tmp_path).stat(KEY)


class TestUnmounted:
    """The folder below a mount point answers, and is not the volume."""

    def test_remembered_from_an_earlier_process(self, tmp_path: Path) -> None:
        identity = used(tmp_path / "volume").identity
        assert identity is not None
        (tmp_path / "volume").rename(tmp_path / "elsewhere")
        (tmp_path / "volume").mkdir()
        tier = VolumeTier("volume", tmp_path / "volume", expected=identity.uuid)
        acts: list[Callable[[], object]] = [
            lambda: tier.stat(KEY),
            lambda: tier.open(KEY),
            lambda: tier.list_objects(""),
            lambda: tier.put(KEY, BytesBody(b"y")),
            lambda: tier.create(KEY, b"y"),
            lambda: tier.delete(KEY),
            lambda: tier.begin_upload(KEY, size=1, part_size=1),
        ]
        for act in acts:
            with pytest.raises(TierUnavailable, match="a folder without volume") as caught:
                act()
            assert "is the volume mounted?" in caught.value.hint
        assert list((tmp_path / "volume").iterdir()) == []
        (tmp_path / "volume").rmdir()
        (tmp_path / "elsewhere").rename(tmp_path / "volume")
        assert tier.stat(KEY).size == 1

    def test_another_volume_in_its_place(self, tmp_path: Path) -> None:
        identity = used(tmp_path / "one").identity
        used(tmp_path / "other")
        assert identity is not None
        with pytest.raises(TierUnavailable, match="not the volume"):
            VolumeTier("volume", tmp_path / "other", expected=identity.uuid).stat(KEY)

    @pytest.mark.parametrize("beneath", ["empty", "another"])
    def test_unmounted_under_a_running_process(self, tmp_path: Path, beneath: str) -> None:
        """One device under both, as with bind mounts: only the marker tells."""
        tier = used(tmp_path / "volume")
        (tmp_path / "volume").rename(tmp_path / "elsewhere")
        if beneath == "another":
            used(tmp_path / "volume")
        else:
            (tmp_path / "volume").mkdir()
        for _ in range(2):
            with pytest.raises(TierUnavailable, match="not the volume"):
                tier.list_objects("")
            with pytest.raises(TierUnavailable, match="not the volume"):
                tier.put(KEY, BytesBody(b"y"))

    def test_mounted_again_elsewhere(self, tmp_path: Path) -> None:
        """The same volume, with other numbers, goes on being the same."""
        tier = used(tmp_path / "volume")
        shutil.copytree(tmp_path / "volume", tmp_path / "again")
        (tmp_path / "volume").rename(tmp_path / "gone")
        (tmp_path / "again").rename(tmp_path / "volume")
        assert tier.stat(KEY).size == 1
        tier.put(Key("run/b"), BytesBody(b"y"))
        assert [info.key for info in walk(tier, "")] == ["run/a", "run/b"]

    def test_really_unmounted(self, tmp_path: Path) -> None:
        with fuse_mount(tmp_path) as mounted:
            tier = used(mounted.point)
        for _ in range(2):
            with pytest.raises(TierUnavailable):
                tier.list_objects("")
        assert list(mounted.point.iterdir()) == []


class TestStale:
    """ESTALE: the server has forgotten what we hold.  Fail fast, and look anew at the next request."""

    def test_it_fails_fast_and_recovers(self, mount: FuseMount) -> None:
        tier = used(mount.point)
        mount.rule(Rules(failures=[Failure("OPEN", errno.ESTALE, times=2, within="run/a")]))
        with pytest.raises(TierUnavailable, match="ESTALE"):  # the kernel itself looks up once more
            tier.open(KEY)
        assert mount.fired["OPEN"] == 2
        assert read_all(tier.open(KEY)) == b"x"

    def test_and_is_still_the_same_volume(self, mount: FuseMount) -> None:
        """What stands there after the handle went stale has to be it, whatever its numbers are."""
        tier = used(mount.point)
        mount.rule(Rules(failures=[Failure("OPEN", errno.ESTALE, times=2, within="run/a")]))
        with pytest.raises(TierUnavailable, match="ESTALE"):
            tier.open(KEY)
        document = json.loads((mount.backing / ".ckptier" / "volume.json").read_bytes())
        document["uuid"] = "00000000-0000-4000-8000-000000000000"
        (mount.backing / ".ckptier" / "volume.json").write_text(json.dumps(document) + "\n")
        with pytest.raises(TierUnavailable, match="not the volume"):
            tier.stat(KEY)

    @pytest.mark.parametrize("times", [1, -1])
    def test_a_listing_passes_over_nothing_that_is_there(self, mount: FuseMount, times: int) -> None:
        """A folder with a stale handle is looked at again; one that stays stale ends the listing, not just itself."""
        tier = used(mount.point)
        tier.put(Key("z"), BytesBody(b"x"))
        mount.rule(Rules(failures=[Failure("READDIR", errno.ESTALE, times=times, within="run")]))
        if times < 0:
            with pytest.raises(TierUnavailable, match="ESTALE"):
                tier.list_objects("")
        else:
            assert [info.key for info in walk(tier, "")] == [KEY, "z"]
        assert mount.fired["READDIR"] >= 1


class TestModes:
    """One volume, one layout."""

    def test_objects_from_before_there_were_markers(self, tmp_path: Path) -> None:
        """They were renamed into place, are whole, and stay so."""
        (tmp_path / "run").mkdir()
        (tmp_path / KEY).write_bytes(b"old")
        tier = VolumeTier("volume", tmp_path)
        assert read_all(tier.open(KEY)) == b"old"
        assert [info.key for info in walk(tier, "")] == [KEY]
        tier.put(Key("run/b"), BytesBody(b"y"))
        assert tier.identity is not None
        assert tier.identity.layout is VolumeMode.RENAME
        assert [info.key for info in walk(tier, "")] == [KEY, "run/b"]

    def test_an_upload_from_before_there_were_markers(self, tmp_path: Path, mount: FuseMount) -> None:
        """An upload under way says as much as an object does."""
        (mount.point / ".ckptier" / "uploads").mkdir(parents=True)
        mount.rule(OBJECT_MOUNT)
        with pytest.raises(Unsupported):
            VolumeTier("volume", mount.point).put(KEY, BytesBody(b"x"))

    def test_direct_does_not_hide_what_is_there(self, tmp_path: Path) -> None:
        (tmp_path / "run").mkdir()
        (tmp_path / KEY).write_bytes(b"old")
        tier = VolumeTier("volume", tmp_path, mode=VolumeMode.DIRECT)
        assert read_all(tier.open(KEY)) == b"old"
        with pytest.raises(Unsupported, match="without the marks") as caught:
            tier.put(Key("run/b"), BytesBody(b"y"))
        assert "new folder" in caught.value.hint

    @pytest.mark.parametrize(
        ("first", "second"), [(VolumeMode.DIRECT, VolumeMode.RENAME), (VolumeMode.RENAME, VolumeMode.DIRECT)]
    )
    def test_a_volume_keeps_its_layout(self, tmp_path: Path, first: VolumeMode, second: VolumeMode) -> None:
        used(tmp_path, first)
        tier = VolumeTier("volume", tmp_path, mode=second)
        assert read_all(tier.open(KEY)) == b"x", "reading follows the marker"
        with pytest.raises(Unsupported, match=f"written in mode {first}, configured is mode {second}") as caught:
            tier.put(KEY, BytesBody(b"y"))
        assert f'mode = "{first}"' in caught.value.hint

    def test_direct_is_found_out_but_not_taken_silently(self, mount: FuseMount) -> None:
        """Only one writer is safe there, and that is for the user to say."""
        mount.rule(OBJECT_MOUNT)
        tier = VolumeTier("volume", mount.point)
        with pytest.raises(Unsupported, match="two writers cannot be kept apart") as caught:
            tier.put(KEY, BytesBody(b"x"))
        assert 'mode = "direct" and accept_advisory = true' in caught.value.hint
        assert "rename over: Operation not permitted [EPERM]" in caught.value.message
        said = VolumeTier("volume", mount.point, mode=VolumeMode.DIRECT)
        assert said.capabilities.fencing is Fencing.ADVISORY
        said.put(KEY, BytesBody(b"x"))
        assert read_all(tier.open(KEY)) == b"x", "reading needs no leave"
        with pytest.raises(Unsupported, match="two writers"):
            tier.put(KEY, BytesBody(b"y"))

    def test_direct_where_nobody_else_writes_is_taken(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A local filesystem without rename: O_EXCL and locks keep this machine's writers apart."""

        def refuse(*_: object, **__: object) -> None:
            raise OSError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(os, "rename", refuse)
        tier = used(tmp_path)
        assert tier.capabilities.fencing is Fencing.POSIX
        assert tier.identity is not None
        assert (tier.identity.layout, tier.identity.fencing) == (VolumeMode.DIRECT, Fencing.POSIX)
        assert [info.key for info in walk(VolumeTier("volume", tmp_path), "")] == [KEY]
