"""From a destination to a place; no request is made."""

import ipaddress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from replicate.errors import CapabilityMissing, ConfigInvalid, LocalDisk, from_tier_error
from replicate.release.destination import HUB_SCHEME, Destination
from replicate.release.publishing.folder import FolderPlace
from replicate.release.publishing.places import Place
from replicate.release.publishing.tier import TierPlace
from tiers.clock import Clock
from tiers.errors import TierError
from tiers.opening import TierSpec, open_tier

_MAX_TOKEN = 4096


def open_place(destination: Destination, *, clock: Clock, token: str | None = None) -> Place:
    """Open the place that a destination names.

    ``token`` is the Hub's; None takes that of its library's own chain (HF_TOKEN, a login).  Raises
    ConfigInvalid for an address that is none, CapabilityMissing where an optional package is missing.
    """
    if destination.scheme == "file":
        return FolderPlace(_folder(destination.url))
    if destination.scheme == HUB_SCHEME:
        return _hub(destination, clock, token)
    spec = TierSpec(name="release", url=destination.url, endpoint_url=destination.endpoint or None)
    try:
        return TierPlace(open_tier(spec, clock=clock), destination.url)
    except ValueError as error:
        hint = getattr(error, "hint", "") or "correct destination.url in the description"
        raise ConfigInvalid(f"destination.url: {error}", hint=hint) from error
    except TierError as error:
        raise from_tier_error(error) from error


def read_token(path: Path) -> str:
    """Read the Hub's token from a file of one line; raises LocalDisk and ConfigInvalid, which do not repeat it."""
    try:
        with path.open(encoding="utf-8") as file:
            token = file.read(_MAX_TOKEN).strip()
    except OSError as error:
        raise LocalDisk(f"the token file {path} cannot be read: {error.strerror}", hint="check the path") from error
    except UnicodeDecodeError:
        token = ""
    if not token or any(letter.isspace() or not letter.isprintable() for letter in token):
        raise ConfigInvalid(f"{path} does not hold a token and nothing else", hint="write the token into it, alone")
    return token


def _folder(url: str) -> Path:
    parts = urlsplit(url)
    path = unquote(parts.path)
    if parts.netloc or not path.startswith("/") or parts.query or parts.fragment or "\0" in path:
        raise ConfigInvalid(f"destination.url: {url!r} is not an absolute file URL", hint="write file:///absolute/path")
    folder = Path(path)
    if folder.name in ("", "..") or ".." in folder.parts:
        raise ConfigInvalid(f"destination.url: {url!r} names no folder that could be made", hint="write its full path")
    return folder


def _hub(destination: Destination, clock: Clock, token: str | None) -> Place:
    parts = urlsplit(destination.hub)
    if parts.scheme != "https" and not (parts.scheme == "http" and _is_this_machine(parts.hostname or "")):
        raise ConfigInvalid(
            f"destination.endpoint: {destination.hub!r} would send the token in the clear", hint="write https://…"
        )
    try:
        from replicate.release.publishing.hub import HubPlace  # noqa: PLC0415 - an optional package, and slow to import
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("huggingface_hub", "httpx2"):
            raise
        raise CapabilityMissing(
            "the Hub needs huggingface_hub, which is not installed", hint="pip install 'ckptier[release]'"
        ) from error
    return HubPlace(destination, clock=clock, token=token)


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
