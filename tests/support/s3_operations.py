"""Which S3 operation an HTTP request is."""

from collections.abc import Mapping
from urllib.parse import parse_qs, unquote, urlsplit

_WITH_KEY = {
    ("GET", "uploadId"): "ListParts",
    ("PUT", "uploadId"): "UploadPart",
    ("POST", "uploads"): "CreateMultipartUpload",
    ("POST", "uploadId"): "CompleteMultipartUpload",
    ("DELETE", "uploadId"): "AbortMultipartUpload",
    ("GET", ""): "GetObject",
    ("HEAD", ""): "HeadObject",
    ("PUT", ""): "PutObject",
    ("DELETE", ""): "DeleteObject",
}
_WITHOUT_KEY = {
    ("GET", "list-type"): "ListObjectsV2",
    ("GET", "uploads"): "ListMultipartUploads",
    ("POST", "delete"): "DeleteObjects",
    ("HEAD", ""): "HeadBucket",
    ("PUT", ""): "CreateBucket",
    ("DELETE", ""): "DeleteBucket",
}
_COPIES = {"UploadPart": "UploadPartCopy", "PutObject": "CopyObject"}


def classify(method: str, target: str, headers: Mapping[str, str]) -> tuple[str, str]:
    """Return the operation and the key (empty for a bucket's operations) of a path-style request."""
    parts = urlsplit(target)
    _bucket, _slash, key = unquote(parts.path).removeprefix("/").partition("/")
    query = parse_qs(parts.query, keep_blank_values=True)
    table = _WITH_KEY if key else _WITHOUT_KEY
    names = [*(name for verb, name in table if verb == method and name in query), ""]
    operation = table.get((method, names[0]), f"{method}?")
    if "x-amz-copy-source" in headers:
        operation = _COPIES.get(operation, operation)
    return operation, key
