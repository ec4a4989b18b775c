"""``hf://datasets/owner/name[/prefix]``, and which Hub it is at."""

import re
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

from tiers.checks import key_components
from tiers.errors import Unsupported
from tiers.opening import BadTierUrl, TierSpec
from tiers.profiles import is_loopback

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,95}")
_WRITE = "write hf://datasets/owner/name or hf://datasets/owner/name/prefix"
_DEFAULT_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, kw_only=True)
class HubPlace:
    """A dataset repo, the folder in it that is the tier's root (may be empty), and its Hub."""

    repo: str
    prefix: str
    endpoint: str
    allow_insecure: bool = False

    @property
    def root(self) -> str:
        """What stands before each key in the repo."""
        return f"{self.prefix}/" if self.prefix else ""

    @property
    def api(self) -> str:
        """The URL below which the repo's API is."""
        return f"{self.endpoint}/api/datasets/{self.repo}"

    @property
    def files(self) -> str:
        """The URL below which the repo's files are."""
        return f"{self.endpoint}/datasets/{self.repo}"

    def is_home(self, url: str) -> bool:
        """Tell whether a URL is at the Hub itself: only there may the token go."""
        return _origin(url) == _origin(self.endpoint)

    def may_talk_to(self, url: str) -> bool:
        """Tell whether bytes may go to or come from a URL that the Hub named.

        Without TLS only where the Hub itself is reached without, so that no Hub can send its
        clients to a service of their own machine.
        """
        scheme, host, _port = _origin(url)
        insecure = _origin(self.endpoint)[0] == "http" and (self.allow_insecure or is_loopback(host))
        return bool(host) and (scheme == "https" or (scheme == "http" and insecure))


def quoted(path: str) -> str:
    """Return a path of the repo as it stands in a URL."""
    return quote(path, safe="/~")


def place_of(spec: TierSpec, default_endpoint: str) -> HubPlace:
    """Return where a tier is; BadTierUrl where the URL is wrong, Unsupported for a storage bucket."""
    parts = urlsplit(spec.url)
    if parts.netloc == "buckets":
        raise Unsupported(
            "storage buckets speak xet only, which is not built in here",
            tier=spec.name,
            operation="open tier",
            hint='reach the bucket through its S3 gateway: s3://NAME with profile = "hf-s3" and its endpoint_url; '
            "or use a private dataset repo: hf://datasets/owner/name",
        )
    names = parts.path.split("/", 3)
    if parts.netloc != "datasets" or parts.query or parts.fragment or len(names) < 3:  # noqa: PLR2004 - "", owner, name
        raise BadTierUrl(f"tier {spec.name}: {spec.url!r} names no dataset repo", _WRITE)
    owner, name = names[1:3]
    prefix = names[3].strip("/") if len(names) > 3 else ""  # noqa: PLR2004 - as above
    if not (_NAME.fullmatch(owner) and _NAME.fullmatch(name)):
        raise BadTierUrl(f"tier {spec.name}: {owner}/{name} is not the name of a repo", _WRITE)
    try:
        if prefix:
            key_components(prefix)
    except ValueError as error:
        raise BadTierUrl(f"tier {spec.name}: {error}", _WRITE) from error
    _refuse_foreign(spec)
    endpoint = _endpoint(spec, default_endpoint)
    return HubPlace(repo=f"{owner}/{name}", prefix=prefix, endpoint=endpoint, allow_insecure=spec.allow_insecure)


def _refuse_foreign(spec: TierSpec) -> None:
    """Refuse settings that would be believed and not followed."""
    for field in ("profile", "region", "storage_class", "encryption", "kms_key", "mode"):
        if getattr(spec, field) is not None:
            raise BadTierUrl(f"tier {spec.name}: {field} means nothing to hf://", f"take {field} out of this tier")


def _endpoint(spec: TierSpec, default: str) -> str:
    endpoint = (spec.endpoint_url or default).rstrip("/")
    parts = urlsplit(endpoint)
    hint = "see endpoint_url of this tier, and HF_ENDPOINT"
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
        raise BadTierUrl(f"tier {spec.name}: endpoint_url must be http(s)://host[:port]", hint)
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        raise BadTierUrl(f"tier {spec.name}: endpoint_url must not carry credentials, a query or a fragment", hint)
    if parts.scheme == "http" and not spec.allow_insecure and not is_loopback(parts.hostname):
        message = f"tier {spec.name}: plain http to {parts.hostname} is refused: use https, or set allow_insecure"
        raise BadTierUrl(message, hint)
    return endpoint


def _origin(url: str) -> tuple[str, str, int | None]:
    try:
        parts = urlsplit(url)
        return parts.scheme, (parts.hostname or "").lower(), parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return "", "", None
