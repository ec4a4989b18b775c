"""A private dataset repo on the Hugging Face Hub, or on what speaks like it.

``hf://datasets/owner/name[/prefix]``.  Needs huggingface_hub (``pip install 'ckptier[hub]'``).
The repo has to be there and private: it is never created, never made public, and a public or
gated one is refused before the first request of a tier and again before each commit.  Bytes
that were on their way to a repo that became public lie in its storage, and no commit names them.

**Writers are kept apart by git.**  Every change is a commit with the head that it was decided
on as its parent, which the Hub compares and swaps in one step (:mod:`tiers.hub_commits`).

**Requests.**  One verb is not one request here, since no single request of the Hub stores a
file.  ``put`` and ``create``: ask where to send, send (parts beyond 5 GB), confirm; then four
for the commit, which concurrent verbs share.  ``delete``: the four.  ``open``: one, or two for
what lies in the storage.  ``stat``: one.  ``list_objects``: one, and one for each 1,000 entries.

**Commits.**  The Hub takes about 128 an hour.  Verbs that overlap share one, so that a
generation of N files over C connections takes from N/C to N for its data, one for its manifest
and one for its log entry; with one connection it is N + 2.  A process adds one for the hint, and
one for each 16 log entries after it; a run's first commit one for the claim.  ``connections`` of
this tier should therefore be the number of files of a generation, up to 32.  Above 40
generations an hour no setting helps: replicate to the Hub less often.

**Digests.**  All files but empty ones go through Git LFS, so that they lie under the SHA-256
that was sealed.  Whether the Hub compares that digest with the bytes is not documented, and
repos exist whose files are not the bytes of their digest.  So the tier says READ_BACK and
attests nothing, unless a probe (:func:`tiers.hub_usage.refuses_wrong_bytes`) found otherwise.
There are no parts: a large file's digest has to be known before its first byte is sent, and the
sealed one of a file of several leaves is not the plain SHA-256, so such files are hashed once
more.  At most 500 GB a file; the Hub recommends at most 200.  A put that is repeated by the same
process goes on after the parts that arrived; one that is repeated by another sends all, unless
the Hub has all.

**Deletion frees nothing.**  A deleted file stays in the history of the repo and is billed until
that is squashed (``HfApi.super_squash_history``) and the Hub has collected what is left, a day
and a half later.  This tier does neither: :mod:`tiers.hub_usage` tells what it comes to.
"""

import hashlib
import io
import ssl
from collections.abc import Sequence
from typing import BinaryIO

from tiers.bodies import Body, BytesBody
from tiers.checks import body_chunks, is_key, key_components
from tiers.clock import Clock, SystemClock
from tiers.errors import IntegrityError, ObjectNotFound, Unsupported
from tiers.failures import Where
from tiers.hub_commits import Committer
from tiers.hub_errors import HubFailure, mapped
from tiers.hub_http import PROGRESS_TIMEOUT, HubClient, Patience
from tiers.hub_lfs import LargeFiles
from tiers.hub_queue import LINGER, Change, CommitQueue, Kind
from tiers.hub_repo import ATTRIBUTES, BRANCH, Entry, HubRepo
from tiers.hub_sdk import constants
from tiers.hub_streams import range_header, stream_of
from tiers.hub_urls import HubPlace, place_of
from tiers.opening import BadTierUrl, TierSpec
from tiers.protocol import (
    Capabilities,
    Fencing,
    Key,
    ObjectInfo,
    ObjectPage,
    Part,
    PartPage,
    Tier,
    Upload,
    Verification,
)

MAX_FILE = 500_000_000_000
"""Bytes of one file: the Hub's limit."""
_EMPTY = hashlib.sha256(b"").hexdigest()
_NO_PARTS = "files go to the Hub whole: put it"


def open_hub(spec: TierSpec) -> Tier:
    """Return a tier for ``hf://datasets/owner/name[/prefix]``; no request is made.

    BadTierUrl for a bad spec, Unsupported for a storage bucket.
    """
    checked = spec.probed is not None and spec.probed.verification is Verification.STORE_SHA256
    return HubTier(spec.name, client_for(spec, SystemClock()), checked=checked)


def client_for(spec: TierSpec, clock: Clock) -> HubClient:
    """Return the connections that a spec describes; BadTierUrl where it is wrong."""
    place = place_of(spec, constants.ENDPOINT)
    if spec.ca_bundle is not None:
        try:
            ssl.create_default_context(cafile=spec.ca_bundle)
        except OSError as error:  # ssl.SSLError is one
            hint = "ca_bundle has to be a file of certificates in PEM"
            raise BadTierUrl(f"tier {spec.name}: {spec.ca_bundle} cannot be used", hint) from error
    progress = PROGRESS_TIMEOUT if spec.timeout_seconds is None else spec.timeout_seconds
    return HubClient(
        place,
        clock=clock,
        patience=Patience(progress=progress, whole=spec.deadline_seconds),
        connections=spec.connections,
        ca_bundle=spec.ca_bundle,
    )


class HubTier:
    """One dataset repo, under one prefix.

    ``checked``: a probe found that the Hub refuses bytes that are not those of their digest.
    ``linger`` is how long a commit waits for changes whose bytes are still being sent (seconds).
    """

    def __init__(self, name: str, client: HubClient, *, checked: bool = False, linger: float = LINGER) -> None:
        self._name = name
        self._client = client
        self._place: HubPlace = client.place
        self._repo = HubRepo(client)
        self._large = LargeFiles(client, checked=checked)
        self._queue = CommitQueue(Committer(self._repo).commit, linger=linger)
        self._checked = checked
        self._seen_private = False

    @property
    def name(self) -> str:
        """The configured name."""
        return self._name

    @property
    def capabilities(self) -> Capabilities:
        """The Hub's limits; what it is known to check follows from the probe."""
        return Capabilities(
            fencing=Fencing.GIT,
            verification=Verification.STORE_SHA256 if self._checked else Verification.READ_BACK,
            multipart=False,
            resumable=False,
            copy_part=False,
            copy=False,
            max_put=MAX_FILE,
            min_part=1,
            max_part=MAX_FILE,
            max_parts=1,
            max_object=MAX_FILE,
        )

    def put(self, key: Key, body: Body) -> ObjectInfo:
        """Send the bytes, and commit them together with what others send meanwhile."""
        return self._store("put", Kind.PUT, key, body)

    def create(self, key: Key, data: bytes) -> ObjectInfo:
        """Commit onto a head that has no such path; a reply that was lost is looked for in the history."""
        return self._store("create", Kind.CREATE, key, BytesBody(data))

    def open(self, key: Key, start: int = 0, length: int | None = None) -> BinaryIO:
        """Stream a range of the file that the branch has now.

        The answer to one request names the file's content, and the bytes come from the place
        of that content: no cache is in between, neither the library's nor that of a branch.
        """
        if start < 0 or (length is not None and length < 0):
            raise ValueError(f"negative range: start {start}, length {length}")
        where = self._where("open", key)
        path = self._path(key)
        with mapped(where, self._place.repo):
            self._first_look()
            if length == 0:
                self._entry(path, where)
                return io.BytesIO()
            opened = self._repo.read(path, range_header(start, length))
            try:
                self._client.check(opened.response, opened.surface)
            except HubFailure:
                opened.response.close()
                raise
            return stream_of(opened, start, length, where)

    def stat(self, key: Key) -> ObjectInfo:
        """Describe the file that the branch has now."""
        where = self._where("stat", key)
        path = self._path(key)
        with mapped(where, self._place.repo):
            self._first_look()
            return self._info(key, self._entry(path, where))

    def list_objects(self, prefix: str, token: str | None = None) -> ObjectPage:
        """Return the whole listing of one commit as one page: the Hub promises no order."""
        if token is not None:
            raise ValueError("a token that this tier never gave")
        folder = prefix.rpartition("/")[0]
        if folder and not is_key(folder):
            return ObjectPage(objects=(), next_token=None)
        root = self._place.root
        with mapped(self._where("list_objects", prefix), self._place.repo):
            head = self._repo.state().sha
            found = [
                self._info(Key(key), entry)
                for entry in self._repo.tree(head, (root + folder).rstrip("/"))
                if entry.path.startswith(root + prefix) and is_key(key := entry.path.removeprefix(root))
                if entry.path != ATTRIBUTES
            ]
        return ObjectPage(objects=tuple(sorted(found, key=lambda info: info.key)), next_token=None)

    def copy(self, key: Key, source: ObjectInfo) -> ObjectInfo:  # noqa: ARG002 - the protocol's
        """Refuse: the Hub copies only what a commit names, and proves nothing of it."""
        raise Unsupported("no copies inside the store", tier=self._name, operation="copy", key=key)

    def delete(self, key: Key) -> None:
        """Commit the file's removal; its bytes stay in the history, and on the bill."""
        with mapped(self._where("delete", key), self._place.repo), self._queue.announced() as ticket:
            ticket.submit(Change(kind=Kind.DELETE, path=self._path(key)))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def begin_upload(self, key: Key, *, size: int, part_size: int) -> Upload:  # noqa: ARG002 - the protocol's
        """Refuse: there are no parts."""
        raise self._no_parts("begin_upload", key)

    def put_part(self, upload: Upload, number: int, body: Body) -> Part:  # noqa: ARG002 - the protocol's
        """Refuse: there are no parts."""
        raise self._no_parts("put_part", upload.key)

    def list_parts(self, upload: Upload, token: str | None = None) -> PartPage:  # noqa: ARG002 - the protocol's
        """Refuse: there are no parts."""
        raise self._no_parts("list_parts", upload.key)

    def copy_part(self, upload: Upload, number: int, source: ObjectInfo, start: int, length: int) -> Part:  # noqa: ARG002
        """Refuse: there are no parts."""
        raise self._no_parts("copy_part", upload.key)

    def complete(self, upload: Upload, parts: Sequence[Part]) -> ObjectInfo:  # noqa: ARG002 - the protocol's
        """Refuse: there are no parts."""
        raise self._no_parts("complete", upload.key)

    def abort(self, upload: Upload) -> None:
        """Refuse: there are no parts."""
        raise self._no_parts("abort", upload.key)

    def _store(self, operation: str, kind: Kind, key: Key, body: Body) -> ObjectInfo:
        where = self._where(operation, key)
        path = self._path(key)
        self._refuse_impossible(path, body.size, where)
        with mapped(where, self._place.repo), self._queue.announced() as ticket:
            self._first_look()
            sha256 = self._send(body, where)
            entry = ticket.submit(Change(kind=kind, path=path, size=body.size, sha256=sha256))
        if entry is None:
            raise IntegrityError("the Hub does not say what it has", **where.fields())
        return self._info(key, entry)

    def _send(self, body: Body, where: Where) -> str:
        """Bring the bytes to the Hub; returns their digest, which is computed where the caller knows none."""
        sha256 = body.sha256
        if sha256 is None or body.size == 0:
            digest = hashlib.sha256()
            for view in body_chunks(body, **where.fields()):
                digest.update(view)
            if sha256 not in (None, digest.hexdigest()):
                raise IntegrityError("the body's bytes are not those of its SHA-256", **where.fields())
            sha256 = digest.hexdigest()
        if body.size:
            self._large.send(body, sha256, where)
        return sha256

    def _refuse_impossible(self, path: str, size: int, where: Where) -> None:
        if size > MAX_FILE:
            message = f"{size} bytes: the Hub takes files of at most {MAX_FILE}"
            raise Unsupported(message, **where.fields(), hint="save the checkpoint in smaller files")
        if path == ATTRIBUTES or ".git" in path.split("/"):
            hint = "git keeps this name to itself: choose another one, or give the tier's URL a prefix"
            raise Unsupported("a path that git does not take", **where.fields(), hint=hint)

    def _first_look(self) -> None:
        """Refuse a repo that is not private before anything else is done with it; commits look again each time."""
        if not self._seen_private:
            self._repo.state()
            self._seen_private = True

    def _entry(self, path: str, where: Where) -> Entry:
        entry = self._repo.entries(BRANCH, [path]).get(path)
        if entry is None or entry.type != "file" or path == ATTRIBUTES:
            raise ObjectNotFound("there is no such key", **where.fields())
        return entry

    def _info(self, key: Key, entry: Entry) -> ObjectInfo:
        attested = (_EMPTY if entry.size == 0 else entry.lfs.oid if entry.lfs else None) if self._checked else None
        return ObjectInfo(key=key, size=entry.size, etag=entry.oid, sha256=attested)

    def _path(self, key: Key) -> str:
        key_components(key)
        return self._place.root + key

    def _where(self, operation: str, key: str) -> Where:
        return Where(tier=self._name, operation=operation, key=key)

    def _no_parts(self, operation: str, key: Key) -> Unsupported:
        return Unsupported("this tier has no parts", **self._where(operation, key).fields(), hint=_NO_PARTS)
