"""A small HTTP proxy that knows CONNECT and nothing else, and notes who asked for what."""

import base64
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from support.misers import LIMIT, read_head

CHUNK = 1 << 16


class ConnectProxy:
    """Tunnels on a free port of loopback.  ``login`` (user:password) is demanded where it is given."""

    def __init__(self, login: str | None = None) -> None:
        self._login = login
        self._stop = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []
        self.tunnels: list[str] = []
        self.refused: list[str] = []

    @property
    def url(self) -> str:
        login = f"{self._login}@" if self._login else ""
        return f"http://{login}127.0.0.1:{self._listener.getsockname()[1]}"

    def run(self) -> None:
        while not self._stop.is_set():
            try:
                client, _address = self._listener.accept()
            except OSError:  # closed: the test is over
                return
            thread = threading.Thread(target=self._serve, args=(client,))
            self._threads.append(thread)
            thread.start()

    def close(self) -> None:
        self._stop.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(LIMIT)

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            client.settimeout(LIMIT)
            head = read_head(client).decode("latin-1")
            method, target, _version = head.split("\r\n", 1)[0].split()
            if method != "CONNECT" or not self._is_welcome(head):
                self.refused.append(target)
                client.sendall(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
                return
            host, _colon, port = target.rpartition(":")
            self.tunnels.append(target)
            with socket.create_connection((host, int(port)), LIMIT) as upstream:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                self._pump(client, upstream)

    def _is_welcome(self, head: str) -> bool:
        if self._login is None:
            return True
        return f"Proxy-Authorization: Basic {base64.b64encode(self._login.encode()).decode()}\r\n" in head

    def _pump(self, client: socket.socket, upstream: socket.socket) -> None:
        other = {client: upstream, upstream: client}
        while not self._stop.is_set():
            for source in select.select(list(other), [], [], 0.05)[0]:
                data = source.recv(CHUNK)
                if not data:
                    return
                other[source].sendall(data)


@contextmanager
def connect_proxy(login: str | None = None) -> Iterator[ConnectProxy]:
    """Run a proxy."""
    proxy = ConnectProxy(login)
    thread = threading.Thread(target=proxy.run, name="connect-proxy")
    thread.start()
    try:
        yield proxy
    finally:
        proxy.close()
        thread.join(LIMIT)
