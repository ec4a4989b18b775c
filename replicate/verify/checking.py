"""Checking one generation on a tier: its manifest, what the store says of each object, and leaves whose turn it is."""

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from replicate.digests import CountedSha256, leaf_ranges
from replicate.errors import CkptierError, IntegrityFailure
from replicate.layout import RemoteRun
from replicate.log import LiveCommit
from replicate.manifest import Manifest, ManifestObject, SealedFile
from replicate.verify.crew import Job
from replicate.verify.findings import MAX_REASONS, Finding, GenerationVerdict, Hurt, Note, NoteKind, not_sealed
from replicate.verify.manifests import attests, read_manifest
from replicate.verify.shares import Portion
from tiers.errors import IntegrityError, ObjectNotFound, TierError
from tiers.medium import reading_the_medium
from tiers.protocol import Key, ObjectInfo, Tier

PIECE = 1024 * 1024
"""Bytes asked of a stream at a time: what each worker holds in memory."""
T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class _Object:
    """One object: what was found of it so far.

    ``other`` are leaves that are not the sealed ones, ``faults`` what else is wrong with some leaves, or with all.
    ``doubt`` says that the store's own digest is another: reading all leaves tells which of them are.
    """

    item: ManifestObject
    file: SealedFile
    place: int
    other: set[int] = field(default_factory=set)
    faults: list[Hurt] = field(default_factory=list)
    doubt: str = ""
    unknown: dict[str, None] = field(default_factory=dict)
    read: int = 0

    @property
    def hurts(self) -> tuple[Hurt, ...]:
        """What is hurt, in order."""
        found = (*self.faults, *not_sealed(self.file, self.other))
        if self.doubt and not (found and self.read == self.file.size):
            found = (*found, Hurt(path=self.file.path, reason=self.doubt))
        return tuple(sorted(found, key=lambda hurt: hurt.leaves or (-1, -1)))

    def spoilt(self, number: int) -> bool:
        """Tell whether a leaf is known to be wrong without reading it."""
        return any(hurt.leaves is None or hurt.leaves[0] <= number <= hurt.leaves[1] for hurt in self.faults)


class Checker:
    """Gathers what is wrong with one generation on a tier.  Its jobs may run on several threads.

    What is as sealed is forgotten as soon as the last of a generation's jobs is done.
    """

    def __init__(self, tier: Tier, remote: RemoteRun, run_uid: str, commit: LiveCommit) -> None:
        self.commit = commit
        self.notes: list[Note] = []
        self._tier = tier
        self._remote = remote
        self._run_uid = run_uid
        self._hurts: list[Hurt] = []
        self._unknown: list[str] = []
        self._objects: list[_Object] = []
        self._due = 0
        self._attested = 0
        self._read = 0
        self._lock = threading.Lock()

    def begin(self, portion: Portion) -> Iterable[Job]:
        """Read the manifest; what it names comes up next."""
        try:
            manifest = _again(self._read_manifest)
        except (TierError, CkptierError) as error:
            if is_hurt(error):
                self._hurts.append(Hurt(path=None, reason=_words(error)))
            else:
                self._unknown.append(f"the manifest: {error.message}")
            return ()
        self._objects = list(_placed(manifest))
        self._due = len(self._objects)
        return (partial(self._look, one, portion) for one in self._objects)

    @property
    def answered(self) -> bool:
        """Whether the tier handed out all that was asked for."""
        return not self._unknown

    def verdict(self) -> GenerationVerdict:
        """Say how it stands."""
        told = [*map(str, self._hurts), *self._unknown]
        more = [f"and {len(told) - MAX_REASONS} more"] if len(told) > MAX_REASONS else []
        return GenerationVerdict(
            generation=self.commit.id,
            verdict=Finding.HURT if self._hurts else Finding.UNKNOWN if self._unknown else Finding.INTACT,
            reasons=(*told[:MAX_REASONS], *more),
            objects=self.commit.objects,
            total_bytes=self.commit.total_bytes,
            attested=self._attested,
            bytes_read=self._read,
            manifest_sha256=self.commit.manifest_sha256,
            hurts=tuple(self._hurts),
        )

    def _read_manifest(self) -> Manifest:
        return read_manifest(self._tier, self._remote, self._run_uid, self.commit)

    def _look(self, one: _Object, portion: Portion) -> Iterable[Job]:
        """Ask what the store says of an object; the leaves whose turn it is come up next."""
        jobs: list[Job] = []
        try:
            info = self._tier.stat(Key(one.item.key))
        except (TierError, CkptierError) as error:
            if is_hurt(error):
                one.faults.append(Hurt(path=one.file.path, reason=_words(error)))
            else:
                one.unknown[error.message] = None
        else:
            self._compare(one, info)
            jobs = list(self._leaves(one, portion))
        self._done(len(jobs))
        return jobs

    def _compare(self, one: _Object, info: ObjectInfo) -> None:
        """Compare size and digest with what was sealed."""
        attested = attests(info, one.item, one.file)
        if info.size != one.file.size:
            one.faults.append(_bent(one.file, info.size))
        elif attested is False:
            one.doubt = f"the store says its digest is {info.sha256}, which is not the sealed one"
        with self._lock:
            self._attested += attested is True

    def _leaves(self, one: _Object, portion: Portion) -> Iterator[Job]:
        for number, (start, length) in enumerate(leaf_ranges(one.file.size, one.file.leaf_size)):
            if length and portion.covers(self.commit.id, one.place + start) and not one.spoilt(number):
                yield partial(self._leaf, one, number, start, length)

    def _leaf(self, one: _Object, number: int, start: int, length: int) -> Iterable[Job]:
        """Read a leaf, and once more where it is another: what arrives wrong need not lie there wrong."""
        try:
            wrong = not self._is_sealed(one, number, start, length)
            if wrong and self._is_sealed(one, number, start, length):
                words = (
                    f"{self.commit.id}: {one.file.path}: leaf {number} arrived wrong once, and right when asked again"
                )
                self.notes.append(Note(kind=NoteKind.ARRIVED_WRONG, text=words))
                wrong = False
        except (TierError, CkptierError) as error:
            if is_hurt(error):
                one.faults.append(Hurt(path=one.file.path, leaves=(number, number), reason=_words(error)))
            else:
                one.unknown[error.message] = None
        else:
            with self._lock:
                one.read += length
                self._read += length
            if wrong:
                one.other.add(number)
        self._done(0)
        return ()

    def _is_sealed(self, one: _Object, number: int, start: int, length: int) -> bool:
        """Tell whether a leaf, as it arrives now, is the sealed one."""
        digest = CountedSha256()
        left = length
        with reading_the_medium(), self._tier.open(Key(one.item.key), start, length) as stream:
            while left and (chunk := stream.read(min(PIECE, left))):
                digest.update(chunk)
                left -= len(chunk)
        return not left and digest.hexdigest() == one.file.leaves[number]

    def _done(self, more: int) -> None:
        """Count a job that is done and those that it brought; after the last one keep only what is wrong."""
        with self._lock:
            self._due += more - 1
            if self._due:
                return
        self._hurts += [hurt for one in self._objects for hurt in one.hurts]
        self._unknown += [f"{one.file.path}: {words}" for one in self._objects for words in one.unknown]
        self._objects = []


def is_hurt(error: TierError | CkptierError) -> bool:
    """Tell what says something about the stored bytes from what says that they were not handed out."""
    return isinstance(error, ObjectNotFound | IntegrityError | IntegrityFailure)


def _placed(manifest: Manifest) -> Iterator[_Object]:
    sealed = {file.path: file for file in manifest.record().files}
    place = 0
    for item in manifest.objects:
        yield _Object(item=item, file=sealed[item.path], place=place)
        place += item.size


def _bent(file: SealedFile, size: int) -> Hurt:
    """Return what an object of another size cannot have: the leaves past its end, or the last one."""
    last = len(file.leaves) - 1
    first = size // file.leaf_size if size < file.size else last
    return Hurt(path=file.path, leaves=(first, last), reason=f"has {size} bytes, sealed were {file.size}")


def _again(read: Callable[[], T]) -> T:
    """Read once more what arrived wrong: bytes that flipped on the way say nothing of those that are stored."""
    try:
        return read()
    except (IntegrityError, IntegrityFailure):
        return read()


def _words(error: TierError | CkptierError) -> str:
    return "is missing" if isinstance(error, ObjectNotFound) else error.message
