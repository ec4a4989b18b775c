"""What was found out about a volume, and which way of writing follows from it.  Decides; touches nothing."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from tiers.protocol import Fencing
from tiers.volume_mounts import Mount, MountKind


class VolumeMode(StrEnum):
    """How objects get under their keys.

    ``RENAME``: written beside and renamed or linked into place.  ``DIRECT``: written once
    under the final name; a mark beside says that it is whole.  ``MODAL``: either of the two
    on a volume whose changes others see only after a commit.  ``AUTO``: found out.
    """

    AUTO = "auto"
    RENAME = "rename"
    DIRECT = "direct"
    MODAL = "modal"


class Verdict(StrEnum):
    """What trying came to.  ``UNKNOWN``: the attempt failed for another reason than lacking the feature."""

    WORKS = "works"
    REFUSED = "refused"
    WRONG = "wrong"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that was tried; ``evidence`` says what came of it, and ``errno`` what the system answered."""

    verdict: Verdict
    evidence: str
    errno: int | None = None

    @property
    def works(self) -> bool:
        """Whether it can be relied on."""
        return self.verdict is Verdict.WORKS


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeFacts:
    """What a volume did when it was tried, and what the kernel says of it.  Sizes in bytes.

    ``beside_store`` is None where no store was named; ``identity`` is the uuid in the
    volume's marker; ``empty`` says that nothing but ckptier's own folder is there.
    ``free_inodes`` is None where the filesystem does not count them.
    """

    root: str
    mount: Mount | None
    empty: bool
    identity: str | None
    beside_store: bool | None
    free_bytes: int
    total_bytes: int
    free_inodes: int | None
    exclusive_create: Finding
    visible_after_close: Finding
    rename_over: Finding
    rename_no_replace: Finding
    hard_link: Finding
    unlink: Finding
    file_fsync: Finding
    directory_fsync: Finding
    write_at_offset: Finding
    truncate: Finding
    append: Finding
    locks: Finding
    case_kept: Finding
    long_names: Finding
    direct_read: Finding

    def findings(self) -> tuple[tuple[str, Finding], ...]:
        """Return each attempt with its name, in the order of the fields."""
        each = ((name, getattr(self, name)) for name in self.__dataclass_fields__)
        return tuple((name, found) for name, found in each if isinstance(found, Finding))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeDecision:
    """How to write there.  ``mode`` None: not at all; ``reasons`` why, ``advice`` what the user should know."""

    mode: VolumeMode | None
    fencing: Fencing
    reasons: tuple[str, ...]
    advice: tuple[str, ...]


def decide_mode(facts: VolumeFacts) -> ModeDecision:
    """Choose between renaming into place and writing directly; what is not proved is not relied on."""
    advice = tuple(_advice(facts))
    needed = (facts.exclusive_create, facts.visible_after_close)
    hindered = [found for found in needed if not found.works]
    hindered += [found for found in _renaming(facts) if found.verdict is Verdict.UNKNOWN]
    if hindered:  # a passing failure must not settle for good how a volume is written
        reasons = tuple(found.evidence for found in hindered)
        return ModeDecision(mode=None, fencing=Fencing.ADVISORY, reasons=reasons, advice=advice)
    missing = tuple(found.evidence for found in _renaming(facts) if not found.works)
    if not missing:
        reasons = tuple(found.evidence for found in _renaming(facts)[:2])
        return ModeDecision(mode=VolumeMode.RENAME, fencing=Fencing.POSIX, reasons=reasons, advice=advice)
    private = facts.mount is not None and not facts.mount.shared and facts.locks.works
    why = (
        "create and locks are exclusive, and no other machine writes here"
        if private
        else "whether two machines can both create one name was not and cannot be proved from one of them"
    )
    return ModeDecision(
        mode=VolumeMode.DIRECT,
        fencing=Fencing.POSIX if private else Fencing.ADVISORY,
        reasons=(*missing, why),
        advice=(*advice, *_DIRECT_ADVICE),
    )


_DIRECT_ADVICE = (
    "parts are joined by copying them inside the volume; a larger part_size avoids that",
    "an object that is replaced (head.json) is absent for a moment, and for good where its writer dies then",
)


def _renaming(facts: VolumeFacts) -> tuple[Finding, ...]:
    """Return what writing beside and renaming takes; of a link and a rename that does not replace, one is enough."""
    claim = facts.rename_no_replace if facts.rename_no_replace.works else facts.hard_link
    return (facts.rename_over, claim, facts.unlink, facts.write_at_offset, facts.truncate)


_KINDS: Mapping[MountKind, str] = {
    MountKind.MEMORY: "it lies in memory: a reboot loses everything",
    MountKind.OVERLAY: "it is the container's own layer, not a volume: it is lost with the container",
    MountKind.FUSE: "a FUSE mount may upload only after a close; if this is a Modal volume, say mode = 'modal'",
    MountKind.NETWORK: "other machines may see new names only once their attribute caches have expired",
}

_WITHOUT: Mapping[str, str] = {
    "unlink": "nothing can be deleted: pruning fails, and what a killed writer leaves blocks its key",
    "directory_fsync": "new names may be lost in a power cut",
    "locks": "there are no locks: what killed writers leave is removed late or not at all",
    "case_kept": "names that differ in case only are one file: a checkpoint that has two such cannot be stored",
    "long_names": "a checkpoint with long file names cannot be stored",
    "direct_read": "reading back goes through the page cache, whose pages are dropped first where the kernel does that",
}


def _advice(facts: VolumeFacts) -> Iterator[str]:
    """Say what no mode changes."""
    if facts.mount is not None:
        yield from filter(None, (_KINDS.get(facts.mount.kind),))
        if facts.mount.read_only:
            yield "it is mounted read-only: it can be restored from, not written to"
    if facts.beside_store:
        yield "it lies on the store's own disk: is the volume mounted?"
    for name, found in facts.findings():
        if not found.works and name in _WITHOUT:
            yield f"{_WITHOUT[name]} ({found.evidence})"
