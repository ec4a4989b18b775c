"""Where the bytes of a file can come from: tiers that committed it, and copies in the store.

A source is asked by digest, not by key: manifests differ from tier to tier, the sealed
digests do not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Protocol

from replicate.manifest import GenerationRecord, Manifest, SealedFile
from replicate.restore.cloning import open_copy
from replicate.restore.plan import LOCAL
from tiers.bodies import FileSlice
from tiers.protocol import Key, Tier

Content = tuple[str, int]
"""What a file is, wherever it lies: its digest and size."""


class Source(Protocol):
    """A place that may hold a file's bytes.  ``again``: a leaf that differs is worth a second request."""

    @property
    def name(self) -> str:
        """The tier's name, or ``local``."""
        ...

    @property
    def again(self) -> bool:
        """Whether reading the same leaf twice can give two answers."""
        ...

    def holds(self, file: SealedFile) -> bool:
        """Whether it claims to hold a file with this digest."""
        ...

    def open(self, file: SealedFile, start: int, length: int | None) -> BinaryIO:
        """Open part of a file, to its end where ``length`` is None; raises TierError or OSError."""
        ...

    def descriptor(self, file: SealedFile) -> int | None:
        """Open the copy itself where it is a file here, whose blocks may be shared; the caller closes it."""
        ...


@dataclass(frozen=True, slots=True)
class TierSource:
    """The objects of one manifest on one tier; ``volume`` is the folder they lie in, where they are files here."""

    tier: Tier
    keys: Mapping[Content, Key]
    again: bool = True
    volume: Path | None = None

    @classmethod
    def of(cls, tier: Tier, manifest: Manifest) -> "TierSource":
        """Index the objects of a checked manifest."""
        return cls(tier, {(item.sha256, item.size): Key(item.key) for item in manifest.objects})

    @property
    def name(self) -> str:
        """The tier's name."""
        return self.tier.name

    def holds(self, file: SealedFile) -> bool:
        """Whether the manifest names the digest."""
        return (file.sha256, file.size) in self.keys

    def open(self, file: SealedFile, start: int, length: int | None) -> BinaryIO:
        """Open a range of the object."""
        return self.tier.open(self.keys[file.sha256, file.size], start, length)

    def descriptor(self, file: SealedFile) -> int | None:
        """Open the object's file on a volume; None elsewhere, and where it is not as long as sealed."""
        parts = self.keys.get((file.sha256, file.size), "").split("/")
        if self.volume is None or not {"", ".", ".."}.isdisjoint(parts):
            return None
        return open_copy(self.volume.joinpath(*parts), file.size)


def on_volume(source: Source, volumes: Mapping[str, Path]) -> Source:
    """Tell a tier's source the folder that the tier is, where it is one."""
    folder = volumes.get(source.name)
    return replace(source, volume=folder) if isinstance(source, TierSource) and folder is not None else source


@dataclass(frozen=True, slots=True)
class LocalSource:
    """Files of sealed generations in the store; reused only where the digest proves them."""

    paths: Mapping[Content, Path]
    again: bool = False

    @classmethod
    def of(cls, generations: Sequence[tuple[Path, GenerationRecord]]) -> "LocalSource":
        """Index the files of (folder of files, record) pairs."""
        return cls(
            {(file.sha256, file.size): folder / file.path for folder, record in generations for file in record.files}
        )

    @property
    def name(self) -> str:
        """Return ``local``."""
        return LOCAL

    def holds(self, file: SealedFile) -> bool:
        """Whether a record names the digest."""
        return (file.sha256, file.size) in self.paths

    def open(self, file: SealedFile, start: int, length: int | None) -> BinaryIO:
        """Open part of the local copy (never more than the sealed size: a longer one fails its digest or is cut)."""
        return FileSlice(
            path=self.paths[file.sha256, file.size],
            start=start,
            size=file.size - start if length is None else length,
            sha256=None,
        ).open()

    def descriptor(self, file: SealedFile) -> int | None:
        """Open the local copy; None where it is not as long as sealed, or no file of ours."""
        path = self.paths.get((file.sha256, file.size))
        return None if path is None else open_copy(path, file.size)
