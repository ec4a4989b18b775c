"""Servers that say what a test wants said, to whole requests, and tiers that ask them."""

import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from select import select
from socket import socket

from support.misers import read_head

from tiers.bodies import BytesBody
from tiers.opening import TierSpec
from tiers.protocol import Key, Tier, Upload, UploadId
from tiers.s3 import open_s3
from tiers.testing import content, read_all

MIB = 1 << 20
BIG = 24 * MIB
"""Bytes of a body that no buffers of both sides hold."""
WAYS = ("auto", "sdk")
OK = b'HTTP/1.1 200 OK\r\nETag: "e"\r\nContent-Length: 0\r\n\r\n'


@contextmanager
def opened(endpoint_url: str, way: str, **fields: object) -> Iterator[Tier]:
    settings = {"timeout_seconds": 5.0, "profile": "aws", "region": "us-east-1", "data_path": way, **fields}
    with closing(open_s3(TierSpec(name="store", url="s3://bucket/p", endpoint_url=endpoint_url, **settings))) as tier:  # type: ignore[arg-type]
        yield tier


def error(status: str, code: str, *more: str) -> bytes:
    """Return an answer with an error document."""
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>m</Message></Error>".encode()
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *more]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


@dataclass
class Script:
    """Takes whole requests and says what comes next; the last answer is said again and again."""

    answers: list[bytes]
    requests: list[bytes] = field(default_factory=list)

    def __call__(self, connection: socket, stop: threading.Event) -> None:
        while asked(connection, stop):
            head = read_head(connection)
            self.requests.append(head)
            if b"100-continue" in head.lower():
                connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            swallow(connection, length_of(head))
            connection.sendall(self.answers[min(len(self.requests), len(self.answers)) - 1])


def asked(connection: socket, stop: threading.Event) -> bool:
    """Wait for a request; False where the test is over."""
    while not stop.is_set():
        if select([connection], [], [], 0.05)[0]:
            return True
    return False


def length_of(head: bytes) -> int:
    found = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return int(found[0].partition(b":")[2]) if found else 0


def swallow(connection: socket, size: int) -> None:
    while size:
        received = len(connection.recv(min(size, MIB)))
        if not received:
            raise ConnectionResetError
        size -= received


def put(tier: Tier, size: int = 1_000) -> object:
    return tier.put(Key("k"), BytesBody(content(size)))


def put_part(tier: Tier) -> object:
    upload = Upload(key=Key("k"), upload_id=UploadId("u"), size=1_000, part_size=5 * MIB)
    return tier.put_part(upload, 1, BytesBody(content(1_000)))


def read(tier: Tier) -> object:
    return read_all(tier.open(Key("k")))


def create(tier: Tier) -> object:
    return tier.create(Key("k"), b"x")
