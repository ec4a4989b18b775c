"""A loopback proxy in front of a real S3 server: it counts what passes, and breaks it on schedule.

Requests go upstream as they came, Host included, so that their signatures hold.
Bodies are passed on in pieces, both ways.  Every fault that fired is recorded, so that
a test can assert that it tested something.
"""

import socket
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPException, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from support.faults import LONGEST_PAUSE, Action, Fault, Fired, Request, Schedule, When, hang_up
from support.s3_operations import classify

HOST = "127.0.0.1"
__all__ = ["Action", "Fault", "FaultProxy", "Fired", "Request", "When"]

CHUNK = 1 << 16
SETTLE_LIMIT = 10.0
UPSTREAM_TIMEOUT = 60.0
_SECRET_HEADERS = {"authorization", "x-amz-security-token"}
_NOT_FORWARDED = {"connection", "expect", "keep-alive", "transfer-encoding"}


class _CutError(Exception):
    """The connection to the client has to go; ``reset`` for rudely."""

    def __init__(self, *, reset: bool) -> None:
        super().__init__()
        self.reset = reset


class FaultProxy:
    """Listens on a free loopback port; a context manager."""

    def __init__(self, upstream_port: int) -> None:
        self.upstream_port = upstream_port
        self.fired: list[Fired] = []
        self.broken: list[BaseException] = []
        self._requests: list[Request] = []
        self._schedule: Schedule[Fault] = Schedule()
        self._lock = threading.Condition()
        self._busy = 0
        self._stop = threading.Event()
        self._clients: set[socket.socket] = set()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="fault-proxy")

    @property
    def endpoint_url(self) -> str:
        """The URL to give as ``endpoint_url``."""
        return f"http://{HOST}:{self._server.server_address[1]}"

    @property
    def requests(self) -> list[Request]:
        """What has passed, in order of ends.

        Waits until nothing is in flight but what a fault holds: a client has its answer
        a moment before it is written down here.
        """
        with self._lock:
            self._lock.wait_for(lambda: self._busy == 0, SETTLE_LIMIT)
            return list(self._requests)

    @property
    def counts(self) -> Counter[str]:
        """Requests by operation."""
        return Counter(request.operation for request in self.requests)

    @property
    def received(self) -> Counter[tuple[str, str]]:
        """Bytes of request bodies by operation and key."""
        totals: Counter[tuple[str, str]] = Counter()
        for request in self.requests:
            totals[request.operation, request.key] += request.received
        return totals

    def by_key(self) -> Mapping[str, list[Request]]:
        """Return the requests of each key, in order of their ends."""
        found: defaultdict[str, list[Request]] = defaultdict(list)
        for request in self.requests:
            found[request.key].append(request)
        return found

    def inject(self, *faults: Fault) -> None:
        """Add faults to the schedule; each fires once, and counts from now."""
        self._schedule.add(faults)

    def start(self) -> Self:
        """Start listening."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Release what is stalled, cut every connection and wait for all threads."""
        self._stop.set()
        self._server.shutdown()
        with self._lock:
            for client in self._clients:
                try:
                    client.shutdown(socket.SHUT_RDWR)
                except OSError:  # the client was faster
                    continue
        self._server.server_close()
        self._thread.join()
        if self.broken:
            raise RuntimeError("the proxy itself failed") from self.broken[0]

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def match(self, operation: str, key: str) -> Fault | None:
        """Count a request against the schedule; return the fault whose turn it is."""
        return self._schedule.match(operation, key)

    def begin(self) -> None:
        """Note that a request is in flight."""
        with self._lock:
            self._busy += 1

    def end(self, request: Request) -> None:
        """Note what became of it."""
        with self._lock:
            self._busy -= 1
            self._requests.append(request)
            self._lock.notify_all()

    def fire(self, fired: Fired) -> None:
        """Note that a fault acts."""
        with self._lock:
            self.fired.append(fired)

    def pause(self, seconds: float) -> None:
        """Wait, but not longer than is bearable, nor past the end."""
        with self._lock:
            self._busy -= 1
            self._lock.notify_all()
        self._stop.wait(min(seconds, LONGEST_PAUSE))
        with self._lock:
            self._busy += 1

    def track(self, client: socket.socket, *, present: bool) -> None:
        """Know the connections that have to be cut at the end."""
        with self._lock:
            (self._clients.add if present else self._clients.discard)(client)


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # joined by server_close
    request_queue_size = 128

    def __init__(self, proxy: FaultProxy) -> None:
        self.proxy = proxy
        super().__init__((HOST, 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that hang up, which tests make them do; keep what is a fault of this file."""
        error = sys.exception()
        if error is not None and not isinstance(error, OSError):
            self.proxy.broken.append(error)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.proxy.track(self.connection, present=True)

    def finish(self) -> None:
        self.server.proxy.track(self.connection, present=False)
        try:
            super().finish()
        except OSError:  # the client is gone, and with it whoever wanted what is left to flush
            return

    def log_message(self, *args: object) -> None:
        """Keep quiet; tests read ``requests``."""

    def relay(self) -> None:
        """Pass one request on."""
        _Exchange(self, self.server.proxy).run()


for _verb in ("GET", "HEAD", "PUT", "POST", "DELETE"):
    setattr(_Handler, f"do_{_verb}", _Handler.relay)


class _Exchange:
    """One request and its answer."""

    def __init__(self, handler: _Handler, proxy: FaultProxy) -> None:
        self.handler = handler
        self.proxy = proxy
        self.headers = {name.lower(): value for name, value in handler.headers.items()}
        self.operation, self.key = classify(handler.command, handler.path, self.headers)
        self.length = int(self.headers.get("content-length", 0))
        self.received = self.sent = 0
        self.status: int | None = None
        self.fault = proxy.match(self.operation, self.key)

    def run(self) -> None:
        upstream = HTTPConnection(HOST, self.proxy.upstream_port, timeout=UPSTREAM_TIMEOUT)
        self.proxy.begin()
        try:
            if not self.strike(When.BEFORE):
                self.send_request(upstream)
                answer = upstream.getresponse()
                if not self.strike(When.AFTER):
                    self.send_answer(answer)
        except _CutError as cut:
            self.cut(reset=cut.reset)
        except (OSError, HTTPException):
            self.cut(reset=True)
        finally:
            upstream.close()
            headers = {name: value for name, value in self.headers.items() if name not in _SECRET_HEADERS}
            self.proxy.end(
                Request(
                    operation=self.operation,
                    key=self.key,
                    status=self.status,
                    received=self.received,
                    sent=self.sent,
                    headers=headers,
                )
            )

    def strike(self, when: When) -> bool:
        """Act where the fault's time has come; True where the request was answered by it."""
        if self.fault is None or self.fault.when is not when:
            return False
        self.proxy.fire(Fired(fault=self.fault, operation=self.operation, key=self.key))
        match self.fault.action:
            case Action.DROP | Action.TRUNCATE:
                raise _CutError(reset=self.fault.action is Action.DROP)
            case Action.STALL:
                self.proxy.pause(self.fault.seconds)
                raise _CutError(reset=True)
            case Action.DELAY:
                self.proxy.pause(self.fault.seconds)
                return False
            case Action.STATUS:
                self.answer_status(self.fault)
                return True
            case Action.CORRUPT:
                return False

    def send_request(self, upstream: HTTPConnection) -> None:
        upstream.putrequest(self.handler.command, self.handler.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.handler.headers.items():
            if name.lower() not in _NOT_FORWARDED:
                upstream.putheader(name, value)
        upstream.endheaders()
        refused = False
        for piece in self.break_body(self.request_body(), self.length):
            if not refused:
                try:
                    upstream.send(piece)
                except OSError:  # it has answered already; the rest of the body still has to be read
                    refused = True

    def send_answer(self, answer: HTTPResponse) -> None:
        self.status = answer.status
        self.handler.send_response_only(answer.status, answer.reason)
        declared = answer.getheader("Content-Length")
        for name, value in answer.getheaders():
            if name.lower() not in _NOT_FORWARDED:
                self.handler.send_header(name, value)
        bodiless = self.handler.command == "HEAD" or answer.status in {204, 304}
        if declared is None and not bodiless:
            self.handler.send_header("Connection", "close")
        self.handler.end_headers()
        pieces = iter(lambda: answer.read(CHUNK), b"")
        for piece in pieces if self.length else self.break_body(pieces, int(declared or 0)):
            self.handler.wfile.write(piece)
            self.sent += len(piece)

    def answer_status(self, fault: Fault) -> None:
        for _ in self.request_body():
            pass
        self.status = fault.status
        self.handler.send_response_only(fault.status)
        for name, value in fault.headers.items():
            self.handler.send_header(name, value)
        self.handler.send_header("Content-Length", str(len(fault.body)))
        self.handler.end_headers()
        if self.handler.command != "HEAD":
            self.handler.wfile.write(fault.body)
            self.sent = len(fault.body)

    def request_body(self) -> Iterator[bytes]:
        while self.received < self.length:
            piece = self.handler.rfile.read1(min(CHUNK, self.length - self.received))
            if not piece:
                raise _CutError(reset=True)
            self.received += len(piece)
            yield piece

    def break_body(self, pieces: Iterator[bytes], length: int) -> Iterator[bytes]:
        """Pass a body on, striking once at its middle."""
        middle, position, struck = length // 2, 0, False
        for piece in pieces:
            if not struck and position + len(piece) > middle and self.due_in_body():
                struck = True
                cut = middle - position
                yield piece[:cut]
                self.handler.wfile.flush()
                self.strike(When.MID_BODY)
                yield self.flip(piece[cut:])
            else:
                yield piece
            position += len(piece)

    def due_in_body(self) -> bool:
        return self.fault is not None and self.fault.when is When.MID_BODY

    def flip(self, piece: bytes) -> bytes:
        if self.fault is None or self.fault.action is not Action.CORRUPT:
            return piece
        return bytes([piece[0] ^ 1]) + piece[1:]

    def cut(self, *, reset: bool) -> None:
        self.handler.close_connection = True
        hang_up(self.handler.connection, reset=reset)
