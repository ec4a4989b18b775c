"""huggingface_hub on a short rein: bounded waits, no progress bars, and none of its exceptions let out.

The library shares one HTTP client in the process and gives it no timeout, sleeps as long as a
server asks for, and logs URLs that hold signatures.  While a publication runs that is otherwise;
afterwards it is as it was.  What it raises holds the request with its token, so it is not chained
to what comes out of here.
"""

import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from types import MappingProxyType
from typing import TypeVar

import httpx2
from huggingface_hub import HfApi, constants, get_token, set_client_factory
from huggingface_hub.errors import (
    DisabledRepoError,
    EntryNotFoundError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalTokenNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import _http
from huggingface_hub.utils import logging as library_logging
from huggingface_hub.utils._headers import build_hf_headers
from huggingface_hub.utils.tqdm import disable_progress_bars

from replicate.errors import (
    CapabilityMissing,
    CkptierError,
    ConfigInvalid,
    Denied,
    IntegrityFailure,
    LocalDisk,
    NothingFound,
    TrustFailure,
    Unreachable,
)
from tiers.clock import Clock
from tiers.effects import Effect, effect

ATTRIBUTES = ".gitattributes"
"""The Hub's own file: it makes it, and a release without one keeps it."""
TIMEOUT = httpx2.Timeout(120.0, connect=20.0)
"""Seconds for each read or write of a connection, and for opening one."""
LONGEST_WAIT = 60
"""Seconds that a server may ask for; for longer, the publication fails and says so."""
_LOOKS = 4
_CONFLICTS = 20
_MESSAGE = 400

_LATER = "the Hub did not answer as it should: try again later"
_NETWORK = "check the network and the Hub's address, then try again (a publication that began: with --resume)"
_NONE_GIVEN = "no token was given: name one by --token-file or HF_TOKEN"
_AGAIN = "look at the repository, and have the release authorized for what it is now"
_WRITER = "give a token that may write to this repository, by file or by HF_TOKEN"

Result = TypeVar("Result")
_Kind = tuple[type[CkptierError], str]

BY_STATUS: Mapping[int, _Kind] = MappingProxyType(
    {
        400: (ConfigInvalid, "correct what the Hub names, prepare the release again and have it authorized"),
        401: (Denied, "the token is not valid: make one with write access and give it by file or by HF_TOKEN"),
        402: (Denied, "the account's plan does not allow it: look at its billing page"),
        403: (Denied, _WRITER),
        404: (NothingFound, "check the name of the repository, and that the token may see it"),
        408: (Unreachable, _LATER),
        409: (TrustFailure, _AGAIN),
        412: (TrustFailure, _AGAIN),
        413: (CapabilityMissing, "lower weights.max_shard_size and prepare the release again"),
        416: (IntegrityFailure, "a file is shorter than the Hub says: do not use this commit"),
        422: (ConfigInvalid, "correct what the Hub names, prepare the release again and have it authorized"),
        425: (Unreachable, _LATER),
        429: (Unreachable, "the Hub limits the rate of requests: try again later"),
        451: (Denied, "the repository is disabled: ask the Hub's support"),
    }
)
"""What each status means to the caller, and what to do.  Other 5xx: Unreachable; others: CkptierError."""

BY_EXCEPTION: tuple[tuple[type[BaseException], _Kind], ...] = (
    (GatedRepoError, (Denied, "ask for access to the gated repository, or use its owner's token")),
    (DisabledRepoError, (Denied, "the repository is disabled: ask the Hub's support")),
    (RevisionNotFoundError, (TrustFailure, _AGAIN)),
    (OfflineModeIsEnabled, (Unreachable, "unset HF_HUB_OFFLINE")),
    (LocalTokenNotFoundError, (Denied, _WRITER)),
    (HFValidationError, (ConfigInvalid, "write hf://owner/name with letters, digits, - _ and .")),
    (httpx2.InvalidURL, (ConfigInvalid, "correct destination.endpoint")),
    (httpx2.UnsupportedProtocol, (ConfigInvalid, "correct destination.endpoint")),
    (httpx2.TransportError, (Unreachable, _NETWORK)),
    (httpx2.HTTPError, (Unreachable, _LATER)),
    (ConnectionError, (Unreachable, _NETWORK)),  # of xet, which does not use httpx2
    (TimeoutError, (Unreachable, _NETWORK)),
    (OSError, (LocalDisk, "check the prepared tree and its disk, then publish again with --resume")),
    (RuntimeError, (Unreachable, "the upload broke off: publish again with --resume")),
)
"""What an exception without a status means; the first that fits."""


class AskedToWait(Unreachable):
    """The Hub asks for more patience than a publication has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubLibrary:
    """The library's calls about one repository, each announced, each with its errors translated.

    ``secret`` is the token, kept out of every message.
    """

    api: HfApi
    repo: str
    secret: str | None
    clock: Clock

    def ask(self, doing: str, act: Callable[[], Result]) -> Result:
        """Make one call; ``doing`` completes "while …".  Raises CkptierError and nothing else."""
        with effect(Effect.REMOTE, f"hub {doing}"):
            return self.local(doing, act)

    def local(self, doing: str, act: Callable[[], Result]) -> Result:
        """Let the library do something without a request; raises CkptierError and nothing else."""
        try:
            return act()
        except CkptierError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever the library raises, in whichever version
            failure = self._translate(error, doing)
        raise failure

    def insist(self, doing: str, act: Callable[[], Result]) -> Result:
        """Make a call that may be made twice, again where the Hub did not answer."""
        for wait in (2.0**attempt for attempt in range(_LOOKS - 1)):
            try:
                return self.ask(doing, act)
            except AskedToWait:
                raise
            except Unreachable:
                self.clock.wait(wait)
        return self.ask(doing, act)

    def headers(self, **more: str) -> dict[str, str]:
        """Return the headers of a request that is made beside the library's own calls."""
        token: str | bool = self.secret or False
        return {**build_hf_headers(token=token, library_name="ckptier"), **more}

    def _translate(self, error: BaseException, doing: str) -> CkptierError:
        while not _speaks(error) and error.__cause__ is not None:
            error = error.__cause__  # the library wraps a failed upload in a RuntimeError
        if isinstance(error, CkptierError):
            return error
        kind, hint = _kind(error)
        if kind is Denied and self.secret is None:
            hint = _NONE_GIVEN
        return kind(f"{self.repo}: {self.redact(_words(error))} (while {doing})", hint=hint)

    def redact(self, text: str) -> str:
        """Take out what must not be repeated: tokens, and the queries of signed URLs."""
        if self.secret:
            text = text.replace(self.secret, "***")
        for pattern, instead in _SECRETS:
            text = pattern.sub(instead, text)
        text = " ".join(text.split())
        return text if len(text) <= _MESSAGE else text[:_MESSAGE] + " …"


_SECRETS = (
    (re.compile(r"\b(hf_|api_org_)[A-Za-z0-9]{8,}"), r"\1***"),
    (re.compile(r"(?i)\bbearer +\S+"), "bearer ***"),
    (re.compile(r"(https?://[^\s?'\"]+)\?[^\s'\"]*"), r"\1?***"),
)


def _speaks(error: BaseException) -> bool:
    return isinstance(error, (CkptierError, HfHubHTTPError, httpx2.HTTPError, OSError))


def _kind(error: BaseException) -> _Kind:
    """Return the class and the hint for one exception, by the two tables."""
    if isinstance(error, (GatedRepoError, DisabledRepoError, RevisionNotFoundError)):
        return _by_exception(error)
    if isinstance(error, HfHubHTTPError):
        if isinstance(error, EntryNotFoundError):
            return IntegrityFailure, "a file that should be there is not: do not use this commit"
        status = error.response.status_code
        if status in BY_STATUS:
            return BY_STATUS[status]
        return (Unreachable, _LATER) if status >= HTTPStatus.INTERNAL_SERVER_ERROR else (CkptierError, "")
    return _by_exception(error)


def _by_exception(error: BaseException) -> _Kind:
    return next(
        (kind for known, kind in BY_EXCEPTION if isinstance(error, known)),
        (CkptierError, "the Hub answered something that this version does not understand: update ckptier"),
    )


def _words(error: BaseException) -> str:
    if isinstance(error, RepositoryNotFoundError) and not isinstance(error, GatedRepoError):
        return f"the Hub answered {error.response.status_code}: no such repository, or this token may not see it"
    if isinstance(error, HfHubHTTPError):
        status = error.response.status_code
        return f"the Hub answered {status} {error.server_message or error.response.reason_phrase}".rstrip()
    return f"{type(error).__name__}: {error}"


def resolve_token(token: str | None) -> str | None:
    """Return the token to send: the one given, or that of the library's own chain; None for none.

    Raises ConfigInvalid for one that cannot stand in a header, without repeating it.
    """
    if token is None and not constants.HF_HUB_DISABLE_IMPLICIT_TOKEN:
        token = get_token()
    token = token.strip() if token is not None else None
    if token and not re.fullmatch(r"[\x21-\x7e]+", token):
        raise ConfigInvalid(
            "the Hub's token holds spaces or control characters", hint="give the token and nothing else"
        )
    return token or None


_lock = threading.Lock()
_held = 0
_undo = ExitStack()


@contextmanager
def reined() -> Iterator[None]:
    """Hold the library on its rein while the block runs; may be nested and entered by several threads."""
    global _held  # noqa: PLW0603 - the library's state is the process's: so is ours
    with _lock:
        if _held == 0:
            _rein(_undo)
        _held += 1
    try:
        yield
    finally:
        with _lock:
            _held -= 1
            if _held == 0:
                _undo.close()


def _rein(undo: ExitStack) -> None:
    previous: Callable[[], httpx2.Client] = _http._GLOBAL_CLIENT_FACTORY  # noqa: SLF001 - there is no public way to ask

    def factory() -> httpx2.Client:
        client = previous()  # also one that somebody installed: it knows proxies and certificates
        client.timeout = TIMEOUT
        hooks = dict(client.event_hooks)
        hooks["response"] = [*hooks.get("response", []), _Patience()]
        client.event_hooks = hooks
        return client

    set_client_factory(factory)
    undo.callback(set_client_factory, previous)
    undo.callback(library_logging.set_verbosity, library_logging.get_verbosity())
    library_logging.set_verbosity(logging.CRITICAL)
    for name in ("httpx2", "httpcore2"):  # they log the URLs and headers of every request
        logger = logging.getLogger(name)
        undo.callback(logger.setLevel, logger.level)
        logger.setLevel(logging.WARNING)
    if constants.HF_HUB_DISABLE_PROGRESS_BARS is not False:
        undo.enter_context(disable_progress_bars())
    undo.callback(setattr, constants, "HF_HUB_DISABLE_TELEMETRY", constants.HF_HUB_DISABLE_TELEMETRY)
    constants.HF_HUB_DISABLE_TELEMETRY = True  # or the user agent asks the public Hub something first


class _Patience:
    """Ends what the library would wait for without a bound, by raising what it does not catch."""

    def __init__(self) -> None:
        self._conflicts = 0

    def __call__(self, response: httpx2.Response) -> None:
        wait = _asked_wait(response)
        if wait is not None and wait > LONGEST_WAIT:
            raise AskedToWait(
                f"the Hub answered {response.status_code} and asks to wait {wait} seconds",
                hint=f"run it again after {wait} seconds",
            )
        if response.status_code == HTTPStatus.CONFLICT and response.url.path.endswith("/api/repos/create"):
            self._conflicts += 1  # the library repeats one kind of 409 at once and for ever
            if self._conflicts > _CONFLICTS:
                raise AskedToWait("the Hub is busy with another repository of this account", hint=_LATER)


def _asked_wait(response: httpx2.Response) -> int | None:
    """Return the seconds that the library would sleep before it asks again."""
    if response.status_code < HTTPStatus.BAD_REQUEST:
        return None
    limit = re.search(r"r\s*=\s*0\s*;\s*t\s*=\s*(\d{1,9})", response.headers.get("ratelimit", ""))
    if response.status_code == HTTPStatus.TOO_MANY_REQUESTS and limit:
        return int(limit[1])
    after = response.headers.get("retry-after", "").strip()
    return int(after) if after.isdigit() else None
