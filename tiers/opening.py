"""From a URL to a tier: which backend, and what is wrapped around it, in one function.

    above hook ─ RetryingTier ─ PacedTier ─ MeteredTier ─ below hook ─ backend

Each attempt of the retry waits for its slot and pays for its bytes anew.  A hook takes a
tier and returns one: tests put faults below the meter, where the store is, or watch above
the retry, where the caller is.
"""

import os
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit

from tiers.clock import Clock
from tiers.errors import Unsupported
from tiers.metered import Meter, MeteredTier
from tiers.pacing import PacedTier
from tiers.profiles import is_loopback
from tiers.protocol import Tier
from tiers.retrying import RetryingTier, RetryPolicy
from tiers.timetable import EXAMPLE, BadTimetable, Timetable, parse_timetable

if TYPE_CHECKING:
    from tiers.probing.facts import ProbeFacts

Hook = Callable[[Tier], Tier]

_WITH_USER = frozenset({"sftp", "ssh", "fsspec+sftp", "fsspec+ssh"})
_USER = re.compile(r"[A-Za-z0-9._-]+")
"""A user name alone is no secret, and SSH has no other place for it."""

_S3_ONLY = ("storage_class", "encryption", "kms_key", "data_path")
_NETWORK_ONLY = ("ca_bundle", "timeout_seconds", "deadline_seconds")
_MEANINGLESS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"file": (*_S3_ONLY, *_NETWORK_ONLY), "memory": (*_S3_ONLY, *_NETWORK_ONLY, "mode"), "s3": ("mode",)}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSpec:
    """Where a tier is and how it is talked to; no secrets.

    ``name`` is for messages.  ``profile`` names a provider profile, None meaning that it
    is detected from ``endpoint_url``.  ``allow_insecure`` permits plain HTTP beyond this
    machine.  ``connections`` bounds the requests at one time.  ``options`` are what an
    fsspec filesystem is opened with, beyond what follows from the URL.  ``bandwidth`` is
    in bytes a second, for each direction, or a timetable of such (:mod:`tiers.timetable`),
    whose times are those of ``timezone``.  ``leave`` is asked before each piece of a body is
    moved, and waits where the process has to (a share of the CPU).  ``ca_bundle`` is the path of a file of
    certificates to trust.  ``timeout_seconds`` is how long a request may make no progress,
    ``deadline_seconds`` how long it may take as a whole.  ``mode`` says what a volume can
    do (``auto``, ``rename``, ``direct``, ``modal``).  ``probed`` is what a probe of this
    store found.  ``data_path`` says who sends and receives the bodies of S3: ``auto``, or the
    SDK alone (``sdk``).  ``bulk_keys`` is a regular expression of the keys that
    ``storage_class`` and ``encryption`` are for.  None leaves it to what is known of the store.
    """

    name: str
    url: str
    endpoint_url: str | None = None
    region: str | None = None
    profile: str | None = None
    allow_insecure: bool = False
    connections: int = 8
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    options: Mapping[str, str | int | bool] = field(default_factory=dict, hash=False)
    storage_class: str | None = None
    encryption: str | None = None
    kms_key: str | None = None
    bandwidth: int | str | None = None
    timezone: str = "UTC"
    ca_bundle: str | None = None
    timeout_seconds: float | None = None
    deadline_seconds: float | None = None
    mode: str | None = None
    probed: "ProbeFacts | None" = None
    bulk_keys: str | None = None
    data_path: str | None = None
    leave: Callable[[], bool] | None = field(default=None, compare=False)


class BadTierUrl(ValueError):
    """The URL names no tier; ``hint`` is one line for the operator.  No secret is in either."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def open_tier(
    spec: TierSpec,
    *,
    clock: Clock,
    meter: Meter | None = None,
    stop: threading.Event | None = None,
    below: Hook | None = None,
    above: Hook | None = None,
) -> Tier:
    """Open the tier that ``spec`` describes; no request is made.

    ``stop`` ends waiting between attempts.  BadTierUrl where the URL is wrong, Unsupported
    where an extra is not installed.
    """
    bandwidth = _bandwidth(spec)
    tier = _factory(spec)(spec)
    if below is not None:
        tier = below(tier)
    tier = MeteredTier(tier, meter if meter is not None else Meter())
    stop = stop if stop is not None else threading.Event()
    tier = PacedTier(tier, clock, connections=spec.connections, bandwidth=bandwidth, leave=spec.leave, stop=stop)
    tier = RetryingTier(tier, clock, spec.retry, stop=stop)
    return above(tier) if above is not None else tier


def _bandwidth(spec: TierSpec) -> int | Timetable | None:
    if not isinstance(spec.bandwidth, str):
        return spec.bandwidth
    try:
        return parse_timetable(spec.bandwidth, spec.timezone)
    except BadTimetable as error:
        hint = f"correct it; an example of a timetable: {EXAMPLE}"
        raise BadTierUrl(f"tier {spec.name}: bandwidth: {error}", hint) from error


def _factory(spec: TierSpec) -> Callable[[TierSpec], Tier]:
    scheme = _split(spec).scheme
    _refuse_meaningless(spec, scheme)
    factory = FACTORIES.get(scheme)
    if factory is not None:
        if spec.options and scheme != "file":  # a volume in mode modal takes some, and says which
            raise BadTierUrl(f"tier {spec.name}: options mean nothing to {scheme}://", f"fsspec+{scheme}:// takes them")
        return factory
    from tiers.fsspec_urls import protocol_of  # noqa: PLC0415 - it looks for fsspec, and most tiers are none of it

    if protocol_of(scheme) is not None:
        return _open_fsspec
    what = f"scheme {scheme!r} is unknown" if scheme else "the URL has no scheme"
    supported = ", ".join(sorted(f"{name}://" for name in FACTORIES))
    more = "gs://, az://, sftp://, webdav+https:// and fsspec+PROTOCOL://"
    raise BadTierUrl(f"tier {spec.name}: {what}", f"supported are {supported}, and through fsspec {more}")


def _refuse_meaningless(spec: TierSpec, scheme: str) -> None:
    """Refuse a key that this kind of tier would ignore: whoever set it relies on it."""
    for key in _MEANINGLESS.get(scheme, ()):
        if getattr(spec, key) is not None:
            hint = "take it out"
            if key == "timeout_seconds":  # Python has no way to end a thread that hangs in the kernel
                hint += "; a mount that hangs cannot be given up, and the other tiers go on meanwhile"
            raise BadTierUrl(f"tier {spec.name}: {key} means nothing to {scheme}://", hint)


def _split(spec: TierSpec) -> SplitResult:
    """Split the URL, and refuse one that holds a secret before anything can echo it."""
    for url in filter(None, (spec.url, spec.endpoint_url)):
        try:
            parts = urlsplit(url)
        except ValueError:
            # its message may quote the URL, and with it a password
            raise BadTierUrl(f"tier {spec.name}: the URL cannot be parsed", "check brackets and slashes") from None
        user, at, _host = parts.netloc.rpartition("@")
        if at and not (url == spec.url and parts.scheme in _WITH_USER and _USER.fullmatch(user)):
            hint = "take user and password out of it; secrets come from the environment, a file or the SDK's own chain"
            raise BadTierUrl(f"tier {spec.name}: the URL holds credentials", hint)
    return urlsplit(spec.url)


def _open_fsspec(spec: TierSpec) -> Tier:
    from tiers.fsspec_opening import open_fsspec  # noqa: PLC0415 - each backend is imported only where it is used

    return open_fsspec(spec)


def _open_file(spec: TierSpec) -> Tier:
    from tiers.volume_opening import open_volume  # noqa: PLC0415 - each backend is imported only where it is used

    parts = _split(spec)
    path = unquote(parts.path)
    if parts.netloc or not path.startswith("/") or parts.query or parts.fragment or "\0" in path:
        hint = "write file:///absolute/path, with %23 for # and %3F for ?"
        raise BadTierUrl(f"tier {spec.name}: {spec.url!r} is not an absolute file URL", hint)
    return open_volume(spec, Path(path))


def _open_memory(spec: TierSpec) -> Tier:
    from tiers.memory import MemoryTier, shared_store  # noqa: PLC0415 - as above

    parts = _split(spec)
    if not parts.netloc:
        raise BadTierUrl(f"tier {spec.name}: the store has no name", "write memory://name")
    return MemoryTier(spec.name, shared_store(parts.netloc + parts.path))


def _open_s3(spec: TierSpec) -> Tier:
    try:
        from tiers.s3 import open_s3  # noqa: PLC0415 - as above; and boto3 takes a third of a second to import
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("boto3", "botocore"):
            raise
        raise Unsupported(
            "S3 needs boto3, which is not installed",
            tier=spec.name,
            operation="open tier",
            hint="pip install 'ckptier[s3]'",
        ) from error
    return open_s3(spec)


def _open_hub(spec: TierSpec) -> Tier:
    try:
        from tiers.hub import open_hub  # noqa: PLC0415 - as above; huggingface_hub is an extra
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("huggingface_hub", "httpx2"):
            raise
        raise Unsupported(
            "the Hub needs huggingface_hub, which is not installed",
            tier=spec.name,
            operation="open tier",
            hint="pip install 'ckptier[hub]'",
        ) from error
    return open_hub(spec)


def unencrypted_host(url: str, endpoint_url: str | None) -> str | None:
    """Return the host that a tier of this URL speaks to without encryption, beyond this machine; None for no such.

    Such a tier opens only with ``allow_insecure``.
    """
    from_environment = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    endpoint = endpoint_url or (from_environment if urlsplit(url).scheme.endswith("s3") else None)
    for where in filter(None, (url, endpoint)):
        parts = urlsplit(where)
        if parts.scheme.rpartition("+")[2] == "http" and parts.hostname and not is_loopback(parts.hostname):
            return parts.hostname
    return None


FACTORIES: Mapping[str, Callable[[TierSpec], Tier]] = MappingProxyType(
    {"file": _open_file, "hf": _open_hub, "memory": _open_memory, "s3": _open_s3}
)
"""The URL schemes that have a tier of their own; others may go through fsspec."""
