"""One request and its answer over HTTP, with whatever is scheduled to go wrong on the way."""

import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, unquote, urlsplit

from support.faults import Action, Fault, When, hang_up
from support.hub import api_content, api_lfs, api_repos
from support.hub.endpoints import Operation, Route, Surface, classify
from support.hub.recording import Recorder, Seen
from support.hub.refusals import Answer, RefusedError
from support.hub.state import Call, Handler, HubState

CHUNK = 1 << 16
INVALID_TOKEN = "(invalid)"
_SECRET_HEADERS = frozenset({"authorization", "cookie"})
_HANDLERS: dict[Operation, Handler] = {**api_repos.HANDLERS, **api_content.HANDLERS, **api_lfs.HANDLERS}


@dataclass(slots=True, kw_only=True)
class Core:
    """What both origins share."""

    state: HubState
    recorder: Recorder
    lock: threading.Lock


class _CutError(Exception):
    """The connection to the client has to go; ``reset`` for rudely."""

    def __init__(self, *, reset: bool) -> None:
        super().__init__()
        self.reset = reset


class Exchange:
    """Reads a request, acts on it, and answers."""

    def __init__(self, handler: BaseHTTPRequestHandler, core: Core, surface: Surface) -> None:
        self.handler = handler
        self.core = core
        self.target = urlsplit(handler.path)
        self.headers = {name.lower(): value for name, value in handler.headers.items()}
        self.route: Route = classify(surface, handler.command, self.target.path)
        self.length = int(self.headers.get("content-length", 0))
        self.chunked = "transfer-encoding" in self.headers
        self.received = self.sent = 0
        self.status: int | None = None
        self.token: str | None = None
        self.seen = Seen(
            operation=self.route.operation,
            surface=surface,
            method=handler.command,
            path=unquote(self.target.path),
            headers={name: value for name, value in self.headers.items() if name not in _SECRET_HEADERS},
            writes=self.route.writes,
        )
        self.fault: Fault | None = core.recorder.due(self.seen.operation, self.seen.method, self.seen.path)

    def run(self) -> None:
        """Do it all, and record it."""
        self.core.recorder.begin()
        try:
            if not self.strike(When.BEFORE):
                body = b"".join(self.break_body(self.request_body(), self.length))
                answer = self.act(body)
                if not self.strike(When.AFTER):
                    self.send(answer)
        except _CutError as cut:
            self.cut(reset=cut.reset)
        except OSError:
            self.cut(reset=True)
        finally:
            self.core.recorder.end(
                self.seen, status=self.status, token=self.token, received=self.received, sent=self.sent
            )

    def act(self, body: bytes) -> Answer:
        """Let the Hub do what is asked; its refusals are answers too."""
        if self.chunked:  # an object store wants to know the length beforehand
            return _refusal(RefusedError(HTTPStatus.NOT_IMPLEMENTED, "Transfer-Encoding is not implemented"))
        try:
            with self.core.lock:
                return self.dispatch(body)
        except RefusedError as refused:
            return _refusal(refused)

    def dispatch(self, body: bytes) -> Answer:
        """Find out who asks, and hand the request to its endpoint."""
        authorization = self.headers.get("authorization")
        self.token = None if authorization is None else INVALID_TOKEN
        token = self.core.state.accounts.authenticate(authorization)
        self.token = None if token is None else token.name
        call = Call(
            method=self.seen.method,
            path=self.target.path,
            query=parse_qs(self.target.query, keep_blank_values=True),
            headers=self.headers,
            body=body,
            args=self.route.args,
            token=token,
        )
        handle: Callable[[HubState, Call], Answer] | None = _HANDLERS.get(self.route.operation)
        if handle is None:
            raise RefusedError(HTTPStatus.NOT_FOUND, f"No such endpoint: {call.method} {call.path}")
        return handle(self.core.state, call)

    def strike(self, when: When) -> bool:
        """Act where the fault's time has come; True where the request was answered by it."""
        if self.fault is None or self.fault.when is not when:
            return False
        self.core.recorder.fire(self.fault, self.seen)
        match self.fault.action:
            case Action.DROP | Action.TRUNCATE:
                raise _CutError(reset=self.fault.action is Action.DROP)
            case Action.STALL:
                self.core.recorder.pause(self.fault.seconds)
                raise _CutError(reset=True)
            case Action.DELAY:
                self.core.recorder.pause(self.fault.seconds)
                return False
            case Action.STATUS:
                self.discard_body()
                self.send(Answer(status=self.fault.status, headers=self.fault.headers, body=self.fault.body))
                return True
            case Action.CORRUPT:
                return False

    def send(self, answer: Answer) -> None:
        """Write the answer; its length is right even where its body is not sent."""
        self.status = answer.status
        self.handler.send_response_only(answer.status)
        for name, value in answer.headers.items():
            self.handler.send_header(name, value)
        self.handler.send_header("Content-Length", str(len(answer.body)))
        self.handler.end_headers()
        if self.seen.method == "HEAD":
            return
        pieces = (answer.body[start : start + CHUNK] for start in range(0, len(answer.body), CHUNK))
        for piece in pieces if self.length else self.break_body(pieces, len(answer.body)):
            self.handler.wfile.write(piece)
            self.sent += len(piece)

    def request_body(self) -> Iterator[bytes]:
        """Read what is left of the request."""
        if self.chunked:
            yield from self.request_chunks()
        while self.received < self.length:
            piece = self.handler.rfile.read(min(CHUNK, self.length - self.received))
            if not piece:
                raise _CutError(reset=True)
            self.received += len(piece)
            yield piece

    def discard_body(self) -> None:
        """Read what is left of the request and forget it: the next one comes after it."""
        for _ in self.request_body():
            continue

    def request_chunks(self) -> Iterator[bytes]:
        """Read a body of unknown length."""
        while size := int(self.handler.rfile.readline().partition(b";")[0].strip() or b"0", 16):
            piece = self.handler.rfile.read(size)
            self.received += len(piece)
            self.handler.rfile.readline()
            yield piece
        self.handler.rfile.readline()

    def break_body(self, pieces: Iterator[bytes], length: int) -> Iterator[bytes]:
        """Pass a body on, striking once at its middle."""
        middle, position, struck = length // 2, 0, False
        for piece in pieces:
            if not struck and position + len(piece) > middle and self.due_in_body():
                struck = True
                cut = middle - position
                yield piece[:cut]
                self.strike(When.MID_BODY)
                yield self.flip(piece[cut:])
            else:
                yield piece
            position += len(piece)

    def due_in_body(self) -> bool:
        """Tell whether a fault waits for the middle of a body."""
        return self.fault is not None and self.fault.when is When.MID_BODY

    def flip(self, piece: bytes) -> bytes:
        """Damage a piece, if that is the fault."""
        if self.fault is None or self.fault.action is not Action.CORRUPT:
            return piece
        return bytes([piece[0] ^ 1]) + piece[1:]

    def cut(self, *, reset: bool) -> None:
        """End the connection."""
        self.handler.close_connection = True
        hang_up(self.handler.connection, reset=reset)


def _refusal(refused: RefusedError) -> Answer:
    headers = {"Content-Type": "application/json; charset=utf-8", **refused.headers}
    headers["X-Error-Message"] = refused.message.encode("ascii", "replace").decode().replace("\n", " ")
    if refused.code is not None:
        headers["X-Error-Code"] = refused.code.value
    body = json.dumps({"error": refused.message, **refused.details}).encode()
    return Answer(status=refused.status, headers=headers, body=body)
