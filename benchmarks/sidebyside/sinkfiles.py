"""How the sink hands out data: from the files that they were uploaded from, by sendfile."""

import os
import re
import socket
import ssl

from benchmarks.sidebyside.sinkanswers import Request, described, error, reply
from benchmarks.sidebyside.sinkstore import Store
from tiers.clock import SystemClock

_RANGE = re.compile(r"bytes=(\d*)-(\d*)$")
_BLOCK = 1 << 20
CLOCK = SystemClock()


def _span(asked: str, size: int) -> tuple[int, int] | None:
    """Return the first byte and the count of a range; None for one that cannot be had."""
    found = _RANGE.match(asked)
    if found is None or found[0] == "bytes=-":
        return None
    first, last = found[1], found[2]
    if not first:
        count = min(int(last), size)
        return size - count, count
    start = int(first)
    end = min(int(last), size - 1) if last else size - 1
    return (start, end - start + 1) if start <= end else None


def serve_file(sock: socket.socket, store: Store, request: Request) -> bool:
    """Answer a GetObject; False where the connection is of no more use."""
    stored = store.objects.get(request.key)
    source = store.source(request.key)
    if stored is None or (stored.data is None and source is None):
        sock.sendall(error("404 Not Found", "NoSuchKey"))
        return True
    asked = request.headers.get("range")
    span = _span(asked, stored.size) if asked else (0, stored.size)
    if span is None:
        sock.sendall(error("416 Requested Range Not Satisfiable", "InvalidRange"))
        return True
    start, count = span
    said = (("Content-Range", f"bytes {start}-{start + count - 1}/{stored.size}"),) if asked else ()
    status = "206 Partial Content" if asked else "200 OK"
    head = reply(status, b"", *described(stored), *said, length=count)
    if stored.data is not None:
        sock.sendall(head + stored.data[start : start + count])
        return True
    with store.lock:
        store.counters.first_sent = store.counters.first_sent or CLOCK.monotonic()
    sent = _send_file(sock, head, os.fspath(source or ""), start, count)
    with store.lock:
        store.counters.bytes_down += sent
    return sent == count


def _send_file(sock: socket.socket, head: bytes, path: str, start: int, count: int) -> int:
    file = os.open(path, os.O_RDONLY)
    try:
        if isinstance(sock, ssl.SSLSocket):
            sock.sendall(head)
            return _send_copied(sock, file, start, count)
        sock.sendall(head, socket.MSG_MORE)
        sent = 0
        while sent < count:
            got = os.sendfile(sock.fileno(), file, start + sent, count - sent)
            if not got:
                break
            sent += got
        return sent
    finally:
        os.close(file)


def _send_copied(sock: socket.socket, file: int, start: int, count: int) -> int:
    buffer = memoryview(bytearray(min(_BLOCK, count)))
    sent = 0
    while sent < count:
        got = os.preadv(file, [buffer[: count - sent]], start + sent)
        if not got:
            break
        sock.sendall(buffer[:got])
        sent += got
    return sent
