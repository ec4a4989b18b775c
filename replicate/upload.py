"""Sending one generation's files to one tier, and proving that they arrived.

Every object ends up verified by the strongest means that the tier offers, or the
upload fails.  What was accepted is journalled as it happens, so that a killed process
sends again at most what was in flight.
"""

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from replicate.digests import BLOCK, CountedSha256, digest_range, leaf_ranges
from replicate.errors import CkptierError, IntegrityFailure, LocalDisk
from replicate.manifest import ManifestObject, SealedFile
from replicate.plan import ObjectPlan, PartPlan, UploadPlan
from replicate.tracker import Tracker
from tiers.bodies import FileSlice
from tiers.errors import IntegrityError, ObjectNotFound
from tiers.protocol import ObjectInfo, Part, Tier, Upload, Verification, all_parts

RESENDS = 2
"""How often an object whose stored bytes turn out wrong is sent again with the same sealed bytes."""


class Draining(CkptierError):
    """The upload was stopped on request; what was accepted is journalled and will be resumed."""

    def __init__(self) -> None:
        super().__init__("stopped while uploading; the next start resumes it")


class LocalDamage(IntegrityFailure):
    """Local bytes no longer match their seal: the generation is quarantined and never sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far an upload is, in bytes that the tier has accepted."""

    done_bytes: int
    total_bytes: int


class Uploader:
    """Uploads to one tier with at most ``connections`` requests at once."""

    def __init__(
        self,
        tier: Tier,
        tracker: Tracker,
        *,
        connections: int,
        stop: threading.Event,
        on_progress: Callable[[Progress], None] = lambda _progress: None,
    ) -> None:
        self._tier = tier
        self._tracker = tracker
        self._connections = connections
        self._stop = stop
        self._on_progress = on_progress

    def upload(
        self, plan: UploadPlan, source: Path, changed: Iterable[str] = (), *, resumed: bool
    ) -> tuple[ManifestObject, ...]:
        """Send and verify every object; ``source`` holds the files, ``changed`` names those touched since sealing.

        Raises LocalDamage where local bytes are not what was sealed, Draining when stopped,
        and TierError where the tier fails.  Nothing is visible before the caller commits.
        """
        return _Run(self, plan, source, frozenset(changed), resumed=resumed).execute()


class _Run:
    """One upload of one generation: shared counters and two pools, objects outside, parts inside."""

    def __init__(
        self, uploader: Uploader, plan: UploadPlan, source: Path, changed: frozenset[str], *, resumed: bool
    ) -> None:
        self.tier = uploader._tier  # noqa: SLF001 - the two classes are one unit; _Run is its state
        self.tracker = uploader._tracker  # noqa: SLF001
        self.connections = uploader._connections  # noqa: SLF001
        self.stop = uploader._stop  # noqa: SLF001
        self.on_progress = uploader._on_progress  # noqa: SLF001
        self.plan = plan
        self.source = source
        self.changed = changed
        self.resumed = resumed
        self.failed = threading.Event()
        self.lock = threading.Lock()
        self.slots = threading.BoundedSemaphore(self.connections)  # both pools send: only together are they bounded
        self.done_bytes = 0

    def execute(self) -> tuple[ManifestObject, ...]:
        known = self.tracker.verified(self.tier.name, self.plan.generation)
        with (
            ThreadPoolExecutor(self.connections, thread_name_prefix="ckptier-part") as self.parts,
            ThreadPoolExecutor(self.connections, thread_name_prefix="ckptier-object") as objects,
        ):
            futures = [objects.submit(self._guarded, item, known.get(item.path)) for item in self.plan.objects]
            return tuple(_gather(futures))

    def _guarded(self, item: ObjectPlan, known: str | None) -> ManifestObject:
        self._check_stop()
        try:
            return self._object(item, known)
        except BaseException:
            self.failed.set()  # the others stop at their next request instead of sending for nothing
            raise

    def _check_stop(self) -> None:
        if self.stop.is_set() or self.failed.is_set():
            raise Draining

    def _count(self, size: int) -> None:
        with self.lock:
            self.done_bytes = min(self.done_bytes + size, self.plan.total_bytes)  # what is sent again counts once
            progress = Progress(done_bytes=self.done_bytes, total_bytes=self.plan.total_bytes)
        self.on_progress(progress)

    def _object(self, item: ObjectPlan, known: str | None) -> ManifestObject:
        if item.path in self.changed or self.tier.capabilities.verification is not Verification.STORE_SHA256:
            self._check_local(item, force=item.path in self.changed)
        if item.second_hash:
            item = self._with_digests(item)
        there = self._already_there(item) if self.resumed else None
        if there is not None:
            self._count(item.file.size)
        means = there or self._send_until_proved(item)
        # A manifest may be there already, with what was journalled: no proof since then may change its bytes.
        return self._record(item, Verification(known) if known else means, journal=known is None or there is None)

    def _with_digests(self, item: ObjectPlan) -> ObjectPlan:
        path = self.source / item.path
        try:
            return digest_parts(item, path)
        except OSError as error:
            raise LocalDamage(f"{path} cannot be read: {error}") from error

    def _send_until_proved(self, item: ObjectPlan) -> Verification:
        resends = 0
        while True:
            try:
                return self._verify(item, self._send(item))
            except IntegrityError:
                self._check_local(item, force=True)
                resends += 1
                if resends > RESENDS:
                    raise
            except OSError as error:  # tiers raise TierError: it was reading our own file that failed
                self._check_local(item, force=True)
                raise LocalDisk(
                    f"{self.source / item.path} could not be read: {error}",
                    hint="check that disk; the next pass tries again",
                ) from error

    def _record(self, item: ObjectPlan, means: Verification, *, journal: bool) -> ManifestObject:
        if journal:
            self.tracker.object_verified(self.tier.name, self.plan.generation, item.path, means)
        return ManifestObject(
            path=item.path,
            key=item.key,
            size=item.file.size,
            sha256=item.file.sha256,
            verified_by=str(means),
            part_size=item.part_size,
            parts=tuple(part.sha256 or "" for part in item.parts) if item.second_hash and item.part_size else (),
        )

    def _already_there(self, item: ObjectPlan) -> Verification | None:
        """Whether an earlier process finished this object: size alone never counts."""
        try:
            with self.slots:
                info = self.tier.stat(item.key)
            return self._verify(item, info) if info.size == item.file.size else None
        except (ObjectNotFound, IntegrityError):
            return None  # not there, or not the sealed bytes: it is sent, over what no log entry names yet

    def _send(self, item: ObjectPlan) -> ObjectInfo:
        if item.part_size:
            return self._send_parts(item)
        self._check_stop()
        with self.slots:
            info = self.tier.put(item.key, self._body(item, item.parts[0]))
        self._count(item.file.size)
        return info

    def _body(self, item: ObjectPlan, part: PartPlan) -> FileSlice:
        return FileSlice(path=self.source / item.path, start=part.start, size=part.size, sha256=part.sha256)

    def _send_parts(self, item: ObjectPlan) -> ObjectInfo:
        upload, accepted = self._resume_or_begin(item)
        futures: list[Future[Part]] = []
        for part in item.parts:
            if part.number in accepted:
                self._count(part.size)
            else:
                futures.append(self.parts.submit(self._send_part, item, upload, part))
        accepted |= {part.number: part for part in _gather(futures)}
        self._check_stop()
        with self.slots:
            try:
                return self.tier.complete(upload, [accepted[part.number] for part in item.parts])
            except ObjectNotFound:
                # A complete whose reply was lost looks like an upload that never was: the object tells.
                return self.tier.stat(item.key)

    def _send_part(self, item: ObjectPlan, upload: Upload, part: PartPlan) -> Part:
        try:
            with self.slots:
                self._check_stop()
                accepted = self.tier.put_part(upload, part.number, self._body(item, part))
        except (IntegrityError, OSError):
            raise  # the object's own affair: it is looked at and sent again
        except BaseException:
            self.failed.set()
            raise
        self.tracker.part_accepted(self.tier.name, self.plan.generation, item.path, upload, accepted)
        self._count(part.size)
        return accepted

    def _resume_or_begin(self, item: ObjectPlan) -> tuple[Upload, dict[int, Part]]:
        """Return an upload and the parts of it that count.

        A part that the store lists counts only with the sealed digest, or with the ETag
        that was journalled when its checksum was accepted.
        """
        where = (self.tier.name, self.plan.generation, item.path)
        upload = self.tracker.upload_of(*where, item.key, item.file.size)
        if upload is not None and upload.part_size == item.part_size:
            try:
                with self.slots:
                    listed = list(all_parts(self.tier, upload))
            except ObjectNotFound:
                listed = []
                upload = None
            if upload is not None:
                journalled = self.tracker.parts_of(*where, upload)
                return upload, {
                    part.number: self._attested(part, item) for part in listed if _counts(part, item, journalled)
                }
        with self.slots:
            upload = self.tier.begin_upload(item.key, size=item.file.size, part_size=item.part_size)
        self.tracker.upload_begun(*where, upload)
        return upload, {}

    def _attested(self, part: Part, item: ObjectPlan) -> Part:
        """Give a listed part the digest that the store accepted: a store that checks wants it in ``complete``."""
        if part.sha256 is None and self.tier.capabilities.verification is Verification.STORE_SHA256:
            return replace(part, sha256=item.parts[part.number - 1].sha256)
        return part

    def _verify(self, item: ObjectPlan, info: ObjectInfo) -> Verification:
        """Prove one object; raises IntegrityError where it is not the sealed bytes."""
        if info.size != item.file.size:
            raise IntegrityError(
                f"the object has {info.size} bytes, the file {item.file.size}",
                tier=self.tier.name,
                operation="verify",
                key=item.key,
            )
        if self.tier.capabilities.verification is Verification.STORE_SHA256:
            if info.sha256 is None:
                info = self.tier.stat(item.key)
            if info.sha256 is not None:
                self._compare_digest(item, info.sha256)
                return Verification.STORE_SHA256
        with self.slots:
            self._read_back(item)
        return Verification.READ_BACK

    def _compare_digest(self, item: ObjectPlan, stored: str) -> None:
        if stored != item.stored_sha256:
            raise IntegrityError(
                "the store's SHA-256 is not the sealed one", tier=self.tier.name, operation="verify", key=item.key
            )

    def _read_back(self, item: ObjectPlan) -> None:
        """Compare what the tier hands out with the sealed file, byte by byte; hashing again would add nothing."""
        ours, theirs = bytearray(BLOCK), bytearray(BLOCK)
        with (self.source / item.path).open("rb", buffering=0) as local, self.tier.open(item.key) as remote:
            left = item.file.size
            while left:
                self._check_stop()
                count = min(left, BLOCK)
                _fill(local, memoryview(ours)[:count])
                try:
                    _fill(remote, memoryview(theirs)[:count])
                except OSError as error:
                    raise IntegrityError(
                        "the object is too short", tier=self.tier.name, operation="verify", key=item.key
                    ) from error
                if (ours if count == BLOCK else ours[:count]) != (theirs if count == BLOCK else theirs[:count]):
                    raise IntegrityError(
                        f"the tier hands out other bytes near {item.file.size - left}",
                        tier=self.tier.name,
                        operation="verify",
                        key=item.key,
                    )
                left -= count
            if remote.read(1):
                raise IntegrityError("the object is too long", tier=self.tier.name, operation="verify", key=item.key)

    def _check_local(self, item: ObjectPlan, *, force: bool) -> None:
        """Raise LocalDamage where the local file is not what was sealed; reads it only when ``force``."""
        path = self.source / item.path
        try:
            size = path.lstat().st_size
            wrong = size != item.file.size or (force and not matches_seal(path, item.file))
        except OSError as error:
            raise LocalDamage(f"{path} cannot be read: {error}") from error
        if wrong:
            raise LocalDamage(
                f"{path} is no longer what was sealed",
                hint="something wrote into a sealed generation, or the disk is failing; older generations are unharmed",
            )


def matches_seal(path: Path, file: SealedFile) -> bool:
    """Hash a local file again and compare it with its seal."""
    spans = leaf_ranges(file.size, file.leaf_size)
    return all(digest_range(path, *span) == leaf for span, leaf in zip(spans, file.leaves, strict=True))


def digest_parts(item: ObjectPlan, path: Path) -> ObjectPlan:
    """Compute the digests of parts that are not leaves, checking the leaves in the same pass.

    Reads the file once; raises LocalDamage where a leaf is not what was sealed.
    """
    cuts = sorted({part.start + part.size for part in item.parts} | set(_leaf_ends(item.file)))
    part_digests: list[str] = []
    leaf_digests: list[str] = []
    part, leaf = CountedSha256(), CountedSha256()
    part_ends = {one.start + one.size for one in item.parts}
    leaf_ends = set(_leaf_ends(item.file))
    buffer = bytearray(BLOCK)
    position = 0
    with path.open("rb", buffering=0) as stream:
        for cut in cuts:
            while position < cut:
                view = memoryview(buffer)[: min(BLOCK, cut - position)]
                _fill(stream, view)
                part.update(view)
                leaf.update(view)
                position += len(view)
            if cut in part_ends:
                part_digests.append(part.hexdigest())
                part = CountedSha256()
            if cut in leaf_ends:
                leaf_digests.append(leaf.hexdigest())
                leaf = CountedSha256()
    if tuple(leaf_digests) != item.file.leaves:
        raise LocalDamage(f"{path} is no longer what was sealed")
    parts = tuple(replace(one, sha256=digest) for one, digest in zip(item.parts, part_digests, strict=True))
    return replace(item, parts=parts)


def _leaf_ends(file: SealedFile) -> list[int]:
    return [start + length for start, length in leaf_ranges(file.size, file.leaf_size)]


def _counts(part: Part, item: ObjectPlan, journalled: dict[int, Part]) -> bool:
    if not 1 <= part.number <= len(item.parts):
        return False
    wanted = item.parts[part.number - 1]
    if part.size != wanted.size:
        return False
    if part.sha256 is not None:
        return part.sha256 == wanted.sha256
    known = journalled.get(part.number)
    return known is not None and known.etag == part.etag


def _fill(stream: object, view: memoryview) -> None:
    """Read exactly ``len(view)`` bytes; raises OSError where the stream ends early."""
    done = 0
    while done < len(view):
        count = stream.readinto(view[done:])  # type: ignore[attr-defined]
        if not count:
            raise OSError(os.strerror(5) + ": a stream ended early")
        done += count


T = TypeVar("T")


def _gather(futures: list[Future[T]]) -> list[T]:
    """Wait for all; raise the failure that says most (a stop caused by another's failure says least)."""
    failures = [error for future in futures if (error := future.exception()) is not None]
    telling = [error for error in failures if not isinstance(error, Draining)]
    if failures:
        raise (telling or failures)[0]
    return [future.result() for future in futures]
