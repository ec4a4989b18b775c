"""What goes through fsspec is a tier: in memory, on local files, and on real servers for S3, SFTP and WebDAV."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.fsspec_tiers import Served, s3fs_spec, serve
from support.s3_tiers import RawS3
from support.seaweed import SeaweedServer

from tiers.fsspec_opening import open_fsspec
from tiers.opening import TierSpec
from tiers.testing import TierConformance, TierFactory

_names = itertools.count(1)


class RawFolder:
    """The bytes of a served folder, from the server's side."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def get(self, key: str) -> bytes | None:
        path = self._root / key
        return path.read_bytes() if path.is_file() else None

    def put(self, key: str, data: bytes) -> None:
        path = self._root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


class TestFsspecMemory(TierConformance):
    @pytest.fixture
    def tier_factory(self) -> TierFactory:
        spec = TierSpec(name="memory", url=f"fsspec+memory://conformance/{next(_names)}")
        return lambda: open_fsspec(spec)


class TestFsspecS3(TierConformance):
    @pytest.fixture
    def tier_factory(self, seaweed: SeaweedServer, prefix: str) -> TierFactory:
        return lambda: open_fsspec(s3fs_spec(seaweed, prefix))

    @pytest.fixture
    def raw(self, seaweed: SeaweedServer, prefix: str) -> Iterator[RawS3]:
        store = RawS3(seaweed.endpoint_url, prefix)
        yield store
        store.close()


class TestFsspecLocal(TierConformance):
    kind = "local"

    @pytest.fixture
    def served(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
        with serve(self.kind, tmp_path, monkeypatch) as running:
            yield running

    @pytest.fixture
    def tier_factory(self, served: Served) -> TierFactory:
        return served.open

    @pytest.fixture
    def raw(self, served: Served) -> RawFolder:
        return RawFolder(served.folder)


class TestFsspecSftp(TestFsspecLocal):
    kind = "sftp"


class TestFsspecSftpBasic(TestFsspecLocal):
    """A server that knows no extension; creates are advisory there."""

    kind = "sftp-basic"


class TestFsspecWebdav(TestFsspecLocal):
    kind = "webdav"
