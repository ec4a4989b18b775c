"""Sending one generation's files to one tier, and proving that they arrived.

Every object ends up verified by the strongest means that the tier offers, or the
upload fails.  What was accepted is journalled as it happens, so that a killed process
sends again at most what was in flight.
"""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

from replicate.digests import BLOCK
from replicate.errors import CkptierError, LocalDisk
from replicate.manifest import ManifestObject
from replicate.origins import Origin, fill
from replicate.plan import ObjectPlan, PartPlan, UploadPlan
from replicate.tracker import Tracker
from tiers.errors import IntegrityError, ObjectNotFound, TierError, TierUnavailable
from tiers.medium import reading_the_medium
from tiers.protocol import Key, ObjectInfo, Part, Tier, Upload, Verification, all_parts
from tiers.reliance import relying

RESENDS = 2
"""How often an object whose stored bytes turn out wrong is sent again with the same sealed bytes."""


class Draining(CkptierError):
    """The upload was stopped on request; what was accepted is journalled and will be resumed."""

    def __init__(self) -> None:
        super().__init__("stopped while uploading; the next start resumes it")


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far an upload is, in bytes that the tier has accepted."""

    done_bytes: int
    total_bytes: int


class Uploader:
    """Uploads to one tier with at most ``connections`` requests at once.

    ``digested`` keeps what was hashed for one upload, for its other tries.  ``stop`` and
    ``set_aside`` end an upload at its next request; it is resumed another time.
    """

    def __init__(
        self,
        tier: Tier,
        tracker: Tracker,
        *,
        connections: int,
        stop: threading.Event,
        on_progress: Callable[[Progress], None] = lambda _progress: None,
        digested: dict[Key, ObjectPlan] | None = None,
        set_aside: threading.Event | None = None,
    ) -> None:
        self._tier = tier
        self._digested = digested if digested is not None else {}
        self._set_aside = set_aside if set_aside is not None else threading.Event()
        self._tracker = tracker
        self._connections = connections
        self._stop = stop
        self._on_progress = on_progress

    def upload(
        self, plan: UploadPlan, origin: Origin, changed: Iterable[str] = (), *, resumed: bool
    ) -> tuple[ManifestObject, ...]:
        """Send and verify every object; ``origin`` has the files, ``changed`` names those touched since sealing.

        Raises SourceDamage where its bytes are not what was sealed, Draining when stopped,
        and TierError where a tier fails.  Nothing is visible before the caller commits.
        """
        return _Run(self, plan, origin, frozenset(changed), resumed=resumed).execute()


class _Run:
    """One upload of one generation: shared counters and two pools, objects outside, parts inside."""

    def __init__(
        self, uploader: Uploader, plan: UploadPlan, origin: Origin, changed: frozenset[str], *, resumed: bool
    ) -> None:
        self.tier = uploader._tier  # noqa: SLF001 - the two classes are one unit; _Run is its state
        self.tracker = uploader._tracker  # noqa: SLF001
        self.connections = uploader._connections  # noqa: SLF001
        self.stop = uploader._stop  # noqa: SLF001
        self.on_progress = uploader._on_progress  # noqa: SLF001
        self.digested = uploader._digested  # noqa: SLF001
        self.set_aside = uploader._set_aside  # noqa: SLF001
        self.plan = plan
        self.origin = origin
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
        if self.stop.is_set() or self.failed.is_set() or self.set_aside.is_set():
            raise Draining

    def _count(self, size: int) -> None:
        with self.lock:
            self.done_bytes = min(self.done_bytes + size, self.plan.total_bytes)  # what is sent again counts once
            progress = Progress(done_bytes=self.done_bytes, total_bytes=self.plan.total_bytes)
        self.on_progress(progress)

    def _object(self, item: ObjectPlan, known: str | None) -> ManifestObject:
        checked = self.tier.capabilities.verification is Verification.STORE_SHA256
        if item.path in self.changed or not checked:
            self.origin.check(item.file, force=item.path in self.changed)
        if item.second_hash:
            item = self._digested(item, checked=checked)
        there = self._already_there(item) if self.resumed else None
        if there is not None:
            self._count(item.file.size)
        means = there or self._send_until_proved(item)
        # A manifest may be there already, with what was journalled: no proof since then may change its bytes.
        return self._record(item, Verification(known) if known else means, journal=known is None or there is None)

    def _digested(self, item: ObjectPlan, *, checked: bool) -> ObjectPlan:
        """Hash once for all tries: a store that refuses every write must not cost a hash of everything each time."""
        known = self.digested.get(item.key) if item.path not in self.changed else None
        if known is None:
            known = self.digested[item.key] = self.origin.digested(item, checked=checked)
        return known

    def _send_until_proved(self, item: ObjectPlan) -> Verification:
        resends = 0
        while True:
            try:
                return self._verify(item, self._send(item))
            except IntegrityError:
                self.origin.check(item.file, force=True)
                resends += 1
                if resends > RESENDS:
                    raise
            except OSError as error:  # tiers raise TierError: it was reading our own file that failed
                self.origin.check(item.file, force=True)
                raise LocalDisk(
                    f"{self.origin.where(item.path)} could not be read: {error}",
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
        with self.slots, self.origin.body(item.file, item.parts[0]) as body:
            info = self.tier.put(item.key, body)
        self._count(item.file.size)
        return info

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
            except (ObjectNotFound, TierUnavailable) as failure:
                return self._completed_after_all(item, failure)

    def _completed_after_all(self, item: ObjectPlan, failure: TierError) -> ObjectInfo:
        """Return the object, or raise ``failure`` where there is none.

        A complete whose reply was lost looks like an upload that never was, and one that
        took too long may still be under way: the object tells.  Nothing is ever aborted,
        which would race with it.
        """
        try:
            info = self.tier.stat(item.key)
            with self.tier.open(item.key, 0, 1) as stream:  # stores exist that list what they cannot hand out
                stream.read(1)
        except ObjectNotFound:
            raise failure from None
        return info

    def _send_part(self, item: ObjectPlan, upload: Upload, part: PartPlan) -> Part:
        try:
            with self.slots:
                self._check_stop()
                with self.origin.body(item.file, part) as body:
                    accepted = self.tier.put_part(upload, part.number, body)
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
            raise self._wrong(item, f"the object has {info.size} bytes, the file {item.file.size}")
        if self.tier.capabilities.verification is Verification.STORE_SHA256:
            if info.sha256 is None:
                info = self.tier.stat(item.key)
            if info.sha256 is not None:
                self._compare_digest(item, info.sha256)
                return Verification.STORE_SHA256
        with self.slots, relying(), reading_the_medium() as reading:
            self._read_back(item)
        return reading.proof

    def _compare_digest(self, item: ObjectPlan, stored: str) -> None:
        if stored != item.stored_sha256:
            raise self._wrong(item, "the store's SHA-256 is not the sealed one")

    def _read_back(self, item: ObjectPlan) -> None:
        """Compare what the tier hands out with the sealed file, block by block."""
        buffer = memoryview(bytearray(min(BLOCK, max(1, item.file.size))))
        with self.origin.comparing(item.file) as sealed, self.tier.open(item.key) as remote:
            left = item.file.size
            while left:
                self._check_stop()
                block = buffer[:left]
                try:
                    fill(remote, block)
                except OSError as error:
                    raise self._wrong(item, "the object is too short") from error
                if sealed.differs(block):
                    raise self._wrong(item, f"the tier hands out other bytes near {item.file.size - left}")
                left -= len(block)
            if remote.read(1):
                raise self._wrong(item, "the object is too long")

    def _wrong(self, item: ObjectPlan, message: str) -> IntegrityError:
        return IntegrityError(message, tier=self.tier.name, operation="verify", key=item.key)


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


T = TypeVar("T")


def _gather(futures: list[Future[T]]) -> list[T]:
    """Wait for all; raise the failure that says most (a stop caused by another's failure says least)."""
    failures = [error for future in futures if (error := future.exception()) is not None]
    telling = [error for error in failures if not isinstance(error, Draining)]
    if failures:
        raise (telling or failures)[0]
    return [future.result() for future in futures]
