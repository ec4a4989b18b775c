"""What verification says: verdicts on generations, with what is hurt in each, and notes that are no faults."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from replicate.errors import CkptierError, TrustFailure
from replicate.layout import GenerationId
from replicate.log import Damage, Verdict
from replicate.manifest import SealedFile

MAX_REASONS = 20
"""How many reasons are put into words for one generation; what is hurt is listed in full."""
MAX_NOTES = 20
"""How many keys or names a note is about before it says how many more there are."""


class Finding(StrEnum):
    """What verification says of one generation."""

    INTACT = "intact"
    HURT = "hurt"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hurt:
    """What is hurt: a file, or (``path`` None) the document that describes the generation there.

    ``leaves`` are the first and the last number of a run of leaves; None: no leaf can be told apart, so all of it.
    ``lost`` False: something is there that does not belong, or an empty folder is not; no byte is missed for it.
    """

    path: str | None
    leaves: tuple[int, int] | None = None
    reason: str
    lost: bool = True

    def __str__(self) -> str:
        """Say it with its subject."""
        return f"{self.path or 'the manifest'}: {self.reason}"


class NoteKind(StrEnum):
    """What a note is about."""

    HEAD = "head"
    STRAY = "stray"
    UNCOMMITTED = "uncommitted"
    UNLISTED = "unlisted"
    REFUSED = "refused"
    VOIDED = "voided"
    ARRIVED_WRONG = "arrived-wrong"
    HINT = "hint"
    EVIDENCE = "evidence"
    QUARANTINED = "quarantined"
    FOREIGN = "foreign"
    ABSENT = "absent"
    SCHEDULE = "schedule"


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something worth knowing that hurts nothing."""

    kind: NoteKind
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationVerdict:
    """What was found out about one generation.  ``attested`` counts objects whose digest the store confirmed.

    ``reasons`` says it for people, ``hurts`` what exactly.  ``manifest_sha256`` names the copy on a tier that was
    looked at.  ``quarantined`` is why the store itself does not use it, whatever its bytes are.
    """

    generation: GenerationId
    verdict: Finding
    reasons: tuple[str, ...]
    objects: int
    total_bytes: int
    attested: int
    bytes_read: int
    manifest_sha256: str | None = None
    hurts: tuple[Hurt, ...] = ()
    quarantined: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What was found out about one tier (or the store, as ``local``).

    ``missing`` are generations that were asked for and are not there; ``faults`` what is wrong with the place as a
    whole; ``failure`` why a tier said nothing.  ``works`` is what a restore from here alone would give, as far as was
    looked, and ``next_step`` what to do about what is hurt.  ``rollback``: the log is not the one that was seen before.
    """

    tier: str
    damaged: tuple[Damage, ...]
    refused: tuple[tuple[int, Verdict], ...]
    generations: tuple[GenerationVerdict, ...]
    missing: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()
    failure: CkptierError | None = None
    rollback: TrustFailure | None = None
    works: GenerationId | None = None
    next_step: str | None = None

    @property
    def newest_intact(self) -> GenerationId | None:
        """The newest generation of which everything that was looked at is as sealed."""
        good = [
            found.generation
            for found in self.generations
            if found.verdict is Finding.INTACT and found.quarantined is None
        ]
        return max(good, default=None)

    @property
    def hurt(self) -> bool:
        """Whether anything is wrong here."""
        verdicts = {found.verdict for found in self.generations}
        return Finding.HURT in verdicts or bool(self.damaged or self.missing or self.faults)

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong and nothing stayed unknown."""
        good = all(found.verdict is Finding.INTACT for found in self.generations)
        return good and not self.hurt and self.failure is None and self.rollback is None


def runs_of(numbers: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Return numbers as first and last of each run of neighbours."""
    runs: list[tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if runs and runs[-1][1] == number - 1:
            runs[-1] = (runs[-1][0], number)
        else:
            runs.append((number, number))
    return tuple(runs)


def not_sealed(file: SealedFile, numbers: Iterable[int]) -> tuple[Hurt, ...]:
    """Return what is hurt where these leaves are not the sealed ones."""
    return tuple(
        Hurt(path=file.path, leaves=run, reason=f"{_leaves(file, run)} not what was sealed") for run in runs_of(numbers)
    )


def _leaves(file: SealedFile, run: tuple[int, int]) -> str:
    first, last = run
    place = f"(bytes {first * file.leaf_size} to {min(file.size, (last + 1) * file.leaf_size)})"
    return f"leaf {first} {place} is" if first == last else f"leaves {first} to {last} {place} are"


def named(items: Iterable[str]) -> str:
    """Put the first of many names into words."""
    found = list(items)
    more = f" and {len(found) - MAX_NOTES} more" if len(found) > MAX_NOTES else ""
    return ", ".join(found[:MAX_NOTES]) + more
