"""Every kind of tier, as a configured place: started once for the tests that use it, a prefix for each test."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from flows.machines import Place
from support.fsspec_tiers import s3fs_spec, serve
from support.hub_tiers import REPO, hub_site
from support.provider_stores import Unhurried
from support.seaweed import ACCESS_KEY, BUCKET, SECRET_KEY, SeaweedServer

from replicate.config import TierConfig
from tiers.testing.s3_emulator import AWS, CEPH_RGW, GENERIC, R2, Behaviour, Credentials, S3Emulator

_prefixes = itertools.count(1)
Settings = Mapping[str, object]
"""What a [[tier]] says, but for its name; ``url`` without a prefix."""
Kind = Callable[[Path, SeaweedServer], AbstractContextManager["Running"]]


@dataclass(frozen=True, slots=True)
class Running:
    """A kind of tier that is there to be used."""

    name: str
    settings: Settings
    folder: Path | None = None

    def place(self, **settings: object) -> Place:
        """Return a place of its own in the store; advisory stores are accepted unless ``settings`` say otherwise."""
        prefix = f"t{next(_prefixes):05d}"
        chosen = {**self.settings, "accept_advisory": True, **settings}
        url = f"{str(chosen['url']).rstrip('/')}/{prefix}"
        if self.folder is not None:
            (self.folder / prefix).mkdir()  # a root has to be there: one that is missing may be one that is unmounted
        return Place(TierConfig(**{"name": "tier", **chosen, "url": url}))  # type: ignore[arg-type]


@contextmanager
def _memory(_folder: Path, _seaweed: SeaweedServer) -> Iterator[Running]:
    yield Running("memory", {"url": "memory://kinds"})


@contextmanager
def _volume(folder: Path, _seaweed: SeaweedServer) -> Iterator[Running]:
    yield Running("volume", {"url": folder.as_uri()}, folder)


@contextmanager
def _s3(_folder: Path, seaweed: SeaweedServer) -> Iterator[Running]:
    settings = {"url": f"s3://{BUCKET}/kinds", "endpoint_url": seaweed.endpoint_url, "profile": "seaweedfs"}
    yield Running("s3-seaweedfs", settings)


def _emulated(behaviour: Behaviour) -> Kind:
    @contextmanager
    def emulator(_folder: Path, _seaweed: SeaweedServer) -> Iterator[Running]:
        known = Credentials(access_key=ACCESS_KEY, secret_key=SECRET_KEY)
        with S3Emulator(behaviour, buckets=(BUCKET,), credentials=[known], clock=Unhurried()) as running:
            settings = {
                "url": f"s3://{BUCKET}/kinds",
                "endpoint_url": running.endpoint_url,
                "profile": behaviour.name,
                "region": behaviour.location or "us-east-1",
            }
            yield Running(f"s3-{behaviour.name}", settings)

    return emulator


@contextmanager
def _fsspec_memory(_folder: Path, _seaweed: SeaweedServer) -> Iterator[Running]:
    yield Running("fsspec-memory", {"url": "fsspec+memory://kinds"})


@contextmanager
def _s3fs(_folder: Path, seaweed: SeaweedServer) -> Iterator[Running]:
    spec = s3fs_spec(seaweed, "kinds")
    settings = {"url": spec.url, "endpoint_url": spec.endpoint_url, "region": spec.region, "profile": spec.profile}
    yield Running("fsspec-s3fs", settings)


def _served(kind: str) -> Kind:
    @contextmanager
    def server(folder: Path, _seaweed: SeaweedServer) -> Iterator[Running]:
        with pytest.MonkeyPatch.context() as patch, serve(kind, folder, patch) as running:
            spec = running.spec
            settings = {"url": spec.url, "profile": spec.profile, "options": dict(spec.options)}
            yield Running(f"fsspec-{kind}", settings, running.folder)

    return server


@contextmanager
def _hub(folder: Path, _seaweed: SeaweedServer) -> Iterator[Running]:
    with hub_site(folder / "hf-home") as site:
        yield Running("hub", {"url": f"hf://datasets/{REPO}", "endpoint_url": site.hub.url})


KINDS: Mapping[str, Kind] = {
    "memory": _memory,
    "volume": _volume,
    "s3-seaweedfs": _s3,
    "s3-aws": _emulated(AWS),
    "s3-r2": _emulated(R2),
    "s3-ceph-rgw": _emulated(CEPH_RGW),
    "s3-generic-s3": _emulated(GENERIC),
    "fsspec-memory": _fsspec_memory,
    "fsspec-local": _served("local"),
    "fsspec-s3fs": _s3fs,
    "fsspec-sftp": _served("sftp"),
    "fsspec-webdav": _served("webdav"),
    "hub": _hub,
}
ADVISORY = {"s3-generic-s3", "fsspec-memory", "fsspec-webdav"}
"""Kinds whose store cannot keep two writers apart: used only where that was accepted."""
