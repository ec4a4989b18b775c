"""Objects in parts on the emulated store: every rule, with what it refuses and that nothing came of it."""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from support.emulated import Open, refused, send, signed_headers, workbench

from tiers.clock import SystemClock
from tiers.s3_sdk import ClientError, exceptions
from tiers.testing import ManualClock, content
from tiers.testing.s3_emulator import (
    AWS,
    BUCKET,
    CEPH_RGW,
    GENERIC,
    R2,
    RUNPOD,
    SEAWEED,
    STORES_WRONG_CHECKSUMS,
    Action,
    Algorithm,
    Behaviour,
    ConditionRule,
    Encryption,
    Fault,
    Padding,
    When,
    checksum,
    composite,
)

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client

PART = 1_000
SMALL = replace(AWS, min_part=PART)
PIECES = [content(PART), content(PART, seed=1), content(7, seed=2)]


@pytest.fixture
def run() -> Iterator[Open]:
    with workbench() as start:
        yield start


class Upload:
    """An upload by plain calls."""

    def __init__(self, s3: "S3Client", key: str = "k", **fields: Any) -> None:
        self.s3 = s3
        self.names: dict[str, str] = {"Bucket": BUCKET, "Key": key}
        self.names["UploadId"] = s3.create_multipart_upload(Bucket=BUCKET, Key=key, **fields)["UploadId"]

    def part(self, number: int, data: bytes, **fields: Any) -> dict[str, Any]:
        answer = self.s3.upload_part(**self.names, PartNumber=number, Body=data, **fields)  # type: ignore[arg-type]
        named = {name: value for name, value in answer.items() if name.startswith("Checksum")}
        return {"PartNumber": number, "ETag": answer["ETag"], **named}

    def parts(self, pieces: list[bytes]) -> list[dict[str, Any]]:
        return [self.part(number, piece) for number, piece in enumerate(pieces, 1)]

    def complete(self, parts: list[dict[str, Any]], **fields: Any) -> Any:
        chosen: Any = {"Parts": parts}
        return self.s3.complete_multipart_upload(**self.names, MultipartUpload=chosen, **fields)  # type: ignore[arg-type]

    def listed(self, **fields: Any) -> Any:
        return self.s3.list_parts(**self.names, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("algorithm", ["SHA256", "SHA1", "CRC32"])
def test_an_upload_with_composite_checksums(run: Open, algorithm: Any) -> None:
    emulator, s3 = run(SMALL)
    upload = Upload(s3, ChecksumAlgorithm=algorithm)
    parts = [upload.part(n, piece, ChecksumAlgorithm=algorithm) for n, piece in enumerate(PIECES, 1)]
    kind, field = Algorithm(algorithm.lower()), f"Checksum{algorithm}"
    assert [part[field] for part in parts] == [checksum(kind, [piece]) for piece in PIECES]
    done = upload.complete(parts)
    whole = composite(kind, (part[field] for part in parts))
    assert (done[field], done["ChecksumType"]) == (whole, "COMPOSITE")
    told = s3.head_object(Bucket=BUCKET, Key="k", ChecksumMode="ENABLED")
    assert (told[field], told["ChecksumType"]) == (whole, "COMPOSITE")  # type: ignore[literal-required]
    assert emulator.objects() == {"k": b"".join(PIECES)}
    assert emulator.uploads() == {}


def test_an_upload_with_a_full_object_checksum(run: Open) -> None:
    _, s3 = run(SMALL)
    upload = Upload(s3, ChecksumAlgorithm="CRC32", ChecksumType="FULL_OBJECT")
    parts = upload.parts(PIECES)
    whole = checksum(Algorithm.CRC32, PIECES)
    with pytest.raises(ClientError, match="BadDigest"):
        upload.complete(parts, ChecksumCRC32=checksum(Algorithm.CRC32, PIECES[:1]))
    assert upload.complete(parts, ChecksumCRC32=whole)["ChecksumCRC32"] == whole
    assert s3.head_object(Bucket=BUCKET, Key="k", ChecksumMode="ENABLED")["ChecksumType"] == "FULL_OBJECT"


@pytest.mark.parametrize(
    ("behaviour", "algorithm", "kind"),
    [(AWS, "SHA256", "FULL_OBJECT"), (AWS, "CRC64NVME", "COMPOSITE"), (R2, "CRC32", "FULL_OBJECT"), (AWS, "X", None)],
)
def test_checksum_types_that_a_store_has_not(run: Open, behaviour: Behaviour, algorithm: Any, kind: Any) -> None:
    emulator, s3 = run(behaviour)
    with refused(400, "InvalidRequest", emulator):
        Upload(s3, ChecksumAlgorithm=algorithm, **({"ChecksumType": kind} if kind else {}))


@pytest.mark.parametrize(
    ("behaviour", "is_formula"),
    [(AWS, True), (R2, False), (replace(AWS, encryption=Encryption.KMS), False), (GENERIC, False)],
    ids=["aws", "r2", "kms", "generic"],
)
def test_the_etag_formula(run: Open, behaviour: Behaviour, is_formula: bool) -> None:
    """The MD5 of the parts' MD5s, where the store uses it."""
    _, s3 = run(replace(behaviour, min_part=PART))
    upload = Upload(s3)
    etag = upload.complete(upload.parts(PIECES))["ETag"]
    digests = b"".join(hashlib.md5(piece).digest() for piece in PIECES)
    assert (etag == f'"{hashlib.md5(digests).hexdigest()}-3"') is is_formula


def test_a_part_is_checked_as_an_object_is(run: Open) -> None:
    emulator, s3 = run(SMALL)
    upload = Upload(s3, ChecksumAlgorithm="SHA256")
    wrong = checksum(Algorithm.SHA256, [b"other"])
    with refused(400, "BadDigest", emulator):
        upload.part(1, PIECES[0], ChecksumSHA256=wrong)
    with refused(400, "BadDigest", emulator):
        upload.part(1, PIECES[0], ContentMD5="AAAAAAAAAAAAAAAAAAAAAA==", ChecksumAlgorithm="SHA256")
    with refused(400, "InvalidRequest", emulator):
        upload.part(1, PIECES[0], ChecksumAlgorithm="CRC32")
    assert "Parts" not in upload.listed()


def test_a_store_that_takes_wrong_checksums_of_parts_for_true(run: Open) -> None:
    _, s3 = run(replace(STORES_WRONG_CHECKSUMS, min_part=PART))
    upload = Upload(s3, ChecksumAlgorithm="SHA256")
    wrong = checksum(Algorithm.SHA256, [b"other"])
    part = upload.part(1, PIECES[0], ChecksumSHA256=wrong)
    assert upload.complete([part])["ChecksumSHA256"] == composite(Algorithm.SHA256, [wrong])


def test_part_numbers(run: Open) -> None:
    emulator, s3 = run(replace(AWS, max_parts=10))
    upload = Upload(s3)
    upload.part(10, b"x")
    for number in (0, 11):
        with refused(400, "InvalidArgument", emulator):
            upload.part(number, b"x")


def test_the_largest_part(run: Open) -> None:
    emulator, s3 = run(replace(SMALL, max_part=PART))
    upload = Upload(s3)
    upload.part(1, bytes(PART))
    with refused(400, "EntityTooLarge", emulator):
        upload.part(1, bytes(PART + 1))


def test_listing_parts(run: Open) -> None:
    emulator, s3 = run(replace(SMALL, list_page=2))
    upload = Upload(s3, ChecksumAlgorithm="SHA256")
    sent = [upload.part(n, bytes(n), ChecksumAlgorithm="SHA256") for n in (5, 1, 3)]
    first = upload.listed(MaxParts=1_000)
    assert ([part["PartNumber"] for part in first["Parts"]], first["IsTruncated"]) == ([1, 3], True)
    rest = upload.listed(PartNumberMarker=first["NextPartNumberMarker"])
    (last,) = rest["Parts"]
    assert (last["PartNumber"], last["Size"], rest["IsTruncated"]) == (5, 5, False)
    assert (last["ETag"], last["ChecksumSHA256"]) == (sent[0]["ETag"], sent[0]["ChecksumSHA256"])
    upload.part(5, b"again", ChecksumAlgorithm="SHA256")
    assert emulator.footprint().parts == 1 + 3 + 5


def test_stores_that_list_parts_in_their_own_way(run: Open) -> None:
    """SeaweedFS gives no checksums, and goes on listing what was replaced."""
    _, s3 = run(replace(SEAWEED, min_part=PART))
    upload = Upload(s3, ChecksumAlgorithm="SHA256")
    old = upload.part(1, b"old", ChecksumAlgorithm="SHA256")
    new = upload.part(1, b"new", ChecksumAlgorithm="SHA256")
    listed = upload.listed()["Parts"]
    assert {part["ETag"] for part in listed} == {old["ETag"], new["ETag"]}
    assert not [part for part in listed if "ChecksumSHA256" in part]


PARTS_REFUSED: dict[str, tuple[Behaviour, list[bytes], str]] = {
    "too small": (SMALL, [bytes(PART - 1), b"x"], "EntityTooSmall"),
    "unequal": (replace(R2, min_part=1), [bytes(10), bytes(11), b"x"], "InvalidPart"),
    "last larger": (replace(R2, min_part=1), [bytes(10), bytes(11)], "InvalidPart"),
    "object too large": (replace(SMALL, max_object=PART), PIECES, "EntityTooLarge"),
}


@pytest.mark.parametrize(("behaviour", "pieces", "code"), PARTS_REFUSED.values(), ids=PARTS_REFUSED)
def test_sizes_that_make_no_object(run: Open, behaviour: Behaviour, pieces: list[bytes], code: str) -> None:
    emulator, s3 = run(behaviour)
    upload = Upload(s3)
    parts = upload.parts(pieces)
    with refused(400, code, emulator) as caught:
        upload.complete(parts)
    assert ("10048" in str(caught.value)) is (code == "InvalidPart")


@pytest.mark.parametrize("behaviour", [replace(R2, min_part=1), RUNPOD, replace(AWS, min_part=1)], ids=lambda b: b.name)
def test_sizes_that_do(run: Open, behaviour: Behaviour) -> None:
    emulator, s3 = run(behaviour)
    for number, pieces in enumerate(([b"only"], [b"22", b"22"], [b"22", b"1"], [b""])):
        upload = Upload(s3, key=str(number))
        upload.complete(upload.parts(pieces))
        assert emulator.objects()[str(number)] == b"".join(pieces)


def test_parts_that_are_not_there(run: Open) -> None:
    emulator, s3 = run(SMALL)
    upload = Upload(s3)
    parts = upload.parts(PIECES)
    with refused(400, "InvalidPart", emulator):
        upload.complete([{**parts[0], "ETag": '"0123"'}, *parts[1:]])
    with refused(400, "InvalidPart", emulator):
        upload.complete([*parts, {**parts[0], "PartNumber": 4}])
    with refused(400, "InvalidPart", emulator):
        upload.complete([{**parts[0], "ChecksumCRC32": "AAAAAA=="}, *parts[1:]])
    for wrong in ([parts[1], parts[0]], [parts[0], parts[0]]):
        with refused(400, "InvalidPartOrder", emulator):
            upload.complete(wrong)
    with refused(400, "MalformedXML", emulator):
        upload.complete([])
    upload.complete(parts)
    assert emulator.objects() == {"k": b"".join(PIECES)}


def test_complete_wants_the_checksums_that_the_upload_keeps(run: Open) -> None:
    emulator, s3 = run(SMALL)
    upload = Upload(s3, ChecksumAlgorithm="SHA256")
    part = upload.part(1, b"x", ChecksumAlgorithm="SHA256")
    with refused(400, "InvalidRequest", emulator):
        upload.complete([{"PartNumber": 1, "ETag": part["ETag"]}])
    with refused(400, "BadDigest", emulator):
        upload.complete([part], ChecksumSHA256=checksum(Algorithm.SHA256, [b"other"]))
    upload.complete([part])


def test_complete_compares_the_size(run: Open) -> None:
    emulator, s3 = run(SMALL)
    upload = Upload(s3)
    parts = upload.parts(PIECES)
    with refused(400, "InvalidRequest", emulator):
        upload.complete(parts[:2], MpuObjectSize=2 * PART + 7)
    upload.complete(parts, MpuObjectSize=2 * PART + 7)
    _, ceph = run(replace(CEPH_RGW, min_part=PART))
    other = Upload(ceph)
    other.complete(other.parts(PIECES), MpuObjectSize=1)


def test_complete_of_what_is_no_xml(run: Open) -> None:
    emulator, s3 = run(SMALL)
    upload = Upload(s3)
    target = f"/{BUCKET}/k?uploadId={upload.names['UploadId']}"
    for body in (b"", b"<Complete", b"<CompleteMultipartUpload><Part><PartNumber>x</PartNumber></Part></C>"):
        assert send(emulator, "POST", target, signed_headers(emulator, "POST", target, {}), body).code == "MalformedXML"
    assert emulator.objects() == {}


@pytest.mark.parametrize(
    ("behaviour", "status"),
    [(SMALL, 412), (replace(SMALL, complete_if_absent=ConditionRule.REFUSED), 501), (replace(R2, min_part=PART), 200)],
    ids=["checked", "refused", "ignored"],
)
def test_complete_if_absent(run: Open, behaviour: Behaviour, status: int) -> None:
    emulator, s3 = run(behaviour)
    emulator.put("k", b"there")
    upload = Upload(s3)
    parts = upload.parts(PIECES)
    if status == 200:
        upload.complete(parts, IfNoneMatch="*")
        assert emulator.objects() == {"k": b"".join(PIECES)}
        return
    with refused(status, {412: "PreconditionFailed", 501: "NotImplemented"}[status], emulator):
        upload.complete(parts, IfNoneMatch="*")
    s3.delete_object(Bucket=BUCKET, Key="k")
    if status == 412:
        upload.complete(parts, IfNoneMatch="*")
        assert emulator.objects() == {"k": b"".join(PIECES)}


def test_an_upload_that_is_gone(run: Open) -> None:
    emulator, s3 = run(SMALL)
    upload = Upload(s3)
    parts = upload.parts(PIECES)
    assert emulator.uploads() == {upload.names["UploadId"]: ("k", (1, 2, 3))}
    s3.abort_multipart_upload(**upload.names)  # type: ignore[arg-type]
    assert emulator.uploads() == {}
    for act in (
        lambda: upload.part(1, b"x"),
        upload.listed,
        lambda: upload.complete(parts),
        lambda: s3.abort_multipart_upload(**upload.names),  # type: ignore[arg-type]
    ):
        with refused(404, "NoSuchUpload", emulator):
            act()
    other = Upload(s3, key="other")
    other.names["Key"] = "k"
    with refused(404, "NoSuchUpload", emulator):
        other.part(1, b"x")


@pytest.mark.parametrize("remembers", [False, True])
def test_a_complete_whose_reply_was_lost(run: Open, remembers: bool) -> None:
    emulator, s3 = run(replace(SMALL, remembers_completed=remembers))
    upload = Upload(s3)
    parts = upload.parts(PIECES)
    emulator.inject(Fault(operation="CompleteMultipartUpload", when=When.AFTER, action=Action.DROP))
    with pytest.raises(exceptions.HTTPClientError):
        upload.complete(parts)
    assert len(emulator.fired) == 1
    assert emulator.objects() == {"k": b"".join(PIECES)}
    if remembers:
        assert upload.complete(parts)["ETag"]
    else:
        with refused(404, "NoSuchUpload", emulator):
            upload.complete(parts)


def test_uploads_expire(run: Open) -> None:
    clock = ManualClock(SystemClock().now())
    emulator, s3 = run(replace(SMALL, upload_lifetime=timedelta(minutes=2)), clock=clock)
    upload = Upload(s3)
    upload.part(1, b"x")
    clock.advance(119)
    assert [each["UploadId"] for each in s3.list_multipart_uploads(Bucket=BUCKET)["Uploads"]] == [
        upload.names["UploadId"]
    ]
    clock.advance(1)
    assert emulator.uploads() == {}
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=BUCKET)
    with refused(404, "NoSuchUpload", emulator):
        upload.listed()
    assert emulator.footprint().parts == 0


@pytest.mark.parametrize("padding", [Padding.AFTER_DECLARATION, Padding.BEFORE_DECLARATION])
def test_a_complete_that_began_its_answer_early(run: Open, padding: Padding) -> None:
    """The status is 200 before anything is known; the SDK makes an error of a bad body, and of one it cannot read."""
    emulator, s3 = run(replace(SMALL, padding=padding))
    upload = Upload(s3)
    parts = upload.parts(PIECES)
    readable = padding is Padding.AFTER_DECLARATION
    with refused(500, "InvalidPart" if readable else "500", emulator):
        upload.complete([{**parts[0], "ETag": '"0"'}])
    assert emulator.requests[-1].status == 200
    if readable:
        assert upload.complete(parts)["ETag"].endswith('-3"')
    else:
        with pytest.raises(ClientError):
            upload.complete(parts)
    assert emulator.objects() == {"k": b"".join(PIECES)}


def test_parts_filled_inside_the_store(run: Open) -> None:
    emulator, s3 = run(SMALL)
    data = content(5_000)
    etag = s3.put_object(Bucket=BUCKET, Key="source", Body=data)["ETag"]
    upload = Upload(s3, ChecksumAlgorithm="SHA256")

    def copy(number: int, **fields: Any) -> Any:
        source: Any = {"Bucket": BUCKET, "Key": "source"}
        fields = {"CopySourceIfMatch": etag, **fields}
        return s3.upload_part_copy(**upload.names, PartNumber=number, CopySource=source, **fields)["CopyPartResult"]  # type: ignore[arg-type]

    parts = [{"PartNumber": 1, **copy(1, CopySourceRange="bytes=7-1006")}, {"PartNumber": 2, **copy(2)}]
    assert parts[0]["ChecksumSHA256"] == checksum(Algorithm.SHA256, [data[7:1_007]])
    with refused(412, "PreconditionFailed", emulator):
        copy(3, CopySourceIfMatch='"e"')
    with refused(416, "InvalidRange", emulator):
        copy(3, CopySourceRange="bytes=4999-5000")
    upload.complete([{name: part[name] for name in ("PartNumber", "ETag", "ChecksumSHA256")} for part in parts])
    assert emulator.objects()["k"] == data[7:1_007] + data


def test_a_store_that_copies_whatever_is_there(run: Open) -> None:
    emulator, s3 = run(replace(SMALL, copy_if_match=False))
    emulator.put("source", b"x")
    upload = Upload(s3)
    source: Any = {"Bucket": BUCKET, "Key": "source"}
    s3.upload_part_copy(**upload.names, PartNumber=1, CopySource=source, CopySourceIfMatch='"e"')  # type: ignore[arg-type]


def test_stores_that_copy_no_parts(run: Open) -> None:
    emulator, s3 = run(GENERIC)
    emulator.put("source", b"x")
    upload = Upload(s3)
    source: Any = {"Bucket": BUCKET, "Key": "source"}
    with refused(501, "NotImplemented", emulator):
        s3.upload_part_copy(**upload.names, PartNumber=1, CopySource=source)  # type: ignore[arg-type]
