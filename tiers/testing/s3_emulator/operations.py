"""The operations of S3 that the emulator knows, how requests are told apart, and what each counts as."""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from tiers.metered import BillingClass


class Operation(StrEnum):
    """S3 operations under the names of the API."""

    LIST_BUCKETS = "ListBuckets"
    CREATE_BUCKET = "CreateBucket"
    DELETE_BUCKET = "DeleteBucket"
    HEAD_BUCKET = "HeadBucket"
    GET_BUCKET_LOCATION = "GetBucketLocation"
    GET_BUCKET_VERSIONING = "GetBucketVersioning"
    PUT_BUCKET_VERSIONING = "PutBucketVersioning"
    GET_BUCKET_LIFECYCLE = "GetBucketLifecycleConfiguration"
    LIST_OBJECTS = "ListObjects"
    LIST_OBJECTS_V2 = "ListObjectsV2"
    LIST_OBJECT_VERSIONS = "ListObjectVersions"
    LIST_MULTIPART_UPLOADS = "ListMultipartUploads"
    DELETE_OBJECTS = "DeleteObjects"
    PUT_OBJECT = "PutObject"
    COPY_OBJECT = "CopyObject"
    GET_OBJECT = "GetObject"
    HEAD_OBJECT = "HeadObject"
    DELETE_OBJECT = "DeleteObject"
    CREATE_UPLOAD = "CreateMultipartUpload"
    UPLOAD_PART = "UploadPart"
    UPLOAD_PART_COPY = "UploadPartCopy"
    LIST_PARTS = "ListParts"
    COMPLETE_UPLOAD = "CompleteMultipartUpload"
    ABORT_UPLOAD = "AbortMultipartUpload"


EVERYTHING = frozenset(Operation)

_OBJECT: Mapping[tuple[str, str], Operation] = MappingProxyType(
    {
        ("GET", "uploadId"): Operation.LIST_PARTS,
        ("PUT", "uploadId"): Operation.UPLOAD_PART,
        ("POST", "uploads"): Operation.CREATE_UPLOAD,
        ("POST", "uploadId"): Operation.COMPLETE_UPLOAD,
        ("DELETE", "uploadId"): Operation.ABORT_UPLOAD,
        ("GET", ""): Operation.GET_OBJECT,
        ("HEAD", ""): Operation.HEAD_OBJECT,
        ("PUT", ""): Operation.PUT_OBJECT,
        ("DELETE", ""): Operation.DELETE_OBJECT,
    }
)
_BUCKET: Mapping[tuple[str, str], Operation] = MappingProxyType(
    {
        ("GET", "location"): Operation.GET_BUCKET_LOCATION,
        ("GET", "versioning"): Operation.GET_BUCKET_VERSIONING,
        ("PUT", "versioning"): Operation.PUT_BUCKET_VERSIONING,
        ("GET", "lifecycle"): Operation.GET_BUCKET_LIFECYCLE,
        ("GET", "versions"): Operation.LIST_OBJECT_VERSIONS,
        ("GET", "uploads"): Operation.LIST_MULTIPART_UPLOADS,
        ("GET", "list-type"): Operation.LIST_OBJECTS_V2,
        ("POST", "delete"): Operation.DELETE_OBJECTS,
        ("GET", ""): Operation.LIST_OBJECTS,
        ("HEAD", ""): Operation.HEAD_BUCKET,
        ("PUT", ""): Operation.CREATE_BUCKET,
        ("DELETE", ""): Operation.DELETE_BUCKET,
    }
)
_SUBRESOURCES = frozenset(
    {
        *("accelerate", "acl", "analytics", "attributes", "cors", "delete", "encryption", "intelligent-tiering"),
        *("inventory", "legal-hold", "lifecycle", "location", "logging", "metrics", "notification", "object-lock"),
        *("ownershipControls", "policy", "policyStatus", "publicAccessBlock", "replication", "requestPayment"),
        *("restore", "retention", "select", "tagging", "torrent", "uploadId", "uploads", "versioning", "versions"),
        *("website"),
    }
)
_COPIES = {Operation.PUT_OBJECT: Operation.COPY_OBJECT, Operation.UPLOAD_PART: Operation.UPLOAD_PART_COPY}

_FREE = frozenset({Operation.DELETE_OBJECT, Operation.DELETE_OBJECTS, Operation.DELETE_BUCKET, Operation.ABORT_UPLOAD})
_CLASS_B = frozenset(
    {
        Operation.GET_OBJECT,
        Operation.HEAD_OBJECT,
        Operation.HEAD_BUCKET,
        Operation.GET_BUCKET_LOCATION,
        Operation.GET_BUCKET_VERSIONING,
        Operation.GET_BUCKET_LIFECYCLE,
    }
)


def classify(
    method: str, bucket: str, key: str, query: Mapping[str, str], headers: Mapping[str, str]
) -> Operation | None:
    """Return the operation that a request asks for; None where the emulator does not know it."""
    if not bucket:
        return Operation.LIST_BUCKETS if method == "GET" and not key else None
    table = _OBJECT if key else _BUCKET
    if any((method, name) not in table for name in _SUBRESOURCES & query.keys()):
        return None
    names = [name for verb, name in table if verb == method and name in query]
    operation = table.get((method, names[0] if names else ""))
    if operation is not None and "x-amz-copy-source" in headers:
        return _COPIES.get(operation, operation)
    return operation


def billing_class(operation: str) -> BillingClass:
    """Return how a bill groups a request; what is not known counts as the dearest."""
    if operation in _FREE:
        return BillingClass.FREE
    return BillingClass.B if operation in _CLASS_B else BillingClass.A
