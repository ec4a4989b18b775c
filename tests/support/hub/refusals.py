"""What the Hub answers when it refuses, in the form that the library reads."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from http import HTTPStatus


class ErrorCode(StrEnum):
    """Values of ``X-Error-Code``, from which the library picks its exception."""

    REPO_NOT_FOUND = "RepoNotFound"
    GATED_REPO = "GatedRepo"
    REVISION_NOT_FOUND = "RevisionNotFound"
    ENTRY_NOT_FOUND = "EntryNotFound"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A response: ``body`` is sent as it is, and not at all to HEAD, which still gets its length."""

    status: int = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


class RefusedError(Exception):
    """The Hub says no.  ``details`` are further fields of the JSON body."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: ErrorCode | None = None,
        headers: Mapping[str, str] | None = None,
        details: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.headers = dict(headers or {})
        self.details = dict(details or {})


def bad_request(message: str) -> RefusedError:
    """400: ``BadRequestError`` in the library."""
    return RefusedError(HTTPStatus.BAD_REQUEST, message)


def forbidden(message: str) -> RefusedError:
    """403 without a code: a plain ``HfHubHTTPError``."""
    return RefusedError(HTTPStatus.FORBIDDEN, message)


def revision_not_found(revision: str) -> RefusedError:
    """404: ``RevisionNotFoundError``."""
    return RefusedError(HTTPStatus.NOT_FOUND, f"Invalid rev id: {revision}", code=ErrorCode.REVISION_NOT_FOUND)


def entry_not_found(message: str = "Entry not found", *, commit: str | None = None) -> RefusedError:
    """404: ``RemoteEntryNotFoundError``; with the commit, the library caches that the file is absent there."""
    headers = {} if commit is None else {"X-Repo-Commit": commit}
    return RefusedError(HTTPStatus.NOT_FOUND, message, code=ErrorCode.ENTRY_NOT_FOUND, headers=headers)


def stale_parent() -> RefusedError:
    """412: the branch has moved on since ``parent_commit``."""
    return RefusedError(HTTPStatus.PRECONDITION_FAILED, "A commit has happened since. Please refresh and try again.")
