"""The table of the Hub's failures is complete, and says what callers rely on."""

import ssl
from contextlib import closing
from typing import Any

import pytest
from huggingface_hub import CommitOperationAdd, CommitOperationCopy, CommitOperationDelete
from huggingface_hub import errors as hub
from huggingface_hub._commit_api import _prepare_commit_payload
from support.hub_tiers import PREFIX

from tiers.errors import (
    AccessDenied,
    CapacityExceeded,
    IntegrityError,
    ObjectNotFound,
    TierError,
    TierUnavailable,
    Unsupported,
)
from tiers.failures import Where
from tiers.hub import open_hub
from tiers.hub_errors import (
    DISABLED,
    REFUSED,
    STORAGE_FULL,
    TABLE,
    HubFailure,
    Outcome,
    Surface,
    of_answer,
    of_exception,
    retry_after,
)
from tiers.hub_repo import Doing, Line
from tiers.hub_sdk import LIBRARY_ERRORS, httpx2
from tiers.opening import TierSpec
from tiers.protocol import Key

WHERE = Where(tier="hub", operation="stat", key="a/b")
STATUSES: dict[int, type[TierError]] = {
    301: AccessDenied,
    302: AccessDenied,
    307: AccessDenied,
    308: AccessDenied,
    400: Unsupported,
    401: AccessDenied,
    402: AccessDenied,
    403: AccessDenied,
    404: AccessDenied,
    408: TierUnavailable,
    409: TierUnavailable,
    412: TierUnavailable,
    413: CapacityExceeded,
    416: IntegrityError,
    418: TierError,
    422: Unsupported,
    429: TierUnavailable,
    451: AccessDenied,
    500: TierUnavailable,
    501: Unsupported,
    502: TierUnavailable,
    503: TierUnavailable,
    504: TierUnavailable,
    507: CapacityExceeded,
    524: TierUnavailable,
}
CODES: dict[str, type[TierError]] = {
    "RepoNotFound": AccessDenied,
    "GatedRepo": AccessDenied,
    "RevisionNotFound": AccessDenied,
    "EntryNotFound": ObjectNotFound,
}
CLASSES: list[tuple[type[BaseException], type[TierError]]] = [
    (httpx2.ConnectError, TierUnavailable),
    (httpx2.ReadTimeout, TierUnavailable),
    (httpx2.PoolTimeout, TierUnavailable),
    (httpx2.RemoteProtocolError, TierUnavailable),
    (httpx2.ProxyError, TierUnavailable),
    (httpx2.DecodingError, TierUnavailable),
    (httpx2.StreamClosed, TierUnavailable),
    (httpx2.UnsupportedProtocol, AccessDenied),
    (httpx2.LocalProtocolError, AccessDenied),
    (httpx2.InvalidURL, AccessDenied),
    (httpx2.TooManyRedirects, AccessDenied),
    (hub.RepositoryNotFoundError, AccessDenied),
    (hub.GatedRepoError, AccessDenied),
    (hub.DisabledRepoError, AccessDenied),
    (hub.RemoteEntryNotFoundError, ObjectNotFound),
    (hub.LocalEntryNotFoundError, TierUnavailable),
    (hub.EntryNotFoundError, TierUnavailable),
    (hub.OfflineModeIsEnabled, AccessDenied),
    (hub.LocalTokenNotFoundError, AccessDenied),
    (hub.OIDCError, AccessDenied),
    (hub.DeviceCodeError, AccessDenied),
    (ConnectionResetError, TierUnavailable),
    (ssl.SSLError, TierUnavailable),
    (UnicodeEncodeError, AccessDenied),
]


def uninitialised(cls: type[BaseException]) -> BaseException:
    """Many of the library's classes cannot be made without a response."""
    return cls.__new__(cls)


def answered(status: int, code: str = "", words: str = "", surface: Surface = Surface.HUB) -> HubFailure:
    headers = {"x-error-code": code, "x-error-message": words}
    return of_answer(status, headers, b"", surface)


@pytest.mark.parametrize(("status", "error"), STATUSES.items())
def test_statuses(status: int, error: type[TierError]) -> None:
    assert type(answered(status).at(WHERE, "acme/x")) is error


@pytest.mark.parametrize(("code", "error"), CODES.items())
def test_codes(code: str, error: type[TierError]) -> None:
    assert type(answered(404, code).at(WHERE, "acme/x")) is error
    assert type(answered(404, code, surface=Surface.STORAGE).at(WHERE, "acme/x")) is TierUnavailable


def test_what_only_words_tell() -> None:
    full = answered(403, words="Private repository storage limit reached, please upgrade your plan")
    assert (full.code, full.verdict.error) == (STORAGE_FULL, CapacityExceeded)
    disabled = answered(403, words="Access to this resource is disabled.")
    assert (disabled.code, disabled.verdict.error) == (DISABLED, AccessDenied)
    assert answered(400, words="storage limit").code == ""
    body = b'{"error":"You have exceeded the storage quota"}'
    assert of_answer(403, {}, body, Surface.HUB).verdict.error is CapacityExceeded


@pytest.mark.parametrize(
    ("status", "error"), [(400, IntegrityError), (403, TierUnavailable), (404, TierUnavailable), (416, IntegrityError)]
)
def test_the_storages_own_statuses(status: int, error: type[TierError]) -> None:
    assert answered(status, surface=Surface.STORAGE).verdict.error is error


@pytest.mark.parametrize("key", TABLE, ids=str)
def test_every_entry_is_reachable(key: Any) -> None:
    """An entry that another one hides would be a comment that lies."""
    match key:
        case (Surface() as surface, int() as status):
            found = answered(status, surface=surface)
        case "StorageLimit":
            found = answered(403, words="storage limit")
        case "Disabled":
            found = answered(403, words="Access to this resource is disabled")
        case str():
            found = answered(404, key)
        case int():
            found = answered(key)
        case _:
            found = of_exception(uninitialised(key))
    assert found.verdict == TABLE[key]
    error = found.at(WHERE, "acme/x")
    assert (error.tier, error.operation, error.key) == ("hub", "stat", "a/b")
    assert "{repo}" not in error.hint


def test_every_class_of_the_library_and_its_client_is_judged() -> None:
    assert len(LIBRARY_ERRORS) > 75
    for cls in LIBRARY_ERRORS:
        error = of_exception(uninitialised(cls)).at(WHERE, "acme/x")
        assert error.hint != REFUSED.hint, cls
        assert isinstance(error, ObjectNotFound) == issubclass(cls, hub.RemoteEntryNotFoundError), cls


def test_none_of_them_leaks_from_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raised by the sending of a request, and by the search for a token."""
    raising: list[type[Exception]] = []

    def fail(*_args: object, **_fields: object) -> str:
        raise uninitialised(raising[-1])

    tier = open_hub(TierSpec(name="hub", url=f"hf://datasets/acme/x/{PREFIX}", endpoint_url="http://127.0.0.1:9"))
    with closing(tier):
        for part in ("tiers.hub_http.httpx2.Client.send", "tiers.hub_http.get_token"):
            monkeypatch.setattr(part, fail)
            for cls in LIBRARY_ERRORS:
                raising.append(cls)
                with pytest.raises(TierError):
                    tier.stat(Key("a"))


@pytest.mark.parametrize(("cls", "error"), CLASSES, ids=lambda value: getattr(value, "__name__", ""))
def test_groups_of_classes(cls: type[BaseException], error: type[TierError]) -> None:
    assert of_exception(uninitialised(cls)).verdict.error is error


def test_an_answer_inside_an_exception_decides() -> None:
    response = httpx2.Response(403, headers={"X-Error-Code": "GatedRepo"}, request=httpx2.Request("GET", "https://h/x"))
    found = of_exception(hub.HfHubHTTPError("secret words", response=response))
    assert (found.code, found.status, found.verdict.error) == ("GatedRepo", 403, AccessDenied)
    assert "secret" not in found.message


def test_a_refused_certificate_needs_a_person() -> None:
    error = httpx2.ConnectError("[SSL] failed")
    error.__cause__ = ssl.SSLCertVerificationError(1, "self-signed")
    found = of_exception(error)
    assert found.verdict.error is AccessDenied
    assert "ca_bundle" in found.verdict.hint


@pytest.mark.parametrize(
    ("failure", "outcome"),
    [
        (of_exception(httpx2.ConnectError("refused")), Outcome.NOT_DONE),
        (of_exception(httpx2.PoolTimeout("busy")), Outcome.NOT_DONE),
        (of_exception(httpx2.ReadTimeout("slow")), Outcome.UNKNOWN),
        (of_exception(httpx2.RemoteProtocolError("cut")), Outcome.UNKNOWN),
        (of_exception(httpx2.WriteError("cut")), Outcome.UNKNOWN),
        (answered(412), Outcome.NOT_DONE),
        (answered(429), Outcome.NOT_DONE),
        (answered(400), Outcome.NOT_DONE),
        (answered(408), Outcome.UNKNOWN),
        (answered(500), Outcome.UNKNOWN),
        (answered(504), Outcome.UNKNOWN),
    ],
)
def test_whether_it_may_have_been_done(failure: HubFailure, outcome: Outcome) -> None:
    assert failure.outcome is outcome


def test_messages_hold_codes_and_requests_and_no_words() -> None:
    headers = {"x-error-code": "RepoNotFound", "x-error-message": "secret words", "x-request-id": "Root=1-a;b"}
    found = of_answer(404, headers, b'{"error":"secret words"}', Surface.HUB)
    text = str(found.at(WHERE, "acme/x"))
    assert text == "hub: stat a/b: HTTP 404 (RepoNotFound), request Root=1-a;b"
    assert of_answer(404, {"x-request-id": "hf_secret"}, b"", Surface.HUB).message == "HTTP 404"
    assert of_answer(404, {"x-request-id": "a b"}, b"", Surface.STORAGE).message == "HTTP 404 from the storage"
    assert of_exception(ConnectionRefusedError(111, "secret words")).message.endswith("Connection refused")


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "-7"}, None),
        ({"retry-after": "\u0667"}, None),
        ({"ratelimit": '"api";r=0;t=55'}, 56.0),
        ({"ratelimit": '"api"; r=0; t=55', "retry-after": "7"}, 56.0),
        ({"ratelimit": '"api";r=3;t=55', "retry-after": "7"}, 7.0),
    ],
)
def test_how_long_to_wait(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


def test_a_commit_is_written_as_the_library_writes_it() -> None:
    """The one request that is spelled out here as well as there."""
    small = CommitOperationAdd("a/small", b"x\n")
    small._upload_mode = "regular"
    large = CommitOperationAdd("a/large", b"bytes")
    large._upload_mode = "lfs"
    operations: list[CommitOperationAdd | CommitOperationCopy | CommitOperationDelete] = [small, large]
    operations.append(CommitOperationDelete("a/gone", is_folder=False))
    theirs = list(
        _prepare_commit_payload(
            operations=operations,
            files_to_copy={},
            commit_message="title",
            commit_description="description",
            parent_commit="f" * 40,
        )
    )
    sha256 = large.upload_info.sha256.hex()
    ours = [
        Line(doing=Doing.SMALL, path="a/small", data=b"x\n"),
        Line(doing=Doing.LARGE, path="a/large", sha256=sha256, size=5),
        Line(doing=Doing.DELETE, path="a/gone"),
    ]
    assert [line.document() for line in ours] == theirs[1:]
    assert theirs[0]["value"].keys() == {"summary", "description", "parentCommit"}
