"""Uploads in parts on a real server: digests, resumption, lost replies."""

import hashlib
import json
import tracemalloc
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from support.proxy import Action, Fault, FaultProxy, When
from support.s3_tiers import RawS3, s3_tier

from tiers.bodies import BytesBody, FileSlice
from tiers.errors import IntegrityError, TierUnavailable
from tiers.protocol import Key, Part, Tier, Upload, all_parts
from tiers.s3 import S3Tier
from tiers.testing import content

PART = 5 << 20
KEY = Key("a/b")


def send(tier: Tier, upload: Upload, data: bytes, numbers: tuple[int, ...]) -> dict[int, Part]:
    pieces = {n: data[(n - 1) * upload.part_size : n * upload.part_size] for n in numbers}
    return {n: tier.put_part(upload, n, BytesBody(piece)) for n, piece in pieces.items()}


def composite(data: bytes, part_size: int) -> str:
    """Return the file digest of the design: SHA-256 over the leaves' binary digests."""
    leaves = [data[start : start + part_size] for start in range(0, len(data), part_size)]
    return hashlib.sha256(b"".join(hashlib.sha256(leaf).digest() for leaf in leaves)).hexdigest()


def test_a_part_is_not_copied_into_memory(s3: S3Tier, tmp_path: Path) -> None:
    size = 64 << 20
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(size)
    digest = hashlib.sha256(bytes(size)).hexdigest()
    upload = s3.begin_upload(KEY, size=size, part_size=size)
    tracemalloc.start()
    try:
        part = s3.put_part(upload, 1, FileSlice(path=path, start=0, size=size, sha256=digest))
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    s3.abort(upload)
    assert part.sha256 == digest
    assert peak < 8 << 20


def test_composite_is_the_file_digest(s3: S3Tier) -> None:
    data = content(2 * PART + 17)
    upload = s3.begin_upload(KEY, size=len(data), part_size=PART)
    parts = send(s3, upload, data, (1, 2, 3))
    done = s3.complete(upload, [parts[n] for n in (1, 2, 3)])
    assert done.sha256 == composite(data, PART)
    stat = s3.stat(KEY)
    assert (stat.sha256, stat.size, stat.etag) == (done.sha256, len(data), done.etag)


def test_a_part_without_digest_is_hashed(s3: S3Tier, tmp_path: Path) -> None:
    """A store that keeps SHA-256 takes no part without one."""
    upload = s3.begin_upload(KEY, size=3, part_size=PART)
    path = tmp_path / "abc"
    path.write_bytes(b"abc")
    part = s3.put_part(upload, 1, FileSlice(path=path, start=0, size=3, sha256=None))
    assert part.sha256 == hashlib.sha256(b"abc").hexdigest()


@pytest.mark.parametrize(
    "body", [b"<Error><Code>InternalError</Code></Error>", b"<CompleteMultipartUploadResult/>", b""]
)
def test_a_complete_that_says_200_and_fails(s3: S3Tier, proxy: FaultProxy, body: bytes) -> None:
    upload = s3.begin_upload(KEY, size=PART, part_size=PART)
    parts = send(s3, upload, content(PART), (1,))
    headers = {"Content-Type": "application/xml"}
    proxy.inject(
        Fault(operation="CompleteMultipartUpload", action=Action.STATUS, status=200, headers=headers, body=body)
    )
    with pytest.raises(TierUnavailable):
        s3.complete(upload, [parts[1]])
    assert len(proxy.fired) == 1
    assert s3.complete(upload, [parts[1]]).size == PART


def test_resume_sends_only_what_is_missing(proxy: FaultProxy, prefix: str) -> None:
    """The upload and its parts go through a journal; the process and its connections are gone."""
    data = content(3 * PART)
    first = s3_tier(proxy.endpoint_url, prefix)
    upload = first.begin_upload(KEY, size=len(data), part_size=PART)
    accepted = send(first, upload, data, (1,))
    proxy.inject(Fault(operation="UploadPart", when=When.MID_BODY, action=Action.DROP))
    with pytest.raises(TierUnavailable):
        send(first, upload, data, (2,))
    first.close()
    journal = json.dumps([asdict(upload), [asdict(part) for part in accepted.values()]])

    kept_upload, kept_parts = json.loads(journal)
    upload, known = Upload(**kept_upload), {part["number"]: Part(**part) for part in kept_parts}
    second = s3_tier(proxy.endpoint_url, prefix)
    listed = {part.number: part for part in all_parts(second, upload)}
    held = {n: part for n, part in known.items() if n in listed and listed[n].etag == part.etag}
    assert sorted(held) == [1]
    held |= send(second, upload, data, (2, 3))
    done = second.complete(upload, [held[n] for n in (1, 2, 3)])
    assert done.sha256 == composite(data, PART)
    assert [r.status for r in proxy.requests if r.operation == "UploadPart"] == [200, None, 200, 200]
    second.close()


def test_a_lost_reply_of_complete(s3: S3Tier, proxy: FaultProxy) -> None:
    """The caller stats the key and finds what it sealed."""
    upload = s3.begin_upload(KEY, size=PART, part_size=PART)
    parts = send(s3, upload, content(PART), (1,))
    proxy.inject(Fault(operation="CompleteMultipartUpload", when=When.AFTER, action=Action.DROP))
    with pytest.raises(TierUnavailable):
        s3.complete(upload, [parts[1]])
    assert s3.stat(KEY).sha256 == composite(content(PART), PART)


def test_a_replaced_part_is_the_one_that_is_completed(s3: S3Tier, raw_s3: RawS3) -> None:
    """SeaweedFS lists both; neither is reported, and Complete takes the one that it is given."""
    data = content(PART + 9)
    upload = s3.begin_upload(KEY, size=len(data), part_size=PART)
    send(s3, upload, content(PART, seed=5), (1,))
    parts = send(s3, upload, data, (1, 2))
    assert list(all_parts(s3, upload)) == [replace(parts[2], sha256=None)]
    s3.complete(upload, [parts[1], parts[2]])
    assert raw_s3.get(KEY) == data


def test_complete_wants_every_digest(s3: S3Tier) -> None:
    upload = s3.begin_upload(KEY, size=PART, part_size=PART)
    parts = send(s3, upload, content(PART), (1,))
    with pytest.raises(IntegrityError, match="part 1 comes without"):
        s3.complete(upload, [replace(parts[1], sha256=None)])
