"""A tier of any kind: every file under its own name, the export manifest created last.

Until ``export-manifest.json`` is there, nothing there is a release.  A claim beside it
(``export-manifest.pending.json``, created first) keeps two publications apart and tells what a
killed one left: the same release goes on from it, another one is refused.
"""

import hashlib
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from replicate.canonical import sha256
from replicate.digests import BLOCK, CountedSha256
from replicate.errors import (
    CapabilityMissing,
    CkptierError,
    IntegrityFailure,
    TrustFailure,
    from_tier_error,
)
from replicate.layout import encode_path
from replicate.release.bundle import MANIFEST
from replicate.release.destination import Gating, Visibility
from replicate.release.documents import MAX_DOCUMENT_BYTES, Document, Name, Sha256, decode, encode
from replicate.release.publishing.carrying import (
    Carried,
    amend,
    carried,
    check_set,
    check_sources,
    differs,
    source_blocks,
    total_bytes,
    unreadable,
)
from replicate.release.publishing.places import Payload, PlaceState, Published, Step
from tiers.bodies import BytesBody, FileSlice
from tiers.errors import IntegrityError, ObjectExists, ObjectNotFound, TierError, TierUnavailable
from tiers.protocol import Capabilities, Key, ObjectInfo, Tier, Verification, walk

PART = 64 * 1024 * 1024
"""Bytes of a part; a file that is not larger goes in one request."""
_MANIFEST = Key(MANIFEST)
CLAIM = Key("export-manifest.pending.json")
_CREATES = 3
_UNMANAGED = "ckptier does not manage who sees a tier"


class Claim(Document):
    """Which release a publication is putting here, and by whose nonce."""

    format: Literal[1] = 1
    manifest_sha256: Sha256
    nonce: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    """A file, cut into parts of ``part_size`` bytes (0: one request), with the digest of each part."""

    file: Carried
    part_size: int
    parts: tuple[str, ...]

    @property
    def key(self) -> Key:
        return Key(encode_path(self.file.path))

    @property
    def stored_sha256(self) -> str:
        """What a store that checked the bytes reports."""
        if not self.part_size:
            return self.file.sha256
        return hashlib.sha256(b"".join(map(bytes.fromhex, self.parts))).hexdigest()


class TierPlace:
    """The root of a tier; it holds one release and nothing else."""

    def __init__(self, tier: Tier, url: str) -> None:
        self._tier = tier
        self._url = url
        self._abandoned: bytes | None = None
        self._finished = False

    def state(self) -> PlaceState:
        """Look whether the tier's root is free; a publication that was begun and not finished takes it as well."""
        with _asking():
            occupied = None if self._finished else self._occupied()
        return PlaceState(
            exists=occupied is not None, visibility=Visibility.UNMANAGED, gating=Gating.NONE, occupied=occupied
        )

    def resume(self, payload: Payload, *, expected_parent: str | None) -> None:  # noqa: ARG002 - no commits here
        """Look for this release's manifest, or for the claim of a publication of it that did not get there."""
        files = carried(payload)
        with _asking():
            self._finished = read_small(self._tier, _MANIFEST) == payload.manifest_bytes
            claim = read_small(self._tier, CLAIM)
        if claim is not None and decode(Claim, claim, what=CLAIM).manifest_sha256 == files[-1].sha256:
            self._abandoned = claim

    def publish(self, payload: Payload, *, expected_parent: str | None, step: Step) -> Published:
        """Hash everything, claim the place, put every file, prove each, create the manifest.

        Raises TrustFailure where the place is not free, IntegrityFailure where bytes are not the
        authorized ones or do not arrive.  What this publication put is deleted after a failure.
        """
        if expected_parent is not None:
            raise TrustFailure(
                f"expected_parent: {self._url} is a tier and has no commits",
                hint="have it authorized without a parent commit",
            )
        files = carried(payload)
        if any(encode_path(file.path) == CLAIM for file in files):
            raise CapabilityMissing(f"{CLAIM}: a tier needs this name for itself", hint="rename that file")
        if self._finished:
            return self._read_back(payload, files, step)
        step(f"hash {len(files)} files ({total_bytes(files)} bytes)")
        planned = tuple(_plan(file, self._tier.capabilities) for file in files)
        return _Publication(self._tier, self._url, payload, planned, step).execute(self._abandoned)

    def set_visibility(self, visibility: Visibility, gating: Gating, *, commit: str, step: Step) -> None:  # noqa: ARG002
        """Raise CapabilityMissing."""
        raise CapabilityMissing(_UNMANAGED, hint="change the bucket's policy yourself")

    def withdraw(self, *, step: Step) -> str:  # noqa: ARG002
        """Raise CapabilityMissing."""
        raise CapabilityMissing(_UNMANAGED, hint=f"remove what lies at {self._url} yourself")

    def close(self) -> None:
        """Release the tier's connections."""
        self._tier.close()

    def _read_back(self, payload: Payload, files: tuple[Carried, ...], step: Step) -> Published:
        step(f"read {len(files)} files back from {self._url}")
        with _asking():
            check_set(self._url, _keys(self._tier), _as_keys(files))
            for file in files:
                read_back(self._tier, file, self._url)
            self._tier.delete(CLAIM)
        return _published(self._url, payload, files, read_back=len(files))

    def _occupied(self) -> str | None:
        standing = read_small(self._tier, _MANIFEST)
        if standing is not None:
            return f"a release (export manifest {sha256(standing)[:12]}…)"
        claim = read_small(self._tier, CLAIM)
        if claim is not None and claim == self._abandoned:
            return None
        if claim is not None:
            named = decode(Claim, claim, what=CLAIM).manifest_sha256
            return f"a publication that was begun and not finished (export manifest {named[:12]}…)"
        first = next(iter(self._tier.list_objects("").objects), None)
        return None if first is None else f"something that is no release ({first.key})"


class _Publication:
    """One publication: what it has put so far, so that a failure can take it away again."""

    def __init__(self, tier: Tier, url: str, payload: Payload, planned: tuple[_Planned, ...], step: Step) -> None:
        self._tier = tier
        self._url = url
        self._payload = payload
        self._planned = planned
        self._step = step
        self._claim = encode(Claim(manifest_sha256=sha256(payload.manifest_bytes), nonce=secrets.token_hex(16)))
        self._put: dict[Key, None] = {}
        self._unfinished: list[str] = []
        self._read_back = 0

    def execute(self, abandoned: bytes | None) -> Published:
        """Publish, or leave the place as it was; ``abandoned`` is the claim that may be taken over."""
        try:
            with _asking():
                self._take_claim(abandoned)
                for item in self._planned[:-1]:
                    self._step(f"put {item.file.path} ({item.file.size} bytes)")
                    self._put[item.key] = None
                    self._send(item)
                self._check_set()
                self._create_manifest()
        except BaseException as error:
            self._undo(error)
            raise
        self._drop_claim()
        files = tuple(item.file for item in self._planned)
        return _published(self._url, self._payload, files, read_back=self._read_back)

    def _take_claim(self, abandoned: bytes | None) -> None:
        """Create the claim, or take over the one for this release whose publication is known to be dead."""
        if read_small(self._tier, _MANIFEST) is not None:
            raise self._taken("a release stands there")
        found = [info.key for info in walk(self._tier, "")]
        if not found:
            self._create(CLAIM, self._claim)
            return
        if CLAIM not in found:
            raise self._taken(f"something that is no release stands there ({found[0]})")
        standing = read_small(self._tier, CLAIM)
        named = decode(Claim, standing or b"{}", what=CLAIM).manifest_sha256
        if named != sha256(self._payload.manifest_bytes) or standing != abandoned:
            raise self._taken(f"a publication is under way there, or died (export manifest {named[:12]}…)")
        self._step("go on from a publication of this release that was not finished")
        self._tier.put(CLAIM, BytesBody(self._claim))
        ours = {item.key for item in self._planned}
        self._put.update({key: None for key in found if key in ours})

    def _create(self, key: Key, data: bytes) -> None:
        """Create a key; a reply that was lost is made good by reading it, since these bytes are only ours."""
        for attempt in range(1, _CREATES + 1):
            try:
                self._tier.create(key, data)
            except (ObjectExists, TierUnavailable) as error:
                standing = read_small(self._tier, key)
                if standing == data:
                    return
                if standing is not None:
                    raise self._taken(f"another publication was faster ({key})") from error
                if attempt == _CREATES:
                    raise
            else:
                return

    def _send(self, item: _Planned) -> None:
        try:
            info = self._send_parts(item) if item.part_size else self._send_whole(item)
            self._prove(item, info)
        except (IntegrityError, OSError) as error:
            check_sources((item.file,))  # says so where it is our own file that changed
            if isinstance(error, OSError):  # tiers raise TierError: it was reading our own file that failed
                raise unreadable(item.file, error) from error
            raise IntegrityFailure(
                f"{item.file.path}: {error}", hint="the transfer or the store is at fault: publish again with --resume"
            ) from error

    def _send_whole(self, item: _Planned) -> ObjectInfo:
        return self._tier.put(
            item.key, FileSlice(path=item.file.source, start=0, size=item.file.size, sha256=item.file.sha256)
        )

    def _send_parts(self, item: _Planned) -> ObjectInfo:
        """Send a large file part by part, one part in memory at most."""
        upload = self._tier.begin_upload(item.key, size=item.file.size, part_size=item.part_size)
        try:
            accepted = [self._tier.put_part(upload, number, body) for number, body in enumerate(_bodies(item), start=1)]
            try:
                return self._tier.complete(upload, accepted)
            except ObjectNotFound:
                return self._tier.stat(item.key)  # a complete whose reply was lost
        except BaseException:
            try:
                self._tier.abort(upload)
            except TierError:
                self._unfinished.append(f"an unfinished upload of {item.key}")
            raise

    def _prove(self, item: _Planned, info: ObjectInfo) -> None:
        """Compare the store's own digest, or read the object back."""
        if self._tier.capabilities.verification is Verification.STORE_SHA256:
            if info.sha256 is None:
                info = self._tier.stat(item.key)
            if info.sha256 is not None:
                if (info.size, info.sha256) != (item.file.size, item.stored_sha256):
                    raise differs(self._url, item.file, "the store reports other bytes than were sent")
                return
        read_back(self._tier, item.file, self._url)
        self._read_back += 1

    def _check_set(self) -> None:
        found = _keys(self._tier)
        check_set(self._url, found, _as_keys(item.file for item in self._planned[:-1]))

    def _create_manifest(self) -> None:
        """Make it a release, and read the manifest back."""
        self._step(f"create {MANIFEST}")
        self._put[_MANIFEST] = None
        try:
            self._create(_MANIFEST, self._payload.manifest_bytes)
        except TrustFailure:
            self._put.clear()  # it is another publication's release now, and these may be its objects
            raise
        read_back(self._tier, self._planned[-1].file, self._url)
        self._read_back += 1

    def _undo(self, error: BaseException) -> None:
        """Delete what this publication put, the manifest first; says in the error what could not be."""
        left = list(self._unfinished)
        try:
            if read_small(self._tier, CLAIM) != self._claim:
                return  # not taken, or taken over: the objects are not ours
            for key in (*reversed(self._put), CLAIM):
                left += self._delete(key)
        except TierError:
            left += [*self._put, CLAIM]
        if left:
            note = f"could not be removed from {self._url} again: {', '.join(left[:5])}"
            if isinstance(error, CkptierError):
                amend(error, note)
            else:
                error.add_note(note)

    def _delete(self, key: Key) -> list[str]:
        try:
            self._tier.delete(key)
        except TierError:
            return [key]
        return []

    def _drop_claim(self) -> None:
        try:
            self._tier.delete(CLAIM)
        except TierError as error:
            self._step(f"{CLAIM} could not be removed and means nothing any more ({error.message})")

    def _taken(self, why: str) -> TrustFailure:
        return TrustFailure(
            f"destination: {self._url} is not free: {why}",
            hint="name another prefix; an unfinished publication of this release goes on with --resume",
        )


@contextmanager
def _asking() -> Iterator[None]:
    try:
        yield
    except TierError as error:
        raise from_tier_error(error) from error


def _plan(file: Carried, can: Capabilities) -> _Planned:
    """Cut a file into parts that the tier takes, and hash it whole and in parts, in one pass."""
    size = _part_size(file, can)
    digests, filled = [hashlib.sha256()], 0
    for block in source_blocks(file):
        left = block
        while size and left:
            if filled == size:
                digests.append(hashlib.sha256())
                filled = 0
            count = min(len(left), size - filled)
            digests[-1].update(left[:count])
            filled += count
            left = left[count:]
    return _Planned(file=file, part_size=size, parts=tuple(one.hexdigest() for one in digests) if size else ())


def _part_size(file: Carried, can: Capabilities) -> int:
    """Return the bytes of a part, 0 for one request; raises CapabilityMissing where the tier cannot hold the file."""
    if file.size <= min(PART, can.max_put) or (not can.multipart and file.size <= can.max_put):
        return 0
    size = max(PART, can.min_part)
    while can.multipart and -(-file.size // size) > can.max_parts:
        size *= 2
    if not can.multipart or size > can.max_part or file.size > can.max_object:
        raise CapabilityMissing(
            f"{file.path} has {file.size} bytes, more than this tier takes",
            hint="lower weights.max_shard_size and prepare the release again, or take another tier",
        )
    return size


def _bodies(item: _Planned) -> Iterator[FileSlice]:
    for index, digest in enumerate(item.parts):
        start = index * item.part_size
        size = min(item.part_size, item.file.size - start)
        yield FileSlice(path=item.file.source, start=start, size=size, sha256=digest)


def _keys(tier: Tier) -> set[str]:
    """Return every key but the claim."""
    return {str(info.key) for info in walk(tier, "")} - {CLAIM}


def _as_keys(files: Iterable[Carried]) -> tuple[Carried, ...]:
    """Return the files under the names that a listing of the tier gives."""
    return tuple(
        Carried(path=encode_path(file.path), size=file.size, sha256=file.sha256, source=file.source) for file in files
    )


def read_small(tier: Tier, key: Key) -> bytes | None:
    """Return a small object, None where there is none; raises IntegrityFailure for one that is not small."""
    try:
        with tier.open(key) as stream:
            data = stream.read(MAX_DOCUMENT_BYTES + 1)
    except ObjectNotFound:
        return None
    if len(data) > MAX_DOCUMENT_BYTES:
        raise IntegrityFailure(f"{key} is larger than {MAX_DOCUMENT_BYTES} bytes", hint="look at what stands there")
    return data


def read_back(tier: Tier, file: Carried, where: str) -> None:
    """Hash an object as the tier hands it out; raises IntegrityFailure where it is not the authorized file."""
    digest, size = CountedSha256(), 0
    try:
        stream = tier.open(Key(encode_path(file.path)))
    except ObjectNotFound as error:
        raise differs(where, file, "it is not there") from error
    with stream:
        while block := stream.read(BLOCK):
            digest.update(block)
            size += len(block)
    if (size, digest.hexdigest()) != (file.size, file.sha256):
        raise differs(where, file, "other bytes than were sent")


def _published(url: str, payload: Payload, files: tuple[Carried, ...], *, read_back: int) -> Published:
    return Published(
        url=url,
        commit=sha256(payload.manifest_bytes),
        files=len(files),
        total_bytes=total_bytes(files),
        read_back=read_back,
    )
