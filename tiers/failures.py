"""What every table of vendor errors needs: what a failure is about, and how long a store asks to wait."""

from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """What an error is about."""

    tier: str
    operation: str
    key: str

    def fields(self) -> dict[str, Any]:
        """Return the fields that every TierError takes."""
        return {"tier": self.tier, "operation": self.operation, "key": self.key}


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Seconds that the store asks to wait; a date is measured against the store's own clock.

    Names of headers are in lower case.
    """
    value = headers.get("retry-after", "").strip()
    if value.isdecimal():
        return float(value)
    try:
        until, now = parsedate_to_datetime(value), parsedate_to_datetime(headers.get("date", ""))
        return max(0.0, (until - now).total_seconds())
    except (TypeError, ValueError):  # absent, malformed, or one of the two without a zone
        return None
