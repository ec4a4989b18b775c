"""Tiers through fsspec on test servers, and the stored bytes without them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.seaweed import BUCKET, SeaweedServer
from support.sftp_server import SftpServer
from support.webdav_server import PASSWORD, USER, WebdavServer

from tiers.fsspec_opening import open_fsspec
from tiers.opening import TierSpec
from tiers.protocol import Tier

FOLDERS = ("local", "sftp", "sftp-basic", "webdav")
"""Kinds of store whose objects are files in a folder that a test can look into."""


@dataclass(frozen=True, slots=True)
class Served:
    """A folder and how a tier reaches it."""

    folder: Path
    spec: TierSpec

    def open(self) -> Tier:
        """Open a tier, as another machine would."""
        return open_fsspec(self.spec)


@contextmanager
def serve(kind: str, base: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """Serve the folder ``root`` below ``base`` in one of the ways of FOLDERS."""
    folder = base / "served" / "root"
    folder.mkdir(parents=True)
    if kind == "local":
        yield Served(folder, TierSpec(name=kind, url=f"fsspec+{folder.as_uri()}"))
    elif kind == "webdav":
        monkeypatch.setenv("CKPTIER_WEBDAV_USER", USER)
        monkeypatch.setenv("CKPTIER_WEBDAV_PASSWORD", PASSWORD)
        with WebdavServer(folder.parent) as server:
            yield Served(folder, TierSpec(name=kind, url=f"{server.url}root"))
    else:
        with SftpServer(folder.parent, base, extensions=kind == "sftp") as sftp:
            yield Served(folder, sftp_spec(sftp, "root", profile=kind))


def sftp_spec(server: SftpServer, path: str, *, profile: str = "sftp") -> TierSpec:
    """Describe a tier on a test server."""
    options = {"key_filename": str(server.key_file), "known_hosts": str(server.known_hosts)}
    return TierSpec(name=profile, url=f"{server.url}{path}", profile=profile, options=options)


def s3fs_spec(seaweed: SeaweedServer, prefix: str, *, bucket: str = BUCKET) -> TierSpec:
    """Describe a tier on SeaweedFS, through s3fs."""
    return TierSpec(
        name="s3fs",
        url=f"fsspec+s3://{bucket}/{prefix}",
        endpoint_url=seaweed.endpoint_url,
        region="us-east-1",
        profile="seaweedfs",
    )
