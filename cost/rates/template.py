"""The text of a new rate card: everything that an object store needs, with prices left to read."""

TEMPLATE = """\
# A rate card: one provider, product, region and price book, on the day you read it.
# Fill in every "" below, then run `ckptier cost rates check FILE`.
# Prices are decimal strings: "0.023", never 0.023. A price of "0" needs free = true beside it.

schema = 1
id = ""                        # short and unique; it stands in every report line
provider = ""                  # aws, cloudflare, gcp, huggingface, runpod, ...
product = ""                   # s3, r2, ...
region = ""                    # "global" only with regionless = true
billing_account_scope = ""     # account, organization or project: who shares brackets and free units
currency = ""                  # ISO 4217, such as USD
as_of = ""                     # the day you read the prices, such as 2026-03-01
max_age_days = 90              # stale after this, refused after four times this
source_url = ""                # the https page you read
source_kind = ""               # provider_page, contract, price_api, third_party or example
price_basis = ""               # list, contracted or net_of_credits
taxes = "excluded"
# effective_from = 2026-01-01  # a contract's window; effective_to is the first day not covered
# entered_by = "..."           # a contract needs both names
# reviewed_by = "..."
# source_digest = "..."        # SHA-256 of the saved page

[billed_status]
ranges = ["2xx", "4xx"]        # which answers are billed; exceptions by status go below
# [[billed_status.exceptions]]
# status = 403
# billed = false
# reason = "not authenticated"

[operations]                   # every operation is in exactly one class, free ones too
PutObject = "write"
CreateMultipartUpload = "write"
UploadPart = "write"
UploadPartCopy = "write"
CopyObject = "write"
CompleteMultipartUpload = "write"
ListObjectsV2 = "write"
ListParts = "write"
GetObject = "read"
HeadObject = "read"
DeleteObject = "free"
AbortMultipartUpload = "free"

[[tier]]                       # one for each storage class
tier_id = "standard"
storage_class = ""             # the exact string of the provider's API
kind = "object"                # or archive_object, volume_provisioned, filesystem_metered, plan_quota
metering = ""                  # byte_hours_calendar, byte_hours_fixed_month, daily_peak_avg, unspecified
bytes_per_unit = ""            # without quotes: 1000000000 (GB) or 1073741824 (GiB); bills differ
month_hours = ""               # "calendar", or without quotes 720 or 730
storage_brackets = [
    # { up_to = "51200", unit_price = "..." },  # up_to is cumulative, in units
    { unit_price = "" },       # per unit and month; the last bracket has no up_to
]
bracket_mode = "graduated"     # or volume: all units at the price of the last bracket reached
bracket_pool = "account"       # whose usage fills the brackets
request_billing = "billed"     # or unmetered, without classes
retrieval = "none"             # or immediate, restore: then give [[tier.retrieval_modes]]

[tier.request_classes.write]
unit_count = ""                # without quotes: the requests that the price is for, such as 1000
price = ""

[tier.request_classes.read]
unit_count = ""                # without quotes
price = ""

[tier.request_classes.free]
unit_count = 1000
price = "0"
free = true

# [tier.min_duration]          # what leaving early costs
# days = 30
# mode = "remaining_prorated"  # or as_if_full, none
# granularity = "hour"         # or day
# triggers = ["delete", "overwrite", "transition"]
# clock_basis = "class_entry"  # or object_created, last_modified

# [[tier.free_allowance]]
# quantity = "10"
# unit = "GB-month"            # or GiB-month, TB-month, GB, GiB, TB, TiB, request
# period = "month"
# applies_to = "storage"       # or retrieval, or a request class
# scope = "account"
# rounding_order = "before_rounding"   # or after_rounding
# bracket_order = "before_brackets"    # or inside_first_bracket

[tier.access]
visibility = "private"         # or public: no place for a backup
signed_urls = "undocumented"   # yes, no or undocumented
object_lock = "undocumented"
audit_log = "undocumented"

# A leg of the network without an entry is an error, so give each that you use.
[[transfer]]
from_zone = ""                 # names of yours: the region, internet, other-region
to_zone = "internet"
path = "internet"              # same_region, cross_region, cross_az, nat, gateway_endpoint, ...
direction_charged = "out"      # as seen from from_zone
bytes_per_unit = ""            # without quotes
bracket_mode = "graduated"
bracket_pool = "account"
brackets = [
    { unit_price = "" },       # add free = true where it is "0"
]
"""


def new_card() -> str:
    """Return the text to start a card from; its check names exactly what is left to fill in."""
    return TEMPLATE
