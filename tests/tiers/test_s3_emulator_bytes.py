"""The emulator takes no bytes but those that were promised, however they are wrapped and framed."""

import base64
import hashlib
import hmac
import io
import zlib
from collections.abc import Iterator
from dataclasses import replace

import pytest
from support.emulated import Reply, connection, put_raw, refused, s3_client, send, settled, signed_headers

from tiers.testing import content
from tiers.testing.s3_emulator import (
    AWS,
    BUCKET,
    SEAWEED,
    STORES_CHUNK_FRAMING,
    STORES_WRONG_CHECKSUMS,
    Action,
    Algorithm,
    Behaviour,
    ChecksumRule,
    Fault,
    S3Emulator,
    TrailerRule,
    When,
    checksum,
)

DATA = content(20_000)
OTHER = content(20_000, seed=1)
TARGET = f"/{BUCKET}/k"
UNSIGNED_TRAILER = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
SIGNED_CHUNKS = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD"
SIGNED_TRAILER = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"
algorithms = pytest.mark.parametrize("algorithm", list(Algorithm))


@pytest.fixture
def emulator() -> Iterator[S3Emulator]:
    with S3Emulator() as running:
        running.put("old", b"old")
        yield running


def header(algorithm: Algorithm, data: bytes) -> dict[str, str]:
    return {algorithm.header: checksum(algorithm, [data])}


def md5(data: bytes) -> str:
    return base64.b64encode(hashlib.md5(data).digest()).decode()


def nothing_was_stored(emulator: S3Emulator) -> bool:
    return emulator.objects() == {"old": b"old"}


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        (Algorithm.CRC32, "cbf43926"),
        (Algorithm.CRC32C, "e3069283"),
        (Algorithm.CRC64NVME, "ae8b14860a799888"),
        (Algorithm.SHA1, "f7c3bc1d808e04732adf679965ccc34ca7ae3441"),
        (Algorithm.SHA256, "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225"),
    ],
)
def test_the_published_check_values(algorithm: Algorithm, expected: str) -> None:
    assert base64.b64decode(checksum(algorithm, [b"1234", b"56789"])).hex() == expected


@algorithms
def test_a_right_checksum_is_taken_and_repeated(emulator: S3Emulator, algorithm: Algorithm) -> None:
    reply = put_raw(emulator, "k", DATA, header(algorithm, DATA))
    assert (reply.status, reply.headers[algorithm.header]) == (200, checksum(algorithm, [DATA]))
    with s3_client(emulator) as s3:
        told = s3.head_object(Bucket=BUCKET, Key="k", ChecksumMode="ENABLED")
        assert told[f"Checksum{algorithm.upper()}"] == checksum(algorithm, [DATA])  # type: ignore[literal-required]
        assert f"Checksum{algorithm.upper()}" not in s3.head_object(Bucket=BUCKET, Key="k")
    assert emulator.objects()["k"] == DATA


@algorithms
@pytest.mark.parametrize(("behaviour", "code"), [(AWS, "BadDigest"), (SEAWEED, "XAmzContentChecksumMismatch")])
def test_a_wrong_checksum_is_refused(algorithm: Algorithm, behaviour: Behaviour, code: str) -> None:
    with S3Emulator(behaviour) as emulator:
        emulator.put("old", b"old")
        reply = put_raw(emulator, "old", DATA, header(algorithm, OTHER))
        assert (reply.status, reply.code) == (400, code)
        assert nothing_was_stored(emulator)


@algorithms
def test_a_checksum_that_is_none(emulator: S3Emulator, algorithm: Algorithm) -> None:
    for value in ("", "AAAA", "not base64!", checksum(algorithm, [DATA])[:-4]):
        assert put_raw(emulator, "k", DATA, {algorithm.header: value}).code == "InvalidRequest", value
    assert nothing_was_stored(emulator)


def test_one_checksum_a_request(emulator: S3Emulator) -> None:
    both = header(Algorithm.SHA256, DATA) | header(Algorithm.CRC32, DATA)
    assert put_raw(emulator, "k", DATA, both).code == "InvalidRequest"
    assert put_raw(emulator, "k", DATA, {"x-amz-sdk-checksum-algorithm": "CRC32"}).code == "InvalidRequest"
    assert nothing_was_stored(emulator)


def test_a_wrong_checksum_that_is_ignored() -> None:
    with S3Emulator(replace(AWS, checksums=ChecksumRule.IGNORED)) as emulator, s3_client(emulator) as s3:
        reply = put_raw(emulator, "k", DATA, header(Algorithm.SHA256, OTHER))
        assert (reply.status, Algorithm.SHA256.header in reply.headers) == (200, False)
        assert "ChecksumSHA256" not in s3.head_object(Bucket=BUCKET, Key="k", ChecksumMode="ENABLED")


def test_a_wrong_checksum_that_is_taken_for_true() -> None:
    with S3Emulator(STORES_WRONG_CHECKSUMS) as emulator, s3_client(emulator) as s3:
        reply = put_raw(emulator, "k", DATA, header(Algorithm.SHA256, OTHER))
        wrong = checksum(Algorithm.SHA256, [OTHER])
        assert (reply.status, reply.headers[Algorithm.SHA256.header]) == (200, wrong)
        assert s3.head_object(Bucket=BUCKET, Key="k", ChecksumMode="ENABLED")["ChecksumSHA256"] == wrong
        assert emulator.objects() == {"k": DATA}


def test_a_store_that_refuses_the_header() -> None:
    with S3Emulator(replace(AWS, checksums=ChecksumRule.REFUSED)) as emulator:
        reply = put_raw(emulator, "k", DATA, header(Algorithm.SHA256, DATA))
        assert (reply.status, reply.code) == (400, "InvalidArgument")
        assert emulator.objects() == {}


def test_a_store_that_does_not_repeat_checksums() -> None:
    with S3Emulator(replace(AWS, echoes_checksums=False)) as emulator:
        reply = put_raw(emulator, "k", DATA, header(Algorithm.SHA256, DATA))
        assert (reply.status, Algorithm.SHA256.header in reply.headers) == (200, False)
        assert put_raw(emulator, "k", DATA, header(Algorithm.SHA256, OTHER)).code == "BadDigest"


@pytest.mark.parametrize(
    ("value", "code"),
    [(md5(OTHER), "BadDigest"), ("c2hvcnQ=", "InvalidDigest"), ("not base64!", "InvalidDigest"), ("", "InvalidDigest")],
)
def test_content_md5(emulator: S3Emulator, value: str, code: str) -> None:
    reply = put_raw(emulator, "old", DATA, {"content-md5": value})
    assert (reply.status, reply.code) == (400, code)
    assert nothing_was_stored(emulator)
    assert put_raw(emulator, "old", DATA, {"content-md5": md5(DATA)}).status == 200


def test_content_md5_where_it_is_ignored() -> None:
    with S3Emulator(replace(AWS, checks_content_md5=False)) as emulator:
        assert put_raw(emulator, "k", DATA, {"content-md5": md5(OTHER)}).status == 200


def test_the_signed_payload(emulator: S3Emulator) -> None:
    wrong, right = (hashlib.sha256(data).hexdigest() for data in (OTHER, DATA))
    reply = put_raw(emulator, "k", DATA, payload_hash=wrong)
    assert (reply.status, reply.code) == (400, "XAmzContentSHA256Mismatch")
    assert nothing_was_stored(emulator)
    assert put_raw(emulator, "k", DATA, payload_hash=right).status == 200
    with S3Emulator(SEAWEED) as credulous:
        assert put_raw(credulous, "k", DATA, payload_hash=wrong).status == 200


def test_the_store_notices_a_bit_that_flipped_on_the_way(emulator: S3Emulator) -> None:
    emulator.inject(Fault(operation="PutObject", when=When.MID_BODY, action=Action.CORRUPT))
    with s3_client(emulator) as s3, refused(400, "XAmzContentSHA256Mismatch", emulator):
        s3.put_object(Bucket=BUCKET, Key="k", Body=DATA)
    assert len(emulator.fired) == 1


# aws-chunked


def framed(data: bytes, *, size: int = 8_192, trailers: bytes = b"") -> bytes:
    """Wrap unsigned chunks around data."""
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n" + trailers + b"\r\n"


def put_framed(emulator: S3Emulator, body: bytes, headers: dict[str, str] | None = None, length: int = 20_000) -> Reply:
    given = {
        "content-encoding": "aws-chunked",
        "x-amz-decoded-content-length": str(length),
        "x-amz-trailer": "x-amz-checksum-crc32",
        **(headers or {}),
    }
    return put_raw(emulator, "k", body, given, UNSIGNED_TRAILER)


def crc_trailer(data: bytes) -> bytes:
    return f"x-amz-checksum-crc32:{checksum(Algorithm.CRC32, [data])}\r\n".encode()


def test_a_trailer(emulator: S3Emulator) -> None:
    reply = put_framed(emulator, framed(DATA, trailers=crc_trailer(DATA)))
    assert (reply.status, reply.headers["x-amz-checksum-crc32"]) == (200, checksum(Algorithm.CRC32, [DATA]))
    assert emulator.objects()["k"] == DATA
    with s3_client(emulator) as s3:
        assert "ContentEncoding" not in s3.head_object(Bucket=BUCKET, Key="k")


FRAMES: dict[str, tuple[bytes, dict[str, str], str]] = {
    "wrong trailer": (framed(DATA, trailers=crc_trailer(OTHER)), {}, "BadDigest"),
    "no trailer": (framed(DATA), {}, "MalformedTrailerError"),
    "other trailer": (framed(DATA, trailers=b"x-amz-checksum-sha256:AAAA\r\n"), {}, "MalformedTrailerError"),
    "short": (framed(DATA[:-1], trailers=crc_trailer(DATA)), {}, "IncompleteBody"),
    "long": (framed(DATA + b"x", trailers=crc_trailer(DATA)), {}, "IncompleteBody"),
    "unframed": (DATA, {}, "IncompleteBody"),
    "bad length": (b"5\r\n" + b"123456\r\n0\r\n\r\n", {}, "IncompleteBody"),
    "cut": (framed(DATA)[:10_000], {}, "IncompleteBody"),
    "small chunks": (framed(DATA, size=100, trailers=crc_trailer(DATA)), {}, "InvalidChunkSizeError"),
    "no length": (framed(DATA), {"x-amz-decoded-content-length": "x"}, "MissingContentLength"),
    "not declared": (framed(DATA), {"content-encoding": "identity"}, "InvalidRequest"),
}


@pytest.mark.parametrize(("body", "headers", "code"), FRAMES.values(), ids=FRAMES)
def test_frames_that_are_refused(emulator: S3Emulator, body: bytes, headers: dict[str, str], code: str) -> None:
    assert put_framed(emulator, body, headers).code == code
    assert nothing_was_stored(emulator)


@pytest.mark.parametrize(
    ("rule", "status", "code"),
    [
        (TrailerRule.NOT_IMPLEMENTED, 501, "NotImplemented"),
        (TrailerRule.UNAUTHORIZED, 401, "Unauthorized"),
        (TrailerRule.MISMATCH, 400, "XAmzContentSHA256Mismatch"),
    ],
)
def test_stores_without_trailers_refuse_the_sdks_default(rule: TrailerRule, status: int, code: str) -> None:
    """Over TLS the SDK sends a trailer by itself; in the clear it does not, which is why that proves nothing."""
    behaviour = replace(AWS, trailers=rule)
    with S3Emulator(behaviour, tls=True) as emulator:
        with s3_client(emulator) as s3, refused(status, code, emulator):
            s3.put_object(Bucket=BUCKET, Key="k", Body=DATA)
        with s3_client(emulator, request_checksum_calculation="when_required") as s3:
            s3.put_object(Bucket=BUCKET, Key="k", Body=DATA)
        assert emulator.objects() == {"k": DATA}
    with S3Emulator(behaviour) as emulator, s3_client(emulator) as s3:
        s3.put_object(Bucket=BUCKET, Key="k", Body=DATA)


def test_the_sdks_default_over_tls() -> None:
    with S3Emulator(tls=True) as emulator, s3_client(emulator) as s3:
        s3.upload_fileobj(io.BytesIO(DATA), BUCKET, "k")
        assert emulator.objects() == {"k": DATA}
        sent = emulator.requests[0]
        assert sent.headers["x-amz-content-sha256"] == UNSIGNED_TRAILER
        assert sent.headers["transfer-encoding"] == "chunked"
        assert sent.received > len(DATA)
        crc = base64.b64encode(zlib.crc32(DATA).to_bytes(4, "big")).decode()
        assert s3.head_object(Bucket=BUCKET, Key="k", ChecksumMode="ENABLED")["ChecksumCRC32"] == crc


def test_a_store_that_keeps_the_framing() -> None:
    with S3Emulator(STORES_CHUNK_FRAMING, tls=True) as emulator, s3_client(emulator) as s3:
        s3.put_object(Bucket=BUCKET, Key="k", Body=b"data", ChecksumAlgorithm="CRC32")
        assert emulator.objects()["k"].startswith(b"4\r\ndata\r\n0\r\n")


class Signer:
    """Signs chunks as the specification says, apart from the code under test."""

    def __init__(self, emulator: S3Emulator, headers: dict[str, str]) -> None:
        self.scope = headers["authorization"].partition("Credential=")[2].partition(",")[0].partition("/")[2]
        self.stamp = headers["x-amz-date"]
        self.previous = headers["authorization"].partition("Signature=")[2]
        self.key = b"AWS4" + emulator.credentials[0].secret_key.encode()
        for part in self.scope.split("/"):
            self.key = hmac.digest(self.key, part.encode(), "sha256")

    def sign(self, kind: str, *digests: str) -> bytes:
        text = "\n".join([f"AWS4-HMAC-SHA256-{kind}", self.stamp, self.scope, self.previous, *digests])
        self.previous = hmac.digest(self.key, text.encode(), "sha256").hex()
        return self.previous.encode()

    def chunk(self, data: bytes) -> bytes:
        signature = self.sign("PAYLOAD", hashlib.sha256(b"").hexdigest(), hashlib.sha256(data).hexdigest())
        return b"%x;chunk-signature=%s\r\n%s" % (len(data), signature, data + b"\r\n" if data else b"")

    def trailer(self, line: bytes) -> bytes:
        signature = self.sign("TRAILER", hashlib.sha256(line + b"\n").hexdigest())
        return b"%s\r\nx-amz-trailer-signature:%s\r\n" % (line, signature)


def put_signed(emulator: S3Emulator, tamper: tuple[bytes, bytes], *, trailer: bool) -> Reply:
    kind = SIGNED_TRAILER if trailer else SIGNED_CHUNKS
    given = {"content-encoding": "aws-chunked", "x-amz-decoded-content-length": str(len(DATA))}
    given |= {"x-amz-trailer": "x-amz-checksum-crc32"} if trailer else {}
    headers = signed_headers(emulator, "PUT", TARGET, given, kind)
    signer = Signer(emulator, headers)
    body = b"".join(signer.chunk(piece) for piece in (DATA[:8_192], DATA[8_192:], b""))
    body += signer.trailer(crc_trailer(DATA).strip()) if trailer else b""
    return send(emulator, "PUT", TARGET, headers, body.replace(*tamper) + b"\r\n")


@pytest.mark.parametrize("trailer", [False, True])
def test_signed_chunks(emulator: S3Emulator, trailer: bool) -> None:
    assert put_signed(emulator, (b"", b""), trailer=trailer).status == 200
    assert emulator.objects()["k"] == DATA


@pytest.mark.parametrize(
    ("trailer", "old", "new"),
    [
        (False, DATA[100:110], bytes(10)),
        (False, b"2000;chunk-signature=", b"2000;chunk-signature=" + b"0" * 64),
        (False, b";chunk-signature=", b""),
        (True, b"crc32:", b"crc32: x"),
        (True, b"trailer-signature:", b"trailer-signature:0"),
    ],
)
def test_signed_chunks_that_were_tampered_with(emulator: S3Emulator, trailer: bool, old: bytes, new: bytes) -> None:
    reply = put_signed(emulator, (old, new), trailer=trailer)
    assert reply.code in {"SignatureDoesNotMatch", "IncompleteBody"}
    assert nothing_was_stored(emulator)


# HTTP


def test_a_length_is_needed(emulator: S3Emulator) -> None:
    headers = signed_headers(emulator, "PUT", TARGET, {}) | {"transfer-encoding": "chunked"}
    body = b"5\r\nhello\r\n0\r\n\r\n"
    reply = send(emulator, "PUT", TARGET, headers, body)
    assert (reply.status, reply.code) == (411, "MissingContentLength")
    assert nothing_was_stored(emulator)


def test_a_body_that_ends_early_is_no_object(emulator: S3Emulator) -> None:
    headers = signed_headers(emulator, "PUT", TARGET, {}) | {"content-length": "30000"}
    with connection(emulator) as opened:
        opened.putrequest("PUT", TARGET, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            opened.putheader(name, value)
        opened.endheaders()
        opened.send(DATA)
    (cut,) = settled(emulator, 1)
    assert (cut.operation, cut.status, cut.received) == ("PutObject", None, len(DATA))
    assert nothing_was_stored(emulator)


def test_one_connection_serves_many_requests(emulator: S3Emulator) -> None:
    """Also after a refusal, whose body has to be read first."""
    with connection(emulator) as opened:
        for headers, status in (({}, 200), ({"content-md5": md5(OTHER)}, 400), ({}, 200)):
            opened.request("PUT", TARGET, DATA, signed_headers(emulator, "PUT", TARGET, headers))
            answer = opened.getresponse()
            answer.read()
            assert (answer.status, answer.will_close) == (status, False)


def test_the_client_is_told_to_go_on_only_where_its_body_is_wanted(emulator: S3Emulator) -> None:
    for path, status, first in ((TARGET, b"200", b"100 Continue"), ("/no-such-bucket/k", b"404", b"404 Not Found")):
        headers = signed_headers(emulator, "PUT", path, {}) | {"expect": "100-continue", "content-length": "5"}
        with connection(emulator) as opened:
            opened.connect()
            lines = [f"PUT {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
            opened.sock.sendall("\r\n".join(lines).encode())
            reader = opened.sock.makefile("rb")
            assert first in reader.readline()
            if first == b"100 Continue":
                reader.readline()
                opened.sock.sendall(b"hello")
                assert status in reader.readline()
            reader.close()


def test_what_is_no_http_is_not_answered(emulator: S3Emulator) -> None:
    for junk in (b"\x16\x03\x01\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET / HTTP/1.1\r\nno colon\r\n\r\n"):
        with connection(emulator) as opened:
            opened.connect()
            opened.sock.sendall(junk)
            assert opened.sock.recv(100) == b""
    assert nothing_was_stored(emulator)
