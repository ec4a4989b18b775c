"""The entries of a release log, and what they add up to: pure, from their bytes and the policy.

An entry is two lines, canonical JSON and the SHA-256 of that line, and a third with a signature
where it is signed.  The signature is DSSE over the first line (replicate.release.envelope).
Entries are numbered from 1 without gaps and chained by ``prev``, the SHA-256 of all bytes of the
entry before, so that none can be changed, left out or put elsewhere without all after it.

What takes a permission back (``revoked``, ``withdrawn``) has to be signed by somebody who may
revoke.  The others are signed where the publisher gives a key; unsigned they are as good as the
store that they lie in.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from replicate import canonical
from replicate.errors import IntegrityFailure, TrustFailure
from replicate.release.authorization import LogPosition
from replicate.release.destination import Gating, Visibility
from replicate.release.documents import Document, Name, Sha256, Text, decode, encode
from replicate.release.envelope import Envelope, PayloadType, Signature, from_document, sign, verify
from replicate.release.findings import Moment
from replicate.release.policy import Permission, Policy
from replicate.signing.keys import SigningKey

MAX_ENTRY_BYTES = 256 * 1024
MAX_ENTRIES = 10_000
NO_ENTRY = "0" * 64
"""``prev`` of the first entry."""
Nonce = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]


class EntryKind(StrEnum):
    """What happened."""

    BEGUN = "begun"
    PUBLISHED = "published"
    FAILED = "failed"
    REVOKED = "revoked"
    WITHDRAWN = "withdrawn"
    VISIBILITY_CHANGED = "visibility-changed"


_SIGNED = frozenset({EntryKind.REVOKED, EntryKind.WITHDRAWN})
_ENDINGS = frozenset({EntryKind.PUBLISHED, EntryKind.FAILED, EntryKind.VISIBILITY_CHANGED})


class Event(Document):
    """What somebody writes down.  ``nonce`` and ``record_sha256`` name the authorization that was used.

    ``url`` is the destination's, ``commit`` what the place calls the published state; ``visibility``
    and ``gating`` are those after it.  ``detail`` is the reason or the failure in words.
    """

    kind: Annotated[EntryKind, Field(strict=False)]
    at: Moment
    who: Name
    nonce: Nonce | None = None
    record_sha256: Sha256 | None = None
    export_manifest_sha256: Sha256 | None = None
    url: Text = ""
    commit: Text = ""
    visibility: Annotated[Visibility, Field(strict=False)] | None = None
    gating: Annotated[Gating, Field(strict=False)] | None = None
    detail: Text = ""


class LogEntry(Event):
    """An event at its place in the log.  ``entry_nonce`` tells one's own write from another's."""

    format: Literal[1] = 1
    slot: Annotated[int, Field(ge=1, lt=10**12)]
    prev: Sha256
    entry_nonce: Nonce

    def encode(self, key: SigningKey | None) -> bytes:
        """Return the exact bytes of the entry, signed where there is a key."""
        line = encode(self)
        data = line + b"\n" + canonical.sha256(line).encode() + b"\n"
        if key is None:
            return data
        return data + canonical.dump(sign(PayloadType.LOG_ENTRY, line, key).document()["signatures"][0]) + b"\n"


class Standing(StrEnum):
    """What became of an authorization's nonce."""

    UNUSED = "unused"
    BEGUN = "begun"
    PUBLISHED = "published"
    VISIBILITY_CHANGED = "visibility-changed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class NonceState:
    """How far a nonce was used; ``entry`` is the last entry about it."""

    standing: Standing
    entry: LogEntry | None = None

    @property
    def spent(self) -> bool:
        """Whether what it authorized has been done."""
        return self.standing in (Standing.PUBLISHED, Standing.VISIBILITY_CHANGED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """A release at a place, as it stands after the last entry about it."""

    export_manifest_sha256: str
    url: str
    commit: str
    published_at: datetime
    who: str
    visibility: Visibility | None
    gating: Gating | None
    withdrawn_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """An entry and the digest of its bytes; ``signer`` is the person whose pinned key signed it."""

    entry: LogEntry
    sha256: str
    signer: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseHistory:
    """A log as read at one moment, whole and checked."""

    logged: tuple[Logged, ...] = ()

    @property
    def position(self) -> LogPosition | None:
        """The last entry; None for an empty log.  An authorization binds it."""
        return LogPosition(slot=len(self.logged), sha256=self.logged[-1].sha256) if self.logged else None

    @property
    def next_slot(self) -> int:
        """Where the next entry goes."""
        return len(self.logged) + 1

    @property
    def last_sha256(self) -> str:
        """What the next entry chains to."""
        return self.logged[-1].sha256 if self.logged else NO_ENTRY

    @property
    def latest_at(self) -> datetime | None:
        """The latest time that stands in it, by whichever clock wrote it."""
        return max((one.entry.at for one in self.logged), default=None)

    def holds(self, position: LogPosition) -> bool:
        """Whether the entry at that position is still there, and still that one."""
        return position.slot <= len(self.logged) and self.logged[position.slot - 1].sha256 == position.sha256

    def nonce(self, nonce: str) -> NonceState:
        """Return how far a nonce was used, by whom and when."""
        about = [one.entry for one in self.logged if one.entry.nonce == nonce and one.entry.kind not in _SIGNED]
        return NonceState(standing=Standing(about[-1].kind), entry=about[-1]) if about else _UNUSED

    def revoked(self, record_sha256: str) -> LogEntry | None:
        """Return the entry that took an authorization back."""
        return next(
            (one.entry for one in self.logged if _is(one.entry, EntryKind.REVOKED, record_sha256=record_sha256)), None
        )

    def withdrawn(self, export_manifest_sha256: str, *, after: LogPosition | None = None) -> LogEntry | None:
        """Return the entry after a position that withdrew a release, wherever it was published."""
        start = after.slot if after else 0
        return next(
            (
                one.entry
                for one in self.logged[start:]
                if _is(one.entry, EntryKind.WITHDRAWN, export_manifest_sha256=export_manifest_sha256)
            ),
            None,
        )

    def published_where(self, export_manifest_sha256: str | None = None) -> tuple[Publication, ...]:
        """Return where a release (or each one) was published, in the order of the log."""
        found: dict[tuple[str, str, str], Publication] = {}
        for one in self.logged:
            entry = one.entry
            manifest = entry.export_manifest_sha256
            if manifest is None or export_manifest_sha256 not in (None, manifest):
                continue
            if entry.kind is EntryKind.PUBLISHED:
                found[manifest, entry.url, entry.commit] = _publication(entry, manifest)
            for key in [key for key in found if _concerns(entry, key)]:
                found[key] = _changed(found[key], entry)
        return tuple(found.values())

    def extended(self, data: bytes, policy: Policy) -> "ReleaseHistory":
        """Return the history after one more entry; raises IntegrityFailure or TrustFailure that names the slot."""
        entry, signer = read_entry(data, self.next_slot, policy)
        what = f"release log entry {entry.slot}"
        if entry.prev != self.last_sha256:
            raise TrustFailure(
                f"{what}: prev: it does not follow the entry before it: the log was cut, replaced or forked",
                hint="find out who can write to the log's store; restore the log from a copy before going on",
            )
        fault = self._fault(entry)
        if fault:
            raise TrustFailure(f"{what} ({entry.kind}): {fault}", hint="nobody but ckptier should write to the log")
        return ReleaseHistory(logged=(*self.logged, Logged(entry=entry, sha256=canonical.sha256(data), signer=signer)))

    def _fault(self, entry: LogEntry) -> str:
        """Return the rule of single use that an entry breaks, whoever wrote it."""
        if entry.kind in _SIGNED:
            wanted = entry.record_sha256 if entry.kind is EntryKind.REVOKED else entry.export_manifest_sha256
            return "" if wanted else "it does not say what it takes back"
        if not entry.nonce or not entry.record_sha256 or not entry.export_manifest_sha256:
            return "nonce, record_sha256 and export_manifest_sha256 are needed"
        state = self.nonce(entry.nonce)
        if state.spent:
            return f"nonce: it was used up by entry {state.entry.slot if state.entry else 0}"
        if entry.kind in _ENDINGS and state.standing is not Standing.BEGUN:
            return "nonce: nothing was begun with it"
        if state.entry and state.entry.record_sha256 != entry.record_sha256:
            return f"nonce: entry {state.entry.slot} used it for another record"
        return ""


_UNUSED = NonceState(standing=Standing.UNUSED)


def fold(entries: Iterable[bytes], policy: Policy) -> ReleaseHistory:
    """Read a whole log, from its first entry; raises IntegrityFailure or TrustFailure that names the slot."""
    history = ReleaseHistory()
    for data in entries:
        if history.next_slot > MAX_ENTRIES:
            raise TrustFailure(f"the release log has more than {MAX_ENTRIES} entries", hint="find out who fills it")
        history = history.extended(data, policy)
    return history


def read_entry(data: bytes, slot: int, policy: Policy) -> tuple[LogEntry, str | None]:
    """Read one entry and its signer; raises IntegrityFailure for damage, TrustFailure for a signature."""
    what = f"release log entry {slot}"
    lines = data.split(b"\n")
    whole = len(lines) in (3, 4) and not lines[-1] and len(data) <= MAX_ENTRY_BYTES
    if not whole or lines[1] != canonical.sha256(lines[0]).encode():
        raise IntegrityFailure(
            f"{what} is damaged: its second line is not the digest of its first",
            hint="restore it from a copy of the log: without it, nothing can be published",
        )
    entry = decode(LogEntry, lines[0], what=what)
    if encode(entry) != lines[0]:
        raise IntegrityFailure(f"{what} is not in its canonical form", hint="restore it from a copy of the log")
    if entry.slot != slot:
        raise TrustFailure(
            f"{what}: slot: it was written for slot {entry.slot}", hint="an entry was moved or copied: find out by whom"
        )
    if len(lines) == 4:  # noqa: PLR2004 - the signature's line, and the end
        return entry, _signer(entry, _envelope(lines[0], lines[2], what), policy, what)
    if entry.kind in _SIGNED:
        raise TrustFailure(
            f"{what} ({entry.kind}) is not signed",
            hint="find out who wrote it: nobody answers for it",
        )
    return entry, None


def _envelope(line: bytes, signature: bytes, what: str) -> Envelope:
    """Return the envelope that the entry is signed as; the payload is the first line and stands there once."""
    document = canonical.load(signature, what=f"the signature of {what}", max_bytes=MAX_ENTRY_BYTES)
    if canonical.dump(document) != signature:
        raise IntegrityFailure(f"the signature of {what} is not in its canonical form")
    detached = {"payloadType": PayloadType.LOG_ENTRY.value, "payload": "", "signatures": [document]}
    read: tuple[Signature, ...] = from_document(detached, what=f"the signature of {what}").signatures
    return Envelope(payload_type=PayloadType.LOG_ENTRY, payload=line, signatures=read)


def _signer(entry: LogEntry, envelope: Envelope, policy: Policy, what: str) -> str:
    """Return who signed.  ``not_after`` is not asked: what was signed before must go on to count."""
    needed = Permission.REVOKE if entry.kind in _SIGNED else Permission.PUBLISH
    person = policy.named(entry.who)
    if person is None or needed not in person.may:
        raise TrustFailure(
            f"{what} ({entry.kind}): who: the policy names no {entry.who!r} who may {needed}",
            hint="keep people who left in the policy, with not_after and what they were permitted",
        )
    if not verify(envelope, PayloadType.LOG_ENTRY, [person.public_key]):
        raise TrustFailure(
            f"{what} ({entry.kind}): the signature is not by the key that the policy pins for {entry.who!r}",
            hint="find out who wrote it; where a key was exchanged, the old one stays in the policy under its own name",
        )
    return person.name


def _is(entry: LogEntry, kind: EntryKind, **fields: str) -> bool:
    return entry.kind is kind and all(getattr(entry, name) == value for name, value in fields.items())


def _publication(entry: LogEntry, manifest: str) -> Publication:
    return Publication(
        export_manifest_sha256=manifest,
        url=entry.url,
        commit=entry.commit,
        published_at=entry.at,
        who=entry.who,
        visibility=entry.visibility,
        gating=entry.gating,
        withdrawn_at=None,
    )


def _concerns(entry: LogEntry, key: tuple[str, str, str]) -> bool:
    """Whether an entry changes a publication; a withdrawal without a URL concerns every one of its release."""
    manifest, url, commit = key
    if entry.export_manifest_sha256 != manifest or entry.kind not in (
        EntryKind.VISIBILITY_CHANGED,
        EntryKind.WITHDRAWN,
    ):
        return False
    return entry.url in ("", url) and entry.commit in ("", commit)


def _changed(publication: Publication, entry: LogEntry) -> Publication:
    if entry.kind is EntryKind.WITHDRAWN:
        return replace(publication, withdrawn_at=entry.at)
    return replace(publication, visibility=entry.visibility, gating=entry.gating)
