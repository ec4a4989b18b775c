"""Requests to one Hub: one attempt each, none without a deadline, bodies bounded, the token only at home.

The HTTP client is this tier's own.  What the process shares is touched in one way: the levels
of the loggers ``httpx2`` and ``httpcore2``, where nobody set them, since they log signed URLs.
The library's chain of tokens is asked before each request, so that a token that rotates is
picked up; where ``HF_OIDC_RESOURCE`` is set that chain makes a request of its own.
"""

import logging
import re
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from importlib import metadata

from tiers.clock import Clock
from tiers.errors import AccessDenied, TierUnavailable
from tiers.hub_errors import HubFailure, Outcome, Surface, Verdict, of_answer, of_exception, strange
from tiers.hub_sdk import LIBRARY_ERRORS, PUBLIC_HUB, constants, errors, get_token, httpx2
from tiers.hub_urls import HubPlace

CONNECT_TIMEOUT = 10.0
"""Seconds for a connection to be made."""
PROGRESS_TIMEOUT = 120.0
"""Seconds in which something has to move; the Hub itself gives a commit up after 60."""
API_DEADLINE = 300.0
"""Seconds for a whole request to the API."""
MAX_ANSWER = 32 * 1024 * 1024
"""Bytes of an answer of the API."""
_MAX_REFUSAL = 16 * 1024
_TOKEN = re.compile(r"[\x21-\x7e]+")
_CAUGHT: tuple[type[Exception], ...] = (*LIBRARY_ERRORS, OSError, UnicodeError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long to wait.  Seconds: ``progress`` without any, ``whole`` for all of a request (None: no bound)."""

    progress: float = PROGRESS_TIMEOUT
    whole: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A success of the API, whole."""

    headers: Mapping[str, str]
    body: bytes


class HubClient:
    """The connections to one Hub and to the storage that it names; for any number of threads.

    ``token`` is asked at each request; None sends none.
    """

    def __init__(
        self,
        place: HubPlace,
        *,
        clock: Clock,
        patience: Patience,
        connections: int = 8,
        ca_bundle: str | None = None,
        token: Callable[[], str | None] | None = None,
    ) -> None:
        self.place = place
        self._clock = clock
        self._patience = patience
        self._connections = connections
        self._ca_bundle = ca_bundle
        self._token = token or library_token
        self._client: httpx2.Client | None = None
        self._lock = threading.Lock()

    def api(
        self,
        method: str,
        url: str,
        *,
        content: bytes | None = None,
        kind: str = "application/json",
        accept: str = "application/json",
        signed: bool = False,
    ) -> Answer:
        """Make a request to the Hub and read its answer; HubFailure for anything but a success.

        ``signed`` URLs carry their own permission, and get no token.
        """
        headers = {"Accept": accept}
        if content is not None:
            headers["Content-Type"] = kind
        if not signed and self.place.is_home(url):
            headers |= self._authorization()
        deadline = self.deadline(API_DEADLINE)
        response = self.send(method, url, headers, content)
        try:
            self.check(response, Surface.HUB)
            return Answer(headers=response.headers, body=self.read(response, MAX_ANSWER, deadline))
        finally:
            response.close()

    def store(self, url: str, headers: Mapping[str, str], pieces: Iterable[bytes], size: int) -> Mapping[str, str]:
        """Send bytes to the storage, as they are; returns the headers of its answer."""
        deadline = self.deadline(None)

        def watched() -> Iterator[bytes]:
            for piece in pieces:
                self._still(deadline)
                yield piece

        response = self.send("PUT", url, {**headers, "Content-Length": str(size)}, watched())
        try:
            self.check(response, Surface.STORAGE)
            self.read(response, MAX_ANSWER, deadline)
            return response.headers
        finally:
            response.close()

    def fetch(self, url: str, headers: Mapping[str, str]) -> httpx2.Response:
        """Start to read a file; the caller judges the status and closes."""
        token = self._authorization() if self.place.is_home(url) else {}
        return self.send("GET", url, {**headers, **token}, None)

    def check(self, response: httpx2.Response, surface: Surface) -> None:
        """Raise HubFailure for an answer that is no success."""
        if not HTTPStatus.OK <= response.status_code < HTTPStatus.MULTIPLE_CHOICES:
            raise self.refusal(response, surface)

    def refusal(self, response: httpx2.Response, surface: Surface) -> HubFailure:
        """Judge an answer that is no success."""
        try:
            body = self.read(response, _MAX_REFUSAL, self.deadline(API_DEADLINE))
        except HubFailure:
            body = b""  # its status says enough
        return of_answer(response.status_code, response.headers, body, surface)

    def read(self, response: httpx2.Response, limit: int, deadline: float | None) -> bytes:
        """Read an answer of at most ``limit`` bytes."""
        if response.headers.get("content-encoding", "identity") != "identity":
            raise strange("the answer is compressed, which was not asked for")
        data = bytearray()
        failure: HubFailure | None = None
        try:
            for piece in response.iter_raw():
                data += piece
                self._still(deadline)
                if len(data) > limit:
                    raise strange(f"the answer is longer than {limit} bytes")
        except _CAUGHT as error:
            failure = of_exception(error)
        if failure is not None:
            raise failure
        return bytes(data)

    def send(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes | Iterable[bytes] | None
    ) -> httpx2.Response:
        """Send a request and wait for the status of its answer."""
        if constants.is_offline_mode():
            raise of_exception(errors.OfflineModeIsEnabled())
        if not self.place.may_talk_to(url):
            verdict = Verdict(AccessDenied, "the Hub sent its client to a place without TLS: check endpoint_url")
            raise HubFailure(verdict, "a URL without TLS is refused")
        failure: HubFailure
        try:
            client = self._connected()
            request = client.build_request(method, url, headers=headers, content=content)
            return client.send(request, stream=True, follow_redirects=False)
        except _CAUGHT as error:
            failure = of_exception(error)
        raise failure

    def adopted(self, url: str) -> str:
        """Return a URL that the Hub named, at our endpoint where that stands in for the public one."""
        if not self.place.endpoint.startswith(PUBLIC_HUB) and url.startswith(f"{PUBLIC_HUB}/"):
            return self.place.endpoint + url.removeprefix(PUBLIC_HUB)
        return url

    def close(self) -> None:
        """Close the connections; the next request opens new ones."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def deadline(self, default: float | None) -> float | None:
        """Return the moment at which a request that starts now has to be over."""
        seconds = self._patience.whole if self._patience.whole is not None else default
        return None if seconds is None else self._clock.monotonic() + seconds

    def _still(self, deadline: float | None) -> None:
        if deadline is not None and self._clock.monotonic() > deadline:
            verdict = Verdict(TierUnavailable, "raise deadline_seconds of this tier, or look at the network")
            raise HubFailure(verdict, "the request took too long", outcome=Outcome.UNKNOWN)

    def _authorization(self) -> dict[str, str]:
        failure: HubFailure
        try:
            token = self._token()
        except _CAUGHT as error:
            failure = of_exception(error)
        else:
            if not token:
                return {}
            if _TOKEN.fullmatch(token):
                return {"Authorization": f"Bearer {token}"}
            failure = HubFailure(
                Verdict(AccessDenied, "give the token and nothing else, in HF_TOKEN or in the library's file"),
                "the Hub's token holds spaces or control characters",
            )
        raise failure

    def _connected(self) -> httpx2.Client:
        with self._lock:
            if self._client is None:
                _silence_the_client()
                progress = self._patience.progress
                self._client = httpx2.Client(
                    headers={"User-Agent": f"ckptier/{_version()}", "Accept-Encoding": "identity"},
                    timeout=httpx2.Timeout(progress, connect=min(CONNECT_TIMEOUT, progress)),
                    limits=httpx2.Limits(max_connections=None, max_keepalive_connections=self._connections),
                    verify=_trust(self._ca_bundle),
                    follow_redirects=False,
                )
            return self._client


def library_token() -> str | None:
    """Return the token of the library's own chain, unless it was told to send none by itself."""
    token = None if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else get_token()
    return token.strip() if token is not None else None


@lru_cache(maxsize=8)
def _trust(ca_bundle: str | None) -> ssl.SSLContext:
    """Return whom to believe, read once: it takes longer than a request."""
    return ssl.create_default_context(cafile=ca_bundle) if ca_bundle else httpx2.create_ssl_context()


def _silence_the_client() -> None:
    # A level that somebody set on purpose is left alone; a verbose root logger is not that.
    for name in ("httpx2", "httpcore2"):
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)


def _version() -> str:
    try:
        return metadata.version("ckptier")
    except metadata.PackageNotFoundError:
        return "unknown"
