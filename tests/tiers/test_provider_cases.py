"""What went wrong for people with particular stores, each as a test; the numbers are those of the case list."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from cli.driver import Project
from pydantic import ValidationError
from support.emulated import s3_client
from support.provider_stores import SMALL, Unhurried, emulated, opened, scaled, spec_for
from support.seaweed import BUCKET

from replicate.config import MIB, TierConfig
from replicate.errors import CapabilityMissing, ExitCode
from replicate.manifest import GenerationRecord, SealedFile
from replicate.plan import choose_part_size, plan_upload
from tiers.bodies import BytesBody
from tiers.clock import SystemClock
from tiers.errors import AccessDenied, CapacityExceeded, ObjectNotFound, TierError, TierUnavailable
from tiers.opening import open_tier
from tiers.probing.s3_probe import probe_s3
from tiers.profiles import PROFILES
from tiers.protocol import Fencing, Key, Part, Tier, Upload, all_parts, walk
from tiers.s3_sdk import ClientError
from tiers.testing import content, upload_all
from tiers.testing.base import send_parts
from tiers.testing.s3_emulator import (
    AWS,
    IGNORES_PUT_IF_ABSENT,
    R2,
    SEAWEED,
    Action,
    Fault,
    Lie,
    LieKind,
    Padding,
    S3Emulator,
    When,
)

if TYPE_CHECKING:
    pass

KEY = Key("a/b")


# C33: a Complete that answers 200 and did not happen


@pytest.mark.parametrize("code", ["InternalError", "SlowDown"])
def test_c33_complete_says_200_with_an_error_in_it(code: str) -> None:
    with emulated(scaled(AWS)) as emulator, opened(emulator, "aws") as tier:
        data = content(SMALL + 9)
        upload = tier.begin_upload(KEY, size=len(data), part_size=5 * MIB)
        parts = send_parts(tier, upload, data)
        lie = Lie(operation="CompleteMultipartUpload", kind=LieKind.ERROR_IN_200, when=When.BEFORE, code=code)
        emulator.inject(lie)
        with pytest.raises(TierUnavailable):
            tier.complete(upload, parts)
        assert len(emulator.told) == 1
        with pytest.raises(ObjectNotFound):
            tier.stat(KEY)
        assert tier.complete(upload, parts).size == len(data), "the same parts are joined once more"
        assert emulator.objects() == {"root/a/b": data}


@pytest.mark.parametrize("padding", [Padding.AFTER_DECLARATION, Padding.BEFORE_DECLARATION])
def test_c33_white_space_that_keeps_the_connection_alive_hides_no_refusal(padding: Padding) -> None:
    with emulated(replace(AWS, padding=padding)) as emulator, opened(emulator, "aws") as tier:
        upload = tier.begin_upload(KEY, size=3, part_size=5 * MIB)
        tier.put_part(upload, 1, BytesBody(b"abc"))
        stale = Part(number=1, size=3, etag="0" * 32, sha256="0" * 64)
        with pytest.raises(TierError) as caught:
            tier.complete(upload, [stale])
        assert not isinstance(caught.value, ObjectNotFound)
        assert emulator.objects() == {}


# C41: R2 wants equal parts


def unequal_parts(emulator: S3Emulator, sizes: Sequence[int]) -> str:
    """Complete an object of these parts past the tier; return the code of the answer."""
    region = emulator.behaviour.location
    with s3_client(emulator, region=region, request_checksum_calculation="when_required") as client:
        target = {"Bucket": BUCKET, "Key": "unequal"}
        upload = client.create_multipart_upload(**target)["UploadId"]  # type: ignore[arg-type]
        parts: Any = []
        for number, size in enumerate(sizes, start=1):
            made = client.upload_part(**target, UploadId=upload, PartNumber=number, Body=bytes(size))  # type: ignore[arg-type]
            parts.append({"PartNumber": number, "ETag": made["ETag"]})
        try:
            client.complete_multipart_upload(**target, UploadId=upload, MultipartUpload={"Parts": parts})  # type: ignore[arg-type]
        except ClientError as error:
            return str(error.response["Error"]["Code"])
        return ""


def test_c41_the_emulator_is_as_strict_as_r2() -> None:
    with emulated(scaled(R2), clock=Unhurried()) as emulator:
        assert unequal_parts(emulator, (SMALL, SMALL + 1, 5)) == "InvalidPart"
        assert unequal_parts(emulator, (SMALL, SMALL + 1)) == "InvalidPart"
        assert unequal_parts(emulator, (SMALL, SMALL, 5)) == ""


@pytest.mark.parametrize("size", [5 * MIB + 1, 10 * MIB, 17 * MIB])
def test_c41_our_parts_are_equal(size: int) -> None:
    with emulated(R2, tls=True, clock=Unhurried()) as emulator, opened(emulator, "r2") as tier:
        data = content(size)
        upload_all(tier, KEY, data, 5 * MIB)
        sent = [request.received for request in emulator.requests if request.operation == "UploadPart"]
        assert set(sent[:-1]) == {5 * MIB}
        assert sent[-1] <= 5 * MIB
        assert emulator.objects() == {"root/a/b": data}


def test_c41_an_upload_is_resumed_with_its_own_part_size(tmp_path: Path) -> None:
    """It was killed, and the configuration has another part size since; what was sent is not sent again."""
    with emulated(R2) as emulator:
        project = Project(folder=tmp_path, tiers={"r2": f"s3://{BUCKET}/root"})
        keys: dict[str, Any] = {
            "endpoint_url": emulator.endpoint_url,
            "profile": "r2",
            "region": "auto",
            "connections": 1,
        }
        project.write(**keys, part_size=5 * MIB)
        project.publish(1, size=13 * MIB)
        denied = b"<Error><Code>AccessDenied</Code></Error>"
        emulator.inject(Fault(operation="UploadPart", nth=2, action=Action.STATUS, status=403, body=denied))
        assert project("replicate", "--once").code == ExitCode.DENIED
        assert len(emulator.fired) == 1
        project.write(**keys, part_size=6 * MIB)
        done = project("replicate", "--once")
        assert done.code == ExitCode.OK, done
        parts = [request for request in emulator.requests if request.operation == "UploadPart"]
        assert [part.received for part in parts if part.status == 200] == [5 * MIB, 5 * MIB, 3 * MIB]
        assert emulator.counts["CreateMultipartUpload"] == 1


# C42 and C43: part sizes, decided before the first byte


def described(size: int, leaf_size: int) -> SealedFile:
    """Describe a file that is only planned for; its digests do not matter."""
    leaves = ("0" * 64,) * min(2, -(-size // leaf_size))
    return SealedFile.model_construct(
        path="big.bin", size=size, mode=0o644, sha256="0" * 64, leaf_size=leaf_size, leaves=leaves
    )


GB, TB, TIB = 10**9, 10**12, 1 << 40


@pytest.mark.parametrize("profile", ["aws", "r2", "seaweedfs", "generic-s3", "scaleway", "runpod", "b2"])
@pytest.mark.parametrize("size", [48 * GB, 80 * GB, 1 * TB, 4 * TB])
def test_c42_the_part_size_is_raised_before_the_first_byte(profile: str, size: int) -> None:
    can = PROFILES[profile].capabilities
    file = described(size, 64 * MIB)
    if size > can.max_part * can.max_parts:
        with pytest.raises(CapabilityMissing, match=f"has {size} bytes, more than {can.max_parts} parts"):
            choose_part_size(file, can, 5 * MIB)
        return
    chosen = choose_part_size(file, can, 5 * MIB)
    assert can.min_part <= chosen <= can.max_part
    assert -(-size // chosen) <= can.max_parts


@pytest.mark.parametrize(
    ("profile", "size", "fits"),
    [("aws", 50 * TB, True), ("aws", 50 * TB + 1, False), ("r2", 5 * TIB, False), ("minio", 5 * TIB, True)],
)
def test_c42_what_no_object_can_hold_is_refused_with_the_number(profile: str, size: int, fits: bool) -> None:
    can = PROFILES[profile].capabilities
    record = GenerationRecord.model_construct(
        id="a0001-g000001-u000000000001-0123abcd", run="toy", files=(described(size, 1 << 33),)
    )
    if fits:
        assert choose_part_size(record.files[0], can, None) <= can.max_part
        return
    with pytest.raises(CapabilityMissing, match=f"big.bin has {size} bytes, the tier holds objects of at most"):
        plan_upload(record, "prefix/", can)


@pytest.mark.parametrize("value", ["5MB", "5MiB", 5_000_000, 4 * MIB, 5 * MIB - 1, 0, -1, 6 << 30])
def test_c43_a_part_size_that_no_store_takes_is_no_configuration(value: object) -> None:
    """Told when the configuration is read, not at Complete."""
    with pytest.raises(ValidationError, match="part_size"):
        TierConfig(name="r2", url="s3://bucket", part_size=value)  # type: ignore[arg-type]


def test_c43_the_smallest_part_is_of_binary_megabytes() -> None:
    assert TierConfig(name="r2", url="s3://bucket", part_size=5 * MIB).part_size == 5 * MIB
    assert {profile.min_part for profile in PROFILES.values()} == {5 * MIB}
    with emulated(AWS) as emulator:
        assert unequal_parts(emulator, (5_000_000, 5)) == "EntityTooSmall", "which is what would be seen at Complete"


# C53: conditions that are taken and ignored


def test_c53_two_writers_are_refused_where_conditions_are_ignored(tmp_path: Path) -> None:
    """The profile promises what this store does not do; the probe finds it, and neither machine may write."""
    with emulated(IGNORES_PUT_IF_ABSENT) as emulator:
        machines = []
        for name in ("one", "two"):
            project = Project(folder=tmp_path / name, tiers={"store": f"s3://{BUCKET}/root"})
            project.write(endpoint_url=emulator.endpoint_url, profile="aws", region="us-east-1")
            project.publish(1)
            machines.append(project)
        for project in machines:
            project("check", "--probe").says("writers: advisory", "a second one is taken, and replaces the first")
            assert project("replicate", "--once").code == ExitCode.CAPABILITY
        assert emulator.objects() == {}, "nobody wrote anything that stays"


def test_c53_the_probe_wins_over_the_profile() -> None:
    with emulated(IGNORES_PUT_IF_ABSENT) as emulator:
        spec = spec_for(emulator, "aws")
        report = probe_s3(spec, nonce="n1", clock=SystemClock())
        tier = open_tier(replace(spec, probed=report.facts), clock=SystemClock())
        assert tier.capabilities.fencing is Fencing.ADVISORY
        tier.close()
        assert [str(one) for one in report.contradictions] == [
            "writers are kept apart by advisory, not cas",
            "objects can be copied and proved: yes, not no",  # no profile claims it
        ]


# C61: errors that no retry cures

PERMANENT: dict[str, tuple[int, str, type[TierError]]] = {
    "denied": (403, "AccessDenied", AccessDenied),
    "quota": (403, "QuotaExceeded", CapacityExceeded),
    "unknown key": (401, "Unauthorized", AccessDenied),
    "no bucket": (404, "NoSuchBucket", AccessDenied),
    "precondition": (412, "PreconditionFailed", AccessDenied),
    "too large": (413, "EntityTooLarge", CapacityExceeded),
    "no code, too large": (413, "", CapacityExceeded),
    "no code, denied": (403, "", AccessDenied),
}
WRITES: dict[str, Callable[[Tier, Upload], object]] = {
    "PutObject": lambda tier, _: tier.put(KEY, BytesBody(b"x")),
    "CreateMultipartUpload": lambda tier, _: tier.begin_upload(KEY, size=1, part_size=5 * MIB),
    "UploadPart": lambda tier, upload: tier.put_part(upload, 1, BytesBody(b"abc")),
    "CompleteMultipartUpload": lambda tier, upload: tier.complete(
        upload, [Part(number=1, size=3, etag="0" * 32, sha256="0" * 64)]
    ),
}


@pytest.fixture(scope="module")
def refusing() -> Iterator[tuple[S3Emulator, Tier]]:
    with emulated(AWS) as emulator, opened(emulator, "aws", attempts=6) as tier:
        yield emulator, tier


def answering(operation: str, status: int, code: str, times: int) -> list[Fault]:
    body = f"<Error><Code>{code}</Code></Error>".encode() if code else b""
    return [
        Fault(operation=operation, nth=n, action=Action.STATUS, status=status, body=body) for n in range(1, times + 1)
    ]


@pytest.mark.parametrize("operation", WRITES)
@pytest.mark.parametrize("case", PERMANENT)
def test_c61_permanent_errors_are_not_tried_for_ever(
    refusing: tuple[S3Emulator, Tier], case: str, operation: str
) -> None:
    emulator, tier = refusing
    status, code, expected = PERMANENT[case]
    upload = tier.begin_upload(KEY, size=3, part_size=5 * MIB)
    emulator.forget_requests()
    emulator.inject(*answering(operation, status, code, 2))
    with pytest.raises(TierError) as caught:
        WRITES[operation](tier, upload)
    assert isinstance(caught.value, expected)
    assert caught.value.hint, "somebody has to do something"
    assert 1 <= emulator.counts[operation] <= 2
    drain(emulator, operation, tier, upload)


def drain(emulator: S3Emulator, operation: str, tier: Tier, upload: Upload) -> None:
    """Use up a fault that was not needed."""
    while len(emulator.fired) < 2:
        before = len(emulator.fired)
        with pytest.raises(TierError):
            WRITES[operation](tier, upload)
        assert len(emulator.fired) > before


def test_c61_a_conflict_passes(refusing: tuple[S3Emulator, Tier]) -> None:
    emulator, tier = refusing
    emulator.forget_requests()
    emulator.inject(*answering("PutObject", 409, "OperationAborted", 2))
    tier.put(KEY, BytesBody(b"x"))
    assert emulator.counts["PutObject"] == 3


# C65: more keys than a page holds


@pytest.mark.parametrize("page", [1_000, 7])
def test_c65_listings_are_followed_to_their_end(page: int) -> None:
    with emulated(replace(AWS, list_page=page)) as emulator, opened(emulator, "aws") as tier:
        count = 2_501 if page == 1_000 else 101
        keys = sorted(f"run/files/part%20{number:05d}~x" for number in range(count))
        for key in keys:
            emulator.put(f"root/{key}", b"x")
        emulator.put("rooted/elsewhere", b"x")
        assert [info.key for info in walk(tier, "")] == keys
        assert emulator.counts["ListObjectsV2"] == -(-count // page)


@pytest.mark.parametrize("profile", ["aws", "seaweedfs"])
def test_c65_an_empty_page_is_not_the_last(profile: str) -> None:
    """A store that filters after it has cut its pages answers with none and a token."""
    empty = (
        b"<ListBucketResult><Name>b</Name><IsTruncated>true</IsTruncated><KeyCount>0</KeyCount>"
        b"<NextContinuationToken>YWZ0ZXIg</NextContinuationToken></ListBucketResult>"
    )
    with emulated(AWS) as emulator, opened(emulator, profile) as tier:
        for number in range(3):
            emulator.put(f"root/k{number}", b"x")
        emulator.inject(Fault(operation="ListObjectsV2", action=Action.STATUS, status=200, body=empty))
        assert [info.key for info in walk(tier, "")] == ["k0", "k1", "k2"]
        assert len(emulator.fired) == 1


@pytest.mark.parametrize("page_size", [1, 2, 3, 4])
def test_c65_a_replaced_part_at_a_pages_border(page_size: int) -> None:
    """A store that lists both contents of a number may do so on both sides of the border, and then shows one only."""
    behaviour = replace(scaled(SEAWEED), list_page=page_size)
    with emulated(behaviour) as emulator, opened(emulator, "seaweedfs") as tier:
        part_size = 5 * MIB
        data = content(part_size)
        upload = tier.begin_upload(KEY, size=4 * part_size, part_size=part_size)
        for number in (1, 2, 3):
            tier.put_part(upload, number, BytesBody(content(part_size, seed=number)))
        tier.put_part(upload, 2, BytesBody(data))
        listed = list(all_parts(tier, upload))
        assert 2 not in [part.number for part in listed], "nobody can tell which of the two is meant"
        assert {part.number for part in listed} == ({1, 3} if page_size > 2 else {part.number for part in listed})
        restored = Upload(**json.loads(json.dumps(asdict(upload))))
        fresh = {number: tier.put_part(restored, number, BytesBody(data)) for number in (1, 2, 3, 4)}
        tier.complete(restored, [fresh[number] for number in (1, 2, 3, 4)])
        assert emulator.objects()["root/a/b"] == data * 4
