"""The release log on a tier: one object an entry, created once, never changed, never deleted.

    <log>/log/000000000001.json

What the entries say is in replicate.release.history.  A publication is begun by creating the next
entry after exactly the history that permitted it, so that of two publishers with one
authorization one begins and the other reads on and is refused.
"""

import re
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import ValidationError

from replicate import canonical
from replicate.errors import CapabilityMissing, ConfigInvalid, Denied, Fenced, TrustFailure, UsageError
from replicate.errors import from_tier_error as translated
from replicate.opening import Opener, default_opener
from replicate.release.authorization import LogPosition
from replicate.release.documents import faults
from replicate.release.history import (
    MAX_ENTRY_BYTES,
    EntryKind,
    Event,
    LogEntry,
    NonceState,
    Publication,
    ReleaseHistory,
    Standing,
    fold,
)
from replicate.release.policy import Permission, Policy, wrong_key
from replicate.signing.keys import SigningKey
from tiers.clock import Clock
from tiers.errors import ObjectExists, ObjectNotFound, TierError, TierUnavailable
from tiers.metered import Meter
from tiers.opening import TierSpec
from tiers.protocol import Fencing, Key, Tier, walk

__all__ = [
    "EntryKind",
    "Event",
    "LogEntry",
    "LogMoved",
    "NonceState",
    "Publication",
    "ReleaseHistory",
    "ReleaseLog",
    "Standing",
    "open_log",
    "revoke",
    "withdraw",
]

PREFIX = "log/"
MAX_RACES = 64
_SLOT = re.compile(r"log/([0-9]{12})\.json")


class LogMoved(Fenced):
    """Somebody else's entry was first: read the log again and decide again."""

    def __init__(self, slot: int) -> None:
        super().__init__(
            f"release log entry {slot} was written by somebody else meanwhile",
            hint="nothing was published; run it again: what is permitted is decided anew",
        )
        self.slot = slot


class ReleaseLog:
    """The log of a policy.  Every read goes from the first entry to the last and checks all of them.

    Raises CapabilityMissing for a tier that cannot create an object exactly once: single use
    could not be kept there.  Errors of the tier come out as CkptierError.
    """

    def __init__(self, tier: Tier, policy: Policy) -> None:
        if tier.capabilities.fencing is Fencing.ADVISORY:
            raise CapabilityMissing(
                f"{tier.name}: the release log needs a store that creates an object exactly once (put-if-absent)",
                hint='set log in the policy to a folder, such as "file:///srv/release-log", or to such a store',
            )
        self.tier = tier
        self.policy = policy

    def read(self) -> ReleaseHistory:
        """Return the whole log.

        Raises IntegrityFailure for a damaged entry, TrustFailure for one that is missing, out of
        its chain, or signed by somebody who may not; both name the slot.
        """
        with _translating():
            return fold(self._entries(), self.policy)

    def append(
        self, event: Event, *, expect: ReleaseHistory | None = None, key: SigningKey | None = None
    ) -> LogPosition:
        """Write an event down and read it back; returns its position.

        With ``expect`` it is written directly after that history or not at all (LogMoved).  That
        is how a publication has to begin.  Without it, after whatever stands there by then.  A lost
        reply is resolved by reading the slot.  An entry that would break a rule of the log is
        TrustFailure, and nothing is written.
        """
        if expect is None and event.kind is EntryKind.BEGUN:
            raise ValueError("a publication begins after the history that permitted it: give expect")
        if expect is not None:
            return self._append(event, expect, key)
        for _ in range(MAX_RACES):
            try:
                return self._append(event, self.read(), key)
            except LogMoved:
                continue
        raise Fenced("the release log could not be written: others keep taking its slots", hint="try again")

    def close(self) -> None:
        """Release the tier's connections."""
        self.tier.close()

    def _append(self, event: Event, history: ReleaseHistory, key: SigningKey | None) -> LogPosition:
        entry = LogEntry(
            **event.model_dump(),
            slot=history.next_slot,
            prev=history.last_sha256,
            entry_nonce=secrets.token_hex(16),
        )
        data = entry.encode(key)
        history.extended(data, self.policy)  # what could not be read again is not written
        with _translating():
            self._create(entry.slot, data)
        return LogPosition(slot=entry.slot, sha256=canonical.sha256(data))

    def _create(self, slot: int, data: bytes) -> None:
        """Create the entry and read it back.  No reply is believed: what stands in the slot decides."""
        unclear: TierUnavailable | None = None
        for _ in range(2):  # one more offer of the same bytes cannot make two entries
            try:
                self.tier.create(_key(slot), data)
            except ObjectExists:
                pass
            except TierUnavailable as error:
                unclear = error
            found = self._found(slot)
            if found == data:
                return
            if found is not None:
                raise LogMoved(slot)
        raise unclear or TierUnavailable(
            "an entry that was accepted could not be read back",
            tier=self.tier.name,
            operation="create",
            key=_key(slot),
            hint="the store may be losing writes: run `ckptier check` before trusting it",
        )

    def _entries(self) -> Iterator[bytes]:
        """Yield every entry.  A listing says how many there must be; the next slot is asked for all the same."""
        listed = sorted(_slots(self.tier))
        last = listed[-1] if listed else 0
        slot = 1
        while (data := self._found(slot)) is not None:
            yield data
            slot += 1
        if slot <= last:
            raise TrustFailure(
                f"release log entry {slot} is missing, and {last} is there: entries are never deleted",
                hint="restore it from a copy of the log: without it, nothing can be published",
            )

    def _found(self, slot: int) -> bytes | None:
        """Return the bytes in a slot, at most one more than an entry may have; None where it is empty."""
        try:
            with self.tier.open(_key(slot)) as stream:
                data = bytearray()
                while len(data) <= MAX_ENTRY_BYTES and (piece := stream.read(MAX_ENTRY_BYTES + 1 - len(data))):
                    data += piece
        except ObjectNotFound:
            return None
        return bytes(data)


def open_log(policy: Policy, *, clock: Clock, opener: Opener = default_opener) -> ReleaseLog:
    """Open the log that the policy names; no request is made.  Raises ConfigInvalid and CapabilityMissing."""
    spec = TierSpec(name="release log", url=policy.log, endpoint_url=policy.log_endpoint or None)
    try:
        return ReleaseLog(opener(spec, clock, Meter(), threading.Event()), policy)
    except ValueError as error:
        raise ConfigInvalid(str(error), hint=getattr(error, "hint", "") or "correct log in the policy") from error
    except TierError as error:
        raise translated(error) from error


def revoke(log: ReleaseLog, record_sha256: str, *, reason: str, who: str, key: SigningKey, clock: Clock) -> LogPosition:
    """Take an authorization back, by the digest of its record; it is never valid again.

    Raises Denied where the policy does not permit it to ``who`` with this key.
    """
    _require_revoker(log.policy, who, key, clock)
    event = _event(kind=EntryKind.REVOKED, at=clock.now(), who=who, record_sha256=record_sha256, detail=reason)
    return log.append(event, key=key)


def withdraw(
    log: ReleaseLog,
    export_manifest_sha256: str,
    *,
    reason: str,
    who: str,
    key: SigningKey,
    clock: Clock,
    url: str = "",
    commit: str = "",
) -> LogPosition:
    """Write down that a release must not be used; every authorization of it from before is void.

    ``url`` and ``commit`` name one publication of it, for those who look it up.  Nothing is
    deleted anywhere: that is the place's business.  Raises Denied as ``revoke``.
    """
    _require_revoker(log.policy, who, key, clock)
    event = _event(
        kind=EntryKind.WITHDRAWN,
        at=clock.now(),
        who=who,
        export_manifest_sha256=export_manifest_sha256,
        url=url,
        commit=commit,
        detail=reason,
    )
    return log.append(event, key=key)


def _event(**said: object) -> Event:
    try:
        return Event.model_validate(said)
    except ValidationError as error:
        raise UsageError(f"this cannot be written down: {faults(error)}", hint="correct what is named") from error


def _require_revoker(policy: Policy, who: str, key: SigningKey, clock: Clock) -> None:
    person = policy.named(who)
    if person is None or Permission.REVOKE not in person.may or not person.current(clock.now()):
        others = [one.name for one in policy.who_may(Permission.REVOKE) if one.current(clock.now())]
        hint = f"those who may: {', '.join(others) or 'nobody'}"
        raise Denied(f"{who!r} may not revoke or withdraw under this policy", hint=hint)
    if person.public_key != key.public:
        raise wrong_key(policy, person, key.public)


def _key(slot: int) -> Key:
    return Key(f"{PREFIX}{slot:012d}.json")


def _slots(tier: Tier) -> Iterator[int]:
    for info in walk(tier, PREFIX):
        match = _SLOT.fullmatch(info.key)
        if match:
            yield int(match[1])


@contextmanager
def _translating() -> Iterator[None]:
    try:
        yield
    except TierError as error:
        raise translated(error) from error
