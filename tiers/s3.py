"""S3 and what speaks like it, through boto3's low-level client.

Each verb is one request, with two exceptions, both of them so that a wrong answer
cannot be given: ``stat`` of a key that is not there asks a second time (a HEAD has no
body, and its 404 does not tell a missing key from a missing bucket), and where a
profile says that put-if-absent cannot be relied on, ``create`` looks first.  A listing
of a store that does not sort is read as a whole and returned as one page.

Needs boto3 (``pip install 'ckptier[s3]'``); importing this module loads it.
"""

import base64
import hashlib
import io
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast

from tiers.bodies import Body, BytesBody
from tiers.checks import check_part_set, check_part_size, check_upload, key_components
from tiers.errors import IntegrityError, ObjectExists, ObjectNotFound, TierError, TierUnavailable, Unsupported
from tiers.opening import BadTierUrl, TierSpec
from tiers.profiles import Profile, choose_profile
from tiers.protocol import (
    Capabilities,
    Fencing,
    Key,
    ObjectInfo,
    ObjectPage,
    Part,
    PartPage,
    Tier,
    Upload,
    UploadId,
)
from tiers.s3_client import bucket_and_prefix, build_client, resolve_endpoint
from tiers.s3_errors import answer_code, translate
from tiers.s3_sdk import BotoCoreError, ClientError, ResponseParserError
from tiers.s3_streams import DigestedBody, SentBody, Where, object_stream, range_header

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client

Result = TypeVar("Result")
Fields = dict[str, Any]

_CHECKSUM = re.compile(r"([A-Za-z0-9+/]{43}=)(?:-\d+)?")
_CONTENT_TYPE = "application/octet-stream"
_SDK_ERRORS = (BotoCoreError, ClientError, ResponseParserError)


def open_s3(spec: TierSpec) -> Tier:
    """Return a tier for ``s3://bucket[/prefix]``; no request is made.  BadTierUrl for a bad spec."""
    try:
        bucket, prefix = bucket_and_prefix(spec.url)
        endpoint_url = resolve_endpoint(spec.endpoint_url, allow_insecure=spec.allow_insecure)
        profile = choose_profile(spec.profile, endpoint_url)
    except ValueError as error:
        raise BadTierUrl(f"tier {spec.name}: {error}", "see url, endpoint_url and profile of this tier") from error
    return S3Tier(
        spec.name,
        bucket=bucket,
        prefix=prefix,
        profile=profile,
        connect=lambda: build_client(profile, endpoint_url, spec.region, spec.connections),
    )


class S3Tier:
    """One bucket, under one prefix.

    ``connect`` is called at the first request, and again after a close.  ``page_size``
    asks for shorter pages of listings than the store's own.
    """

    def __init__(
        self,
        name: str,
        *,
        bucket: str,
        prefix: str,
        profile: Profile,
        connect: "Callable[[], S3Client]",
        page_size: int = 1_000,
    ) -> None:
        self._name = name
        self._bucket = bucket
        self._root = f"{prefix}/" if prefix else ""
        self._profile = profile
        self._connect = connect
        self._page_size = page_size
        self._client: S3Client | None = None
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """The configured name."""
        return self._name

    @property
    def capabilities(self) -> Capabilities:
        """What the profile says."""
        return self._profile.capabilities

    def put(self, key: Key, body: Body) -> ObjectInfo:
        """Store a body in one PutObject."""
        return self._put("put", key, body, {})

    def create(self, key: Key, data: bytes) -> ObjectInfo:
        """Store data with If-None-Match; in advisory mode after a look that a single writer can rely on."""
        if self._profile.fencing is Fencing.ADVISORY and self._exists(key):
            raise ObjectExists("the key is taken", **self._where("create", key).fields())
        condition = {"IfNoneMatch": "*"} if self._profile.conditional_put else {}
        return self._put("create", key, BytesBody(data), condition)

    def open(self, key: Key, start: int = 0, length: int | None = None) -> BinaryIO:
        """Stream a range of a GetObject; an empty range is a HEAD."""
        if start < 0 or (length is not None and length < 0):
            raise ValueError(f"negative range: start {start}, length {length}")
        if length == 0:
            self._stat("open", key)
            return io.BytesIO()
        where = self._where("open", key)
        header = range_header(start, length)
        wanted: Fields = {"Range": header} if header is not None else {}
        response = self._call(where, lambda s3: s3.get_object(**self._object(key), **wanted))
        return cast("BinaryIO", object_stream(response, start, length, where))

    def stat(self, key: Key) -> ObjectInfo:
        """Describe an object by a HEAD, asking for its checksum."""
        return self._stat("stat", key)

    def list_objects(self, prefix: str, token: str | None = None) -> ObjectPage:
        """Return a page of ListObjectsV2; all of it where the store does not sort."""
        page = self._list(prefix, token)
        if self._profile.sorted_listing:
            return page
        found = list(page.objects)
        while page.next_token is not None:
            page = self._list(prefix, page.next_token)
            found += page.objects
        return ObjectPage(objects=tuple(sorted(found, key=lambda info: info.key)), next_token=None)

    def delete(self, key: Key) -> None:
        """Remove one key."""
        try:
            self._call(self._where("delete", key), lambda s3: s3.delete_object(**self._object(key)))
        except ObjectNotFound:  # S3 answers 204 for a missing key; some others say what they think
            return

    def close(self) -> None:
        """Close the pool of connections."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def begin_upload(self, key: Key, *, size: int, part_size: int) -> Upload:
        """Open a multipart upload, of which the store keeps SHA-256 where it checks them."""
        where = self._where("begin_upload", key)
        target = self._object(key)
        check_upload(
            Upload(key=key, upload_id=UploadId(""), size=size, part_size=part_size), self.capabilities, tier=self._name
        )
        algorithm: Fields = {"ChecksumAlgorithm": "SHA256"} if self._profile.checks_sha256 else {}
        response = self._call(
            where, lambda s3: s3.create_multipart_upload(**target, ContentType=_CONTENT_TYPE, **algorithm)
        )
        upload_id = self._required(response, "UploadId", where)
        return Upload(key=key, upload_id=UploadId(upload_id), size=size, part_size=part_size)

    def put_part(self, upload: Upload, number: int, body: Body) -> Part:
        """Send one part."""
        where = self._where("put_part", upload.key)
        check_part_size(upload, number, body.size, tier=self._name, operation="put_part")
        if self._profile.checks_sha256 and body.sha256 is None:
            body = DigestedBody(body)  # an upload that keeps SHA-256 takes no part without
        response = self._send(
            where, body, lambda s3, sent: s3.upload_part(**self._upload(upload), PartNumber=number, **sent)
        )
        etag = self._required(response, "ETag", where)
        # Accepted by a store that refuses wrong digests is attested, said again or not.
        accepted = body.sha256 if self._profile.checks_sha256 else None
        return Part(number=number, size=body.size, etag=etag, sha256=self._attested(response) or accepted)

    def list_parts(self, upload: Upload, token: str | None = None) -> PartPage:
        """Return a page of ListParts; not every store gives the parts' digests (SeaweedFS does not)."""
        where = self._where("list_parts", upload.key)
        page: Fields = {"MaxParts": self._page_size}
        page |= {"PartNumberMarker": int(token)} if token is not None else {}
        response = self._call(where, lambda s3: s3.list_parts(**self._upload(upload), **page))
        parts = tuple(
            Part(number=part["PartNumber"], size=part["Size"], etag=_bare(part["ETag"]), sha256=self._attested(part))
            for part in response.get("Parts", [])
        )
        following = str(response.get("NextPartNumberMarker", "")) if response.get("IsTruncated") else None
        return PartPage(parts=_unambiguous(parts), next_token=self._advance(token, following, where))

    def copy_part(self, upload: Upload, number: int, source: ObjectInfo, start: int, length: int) -> Part:
        """Fill a part by UploadPartCopy, on condition of the source's ETag."""
        where = self._where("copy_part", upload.key)
        if not self._profile.copy_part or source.etag is None:
            raise Unsupported("no proved copy inside this store", **where.fields(), hint="send the part instead")
        check_part_size(upload, number, length, tier=self._name, operation="copy_part")
        origin: Fields = {
            "CopySource": self._object(source.key),
            "CopySourceRange": f"bytes={start}-{start + length - 1}",
            "CopySourceIfMatch": f'"{source.etag}"',
        }
        response = self._call(
            where, lambda s3: s3.upload_part_copy(**self._upload(upload), PartNumber=number, **origin)
        )
        result: Mapping[str, Any] = response.get("CopyPartResult", {})
        etag = self._required(result, "ETag", where)
        return Part(number=number, size=length, etag=etag, sha256=self._attested(result))

    def complete(self, upload: Upload, parts: Sequence[Part]) -> ObjectInfo:
        """Join the parts; the store's digest must be the one over theirs.

        Stores that check SHA-256 want it of every part.  Where ``list_parts`` did not give
        it, the caller uses what ``put_part`` returned, or sends the part again.
        """
        where = self._where("complete", upload.key)
        check_part_set(upload, parts, tier=self._name)
        digests = [part.sha256 for part in parts if part.sha256 is not None]
        if self._profile.checks_sha256 and len(digests) < len(parts):
            missing = next(part.number for part in parts if part.sha256 is None)
            message = f"part {missing} comes without its SHA-256"
            raise IntegrityError(
                message, **where.fields(), hint="take the part that put_part returned, or send it again"
            )
        size: Fields = {"MpuObjectSize": upload.size} if self._profile.checks_size else {}
        chosen: Any = {"Parts": [self._chosen(part) for part in parts]}
        response = self._call(
            where,
            lambda s3: s3.complete_multipart_upload(**self._upload(upload), MultipartUpload=chosen, **size),
        )
        etag = self._required(response, "ETag", where)
        attested = self._attested(response)
        if self._profile.checks_sha256:
            expected = hashlib.sha256(b"".join(bytes.fromhex(digest) for digest in digests)).hexdigest()
            self._compare(attested, expected, where)
        return ObjectInfo(key=upload.key, size=upload.size, etag=etag, sha256=attested)

    def abort(self, upload: Upload) -> None:
        """Abort the upload."""
        where = self._where("abort", upload.key)
        try:
            self._call(where, lambda s3: s3.abort_multipart_upload(**self._upload(upload)))
        except ObjectNotFound:
            return

    def _put(self, operation: str, key: Key, body: Body, condition: Fields) -> ObjectInfo:
        where = self._where(operation, key)
        target = self._object(key)
        if body.size > self._profile.max_put:
            message = f"{body.size} bytes: at most {self._profile.max_put} in one put"
            raise Unsupported(message, **where.fields(), hint="upload it in parts")
        response = self._send(
            where,
            body,
            lambda s3, sent: s3.put_object(**target, ContentType=_CONTENT_TYPE, **condition, **sent),
        )
        return ObjectInfo(
            key=key, size=body.size, etag=self._required(response, "ETag", where), sha256=self._attested(response)
        )

    def _stat(self, operation: str, key: Key) -> ObjectInfo:
        where = self._where(operation, key)
        target = self._object(key)

        def ask(s3: "S3Client") -> Mapping[str, Any]:
            try:
                return s3.head_object(**target, ChecksumMode="ENABLED")
            except ClientError as error:
                if answer_code(error)[1] != HTTPStatus.NOT_FOUND:
                    raise
                # A GET says in its body what is missing.  Never remembered: a bucket can go at any time.
                s3.get_object(**target)["Body"].close()
                raise TierUnavailable("the key appeared while it was asked for", **where.fields()) from None

        response = self._call(where, ask)
        return ObjectInfo(
            key=key,
            size=response["ContentLength"],
            etag=self._required(response, "ETag", where),
            sha256=self._attested(response),
            modified=response.get("LastModified"),
        )

    def _exists(self, key: Key) -> bool:
        try:
            self._stat("create", key)
        except ObjectNotFound:
            return False
        return True

    def _list(self, prefix: str, token: str | None) -> ObjectPage:
        where = self._where("list_objects", prefix)
        page: Fields = {"MaxKeys": self._page_size}
        page |= {"ContinuationToken": token} if token is not None else {}
        response = self._call(
            where, lambda s3: s3.list_objects_v2(Bucket=self._bucket, Prefix=self._root + prefix, **page)
        )
        entries = [(entry["Key"].removeprefix(self._root), entry) for entry in response.get("Contents", [])]
        objects = tuple(
            ObjectInfo(
                key=Key(key),
                size=entry["Size"],
                etag=_bare(entry["ETag"]) if "ETag" in entry else None,
                modified=entry.get("LastModified"),
            )
            for key, entry in entries
            # Folder markers of other tools are no keys, and SeaweedFS answers for a/ when asked for a//.
            if key.startswith(prefix) and _is_key(key)
        )
        following = response.get("NextContinuationToken", "") if response.get("IsTruncated") else None
        return ObjectPage(objects=objects, next_token=self._advance(token, following, where))

    def _send(
        self, where: Where, body: Body, send: "Callable[[S3Client, Fields], Mapping[str, Any]]"
    ) -> Mapping[str, Any]:
        with body.open() as reader:
            sent = SentBody(reader, body.size, where)
            fields: Fields = {"Body": sent, "ContentLength": body.size}
            if self._profile.checks_sha256 and body.sha256 is not None:
                fields["ChecksumSHA256"] = base64.b64encode(bytes.fromhex(body.sha256)).decode()
            try:
                response = self._call(where, lambda s3: send(s3, fields))
            except TierError:
                if sent.failure is not None:
                    raise sent.failure from None
                raise
        if body.sha256 is not None:
            self._compare(self._attested(response), body.sha256, where)
        return response

    def _call(self, where: Where, send: "Callable[[S3Client], Result]") -> Result:
        try:
            return send(self._connected())
        except _SDK_ERRORS as error:
            raise translate(error, **where.fields()) from None  # its text may quote secrets

    def _connected(self) -> "S3Client":
        with self._lock:
            if self._client is None:
                self._client = self._connect()
            return self._client

    def _where(self, operation: str, key: str) -> Where:
        return Where(tier=self._name, operation=operation, key=key)

    def _object(self, key: Key) -> Fields:
        key_components(key)
        return {"Bucket": self._bucket, "Key": self._root + key}

    def _upload(self, upload: Upload) -> Fields:
        return {**self._object(upload.key), "UploadId": upload.upload_id}

    def _chosen(self, part: Part) -> Fields:
        chosen: Fields = {"PartNumber": part.number, "ETag": f'"{part.etag}"'}
        if self._profile.checks_sha256 and part.sha256 is not None:
            chosen["ChecksumSHA256"] = base64.b64encode(bytes.fromhex(part.sha256)).decode()
        return chosen

    def _attested(self, response: Mapping[str, Any]) -> str | None:
        """Return as hex the SHA-256 that the store says it found; None unless its word can be taken for it."""
        found = _CHECKSUM.fullmatch(response.get("ChecksumSHA256") or "")
        return base64.b64decode(found[1]).hex() if found and self._profile.checks_sha256 else None

    def _compare(self, attested: str | None, expected: str, where: Where) -> None:
        if attested is not None and attested != expected:
            message = f"the store found SHA-256 {attested}, sealed was {expected}"
            raise IntegrityError(message, **where.fields(), hint="the object must not be used: send it again")

    def _required(self, response: Mapping[str, Any], field: str, where: Where) -> str:
        """Return a field without its quotes; a success without it is a failure that was reported late."""
        value = response.get(field)
        if not value:
            raise TierUnavailable(f"the answer has no {field}", **where.fields(), hint="the outcome is not known")
        return _bare(str(value))

    def _advance(self, token: str | None, following: str | None, where: Where) -> str | None:
        """Return the next token; a page that leads nowhere must not look like the last one."""
        if following is not None and following in {"", token}:
            raise TierUnavailable("the listing does not advance", **where.fields(), hint="the store is misbehaving")
        return following


def _unambiguous(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Return one part a number, leaving out numbers that are listed with different contents.

    SeaweedFS goes on listing a part that was replaced, in no order that tells which is
    newer.  What is left out is sent again, and Complete takes the part whose ETag it is given.
    """
    found: dict[int, set[Part]] = {}
    for part in parts:
        found.setdefault(part.number, set()).add(part)
    return tuple(held.pop() for held in found.values() if len(held) == 1)


def _is_key(text: str) -> bool:
    """Whether a name that was found in a bucket is a key."""
    try:
        key_components(text)
    except ValueError:
        return False
    return True


def _bare(etag: str) -> str:
    # Quoted in headers and most bodies, bare in SeaweedFS's CopyPartResult.
    return etag.strip('"')
