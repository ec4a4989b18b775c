"""Making an authorization: a record signed by its requester, approvals signed by others, one file.

Making one refuses early what deciding would refuse later, so that people learn it while they can
still change it.  It permits nothing by itself: that is decided again at the moment of publishing
(replicate.release.deciding), from signatures and bytes and not from what was checked here.

The file is canonical JSON: ``{"format": 1, "record": envelope, "approvals": [envelope, …]}``.
Approvals name the record by its digest; they can be given on copies and put together (``merge``).
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from replicate import canonical
from replicate.errors import Denied, IntegrityFailure, LocalDisk, UsageError
from replicate.release.authorization import Act, Approval, AuthorizationRecord, LogPosition
from replicate.release.destination import HUB_SCHEME, Destination, Gating, Visibility
from replicate.release.documents import Document, decode, encode, faults, read_bytes
from replicate.release.envelope import Envelope, PayloadType, from_document, sign, verify
from replicate.release.policy import Permission, Person, Policy, wrong_key
from replicate.release.subject import Observed
from replicate.signing.keys import SigningKey
from tiers import effects
from tiers.clock import Clock, rfc3339

MAX_AUTHORIZATION_BYTES = 8 * 1024 * 1024
MAX_APPROVALS = 256
_NAME_IT = "name the file that `ckptier release authorize` wrote"
_HUB_VISIBILITY = (Visibility.PRIVATE, Visibility.PUBLIC)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedApproval:
    """An approval and the envelope that it came in."""

    envelope: Envelope
    approval: Approval

    def __post_init__(self) -> None:
        _check_payload(self.envelope, self.approval, "approval")


@dataclass(frozen=True, slots=True, kw_only=True)
class Authorization:
    """A record and its approvals as they are signed.  Whether the signatures hold is not known yet."""

    record_envelope: Envelope
    record: AuthorizationRecord
    approvals: tuple[SignedApproval, ...] = ()

    def __post_init__(self) -> None:
        _check_payload(self.record_envelope, self.record, "record")

    @property
    def record_sha256(self) -> str:
        """Digest of the exact bytes that the requester signed; approvals and revocations name it."""
        return canonical.sha256(self.record_envelope.payload)

    def encode(self) -> bytes:
        """Return the bytes of its file."""
        approvals = [one.envelope.document() for one in self.approvals]
        return canonical.dump({"format": 1, "record": self.record_envelope.document(), "approvals": approvals})


class _File(Document):
    format: Literal[1]
    record: dict[str, Any]
    approvals: Annotated[tuple[dict[str, Any], ...], Field(strict=False, max_length=MAX_APPROVALS)]


def request(
    observed: Observed,
    policy: Policy,
    *,
    act: Act,
    expected_parent: str | None,
    commit: str | None,
    requester_key: SigningKey,
    requester: str,
    statement: str,
    not_before: datetime,
    valid_for: timedelta,
    log_position: LogPosition | None,
    clock: Clock,
    nonce: str | None = None,
    visibility: Visibility | None = None,
    gating: Gating | None = None,
) -> Authorization:
    """Make and sign a record of what lies in a prepared folder.

    ``visibility`` and ``gating`` are what ``set-visibility`` is to bring about; a publication takes
    both from the description.  Raises Denied where the policy does not permit it, IntegrityFailure
    where the scan found something that blocks, UsageError where the parts do not fit together.
    """
    _permitted(policy, requester, requester_key, Permission.REQUEST, clock)
    if observed.report.blocking:
        first, count = observed.report.blocking[0], len(observed.report.blocking)
        raise IntegrityFailure(
            f"{count} findings of the scan block this release, first {first.rule} in {first.path}",
            hint="remove their cause, or waive them with a reason, and prepare again",
        )
    destination = _destination(observed, policy, act, visibility, gating)
    expires_at = _check_times(policy, clock.now(), not_before, valid_for)
    try:
        record = AuthorizationRecord(
            act=act,
            nonce=nonce if nonce is not None else secrets.token_hex(16),
            subject=observed.subject,
            destination=destination,
            expected_parent=_parent(act, expected_parent, commit),
            commit=commit,
            policy_sha256=policy.sha256,
            threshold=policy.threshold,
            requester_may_approve=policy.requester_may_approve,
            requester=requester,
            statement=statement,
            requested_at=clock.now(),
            not_before=not_before,
            expires_at=expires_at,
            log_position=log_position,
        )
    except ValidationError as error:
        raise UsageError(f"the authorization is not whole: {faults(error)}", hint="correct what is named") from error
    payload = encode(record)
    return _read_record(sign(PayloadType.AUTHORIZATION, payload, requester_key))


def approve(
    authorization: Authorization,
    policy: Policy,
    key: SigningKey,
    approver: str,
    clock: Clock,
    *,
    observed: Observed | None = None,
) -> Authorization:
    """Add an approval; give ``observed`` to compare the record with the bytes that the approver has seen.

    Raises Denied where the policy does not permit it or it would not count, and IntegrityFailure
    where the record is of other bytes or another destination.
    """
    _permitted(policy, approver, key, Permission.APPROVE, clock)
    record = authorization.record
    _check_approvable(authorization, policy, approver, clock.now())
    if observed is not None:
        _check_seen(record, observed)
    approval = Approval(record_sha256=authorization.record_sha256, approver=approver, approved_at=clock.now())
    signed = SignedApproval(envelope=sign(PayloadType.APPROVAL, encode(approval), key), approval=approval)
    return replace(authorization, approvals=(*authorization.approvals, signed))


def merge(authorization: Authorization, *others: Authorization) -> Authorization:
    """Put approvals together that were given on copies of one record; raises UsageError for another record."""
    for other in others:
        if other.record_envelope != authorization.record_envelope:
            raise UsageError(
                f"these are two records ({authorization.record_sha256[:12]} and {other.record_sha256[:12]})",
                hint="put together copies of one authorization; an approval holds for its own record only",
            )
    every = (*authorization.approvals, *(one for other in others for one in other.approvals))
    return replace(authorization, approvals=tuple(dict.fromkeys(every)))


def read_authorization(path: Path) -> Authorization:
    """Read an authorization; raises LocalDisk, and IntegrityFailure that names the field that is wrong."""
    return parse_authorization(read_bytes(path, what="the authorization"), what=str(path))


def parse_authorization(data: bytes, *, what: str) -> Authorization:
    """Read an authorization from the bytes of its file; raises IntegrityFailure."""
    if len(data) > MAX_AUTHORIZATION_BYTES:
        raise IntegrityFailure(f"{what} is larger than {MAX_AUTHORIZATION_BYTES} bytes", hint=_NAME_IT)
    file = decode(_File, data, what=what)
    authorization = _read_record(from_document(file.record, what=f"{what}: record"))
    approvals = tuple(
        _read_approval(from_document(one, what=f"{what}: approvals.{index}"))
        for index, one in enumerate(file.approvals)
    )
    return replace(authorization, approvals=approvals)


def write_authorization(authorization: Authorization, path: Path) -> None:
    """Write it to a new file, whole or not at all; raises UsageError where the file exists, and LocalDisk."""
    _put(authorization, path, effects.link)


def replace_authorization(authorization: Authorization, path: Path) -> None:
    """Write the same record with more approvals over its file, whole or not at all.

    Raises LocalDisk, and UsageError where the file holds another record, or an approval that
    would be lost: somebody else gave one meanwhile.
    """
    there = read_authorization(path)
    if there.record_envelope != authorization.record_envelope or set(there.approvals) - set(authorization.approvals):
        raise UsageError(
            f"{path} was changed meanwhile, and nothing was written", hint="read it again, then approve or merge again"
        )
    _put(authorization, path, effects.rename)


def _put(authorization: Authorization, path: Path, into_place: Callable[[Path, Path], None]) -> None:
    temporary = path.with_name(f".tmp-{secrets.token_hex(8)}-{path.name}")
    try:
        try:
            _write(temporary, authorization.encode())
            into_place(temporary, path)
        finally:
            if temporary.exists():
                effects.unlink(temporary)
        effects.fsync_directory(path.parent)
    except FileExistsError:
        raise UsageError(f"{path} exists, and an authorization is never overwritten", hint="name a new file") from None
    except OSError as error:
        raise LocalDisk(f"{path} cannot be written: {error.strerror}", hint="check the folder") from error


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        effects.fsync_fd(file.fileno(), str(path))


def _read_record(envelope: Envelope) -> Authorization:
    _check_kind(envelope, PayloadType.AUTHORIZATION, "record")
    record = decode(AuthorizationRecord, envelope.payload, what="the authorization record")
    return Authorization(record_envelope=envelope, record=record)


def _read_approval(envelope: Envelope) -> SignedApproval:
    _check_kind(envelope, PayloadType.APPROVAL, "approval")
    return SignedApproval(envelope=envelope, approval=decode(Approval, envelope.payload, what="an approval"))


def _check_payload(envelope: Envelope, document: Document, what: str) -> None:
    """Refuse a document that is not, byte for byte, what was signed: two spellings would have two digests."""
    if encode(document) != envelope.payload:
        raise IntegrityFailure(f"{what}: payload: it is not in its canonical form", hint="take the file as it was made")


def _check_kind(envelope: Envelope, expected: PayloadType, what: str) -> None:
    if envelope.payload_type is not expected:
        raise IntegrityFailure(
            f"{what}: payloadType: {expected} is due, found {envelope.payload_type}",
            hint="take the file as it was made",
        )
    if len(envelope.signatures) != 1:
        raise IntegrityFailure(
            f"{what}: signatures: one is due, found {len(envelope.signatures)}", hint="take the file as it was made"
        )


def _permitted(policy: Policy, name: str, key: SigningKey, needed: Permission, clock: Clock) -> Person:
    person = policy.named(name)
    if person is None or needed not in person.may:
        who = ", ".join(one.name for one in policy.who_may(needed))
        raise Denied(f"{name!r} may not {needed} under this policy", hint=f"those who may: {who}")
    if person.public_key != key.public:
        raise wrong_key(policy, person, key.public)
    if not person.current(clock.now()):
        raise Denied(f"{name!r} may do nothing any more: not_after has passed", hint="ask somebody else")
    return person


def _destination(
    observed: Observed, policy: Policy, act: Act, visibility: Visibility | None, gating: Gating | None
) -> Destination:
    """Return the destination of the record; raises Denied where the policy does not name it."""
    described = observed.destination
    if act is Act.PUBLISH and (visibility is not None or gating is not None):
        raise UsageError("a publication takes visibility and gating from the description", hint="leave them out")
    if act is Act.SET_VISIBILITY and (visibility not in _HUB_VISIBILITY or described.scheme != HUB_SCHEME):
        raise UsageError(
            f"set-visibility needs a visibility (private, public) and a repository of the Hub: this is {described.url}",
            hint="elsewhere ckptier does not manage who sees a release: change that at the place itself",
        )
    if act is Act.PUBLISH and described.visibility is Visibility.PUBLIC:
        raise Denied(
            "destination.visibility: public: a release is published privately first",
            hint='say visibility = "private" in the description, publish, then authorize set-visibility',
        )
    changes = {"visibility": visibility or described.visibility, "gating": gating or described.gating}
    destination = Destination.model_validate({**described.model_dump(), **changes})
    differing = policy.differing(destination)
    if differing:
        raise Denied(
            f"destination.{differing}: the policy allows no {destination.visibility} release to {destination.url}"
            + (f" at {destination.endpoint}" if destination.endpoint else ""),
            hint="name another destination, or add a [[destination]] to the policy",
        )
    return destination


def _parent(act: Act, expected_parent: str | None, commit: str | None) -> str | None:
    """Return the commit that the branch must be at: for a change of visibility, the published one."""
    if act is Act.PUBLISH:
        if commit is not None:
            raise UsageError("commit belongs to set-visibility: a publication makes its own", hint="leave it out")
        return expected_parent
    if commit is None or expected_parent not in (None, commit):
        raise UsageError(
            f"set-visibility needs the commit that the branch is at, {expected_parent or 'none'}: given was {commit}",
            hint="give the commit that `ckptier release log` shows as published, if nobody added another one to it",
        )
    return commit


def _check_times(policy: Policy, now: datetime, not_before: datetime, valid_for: timedelta) -> datetime:
    """Return when it expires."""
    limit = timedelta(days=policy.max_valid_days)
    try:
        expires_at = not_before + valid_for
    except OverflowError:
        raise UsageError("expires_at: there is no such time", hint="ask for less time, or ask later") from None
    if expires_at <= max(now, not_before):
        raise UsageError(
            f"expires_at: {rfc3339(expires_at)} has passed already", hint="give it more days, or a later --not-before"
        )
    if expires_at - min(now, not_before) > limit:
        raise Denied(
            f"expires_at: {rfc3339(expires_at)} is past max_valid_days = {policy.max_valid_days} of the policy",
            hint="ask for less time, or ask later",
        )
    return expires_at


def _check_approvable(authorization: Authorization, policy: Policy, approver: str, now: datetime) -> None:
    """Refuse an approval that would not count."""
    record = authorization.record
    requester = policy.named(record.requester)
    keys = [requester.public_key] if requester else []
    if not verify(authorization.record_envelope, PayloadType.AUTHORIZATION, keys):
        raise Denied(f"the record is not signed by {record.requester!r}", hint="do not approve it; ask who made it")
    if record.policy_sha256 != policy.sha256:
        raise Denied("policy_sha256: the record was made under another policy", hint="have it requested again")
    if now >= record.expires_at:
        raise Denied(f"expires_at: it expired at {rfc3339(record.expires_at)}", hint="have it requested again")
    if approver == record.requester and not (policy.requester_may_approve and record.requester_may_approve):
        raise Denied(f"approver: {approver!r} requested it, and may not approve it too", hint="ask somebody else")
    if approver in [one.approval.approver for one in authorization.approvals]:
        raise Denied(f"approver: {approver!r} has approved it already", hint="ask somebody else")


def _check_seen(record: AuthorizationRecord, observed: Observed) -> None:
    differing = [
        f"subject.{field}"
        for field in type(record.subject).model_fields
        if getattr(record.subject, field) != getattr(observed.subject, field)
    ]
    # What set-visibility brings about is not in the description.
    changed = ("visibility", "gating") if record.act is Act.SET_VISIBILITY else ()
    differing += [
        f"destination.{field}"
        for field in Destination.model_fields
        if field not in changed and getattr(record.destination, field) != getattr(observed.destination, field)
    ]
    if differing:
        raise IntegrityFailure(
            f"the record is not of what lies here: {', '.join(differing)}",
            hint="do not approve it; have the release that you looked at requested",
        )
