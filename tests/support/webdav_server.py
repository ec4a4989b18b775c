"""A WebDAV server over a folder, on this machine's loopback, in threads of the test's process: WsgiDAV on cheroot."""

import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from cheroot.wsgi import Server
from wsgidav.fs_dav_provider import FilesystemProvider  # type: ignore[import-untyped]
from wsgidav.wsgidav_app import WsgiDAVApp  # type: ignore[import-untyped]

HOST = "127.0.0.1"
USER = "trainer"
PASSWORD = "test-webdav-password"


class WebdavServer:
    """Serves ``root`` to USER."""

    def __init__(self, root: Path) -> None:
        app = WsgiDAVApp(
            {
                "provider_mapping": {"/": FilesystemProvider(str(root), readonly=False)},
                "simple_dc": {"user_mapping": {"*": {USER: {"password": PASSWORD}}}},
                "http_authenticator": {"accept_basic": True, "accept_digest": False, "default_to_digest": False},
                "lock_storage": True,
                "property_manager": None,
                "verbose": 0,
                "logging": {"enable": False},
            }
        )
        self._server = Server((HOST, 0), app, numthreads=12, timeout=2)
        self._server.prepare()
        self._thread = threading.Thread(target=self._server.serve, daemon=True)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return int(self._server.bind_addr[1])

    @property
    def url(self) -> str:
        """The tier's URL for the whole folder."""
        return f"webdav+http://{HOST}:{self.port}/"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop()
        self._thread.join(10)
