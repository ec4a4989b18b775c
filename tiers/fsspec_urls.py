"""From a tier's URL and options to a protocol, a store, a root and what its filesystem is opened with.

Nothing here needs fsspec, but for a scheme that only fsspec's registry may know.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from tiers.checks import key_components
from tiers.fsspec_stores import REFUSED, STORES, Kind, Store, choose_store
from tiers.opening import BadTierUrl, TierSpec
from tiers.profiles import is_loopback

EXPLICIT = "fsspec+"
READ_TIMEOUT = 120.0
"""Seconds without progress until a request is given up, where the spec says nothing."""
NATIVE = frozenset({"file", "local", "memory", "s3", "s3a", "hf"})
"""Schemes that have tiers of their own, and go through fsspec only where that is written."""
_WEBDAV = {"webdav": "https", "dav": "https", "webdav+https": "https", "webdav+http": "http"}

_SECRET = re.compile(
    r"(?:^|_)(?:keys?|pkey|secret|password|passwd|passphrase|token|credentials?|auth|string|sas|cookies?|headers?)(?:_|$)"
)
_PLACE = re.compile(r"_(?:file|filename|path)$")
_OURS = frozenset(
    {"host", "port", "base_url", "client", "url", "fo", "endpoint_url", "region_name", "temppath", "auto_mkdir"}
    | {"asynchronous", "loop", "session", "host_key_policy", "retry", "http_client", "version_aware"}
    | {"use_listings_cache", "listings_expiry_time", "max_paths", "skip_instance_cache", "cache_timeout"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a tier is: ``root`` is a path of the filesystem, ``options`` what it is opened with.

    ``timeout`` is how many seconds a request may make no progress.
    """

    protocol: str
    store: Store
    root: str
    options: Mapping[str, Any]
    timeout: float = READ_TIMEOUT


def protocol_of(scheme: str) -> str | None:
    """Return fsspec's protocol for a URL's scheme, or None where it has none that could be a tier."""
    if scheme.startswith(EXPLICIT):
        return scheme.removeprefix(EXPLICIT)
    if scheme in _WEBDAV:
        return "webdav"
    if scheme in NATIVE or scheme in REFUSED:
        return None
    if any(scheme in store.protocols for store in STORES.values()):
        return scheme
    return scheme if scheme and is_registered(scheme) else None


def is_registered(protocol: str) -> bool:
    """Whether fsspec is installed and knows the protocol; its implementation may still be missing."""
    if find_spec("fsspec") is None:
        return False
    registry = import_module("fsspec.registry")  # late: it takes a tenth of a second

    return protocol in registry.known_implementations or protocol in registry.registry


def locate(spec: TierSpec) -> Place:
    """Read a spec; BadTierUrl where it is wrong."""
    parts = urlsplit(spec.url)
    try:
        protocol = _usable_protocol(parts)
        store = choose_store(protocol, spec.profile)
        _check_options(spec, store)
        _check_fields(spec)
        root, options = _PLACES[store.kind](parts, spec)
    except ValueError as error:
        hint = getattr(error, "hint", "see url, profile and options of this tier")
        raise BadTierUrl(f"tier {spec.name}: {error}", hint) from error
    timeout = spec.timeout_seconds or READ_TIMEOUT
    return Place(protocol=protocol, store=store, root=root, options={**options, **spec.options}, timeout=timeout)


def _usable_protocol(parts: SplitResult) -> str:
    protocol = protocol_of(parts.scheme)
    if protocol is None or protocol in REFUSED or protocol == "hf":
        raise ValueError(REFUSED.get(protocol or "", f"{protocol}:// is no filesystem that could be a tier"))
    if parts.query or parts.fragment:
        raise ValueError("the URL has a query or fragment; write %3F for ? and %23 for #")
    if not any(protocol in store.protocols for store in STORES.values()) and not is_registered(protocol):
        raise ValueError(f"fsspec is not installed, or knows no protocol {protocol!r}")
    return protocol


def _check_options(spec: TierSpec, store: Store) -> None:
    for name, value in spec.options.items():
        if name in _OURS:
            raise ValueError(f"option {name!r} is not to be set: it follows from url, endpoint_url and region")
        if _SECRET.search(name) and not _PLACE.search(name) and not isinstance(value, bool):
            hint = f"take it out of options; secrets of this store belong into: {store.credentials}"
            raise BadTierUrl(f"option {name!r} looks like a secret", hint)


def _check_fields(spec: TierSpec) -> None:
    """Refuse what would be dropped unseen: somebody who asks for encryption must not think to have it."""
    for name in ("storage_class", "encryption", "kms_key", "ca_bundle", "mode"):
        if getattr(spec, name) is not None:
            raise ValueError(f"{name} has no effect through fsspec: take it out, or use a tier that knows it")


def _bucket(parts: SplitResult, spec: TierSpec) -> tuple[str, dict[str, Any]]:
    root = f"{parts.netloc}/{parts.path.strip('/')}".strip("/")
    if not parts.netloc:
        raise ValueError(f"write {parts.scheme}://bucket/prefix")
    key_components(root)
    options: dict[str, Any] = {}
    if parts.scheme.rpartition("+")[2] in ("s3", "s3a"):
        options["endpoint_url"] = _endpoint(
            spec, os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        )
        options["region_name"] = spec.region
    elif parts.scheme.rpartition("+")[2] in ("gs", "gcs"):
        options["endpoint_url"] = _endpoint(spec, None)
        _no_region(spec)
    else:
        _no_endpoint(spec)
    return root, {name: value for name, value in options.items() if value is not None}


def _endpoint(spec: TierSpec, default: str | None) -> str | None:
    url = spec.endpoint_url or default
    if url is None:
        return None
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or parts.query:
        raise ValueError("endpoint_url must be http(s)://host[:port], without credentials or query")
    _require_secure(parts.scheme, parts.hostname, spec)
    return url


def _require_secure(scheme: str, host: str, spec: TierSpec) -> None:
    if scheme == "http" and not spec.allow_insecure and not is_loopback(host):
        raise ValueError(f"plain http to {host} is refused: use https, or set allow_insecure")


def _no_region(spec: TierSpec) -> None:
    if spec.region is not None:
        raise ValueError("region means nothing to this store: take it out")


def _no_endpoint(spec: TierSpec) -> None:
    _no_region(spec)
    if spec.endpoint_url is not None:
        raise ValueError("endpoint_url means nothing to this store: take it out")


def _absolute(parts: SplitResult) -> str:
    path = unquote(parts.path)
    if not path.startswith("/") or "\0" in path or {".", ".."} & set(path.split("/")) or "//" in path:
        raise ValueError(f"the path must be absolute and plain: write {parts.scheme}://…/absolute/path")
    return path.rstrip("/")


def _local(parts: SplitResult, spec: TierSpec) -> tuple[str, dict[str, Any]]:
    _no_endpoint(spec)
    if parts.netloc:
        raise ValueError(f"write {parts.scheme}:///absolute/path")
    return _absolute(parts), {}


def _memory(parts: SplitResult, spec: TierSpec) -> tuple[str, dict[str, Any]]:
    _no_endpoint(spec)
    root = f"{parts.netloc}/{parts.path.strip('/')}".strip("/")
    key_components(root)
    return f"/{root}", {}


def _sftp(parts: SplitResult, spec: TierSpec) -> tuple[str, dict[str, Any]]:
    _no_endpoint(spec)
    if not parts.hostname:
        raise ValueError(f"write {parts.scheme}://user@host/absolute/path")
    options: dict[str, Any] = {"host": parts.hostname}
    if parts.port is not None:
        options["port"] = parts.port
    if parts.username is not None:
        options["username"] = unquote(parts.username)
    return _absolute(parts), options


def _webdav(parts: SplitResult, spec: TierSpec) -> tuple[str, dict[str, Any]]:
    _no_endpoint(spec)
    scheme = _WEBDAV[parts.scheme.removeprefix(EXPLICIT)]
    if not parts.hostname:
        raise ValueError("write webdav+https://host/path")
    _require_secure(scheme, parts.hostname, spec)
    return _absolute(parts), {"base_url": f"{scheme}://{parts.netloc}"}


def _other(parts: SplitResult, spec: TierSpec) -> tuple[str, dict[str, Any]]:
    _no_endpoint(spec)
    root = f"{parts.netloc}/{unquote(parts.path).strip('/')}".strip("/")
    if not root or {".", ".."} & set(root.split("/")) or any(letter in root for letter in "*?[]{}\0"):
        raise ValueError(f"write {parts.scheme}://place/path, without wildcards")
    return f"/{root}" if not parts.netloc else root, {}


_PLACES = {
    Kind.BUCKET: _bucket,
    Kind.LOCAL: _local,
    Kind.MEMORY: _memory,
    Kind.SFTP: _sftp,
    Kind.WEBDAV: _webdav,
    Kind.OTHER: _other,
}
