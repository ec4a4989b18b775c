"""Rate cards as text: round prices that nobody charges, read on a day that the test says."""

from datetime import UTC, date, timedelta
from pathlib import Path

from tiers.clock import SystemClock

OPERATIONS = {
    "PutObject": "write",
    "CreateMultipartUpload": "write",
    "UploadPart": "write",
    "UploadPartCopy": "write",
    "CopyObject": "write",
    "CompleteMultipartUpload": "write",
    "ListObjectsV2": "write",
    "ListParts": "write",
    "GetObject": "read",
    "HeadObject": "read",
    "DeleteObject": "free",
    "AbortMultipartUpload": "free",
}
_HEAD = """\
schema = 1
id = "{card}"
provider = "example"
product = "store"
region = "here"
billing_account_scope = "account"
currency = "{currency}"
as_of = {as_of}
source_url = "https://www.example.com/pricing"
source_kind = "{kind}"
price_basis = "list"
taxes = "excluded"

[billed_status]
ranges = ["2xx", "4xx"]

[operations]
"""
_TIER = """
[[tier]]
tier_id = "standard"
storage_class = "STANDARD"
kind = "object"
metering = "byte_hours_calendar"
bytes_per_unit = 1_000_000_000
month_hours = "calendar"
storage_brackets = [{ unit_price = "1" }]
bracket_mode = "graduated"
bracket_pool = "account"
request_billing = "billed"
retrieval = "none"

[tier.request_classes.write]
unit_count = 1
price = "1"

[tier.request_classes.read]
unit_count = 1
price = "0.01"

[tier.request_classes.free]
unit_count = 1
price = "0"
free = true

[tier.access]
visibility = "private"
signed_urls = "yes"
object_lock = "no"
audit_log = "no"
"""
_LEG = """
[[transfer]]
from_zone = "{0}"
to_zone = "{1}"
path = "internet"
direction_charged = "out"
bytes_per_unit = 1_000_000_000
bracket_mode = "graduated"
bracket_pool = "account"
brackets = [{{ unit_price = "{2}" }}]
"""
_VOLUME = """\
schema = 1
id = "{card}"
provider = "example"
product = "volume"
region = "here"
billing_account_scope = "account"
currency = "USD"
as_of = {as_of}
source_url = "https://www.example.com/pricing"
source_kind = "provider_page"
price_basis = "list"
taxes = "excluded"

[[tier]]
tier_id = "volume"
storage_class = "volume"
kind = "volume_provisioned"
metering = "provisioned_hours"
bytes_per_unit = 1_000_000_000
month_hours = "calendar"
bracket_mode = "graduated"
bracket_pool = "tier"
request_billing = "unmetered"
retrieval = "none"
storage_brackets = [{{ unit_price = "0.1" }}]

[tier.provisioned]
min_bytes = 1_000_000_000
max_bytes = 4_000_000_000_000
step_bytes = 1_000_000_000
grow_only = true
charge_when_stopped = true

[tier.access]
visibility = "private"
signed_urls = "no"
object_lock = "no"
audit_log = "no"
"""


def today() -> date:
    """Return the day that commands go by."""
    return SystemClock().now().astimezone(UTC).date()


def card(
    *,
    name: str = "shop",
    age: int = 0,
    kind: str = "provider_page",
    currency: str = "USD",
    without: tuple[str, ...] = (),
    legs: bool = True,
) -> str:
    """Return a card: 1 a write, 0.01 a read, 1 a GB-month, 2 a GB out of it and 3 a GB out of the machine's zone."""
    head = _HEAD.format(card=name, as_of=today() - timedelta(days=age), kind=kind, currency=currency)
    mapped = "".join(f'{one} = "{klass}"\n' for one, klass in OPERATIONS.items() if one not in without)
    priced = _LEG.format("here", "machine", "2") + _LEG.format("machine", "here", "3") if legs else ""
    return head + mapped + _TIER + priced


def volume_card(*, name: str = "disk", age: int = 0) -> str:
    """Return the card of a provisioned volume at 0.10 a GB-month."""
    return _VOLUME.format(card=name, as_of=today() - timedelta(days=age))


def write(path: Path, text: str) -> Path:
    """Write a file with its folder; returns it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


PLAN = """\
plan = 1
name = "run"
rates = ["card.toml"]
start = 2026-04-01
length = "10h"
every = "1h"

[[object]]
bytes = 1_000
count = 3

[[tier]]
tier = "shop/standard"
profile = "r2"
"""
