"""PutObject, CopyObject, GetObject, HeadObject, DeleteObject, DeleteObjects."""

import re
from collections.abc import Mapping
from dataclasses import replace
from email.utils import format_datetime
from urllib.parse import unquote

from tiers.testing.s3_emulator.answers import Answer, Refusal, xml_answer
from tiers.testing.s3_emulator.asked import Asked
from tiers.testing.s3_emulator.behaviour import ChecksumRule, Encryption, EtagRule
from tiers.testing.s3_emulator.call import Call
from tiers.testing.s3_emulator.checksums import Algorithm, ChecksumType, checksum
from tiers.testing.s3_emulator.conditions import check_delete, check_read, check_write, precondition_failed
from tiers.testing.s3_emulator.documents import Node, document, parse
from tiers.testing.s3_emulator.operations import Operation
from tiers.testing.s3_emulator.state import NULL_VERSION, Attributes, Bucket, DeleteMarker, State, StoredObject

_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
_KEPT_HEADERS = ("content-type", "cache-control", "content-disposition", "content-language", "expires")
_ARCHIVED = frozenset({"GLACIER", "DEEP_ARCHIVE"})
_MOST_KEYS = 1_000


def attributes_of(asked: Asked, state: State) -> Attributes:
    """Return what a request says of an object; Refusal for a storage class that the store has not."""
    headers, behaviour = asked.headers, state.behaviour
    kept = {name: headers[name] for name in _KEPT_HEADERS if name in headers}
    encoding = ",".join(
        word for word in headers.get("content-encoding", "").replace(" ", "").split(",") if word != "aws-chunked"
    )
    kept |= {"content-encoding": encoding} if encoding else {}
    if behaviour.keeps_metadata:
        kept |= {name: value for name, value in headers.items() if name.startswith("x-amz-meta-")}
    wanted = headers.get("x-amz-storage-class", "STANDARD")
    if behaviour.storage_classes is None:
        wanted = "STANDARD"
    elif wanted not in behaviour.storage_classes:
        raise Refusal(400, "InvalidStorageClass", "The storage class you specified is not valid")
    encryption = headers.get("x-amz-server-side-encryption", behaviour.encryption)
    return Attributes(headers=kept, storage_class=wanted, encryption=encryption)


def etag_of(md5: str, state: State, encryption: str) -> str:
    """Return the ETag of bytes that came in one request."""
    opaque = state.behaviour.etags is EtagRule.OPAQUE or encryption == Encryption.KMS
    return state.token() if opaque else md5


def put_object(call: Call) -> Answer:
    """Store a body."""
    state, asked = call.state, call.asked
    bucket = call.bucket
    check_write(asked, state.behaviour, bucket.current(asked.key))
    state.check_pace(bucket, asked.key)
    attributes = attributes_of(asked, state)
    written = StoredObject(
        version=state.version_for(bucket),
        data=call.body.data,
        etag=etag_of(call.body.md5, state, attributes.encryption),
        modified=state.now(),
        attributes=attributes,
        checksums=call.body.checksums or {},
    )
    state.write(bucket, asked.key, written)
    return Answer(headers=written_headers(state, written))


def written_headers(state: State, written: StoredObject) -> dict[str, str]:
    """Return the headers that answer a write."""
    headers = {"ETag": f'"{written.etag}"'} | checksum_headers(state, written.checksums)
    if written.attributes.encryption:
        headers["x-amz-server-side-encryption"] = written.attributes.encryption
    if written.version != NULL_VERSION:
        headers["x-amz-version-id"] = written.version
    return headers


def checksum_headers(state: State, checksums: Mapping[Algorithm, str]) -> dict[str, str]:
    """Return the headers that name checksums, where the store names them."""
    if not state.behaviour.echoes_checksums or state.behaviour.checksums is ChecksumRule.IGNORED:
        return {}
    return {algorithm.header: value for algorithm, value in checksums.items()}


def copy_object(call: Call) -> Answer:
    """Store another object's bytes."""
    state, asked = call.state, call.asked
    source = copy_source(state, asked)
    bucket = call.bucket
    check_write(asked, state.behaviour, bucket.current(asked.key))
    state.check_pace(bucket, asked.key)
    wanted = attributes_of(asked, state)
    attributes = replace(wanted, headers=source.attributes.headers)
    checksums, named = _copied_checksums(call, source)
    kind = source.checksum_type if checksums == source.checksums else ChecksumType.FULL_OBJECT
    written = replace(
        source,
        version=state.version_for(bucket),
        modified=state.now(),
        attributes=attributes,
        checksums=checksums,
        checksum_type=kind,
    )
    state.write(bucket, asked.key, written)
    nodes: list[Node] = [("ETag", f'"{written.etag}"'), ("LastModified", listed_time(written)), *named]
    return xml_answer(document("CopyObjectResult", *nodes))


def _copied_checksums(call: Call, source: StoredObject) -> tuple[Mapping[Algorithm, str], list[Node]]:
    """Return the checksums of a copy, and those that the answer names."""
    asked = call.asked.headers.get("x-amz-checksum-algorithm", "").lower()
    if not call.state.behaviour.computes_copies or asked not in set(Algorithm):
        return source.checksums, []
    algorithm = Algorithm(asked)
    computed = {algorithm: checksum(algorithm, [source.data])}
    named = checksum_headers(call.state, computed)
    return computed, [(algorithm.element, computed[algorithm])] if algorithm.header in named else []


def copy_source(state: State, asked: Asked) -> StoredObject:
    """Return what x-amz-copy-source names; Refusal where it is not there, or not as the conditions say."""
    path, _, version = asked.headers["x-amz-copy-source"].partition("?versionId=")
    name, _, key = unquote(path).removeprefix("/").partition("/")
    found = _version(state.bucket(name), key, version or None)
    condition = asked.headers.get("x-amz-copy-source-if-match")
    if condition is not None and state.behaviour.copy_if_match and condition.strip('"') not in {"*", found.etag}:
        raise precondition_failed("x-amz-copy-source-If-Match")
    return found


def listed_time(held: StoredObject) -> str:
    """Return a time as documents have it."""
    return held.modified.strftime("%Y-%m-%dT%H:%M:%S.000Z")


def _version(bucket: Bucket, key: str, version: str | None) -> StoredObject:
    if version is None:
        found = bucket.current(key)
        if found is None:
            raise Refusal(404, "NoSuchKey", "The specified key does not exist.", details=(("Key", key),))
        return found
    for held in bucket.objects.get(key, []):
        if held.version == version and isinstance(held, StoredObject):
            return held
    raise Refusal(404, "NoSuchVersion", "The specified version does not exist.")


def _found(call: Call) -> StoredObject:
    asked = call.asked
    try:
        return _version(call.bucket, asked.key, asked.query.get("versionId"))
    except Refusal as refusal:
        # Who may not list may not learn which keys there are.
        if refusal.code == "NoSuchKey" and Operation.LIST_OBJECTS_V2 not in call.may:
            raise Refusal(403, "AccessDenied", "Access Denied") from None
        raise


def head_object(call: Call) -> Answer:
    """Describe an object."""
    answer = get_object(call)
    return replace(answer, body=b"", length=len(answer.body))


def get_object(call: Call) -> Answer:
    """Return an object, or a range of it."""
    state, asked = call.state, call.asked
    held = _found(call)
    unchanged = check_read(asked, held)
    if unchanged is not None:
        return unchanged
    if held.attributes.storage_class in _ARCHIVED and asked.operation is Operation.GET_OBJECT:
        message = "The operation is not valid for the object's storage class"
        raise Refusal(403, "InvalidObjectState", message, details=(("StorageClass", held.attributes.storage_class),))
    headers = _object_headers(state, asked, held)
    span = _range(asked.headers.get("range"), len(held.data))
    if span is None:
        return Answer(headers=headers, body=memoryview(held.data))
    start, end = span
    headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(held.data)}"
    return Answer(status=206, headers=headers, body=memoryview(held.data)[start:end])


def _object_headers(state: State, asked: Asked, held: StoredObject) -> dict[str, str]:
    headers = dict(held.attributes.headers) | {
        "ETag": f'"{held.etag}"',
        "Last-Modified": format_datetime(held.modified, usegmt=True),
        "Accept-Ranges": "bytes",
    }
    headers.setdefault("content-type", "binary/octet-stream")
    whole = "range" not in asked.headers
    if asked.headers.get("x-amz-checksum-mode", "").upper() == "ENABLED" and whole:
        named = checksum_headers(state, held.checksums)
        headers |= named | ({"x-amz-checksum-type": held.checksum_type} if named else {})
    if held.attributes.encryption:
        headers["x-amz-server-side-encryption"] = held.attributes.encryption
    if held.attributes.storage_class != "STANDARD":
        headers["x-amz-storage-class"] = held.attributes.storage_class
    if held.version != NULL_VERSION:
        headers["x-amz-version-id"] = held.version
    return headers


def _range(header: str | None, size: int) -> tuple[int, int] | None:
    """Return start and end of a range; None for the whole, Refusal where it lies outside."""
    found = _RANGE.fullmatch(header or "")
    if found is None or not (found[1] or found[2]):
        return None
    if found[1]:
        start = int(found[1])
        end = min(int(found[2]) + 1, size) if found[2] else size
        if found[2] and int(found[2]) < start:
            return None
    else:
        start, end = max(0, size - int(found[2])), size
    if start >= size or start == end:
        message = "The requested range is not satisfiable"
        raise Refusal(416, "InvalidRange", message, headers={"Content-Range": f"bytes */{size}"})
    return start, end


def delete_object(call: Call) -> Answer:
    """Remove a key, or with versioning put a delete marker on it, or remove a version for good."""
    state, asked = call.state, call.asked
    bucket = call.bucket
    check_delete(asked, state.behaviour, bucket.current(asked.key))
    return Answer(status=204, headers=remove(state, bucket, asked.key, asked.query.get("versionId")))


def remove(state: State, bucket: Bucket, key: str, version: str | None) -> dict[str, str]:
    """Delete one key or version; return the headers that say how."""
    versions = bucket.objects.get(key, [])
    if version is not None:
        gone = [held for held in versions if held.version == version]
        _keep(bucket, key, [held for held in versions if held.version != version])
        marker = {"x-amz-delete-marker": "true"} if gone and isinstance(gone[0], DeleteMarker) else {}
        return {"x-amz-version-id": version} | marker
    if not bucket.versioning:
        _keep(bucket, key, [])
        return {}
    marked = DeleteMarker(version=state.version_for(bucket), modified=state.now())
    bucket.add(key, marked)
    return {"x-amz-delete-marker": "true", "x-amz-version-id": marked.version}


def _keep(bucket: Bucket, key: str, versions: list[StoredObject | DeleteMarker]) -> None:
    if versions:
        bucket.objects[key] = versions
    else:
        bucket.objects.pop(key, None)


def delete_objects(call: Call) -> Answer:
    """Remove up to 1,000 keys, each with a result of its own."""
    state, asked = call.state, call.asked
    bucket = call.bucket
    digests = {"content-md5", "x-amz-trailer", *(algorithm.header for algorithm in Algorithm)}
    if digests.isdisjoint(asked.headers):
        raise Refusal(400, "InvalidRequest", "Missing required header for this request: Content-MD5")
    root = parse(call.body.data)
    wanted = root.findall("Object") if root is not None else []
    if root is None or not 0 < len(wanted) <= _MOST_KEYS:
        raise Refusal(400, "MalformedXML", "The XML you provided was not well-formed or did not validate")
    quiet = root.findtext("Quiet", "false").lower() == "true"
    results: list[Node] = []
    for each in wanted:
        key = each.findtext("Key", "")
        headers = remove(state, bucket, key, each.findtext("VersionId"))
        marker = headers.get("x-amz-delete-marker")
        results.append(("Deleted", [("Key", key), *([("DeleteMarker", marker)] if marker else [])]))
    return xml_answer(document("DeleteResult", *([] if quiet else results)))
