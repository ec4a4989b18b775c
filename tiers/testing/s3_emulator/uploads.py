"""Objects in parts: Create, UploadPart, UploadPartCopy, ListParts, Complete, Abort, and the list of uploads."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tiers.testing.s3_emulator.answers import Answer, Refusal, xml_answer
from tiers.testing.s3_emulator.asked import Asked
from tiers.testing.s3_emulator.behaviour import Behaviour, ChecksumRule, Encryption, EtagRule, Padding
from tiers.testing.s3_emulator.call import Call
from tiers.testing.s3_emulator.checksums import Algorithm, ChecksumType, checksum, composite
from tiers.testing.s3_emulator.conditions import check_write
from tiers.testing.s3_emulator.documents import DECLARATION, Node, document, parse
from tiers.testing.s3_emulator.objects import attributes_of, checksum_headers, copy_source, etag_of, written_headers
from tiers.testing.s3_emulator.state import Bucket, OpenUpload, State, StoredObject, StoredPart

_COPY_RANGE = re.compile(r"bytes=(\d+)-(\d+)")
_SPACES = b" " * 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """A part as Complete names it."""

    number: int
    etag: str
    checksums: Mapping[Algorithm, str]


def create_upload(call: Call) -> Answer:
    """Open an upload."""
    state, asked = call.state, call.asked
    bucket = call.bucket
    algorithm, kind = _checksum_wanted(asked, state.behaviour)
    upload = OpenUpload(
        upload_id=state.token(),
        key=asked.key,
        initiated=state.now(),
        started=state.clock.monotonic(),
        attributes=attributes_of(asked, state),
        algorithm=algorithm,
        checksum_type=kind,
    )
    bucket.uploads[upload.upload_id] = upload
    headers = {"x-amz-checksum-algorithm": algorithm.upper(), "x-amz-checksum-type": kind} if algorithm else {}
    if upload.attributes.encryption:
        headers["x-amz-server-side-encryption"] = upload.attributes.encryption
    names: list[Node] = [("Bucket", bucket.name), ("Key", asked.key), ("UploadId", upload.upload_id)]
    return xml_answer(document("InitiateMultipartUploadResult", *names), headers)


def _checksum_wanted(asked: Asked, behaviour: Behaviour) -> tuple[Algorithm | None, ChecksumType]:
    name = asked.headers.get("x-amz-checksum-algorithm", "").lower()
    if not name or behaviour.checksums is ChecksumRule.IGNORED:
        return None, ChecksumType.COMPOSITE
    if behaviour.checksums is ChecksumRule.REFUSED:
        raise Refusal(400, "InvalidArgument", "Unsupported header 'x-amz-checksum-algorithm' received")
    try:
        algorithm = Algorithm(name)
        usual = ChecksumType.FULL_OBJECT if algorithm is Algorithm.CRC64NVME else ChecksumType.COMPOSITE
        kind = ChecksumType(asked.headers.get("x-amz-checksum-type", usual))
    except ValueError:
        raise Refusal(400, "InvalidRequest", "Checksum algorithm or type provided is unsupported") from None
    whole = kind is ChecksumType.FULL_OBJECT
    if (whole and algorithm not in behaviour.full_object) or (not whole and algorithm is Algorithm.CRC64NVME):
        message = f"The {kind} checksum type cannot be used with the {algorithm} checksum algorithm."
        raise Refusal(400, "InvalidRequest", message)
    return algorithm, kind


def _open_upload(call: Call) -> tuple[Bucket, OpenUpload]:
    bucket = call.bucket
    call.state.expire_uploads(bucket)
    upload = bucket.uploads.get(call.asked.query.get("uploadId", ""))
    if upload is None or upload.key != call.asked.key:
        message = "The specified upload does not exist. It may have been aborted or completed."
        raise Refusal(404, "NoSuchUpload", message)
    return bucket, upload


def _part_number(state: State, asked: Asked) -> int:
    number = asked.number("partNumber")
    if not 1 <= number <= state.behaviour.max_parts:
        message = f"Part number must be an integer between 1 and {state.behaviour.max_parts}, inclusive"
        raise Refusal(400, "InvalidArgument", message)
    return number


def upload_part(call: Call) -> Answer:
    """Take a part."""
    state, asked = call.state, call.asked
    _bucket, upload = _open_upload(call)
    number = _part_number(state, asked)
    stated = call.body.checksums or {}
    if upload.algorithm is not None and upload.algorithm not in stated:
        actual = next(iter(stated), None)
        message = f"Checksum Type mismatch occurred, expected checksum Type: {upload.algorithm}, actual: {actual}"
        raise Refusal(400, "InvalidRequest", message)
    part = _take(state, upload, number, call.body.data, call.body.md5, stated)
    return Answer(headers={"ETag": f'"{part.etag}"'} | checksum_headers(state, part.checksums))


def _take(
    state: State, upload: OpenUpload, number: int, data: bytes, md5: str, checksums: Mapping[Algorithm, str]
) -> StoredPart:
    if len(data) > state.behaviour.max_part:
        raise Refusal(400, "EntityTooLarge", "Your proposed upload exceeds the maximum allowed size")
    part = StoredPart(
        number=number,
        data=data,
        md5=md5,
        etag=etag_of(md5, state, upload.attributes.encryption),
        modified=state.now(),
        checksums=checksums,
    )
    if number in upload.parts:
        upload.replaced.append(upload.parts[number])
    upload.parts[number] = part
    return part


def upload_part_copy(call: Call) -> Answer:
    """Fill a part from a range of an object."""
    state, asked = call.state, call.asked
    _bucket, upload = _open_upload(call)
    number = _part_number(state, asked)
    data = copy_source(state, asked).data
    wanted = asked.headers.get("x-amz-copy-source-range")
    if wanted is not None:
        found = _COPY_RANGE.fullmatch(wanted)
        if found is None or not int(found[1]) <= int(found[2]) < len(data):
            raise Refusal(416, "InvalidRange", "The requested range is not satisfiable")
        data = data[int(found[1]) : int(found[2]) + 1]
    checksums = {upload.algorithm: checksum(upload.algorithm, [data])} if upload.algorithm else {}
    md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
    part = _take(state, upload, number, data, md5, checksums)
    nodes = [("ETag", f'"{part.etag}"'), *_checksum_nodes(state, part.checksums)]
    return xml_answer(document("CopyPartResult", *nodes))


def _checksum_nodes(state: State, checksums: Mapping[Algorithm, str]) -> list[Node]:
    named = checksum_headers(state, checksums)
    return [(algorithm.element, value) for algorithm, value in checksums.items() if algorithm.header in named]


def list_parts(call: Call) -> Answer:
    """List the parts of an upload."""
    state, asked = call.state, call.asked
    bucket, upload = _open_upload(call)
    marker = asked.number("part-number-marker", 0)
    size = min(asked.number("max-parts", 1_000), state.behaviour.list_page)
    held = [*(upload.replaced if state.behaviour.lists_replaced_parts else ()), *upload.parts.values()]
    after = sorted((part for part in held if part.number > marker), key=lambda part: part.number)
    page = after[:size]
    nodes: list[Node] = [
        ("Bucket", bucket.name),
        ("Key", upload.key),
        ("UploadId", upload.upload_id),
        ("PartNumberMarker", marker),
        ("NextPartNumberMarker", page[-1].number if page else 0),
        ("MaxParts", size),
        ("IsTruncated", len(after) > size),
        *(("Part", _listed_part(state, part)) for part in page),
    ]
    return xml_answer(document("ListPartsResult", *nodes))


def _listed_part(state: State, part: StoredPart) -> list[Node]:
    named = _checksum_nodes(state, part.checksums) if state.behaviour.lists_part_checksums else []
    return [
        ("PartNumber", part.number),
        ("LastModified", part.modified.strftime("%Y-%m-%dT%H:%M:%S.000Z")),
        ("ETag", f'"{part.etag}"'),
        ("Size", len(part.data)),
        *named,
    ]


def list_uploads(call: Call) -> Answer:
    """List the uploads under way; all of them in one page."""
    state, asked = call.state, call.asked
    bucket = call.bucket
    state.expire_uploads(bucket)
    prefix = asked.query.get("prefix", "")
    found = sorted((u for u in bucket.uploads.values() if u.key.startswith(prefix)), key=lambda u: (u.key, u.started))
    nodes: list[Node] = [("Bucket", bucket.name), ("Prefix", prefix), ("IsTruncated", False)]
    nodes += [
        (
            "Upload",
            [
                ("Key", upload.key),
                ("UploadId", upload.upload_id),
                ("Initiated", upload.initiated.strftime("%Y-%m-%dT%H:%M:%S.000Z")),
            ],
        )
        for upload in found
    ]
    return xml_answer(document("ListMultipartUploadsResult", *nodes))


def abort_upload(call: Call) -> Answer:
    """Forget an upload."""
    bucket, upload = _open_upload(call)
    del bucket.uploads[upload.upload_id]
    return Answer(status=204)


def complete_upload(call: Call) -> Answer:
    """Join parts to an object."""
    state, asked = call.state, call.asked
    remembered = call.bucket.completed.get(asked.query.get("uploadId", ""))
    if remembered is not None:
        return remembered
    try:
        return _padded(state.behaviour.padding, _complete(call))
    except Refusal as refusal:
        if state.behaviour.padding is Padding.NONE:
            raise
        # The status had been sent before the refusal was known.
        return _padded(state.behaviour.padding, xml_answer(refusal.document(asked.resource)))


def _padded(padding: Padding, answer: Answer) -> Answer:
    if padding is Padding.NONE:
        return answer
    content = bytes(answer.body).removeprefix(DECLARATION)
    first, second = (DECLARATION, _SPACES) if padding is Padding.AFTER_DECLARATION else (_SPACES, DECLARATION)
    return xml_answer(first + second + content, answer.headers)


def _complete(call: Call) -> Answer:
    state, asked = call.state, call.asked
    bucket, upload = _open_upload(call)
    chosen = _chosen(call.body.data)
    parts = [_matching(state.behaviour, upload, each) for each in chosen]
    check_sizes(state.behaviour, parts)
    data = b"".join(part.data for part in parts)
    checksums = _object_checksums(upload, parts, data)
    _check_promises(state, asked, data, checksums)
    check_write(asked, state.behaviour, bucket.current(asked.key))
    state.check_pace(bucket, asked.key)
    written = StoredObject(
        version=state.version_for(bucket),
        data=data,
        etag=_joined_etag(state, upload, parts),
        modified=state.now(),
        attributes=upload.attributes,
        checksums=checksums,
        checksum_type=upload.checksum_type,
    )
    state.write(bucket, asked.key, written)
    del bucket.uploads[upload.upload_id]
    headers = written_headers(state, written)
    named = _checksum_nodes(state, checksums)
    nodes: list[Node] = [
        ("Location", f"/{bucket.name}/{asked.key}"),
        ("Bucket", bucket.name),
        ("Key", asked.key),
        ("ETag", headers.pop("ETag")),
        *named,
        *([("ChecksumType", upload.checksum_type)] if named else []),
    ]
    kept = {name: value for name, value in headers.items() if not name.startswith("x-amz-checksum-")}
    answer = xml_answer(document("CompleteMultipartUploadResult", *nodes), kept)
    if state.behaviour.remembers_completed:
        bucket.completed[upload.upload_id] = answer
    return answer


def _chosen(body: bytes) -> list[Chosen]:
    root = parse(body)
    parts = root.findall("Part") if root is not None else []
    numbers = [part.findtext("PartNumber", "") for part in parts]
    if not parts or not all(number.isdecimal() for number in numbers):
        raise Refusal(400, "MalformedXML", "The XML you provided was not well-formed or did not validate")
    chosen = [
        Chosen(
            number=int(number),
            etag=part.findtext("ETag", "").strip('"'),
            checksums={a: part.findtext(a.element, "") for a in Algorithm if part.find(a.element) is not None},
        )
        for number, part in zip(numbers, parts, strict=True)
    ]
    if any(later.number <= earlier.number for earlier, later in pairwise(chosen)):
        raise Refusal(400, "InvalidPartOrder", "The list of parts was not in ascending order.")
    return chosen


def _matching(behaviour: Behaviour, upload: OpenUpload, chosen: Chosen) -> StoredPart:
    held = upload.parts.get(chosen.number)
    if held is None or held.etag != chosen.etag:
        raise Refusal(400, "InvalidPart", f"One or more of the specified parts could not be found: {chosen.number}")
    if behaviour.checksums is not ChecksumRule.CHECKED:
        return held
    for algorithm, value in chosen.checksums.items():
        if held.checksums.get(algorithm) != value:
            raise Refusal(400, "InvalidPart", f"The checksum of part {chosen.number} is not the one that was stored.")
    wanted = upload.algorithm
    if wanted is not None and upload.checksum_type is ChecksumType.COMPOSITE and wanted not in chosen.checksums:
        message = f"The upload was created using a {wanted} checksum: it was missing for part {chosen.number}"
        raise Refusal(400, "InvalidRequest", message)
    return held


def check_sizes(behaviour: Behaviour, parts: Sequence[StoredPart]) -> None:
    """Refuse parts that make no object of this store."""
    sizes = [len(part.data) for part in parts]
    if any(size < behaviour.min_part for size in sizes[:-1]):
        raise Refusal(400, "EntityTooSmall", "Your proposed upload is smaller than the minimum allowed object size.")
    unequal = len(set(sizes[:-1])) > 1 or sizes[-1] > sizes[0]
    if behaviour.equal_parts and unequal:
        raise Refusal(400, "InvalidPart", "All non-trailing parts must have the same length. (10048)")
    if sum(sizes) > behaviour.max_object:
        raise Refusal(400, "EntityTooLarge", "Your proposed upload exceeds the maximum allowed object size.")


def _object_checksums(upload: OpenUpload, parts: Sequence[StoredPart], data: bytes) -> dict[Algorithm, str]:
    algorithm = upload.algorithm
    if algorithm is None:
        return {}
    if upload.checksum_type is ChecksumType.FULL_OBJECT:
        return {algorithm: checksum(algorithm, [data])}
    return {algorithm: composite(algorithm, (part.checksums[algorithm] for part in parts))}


def _check_promises(state: State, asked: Asked, data: bytes, checksums: Mapping[Algorithm, str]) -> None:
    behaviour = state.behaviour
    size = asked.headers.get("x-amz-mp-object-size")
    if behaviour.checks_object_size and size is not None and size != str(len(data)):
        message = (
            f"The provided 'x-amz-mp-object-size' header value {size} does not match what was computed: {len(data)}"
        )
        raise Refusal(400, "InvalidRequest", message)
    if behaviour.checksums is not ChecksumRule.CHECKED:
        return
    for algorithm, computed in checksums.items():
        stated = asked.headers.get(algorithm.header)
        if stated is not None and stated.partition("-")[0] != computed.partition("-")[0]:
            raise Refusal(400, "BadDigest", f"The {algorithm} you specified did not match what we received.")


def _joined_etag(state: State, upload: OpenUpload, parts: Sequence[StoredPart]) -> str:
    formula = state.behaviour.etags is EtagRule.MD5 and upload.attributes.encryption != Encryption.KMS
    if not formula:
        return f"{state.token()}-{len(parts)}"
    joined = b"".join(bytes.fromhex(part.md5) for part in parts)
    return f"{hashlib.md5(joined, usedforsecurity=False).hexdigest()}-{len(parts)}"
