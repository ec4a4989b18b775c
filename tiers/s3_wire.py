"""The SDK's connections, made to say what they are doing.

They tell the request that they serve (:mod:`tiers.s3_watchdog`) in which phase it is and
over which socket, and mend two things of the SDK's: the time allowed for a write is that
of connecting, and a connection that ends within "100 Continue" is read for ever.
"""

import socket
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from tiers.pacing import on_the_way
from tiers.s3_sdk import AWSHTTPConnection, AWSHTTPConnectionPool, AWSHTTPSConnection, AWSHTTPSConnectionPool
from tiers.s3_watchdog import Phase, current_transfer

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client

rehearsing: ContextVar[bool] = ContextVar("tiers.s3_wire.rehearsing", default=False)
"""Whether this thread only looks at what would be sent: nothing may be."""
MAX_HEADER_LINES = 100
"""After "100 Continue"; more is no server that should be listened to."""


class _Watched:
    """What both kinds of connection have in addition.  To be mixed in before the SDK's class."""

    write_timeout = 120.0
    """Seconds for one write: a last resort, since what a body may take is watched as a whole."""

    def _new_conn(self) -> socket.socket:
        connected: socket.socket = super()._new_conn()  # type: ignore[misc]
        _enter(Phase.CONNECTING, connected)
        return connected

    def request(self, *args: Any, **kwargs: Any) -> Any:
        this: Any = self
        if rehearsing.get():  # whoever rehearses should have stopped it before
            raise ConnectionAbortedError("a rehearsal was about to be sent")
        if this.sock is None:
            this.connect()
        _enter(Phase.SENDING, this.sock)
        this.timeout = self.write_timeout
        try:
            with on_the_way(sending=True):
                return super().request(*args, **kwargs)  # type: ignore[misc]
        finally:  # a store that hung up in mid-body may still have answered, and the pool looks for that
            _enter(Phase.WAITING)

    def _consume_headers(self, fp: Any) -> None:
        # Hazard: the SDK's own loops for ever where the connection ends before the blank line.
        for _ in range(MAX_HEADER_LINES):
            line = fp.readline()
            if line == b"\r\n":
                return
            if not line:
                break
        raise ConnectionResetError("the connection ended within 100 Continue")


class _WatchedHTTPConnection(_Watched, AWSHTTPConnection):  # type: ignore[misc]  # as the SDK's own
    """Plain."""


class _WatchedHTTPSConnection(_Watched, AWSHTTPSConnection):  # type: ignore[misc]
    """Encrypted."""


def watch(client: "S3Client", write_timeout: float) -> None:
    """Make every connection of a client watched; to be called before its first request.

    Hazard: the SDK has no public place for this.  A version that moves it makes this raise
    AttributeError, or fails the tests of stalls, and is not silent.
    """
    http = type("Http", (_WatchedHTTPConnection,), {"write_timeout": write_timeout})
    https = type("Https", (_WatchedHTTPSConnection,), {"write_timeout": write_timeout})
    session: Any = client._endpoint.http_session  # type: ignore[attr-defined]  # noqa: SLF001 - see the docstring
    # One mapping for direct connections and for those through proxies.
    session._pool_classes_by_scheme.update(  # noqa: SLF001 - as above
        http=type("HttpPool", (AWSHTTPConnectionPool,), {"ConnectionCls": http}),
        https=type("HttpsPool", (AWSHTTPSConnectionPool,), {"ConnectionCls": https}),
    )


def pool_for(client: "S3Client", url: str) -> Any:
    """Return urllib3's pool of the connections that a client uses for a URL; None where they lead through a proxy.

    Hazard: as for :func:`watch`.
    """
    session: Any = client._endpoint.http_session  # type: ignore[attr-defined]  # noqa: SLF001 - see the docstring
    session = getattr(session, "inner", session)  # that of tiers.s3_answers
    if session._proxy_config.proxy_url_for(url):  # noqa: SLF001 - as above
        return None
    pool = session._manager.connection_from_url(url)  # noqa: SLF001 - as above
    session._setup_ssl_cert(pool, url, session._verify)  # noqa: SLF001 - as above
    return pool


def _enter(phase: Phase, connected: Any = None) -> None:
    transfer = current_transfer()
    if transfer is not None:
        transfer.enter(phase, connected if isinstance(connected, socket.socket) else None)
