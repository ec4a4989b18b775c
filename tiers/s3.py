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
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar, cast

from tiers.bandwidth import KeySpacing
from tiers.bodies import Body, BytesBody
from tiers.checks import check_part_set, check_part_size, check_upload, key_components
from tiers.clock import SystemClock
from tiers.errors import IntegrityError, ObjectExists, ObjectNotFound, TierError, TierUnavailable, Unsupported
from tiers.failures import Where
from tiers.opening import BadTierUrl, TierSpec
from tiers.profiles import Profile, choose_profile, corrected
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
from tiers.s3_calling import Caller, limits_for
from tiers.s3_client import bucket_and_prefix, build_client, check_certificates, resolve_endpoint
from tiers.s3_direct import direct
from tiers.s3_errors import answer_code
from tiers.s3_reading import advance, attested, compare, object_page, part_page, required
from tiers.s3_sdk import ClientError
from tiers.s3_storage import STANDARD, Storage, storage_of
from tiers.s3_streams import DigestedBody, SentBody, object_stream, range_header
from tiers.s3_watchdog import Limits

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client

Result = TypeVar("Result")
Fields = dict[str, Any]

SPACING_SLACK = 1.1
"""Of two writes that leave this far apart, the second may still be faster on its way."""
_CONTENT_TYPE = "application/octet-stream"


def open_s3(spec: TierSpec) -> Tier:
    """Return a tier for ``s3://bucket[/prefix]``; no request is made.  BadTierUrl for a bad spec."""
    try:
        bucket, prefix = bucket_and_prefix(spec.url)
        endpoint_url = resolve_endpoint(spec.endpoint_url, allow_insecure=spec.allow_insecure)
        profile = corrected(choose_profile(spec.profile, endpoint_url), spec.probed)
        storage = storage_of(spec, profile)
        check_certificates(spec.ca_bundle)
    except ValueError as error:
        hint = "see url, endpoint_url, profile, ca_bundle, storage_class and encryption of this tier"
        raise BadTierUrl(f"tier {spec.name}: {error}", hint) from error
    by_sdk = spec.data_path == "sdk"

    def connect() -> "S3Client":
        client = build_client(
            profile,
            endpoint_url,
            spec.region,
            spec.connections,
            ca_bundle=spec.ca_bundle,
            timeout_seconds=spec.timeout_seconds,
        )
        return client if by_sdk else direct(client)

    return S3Tier(
        spec.name,
        bucket=bucket,
        prefix=prefix,
        profile=storage.weakened(profile),
        storage=storage,
        connect=connect,
        limits=lambda operation: limits_for(
            operation, profile, timeout_seconds=spec.timeout_seconds, deadline_seconds=spec.deadline_seconds
        ),
    )


class S3Tier:
    """One bucket, under one prefix.

    ``connect`` is called at the first request, and again after a close.  ``page_size``
    asks for shorter pages of listings than the store's own.  ``storage`` says how bulk
    data are to be kept, ``limits`` how long each operation may take (else the profile does).
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
        storage: Storage = STANDARD,
        limits: Callable[[str], Limits] | None = None,
    ) -> None:
        self._name = name
        self._bucket = bucket
        self._root = f"{prefix}/" if prefix else ""
        self._profile = profile
        self._caller = Caller(connect, profile, limits=limits)
        self._spacing = KeySpacing(SPACING_SLACK * profile.write_interval, SystemClock())
        self._page_size = page_size
        self._storage = storage
        most = profile.parts_at_once
        self._parts: AbstractContextManager[object] = threading.BoundedSemaphore(most) if most else nullcontext()

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
        self._spacing.wait(key)
        return self._put("put", key, body, self._storage.fields(key))

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
        target = self._object(key)
        header = range_header(start, length)
        wanted: Fields = {"Range": header} if header is not None else {}
        response, watched = self._caller.begin(where, lambda s3: s3.get_object(**target, **wanted))
        return cast("BinaryIO", object_stream(response, start, length, where, watched))

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

    def copy(self, key: Key, source: ObjectInfo) -> ObjectInfo:
        """Copy by CopyObject, on condition of the source's ETag, and kept as a put would keep it."""
        where = self._where("copy", key)
        if not self._profile.copy or source.etag is None:
            raise Unsupported("no proved copy inside this store", **where.fields(), hint="send the object instead")
        if source.size > self._profile.max_put:
            message = f"{source.size} bytes: at most {self._profile.max_put} in one copy"
            raise Unsupported(message, **where.fields(), hint="copy it in parts")
        target: Fields = {
            **self._object(key),
            **self._storage.fields(key),
            "CopySource": self._object(source.key),
            "CopySourceIfMatch": f'"{source.etag}"',
        }
        target |= {"ChecksumAlgorithm": "SHA256"} if self._profile.checks_sha256 else {}
        self._spacing.wait(key)
        response = self._call(where, lambda s3: s3.copy_object(**target))
        result: Mapping[str, Any] = response.get("CopyObjectResult", {})
        sha256 = attested(result, self._profile)
        return ObjectInfo(key=key, size=source.size, etag=required(result, "ETag", where), sha256=sha256)

    def delete(self, key: Key) -> None:
        """Remove one key."""
        target = self._object(key)
        try:
            self._call(self._where("delete", key), lambda s3: s3.delete_object(**target))
        except ObjectNotFound:  # S3 answers 204 for a missing key; some others say what they think
            return

    def close(self) -> None:
        """Close the pool of connections."""
        self._caller.close()

    def begin_upload(self, key: Key, *, size: int, part_size: int) -> Upload:
        """Open a multipart upload, of which the store keeps SHA-256 where it checks them."""
        where = self._where("begin_upload", key)
        target = {**self._object(key), **self._storage.fields(key)}
        check_upload(
            Upload(key=key, upload_id=UploadId(""), size=size, part_size=part_size), self.capabilities, tier=self._name
        )
        algorithm: Fields = {"ChecksumAlgorithm": "SHA256"} if self._profile.checks_sha256 else {}
        response = self._call(
            where, lambda s3: s3.create_multipart_upload(**target, ContentType=_CONTENT_TYPE, **algorithm)
        )
        return Upload(
            key=key, upload_id=UploadId(required(response, "UploadId", where)), size=size, part_size=part_size
        )

    def put_part(self, upload: Upload, number: int, body: Body) -> Part:
        """Send one part."""
        where = self._where("put_part", upload.key)
        check_part_size(upload, number, body.size, tier=self._name, operation="put_part")
        if self._profile.checks_sha256 and body.sha256 is None:
            body = DigestedBody(body)  # an upload that keeps SHA-256 takes no part without
        target = {**self._upload(upload), "PartNumber": number}
        with self._parts:
            response = self._send(where, body, lambda s3, sent: s3.upload_part(**target, **sent))
        # Accepted by a store that refuses wrong digests is attested, said again or not.
        accepted = body.sha256 if self._profile.checks_sha256 else None
        sha256 = attested(response, self._profile) or accepted
        return Part(number=number, size=body.size, etag=required(response, "ETag", where), sha256=sha256)

    def list_parts(self, upload: Upload, token: str | None = None) -> PartPage:
        """Return a page of ListParts; not every store gives the parts' digests (SeaweedFS does not)."""
        where = self._where("list_parts", upload.key)
        target: Fields = {**self._upload(upload), "MaxParts": self._page_size}
        target |= {"PartNumberMarker": int(token)} if token is not None else {}
        response = self._call(where, lambda s3: s3.list_parts(**target))
        return part_page(response, token, self._profile, where)

    def copy_part(self, upload: Upload, number: int, source: ObjectInfo, start: int, length: int) -> Part:
        """Fill a part by UploadPartCopy, on condition of the source's ETag."""
        where = self._where("copy_part", upload.key)
        if not self._profile.copy_part or source.etag is None:
            raise Unsupported("no proved copy inside this store", **where.fields(), hint="send the part instead")
        check_part_size(upload, number, length, tier=self._name, operation="copy_part")
        target: Fields = {
            **self._upload(upload),
            "PartNumber": number,
            "CopySource": self._object(source.key),
            "CopySourceRange": f"bytes={start}-{start + length - 1}",
            "CopySourceIfMatch": f'"{source.etag}"',
        }
        response = self._call(where, lambda s3: s3.upload_part_copy(**target))
        result: Mapping[str, Any] = response.get("CopyPartResult", {})
        sha256 = attested(result, self._profile)
        return Part(number=number, size=length, etag=required(result, "ETag", where), sha256=sha256)

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
        target: Fields = {**self._upload(upload), "MultipartUpload": {"Parts": [self._chosen(part) for part in parts]}}
        target |= {"MpuObjectSize": upload.size} if self._profile.checks_size else {}
        response = self._call(where, lambda s3: s3.complete_multipart_upload(**target))
        etag = required(response, "ETag", where)
        sha256 = attested(response, self._profile)
        if self._profile.checks_sha256:
            expected = hashlib.sha256(b"".join(bytes.fromhex(digest) for digest in digests)).hexdigest()
            compare(sha256, expected, where)
        return ObjectInfo(key=upload.key, size=upload.size, etag=etag, sha256=sha256)

    def abort(self, upload: Upload) -> None:
        """Abort the upload."""
        target = self._upload(upload)
        try:
            self._call(self._where("abort", upload.key), lambda s3: s3.abort_multipart_upload(**target))
        except ObjectNotFound:
            return

    def _put(self, operation: str, key: Key, body: Body, more: Fields) -> ObjectInfo:
        where = self._where(operation, key)
        target = {**self._object(key), **more}
        if body.size > self._profile.max_put:
            message = f"{body.size} bytes: at most {self._profile.max_put} in one put"
            raise Unsupported(message, **where.fields(), hint="upload it in parts")
        response = self._send(where, body, lambda s3, sent: s3.put_object(**target, ContentType=_CONTENT_TYPE, **sent))
        sha256 = attested(response, self._profile)
        return ObjectInfo(key=key, size=body.size, etag=required(response, "ETag", where), sha256=sha256)

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
            etag=required(response, "ETag", where),
            sha256=attested(response, self._profile),
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
        target: Fields = {"Bucket": self._bucket, "Prefix": self._root + prefix, "MaxKeys": self._page_size}
        target |= {"ContinuationToken": token} if token is not None else {}
        response = self._call(where, lambda s3: s3.list_objects_v2(**target))
        page = object_page(response, self._root, prefix, where)
        return ObjectPage(objects=page.objects, next_token=advance(token, page.next_token, where))

    def _send(
        self, where: Where, body: Body, send: "Callable[[S3Client, Fields], Mapping[str, Any]]"
    ) -> Mapping[str, Any]:
        digest = body.sha256  # some compute it anew each time
        with body.open() as reader:
            sent = SentBody(reader, body.size, where, sha256=digest)
            fields: Fields = {"Body": sent, "ContentLength": body.size}
            if self._profile.checks_sha256 and digest is not None:
                fields["ChecksumSHA256"] = base64.b64encode(bytes.fromhex(digest)).decode()
            try:
                response = self._call(where, lambda s3: send(s3, fields), body.size)
            except TierError:
                if sent.failure is not None:
                    raise sent.failure from None
                raise
        if digest is not None:
            compare(attested(response, self._profile), digest, where)
        return response

    def _call(self, where: Where, send: "Callable[[S3Client], Result]", size: int = 0) -> Result:
        return self._caller.call(where, send, size)

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
