"""A request as the store understands it: which bucket and key, which operation, which parameters."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from tiers.testing.s3_emulator.answers import Refusal
from tiers.testing.s3_emulator.operations import Operation, classify
from tiers.testing.s3_emulator.wire import Head

VIRTUAL_HOST = "s3.localhost"
"""``bucket.s3.localhost`` is virtual-host addressing; every other host is path addressing."""

LONGEST_KEY = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A parsed request; ``operation`` is None where the emulator does not know it."""

    head: Head
    bucket: str
    key: str
    query: Mapping[str, str]
    operation: Operation | None

    @property
    def name(self) -> str:
        """The operation's name, for records."""
        return self.operation or f"{self.head.method}?"

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers, names in lower case."""
        return self.head.headers

    @property
    def resource(self) -> str:
        """What error documents say that the request was about."""
        return f"/{self.bucket}/{self.key}" if self.key else f"/{self.bucket}"

    def number(self, name: str, default: int | None = None) -> int:
        """Return an integer of the query; Refusal where it is none, or absent without a default."""
        text = self.query.get(name)
        if text is None and default is not None:
            return default
        if text is None or not text.isdecimal():
            raise Refusal(400, "InvalidArgument", f"{name} must be an integer")
        return int(text)


def understand(head: Head) -> Asked:
    """Tell what a request asks for."""
    path, _, raw_query = head.target.partition("?")
    query = {
        unquote(name): unquote(value)
        for name, _, value in (pair.partition("=") for pair in raw_query.split("&") if pair)
    }
    plain = unquote(path).removeprefix("/")
    host = head.headers.get("host", "").rpartition(":")[0] or head.headers.get("host", "")
    if host.endswith(f".{VIRTUAL_HOST}"):
        bucket, key = host.removesuffix(f".{VIRTUAL_HOST}"), plain
    else:
        bucket, _, key = plain.partition("/")
    operation = classify(head.method, bucket, key, query, head.headers)
    return Asked(head=head, bucket=bucket, key=key, query=query, operation=operation)
