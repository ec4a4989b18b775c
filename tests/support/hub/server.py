"""The server: two loopback origins, and what a test does with them."""

import socket
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from support.faults import Fault, Fired
from support.hub.accounts import Namespace, OrgRole, Token, TokenRole, Visibility, token_secret
from support.hub.endpoints import Surface
from support.hub.exchange import Core, Exchange
from support.hub.recording import Recorder, Seen
from support.hub.state import HubState, Limits, Repos

HOST = "127.0.0.1"
_LIFE_SIGN = 0.02


class HubServer:
    """A context manager; everything is in its memory and goes with it."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._core = Core(state=HubState(limits=limits or Limits()), recorder=Recorder(), lock=threading.Lock())
        self._origins = {surface: _Origin(self._core, surface) for surface in Surface}
        self._core.state.hub_url = self._origins[Surface.HUB].url
        self._core.state.storage_url = self._origins[Surface.STORAGE].url
        self._threads = [
            threading.Thread(target=origin.serve_forever, args=(_LIFE_SIGN,), name=f"hub-emulator-{surface}")
            for surface, origin in self._origins.items()
        ]

    @property
    def url(self) -> str:
        """The URL to give as ``endpoint``."""
        return self._core.state.hub_url

    @property
    def repos(self) -> Repos:
        """The repos, to be looked into."""
        return self._core.state.repos

    @property
    def requests(self) -> list[Seen]:
        """All requests so far, in order of their ends."""
        return self._core.recorder.seen

    @property
    def writes(self) -> list[Seen]:
        """The requests that changed something, or would have if they had not been refused or lost."""
        return [seen for seen in self.requests if seen.writes]

    @property
    def fired(self) -> list[Fired]:
        """The faults that acted."""
        return list(self._core.recorder.fired)

    def operations(self) -> list[str]:
        """Return the names of all operations so far."""
        return [seen.operation.value for seen in self.requests]

    def forget_requests(self) -> None:
        """Empty the record of requests."""
        self._core.recorder.forget()

    def inject(self, *faults: Fault) -> None:
        """Schedule faults.

        ``operation`` is a glob over ``Operation`` or the HTTP method, ``key`` one over the unquoted path.
        """
        self._core.recorder.inject(*faults)

    def add_org(
        self,
        name: str,
        members: Mapping[str, OrgRole],
        *,
        default_visibility: Visibility = Visibility.PUBLIC,
        private_limit: int | None = None,
    ) -> None:
        """Found an organisation."""
        self._core.state.accounts.namespaces[name] = Namespace(
            name=name, members=dict(members), default_visibility=default_visibility, private_limit=private_limit
        )

    def limit_private_storage(self, namespace: str, limit: int | None) -> None:
        """Change how many bytes of LFS objects the private repos of a namespace may hold."""
        spaces = self._core.state.accounts.namespaces
        spaces[namespace] = replace(spaces[namespace], private_limit=limit)

    def add_token(self, name: str, *, user: str, role: TokenRole = TokenRole.WRITE) -> str:
        """Make a token, and its user if need be; return the secret."""
        secret = token_secret(name)
        self._core.state.accounts.add_token(Token(name=name, user=user, role=role, secret=secret))
        return secret

    def revoke_token(self, name: str) -> None:
        """Make a token invalid."""
        self._core.state.accounts.revoke(name)

    def start(self) -> Self:
        """Start listening."""
        for thread in self._threads:
            thread.start()
        return self

    def stop(self) -> None:
        """Release what is stalled, cut every connection and wait for all threads."""
        self._core.recorder.stop()
        for origin in self._origins.values():
            origin.shut()
        for thread in self._threads:
            thread.join()
        broken = [error for origin in self._origins.values() for error in origin.broken]
        if broken:
            raise RuntimeError("the emulator itself failed") from broken[0]

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class _Origin(ThreadingHTTPServer):
    daemon_threads = False  # joined by server_close
    request_queue_size = 128

    def __init__(self, core: Core, surface: Surface) -> None:
        self.core = core
        self.surface = surface
        self.broken: list[BaseException] = []
        self.clients: set[socket.socket] = set()
        self.clients_lock = threading.Lock()
        super().__init__((HOST, 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_address[1]}"

    def track(self, client: socket.socket, *, present: bool) -> None:
        """Know the connections that have to be cut at the end."""
        with self.clients_lock:
            (self.clients.add if present else self.clients.discard)(client)

    def shut(self) -> None:
        self.shutdown()
        with self.clients_lock:
            for client in self.clients:
                try:
                    client.shutdown(socket.SHUT_RDWR)
                except OSError:  # the client was faster
                    continue
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that hang up, which tests make them do; keep what is a fault of this package."""
        error = sys.exception()
        if error is not None and not isinstance(error, OSError):
            self.broken.append(error)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Origin

    def setup(self) -> None:
        super().setup()
        self.server.track(self.connection, present=True)

    def finish(self) -> None:
        self.server.track(self.connection, present=False)
        try:
            super().finish()
        except OSError:  # the client is gone, and with it whoever wanted what is left to flush
            return

    def log_message(self, *args: object) -> None:
        """Keep quiet; tests read ``requests``."""

    def answer(self) -> None:
        """Serve one request."""
        Exchange(self, self.server.core, self.server.surface).run()


for _verb in ("GET", "HEAD", "PUT", "POST", "DELETE", "PATCH"):
    setattr(_Handler, f"do_{_verb}", _Handler.answer)
