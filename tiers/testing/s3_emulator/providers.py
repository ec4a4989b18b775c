"""Ready-made behaviours: what is known of each store, taken in the direction that hurts where it is not.

The sources are those of :mod:`tiers.profiles`.  A behaviour is a worst case within what
was documented, reported or probed, not a promise about the provider.
"""

from dataclasses import replace
from datetime import timedelta

from tiers.testing.s3_emulator.behaviour import (
    GIB,
    MIB,
    Behaviour,
    ChecksumRule,
    ConditionRule,
    EtagRule,
    LifecycleRule,
    ListOrder,
    TrailerRule,
)
from tiers.testing.s3_emulator.checksums import Algorithm
from tiers.testing.s3_emulator.operations import Operation

_VERSIONING = frozenset(
    {Operation.GET_BUCKET_VERSIONING, Operation.PUT_BUCKET_VERSIONING, Operation.LIST_OBJECT_VERSIONS}
)
_COPIES = frozenset({Operation.COPY_OBJECT, Operation.UPLOAD_PART_COPY})
_WEEK = timedelta(days=7)

AWS = Behaviour(
    name="aws",
    regions=frozenset({"us-east-1"}),
    conflicts_in_flight=True,
    max_object=50 * 10**12,
    storage_classes=frozenset(
        {"STANDARD", "STANDARD_IA", "ONEZONE_IA", "INTELLIGENT_TIERING", "GLACIER_IR", "GLACIER", "DEEP_ARCHIVE"}
    ),
)
"""Documented: everything is checked; creates in flight conflict; no upload expires by itself."""

R2 = Behaviour(
    name="r2",
    regions=frozenset({"auto", "us-east-1", ""}),
    location="auto",
    lists_part_checksums=False,
    full_object=frozenset({Algorithm.CRC64NVME}),
    trailers=TrailerRule.UNAUTHORIZED,
    etags=EtagRule.MD5_SINGLE,
    complete_if_absent=ConditionRule.IGNORED,
    delete_if_match=ConditionRule.IGNORED,
    missing_if_match=412,
    max_put=5_114 * MIB,
    max_part=5_114 * MIB,
    max_object=5_114 * GIB,
    write_interval=timedelta(seconds=1),
    too_fast=(429, "TooManyRequests"),
    equal_parts=True,
    checks_object_size=False,
    upload_lifetime=_WEEK,
    lacks=_VERSIONING,
    lifecycle=(LifecycleRule(rule_id="Default Multipart Abort Rule", abort_incomplete_days=7),),
    storage_classes=frozenset({"STANDARD", "STANDARD_IA"}),
)
"""Documented: If-None-Match on PutObject only, equal parts, a write a second and key; reported: 401 for trailers."""

CEPH_RGW = Behaviour(
    name="ceph-rgw",
    location="",
    checksums=ChecksumRule.IGNORED,
    echoes_checksums=False,
    lists_part_checksums=False,
    trailers=TrailerRule.MISMATCH,
    complete_if_absent=ConditionRule.IGNORED,
    delete_if_match=ConditionRule.IGNORED,
    missing_if_match=412,
    checks_object_size=False,
    storage_classes=None,
)
"""Probed 16.2: knows no x-amz-checksum, checks the payload hash, refuses trailers."""

GCS_INTEROP = Behaviour(
    name="gcs",
    location="US",
    checksums=ChecksumRule.IGNORED,
    echoes_checksums=False,
    lists_part_checksums=False,
    trailers=TrailerRule.NOT_IMPLEMENTED,
    etags=EtagRule.MD5_SINGLE,
    put_if_absent=ConditionRule.IGNORED,
    complete_if_absent=ConditionRule.IGNORED,
    put_if_match=ConditionRule.IGNORED,
    delete_if_match=ConditionRule.IGNORED,
    checks_object_size=False,
    lacks=frozenset({Operation.UPLOAD_PART_COPY, Operation.DELETE_OBJECTS, Operation.LIST_OBJECT_VERSIONS}),
    storage_classes=frozenset({"STANDARD", "NEARLINE", "COLDLINE", "ARCHIVE"}),
)
"""Documented: generation headers in place of If-None-Match, no UploadPartCopy, another multipart ETag."""

B2 = Behaviour(
    name="b2",
    regions=frozenset({"us-west-004"}),
    location="us-west-004",
    checksums=ChecksumRule.REFUSED,
    echoes_checksums=False,
    lists_part_checksums=False,
    trailers=TrailerRule.NOT_IMPLEMENTED,
    etags=EtagRule.MD5_SINGLE,
    put_if_absent=ConditionRule.REFUSED,
    complete_if_absent=ConditionRule.REFUSED,
    put_if_match=ConditionRule.REFUSED,
    delete_if_match=ConditionRule.REFUSED,
    max_put=5 * 10**9,
    min_part=5 * 10**6,
    max_part=5 * 10**9,
    max_object=10 * 10**12,
    checks_object_size=False,
    versioned=True,
)
"""Reported: checksum headers refused; put-if-absent claimed, here refused; buckets always keep versions."""

RUNPOD = Behaviour(
    name="runpod",
    regions=frozenset({"eu-ro-1"}),
    location="eu-ro-1",
    checksums=ChecksumRule.IGNORED,
    echoes_checksums=False,
    lists_part_checksums=False,
    trailers=TrailerRule.NOT_IMPLEMENTED,
    etags=EtagRule.MD5_SINGLE,
    put_if_absent=ConditionRule.IGNORED,
    complete_if_absent=ConditionRule.IGNORED,
    put_if_match=ConditionRule.IGNORED,
    delete_if_match=ConditionRule.IGNORED,
    max_put=500 * 10**6 - 1,
    min_part=1,
    max_part=500 * 10**6 - 1,
    max_object=4 * 10**12,
    checks_object_size=False,
    list_order=ListOrder.TREE,
    lacks=_VERSIONING | _COPIES | {Operation.DELETE_OBJECTS, Operation.GET_BUCKET_LIFECYCLE},
    storage_classes=None,
    keeps_metadata=False,
)
"""Documented: parts and PUT under 500 MB, no DeleteObjects; put-if-absent undocumented, here ignored."""

SEAWEED = Behaviour(
    name="seaweedfs",
    mismatch_code="XAmzContentChecksumMismatch",
    computes_copies=False,
    lists_part_checksums=False,
    checks_payload_hash=False,
    lists_replaced_parts=True,
    checks_object_size=False,
    list_order=ListOrder.TREE,
    storage_classes=None,
)
"""Probed 4.48: checks checksums and not the payload hash, lists folder by folder and replaced parts too."""

GENERIC = Behaviour(
    name="generic-s3",
    checksums=ChecksumRule.IGNORED,
    echoes_checksums=False,
    lists_part_checksums=False,
    checks_content_md5=False,
    checks_payload_hash=False,
    trailers=TrailerRule.NOT_IMPLEMENTED,
    etags=EtagRule.OPAQUE,
    put_if_absent=ConditionRule.IGNORED,
    complete_if_absent=ConditionRule.IGNORED,
    put_if_match=ConditionRule.IGNORED,
    delete_if_match=ConditionRule.IGNORED,
    missing_if_match=412,
    max_parts=1_000,
    equal_parts=True,
    checks_object_size=False,
    copy_if_match=False,
    computes_copies=False,
    upload_lifetime=timedelta(days=1),
    list_order=ListOrder.TREE,
    lacks=_VERSIONING | _COPIES | {Operation.DELETE_OBJECTS, Operation.LIST_OBJECTS, Operation.GET_BUCKET_LIFECYCLE},
    storage_classes=None,
    keeps_metadata=False,
)
"""The weakest that still is a store: it checks signatures and keeps bytes."""

IGNORES_PUT_IF_ABSENT = replace(AWS, name="ignores-put-if-absent", put_if_absent=ConditionRule.IGNORED)
"""For probes: takes If-None-Match and overwrites."""

STORES_WRONG_CHECKSUMS = replace(AWS, name="stores-wrong-checksums", checksums=ChecksumRule.RECORDED)
"""For probes: repeats whatever checksum it was told, as rclone does."""

STORES_CHUNK_FRAMING = replace(AWS, name="stores-chunk-framing", trailers=TrailerRule.STORED)
"""For probes: makes the framing of aws-chunked bodies part of the object, as some small servers do."""
