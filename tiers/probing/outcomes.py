"""What a probe tried, and what came of each: values, from which everything else is decided."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from tiers.probing.facts import ProbeFacts
from tiers.protocol import Fencing, Verification


class Subject(StrEnum):
    """What is tried.  The values name it in documents."""

    ROUND_TRIP = "round-trip"
    RANGES = "ranges"
    SHA256_TAKEN = "sha256-taken"  # a right x-amz-checksum-sha256 is taken
    SHA256_PUT = "sha256-put"  # a wrong one is refused, on PUT
    SHA256_PART = "sha256-part"  # and on a part
    SHA256_ECHO = "sha256-echo"  # a right one is returned by PUT, HEAD and Complete
    SHA256_COPY = "sha256-copy"  # and by a copy of a part inside the store
    SHA256_COPY_OBJECT = "sha256-copy-object"  # and computed by a copy of an object, of which none was known
    WRONG_BYTES = "wrong-bytes"  # bytes that are not those sealed are refused, however
    CONTENT_MD5 = "content-md5"  # a wrong Content-MD5 is refused
    PAYLOAD_HASH = "payload-hash"  # a body that is not the signed one is refused
    MD5_ETAG = "md5-etag"  # the ETag of one PUT is the MD5 of its bytes
    MULTIPART_ETAG = "multipart-etag"  # that of an object in parts is the MD5 of their MD5s
    PUT_IF_ABSENT = "put-if-absent"  # a second create is refused
    ONE_WINNER = "one-winner"  # of many at once exactly one wins
    LIST_PAGES = "list-pages"
    LIST_ORDER = "list-order"
    RESUME = "resume"  # another client finds the parts that were accepted
    ABORT = "abort"  # an aborted upload is gone
    DELETE = "delete"
    CLOCK = "clock"
    LIFECYCLE = "lifecycle"  # the bucket aborts unfinished uploads by itself
    VERSIONING = "versioning"  # the bucket keeps what is deleted


class Verdict(StrEnum):
    """How it ended."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One thing that was tried; ``evidence`` says in a few words what was seen."""

    subject: Subject
    verdict: Verdict
    evidence: str


def yes(subject: Subject, evidence: str) -> Outcome:
    """Return a Yes."""
    return Outcome(subject=subject, verdict=Verdict.YES, evidence=evidence)


def no(subject: Subject, evidence: str) -> Outcome:
    """Return a No."""
    return Outcome(subject=subject, verdict=Verdict.NO, evidence=evidence)


def unknown(subject: Subject, evidence: str) -> Outcome:
    """Return that it cannot be told."""
    return Outcome(subject=subject, verdict=Verdict.UNKNOWN, evidence=evidence)


def whether(subject: Subject, holds: bool, if_so: str, if_not: str) -> Outcome:  # noqa: FBT001 - reads as a sentence
    """Return a Yes or a No."""
    return yes(subject, if_so) if holds else no(subject, if_not)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockReading:
    """Two clocks at one moment.

    ``ahead`` is by how many seconds the store's is ahead of ours, at least and at most: a
    Date header has whole seconds, and travels.
    """

    ours: datetime
    theirs: datetime
    ahead: tuple[float, float]

    @property
    def off(self) -> float:
        """Seconds by which the clocks differ at least."""
        low, high = self.ahead
        return 0.0 if low <= 0.0 <= high else min(abs(low), abs(high))


@dataclass(frozen=True, slots=True, kw_only=True)
class Contradiction:
    """Where a store is not what it was believed to be; ``worse`` where less can be relied on."""

    what: str
    believed: str
    found: str
    worse: bool

    def __str__(self) -> str:
        return f"{self.what} {self.found}, not {self.believed}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReport:
    """All that one probe found.

    ``scratch`` is the prefix that it worked under, relative to the tier's root, and
    ``leftovers`` are the keys there that it could not delete.  ``fencing`` and
    ``verification`` are what follows: what was found, or else what was believed before.
    ``contradictions`` say where the two differ; the findings win.  ``notes`` are what else is to be known
    of this kind of store.
    """

    tier: str
    store: str
    profile: str
    scratch: str
    outcomes: tuple[Outcome, ...]
    facts: ProbeFacts
    fencing: Fencing
    verification: Verification
    contradictions: tuple[Contradiction, ...] = ()
    clock: ClockReading | None = None
    leftovers: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def outcome(self, subject: Subject) -> Outcome | None:
        """Return what came of one thing; None where it was not tried."""
        return next((one for one in self.outcomes if one.subject is subject), None)
