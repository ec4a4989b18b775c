"""What newer clients send by default and some stores refuse; and R2, which refuses most of it."""

import io
import threading
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import pytest
from support.emulated import s3_client
from support.provider_stores import SMALL, Hurried, Unhurried, emulated, opened, spec_for
from support.seaweed import BUCKET

from replicate.config import MIB
from tiers.bodies import Body, BytesBody, FileSlice
from tiers.clock import SystemClock
from tiers.errors import TierUnavailable
from tiers.probing.outcomes import Subject, Verdict
from tiers.probing.s3_probe import probe_s3
from tiers.profiles import PROFILES, Checksum
from tiers.protocol import Key, Tier, all_parts, walk
from tiers.s3_sdk import ClientError
from tiers.testing import content, read_all
from tiers.testing.s3_emulator import (
    B2,
    GENERIC,
    R2,
    SEAWEED,
    TrailerRule,
)

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client

KEY = Key("a/b")


# C50 and C51: what newer clients send by default, and some stores refuse

STRICT = replace(B2, name="strict", trailers=TrailerRule.NOT_IMPLEMENTED)
"""400 for any checksum header, 501 for aws-chunked bodies."""


@dataclass(frozen=True, slots=True)
class Pipe:
    """A body whose bytes come in odd pieces, and whose digest nobody knows."""

    data: bytes
    sha256: str | None = None

    @property
    def size(self) -> int:
        return len(self.data)

    def open(self) -> BinaryIO:
        return OddReader(self.data)


class OddReader(io.BytesIO):
    """Gives less than it is asked for, as a pipe does."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(7_001 if size is None or size < 0 else min(size, 7_001))


def bodies(folder: Path, data: bytes) -> list[Body]:
    path = folder / "file"
    path.write_bytes(data)
    return [BytesBody(data), FileSlice(path=path, start=0, size=len(data), sha256=None), Pipe(data)]


def use_everything(tier: Tier, folder: Path) -> None:
    """Put, upload in parts, list, read and delete."""
    data = content(SMALL + 5)
    for number, body in enumerate(bodies(folder, data)):
        tier.put(Key(f"put/{number}"), body)
        upload = tier.begin_upload(Key(f"parts/{number}"), size=len(data), part_size=5 * MIB)
        tier.complete(upload, [tier.put_part(upload, 1, body)])
    for info in walk(tier, ""):
        assert read_all(tier.open(info.key)) == data
        tier.delete(info.key)
    assert list(walk(tier, "")) == []


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
@pytest.mark.parametrize("profile", [None, "b2"])
def test_c50_an_endpoint_that_is_not_aws_works_out_of_the_box(tmp_path: Path, profile: str | None, tls: bool) -> None:
    with emulated(STRICT, tls=tls) as emulator, opened(emulator, profile) as tier:
        use_everything(tier, tmp_path)


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
def test_c50_where_the_sdks_defaults_do_not(tls: bool) -> None:
    with emulated(STRICT, tls=tls) as emulator, s3_client(emulator, region="us-west-004") as client:
        with pytest.raises(ClientError) as caught:
            client.put_object(Bucket=BUCKET, Key="a", Body=b"x")
        assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] in {400, 501}


def test_c50_a_probe_says_what_the_store_supports() -> None:
    with emulated(STRICT) as emulator:
        report = probe_s3(spec_for(emulator, None), nonce="n1", clock=SystemClock())
    outcome = report.outcome(Subject.SHA256_TAKEN)
    assert outcome is not None
    assert (outcome.verdict, "refused" in outcome.evidence) == (Verdict.NO, True)
    assert report.facts.checks_sha256 is False


@pytest.mark.parametrize("profile", PROFILES)
def test_c51_every_body_has_a_length_and_no_trailer(tmp_path: Path, profile: str) -> None:
    known = PROFILES[profile]
    behaviour = replace(GENERIC, regions=None, location="us-east-1") if not known.checks_sha256 else SEAWEED
    path_style = replace(known, addressing="path")
    with emulated(behaviour, tls=True) as emulator, pytest.MonkeyPatch.context() as patch:
        patch.setitem(PROFILES, profile, path_style)
        with opened(emulator, profile) as tier:
            use_everything(tier, tmp_path)
        sent = [r.headers for r in emulator.requests if r.operation in {"PutObject", "UploadPart"}]
    assert len(sent) == 6
    for headers in sent:
        assert headers["content-length"] == str(SMALL + 5)
        assert not {"transfer-encoding", "x-amz-trailer", "content-encoding"} & headers.keys()
        payload, checked = headers["x-amz-content-sha256"], headers.get("x-amz-checksum-sha256")
        known_hashes = {"UNSIGNED-PAYLOAD", sha256(content(SMALL + 5)).hexdigest()}
        assert payload in known_hashes - ({"UNSIGNED-PAYLOAD"} if known.checksum is Checksum.SIGNED_PAYLOAD else set())
        assert (checked is None) or payload != "UNSIGNED-PAYLOAD", "what is known is signed"


# R2: everything at once


def r2_defaults(client: "S3Client") -> None:
    """Do what a program does that leaves the SDK as it comes."""
    client.put_object(Bucket=BUCKET, Key="a", Body=b"x")


def test_r2_refuses_what_the_sdk_sends_by_default_over_tls() -> None:
    """Over plain http the same client sends an ordinary header: a test without TLS proves nothing here."""
    with emulated(R2, tls=True) as emulator, s3_client(emulator, region="auto") as client:
        with pytest.raises(ClientError, match="Unauthorized"):
            r2_defaults(client)
        assert emulator.requests[-1].headers["x-amz-trailer"] == "x-amz-checksum-crc32"
        assert emulator.objects() == {}
    with emulated(R2, tls=False) as emulator, s3_client(emulator, region="auto") as client:
        r2_defaults(client)
        assert emulator.objects() == {"a": b"x"}


def test_r2_takes_what_we_send_over_tls(tmp_path: Path) -> None:
    with emulated(R2, tls=True, clock=Unhurried()) as emulator, opened(emulator, "r2") as tier:
        use_everything(tier, tmp_path)
        tier.create(Key("slot"), b"entry")
        sent = {r.operation: r.headers for r in emulator.requests}
    assert sent["PutObject"]["if-none-match"] == "*"
    assert sent["PutObject"]["x-amz-checksum-sha256"]
    assert "if-none-match" not in sent["CompleteMultipartUpload"], "R2 honours conditions on PutObject only"


def test_r2_one_write_a_second_to_a_key_is_waited_for() -> None:
    """The store names no time; the profile does."""
    with emulated(R2, clock=Hurried()) as emulator, opened(emulator, "r2") as tier:
        tier.put(KEY, BytesBody(b"one"))
        with pytest.raises(TierUnavailable) as caught:
            tier.put(KEY, BytesBody(b"two"))
        assert caught.value.retry_after == 1.0
        assert emulator.objects() == {"root/a/b": b"one"}


def test_r2_no_more_parts_at_once_than_it_takes() -> None:
    most = PROFILES["r2"].parts_at_once
    assert most is not None
    with emulated(replace(R2, min_part=1), clock=Unhurried()) as emulator, opened(emulator, "r2") as tier:
        count = 3 * most
        upload = tier.begin_upload(KEY, size=count * 5 * MIB, part_size=5 * MIB)
        piece = BytesBody(bytes(5 * MIB))
        inside, peak, lock = [0], [0], threading.Lock()

        class Counting:
            size, sha256 = piece.size, piece.sha256

            def open(self) -> Any:
                with lock:
                    inside[0] += 1
                    peak[0] = max(peak[0], inside[0])
                stream = piece.open()
                closing = stream.close

                def close() -> None:
                    closing()
                    with lock:
                        inside[0] -= 1

                stream.close = close  # type: ignore[method-assign]
                return stream

        threads = [
            threading.Thread(target=tier.put_part, args=(upload, number, Counting())) for number in range(1, count + 1)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(list(all_parts(tier, upload))) == count
        assert 1 < peak[0] <= most
