"""Opens the filesystem that a place needs: with deadlines, without caches, and never with a secret of ours."""

import inspect
import netrc
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from tiers.errors import Unsupported
from tiers.fsspec import FsspecTier
from tiers.fsspec_backends import Backend, BucketBackend, LookingBucketBackend, MemoryBackend, takes
from tiers.fsspec_folders import LocalBackend, OtherFolderBackend
from tiers.fsspec_stores import CreateBy, Kind
from tiers.fsspec_urls import Place, locate
from tiers.opening import BadTierUrl, TierSpec
from tiers.profiles import Profile, choose_profile
from tiers.protocol import Fencing, Tier

CONNECT_TIMEOUT = 10
"""Seconds for a connection to be made."""
_UNCACHED = {"use_listings_cache": False, "skip_instance_cache": True}
_S3_CONFIG = {
    "connect_timeout": CONNECT_TIMEOUT,
    "retries": {"total_max_attempts": 1},
    "request_checksum_calculation": "when_required",  # most stores that are not AWS refuse what it sends otherwise
    "response_checksum_validation": "when_required",
    "ignore_configured_endpoint_urls": True,  # they were read, and checked, with the URL
}

Connect = Callable[[type[Any], Place], Backend]


class BadOptions(Exception):
    """The filesystem does not take the options that it was given."""


def open_fsspec(spec: TierSpec) -> Tier:
    """Return a tier for any store that fsspec reaches; no request is made.

    BadTierUrl for a bad spec, Unsupported where an implementation is not installed.
    """
    place = locate(spec)
    cls = _implementation(spec, place)
    fencing, connect = _choose(spec, place, cls)

    def connected() -> Backend:
        try:
            return connect(cls, place)
        except TypeError as error:
            raise BadOptions from error

    return FsspecTier(spec.name, store=place.store, fencing=fencing, connect=connected)


def _implementation(spec: TierSpec, place: Place) -> type[Any]:
    store = place.store
    try:
        from fsspec.registry import get_filesystem_class  # type: ignore[import-untyped]  # noqa: PLC0415 - it is an extra

        cls: type[Any] = get_filesystem_class(place.protocol)
    except ImportError as error:
        raise Unsupported(
            f"{place.protocol}:// needs {store.package}, which is not installed",
            tier=spec.name,
            operation="open tier",
            hint=f"pip install 'ckptier[{store.extra}]'",
        ) from error
    return cls


def _choose(spec: TierSpec, place: Place, cls: type[Any]) -> tuple[Fencing, Connect]:
    """Decide what creates are worth, and which backend does them."""
    store = place.store
    if store.kind is Kind.OTHER:
        return Fencing.ADVISORY, _other
    if store.kind is not Kind.BUCKET:
        return store.fencing, _CONNECT[store.kind]
    # An older release would swallow the condition and report a success.
    conditional = store.create_by is CreateBy.CONDITIONAL_PUT and takes(cls, "pipe_file", "mode")
    fencing = store.fencing
    if store.name == "s3fs":
        profile = _s3_profile(spec, place)
        conditional, fencing = conditional and profile.conditional_put, profile.fencing
    if conditional and fencing is not Fencing.ADVISORY:
        return fencing, lambda cls, place: BucketBackend(_bucket(cls, place), place.root, place.store)
    return Fencing.ADVISORY, lambda cls, place: LookingBucketBackend(
        _bucket(cls, place), place.root, place.store, conditional=conditional
    )


def _s3_profile(spec: TierSpec, place: Place) -> Profile:
    try:
        return choose_profile(spec.profile, place.options.get("endpoint_url"))
    except ValueError as error:
        raise BadTierUrl(f"tier {spec.name}: {error}", "see profile of this tier") from error


def _bucket(cls: type[Any], place: Place) -> Any:
    options = dict(place.options)
    if place.store.name == "s3fs":
        region = options.pop("region_name", None)
        options |= {
            "config_kwargs": {**_S3_CONFIG, "read_timeout": place.timeout},
            "client_kwargs": {"region_name": region} if region else {},
        }
    limits = {
        "requests_timeout": place.timeout,
        "connection_timeout": CONNECT_TIMEOUT,
        "read_timeout": place.timeout,
        "anon": False,
    }
    fs = cls(**{**_accepted(cls, limits), **options}, **_UNCACHED)
    if place.store.name == "s3fs":
        fs.retries = 1  # retrying is the wrapper's business, which counts and waits
    return fs


def _accepted(cls: type[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return those options that this release knows by name."""
    known = inspect.signature(cls.__init__).parameters
    return {name: value for name, value in options.items() if name in known}


def _local(cls: type[Any], place: Place) -> Backend:
    return LocalBackend(cls(auto_mkdir=False, **place.options, **_UNCACHED), place.root, place.store)


def _memory(cls: type[Any], place: Place) -> Backend:
    return MemoryBackend(cls(**place.options, **_UNCACHED), place.root, place.store)


def _sftp(cls: type[Any], place: Place) -> Backend:
    del cls
    from tiers.fsspec_sftp import SftpBackend, connect  # noqa: PLC0415 - needs paramiko

    return SftpBackend(connect(dict(place.options), place.timeout), place.root, place.store)


def _webdav(cls: type[Any], place: Place) -> Backend:
    from tiers.fsspec_webdav import WebdavBackend  # noqa: PLC0415 - needs webdav4

    options = dict(place.options)
    login = webdav_login(urlsplit(options["base_url"]).hostname or "")
    limits = (CONNECT_TIMEOUT, place.timeout, place.timeout, place.timeout)
    fs = cls(**options, auth=login, retry=False, timeout=limits, skip_instance_cache=True)
    return WebdavBackend(fs, place.root, place.store)


def webdav_login(host: str) -> tuple[str, str] | None:
    """Return user and password from the environment, else from the netrc file, else None."""
    user, password = os.environ.get("CKPTIER_WEBDAV_USER"), os.environ.get("CKPTIER_WEBDAV_PASSWORD")
    if user is not None and password is not None:
        return user, password
    path = Path(os.environ.get("NETRC") or Path.home() / ".netrc")
    with suppress(FileNotFoundError):
        found = netrc.netrc(path).authenticators(host)
        if found is not None:
            return found[0], found[2] or ""
    return None


def _other(cls: type[Any], place: Place) -> Backend:
    from fsspec.spec import AbstractFileSystem  # type: ignore[import-untyped]  # noqa: PLC0415 - as above

    fs = cls(**place.options, **_UNCACHED)
    if cls.mv is not AbstractFileSystem.mv:  # it can rename
        return OtherFolderBackend(fs, place.root, place.store)
    return LookingBucketBackend(fs, place.root, place.store, conditional=False)


_CONNECT: Mapping[Kind, Connect] = MappingProxyType(
    {Kind.LOCAL: _local, Kind.MEMORY: _memory, Kind.SFTP: _sftp, Kind.WEBDAV: _webdav}
)
