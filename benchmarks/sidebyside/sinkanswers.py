"""What the sink says: as much of S3 as a transfer needs."""

import base64
import hashlib
import re
from dataclasses import dataclass
from email.utils import formatdate
from typing import Self
from urllib.parse import parse_qs, quote, unquote
from xml.sax.saxutils import escape

from benchmarks.sidebyside.sinkstore import Store, Stored

XMLNS = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
DATE = formatdate(0, usegmt=True)
WHEN = "1970-01-01T00:00:00.000Z"
_NUMBER = re.compile(rb"<PartNumber>\s*(\d+)\s*</PartNumber>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request, taken apart; ``key`` is empty for one about the bucket."""

    method: str
    path: str
    query: str
    key: str
    verb: str
    headers: dict[str, str]

    @classmethod
    def parse(cls, head: bytes) -> Self:
        """Read a head without its empty line."""
        first, *lines = head.decode("latin-1").split("\r\n")
        method, target, _ = first.split(" ")
        path, _, query = target.partition("?")
        headers = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        key = unquote(path).lstrip("/").partition("/")[2]
        return cls(
            method=method, path=path, query=query, key=key, verb=_verb(method, key, query, headers), headers=headers
        )

    def asked(self, name: str, default: str = "") -> str:
        """Return a value of the query."""
        return parse_qs(self.query, keep_blank_values=True).get(name, [default])[0]


def _verb(method: str, key: str, query: str, headers: dict[str, str]) -> str:
    if not key:
        return {"GET": "ListObjectsV2", "PUT": "CreateBucket", "HEAD": "HeadBucket"}.get(method, "Unknown")
    if "x-amz-copy-source" in headers:
        return "Unknown"
    if "uploadId=" in query:
        return {
            "PUT": "UploadPart",
            "POST": "CompleteMultipartUpload",
            "DELETE": "AbortMultipartUpload",
            "GET": "ListParts",
        }.get(method, "Unknown")
    if method == "POST":
        return "CreateMultipartUpload" if query.startswith("uploads") else "Unknown"
    return {"GET": "GetObject", "PUT": "PutObject", "HEAD": "HeadObject", "DELETE": "DeleteObject"}.get(
        method, "Unknown"
    )


def reply(status: str, body: bytes = b"", *headers: tuple[str, str | int], length: int | None = None) -> bytes:
    """Put an answer together; ``length`` is that of a body that is sent apart, or not at all."""
    said = "".join(f"{name}: {value}\r\n" for name, value in headers)
    size = len(body) if length is None else length
    return f"HTTP/1.1 {status}\r\nContent-Length: {size}\r\nServer: sink\r\n{said}\r\n".encode() + body


def error(status: str, code: str) -> bytes:
    """Say what is wrong, as S3 does."""
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}</Message></Error>".encode()
    return reply(status, body, ("Content-Type", "application/xml"))


def not_implemented(what: str) -> bytes:
    """Say that the sink does not know this."""
    return error("501 Not Implemented", f"NotImplemented: {what}")


def _document(name: str, inner: str) -> bytes:
    body = f'<?xml version="1.0" encoding="UTF-8"?>\n<{name} {XMLNS}>{inner}</{name}>'.encode()
    return reply("200 OK", body, ("Content-Type", "application/xml"))


def answer(store: Store, request: Request, body: bytes) -> bytes:
    """Do what a request asks and return the whole answer."""
    act = _ACTS.get(request.verb)
    if act is None:
        store.counters.unknown += 1
        return not_implemented(request.verb)
    return act(store, request, body)


def _claimed(request: Request, body: bytes) -> Stored:
    headers = request.headers
    size = int(headers.get("x-amz-decoded-content-length") or headers.get("content-length") or len(body))
    md5 = headers.get("content-md5")
    number = request.asked("partNumber")
    etag = base64.b64decode(md5).hex() if md5 else f"sink-{size}-{number}" if number else f"sink-{size}"
    return Stored(
        size=size,
        etag=etag,
        checksum=headers.get("x-amz-checksum-sha256"),
        data=body if body or not size else None,
        metadata=tuple((name, value) for name, value in headers.items() if name.startswith("x-amz-meta-")),
    )


def _checksums(stored: Stored) -> tuple[tuple[str, str], ...]:
    return (("x-amz-checksum-sha256", stored.checksum),) if stored.checksum else ()


def _put(store: Store, request: Request, body: bytes) -> bytes:
    stored = _claimed(request, body)
    if stored.data is not None and stored.checksum:
        found = base64.b64encode(hashlib.sha256(body).digest()).decode()
        if found != stored.checksum:
            return error("400 Bad Request", "BadDigest")
    if not store.create(request.key, stored, only_if_absent="if-none-match" in request.headers):
        return error("412 Precondition Failed", "PreconditionFailed")
    return reply("200 OK", b"", ("ETag", f'"{stored.etag}"'), *_checksums(stored))


def _part(store: Store, request: Request, body: bytes) -> bytes:
    pending = store.uploads.get(request.asked("uploadId"))
    if pending is None:
        return error("404 Not Found", "NoSuchUpload")
    stored = _claimed(request, body)
    pending.parts[int(request.asked("partNumber"))] = stored
    return reply("200 OK", b"", ("ETag", f'"{stored.etag}"'), *_checksums(stored))


def _begin(store: Store, request: Request, _body: bytes) -> bytes:
    metadata = tuple((name, value) for name, value in request.headers.items() if name.startswith("x-amz-meta-"))
    upload = store.begin(request.key, metadata)
    inner = f"<Bucket>b</Bucket><Key>{escape(request.key)}</Key><UploadId>{upload}</UploadId>"
    return _document("InitiateMultipartUploadResult", inner)


def _complete(store: Store, request: Request, body: bytes) -> bytes:
    upload = request.asked("uploadId")
    pending = store.uploads.get(upload)
    if pending is None:
        return error("404 Not Found", "NoSuchUpload")
    numbers = [int(number) for number in _NUMBER.findall(body)]
    if not numbers or any(number not in pending.parts for number in numbers):
        return error("400 Bad Request", "InvalidPart")
    stored = pending.joined(numbers)
    if not store.create(pending.key, stored, only_if_absent="if-none-match" in request.headers):
        return error("412 Precondition Failed", "PreconditionFailed")
    del store.uploads[upload]
    said = f"<ChecksumSHA256>{stored.checksum}</ChecksumSHA256>" if stored.checksum else ""
    said += "<ChecksumType>COMPOSITE</ChecksumType>" if stored.checksum else ""
    inner = f"<Location>/</Location><Bucket>b</Bucket><Key>{escape(pending.key)}</Key>"
    inner += f"<ETag>&quot;{stored.etag}&quot;</ETag>"
    return _document("CompleteMultipartUploadResult", inner + said)


def _abort(store: Store, request: Request, _body: bytes) -> bytes:
    store.uploads.pop(request.asked("uploadId"), None)
    return reply("204 No Content")


def _parts(store: Store, request: Request, _body: bytes) -> bytes:
    pending = store.uploads.get(request.asked("uploadId"))
    if pending is None:
        return error("404 Not Found", "NoSuchUpload")
    inner = "<IsTruncated>false</IsTruncated>" + "".join(
        f"<Part><PartNumber>{number}</PartNumber><LastModified>{WHEN}</LastModified>"
        f"<ETag>&quot;{part.etag}&quot;</ETag><Size>{part.size}</Size></Part>"
        for number, part in sorted(pending.parts.items())
    )
    return _document("ListPartsResult", inner)


def _list(store: Store, request: Request, _body: bytes) -> bytes:
    if "location" in request.query:
        return _document("LocationConstraint", "us-east-1")
    if "versioning" in request.query:
        return _document("VersioningConfiguration", "")
    if "uploads" in request.query:
        return _document("ListMultipartUploadsResult", "<IsTruncated>false</IsTruncated>")
    prefix, limit = request.asked("prefix"), int(request.asked("max-keys", "1000"))
    after = request.asked("continuation-token") or request.asked("start-after") or request.asked("marker")
    page, more = store.listed(prefix, after, limit)
    delimiter, encoded = request.asked("delimiter"), request.asked("encoding-type") == "url"
    folders, entries = set(), []
    for key, stored in page:
        rest = key[len(prefix) :]
        if delimiter and delimiter in rest:
            folders.add(prefix + rest.partition(delimiter)[0] + delimiter)
            continue
        name = quote(key, safe="/") if encoded else escape(key)
        entries.append(
            f"<Contents><Key>{name}</Key><LastModified>{WHEN}</LastModified><ETag>&quot;{stored.etag}&quot;</ETag>"
            f"<Size>{stored.size}</Size><StorageClass>STANDARD</StorageClass></Contents>"
        )
    token = f"<NextContinuationToken>{escape(page[-1][0])}</NextContinuationToken>" if more else ""
    shared = "".join(f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>" for name in sorted(folders))
    inner = (
        f"<Name>b</Name><Prefix>{escape(prefix)}</Prefix><KeyCount>{len(page)}</KeyCount><MaxKeys>{limit}</MaxKeys>"
        f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}{''.join(entries)}{shared}"
    )
    return _document("ListBucketResult", inner)


def described(stored: Stored) -> tuple[tuple[str, str | int], ...]:
    """Return the headers of an object."""
    return (
        ("ETag", f'"{stored.etag}"'),
        ("Last-Modified", DATE),
        ("Accept-Ranges", "bytes"),
        ("Content-Type", "application/octet-stream"),
        *stored.metadata,
    )


def _head(store: Store, request: Request, _body: bytes) -> bytes:
    stored = store.objects.get(request.key)
    if stored is None:
        return reply("404 Not Found")
    checked = _checksums(stored) if "x-amz-checksum-mode" in request.headers else ()
    return reply("200 OK", b"", *described(stored), *checked, length=stored.size)


def _delete(store: Store, request: Request, _body: bytes) -> bytes:
    with store.lock:
        store.objects.pop(request.key, None)
    return reply("204 No Content")


def _bucket(_store: Store, _request: Request, _body: bytes) -> bytes:
    return reply("200 OK")


_ACTS = {
    "PutObject": _put,
    "UploadPart": _part,
    "CreateMultipartUpload": _begin,
    "CompleteMultipartUpload": _complete,
    "AbortMultipartUpload": _abort,
    "ListParts": _parts,
    "ListObjectsV2": _list,
    "HeadObject": _head,
    "DeleteObject": _delete,
    "CreateBucket": _bucket,
    "HeadBucket": _bucket,
}
