"""The contract of a place that a release can be carried to."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from replicate.release.bundle import ExportManifest
from replicate.release.destination import Gating, Visibility

Step = Callable[[str], None]
"""Is told what is being done, for the release log and for people."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceState:
    """What a place says of itself before anything is sent.

    ``parent`` is the head of the branch, None where there is none.  ``tag_taken`` is the commit
    that the tag already names.  ``occupied`` says what is in the way where a place takes one
    release only (a folder that is not empty, a prefix that holds another manifest).
    """

    exists: bool
    visibility: Visibility
    gating: Gating
    parent: str | None = None
    tag_taken: str | None = None
    occupied: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """What is carried: the tree and the manifest that was authorized; ``manifest_bytes`` are the exact ones."""

    tree: Path
    manifest: ExportManifest
    manifest_bytes: bytes

    @property
    def files(self) -> tuple[tuple[str, int, str], ...]:
        """Return (path, size, sha256) of every file but the manifest, in its order."""
        return tuple((one.path, one.size, one.sha256) for one in self.manifest.files)


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Where a release ended up; ``commit`` is the Hub's commit, else the manifest's digest.

    ``read_back`` files were read again from the place and had the authorized digest.
    """

    url: str
    commit: str
    files: int
    total_bytes: int
    read_back: int


class Place(Protocol):
    """Somewhere a release can be put.  Nothing may be half visible in it after a failure."""

    def state(self) -> PlaceState:
        """Look; MUST NOT change anything.  Raises CkptierError with its exit code."""
        ...

    def resume(self, payload: Payload, *, expected_parent: str | None) -> None:
        """Take what an earlier publication of this payload left for one's own; MUST NOT change anything.

        Who calls it vouches that its process is dead.  From then on ``state`` says what the place
        was before that publication, and ``publish`` goes on from what is there.
        """
        ...

    def publish(self, payload: Payload, *, expected_parent: str | None, step: Step) -> Published:
        """Put the payload there, whole, and read it back.

        MUST hash what is being sent, compare it with the manifest, and raise IntegrityFailure
        before anything of it can be seen; MUST refuse (TrustFailure) where the place changed
        since ``state``.  After a failure the place shows what it showed before.
        """
        ...

    def set_visibility(self, visibility: Visibility, gating: Gating, *, commit: str, step: Step) -> None:
        """Change who may see it, if it is still at ``commit``; raises CapabilityMissing where unmanaged."""
        ...

    def withdraw(self, *, step: Step) -> str:
        """Hide it again, whatever it holds by now; returns what it holds (a commit).

        Raises CapabilityMissing where visibility is unmanaged.
        """
        ...

    def close(self) -> None:
        """Release connections; MAY be called twice."""
        ...
