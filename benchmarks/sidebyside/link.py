"""A link between two processes: so many bytes a second each way, so long on the way.  A process of its own.

    python -m benchmarks.sidebyside.link --to PORT --rate 26214400 --round-trip 0.04

Prints its port and that of its control.  A new connection costs a round trip, as it does over a
distance; slow start and losses are not imitated.  What does not fit the link waits with its sender.
The control answers a line ``counters`` or ``reset`` with what passed since the last reset, in JSON.
"""

import argparse
import json
import select
import socket
import struct
import threading
from collections import deque
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from enum import StrEnum

from benchmarks.sidebyside.parting import leave_with_parent
from benchmarks.sidebyside.shaping import Bucket
from tiers.clock import SystemClock

STEP = 0.0025
"""Seconds of bytes that are passed on as one piece: finer costs more of the machine than it is worth."""
LARGEST = 1 << 20
HORIZON = 0.02
"""Seconds of bytes that wait within the link; the rest waits in the sender's socket."""
PENDING = 8 << 20
"""Bytes that a receiver which does not read may leave here."""
CLOCK = SystemClock()
_RESET = struct.pack("ii", 1, 0)


class Way(StrEnum):
    """Towards the server, or back."""

    UP = "up"
    DOWN = "down"


@dataclass(slots=True)
class Passed:
    """What went through since the last reset; times are of the monotonic clock.  ``up`` is towards the server."""

    connections: int = 0
    up: int = 0
    down: int = 0
    first_connected: float | None = None
    first_up: float | None = None
    last_up: float | None = None
    last_down: float | None = None


@dataclass(eq=False, slots=True)
class Pipe:
    """One direction of one connection."""

    source: socket.socket
    target: socket.socket
    way: Way
    peer: "Pipe | None" = None
    waiting: deque[memoryview] = field(default_factory=deque)
    held: int = 0
    ended: bool = False
    dead: bool = False


class Link:
    """All connections and both buckets, in one thread that never blocks."""

    def __init__(self, listener: socket.socket, to: int, *, rate: float, round_trip: float) -> None:
        self._listener, self._to, self._round_trip = listener, to, round_trip
        self._piece = min(int(rate * STEP), LARGEST) or LARGEST
        self._buckets = {way: Bucket(rate=rate, delay=round_trip / 2) for way in Way}
        self._readable: dict[Way, deque[Pipe]] = {way: deque() for way in Way}
        self._flying: dict[Way, deque[tuple[float, Pipe, memoryview | None]]] = {way: deque() for way in Way}
        self._births: deque[tuple[float, Pipe]] = deque()
        self._by_file: dict[int, tuple[Pipe, Pipe]] = {}  # the pipe that reads it, the pipe that writes it
        self._spare: list[bytearray] = []  # fresh memory costs more than the copy into it
        self._poll = select.epoll()
        self.passed = Passed()

    def run(self) -> None:
        """Pass bytes on for ever."""
        self._listener.settimeout(0)
        self._poll.register(self._listener, select.EPOLLIN)
        while True:
            for file, events in self._poll.poll(self._pause()):
                if file == self._listener.fileno():
                    self._accept()
                else:
                    self._note(file, events)
            now = CLOCK.monotonic()
            while self._births and self._births[0][0] <= now:
                self._readable[Way.UP].append(self._births.popleft()[1])
            for way in Way:
                self._take_in(way)
                self._let_out(way)

    def _pause(self) -> float | None:
        now = CLOCK.monotonic()
        due = [flying[0][0] - now for flying in self._flying.values() if flying]
        due += [self._buckets[way].backlog(now) - HORIZON for way, pipes in self._readable.items() if pipes]
        due += [self._births[0][0] - now] if self._births else []
        return max(0.0, min(due)) if due else None

    def _accept(self) -> None:
        near, _ = self._listener.accept()
        far = socket.create_connection(("127.0.0.1", self._to))
        up, down = Pipe(near, far, way=Way.UP), Pipe(far, near, way=Way.DOWN)
        up.peer, down.peer = down, up
        self._by_file[near.fileno()] = (up, down)
        self._by_file[far.fileno()] = (down, up)
        for sock in (near, far):
            sock.settimeout(0)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        now = CLOCK.monotonic()
        self.passed.connections += 1
        self.passed.first_connected = self.passed.first_connected or now
        self._births.append((now + self._round_trip, up))
        events = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET
        self._poll.register(near, events)
        self._poll.register(far, events)

    def _note(self, file: int, events: int) -> None:
        if file not in self._by_file:
            return
        reader, writer = self._by_file[file]
        if events & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR | select.EPOLLRDHUP):
            self._wake(reader)
        if events & select.EPOLLOUT and writer.waiting:
            self._flush(writer)

    def _wake(self, pipe: Pipe) -> None:
        queue = self._readable[pipe.way]
        if pipe not in queue and not any(one is pipe for _, one in self._births):
            queue.append(pipe)

    def _take_in(self, way: Way) -> None:
        queue, bucket = self._readable[way], self._buckets[way]
        while queue and bucket.backlog(CLOCK.monotonic()) <= HORIZON:
            pipe = queue.popleft()
            if pipe.dead or pipe.ended or pipe.held > PENDING:
                continue
            data = self._receive(pipe)
            if data is None:
                continue
            now = CLOCK.monotonic()
            due = bucket.admit(now, len(data))
            if not data:
                pipe.ended = True
                self._flying[way].append((due, pipe, None))
                continue
            pipe.held += len(data)
            self._count(way, len(data), now, due)
            self._flying[way].append((due, pipe, data))
            queue.append(pipe)
            if not bucket.rate:
                return

    def _receive(self, pipe: Pipe) -> memoryview | None:
        """Take what a sender has ready; empty at its end, None where there is nothing to take."""
        buffer = self._spare.pop() if self._spare else bytearray(self._piece)
        try:
            got = pipe.source.recv_into(buffer)
        except BlockingIOError:
            self._spare.append(buffer)
            return None
        except OSError:
            self._cut(pipe)
            return None
        return memoryview(buffer)[:got]

    def _count(self, way: Way, size: int, now: float, due: float) -> None:
        passed = self.passed
        if way is Way.UP:
            passed.up += size
            passed.first_up = passed.first_up or now
            passed.last_up = due
        else:
            passed.down += size
            passed.last_down = due

    def _let_out(self, way: Way) -> None:
        flying = self._flying[way]
        now = CLOCK.monotonic()
        while flying and flying[0][0] <= now:
            _, pipe, data = flying.popleft()
            if pipe.dead:
                continue
            if data is None:
                with suppress(OSError):
                    pipe.target.shutdown(socket.SHUT_WR)
                self._bury(pipe)
            else:
                pipe.waiting.append(data)
                if len(pipe.waiting) == 1:
                    self._flush(pipe)

    def _flush(self, pipe: Pipe) -> None:
        was_full = pipe.held > PENDING
        while pipe.waiting and not pipe.dead:
            piece = pipe.waiting[0]
            try:
                sent = pipe.target.send(piece)
            except BlockingIOError:
                break
            except OSError:
                self._cut(pipe)
                return
            pipe.held -= sent
            if sent < len(piece):
                pipe.waiting[0] = piece[sent:]
            else:
                pipe.waiting.popleft()
                self._spare.append(piece.obj)  # type: ignore[arg-type]  # the bytearray that it is of
        if was_full and pipe.held <= PENDING:
            self._wake(pipe)

    def _cut(self, pipe: Pipe) -> None:
        """Break both directions at once: what was on the way is lost."""
        for sock in (pipe.source, pipe.target):
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        pipe.dead = True
        if pipe.peer is not None:
            pipe.peer.dead = True
        self._close(pipe)

    def _bury(self, pipe: Pipe) -> None:
        pipe.dead = True
        if pipe.peer is not None and pipe.peer.dead:
            self._close(pipe)

    def _close(self, pipe: Pipe) -> None:
        for sock in (pipe.source, pipe.target):
            if sock.fileno() >= 0:
                self._by_file.pop(sock.fileno(), None)
                sock.close()


def control(listener: socket.socket, link: Link) -> None:
    """Answer whoever measures, one line a connection."""
    while True:
        sock, _ = listener.accept()
        with sock, sock.makefile("rw") as lines:
            asked = lines.readline().strip()
            lines.write(json.dumps(asdict(link.passed)) + "\n")
            if asked == "reset":
                link.passed = Passed()


def main() -> None:
    """Pass on for ever."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=int, required=True, help="port of the server")
    parser.add_argument("--rate", type=float, default=0.0, help="bytes a second each way; 0 bounds nothing")
    parser.add_argument("--round-trip", type=float, default=0.0, help="seconds there and back")
    arguments = parser.parse_args()
    leave_with_parent()
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    asked = socket.create_server(("127.0.0.1", 0))
    link = Link(listener, arguments.to, rate=arguments.rate, round_trip=arguments.round_trip)
    threading.Thread(target=control, args=(asked, link), daemon=True).start()
    print(listener.getsockname()[1], asked.getsockname()[1], flush=True)
    link.run()


if __name__ == "__main__":
    main()
