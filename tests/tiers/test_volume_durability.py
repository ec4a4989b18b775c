"""The volume tier on bad days: power cuts, killed writers, lost replies, full disks."""

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tiers import effects
from tiers.bodies import BytesBody
from tiers.effects import Effect, Moment
from tiers.errors import CapacityExceeded, ObjectExists, TierUnavailable
from tiers.protocol import Key, Tier, walk
from tiers.testing import content, read_all
from tiers.volume import VolumeTier


@pytest.fixture
def tier(tmp_path: Path) -> VolumeTier:
    return VolumeTier("volume", tmp_path)


def leftovers(root: Path) -> list[Path]:
    """Return the files in the hidden folder, but for the volume's marker."""
    return [path for path in (root / ".ckptier").rglob("*") if path.is_file() and path.name != "volume.json"]


@contextmanager
def recorded(root: Path) -> Iterator[list[str]]:
    """Record what became durable or changed its name, relative to the root, with temporary names replaced."""
    happened: list[str] = []

    def note(effect: Effect, what: str, moment: Moment) -> None:
        if moment is Moment.AFTER:
            name = what.removeprefix(str(root)).lstrip("/")
            temporary = name.startswith(".ckptier/tmp/") and not name.endswith("/")
            happened.append(f"{effect} {'TEMP' if temporary else name or 'ROOT'}")

    with effects.observing(note):
        yield happened


class TestDurability:
    """The order of fsync and rename is the promise; a wrong one shows only after a power cut."""

    def test_put(self, tier: VolumeTier, tmp_path: Path) -> None:
        tier.put(Key("warm/a"), BytesBody(b"x"))
        with recorded(tmp_path) as happened:
            tier.put(Key("run/new/a"), BytesBody(b"x"))
        assert happened == ["fsync TEMP", "fsync ROOT", "fsync run/", "rename run/new/a", "fsync run/new/"]

    def test_create(self, tier: VolumeTier, tmp_path: Path) -> None:
        tier.put(Key("warm/a"), BytesBody(b"x"))
        with recorded(tmp_path) as happened:
            tier.create(Key("warm/b"), b"x")
        assert happened == ["fsync TEMP", "link warm/b", "fsync warm/", "unlink TEMP"]

    def test_folder_of_somebody_else_is_made_durable_once(self, tier: VolumeTier, tmp_path: Path) -> None:
        """Who made it may have died before the fsync."""
        tier.put(Key("warm/a"), BytesBody(b"x"))
        (tmp_path / "found").mkdir()
        with recorded(tmp_path) as happened:
            tier.put(Key("found/a"), BytesBody(b"x"))
            tier.put(Key("found/b"), BytesBody(b"x"))
        assert happened.count("fsync ROOT") == 1

    def test_put_part(self, tier: VolumeTier, tmp_path: Path) -> None:
        """Bytes before marker; and the old marker goes before its bytes do."""
        upload = tier.begin_upload(Key("a"), size=3, part_size=3)
        folder = f".ckptier/uploads/{upload.upload_id}"
        tier.put_part(upload, 1, BytesBody(b"abc"))
        with recorded(tmp_path) as happened:
            tier.put_part(upload, 1, BytesBody(b"xyz"))
        assert happened[:3] == [f"unlink {folder}/000001.part", f"fsync {folder}/", f"fsync {folder}/data"]
        assert happened[4:] == [f"rename {folder}/000001.part", f"fsync {folder}/"]

    def test_delete(self, tier: VolumeTier, tmp_path: Path) -> None:
        tier.put(Key("run/a"), BytesBody(b"x"))
        with recorded(tmp_path) as happened:
            tier.delete(Key("run/a"))
        assert happened == ["unlink run/a", "fsync run/"]
        assert not (tmp_path / "run").exists()

    @pytest.mark.parametrize("verb", ["put", "create", "upload"])
    def test_killed_anywhere(self, tmp_path: Path, verb: str) -> None:
        """Killed before any side effect, an object is whole or absent, and the same work succeeds afterwards."""
        survived = 0
        for number in range(1, 60):
            root = tmp_path / str(number)
            root.mkdir()
            died = killed_at(number, lambda root=root: store(VolumeTier("volume", root), verb))  # type: ignore[misc]
            tier = VolumeTier("volume", root)
            keys = [info.key for info in walk(tier, "")]
            assert keys in ([], ["run/a"])
            if keys:
                assert read_all(tier.open(Key("run/a"))) == content(1_000)
            elif verb == "create":
                tier.create(Key("run/a"), content(1_000))
            store(tier, "put")
            assert read_all(tier.open(Key("run/a"))) == content(1_000)
            survived += not died
        assert 0 < survived < 59 - 4, "the sweep reached the end, and killed something"


def store(tier: Tier, verb: str) -> None:
    """Store the same object in one of three ways."""
    key, data = Key("run/a"), content(1_000)
    if verb == "put":
        tier.put(key, BytesBody(data))
    elif verb == "create":
        tier.create(key, data)
    else:
        upload = tier.begin_upload(key, size=1_000, part_size=600)
        parts = [tier.put_part(upload, 1, BytesBody(data[:600])), tier.put_part(upload, 2, BytesBody(data[600:]))]
        tier.complete(upload, parts)


def killed_at(number: int, act: Callable[[], None]) -> bool:
    """Do something in a child that dies before its ``number``-th side effect; whether it died."""
    child = os.fork()
    if child == 0:
        count = 0

        def die(_effect: Effect, _what: str, moment: Moment) -> None:
            nonlocal count
            count += moment is Moment.BEFORE
            if count == number:
                os._exit(1)

        try:
            with effects.observing(die):
                act()
        except BaseException:  # noqa: BLE001 - a forked test must not run on in the child
            os._exit(2)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, 1)
    return code == 1


class TestNetworkFilesystems:
    """Replies get lost, and names appear late."""

    @pytest.mark.parametrize("error", [FileExistsError(17, "exists"), OSError(5, "input/output error")])
    def test_create_whose_reply_was_lost(
        self, tier: VolumeTier, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: OSError
    ) -> None:
        """The link count tells that it was ours."""
        link = effects.link

        def linked_but_failed(source: Path, target: Path) -> None:
            link(source, target)
            raise error

        monkeypatch.setattr(effects, "link", linked_but_failed)
        tier.create(Key("log/1"), b"mine")
        assert read_all(tier.open(Key("log/1"))) == b"mine"
        assert leftovers(tmp_path) == []

    @pytest.mark.parametrize("number", [1, 95, 38], ids=["EPERM", "EOPNOTSUPP", "ENOSYS"])
    def test_create_without_hard_links(
        self, tier: VolumeTier, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int
    ) -> None:
        """A rename that does not replace does as well."""

        def refuse(_source: Path, _target: Path) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(effects, "link", refuse)
        tier.create(Key("log/1"), b"first")
        with pytest.raises(ObjectExists):
            tier.create(Key("log/1"), b"second")
        assert read_all(tier.open(Key("log/1"))) == b"first"
        assert leftovers(tmp_path) == []

    def test_rename_that_does_not_find_its_source(self, tier: VolumeTier, monkeypatch: pytest.MonkeyPatch) -> None:
        """The source is there: look again and repeat."""
        rename, calls = effects.rename, []

        def fail_once(source: Path, target: Path) -> None:
            calls.append(target)
            if len(calls) == 1:
                raise FileNotFoundError(2, "No such file or directory")
            rename(source, target)

        monkeypatch.setattr(effects, "rename", fail_once)
        tier.put(Key("a"), BytesBody(b"x"))
        assert len(calls) == 2
        assert read_all(tier.open(Key("a"))) == b"x"

    def test_rename_whose_reply_was_lost(self, tier: VolumeTier, monkeypatch: pytest.MonkeyPatch) -> None:
        """It says ENOENT because it has happened."""
        rename = effects.rename

        def renamed_but_failed(source: Path, target: Path) -> None:
            rename(source, target)
            raise FileNotFoundError(2, "No such file or directory")

        monkeypatch.setattr(effects, "rename", renamed_but_failed)
        tier.put(Key("a"), BytesBody(b"x"))
        assert read_all(tier.open(Key("a"))) == b"x"

    def test_rename_that_never_works(self, tier: VolumeTier, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """A missing folder under a write is never "no such object"."""

        def fail(_source: Path, _target: Path) -> None:
            raise FileNotFoundError(2, "No such file or directory")

        monkeypatch.setattr(effects, "rename", fail)
        with pytest.raises(TierUnavailable):
            tier.put(Key("a"), BytesBody(b"x"))
        assert leftovers(tmp_path) == []

    def test_folder_without_fsync(self, tier: VolumeTier, monkeypatch: pytest.MonkeyPatch) -> None:
        """EINVAL from fsync on a folder means that there is nothing to do; EIO means that it failed."""
        number = 22

        def refuse(_path: Path) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(effects, "fsync_directory", refuse)
        tier.put(Key("a"), BytesBody(b"x"))
        number = 5
        with pytest.raises(TierUnavailable):
            tier.put(Key("a"), BytesBody(b"x"))

    def test_file_that_shrinks_while_it_is_read(self, tier: VolumeTier, tmp_path: Path) -> None:
        """An early end is never EOF."""
        tier.put(Key("a"), BytesBody(content(1_000)))
        with tier.open(Key("a")) as stream:
            assert stream.read(10) == content(1_000)[:10]
            os.truncate(tmp_path / "a", 500)
            with pytest.raises(TierUnavailable):
                stream.read()

    def test_full_volume(self, tier: VolumeTier, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """What was begun is removed, so that the failure does not fill the volume further."""

        def full(_fd: int, _data: memoryview, _offset: int) -> int:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "pwrite", full)
        with pytest.raises(CapacityExceeded) as caught:
            tier.put(Key("a"), BytesBody(b"x"))
        assert caught.value.hint
        assert leftovers(tmp_path) == []

    def test_deletes_beside_puts(self, tier: VolumeTier) -> None:
        """A delete removes empty folders, also the one that a put has just looked for."""

        def act(number: int) -> None:
            for _ in range(50):
                tier.put(Key(f"shared/folder/{number}"), BytesBody(b"x"))
                tier.delete(Key(f"shared/folder/{number}"))

        failures: list[Exception] = []

        def guarded(number: int) -> None:
            try:
                act(number)
            except Exception as error:  # noqa: BLE001 - judged below, in the test's own thread
                failures.append(error)

        threads = [threading.Thread(target=guarded, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [f for f in failures if not isinstance(f, TierUnavailable)] == []
        assert list(walk(tier, "")) == []


class TestLeftovers:
    """Killed writers fill the volume unless somebody removes what they left."""

    def test_abandoned_files_go_and_others_stay(self, tmp_path: Path) -> None:
        """A free lock tells the two apart, and it ends with the process."""
        VolumeTier("volume", tmp_path).put(Key("a"), BytesBody(b"x"))
        folder = tmp_path / ".ckptier" / "tmp"
        (folder / "abandoned").write_bytes(b"x")
        (folder / "0.gone").mkdir()
        (folder / "0.gone" / "data").write_bytes(b"x")
        (folder / "linked").hardlink_to(tmp_path / "a")
        with (folder / "written").open("wb") as writer:
            fcntl.flock(writer, fcntl.LOCK_EX)
            VolumeTier("volume", tmp_path).put(Key("b"), BytesBody(b"y"))
            assert [path.name for path in folder.iterdir()] == ["written"]
        assert (tmp_path / "a").read_bytes() == b"x"

    def test_without_locks_nothing_is_removed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        VolumeTier("volume", tmp_path).put(Key("a"), BytesBody(b"x"))
        (tmp_path / ".ckptier" / "tmp" / "perhaps-written").write_bytes(b"x")

        def refuse(_fd: int, _mode: int) -> None:
            raise OSError(95, "Operation not supported")

        monkeypatch.setattr(fcntl, "flock", refuse)
        VolumeTier("volume", tmp_path).put(Key("b"), BytesBody(b"y"))
        assert [path.name for path in leftovers(tmp_path)] == ["perhaps-written"]

    def test_file_swept_from_under_its_writer(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Wrongly taken for abandoned, it costs a repetition and nothing else."""
        tier = VolumeTier("volume", tmp_path)
        fsync = effects.fsync_fd

        def swept(fd: int, what: str) -> None:
            fsync(fd, what)
            if "/tmp/" in what.removeprefix(str(tmp_path)) and not what.endswith("/"):
                Path(what).unlink()

        monkeypatch.setattr(effects, "fsync_fd", swept)
        with pytest.raises(TierUnavailable):
            tier.put(Key("a"), BytesBody(b"x"))
        with pytest.raises(TierUnavailable):
            tier.create(Key("a"), b"x")
        assert list(walk(tier, "")) == []
