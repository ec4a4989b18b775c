"""Where the sealed bytes of an upload come from: files of this machine, or a tier that holds them already.

An upload asks for parts, for whole files where it has to digest or compare them, and for
a look at what it sent where a store turns out to hold something else.  Whatever an origin
hands out is what was sealed, or SourceDamage says which file is not.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from replicate.digests import BLOCK, CountedSha256, digest_range, leaf_ranges
from replicate.errors import IntegrityFailure
from replicate.manifest import SealedFile
from replicate.plan import ObjectPlan, PartPlan
from tiers.bodies import Body, FileSlice, SliceReader
from tiers.footprint import Footprint, Footprints


class SourceDamage(IntegrityFailure):
    """Bytes that were to be sent are not what was sealed: nothing of that generation is committed."""


class LocalDamage(SourceDamage):
    """It is the local bytes: the generation is quarantined and never sent."""


class Comparison(Protocol):
    """The sealed bytes of one file, walked through beside what a tier hands out."""

    def differs(self, block: "memoryview[int]") -> bool:
        """Take the next bytes that the tier handed out; tell whether they are not the sealed ones."""
        ...


class Origin(Protocol):
    """The files of one sealed generation, wherever they lie."""

    @property
    def place(self) -> str:
        """Where that is, for messages."""
        ...

    def where(self, path: str) -> str:
        """Where one file is, for messages."""
        ...

    def damaged(self, path: str) -> SourceDamage:
        """Return the error for a file that is not what was sealed."""
        ...

    def body(self, file: SealedFile, part: PartPlan) -> AbstractContextManager[Body]:
        """Hold a part ready, to be read as often as a request is repeated.

        Raises SourceDamage where it cannot be what was sealed, and TierError where a tier
        that should hand it out does not.
        """
        ...

    def reading(self, file: SealedFile) -> AbstractContextManager[BinaryIO]:
        """Open a whole file; what comes need not be as sealed.  Raises as ``body`` does."""
        ...

    def comparing(self, file: SealedFile) -> AbstractContextManager[Comparison]:
        """Begin a comparison with a whole file."""
        ...

    def digested(self, item: ObjectPlan, *, checked: bool) -> ObjectPlan:
        """Fill in the digests of parts that are not leaves; ``checked``: the store compares what it gets with them."""
        ...

    def check(self, file: SealedFile, *, force: bool) -> None:
        """Raise SourceDamage where the file is not what was sealed; it is read only where ``force`` says so."""
        ...

    def spare(self, file: SealedFile, part: PartPlan | None = None) -> None:
        """Let go of what was kept at hand of a file, or of one part: it has arrived, and is not read again soon."""
        ...


@dataclass(frozen=True, slots=True)
class LocalFiles:
    """The files of a generation in the store; ``spare`` lets go of what reading them brought into the page cache."""

    folder: Path
    footprints: Footprints = field(default_factory=Footprints, compare=False, repr=False)

    @property
    def place(self) -> str:
        """The folder."""
        return str(self.folder)

    def where(self, path: str) -> str:
        """Return the file's path."""
        return str(self.folder / path)

    def damaged(self, path: str) -> SourceDamage:
        """Return a LocalDamage."""
        return LocalDamage(
            f"{self.folder / path} is no longer what was sealed",
            hint="something wrote into a sealed generation, or the disk is failing; older generations are unharmed",
        )

    def body(self, file: SealedFile, part: PartPlan) -> AbstractContextManager[Body]:
        """Return a slice of the file; nothing is read before it is sent."""
        footprint = self.footprints.of(file.path, file.size)
        path = self.folder / file.path
        return nullcontext(
            FileSlice(path=path, start=part.start, size=part.size, sha256=part.sha256, footprint=footprint)
        )

    @contextmanager
    def reading(self, file: SealedFile) -> Iterator[BinaryIO]:
        """Open the file; one that cannot be read to its end is damaged."""
        path = self.folder / file.path
        try:
            with path.open("rb", buffering=0) as stream:
                yield stream
        except OSError as error:
            raise LocalDamage(f"{path} cannot be read: {error}") from error

    @contextmanager
    def comparing(self, file: SealedFile) -> Iterator[Comparison]:
        """Compare byte by byte: hashing again would add nothing."""
        path = self.folder / file.path
        with closing(SliceReader(path, 0, file.size, Footprint(file.size))) as stream:
            yield _SameBytes(cast("BinaryIO", stream), min(BLOCK, max(1, file.size)))
            stream.let_go()

    def digested(self, item: ObjectPlan, *, checked: bool) -> ObjectPlan:  # noqa: ARG002 - the leaves are looked at as well
        """Read the file once."""
        return digest_parts(item, self)

    def check(self, file: SealedFile, *, force: bool) -> None:
        """Raise LocalDamage where the size, or with ``force`` the bytes, are not what was sealed."""
        path = self.folder / file.path
        try:
            size = path.lstat().st_size
            wrong = size != file.size or (force and not matches_seal(path, file))
        except OSError as error:
            raise LocalDamage(f"{path} cannot be read: {error}") from error
        if wrong:
            raise self.damaged(file.path)

    def spare(self, file: SealedFile, part: PartPlan | None = None) -> None:
        """Take out of the page cache what was not there before it was read to be sent."""
        self.footprints.let_go(self.folder, file.path, (part.start, part.start + part.size) if part else None)


class _SameBytes:
    """Compares with a local file; an OSError from reading that passes unchanged."""

    def __init__(self, stream: BinaryIO, block: int) -> None:
        self._stream = stream
        self._buffer = bytearray(block)

    def differs(self, block: "memoryview[int]") -> bool:
        count = len(block)
        fill(self._stream, memoryview(self._buffer)[:count])
        ours = self._buffer if count == len(self._buffer) else self._buffer[:count]
        return ours != block  # a bytearray on the left compares by memcmp, a memoryview byte by byte


def matches_seal(path: Path, file: SealedFile) -> bool:
    """Hash a local file again and compare it with its seal."""
    spans = leaf_ranges(file.size, file.leaf_size)
    return all(digest_range(path, *span) == leaf for span, leaf in zip(spans, file.leaves, strict=True))


def digest_parts(item: ObjectPlan, origin: Origin) -> ObjectPlan:
    """Compute the digests of parts that are not leaves, checking the leaves in the same pass.

    Reads the file once; raises SourceDamage where a leaf is not what was sealed.
    """
    part_ends = {part.start + part.size for part in item.parts}
    leaf_ends = {start + length for start, length in leaf_ranges(item.file.size, item.file.leaf_size)}
    part_digests: list[str] = []
    leaf_digests: list[str] = []
    part, leaf = CountedSha256(), CountedSha256()
    buffer = memoryview(bytearray(BLOCK))
    position = 0
    with origin.reading(item.file) as stream:
        for cut in sorted(part_ends | leaf_ends):
            while position < cut:
                view = buffer[: cut - position]
                fill(stream, view)
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
        raise origin.damaged(item.path)
    parts = tuple(replace(one, sha256=digest) for one, digest in zip(item.parts, part_digests, strict=True))
    return replace(item, parts=parts)


def fill(stream: BinaryIO, view: "memoryview[int]") -> None:
    """Read exactly ``len(view)`` bytes; raises OSError where the stream ends early."""
    done = 0
    while done < len(view):
        count = stream.readinto(view[done:])  # type: ignore[attr-defined]
        if not count:
            raise OSError("a stream ended early")
        done += count
