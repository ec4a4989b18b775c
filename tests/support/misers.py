"""Servers that are there and give or take next to nothing: what a timeout for each operation never notices."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

PAUSE = 0.02
"""Seconds between bytes."""
LIMIT = 30.0

Behave = Callable[[socket.socket, threading.Event], None]


class Miser:
    """A listening socket; each connection is served by ``behave``, until the client or the test has enough."""

    def __init__(self, behave: Behave) -> None:
        self._behave = behave
        self._stop = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []
        self.served = 0

    @property
    def endpoint_url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def run(self) -> None:
        while not self._stop.is_set():
            try:
                connection, _address = self._listener.accept()
            except OSError:  # closed: the test is over
                return
            self.served += 1
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            connection.settimeout(LIMIT)
            self._behave(connection, self._stop)

    def close(self) -> None:
        self._stop.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(LIMIT)


@contextmanager
def miser(behave: Behave) -> Iterator[Miser]:
    """Run a server of this kind."""
    running = Miser(behave)
    thread = threading.Thread(target=running.run, name="miser")
    thread.start()
    try:
        yield running
    finally:
        running.close()
        thread.join(LIMIT)


def read_head(connection: socket.socket) -> bytes:
    """Read a request's head, and nothing after it."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        found = connection.recv(1)
        if not found:
            raise ConnectionResetError
        head += found
    return head


def silent(connection: socket.socket, stop: threading.Event) -> None:
    """Take everything and never answer."""
    while not stop.is_set() and connection.recv(1 << 20):
        continue


def dribbling_head(connection: socket.socket, stop: threading.Event) -> None:
    """Answer with a head that goes on and on, a byte at a time."""
    read_head(connection)
    _dribble(connection, stop, b"HTTP/1.1 200 OK\r\nx-long: ")


def dribbling_body(connection: socket.socket, stop: threading.Event) -> None:
    """Answer at once with an object, and then send that a byte at a time."""
    read_head(connection)
    connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\nETag: "e"\r\n\r\n')
    _dribble(connection, stop, b"")


def generous(connection: socket.socket, stop: threading.Event) -> None:
    """Send an object at a rate that is no stall, and that takes minutes."""
    read_head(connection)
    connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\nETag: "e"\r\n\r\n')
    while not stop.wait(PAUSE):
        connection.sendall(bytes(1 << 18))


def sipping(connection: socket.socket, stop: threading.Event) -> None:
    """Ask for the body, and take it a byte at a time."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    read_head(connection)
    connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    while not stop.wait(PAUSE) and connection.recv(1):
        continue


def deaf(connection: socket.socket, stop: threading.Event) -> None:
    """Ask for the body, and take none of it."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    read_head(connection)
    connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
    stop.wait(LIMIT)


def leaving_at_100(connection: socket.socket, stop: threading.Event) -> None:
    """Begin to ask for the body, and hang up within the words."""
    del stop
    read_head(connection)
    connection.sendall(b"HTTP/1.1 100 Continue\r\n")


def chattering_at_100(connection: socket.socket, stop: threading.Event) -> None:
    """Begin to ask for the body, with headers that never end."""
    read_head(connection)
    connection.sendall(b"HTTP/1.1 100 Continue\r\n")
    while not stop.is_set():
        connection.sendall(b"x-more: words\r\n" * 100)


def _dribble(connection: socket.socket, stop: threading.Event, start: bytes) -> None:
    connection.sendall(start)
    while not stop.wait(PAUSE):
        connection.sendall(b"x")
