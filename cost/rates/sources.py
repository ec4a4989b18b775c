"""Which web sites are a provider's own: a third party's page is no ``provider_page``."""

from collections.abc import Mapping
from types import MappingProxyType
from urllib.parse import urlsplit

_DOMAINS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "aws": ("amazon.com", "amazonaws.com", "awsstatic.com"),
        "azure": ("microsoft.com", "azure.com"),
        "alibaba": ("alibabacloud.com", "aliyun.com"),
        "backblaze": ("backblaze.com",),
        "cloudflare": ("cloudflare.com",),
        "coreweave": ("coreweave.com",),
        "digitalocean": ("digitalocean.com",),
        "gcp": ("cloud.google.com", "googleapis.com"),
        "hetzner": ("hetzner.com",),
        "huggingface": ("huggingface.co",),
        "lambda": ("lambda.ai", "lambdalabs.com"),
        "minio": ("min.io",),
        "nebius": ("nebius.com",),
        "ovh": ("ovhcloud.com", "ovh.com"),
        "runpod": ("runpod.io",),
        "scaleway": ("scaleway.com",),
        "storj": ("storj.io",),
        "tigris": ("tigrisdata.com",),
        "vast": ("vast.ai",),
        "wasabi": ("wasabi.com",),
    }
)


def own_domains(provider: str) -> tuple[str, ...]:
    """Return the domains of a provider; none for one that is not in the table."""
    return _DOMAINS.get(provider, ())


def is_own_page(provider: str, url: str) -> bool:
    """Tell whether a page is the provider's own.

    A provider that is not in the table is taken at its name: the site has to be called
    after it, as in ``example`` and ``www.example.com``.
    """
    host = (urlsplit(url).hostname or "").lower().rstrip(".")
    domains = own_domains(provider)
    if domains:
        return any(host == domain or host.endswith(f".{domain}") for domain in domains)
    return provider in host.split(".")[-3:-1]
