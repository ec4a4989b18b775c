"""Bodies on their way in: unwrapped, hashed piece by piece, and refused where they are not what was promised."""

import base64
import binascii
import hashlib
import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tiers.testing.s3_emulator.answers import Refusal
from tiers.testing.s3_emulator.asked import Asked
from tiers.testing.s3_emulator.behaviour import Behaviour, ChecksumRule, TrailerRule
from tiers.testing.s3_emulator.checksums import Algorithm, Hasher, hasher, well_formed
from tiers.testing.s3_emulator.operations import Operation
from tiers.testing.s3_emulator.signing import (
    SIGNED_CHUNKS,
    SIGNED_TRAILER,
    STREAMING,
    UNSIGNED_TRAILER,
    ChunkSignatures,
)
from tiers.testing.s3_emulator.wire import LONGEST_LINE, PIECE, WireBody

SMALLEST_CHUNK = 8_192
_CHUNK_LINE = re.compile(rb"([0-9a-fA-F]{1,16})(?:;chunk-signature=([0-9a-f]{64}))?\r\n")
_MD5_LENGTH = 16
CHECKSUMMED = frozenset({Operation.PUT_OBJECT, Operation.UPLOAD_PART, Operation.DELETE_OBJECTS})
"""Operations whose x-amz-checksum header is about the body that they carry."""

_TRAILER_REFUSALS: Mapping[TrailerRule, tuple[int, str]] = {
    TrailerRule.NOT_IMPLEMENTED: (501, "NotImplemented"),
    TrailerRule.UNAUTHORIZED: (401, "Unauthorized"),
    TrailerRule.MISMATCH: (400, "XAmzContentSHA256Mismatch"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Received:
    """A body that was accepted: its bytes, their MD5 as hex, and the checksums that go on record."""

    data: bytes = b""
    md5: str = ""
    checksums: Mapping[Algorithm, str] | None = None


class AwsChunks:
    """The aws-chunked encoding undone; ``trailers`` are known when ``pieces`` has ended."""

    def __init__(self, wire: WireBody, signatures: ChunkSignatures | None) -> None:
        self._reader = io.BufferedReader(wire, PIECE)
        self._signatures = signatures
        self.trailers: dict[str, str] = {}

    def pieces(self) -> Iterator[bytes]:
        """Yield the bytes inside; Refusal where the framing or a signature is wrong."""
        short = False
        while True:
            size, signature = self._chunk_line()
            if short and size:
                raise Refusal(403, "InvalidChunkSizeError", "Only the last chunk may have less than 8192 bytes")
            short = size < SMALLEST_CHUNK
            digest = hashlib.sha256()
            for piece in self._chunk(size):
                if self._signatures is not None:
                    digest.update(piece)
                yield piece
            if self._signatures is not None:
                self._signatures.check_chunk(digest.hexdigest(), signature)
            if size == 0:
                self._read_trailers()
                return

    def _chunk_line(self) -> tuple[int, str]:
        found = _CHUNK_LINE.fullmatch(self._reader.readline(LONGEST_LINE))
        if found is None or (found[2] is None) is not (self._signatures is None):
            raise Refusal(400, "IncompleteBody", "The request body is not in aws-chunked encoding")
        return int(found[1], 16), (found[2] or b"").decode()

    def _chunk(self, size: int) -> Iterator[bytes]:
        left = size
        while left:
            piece = self._reader.read1(min(PIECE, left))
            if not piece:
                raise Refusal(400, "IncompleteBody", "The request body ended inside a chunk")
            left -= len(piece)
            yield piece
        if size and self._reader.readline(LONGEST_LINE) != b"\r\n":
            raise Refusal(400, "IncompleteBody", "A chunk is longer than its length")

    def _read_trailers(self) -> None:
        signed = b""
        while line := self._reader.readline(LONGEST_LINE).rstrip(b"\r\n"):
            name, _, value = line.decode("latin-1").partition(":")
            if name == "x-amz-trailer-signature":
                if self._signatures is not None:
                    self._signatures.check_trailer(signed, value.strip())
                continue
            self.trailers[name.lower()] = value.strip()
            signed += line + b"\n"


class Reception:
    """One body, its promises and what was found."""

    def __init__(self, asked: Asked, behaviour: Behaviour, payload_hash: str, signatures: ChunkSignatures) -> None:
        self._headers = asked.headers
        self._asked = asked
        self._behaviour = behaviour
        self._payload_hash = payload_hash
        self._signatures = signatures if payload_hash in {SIGNED_CHUNKS, SIGNED_TRAILER} else None
        self._streaming = payload_hash in STREAMING
        self._stated = self._stated_algorithms() if asked.operation in CHECKSUMMED else {}
        self._md5 = hashlib.md5(usedforsecurity=False)
        self._sha256 = hashlib.sha256()
        self._hashers: dict[Algorithm, Hasher] = {}
        if behaviour.checks(self._stated):
            self._hashers = {algorithm: hasher(algorithm) for algorithm in self._stated}

    def receive(self, wire: WireBody) -> Received:
        """Read a body to its end and return it; Refusal where it breaks a promise."""
        expected_md5 = self._content_md5()
        chunks = self._unwrapping(wire)
        pieces = []
        for piece in chunks.pieces() if chunks is not None else iter(wire.take, b""):
            self._digest(piece)
            pieces.append(piece)
        if chunks is not None:
            wire.drain()
            self._check_trailers(chunks)
        data = b"".join(pieces)
        self._check(data, expected_md5)
        return Received(data=data, md5=self._md5.hexdigest(), checksums=self._on_record())

    def _digest(self, piece: bytes) -> None:
        self._md5.update(piece)
        if not self._streaming:
            self._sha256.update(piece)
        for computed in self._hashers.values():
            computed.update(piece)

    def _unwrapping(self, wire: WireBody) -> AwsChunks | None:
        """Return what undoes the encoding; None where the body is taken as it comes."""
        if not self._streaming:
            if self._asked.head.length is None:
                raise Refusal(411, "MissingContentLength", "You must provide the Content-Length HTTP header.")
            return None
        rule = self._behaviour.trailers
        if refusal := _TRAILER_REFUSALS.get(rule):
            raise Refusal(*refusal, f"{self._payload_hash} is not supported")
        if rule is TrailerRule.STORED:
            return None
        if "aws-chunked" not in self._headers.get("content-encoding", ""):
            raise Refusal(400, "InvalidRequest", "A streaming payload needs Content-Encoding: aws-chunked")
        if not self._headers.get("x-amz-decoded-content-length", "").isdecimal():
            raise Refusal(411, "MissingContentLength", "You must provide x-amz-decoded-content-length.")
        return AwsChunks(wire, self._signatures)

    def _stated_algorithms(self) -> dict[Algorithm, str]:
        """Return the checksums that were stated; a trailer's value is still empty."""
        stated = {a: self._headers[a.header] for a in Algorithm if a.header in self._headers}
        trailer = self._headers.get("x-amz-trailer", "").lower()
        promised = {a: "" for a in Algorithm if a.header == trailer}
        rule = self._behaviour.checksums
        if (stated or promised) and rule is ChecksumRule.REFUSED:
            name = next(iter(stated | promised)).header
            raise Refusal(400, "InvalidArgument", f"Unsupported header '{name}' received for this API call.")
        framing_is_data = promised and self._behaviour.trailers is TrailerRule.STORED
        if rule is ChecksumRule.IGNORED or framing_is_data:
            return {}
        self._check_statement(stated, stated | promised)
        return stated | promised

    def _check_statement(self, stated: Mapping[Algorithm, str], every: Mapping[Algorithm, str]) -> None:
        if len(every) > 1:
            message = "Expecting a single x-amz-checksum- header. Multiple checksum Types are not allowed."
            raise Refusal(400, "InvalidRequest", message)
        for algorithm, value in stated.items():
            if not well_formed(algorithm, value):
                raise Refusal(400, "InvalidRequest", f"Value for {algorithm.header} header is invalid.")
        named = self._headers.get("x-amz-sdk-checksum-algorithm", "").lower()
        if named and named not in every:
            message = "x-amz-sdk-checksum-algorithm specified, but no corresponding x-amz-checksum-* was found"
            raise Refusal(400, "InvalidRequest", message)

    def _content_md5(self) -> str | None:
        value = self._headers.get("content-md5")
        if value is None or not self._behaviour.checks_content_md5:
            return None
        try:
            digest = base64.b64decode(value, validate=True)
        except binascii.Error:
            digest = b""
        if len(digest) != _MD5_LENGTH:
            raise Refusal(400, "InvalidDigest", "The Content-MD5 you specified is not valid.")
        return digest.hex()

    def _check_trailers(self, chunks: AwsChunks) -> None:
        promised = self._headers.get("x-amz-trailer", "").lower()
        if self._payload_hash in {UNSIGNED_TRAILER, SIGNED_TRAILER} and promised not in chunks.trailers:
            raise Refusal(400, "MalformedTrailerError", "The trailer that x-amz-trailer promises did not come")
        for algorithm in self._stated:
            self._stated[algorithm] = chunks.trailers.get(algorithm.header, self._stated[algorithm])

    def _check(self, data: bytes, expected_md5: str | None) -> None:
        declared = self._headers.get("x-amz-decoded-content-length")
        taken_as_is = self._behaviour.trailers is TrailerRule.STORED
        if self._streaming and not taken_as_is and declared is not None and len(data) != int(declared):
            raise Refusal(400, "IncompleteBody", f"The body has {len(data)} bytes, declared were {declared}")
        signed = not self._streaming and self._payload_hash != "UNSIGNED-PAYLOAD"
        if signed and self._behaviour.checks_payload_hash and self._sha256.hexdigest() != self._payload_hash:
            message = "The provided 'x-amz-content-sha256' header does not match what was computed."
            raise Refusal(400, "XAmzContentSHA256Mismatch", message)
        if expected_md5 is not None and self._md5.hexdigest() != expected_md5:
            raise Refusal(400, "BadDigest", "The Content-MD5 you specified did not match what we received.")
        for algorithm, computed in self._hashers.items():
            if base64.b64encode(computed.digest()).decode() != self._stated[algorithm]:
                message = f"The {algorithm.upper()} you specified did not match the calculated checksum."
                raise Refusal(400, self._behaviour.mismatch_code, message)

    def _on_record(self) -> Mapping[Algorithm, str]:
        return dict(self._stated)
