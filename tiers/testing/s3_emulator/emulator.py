"""The emulator as a test sees it."""

import hashlib
import socket
import socketserver
import ssl
import sys
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, BinaryIO, Self, cast

from tiers.clock import Clock, SystemClock
from tiers.metered import BillingClass
from tiers.testing.s3_emulator.asked import VIRTUAL_HOST
from tiers.testing.s3_emulator.behaviour import Behaviour, Encryption
from tiers.testing.s3_emulator.certificate import write_certificates
from tiers.testing.s3_emulator.exchange import Exchange, Shared
from tiers.testing.s3_emulator.faults import Fault, Fired, Request, Schedule
from tiers.testing.s3_emulator.lies import Lie, Told
from tiers.testing.s3_emulator.objects import etag_of
from tiers.testing.s3_emulator.operations import billing_class
from tiers.testing.s3_emulator.providers import AWS
from tiers.testing.s3_emulator.record import Record
from tiers.testing.s3_emulator.service import Service
from tiers.testing.s3_emulator.signing import Credentials
from tiers.testing.s3_emulator.state import NULL_VERSION, Attributes, State, StoredObject
from tiers.testing.s3_emulator.wire import NotHttpError, read_head

HOST = "127.0.0.1"
BUCKET = "emulated-bucket"
DEFAULT_CREDENTIALS = Credentials(access_key="emulator-key", secret_key="emulator-secret")  # noqa: S106 - throw-away


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Bytes that a bill would count: current versions, older ones, and parts of unfinished uploads."""

    current: int
    noncurrent: int
    parts: int


class S3Emulator:
    """A strict S3 on a free port of loopback; a context manager.

    ``behaviour`` says how it acts, ``buckets`` exist from the start, ``credentials`` are
    those that it knows.  With ``tls`` it speaks https only, and ``ca_bundle`` vouches for it
    (for boto3: AWS_CA_BUNDLE).  ``clock`` is the store's: ages and rates are of its
    ``monotonic``, dates and the check of signatures of its ``now``.

    Not emulated: presigned URLs, ACLs, tags, object lock, website and event configuration,
    and CRC64NVME of objects whose client stated no checksum.
    """

    def __init__(
        self,
        behaviour: Behaviour = AWS,
        *,
        buckets: tuple[str, ...] = (BUCKET,),
        credentials: Iterable[Credentials] = (DEFAULT_CREDENTIALS,),
        tls: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self.behaviour = behaviour
        self.credentials = tuple(credentials)
        self._bucket = buckets[0] if buckets else ""
        self._tls = tls
        self._record = Record()
        self._state = State(behaviour, clock if clock is not None else SystemClock(), buckets)
        self._faults: Schedule[Fault] = Schedule()
        self._lies: Schedule[Lie] = Schedule()
        shared = Shared(
            state=self._state,
            service=Service(self._state, self.credentials, lambda: self.endpoint_url),
            record=self._record,
            faults=self._faults,
            lies=self._lies,
            url=lambda: self.endpoint_url,
        )
        self._files = TemporaryDirectory(prefix="s3-emulator-") if tls else None
        self.ca_bundle: Path | None = None
        self._server = _Server(shared, self._make_context())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="s3-emulator")

    @property
    def endpoint_url(self) -> str:
        """The URL to give as ``endpoint_url``, for path addressing."""
        return f"{self._scheme}://{HOST}:{self.port}"

    @property
    def virtual_endpoint_url(self) -> str:
        """The URL for virtual-host addressing; ``*.s3.localhost`` has to lead to 127.0.0.1."""
        return f"{self._scheme}://{VIRTUAL_HOST}:{self.port}"

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._server.server_address[1])

    @property
    def requests(self) -> list[Request]:
        """What was asked, in order of beginnings; waits until nothing is in flight but what a fault holds."""
        return self._record.requests

    @property
    def counts(self) -> Counter[str]:
        """Requests by operation, refused ones included."""
        return Counter(request.operation for request in self.requests)

    @property
    def by_class(self) -> Counter[BillingClass]:
        """Requests by billing class, refused ones included."""
        return Counter(billing_class(request.operation) for request in self.requests)

    @property
    def fired(self) -> list[Fired]:
        """The faults that acted."""
        return self._record.fired

    @property
    def told(self) -> list[Told]:
        """The lies that were told."""
        return self._record.told

    def inject(self, *scheduled: Fault | Lie) -> None:
        """Schedule faults and lies; each acts once, and counts matching requests from now."""
        self._faults.add(item for item in scheduled if isinstance(item, Fault))
        self._lies.add(item for item in scheduled if isinstance(item, Lie))

    def forget_requests(self) -> None:
        """Empty ``requests``, ``fired`` and ``told``; what is stored stays."""
        self._record.forget()

    def objects(self, bucket: str | None = None) -> Mapping[str, bytes]:
        """Return the current objects by key, of the first bucket unless one is named."""
        with self._state.lock:
            held = self._state.buckets[bucket or self._bucket]
            return {key: found.data for key, found in held.current_objects()}

    def put(self, key: str, data: bytes, bucket: str | None = None) -> None:
        """Store an object past the protocol, without checksums."""
        with self._state.lock:
            written = StoredObject(
                version=NULL_VERSION,
                data=data,
                etag=etag_of(hashlib.md5(data, usedforsecurity=False).hexdigest(), self._state, Encryption.NONE),
                modified=self._state.now(),
                attributes=Attributes(),
                checksums={},
            )
            self._state.buckets[bucket or self._bucket].add(key, written)

    def corrupt(self, key: str, at: int = 0, bucket: str | None = None) -> None:
        """Flip a bit of a stored object at byte ``at``; its ETag and checksums stay.  KeyError where it is missing."""
        with self._state.lock:
            held = self._state.buckets[bucket or self._bucket]
            found = held.current(key)
            if found is None:
                raise KeyError(key)
            data = bytearray(found.data)
            data[at] ^= 1
            held.objects[key][-1] = replace(found, data=bytes(data))

    def uploads(self, bucket: str | None = None) -> Mapping[str, tuple[str, tuple[int, ...]]]:
        """Return unfinished uploads: id -> key and the numbers of its parts."""
        with self._state.lock:
            held = self._state.buckets[bucket or self._bucket]
            self._state.expire_uploads(held)
            return {each.upload_id: (each.key, tuple(sorted(each.parts))) for each in held.uploads.values()}

    def footprint(self, bucket: str | None = None) -> Footprint:
        """Return the bytes that are stored."""
        with self._state.lock:
            held = self._state.buckets[bucket or self._bucket]
            self._state.expire_uploads(held)
            current = sum(len(found.data) for _, found in held.current_objects())
            versions = [v for kept in held.objects.values() for v in kept if isinstance(v, StoredObject)]
            uploads = held.uploads.values()
            return Footprint(
                current=current,
                noncurrent=sum(len(version.data) for version in versions) - current,
                parts=sum(len(part.data) for upload in uploads for part in upload.parts.values()),
            )

    def start(self) -> Self:
        """Start listening."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Release what is stalled, cut every connection and wait for all threads."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._record.end_all()
            self._thread.join()
        self._server.server_close()
        if self._files is not None:
            self._files.cleanup()
        if self._record.broken:
            raise RuntimeError("the S3 emulator itself failed") from self._record.broken[0]

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _scheme(self) -> str:
        return "https" if self._tls else "http"

    def _make_context(self) -> ssl.SSLContext | None:
        if self._files is None:
            return None
        names = ("localhost", VIRTUAL_HOST, f"*.{VIRTUAL_HOST}")
        self.ca_bundle, chain = write_certificates(Path(self._files.name), HOST, names)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(chain)
        return context


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = False  # joined by server_close
    request_queue_size = 128

    def __init__(self, shared: Shared, context: ssl.SSLContext | None) -> None:
        self.shared = shared
        self.context = context
        super().__init__((HOST, 0), _Connection)

    def get_request(self) -> tuple[socket.socket, Any]:
        """Accept; the handshake is left to the connection's own thread."""
        client, address = super().get_request()
        if self.context is not None:
            client = self.context.wrap_socket(client, server_side=True, do_handshake_on_connect=False)
        self.shared.record.track(client)
        return client, address

    def shutdown_request(self, request: Any) -> None:
        """Forget the connection and close it; whoever cut it has said what had to be said."""
        self.shared.record.untrack(request)
        self.close_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 - socketserver's signature
        """Ignore clients that hang up, which tests make them do; keep what is a fault of this package."""
        error = sys.exception()
        if error is not None and not isinstance(error, OSError | NotHttpError):
            self.shared.record.fail(error)


class _Connection(socketserver.StreamRequestHandler):
    disable_nagle_algorithm = True
    server: _Server

    def handle(self) -> None:
        """Serve requests until one of both sides has had enough."""
        if isinstance(self.connection, ssl.SSLSocket):
            self.connection.do_handshake()
        going = True
        while going and not self.server.shared.record.stopping:
            source = cast("BinaryIO", self.rfile)
            head = read_head(source)
            going = head is not None and Exchange(self.server.shared, self.connection, source, head).run()
