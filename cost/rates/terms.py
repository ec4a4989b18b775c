"""The words of a rate card: every closed set of values, as providers' manuals use them."""

from enum import StrEnum


class SourceKind(StrEnum):
    """Where a person read the prices."""

    PROVIDER_PAGE = "provider_page"
    CONTRACT = "contract"
    PRICE_API = "price_api"
    THIRD_PARTY = "third_party"
    EXAMPLE = "example"


class PriceBasis(StrEnum):
    """Which price book; taxes are never in it."""

    LIST = "list"
    CONTRACTED = "contracted"
    NET_OF_CREDITS = "net_of_credits"


class Scope(StrEnum):
    """Whose usage brackets and free allowances are counted over."""

    ACCOUNT = "account"
    ORGANIZATION = "organization"
    PROJECT = "project"
    BUCKET = "bucket"
    TIER = "tier"


class TierKind(StrEnum):
    """What is sold, which decides the calculation."""

    OBJECT = "object"
    ARCHIVE_OBJECT = "archive_object"
    VOLUME_PROVISIONED = "volume_provisioned"
    FILESYSTEM_METERED = "filesystem_metered"
    PLAN_QUOTA = "plan_quota"


class Metering(StrEnum):
    """How stored bytes become a billed quantity; ``unspecified`` gives a range, never a point."""

    BYTE_HOURS_CALENDAR = "byte_hours_calendar"
    BYTE_HOURS_FIXED_MONTH = "byte_hours_fixed_month"
    GIB_HOUR = "gib_hour"
    DAILY_PEAK_AVG = "daily_peak_avg"
    PROVISIONED_HOURS = "provisioned_hours"
    PLAN_INCREMENT = "plan_increment"
    UNSPECIFIED = "unspecified"


class BracketMode(StrEnum):
    """Graduated: each unit at its own bracket's price.  Volume: all units at the last one reached."""

    GRADUATED = "graduated"
    VOLUME = "volume"


class AllowanceUnit(StrEnum):
    """What a free allowance counts; bytes a month are those held for the whole month."""

    GB_MONTH = "GB-month"
    GIB_MONTH = "GiB-month"
    TB_MONTH = "TB-month"
    TIB_MONTH = "TiB-month"
    GB = "GB"
    GIB = "GiB"
    TB = "TB"
    TIB = "TiB"
    REQUEST = "request"


class Period(StrEnum):
    """How often a free allowance or a fee starts anew."""

    HOUR = "hour"
    DAY = "day"
    MONTH = "month"


class RoundingOrder(StrEnum):
    """Whether an allowance is taken off before the quantity is rounded, or after."""

    BEFORE = "before_rounding"
    AFTER = "after_rounding"


class BracketOrder(StrEnum):
    """Whether free units fill brackets: ``before_brackets`` takes them off the quantity first."""

    BEFORE = "before_brackets"
    AFTER = "inside_first_bracket"


class EarlyDeleteMode(StrEnum):
    """What leaving before the minimum duration costs."""

    REMAINING_PRORATED = "remaining_prorated"
    AS_IF_FULL = "as_if_full"
    NONE = "none"


class Granularity(StrEnum):
    """What the remaining duration is counted in."""

    HOUR = "hour"
    DAY = "day"


class Trigger(StrEnum):
    """What ends an object's stay in a tier."""

    DELETE = "delete"
    OVERWRITE = "overwrite"
    TRANSITION = "transition"
    ABORT = "abort"


class ClockBasis(StrEnum):
    """From when the minimum duration counts."""

    CLASS_ENTRY = "class_entry"
    OBJECT_CREATED = "object_created"
    LAST_MODIFIED = "last_modified"


class RequestBilling(StrEnum):
    """Whether requests are a meter of this tier at all."""

    BILLED = "billed"
    UNMETERED = "unmetered"


class Retrieval(StrEnum):
    """How bytes come back: free of a retrieval meter, at once for a price, or after a restore."""

    NONE = "none"
    IMMEDIATE = "immediate"
    RESTORE = "restore"


class Visibility(StrEnum):
    """Who can read what is stored; a backup of private state needs ``private``."""

    PRIVATE = "private"
    PUBLIC = "public"


class Support(StrEnum):
    """Whether a feature is there, as far as the provider documents it."""

    YES = "yes"
    NO = "no"
    UNDOCUMENTED = "undocumented"


class TransferPath(StrEnum):
    """The network path of a leg; each has its own price."""

    INTERNET = "internet"
    SAME_REGION = "same_region"
    CROSS_REGION = "cross_region"
    CROSS_AZ = "cross_az"
    NAT = "nat"
    GATEWAY_ENDPOINT = "gateway_endpoint"
    PRIVATELINK = "privatelink"
    INTERCONNECT = "interconnect"
    CDN = "cdn"


class Direction(StrEnum):
    """Which way bytes are charged, as seen from ``from_zone``."""

    OUT = "out"
    IN = "in"
    BOTH = "both"


class Operation(StrEnum):
    """API operations that a request can be; a card maps each to one of its classes."""

    PUT_OBJECT = "PutObject"
    GET_OBJECT = "GetObject"
    HEAD_OBJECT = "HeadObject"
    LIST_OBJECTS = "ListObjectsV2"
    DELETE_OBJECT = "DeleteObject"
    CREATE_MULTIPART_UPLOAD = "CreateMultipartUpload"
    UPLOAD_PART = "UploadPart"
    LIST_PARTS = "ListParts"
    UPLOAD_PART_COPY = "UploadPartCopy"
    COMPLETE_MULTIPART_UPLOAD = "CompleteMultipartUpload"
    ABORT_MULTIPART_UPLOAD = "AbortMultipartUpload"
    COPY_OBJECT = "CopyObject"
    DELETE_OBJECTS = "DeleteObjects"
    GET_OBJECT_ATTRIBUTES = "GetObjectAttributes"
    HEAD_BUCKET = "HeadBucket"
    LIST_BUCKETS = "ListBuckets"
    LIST_MULTIPART_UPLOADS = "ListMultipartUploads"
    LIST_OBJECT_VERSIONS = "ListObjectVersions"
    RESTORE_OBJECT = "RestoreObject"


DAEMON_OPERATIONS = (
    Operation.PUT_OBJECT,
    Operation.GET_OBJECT,
    Operation.HEAD_OBJECT,
    Operation.LIST_OBJECTS,
    Operation.DELETE_OBJECT,
    Operation.CREATE_MULTIPART_UPLOAD,
    Operation.UPLOAD_PART,
    Operation.LIST_PARTS,
    Operation.UPLOAD_PART_COPY,
    Operation.COPY_OBJECT,
    Operation.COMPLETE_MULTIPART_UPLOAD,
    Operation.ABORT_MULTIPART_UPLOAD,
)
"""What replication, verification and restore send: a tier with billed requests has to map them all."""

STAGING_OPERATIONS = frozenset({Operation.CREATE_MULTIPART_UPLOAD, Operation.UPLOAD_PART, Operation.UPLOAD_PART_COPY})
"""What is billed at ``staging_request_tier`` where a tier names one."""
