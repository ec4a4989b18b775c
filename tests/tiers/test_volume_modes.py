"""Every mode of a volume is a tier, on filesystems that can everything and on ones that cannot."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from support.fuse_mount import OBJECT_MOUNT, fuse_mount
from support.fuse_server import Rules

from tiers import volume_files, volume_probe
from tiers.bodies import BytesBody
from tiers.protocol import Fencing, Key, Tier
from tiers.testing import RawStore, TierConformance, TierFactory
from tiers.volume import VolumeTier
from tiers.volume_facts import VolumeMode
from tiers.volume_identity import read_identity


class Files:
    """The files of a volume without the tier; in mode direct, an object is a file and its mark."""

    def __init__(self, root: Path, *, marked: bool) -> None:
        self.root = root
        self.marked = marked

    def get(self, key: str) -> bytes | None:
        path = self.root / key
        return path.read_bytes() if path.is_file() else None

    def put(self, key: str, data: bytes) -> None:
        places = {self.root / key: data}
        if self.marked:
            places[self.root / ".ckptier" / "done" / key] = b"%d\n" % len(data)
        for path, content in places.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


@contextmanager
def mounted(rules: Rules) -> Iterator[Path]:
    """Mount a filesystem in memory and return where."""
    with TemporaryDirectory() as folder, fuse_mount(Path(folder), rules) as mount:
        yield mount.point


class TestDirect(TierConformance):
    """Mode direct on an ordinary filesystem."""

    @pytest.fixture
    def tier_factory(self, tmp_path: Path) -> TierFactory:
        return lambda: VolumeTier("volume", tmp_path, mode=VolumeMode.DIRECT, page_size=3)

    @pytest.fixture
    def raw(self, tmp_path: Path) -> RawStore:
        return Files(tmp_path, marked=True)


class TestDirectFoundOut(TierConformance):
    """Mode direct, found out, where a local filesystem has no rename: there it keeps writers apart, and is raced."""

    @pytest.fixture(autouse=True)
    def without_rename(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object, **__: object) -> None:
            raise OSError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(os, "rename", refuse)
        monkeypatch.setattr(os, "link", refuse)
        monkeypatch.setattr(volume_files, "rename_no_replace", refuse)
        monkeypatch.setattr(volume_probe, "rename_no_replace", refuse)

    @pytest.fixture
    def tier_factory(self, tmp_path: Path) -> TierFactory:
        return lambda: VolumeTier("volume", tmp_path, page_size=3)

    @pytest.fixture
    def raw(self, tmp_path: Path) -> RawStore:
        VolumeTier("volume", tmp_path).put(Key("first"), BytesBody(b"x"))  # before files are there without marks
        return Files(tmp_path, marked=True)

    def test_it_was_found_out(self, tmp_path: Path, tier: Tier) -> None:
        tier.put(Key("a"), BytesBody(b"x"))
        identity = read_identity(tmp_path)
        assert identity is not None
        assert (identity.layout, tier.capabilities.fencing) == (VolumeMode.DIRECT, Fencing.POSIX)


class TestDirectOnAnObjectMount(TierConformance):
    """Mode direct where nothing else would work: no rename, no link, files written once and front to back."""

    @pytest.fixture
    def root(self) -> Iterator[Path]:
        with mounted(OBJECT_MOUNT) as point:
            yield point

    @pytest.fixture
    def tier_factory(self, root: Path) -> TierFactory:
        return lambda: VolumeTier("volume", root, mode=VolumeMode.DIRECT, page_size=3)


class TestRenameOnFuse(TierConformance):
    """Mode rename, found out, on a FUSE mount that renames."""

    @pytest.fixture
    def root(self) -> Iterator[Path]:
        with mounted(Rules()) as point:
            yield point

    @pytest.fixture
    def tier_factory(self, root: Path) -> TierFactory:
        return lambda: VolumeTier("volume", root, page_size=3)
