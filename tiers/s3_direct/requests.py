"""From the fields of an operation to the head of its request, signed.  Pure, but for the signing key that is kept."""

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote

from tiers.s3_direct.rehearsal import Address
from tiers.s3_direct.signing import Credentials, Signable, Signer

HEADERS: Mapping[str, str] = {
    "ContentType": "content-type",
    "ContentLength": "content-length",
    "ChecksumSHA256": "x-amz-checksum-sha256",
    "StorageClass": "x-amz-storage-class",
    "ServerSideEncryption": "x-amz-server-side-encryption",
    "SSEKMSKeyId": "x-amz-server-side-encryption-aws-kms-key-id",
    "IfNoneMatch": "if-none-match",
    "IfMatch": "if-match",
    "Range": "range",
}
"""The header of each field."""
QUERY: Mapping[str, str] = {"PartNumber": "partNumber", "UploadId": "uploadId"}
"""The fields that go into the query, in order of the names that they have there."""
KNOWN = frozenset({*HEADERS, *QUERY, "Bucket", "Key", "Body"})
"""A request with any other field goes by the SDK."""


class Line(NamedTuple):
    """What a head is made for: a method, the operation's fields, and the hash that stands for its body."""

    method: str
    fields: Mapping[str, object]
    payload: str


def head_of(line: Line, address: Address, signer: Signer, credentials: Credentials, moment: str) -> bytes:
    """Return a whole head.  ValueError where a value is none that a header takes (a line break in a token, say)."""
    fields = line.fields
    path = address.prefix + quote(str(fields["Key"]), safe="/~")
    query = "&".join([f"{QUERY[name]}={quote(str(fields[name]), safe='')}" for name in QUERY if name in fields])
    headers = {"host": address.host, "x-amz-date": moment, "x-amz-content-sha256": line.payload}
    headers.update(address.standing)
    for name, value in fields.items():
        if name in HEADERS:
            headers[HEADERS[name]] = str(value)
    if credentials.token:
        headers["x-amz-security-token"] = credentials.token
    if not "".join(headers.values()).isprintable():
        raise ValueError("a character that no header takes")
    signed = signer.authorization(Signable(line.method, path, query, headers), credentials, moment)
    lines = [f"{line.method} {path}?{query} HTTP/1.1" if query else f"{line.method} {path} HTTP/1.1"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines += [f"authorization: {signed}", f"user-agent: {address.agent}", "accept-encoding: identity", "\r\n"]
    return "\r\n".join(lines).encode("ascii")
