"""What a repair finds, what it does about it, and why."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from replicate.errors import CkptierError
from replicate.layout import GenerationId
from replicate.log import LiveCommit, LogView
from replicate.terms import Descent, TermDecision
from replicate.tracker import HeldTerm, Seen
from replicate.verify import Share


class Kind(StrEnum):
    """What one step of a repair does."""

    FILL = "fill"
    CLAIM = "claim"
    VOID = "void"
    ACCEPT = "accept"
    ADOPT = "adopt"
    REPLACE = "replace"
    RETIRE = "retire"
    LEAVE = "leave"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One thing that is due, or was done.

    ``slot`` is the damaged one, or that of the entry that was written; ``place`` where the
    good copy of a generation is.
    """

    kind: Kind
    reason: str
    slot: int | None = None
    generation: GenerationId | None = None
    place: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairOptions:
    """What an operator allows; ``read_data`` is the share of the stored bytes that is read as well."""

    read_data: Share | None = None
    rebuild_log: bool = False
    retire_hurt: bool = False
    void_untrusted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFacts:
    """A log as it stands, and what this store has to do with it.

    ``not_there`` is what the tracker has seen of it and the tier no longer holds;
    ``prefix_terms`` is the highest term of any upload that lies there.
    """

    view: LogView
    descent: Descent | None
    decision: TermDecision
    held: HeldTerm | None = None
    not_there: Seen | None = None
    prefix_term: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class HurtFact:
    """A committed copy that is hurt, or (``lost``) one that was taken back as such and not yet committed again.

    ``places`` hold a good copy, best first.
    """

    generation: GenerationId
    manifest_key: str
    reason: str
    lost: bool = False
    places: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A complete upload that no entry names: what its commit would say, and in the name of which attempt."""

    commit: LiveCommit
    attempt: int
    attempt_id: str
    why_not: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyFacts:
    """The copies of generations on a tier: which are hurt, which are intact, of which it is not known."""

    hurt: tuple[HurtFact, ...] = ()
    intact: frozenset[GenerationId] = frozenset()
    unknown: Mapping[GenerationId, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairPlan:
    """What is due on one tier.  ``blocked`` is why nothing of it may be done; ``notes`` are worth knowing."""

    steps: tuple[Step, ...] = ()
    blocked: CkptierError | None = None
    notes: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def left(self) -> tuple[Step, ...]:
        """What is hurt and cannot be put right."""
        return tuple(step for step in self.steps if step.kind is Kind.LEAVE)

    @property
    def due(self) -> tuple[Step, ...]:
        """What would be done."""
        return tuple(step for step in self.steps if step.kind is not Kind.LEAVE)
