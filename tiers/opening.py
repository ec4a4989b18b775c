"""From a URL to a tier: which backend, and what is wrapped around it, in one function.

    above hook ─ RetryingTier ─ MeteredTier ─ below hook ─ backend

A hook takes a tier and returns one: tests put faults below the meter, where the store
is, or watch above the retry, where the caller is.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from urllib.parse import SplitResult, unquote, urlsplit

from tiers.clock import Clock
from tiers.errors import Unsupported
from tiers.metered import Meter, MeteredTier
from tiers.protocol import Tier
from tiers.retrying import RetryingTier, RetryPolicy

Hook = Callable[[Tier], Tier]


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSpec:
    """Where a tier is and how it is talked to; no secrets.

    ``name`` is for messages.  ``profile`` names a provider profile, None meaning that it
    is detected from ``endpoint_url``.  ``allow_insecure`` permits plain HTTP beyond this
    machine.  ``connections`` bounds the requests at one time.
    """

    name: str
    url: str
    endpoint_url: str | None = None
    region: str | None = None
    profile: str | None = None
    allow_insecure: bool = False
    connections: int = 8
    retry: RetryPolicy = field(default_factory=RetryPolicy)


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
    tier = _factory(spec)(spec)
    if below is not None:
        tier = below(tier)
    tier = MeteredTier(tier, meter if meter is not None else Meter())
    tier = RetryingTier(tier, clock, spec.retry, stop=stop)
    return above(tier) if above is not None else tier


def _factory(spec: TierSpec) -> Callable[[TierSpec], Tier]:
    scheme = _split(spec).scheme
    factory = FACTORIES.get(scheme)
    if factory is None:
        what = f"scheme {scheme!r} is unknown" if scheme else "the URL has no scheme"
        supported = ", ".join(sorted(f"{name}://" for name in FACTORIES))
        raise BadTierUrl(f"tier {spec.name}: {what}", f"supported are {supported}")
    return factory


def _split(spec: TierSpec) -> SplitResult:
    """Split the URL, and refuse one that holds a secret before anything can echo it."""
    for url in filter(None, (spec.url, spec.endpoint_url)):
        try:
            parts = urlsplit(url)
        except ValueError:
            # its message may quote the URL, and with it a password
            raise BadTierUrl(f"tier {spec.name}: the URL cannot be parsed", "check brackets and slashes") from None
        if "@" in parts.netloc:
            hint = "take user and password out of it; secrets come from the environment, a file or the SDK's own chain"
            raise BadTierUrl(f"tier {spec.name}: the URL holds credentials", hint)
    return urlsplit(spec.url)


def _open_file(spec: TierSpec) -> Tier:
    from tiers.volume import VolumeTier  # noqa: PLC0415 - each backend is imported only where it is used

    parts = _split(spec)
    path = unquote(parts.path)
    if parts.netloc or not path.startswith("/") or parts.query or parts.fragment or "\0" in path:
        hint = "write file:///absolute/path, with %23 for # and %3F for ?"
        raise BadTierUrl(f"tier {spec.name}: {spec.url!r} is not an absolute file URL", hint)
    return VolumeTier(spec.name, Path(path))


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


FACTORIES: Mapping[str, Callable[[TierSpec], Tier]] = MappingProxyType(
    {"file": _open_file, "memory": _open_memory, "s3": _open_s3}
)
"""The supported URL schemes."""
