"""The log of one run on one tier: its entries, and what they add up to.

An entry is two lines: canonical JSON, and the SHA-256 of that line.  Entries are
created once, numbered without gaps from 0, chained by ``prev`` (the SHA-256 of the
whole previous entry) and never deleted.  A commit entry is what makes a remote
generation exist.  Folding is pure; reading from a tier is in replicate.logbook.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Annotated, Literal, cast

from pydantic import Field

from replicate import canonical
from replicate.errors import IntegrityFailure, UsageError
from replicate.layout import FOLD_EVERY, GenerationId
from replicate.manifest import Count, GenerationText, Record, Sha256, Text, parse

MAX_ENTRY_BYTES = 32 * 1024 * 1024
NO_ENTRY = "0" * 64
"""``prev`` of slot 0."""


class Claim(Record):
    """A writer takes (or raises) the term.

    ``takeover`` is the operator's reason, if one forced it; ``start`` the generation that
    the writer's attempt goes on from.
    """

    kind: Literal["claim"] = "claim"
    writer: Text
    takeover: Text | None = None
    start: Text | None = None


class Commit(Record):
    """A generation exists on this tier from here on."""

    kind: Literal["commit"] = "commit"
    generation: GenerationText
    parent: str | None
    manifest_key: str
    manifest_size: Count
    manifest_sha256: Sha256
    total_bytes: Count
    objects: Count


class Retire(Record):
    """A generation no longer counts; its bytes go after a delay.

    ``swept`` names the manifests of generations retired before of which nothing is left.
    """

    kind: Literal["retire"] = "retire"
    generation: GenerationText
    manifest_key: str
    reason: Text
    swept: Annotated[tuple[str, ...], Field(strict=False)] = ()


class Pin(Record):
    """A generation must not be retired."""

    kind: Literal["pin"] = "pin"
    generation: GenerationText
    reason: Text


class Unpin(Record):
    """Takes a pin back."""

    kind: Literal["unpin"] = "unpin"
    generation: GenerationText


class Void(Record):
    """Names a damaged slot and the digest of the bytes found there, so that the log can go on."""

    kind: Literal["void"] = "void"
    slot: Count
    found_sha256: Sha256


Body = Annotated[Claim | Commit | Retire | Pin | Unpin | Void, Field(discriminator="kind")]


class LiveCommit(Record):
    """A commit that stands; part of the folded state."""

    generation: GenerationText
    parent: str | None
    slot: Count
    term: Count
    manifest_key: str
    manifest_size: Count
    manifest_sha256: Sha256
    total_bytes: Count
    objects: Count
    at: Text

    @property
    def id(self) -> GenerationId:
        """The parsed id."""
        return GenerationId.parse(self.generation)


class Retired(Record):
    """A commit that was taken back and of which something may still lie on the tier; part of the folded state.

    ``slot`` is that of the retire entry: when the store says that this was written, the delay begins.
    """

    generation: GenerationText
    manifest_key: str
    slot: Count
    total_bytes: Count
    objects: Count
    reason: Text
    at: Text

    @property
    def id(self) -> GenerationId:
        """The parsed id."""
        return GenerationId.parse(self.generation)


class Attempt(Record):
    """An attempt that wrote to this log; ``start`` is the generation that it went on from, where that is known."""

    number: Count
    id: str
    start: str | None = None


class LogState(Record):
    """What a log adds up to before some slot.

    ``founded`` once a commit ever stood here.  Before that the log holds claims only, left
    by a machine that was lost during its first upload, and another run may take the name.
    """

    run_uid: str
    founded: bool = False
    term: Count
    writer: Text
    claim_nonce: str
    attempts: Annotated[tuple[Attempt, ...], Field(strict=False)] = ()
    live: Annotated[tuple[LiveCommit, ...], Field(strict=False)] = ()
    pins: Annotated[tuple[str, ...], Field(strict=False)] = ()
    retired: Annotated[tuple[Retired, ...], Field(strict=False)] = ()

    @property
    def newest(self) -> LiveCommit | None:
        """The newest live commit by (attempt, sequence)."""
        return max(self.live, key=lambda commit: commit.id, default=None)

    def find(self, generation: GenerationId | str) -> LiveCommit | None:
        """Return the live commit of a generation."""
        return next((commit for commit in self.live if commit.generation == str(generation)), None)

    @property
    def highest_attempt(self) -> int:
        """Highest attempt number that this log knows; 0 where it knows none."""
        return max((attempt.number for attempt in self.attempts), default=0)

    @property
    def highest_sequence(self) -> int:
        """Highest sequence among live commits."""
        return max((commit.id.sequence for commit in self.live), default=0)

    @property
    def forks(self) -> tuple[int, ...]:
        """Attempt numbers that stand here under two ids."""
        numbers = [attempt.number for attempt in self.attempts]
        return tuple(sorted({number for number in numbers if numbers.count(number) > 1}))


class Entry(Record):
    """One log entry.  ``state`` is the folded state before this slot, on every 256th slot."""

    format: Literal[1]
    run: str
    run_uid: str
    slot: Count
    term: Count
    attempt: Count
    attempt_id: str
    prev: Sha256
    nonce: str
    at: Text
    body: Body
    state: LogState | None = None

    def encode(self) -> bytes:
        """Return the exact bytes of the entry."""
        line = canonical.dump(self.model_dump(mode="json", exclude_none=False))
        return line + b"\n" + canonical.sha256(line).encode() + b"\n"


class Verdict(StrEnum):
    """What folding made of an entry."""

    APPLIED = "applied"
    STALE_TERM = "stale-term"
    FOREIGN_PREFIX = "foreign-prefix"
    UNRELATED = "unrelated"
    REPEATED = "repeated"
    PINNED = "pinned"


def parse_entry(data: bytes, *, slot: int, run: str) -> Entry:
    """Read an entry and check that it belongs to this run and slot; raises IntegrityFailure."""
    what = f"log entry {slot}"
    if len(data) > MAX_ENTRY_BYTES:
        raise IntegrityFailure(f"{what} has {len(data)} bytes")
    lines = data.split(b"\n")
    if len(lines) != 3 or lines[2] or lines[1] != canonical.sha256(lines[0]).encode():  # noqa: PLR2004 - two lines, each ended
        raise IntegrityFailure(f"{what} is damaged: its second line is not the digest of its first")
    entry = parse(Entry, lines[0], what=what, max_bytes=MAX_ENTRY_BYTES)
    if (entry.slot, entry.run) != (slot, run):
        raise IntegrityFailure(f"{what} was written for slot {entry.slot} of run {entry.run!r}: it was moved or copied")
    if (entry.slot % FOLD_EVERY == 0 and entry.slot > 0) != (entry.state is not None):
        raise IntegrityFailure(f"{what} carries the folded state where it should not, or lacks it")
    return entry


def fold(state: LogState | None, entry: Entry) -> tuple[LogState | None, Verdict]:
    """Apply one entry.  An entry that breaks a rule changes nothing and is named by the verdict."""
    if state is None:
        return _first(entry)
    refusal = _refusal(state, entry)
    if refusal is not None:
        return state, refusal
    return _APPLY[type(entry.body)](state, entry), Verdict.APPLIED


def _refusal(state: LogState, entry: Entry) -> Verdict | None:
    """Return the rule that an entry breaks, if any.  Pins need no term; a claim has to raise it."""
    body = entry.body
    if entry.run_uid != state.run_uid and (state.founded or not isinstance(body, Claim)):
        return Verdict.UNRELATED
    if isinstance(body, Claim) and entry.term <= state.term:
        return Verdict.STALE_TERM
    if isinstance(body, Commit | Retire | Void) and entry.term != state.term:
        return Verdict.STALE_TERM
    if isinstance(body, Commit) and f".t{entry.term}-" not in body.manifest_key:
        return Verdict.FOREIGN_PREFIX
    return _standing_refusal(state, body)


def _standing_refusal(state: LogState, body: Body) -> Verdict | None:
    """Return the rule that an entry of the right term breaks because of what stands."""
    if isinstance(body, Commit) and state.find(body.generation):
        return Verdict.REPEATED
    if isinstance(body, Retire) and _taken_back(state, body) and body.generation in state.pins:
        return Verdict.PINNED
    return None


def _taken_back(state: LogState, body: Retire) -> LiveCommit | None:
    """Return the live commit that a retirement means: both the generation and the manifest have to be its own."""
    found = state.find(body.generation)
    return found if found is not None and found.manifest_key == body.manifest_key else None


def _first(entry: Entry) -> tuple[LogState | None, Verdict]:
    if not isinstance(entry.body, Claim):
        return None, Verdict.STALE_TERM
    state = LogState(run_uid=entry.run_uid, term=0, writer="", claim_nonce="")
    return _claimed(state, entry), Verdict.APPLIED


def _claimed(state: LogState, entry: Entry) -> LogState:
    claim = cast("Claim", entry.body)
    if entry.run_uid != state.run_uid:
        state = LogState(run_uid=entry.run_uid, term=state.term, writer="", claim_nonce="")
    return state.model_copy(
        update={
            "term": entry.term,
            "writer": claim.writer,
            "claim_nonce": entry.nonce,
            "attempts": _with_attempt(state, entry),
        }
    )


def _committed(state: LogState, entry: Entry) -> LogState:
    commit = cast("Commit", entry.body)
    live = LiveCommit(
        generation=commit.generation,
        parent=commit.parent,
        slot=entry.slot,
        term=entry.term,
        manifest_key=commit.manifest_key,
        manifest_size=commit.manifest_size,
        manifest_sha256=commit.manifest_sha256,
        total_bytes=commit.total_bytes,
        objects=commit.objects,
        at=entry.at,
    )
    update = {"founded": True, "live": (*state.live, live), "attempts": _with_attempt(state, entry)}
    return state.model_copy(update=update)


def _retired(state: LogState, entry: Entry) -> LogState:
    body = cast("Retire", entry.body)
    swept = frozenset(body.swept)
    retired = tuple(one for one in state.retired if one.manifest_key not in swept)
    found = _taken_back(state, body)
    if found is None:
        return state.model_copy(update={"retired": retired})
    gone = Retired(
        generation=found.generation,
        manifest_key=found.manifest_key,
        slot=entry.slot,
        total_bytes=found.total_bytes,
        objects=found.objects,
        reason=body.reason,
        at=entry.at,
    )
    live = tuple(commit for commit in state.live if commit is not found)
    return state.model_copy(update={"live": live, "retired": (*retired, gone)})


def _pinned(state: LogState, entry: Entry) -> LogState:
    generation = cast("Pin", entry.body).generation
    return state.model_copy(update={"pins": tuple(sorted({*state.pins, generation}))})


def _unpinned(state: LogState, entry: Entry) -> LogState:
    generation = cast("Unpin", entry.body).generation
    return state.model_copy(update={"pins": tuple(pin for pin in state.pins if pin != generation)})


def _unchanged(state: LogState, _entry: Entry) -> LogState:
    return state


_APPLY: dict[type, Callable[[LogState, Entry], LogState]] = {
    Claim: _claimed,
    Commit: _committed,
    Retire: _retired,
    Pin: _pinned,
    Unpin: _unpinned,
    Void: _unchanged,
}


def _with_attempt(state: LogState, entry: Entry) -> tuple[Attempt, ...]:
    start = _start_of(entry)
    for index, known in enumerate(state.attempts):
        if (known.number, known.id) == (entry.attempt, entry.attempt_id):
            if known.start is not None or start is None:
                return state.attempts
            told = known.model_copy(update={"start": start})
            return (*state.attempts[:index], told, *state.attempts[index + 1 :])
    return (*state.attempts, Attempt(number=entry.attempt, id=entry.attempt_id, start=start))


def _start_of(entry: Entry) -> str | None:
    """Return what an entry says of where its attempt began: a claim does, and a commit whose parent is of another."""
    if isinstance(entry.body, Claim):
        return entry.body.start
    parent = entry.body.parent if isinstance(entry.body, Commit) else None
    try:
        return parent if parent and GenerationId.parse(parent).attempt < entry.attempt else None
    except UsageError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """A slot that cannot be read, and why."""

    slot: int
    reason: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogView:
    """A log as read at one moment.

    ``next_slot`` is where an entry would be appended and ``last_sha256`` what it would
    chain to.  ``damaged`` slots forbid appending; ``refused`` entries broke a rule and
    count for nothing.  ``first_slot`` is where reading began.
    """

    state: LogState | None
    next_slot: int = 0
    last_sha256: str = NO_ENTRY
    first_slot: int = 0
    damaged: tuple[Damage, ...] = ()
    refused: tuple[tuple[int, Verdict], ...] = ()

    @property
    def live(self) -> tuple[LiveCommit, ...]:
        """Live commits, newest first."""
        return tuple(sorted(self.state.live, key=lambda commit: commit.id, reverse=True)) if self.state else ()

    def extended(self, entry: Entry, data: bytes) -> "LogView":
        """Return the view after one more entry."""
        state, verdict = fold(self._onto(entry), entry)
        return replace(
            self,
            state=state if verdict is Verdict.APPLIED else self.state,
            next_slot=entry.slot + 1,
            last_sha256=canonical.sha256(data),
            refused=self.refused if verdict is Verdict.APPLIED else (*self.refused, (entry.slot, verdict)),
        )

    def _onto(self, entry: Entry) -> LogState | None:
        """Return the state to fold an entry onto.

        A commit of a term that no readable claim opened, after a damaged slot, proves that
        the claim stood there: without this, one damaged claim would hide all that follows.
        """
        state = self.state
        implies = self.damaged and isinstance(entry.body, Commit | Retire)
        if not implies or (state is not None and (entry.run_uid != state.run_uid or entry.term <= state.term)):
            return state
        if state is None:
            return LogState(run_uid=entry.run_uid, term=entry.term, writer="", claim_nonce="")
        return state.model_copy(update={"term": entry.term, "writer": "", "claim_nonce": ""})
