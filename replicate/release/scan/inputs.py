"""What a scan is given beside the tree."""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from replicate.release.bundle import ExportManifest
from replicate.release.description import ReleaseDescription
from replicate.release.expected import Expected

_HEX = re.compile(r"[0-9a-f]{8,128}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identities:
    """Words that must not appear: this machine's user and host, the run's name and uid, and places.

    ``places`` are URLs of tiers, names of buckets, and folders (the home folder, the store).
    """

    user: str
    host: str
    run: str
    run_uid: str
    places: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ScanContext:
    """One scan: the tree and what it is compared with."""

    tree: Path
    description: ReleaseDescription
    manifest: ExportManifest
    expected: Expected | None
    identities: Identities

    @cached_property
    def known_digests(self) -> frozenset[str]:
        """Digests that belong into a release: they look random, and are no secrets."""
        source, description = self.manifest.source, self.description
        texts = [
            self.manifest.content_sha256,
            self.manifest.transforms_sha256,
            source.record_sha256,
            source.generation,
            *source.contract.values(),
            *(one.sha256 for one in self.manifest.files),
            *(one.sha256 for one in self.manifest.tensors),
            description.code_version,
            *(one.revision for one in description.card.evaluation),
            description.adapter.base_revision if description.adapter else "",
        ]
        return frozenset(digest for text in texts for digest in _HEX.findall(text))

    @cached_property
    def public_words(self) -> str:
        """What the description says openly: a word of it is no leak."""
        one = self.description
        url = one.destination.url if one.destination.scheme == "hf" else ""
        return f"{one.name} {one.version} {one.card.title} {url}".lower()
