"""A store that only reads and answers, as a process of its own: what is left is the client's own limit.

    python -m benchmarks.sidebyside.sink [--tls CERTIFICATE KEY]

Prints its port.  Bodies of data objects are dropped inside the kernel (MSG_TRUNC), so that
the sink costs the machine next to nothing; downloads go out by sendfile.  It speaks as much
of S3 as a transfer needs, checks nothing and trusts what is claimed: no bytes are ever safe here.
``GET /-/counters``, ``/-/reset`` and ``/-/sources?folder=`` are for whoever measures.
"""

import argparse
import json
import socket
import ssl
import sys
import threading
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from urllib.parse import parse_qs

from benchmarks.sidebyside.parting import leave_with_parent
from benchmarks.sidebyside.sinkanswers import Request, answer, not_implemented
from benchmarks.sidebyside.sinkfiles import serve_file
from benchmarks.sidebyside.sinkstore import LOG_KEY, Store
from tiers.clock import SystemClock

HEAD_ROOM = 16 * 1024
STEP = 1 << 20
"""Bytes that one call reads of a body."""
KEPT = 32 << 20
"""Bytes of the largest body that is kept: no document is as long."""
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
CLOCK = SystemClock()


class Connection:
    """One client's connection; requests come one after another."""

    _dropped = bytearray(STEP)  # never written: the kernel drops what it would have copied here

    def __init__(self, sock: socket.socket, store: Store) -> None:
        self._sock = sock
        self._store = store
        self._plain = not isinstance(sock, ssl.SSLSocket)
        self._buffer = bytearray(HEAD_ROOM)
        self._view = memoryview(self._buffer)
        self._filled = 0
        self._scratch = memoryview(self._dropped if self._plain else bytearray(STEP))

    def serve(self) -> None:
        """Answer until the client closes."""
        while (request := self._head()) is not None:
            body = self._body(request)
            if body is None:
                return
            if request.path.startswith("/-/"):
                self._sock.sendall(self._control(request))
                continue
            self._store.count(request.verb)
            if request.verb == "GetObject":
                if not serve_file(self._sock, self._store, request):
                    return
                continue
            self._sock.sendall(answer(self._store, request, body))
            if LOG_KEY in request.path and request.verb == "PutObject":
                self._store.counters.last_log_put = CLOCK.monotonic()

    def _head(self) -> Request | None:
        while (end := self._buffer.find(b"\r\n\r\n", 0, self._filled)) < 0:
            if self._filled == HEAD_ROOM:
                self._sock.sendall(not_implemented("the head is too long"))
                return None
            got = self._sock.recv_into(self._view[self._filled :])
            if not got:
                return None
            self._filled += got
        request = Request.parse(bytes(self._view[:end]))
        self._consume(end + 4)
        return request

    def _consume(self, count: int) -> None:
        self._filled -= count
        if self._filled:
            self._view[: self._filled] = bytes(self._view[count : count + self._filled])

    def _body(self, request: Request) -> bytes | None:
        """Read a body; empty where it was dropped, None where the client went away within it."""
        if request.headers.get("expect", "").lower() == "100-continue":
            self._sock.sendall(CONTINUE)
        if "chunked" in request.headers.get("transfer-encoding", ""):
            return self._chunks(request)
        length = int(request.headers.get("content-length", "0"))
        if not length:
            return b""
        known = self._store.source(request.key) is not None
        dropped = request.verb in ("PutObject", "UploadPart") and (known or length > KEPT)
        if not dropped:
            return self._kept(length)
        return self._drop(length)

    def _drop(self, length: int) -> bytes | None:
        self._store.arriving(length, CLOCK.monotonic())
        try:
            return self._dropped_all(length)
        finally:
            self._store.arrived()

    def _dropped_all(self, length: int) -> bytes | None:
        ahead = min(length, self._filled)
        self._consume(ahead)
        left = length - ahead
        self._store.received(ahead, CLOCK.monotonic())
        flags = socket.MSG_TRUNC | socket.MSG_WAITALL if self._plain else 0
        while left:
            want = min(left, STEP)
            got = (
                self._sock.recv_into(self._scratch, want, flags) if flags else self._sock.recv_into(self._scratch, want)
            )
            if not got:
                return None
            left -= got
            self._store.received(got, CLOCK.monotonic())
        return b""

    def _kept(self, length: int) -> bytes | None:
        ahead = min(length, self._filled)
        data = bytearray(length)
        data[:ahead] = self._view[:ahead]
        self._consume(ahead)
        view, at = memoryview(data), ahead
        while at < length:
            got = self._sock.recv_into(view[at:])
            if not got:
                return None
            at += got
        return bytes(data)

    def _chunks(self, request: Request) -> bytes | None:
        """Read a body of unknown length to its end, and keep nothing of it but its size."""
        total = 0
        while True:
            while (end := self._buffer.find(b"\r\n", 0, self._filled)) < 0:
                got = self._sock.recv_into(self._view[self._filled :])
                if not got:
                    return None
                self._filled += got
            size = int(bytes(self._view[:end]).partition(b";")[0], 16)
            self._consume(end + 2)
            if self._drop(size + 2) is None:
                return None
            total += size
            if not size:
                request.headers["content-length"] = str(total)
                return b""

    def _control(self, request: Request) -> bytes:
        store = self._store
        if request.path == "/-/sources":
            store.read_from(Path(parse_qs(request.query)["folder"][0]))
        if request.path == "/-/reset":
            store.reset()
        document = json.dumps(asdict(store.counters)).encode()
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(document), document)


def _wrapped(sock: socket.socket, context: ssl.SSLContext | None) -> socket.socket:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock if context is None else context.wrap_socket(sock, server_side=True)


def _serve(sock: socket.socket, store: Store, context: ssl.SSLContext | None) -> None:
    with sock, suppress(OSError), _wrapped(sock, context) as wrapped:
        Connection(wrapped, store).serve()


def listen() -> tuple[socket.socket, Store]:
    """Return a listening socket on a free port of loopback, and what is behind it."""
    return socket.create_server(("127.0.0.1", 0), backlog=512), Store()


def run(listener: socket.socket, store: Store, context: ssl.SSLContext | None = None) -> None:
    """Accept until the listener is closed."""
    with suppress(OSError):
        while True:
            sock, _ = listener.accept()
            threading.Thread(target=_serve, args=(sock, store, context), daemon=True).start()


def main() -> None:
    """Serve for ever."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tls", nargs=2, metavar=("CERTIFICATE", "KEY"))
    arguments = parser.parse_args()
    context = None
    if arguments.tls:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*arguments.tls)
    leave_with_parent()
    sys.setswitchinterval(0.001)  # or a thread that parses would hold up another's answer for 5 ms
    listener, store = listen()
    print(listener.getsockname()[1], flush=True)
    run(listener, store, context)


if __name__ == "__main__":
    main()
