"""How an emulated store acts, as data.  :mod:`.providers` has ready-made ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from tiers.testing.s3_emulator.checksums import Algorithm
from tiers.testing.s3_emulator.operations import EVERYTHING, Operation

MIB = 1 << 20
GIB = 1 << 30
TIB = 1 << 40


class ChecksumRule(StrEnum):
    """What is made of ``x-amz-checksum-*``."""

    CHECKED = "checked"  # a wrong one is refused
    IGNORED = "ignored"
    RECORDED = "recorded"  # whatever was stated is repeated as if it were true
    REFUSED = "refused"  # 400 InvalidArgument for the header itself


class TrailerRule(StrEnum):
    """What is made of bodies in aws-chunked encoding."""

    ACCEPTED = "accepted"
    NOT_IMPLEMENTED = "not-implemented"  # 501
    UNAUTHORIZED = "unauthorized"  # 401, as some do
    MISMATCH = "mismatch"  # 400 XAmzContentSHA256Mismatch, from stores that hash the framing
    STORED = "stored"  # the framing becomes part of the object


class ConditionRule(StrEnum):
    """What is made of If-None-Match or If-Match on a write."""

    CHECKED = "checked"  # 412 PreconditionFailed; of racing writers one wins
    IGNORED = "ignored"
    REFUSED = "refused"  # 501 NotImplemented


class EtagRule(StrEnum):
    """What an ETag says."""

    MD5 = "md5"  # of the bytes; of the parts' MD5s, with their number, for an object in parts
    MD5_SINGLE = "md5-single"  # of the bytes; opaque for an object in parts
    OPAQUE = "opaque"  # nothing


class ListOrder(StrEnum):
    """How listings are sorted."""

    BYTES = "bytes"
    TREE = "tree"  # folder by folder: ``a/b`` before ``a-b``


class Encryption(StrEnum):
    """Encryption at rest that a bucket applies by itself; with KMS no ETag is an MD5."""

    NONE = ""
    AES256 = "AES256"
    KMS = "aws:kms"


class WrongRegion(StrEnum):
    """The answer to a request that was signed for another region."""

    MALFORMED = "malformed"  # 400 AuthorizationHeaderMalformed, which names the right one
    PERMANENT_REDIRECT = "permanent-redirect"  # 301 with x-amz-bucket-region
    TEMPORARY_REDIRECT = "temporary-redirect"  # 307 with Location


class Padding(StrEnum):
    """White space that keeps the connection of a slow Complete alive; its status is then 200 in any case."""

    NONE = "none"
    AFTER_DECLARATION = "after-declaration"
    BEFORE_DECLARATION = "before-declaration"  # which is no well-formed XML


@dataclass(frozen=True, slots=True, kw_only=True)
class LifecycleRule:
    """One enabled rule of a bucket's lifecycle; days as in S3, None where the rule has no such action."""

    rule_id: str
    prefix: str = ""
    abort_incomplete_days: int | None = None
    expire_days: int | None = None
    noncurrent_days: int | None = None
    transition: tuple[int, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """How a store acts.  Sizes in bytes.

    *Where*: ``regions`` are those that a request may be signed for (None: any),
    ``location`` is what GetBucketLocation says, ``clock_skew`` how far the store's clock
    is ahead.

    *Bytes*: ``mismatch_code`` refuses a wrong checksum; ``echoes_checksums`` on PUT, GET
    and HEAD, ``lists_part_checksums`` in ListParts; ``full_object`` are the algorithms whose
    checksum may be over the whole of an object in parts; ``checks_payload_hash`` compares
    the signed ``x-amz-content-sha256`` with the body.

    *Conditions*: ``put_if_absent`` is If-None-Match on PutObject and CopyObject,
    ``complete_if_absent`` on Complete, ``put_if_match`` and ``delete_if_match`` are If-Match.
    ``missing_if_match`` is the status of If-Match where there is no object (404 or 412).
    ``conflicts_in_flight`` answers 409 to a create while another one on the key is in flight.

    *Limits*: ``min_part`` binds all parts but the last, at Complete.  ``write_interval`` is
    the time between two writes of one key, else ``too_fast`` (status and code).
    ``upload_lifetime`` is the age at which an unfinished upload is gone.

    *Uploads*: ``equal_parts``, all but the last; ``checks_object_size`` compares
    ``x-amz-mp-object-size``; ``lists_replaced_parts`` also lists parts that were replaced;
    ``remembers_completed`` answers a repeated Complete as before in place of NoSuchUpload;
    ``copy_if_match`` honours x-amz-copy-source-if-match; ``computes_copies``: CopyObject computes
    the checksum that it is asked for, else it carries over what is recorded of the source, and
    answers none; ``padding`` see there.

    *Rest*: ``lacks`` are operations that it answers with 501, ``may`` those that it allows
    to anybody with credentials (others are 403).  ``storage_classes`` are those that it takes
    (None: takes and forgets any).  ``keeps_metadata`` is about ``x-amz-meta-*``.
    """

    name: str
    regions: frozenset[str] | None = None
    location: str = "us-east-1"
    wrong_region: WrongRegion = WrongRegion.MALFORMED
    clock_skew: timedelta = timedelta()

    checksums: ChecksumRule = ChecksumRule.CHECKED
    mismatch_code: str = "BadDigest"
    echoes_checksums: bool = True
    lists_part_checksums: bool = True
    full_object: frozenset[Algorithm] = frozenset({Algorithm.CRC32, Algorithm.CRC32C, Algorithm.CRC64NVME})
    checks_content_md5: bool = True
    checks_payload_hash: bool = True
    trailers: TrailerRule = TrailerRule.ACCEPTED
    etags: EtagRule = EtagRule.MD5
    encryption: Encryption = Encryption.NONE

    put_if_absent: ConditionRule = ConditionRule.CHECKED
    complete_if_absent: ConditionRule = ConditionRule.CHECKED
    put_if_match: ConditionRule = ConditionRule.CHECKED
    delete_if_match: ConditionRule = ConditionRule.CHECKED
    missing_if_match: int = 404
    conflicts_in_flight: bool = False

    max_put: int = 5 * GIB
    min_part: int = 5 * MIB
    max_part: int = 5 * GIB
    max_parts: int = 10_000
    max_object: int = 5 * TIB
    write_interval: timedelta | None = None
    too_fast: tuple[int, str] = (503, "SlowDown")

    equal_parts: bool = False
    checks_object_size: bool = True
    lists_replaced_parts: bool = False
    remembers_completed: bool = False
    copy_if_match: bool = True
    computes_copies: bool = True
    padding: Padding = Padding.NONE
    upload_lifetime: timedelta | None = None

    list_page: int = 1_000
    list_order: ListOrder = ListOrder.BYTES
    lacks: frozenset[Operation] = frozenset()
    may: frozenset[Operation] = EVERYTHING
    versioned: bool = False
    lifecycle: tuple[LifecycleRule, ...] = ()
    storage_classes: frozenset[str] | None = frozenset({"STANDARD"})
    keeps_metadata: bool = True

    def checks(self, stated: Mapping[Algorithm, str]) -> bool:
        """Whether these checksums are compared with the bytes."""
        return bool(stated) and self.checksums is ChecksumRule.CHECKED
