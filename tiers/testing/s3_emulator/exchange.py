"""One request and its answer over a connection, with whatever was scheduled to go wrong."""

import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.utils import format_datetime
from http import HTTPStatus
from typing import BinaryIO

from tiers.testing.s3_emulator.answers import Answer
from tiers.testing.s3_emulator.asked import Asked, understand
from tiers.testing.s3_emulator.faults import Action, Fault, Fired, Request, Schedule, When, hang_up
from tiers.testing.s3_emulator.lies import ENDLESS_LIMIT, Lie, LieKind, Told, falsify
from tiers.testing.s3_emulator.record import Record
from tiers.testing.s3_emulator.service import Service
from tiers.testing.s3_emulator.state import State
from tiers.testing.s3_emulator.wire import CutError, Head, WireBody

WRITE = 1 << 20
_SECRET_HEADERS = frozenset({"authorization", "x-amz-security-token"})
_BODILESS = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})
_BREAKING = frozenset({LieKind.SHORT_READ, LieKind.ENDLESS_BODY, LieKind.LENGTH_TOO_SHORT, LieKind.EARLY_REPLY})


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """What all connections of an emulator have in common."""

    state: State
    service: Service
    record: Record
    faults: Schedule[Fault]
    lies: Schedule[Lie]
    url: Callable[[], str]


class Exchange:
    """Reads one request and answers it; also the breaker of its body."""

    def __init__(self, shared: Shared, connection: socket.socket, source: BinaryIO, head: Head) -> None:
        self._shared = shared
        self._connection = connection
        self._asked: Asked = understand(head)
        self._fault = shared.faults.match(self._asked.name, self._asked.key)
        self._lie = shared.lies.match(self._asked.name, self._asked.key)
        self._in_request = head.length != 0
        breaker = self if self._due_in_body() and self._in_request else None
        self._wire = WireBody(source, head, self._go_on, breaker)
        self._status: int | None = None
        self._sent = 0

    def run(self) -> bool:
        """Serve; return whether the connection can be used again."""
        number = self._shared.record.begin()
        try:
            return self._serve()
        except CutError as cut:
            hang_up(self._connection, reset=cut.reset)
            return False
        finally:
            headers = {n: v for n, v in self._asked.headers.items() if n not in _SECRET_HEADERS}
            request = Request(
                operation=self._asked.name,
                key=self._asked.key,
                status=self._status,
                received=self._wire.received,
                sent=self._sent,
                headers=headers,
            )
            self._shared.record.end(number, request)

    def in_body(self) -> bool:
        """Strike in the middle of the body; return whether to flip the next byte."""
        self._strike(When.MID_BODY)
        return self._fault is not None and self._fault.action is Action.CORRUPT

    def _serve(self) -> bool:
        answer = self._strike(When.BEFORE) or self._lie_instead()
        if answer is None:
            answer = self._shared.service.answer(self._asked, self._wire)
            answer = self._strike(When.AFTER) or self._lie_about(answer)
        return self._send(answer)

    def _strike(self, when: When) -> Answer | None:
        """Act where the fault's time has come; return an answer where it gives one."""
        fault = self._fault
        if fault is None or fault.when is not when:
            return None
        self._shared.record.fire(Fired(fault=fault, operation=self._asked.name, key=self._asked.key))
        match fault.action:
            case Action.DROP | Action.TRUNCATE:
                raise CutError(reset=fault.action is Action.DROP)
            case Action.STALL:
                self._shared.record.pause(fault.seconds)
                raise CutError(reset=True)
            case Action.DELAY:
                self._shared.record.pause(fault.seconds)
                return None
            case Action.STATUS:
                return Answer(status=fault.status, headers=fault.headers, body=fault.body)
            case Action.CORRUPT:
                return None

    def _lie_instead(self) -> Answer | None:
        if self._lie is None or self._lie.when is not When.BEFORE:
            return None
        if self._lie.kind is LieKind.EARLY_REPLY:
            return self._tell(self._lie, Answer(status=self._lie.status))
        return self._tell(self._lie, Answer())

    def _lie_about(self, truth: Answer) -> Answer:
        return self._tell(self._lie, truth) if self._lie is not None and self._lie.when is When.AFTER else truth

    def _tell(self, lie: Lie, truth: Answer) -> Answer:
        self._shared.record.tell(Told(lie=lie, operation=self._asked.name, key=self._asked.key))
        return falsify(lie, truth, self._shared.url() + self._asked.head.target)

    def _framing_lie(self) -> LieKind | None:
        return self._lie.kind if self._lie is not None else None

    def _send(self, answer: Answer) -> bool:
        lie = self._framing_lie()
        unread = self._wire.waits or lie is LieKind.EARLY_REPLY
        if not unread:
            self._wire.drain()
        self._status = answer.status
        if lie is LieKind.GARBAGE_STATUS_LINE:
            self._write(b"\x16\x03\x01 this is not HTTP\r\n\r\n")
            raise CutError(reset=False)
        keep = self._asked.head.keep_alive and not unread and lie not in _BREAKING
        self._write(self._head(answer, lie, keep=keep))
        if self._has_body(answer):
            for piece in self._body(answer, lie):
                self._write(piece)
                self._sent += len(piece)
        if not keep:
            raise CutError(reset=False)
        return True

    def _has_body(self, answer: Answer) -> bool:
        return self._asked.head.method != "HEAD" and answer.status not in _BODILESS

    def _head(self, answer: Answer, lie: LieKind | None, *, keep: bool) -> bytes:
        try:
            reason = HTTPStatus(answer.status).phrase
        except ValueError:
            reason = ""
        headers = {
            "Date": format_datetime(self._shared.state.now(), usegmt=True),
            "Server": "ckptier-s3-emulator",
            "x-amz-request-id": self._shared.state.token()[:16].upper(),
            **answer.headers,
        }
        length = answer.length if answer.length is not None else len(answer.body)
        if lie is LieKind.LENGTH_TOO_SHORT:
            length //= 2
        if lie is not LieKind.ENDLESS_BODY and answer.status not in _BODILESS:
            headers.setdefault("Content-Length", str(length))
        if not keep:
            headers["Connection"] = "close"
        lines = [f"HTTP/1.1 {answer.status} {reason}", *(f"{name}: {value}" for name, value in headers.items())]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    def _body(self, answer: Answer, lie: LieKind | None) -> Iterator[bytes | memoryview]:
        if lie is LieKind.ENDLESS_BODY:
            piece = bytes(WRITE)
            while self._sent < ENDLESS_LIMIT and not self._shared.record.stopping:
                yield piece
            return
        body = memoryview(answer.body)
        half = len(body) // 2
        if lie is LieKind.SHORT_READ:
            yield body[:half]
            return
        if not (self._due_in_body() and not self._in_request and body):
            yield from (body[start : start + WRITE] for start in range(0, len(body), WRITE))
            return
        yield body[:half]
        flip = self.in_body()
        rest = bytearray(body[half:])
        rest[0] ^= int(flip)
        yield bytes(rest)

    def _due_in_body(self) -> bool:
        return self._fault is not None and self._fault.when is When.MID_BODY

    def _go_on(self) -> None:
        self._write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _write(self, data: bytes | memoryview) -> None:
        try:
            self._connection.sendall(data)
        except OSError:
            raise CutError(reset=True) from None
