"""A prepared release on disk, and its export manifest: exactly the bytes that may be published.

    <prepared>/tree/…                     what is published, nothing else
               tree/export-manifest.json  every other file, every tensor; written last
               description.json           the checked description, destination included
               scan-report.json           what the scan found
               waivers.json               who answered for what (only where something was waived)

The digest of ``export-manifest.json`` names the whole tree.  ``content_sha256`` names the
tensors alone (name, dtype, shape, bytes), so that two exports can be compared across shards.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from replicate import canonical
from replicate.formats.safetensors import MAX_DIMENSIONS
from replicate.release.documents import Count, Document, Name, Sha256, Text, encode

MANIFEST = "export-manifest.json"


class Kind(StrEnum):
    """What kind of release it is."""

    FULL = "full"
    ADAPTER = "adapter"
    CUSTOM = "custom"


class PublishedFile(Document):
    """A file of the tree; ``path`` is relative, ``/``-separated."""

    path: Name
    size: Count
    sha256: Sha256


class PublishedTensor(Document):
    """A tensor of the release and the file that holds it; ``sha256`` is over its little-endian data."""

    name: Name
    file: Name
    dtype: Name
    shape: Annotated[tuple[Count, ...], Field(strict=False, max_length=MAX_DIMENSIONS)]
    sha256: Sha256


class Action(StrEnum):
    """What became of an entry of the source."""

    KEPT = "kept"
    CAST = "cast"
    ALIAS = "alias"
    OMITTED = "omitted"


class Transform(Document):
    """What became of one entry of the source state dict.

    ``target`` is the released name (None where omitted), ``of`` the tensor that an alias stands for.
    A cast says both dtypes (as safetensors names them) and the greatest absolute and relative errors
    as decimal strings.  ``reason`` is the rule of the description that decided.
    """

    source: Name
    action: Action
    target: Name | None = None
    of: Name | None = None
    from_dtype: Name | None = None
    to_dtype: Name | None = None
    max_abs_error: Text | None = None
    max_rel_error: Text | None = None
    reason: Text = ""


class SourceIdentity(Document):
    """The generation that the weights come from; its run's name and uid are not published."""

    generation: Name
    record_sha256: Sha256
    next_update: Count
    sealed_at: Text
    contract: dict[str, Text]


class Exporter(Document):
    """What made the tree: ckptier's version and those of the libraries that wrote bytes."""

    ckptier: Text
    libraries: dict[str, Text]


class ExportManifest(Document):
    """``export-manifest.json``: sorted by path and by name, so that one tree has one manifest."""

    format: Literal[1] = 1
    kind: Kind
    name: Name
    version: Name
    license: Name
    source: SourceIdentity
    exporter: Exporter
    files: Annotated[tuple[PublishedFile, ...], Field(strict=False)]
    tensors: Annotated[tuple[PublishedTensor, ...], Field(strict=False)]
    content_sha256: Sha256
    transforms: Annotated[tuple[Transform, ...], Field(strict=False)]

    @property
    def transforms_sha256(self) -> str:
        """Digest over the transforms, which an authorization binds beside the whole."""
        return canonical.sha256(canonical.dump([one.model_dump(mode="json") for one in self.transforms]))

    @property
    def sha256(self) -> str:
        """Digest of the manifest's own bytes, which names the tree."""
        return canonical.sha256(encode(self))


def content_sha256(tensors: Iterable[PublishedTensor]) -> str:
    """Digest over what the tensors are, wherever they lie: name, dtype, shape and data digest, by name."""
    entries = sorted((one.name, one.dtype, list(one.shape), one.sha256) for one in tensors)
    return hashlib.sha256(canonical.dump(entries)).hexdigest()


@dataclass(frozen=True, slots=True)
class Prepared:
    """Paths of a prepared release."""

    root: Path

    @property
    def tree(self) -> Path:
        """The folder that is published."""
        return self.root / "tree"

    @property
    def manifest(self) -> Path:
        """The export manifest, inside the tree."""
        return self.tree / MANIFEST

    @property
    def description(self) -> Path:
        """The checked description."""
        return self.root / "description.json"

    @property
    def scan_report(self) -> Path:
        """The scan's report."""
        return self.root / "scan-report.json"

    @property
    def waivers(self) -> Path:
        """The waivers that the scan was given."""
        return self.root / "waivers.json"
