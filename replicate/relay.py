"""A tier as the origin of an upload: parts are fetched, proved by their digest, and held until they are sent.

What is held at a time is one part a connection: small ones in memory, larger ones in a
nameless file that vanishes with the process.  A file that a target takes only in one
request is passed on as it comes, each leaf proved before its last bytes are let through.
"""

import errno
import io
import os
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import BinaryIO, cast

from replicate.digests import CountedSha256
from replicate.errors import CkptierError, LocalDisk
from replicate.manifest import Manifest, SealedFile
from replicate.origins import Comparison, SourceDamage, digest_parts
from replicate.plan import ObjectPlan, PartPlan
from tiers.bodies import Body
from tiers.errors import IntegrityError, ObjectNotFound, TierError
from tiers.protocol import Key, Tier

MIB = 1 << 20
PIECE = MIB
"""Bytes that are read from the tier at a time."""
HELD_IN_MEMORY = 8 * MIB
"""Bytes of a part that each connection keeps in memory; the rest of a larger part goes to the disk with it."""


def fetched_twice(item: ObjectPlan, *, checked: bool) -> bool:
    """Whether a file is fetched for its parts' digests first: a whole one needs none where nobody compares."""
    return item.second_hash and (checked or item.part_size > 0)


@dataclass(frozen=True, slots=True)
class TierFiles:
    """The objects of one committed generation; ``spool`` is a folder for the parts that are under way."""

    tier: Tier
    keys: Mapping[str, Key]
    spool: Path

    @classmethod
    def of(cls, tier: Tier, manifest: Manifest, spool: Path) -> "TierFiles":
        """Return the objects that a checked manifest names."""
        return cls(tier, {item.path: Key(item.key) for item in manifest.objects}, spool)

    @property
    def place(self) -> str:
        """The tier's name."""
        return self.tier.name

    def where(self, path: str) -> str:
        """Return tier and key of a file."""
        return f"{self.tier.name}: {self.keys[path]}"

    def damaged(self, path: str, how: str = "it is not what was sealed") -> SourceDamage:
        """Return the error for an object."""
        return SourceDamage(
            f"{self.where(path)}: {how}",
            hint=f"`ckptier verify --tier {self.tier.name} --read-data 100%` shows what is hurt; "
            "copy it from another tier that has it",
        )

    @contextmanager
    def body(self, file: SealedFile, part: PartPlan) -> Iterator[Body]:
        """Fetch and prove a part, then hold it for as long as it takes to send it."""
        if part.sha256 is None:
            try:
                yield _Passing(self, file)
            except _SourceFailedError as failure:
                raise failure.cause from failure
            return
        with SpooledTemporaryFile(max_size=HELD_IN_MEMORY, dir=str(self.spool)) as held:
            self._fetch(file, part, cast("BinaryIO", held))
            yield _Held(held=cast("BinaryIO", held), size=part.size, sha256=part.sha256)

    @contextmanager
    def reading(self, file: SealedFile) -> Iterator[BinaryIO]:
        """Open a whole object."""
        with self._asking(file.path), closing(self.tier.open(self.keys[file.path])) as stream:
            try:
                yield stream
            except OSError as error:
                raise self.damaged(file.path, "it is shorter than what was sealed") from error
            if stream.read(1):
                raise self.damaged(file.path, "it is longer than what was sealed")

    @contextmanager
    def comparing(self, file: SealedFile) -> Iterator[Comparison]:
        """Compare by the sealed digests: fetching the object once more would cost as much as it did the first time."""
        yield _SealedLeaves(file)

    def digested(self, item: ObjectPlan, *, checked: bool) -> ObjectPlan:
        """Fetch the object for its digests where they are needed: it has to be fetched once more to be sent."""
        return digest_parts(item, self) if fetched_twice(item, checked=checked) else item

    def check(self, file: SealedFile, *, force: bool) -> None:
        """Do nothing: every byte that was handed out had been proved."""

    def spare(self, file: SealedFile, part: PartPlan | None = None) -> None:
        """Do nothing: a part is held only while it is sent."""

    def _fetch(self, file: SealedFile, part: PartPlan, sink: BinaryIO) -> None:
        """Bring a part, asking once more where what arrives is wrong: the transfer may be at fault."""
        try:
            try:
                self._fetch_once(file, part, sink)
            except SourceDamage:
                self._fetch_once(file, part, sink)
        except OSError as error:
            raise LocalDisk(
                f"{self.spool} cannot hold a part of {part.size} bytes: {error}",
                hint="each connection keeps one part there: make room, lower `connections` or set `part_size`",
            ) from error

    def _fetch_once(self, file: SealedFile, part: PartPlan, sink: BinaryIO) -> None:
        sink.seek(0)
        sink.truncate()
        digest = CountedSha256()
        with closing(self._blocks(file, part.start, part.size)) as blocks:
            for block in blocks:
                digest.update(block)
                sink.write(block)
        if digest.hexdigest() != part.sha256:
            raise self.damaged(file.path, f"bytes {part.start} to {part.start + part.size} are not what was sealed")

    def proved(self, file: SealedFile) -> Generator["memoryview[int]", None, None]:
        """Yield a whole file; a leaf's last bytes come only where the leaf is what was sealed."""
        sealed = _SealedLeaves(file)
        with closing(self._blocks(file, 0, file.size)) as blocks:
            for block in blocks:
                if sealed.differs(block):
                    raise self.damaged(file.path)
                yield block

    def _blocks(self, file: SealedFile, start: int, size: int) -> Generator["memoryview[int]", None, None]:
        """Yield a range, in pieces that are valid until the next; an object that goes on after its end is damaged."""
        last = start + size == file.size
        buffer = memoryview(bytearray(min(PIECE, max(1, size))))
        with self._asking(file.path):
            stream = self.tier.open(self.keys[file.path], start, None if last else size)
            with closing(stream):
                left = size
                done = False
                while not done:
                    count = stream.readinto(buffer[:left]) if left else 0  # type: ignore[attr-defined]
                    if left and not count:
                        raise self.damaged(file.path, f"it ends {left} bytes early")
                    left -= count
                    done = left == 0
                    if done and last and stream.read(1):
                        raise self.damaged(file.path, "it is longer than what was sealed")
                    yield buffer[:count]

    @contextmanager
    def _asking(self, path: str) -> Iterator[None]:
        """Tell an object that is hurt from a tier that does not answer."""
        try:
            yield
        except ObjectNotFound as error:
            raise self.damaged(path, "the object is missing") from error
        except IntegrityError as error:
            raise self.damaged(path, error.message) from error


class _SealedLeaves:
    """Compares by digest; each leaf is judged at its end."""

    def __init__(self, file: SealedFile) -> None:
        self._file = file
        self._digest = CountedSha256()
        self._position = 0

    def differs(self, block: "memoryview[int]") -> bool:
        while block:
            number, inside = divmod(self._position, self._file.leaf_size)
            piece = block[: self._file.leaf_size - inside]
            block = block[len(piece) :]
            self._digest.update(piece)
            self._position += len(piece)
            if self._position in ((number + 1) * self._file.leaf_size, self._file.size):
                if self._digest.hexdigest() != self._file.leaves[number]:
                    return True
                self._digest = CountedSha256()
        return False


class _SourceFailedError(OSError):
    """The source failed while the target was reading from it.

    An OSError, since that is what a tier lets through as its caller's own affair: it is
    neither the target's failure nor worth the target's retries.
    """

    def __init__(self, cause: TierError | CkptierError) -> None:
        super().__init__(errno.EIO, cause.message)  # without a number it would read as a body of the wrong size
        self.cause = cause


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """A part that was fetched and proved."""

    held: BinaryIO
    size: int
    sha256: str | None

    def open(self) -> BinaryIO:
        return cast("BinaryIO", _HeldReader(self.held, self.size))


class _HeldReader(io.RawIOBase):
    """Reads what is held from its start, and leaves it open for the next reader."""

    def __init__(self, held: BinaryIO, size: int) -> None:
        super().__init__()
        self._held = held
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: "memoryview[int] | bytearray", /) -> int:  # type: ignore[override]
        view = memoryview(buffer).cast("B")
        self._held.seek(self._position)
        data = self._held.read(len(view))
        view[: len(data)] = data
        self._position += len(data)
        return len(data)


@dataclass(frozen=True, slots=True)
class _Passing:
    """A whole file that is passed on as it comes; to repeat it is to ask the source again."""

    files: TierFiles
    file: SealedFile

    @property
    def size(self) -> int:
        return self.file.size

    @property
    def sha256(self) -> str | None:
        return None

    def open(self) -> BinaryIO:
        return cast("BinaryIO", _PassingReader(self.files, self.file))


class _PassingReader(io.RawIOBase):
    """Reads from the start; it can go back there and nowhere else."""

    def __init__(self, files: TierFiles, file: SealedFile) -> None:
        super().__init__()
        self._files = files
        self._file = file
        self._restart()

    def _restart(self) -> None:
        self._blocks = self._files.proved(self._file)
        self._block = memoryview(b"")
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        if (offset, whence) != (0, os.SEEK_SET):
            raise io.UnsupportedOperation("a file that is passed on can only be read again from its start")
        self._blocks.close()
        self._restart()
        return 0

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: "memoryview[int] | bytearray", /) -> int:  # type: ignore[override]
        view = memoryview(buffer).cast("B")
        if not self._block:
            try:
                self._block = next(self._blocks, memoryview(b""))
            except (TierError, CkptierError) as error:
                raise _SourceFailedError(error) from error
        count = min(len(view), len(self._block))
        view[:count], self._block = self._block[:count], self._block[count:]
        self._position += count
        return count

    def close(self) -> None:
        if not self.closed:
            self._blocks.close()
        super().close()
