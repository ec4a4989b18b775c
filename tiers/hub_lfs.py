"""Sending bytes to the Hub's storage, by their SHA-256, before any commit names them.

The protocol is that of Git LFS with the Hub's extension for parts: ask where to send, send,
confirm.  What the repo has already is not sent again, which makes a repeated put cheap.

An object lies under the digest that was announced for it, for good: if other bytes came to
lie there, every later upload would be taken for done.  So unless the Hub is known to check,
the bytes are hashed on their way, and the last piece is held back until they are right.
"""

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from tiers.bodies import Body
from tiers.checks import body_chunks
from tiers.errors import IntegrityError, TierUnavailable
from tiers.failures import Where
from tiers.hub_errors import HubFailure, Surface, Verdict, of_answer, strange
from tiers.hub_http import HubClient
from tiers.hub_repo import BRANCH

_JSON = "application/vnd.git-lfs+json"
_ABOUT_BYTES = frozenset({400, 404, 409, 422})
_KEPT = 64
"""Uploads in parts that are remembered after a failure; each is a few URLs."""


class _Told(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Action(_Told):
    href: str
    header: dict[str, Any] = {}


class _Actions(_Told):
    upload: _Action | None = None
    verify: _Action | None = None


class _Trouble(_Told):
    code: int
    message: str = ""


class _Object(_Told):
    oid: str
    size: Annotated[int, Field(ge=0)]
    actions: _Actions | None = None
    error: _Trouble | None = None


class _Batch(_Told):
    objects: list[_Object]


_BATCH = TypeAdapter(_Batch)


class LocalReadError(Exception):
    """The body could not be read; ``error`` is the caller's own failure."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(slots=True, kw_only=True)
class _Sending:
    """Where one object has to be sent; ``done`` are the ETags of the parts that arrived."""

    upload: _Action
    verify: _Action | None
    chunk: int | None
    urls: tuple[str, ...] = ()
    done: dict[int, str] = field(default_factory=dict)


class LargeFiles:
    """Uploads to one repo's storage.  ``checked`` says that the Hub refuses bytes that are not the digest's."""

    def __init__(self, client: HubClient, *, checked: bool) -> None:
        self._client = client
        self._checked = checked
        self._begun: dict[str, _Sending] = {}
        self._lock = threading.Lock()

    def send(self, body: Body, sha256: str, where: Where) -> None:
        """Bring the bytes to the Hub, unless it has them.

        IntegrityError where the body is not what its digest and size say, HubFailure where
        the Hub fails; an OSError from reading the body passes.  After a failure that may
        pass, parts that arrived are not sent again by the next call of this process.
        """
        with self._lock:
            sending = self._begun.pop(sha256, None)
        if sending is None:
            sending = self._ask(sha256, body.size)
        if sending is None:
            return
        try:
            self._transfer(sending, body, sha256, where)
        except LocalReadError as broken:
            raise broken.error from None
        except HubFailure as failure:
            self._keep(sha256, sending, failure)
            raise

    def accepts(self, data: bytes, sha256: str) -> bool:
        """Announce an object by a digest and send other bytes: whether the Hub takes them.  For probes."""
        sending = self._ask(sha256, len(data))
        if sending is None:
            raise strange("the Hub claims to have what was never sent")
        try:
            self._client.store(sending.upload.href, _headers(sending.upload), [data], len(data))
            self._confirm(sending, sha256, len(data))
        except HubFailure as failure:
            if failure.verdict.error is IntegrityError:
                return False
            raise
        except IntegrityError:
            return False
        return True

    def _ask(self, sha256: str, size: int) -> _Sending | None:
        """Ask where to send an object; None where it is there already."""
        asked = {
            "operation": "upload",
            "transfers": ["basic", "multipart"],
            "objects": [{"oid": sha256, "size": size}],
            "hash_algo": "sha256",
            "ref": {"name": BRANCH},
        }
        url = f"{self._client.place.files}.git/info/lfs/objects/batch"
        answer = self._client.api("POST", url, content=_json(asked), kind=_JSON, accept=_JSON)
        found = _object(answer.body, sha256, size)
        if found.error is not None:
            raise of_answer(found.error.code, {}, found.error.message.encode(), Surface.HUB)
        if found.actions is None or found.actions.upload is None:
            return None
        return self._sending(found.actions.upload, found.actions.verify, size)

    def _sending(self, upload: _Action, verify: _Action | None, size: int) -> _Sending:
        upload = upload.model_copy(update={"href": self._client.adopted(upload.href)})
        chunk = upload.header.get("chunk_size")
        if chunk is None:
            return _Sending(upload=upload, verify=verify, chunk=None)
        try:
            chunk_size = int(chunk)
            urls = {int(name): str(url) for name, url in upload.header.items() if name.isdecimal()}
        except (TypeError, ValueError):
            chunk_size, urls = 0, {}
        if chunk_size < 1 or sorted(urls) != list(range(1, -(-size // chunk_size) + 1)):
            raise strange("the Hub names other parts than the object has")
        return _Sending(
            upload=upload, verify=verify, chunk=chunk_size, urls=tuple(urls[number] for number in sorted(urls))
        )

    def _transfer(self, sending: _Sending, body: Body, sha256: str, where: Where) -> None:
        outgoing = _Outgoing(_pieces(body, None if self._checked else sha256, where))
        if sending.chunk is None:
            self._client.store(sending.upload.href, _headers(sending.upload), outgoing.take(body.size), body.size)
        else:
            self._parts(sending, sending.chunk, outgoing, body.size, sha256)
        self._confirm(sending, sha256, body.size)

    def _parts(self, sending: _Sending, chunk: int, outgoing: "_Outgoing", size: int, sha256: str) -> None:
        for number, url in zip(count(1), sending.urls, strict=False):
            length = min(chunk, size - chunk * (number - 1))
            if number in sending.done:
                for _ in outgoing.take(length):
                    continue
                continue
            answered = self._client.store(url, {}, outgoing.take(length), length)
            etag = answered.get("etag", "")
            if not etag:
                raise strange("a part was taken without an ETag")
            sending.done[number] = etag
        parts = [{"partNumber": number, "etag": etag} for number, etag in sorted(sending.done.items())]
        self._settle(sending.upload.href, {"oid": sha256, "parts": parts}, signed=True)

    def _confirm(self, sending: _Sending, sha256: str, size: int) -> None:
        if sending.verify is None:
            return
        self._settle(self._client.adopted(sending.verify.href), {"oid": sha256, "size": size}, signed=False)

    def _settle(self, url: str, about: Mapping[str, object], *, signed: bool) -> None:
        """Have the Hub look at what arrived; a refusal that is not about access is about the bytes."""
        failure: HubFailure
        try:
            self._client.api("POST", url, content=_json(about), kind=_JSON, accept=_JSON, signed=signed)
        except HubFailure as refused:
            failure = refused
        else:
            return
        if failure.status in _ABOUT_BYTES and not failure.code:
            verdict = Verdict(IntegrityError, "what arrived is not what was sealed: it is sent again")
            failure = HubFailure(verdict, failure.message, status=failure.status)
        raise failure

    def _keep(self, sha256: str, sending: _Sending, failure: HubFailure) -> None:
        """Remember parts that arrived, where what failed may pass and the URLs are still good."""
        if failure.verdict.error is not TierUnavailable or failure.status in (403, 404) or not sending.done:
            return
        with self._lock:
            while len(self._begun) >= _KEPT:
                self._begun.pop(next(iter(self._begun)))
            self._begun[sha256] = sending


class _Outgoing:
    """Pieces that are taken by number of bytes."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def take(self, size: int) -> Iterator[bytes]:
        """Yield the next ``size`` bytes, and find out that there are no more where they are the last."""
        left = size
        while left:
            if not self._rest:
                self._rest = next(self._pieces)
            piece, self._rest = self._rest[:left], self._rest[left:]
            left -= len(piece)
            yield piece


def _pieces(body: Body, sha256: str | None, where: Where) -> Iterator[bytes]:
    """Yield a body's bytes; the last piece only once size, and digest where given, are known to be right."""
    digest = hashlib.sha256() if sha256 is not None else None
    held = b""
    try:
        for view in body_chunks(body, **where.fields()):
            if held:
                yield held
            held = bytes(view)
            if digest is not None:
                digest.update(held)
    except OSError as error:
        raise LocalReadError(error) from error
    if digest is not None and digest.hexdigest() != sha256:
        raise IntegrityError("the body's bytes are not those of its SHA-256", **where.fields())
    if held:
        yield held


def _headers(action: _Action) -> Mapping[str, str]:
    return {name: value for name, value in action.header.items() if isinstance(value, str) and not name.isdecimal()}


def _object(body: bytes, sha256: str, size: int) -> _Object:
    try:
        found = _BATCH.validate_json(body).objects
    except ValidationError:
        found = []
    if [(one.oid, one.size) for one in found] != [(sha256, size)]:
        raise strange("the answer is not about the object that was asked for")
    return found[0]


def _json(document: object) -> bytes:
    return json.dumps(document).encode()
