"""The Hub's API about one dataset repo: its state, its files, its commits.

Each call is one request, or one a page.  What comes back is checked to be what the Hub
sends: an answer of another shape is a failure that may pass, never a missing file.
"""

import base64
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal, TypeVar
from urllib.parse import quote, urlencode

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

from tiers.errors import AccessDenied, TierUnavailable
from tiers.hub_errors import MAKE_PRIVATE, HubFailure, Surface, Verdict, strange
from tiers.hub_http import HubClient
from tiers.hub_sdk import httpx2
from tiers.hub_urls import quoted

BRANCH = "main"
ATTRIBUTES = ".gitattributes"
"""The Hub's own file in the root of a repo: which files are large.  Never a key of a tier."""
_MAX_ATTRIBUTES = 10 * 1024 * 1024
_MAX_HOPS = 3
_NEXT = re.compile(r'<([^<>]+)>\s*;\s*rel="next"')
_REDIRECTS = frozenset({301, 302, 303, 307, 308})

Oid = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Size = Annotated[int, Field(ge=0)]


class _Told(BaseModel):
    """What the Hub told; it may tell more."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class RepoState(_Told):
    """A repo as it was at one moment; ``sha`` is the head of its branch."""

    id: str
    sha: Oid
    private: bool
    gated: bool | str = False
    disabled: bool = False
    used_storage: Size | None = Field(default=None, alias="usedStorage")


class Large(_Told):
    """What git holds in the place of a large file: the SHA-256 and the size of its bytes, as they were announced."""

    oid: Sha256
    size: Size


class Entry(_Told):
    """A file or a folder.  ``oid`` is git's id, of the pointer where the file is large."""

    type: Literal["file", "directory"]
    path: str
    oid: str
    size: Size = 0
    lfs: Large | None = None

    def holds(self, size: int, sha256: str) -> bool:
        """Tell whether this is a file of these bytes; an empty one is known by its size."""
        if self.type != "file" or self.size != size:
            return False
        return size == 0 or (self.lfs is not None and (self.lfs.oid, self.lfs.size) == (sha256, size))


class PastCommit(_Told):
    """A commit of the history."""

    id: str
    title: str = ""
    message: str = ""


class _Made(_Told):
    commit_oid: Oid = Field(alias="commitOid")


_ENTRIES = TypeAdapter(list[Entry])
_COMMITS = TypeAdapter(list[PastCommit])
_STATE = TypeAdapter(RepoState)
_MADE = TypeAdapter(_Made)
Parsed = TypeVar("Parsed")


class Doing(StrEnum):
    """What a line of a commit does; the words are the Hub's."""

    LARGE = "lfsFile"
    SMALL = "file"
    DELETE = "deletedFile"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One change of a commit.  ``data`` is for small files, ``sha256`` and ``size`` for large ones."""

    doing: Doing
    path: str
    sha256: str = ""
    size: int = 0
    data: bytes = b""

    def document(self) -> Mapping[str, object]:
        """Return it as the Hub wants it."""
        value: dict[str, object] = {"path": self.path}
        if self.doing is Doing.LARGE:
            value |= {"algo": "sha256", "oid": self.sha256, "size": self.size}
        elif self.doing is Doing.SMALL:
            value |= {"content": base64.b64encode(self.data).decode(), "encoding": "base64"}
        return {"key": self.doing.value, "value": value}


class HubRepo:
    """One dataset repo."""

    def __init__(self, client: HubClient) -> None:
        self.client = client
        self.place = client.place

    def state(self, *, storage: bool = False) -> RepoState:
        """Return the head and the visibility in one request; HubFailure unless the repo is there, private and ours.

        ``storage`` asks for the bytes used as well.
        """
        fields = ["sha", "private", "gated", "disabled", *(["usedStorage"] if storage else [])]
        query = urlencode([("expand", field) for field in fields])
        answer = self.client.api("GET", f"{self.place.api}/revision/{BRANCH}?{query}")
        state = _parsed(_STATE, answer.body)
        self._require_private(state)
        return state

    def entries(self, revision: str, paths: Sequence[str]) -> dict[str, Entry]:
        """Describe those of the paths that exist at a revision."""
        body = json.dumps({"paths": list(paths), "expand": False}).encode()
        with_revision = f"{self.place.api}/paths-info/{quote(revision, safe='')}"
        answer = self._pinned(revision, "POST", with_revision, body)
        wanted = set(paths)
        return {entry.path: entry for entry in _parsed(_ENTRIES, answer) if entry.path in wanted}

    def tree(self, revision: str, folder: str) -> Iterator[Entry]:
        """Yield all files below a folder ("" for the root), in the Hub's order; nothing where there is no such folder.

        A page that names the one before it as the next would go round for ever: HubFailure.
        """
        url: str | None = f"{self.place.api}/tree/{revision}"
        url = f"{url}/{quoted(folder)}?recursive=true" if folder else f"{url}?recursive=true"
        seen: set[str] = set()
        while url is not None:
            try:
                body, url = self._page(revision, url, seen)
            except HubFailure as failure:
                if failure.code == "EntryNotFound":
                    return
                raise
            yield from (entry for entry in _parsed(_ENTRIES, body) if entry.type == "file")

    def commits(self, revision: str, pages: int) -> Iterator[tuple[PastCommit, ...]]:
        """Yield pages of the history, newest first, at most so many."""
        url: str | None = f"{self.place.api}/commits/{revision}"
        seen: set[str] = set()
        for _ in range(pages):
            if url is None:
                return
            body, url = self._page(revision, url, seen)
            page: list[PastCommit] = _parsed(_COMMITS, body)
            yield tuple(page)

    def commit(self, parent: str, lines: Sequence[Line], *, title: str, description: str) -> str:
        """Commit onto ``parent`` and return the new commit's id; status 412 where the head is another one.

        The Hub decides and commits in one step: this is the compare-and-swap.
        """
        header = {"summary": title, "description": description, "parentCommit": parent}
        documents: list[Mapping[str, object]] = [
            {"key": "header", "value": header},
            *(line.document() for line in lines),
        ]
        body = b"".join(json.dumps(document).encode() + b"\n" for document in documents)
        answer = self.client.api("POST", f"{self.place.api}/commit/{BRANCH}", content=body, kind="application/x-ndjson")
        return _parsed(_MADE, answer.body).commit_oid

    def read(self, path: str, headers: Mapping[str, str], revision: str = BRANCH) -> "Opened":
        """Start to read a file; the answer is not judged beyond being about the file.

        The Hub answers with the bytes, or with where its storage has them: under their digest,
        and with a signed URL that must not get the token.  A redirect that leads to another
        repo is one that was renamed: HubFailure.
        """
        url = f"{self.place.files}/resolve/{quote(revision, safe='')}/{quoted(path)}"
        linked: int | None = None
        surface = Surface.HUB
        for _ in range(_MAX_HOPS):
            response = self.client.fetch(url, headers)
            if response.status_code not in _REDIRECTS:
                return Opened(response=response, linked_size=linked, surface=surface)
            target = response.headers.get("location", "")
            size = response.headers.get("x-linked-size", "")
            linked = int(size) if size.isdecimal() and size.isascii() else linked
            is_large = "x-linked-etag" in response.headers
            failure = self.client.refusal(response, Surface.HUB)
            response.close()
            url = _joined(url, target)
            same_repo = self.client.place.is_home(url) and f"/{self.place.repo}/" in url
            if not is_large and not same_repo:
                raise failure
            surface = Surface.HUB if self.client.place.is_home(url) else Surface.STORAGE
        raise strange("the Hub sends its client round in circles")

    def attributes(self, revision: str) -> bytes:
        """Return ``.gitattributes`` of a revision, empty where there is none."""
        opened = self.read(ATTRIBUTES, {}, revision)
        try:
            self.client.check(opened.response, opened.surface)
            return self.client.read(opened.response, _MAX_ATTRIBUTES, self.client.deadline(None))
        except HubFailure as failure:
            if failure.code == "EntryNotFound":
                return b""
            raise
        finally:
            opened.response.close()

    def _page(self, revision: str, url: str, seen: set[str]) -> tuple[bytes, str | None]:
        if url in seen or not self.place.is_home(url):
            raise strange("a listing leads nowhere")
        seen.add(url)
        failure: HubFailure
        try:
            answer = self.client.api("GET", url)
        except HubFailure as error:
            failure = _lost_revision(error, revision)
        else:
            found = _NEXT.search(answer.headers.get("link", ""))
            return answer.body, self.client.adopted(found[1]) if found else None
        raise failure

    def _pinned(self, revision: str, method: str, url: str, body: bytes) -> bytes:
        failure: HubFailure
        try:
            return self.client.api(method, url, content=body).body
        except HubFailure as error:
            failure = _lost_revision(error, revision)
        raise failure

    def _require_private(self, state: RepoState) -> None:
        if state.id != self.place.repo:
            raise HubFailure(Verdict(AccessDenied, "write its present name in url"), "the Hub knows it by another name")
        if not state.private:
            what = "gated, but anybody may see it and ask" if state.gated else "public"
            hint = f"restart states are nobody else's business: {MAKE_PRIVATE}"
            raise HubFailure(Verdict(AccessDenied, hint), f"the repo is {what}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A file that begins to arrive, or the refusal of it; ``linked_size`` is what the Hub says its size is."""

    response: httpx2.Response
    linked_size: int | None
    surface: Surface


def _joined(url: str, target: str) -> str:
    try:
        return str(httpx2.URL(url).join(target))
    except (httpx2.InvalidURL, ValueError):
        pass  # its text quotes a URL that may be signed
    raise strange("the Hub sends its client to what is no URL")


def _lost_revision(failure: HubFailure, revision: str) -> HubFailure:
    """Judge that a commit which the Hub named is gone: its history was squashed while we looked."""
    if failure.code != "RevisionNotFound" or revision == BRANCH:
        return failure
    verdict = Verdict(TierUnavailable, "its history was squashed while it was read: the next look sees the new one")
    return HubFailure(verdict, failure.message, status=failure.status, code=failure.code)


def _parsed(adapter: TypeAdapter[Parsed], body: bytes) -> Parsed:
    try:
        return adapter.validate_json(body)
    except ValidationError:
        pass  # its text quotes the answer
    raise strange("the answer is not what the Hub sends")
