"""Whether an authorization permits what is about to be done: decided purely, with every reason at once.

``decide`` is handed values: the signed authorization, the policy, what was recomputed from the
bytes, what the place and the log say, and the time.  It looks nothing up.  Each refusal names the
field, what was authorized, what was found and what to do; an empty answer is the permission.

Time.  ``now`` is the publisher's wall clock, and ``not_before`` and ``expires_at`` are held against
it, as are ``not_after`` of people and the expiry of waivers.  A clock that is behind lets an
expired record through, one that is ahead refuses a valid one or lets one through too early.  What
limits that: the release log remembers times, so that a clock set back before its latest entry is
refused (``now``), and single use, revocation and the expected parent do not depend on a clock.
"""

import hmac
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from replicate.errors import TrustFailure
from replicate.release.authorization import Act, Approval, AuthorizationRecord, Refusal, Subject
from replicate.release.authorizing import Authorization, SignedApproval
from replicate.release.destination import Destination, Visibility
from replicate.release.documents import Document
from replicate.release.envelope import PayloadType, verify
from replicate.release.history import LogEntry, ReleaseHistory
from replicate.release.policy import Permission, Person, Policy
from replicate.release.publishing.places import PlaceState
from replicate.release.subject import Observed
from tiers.clock import rfc3339

CLOCK_SKEW = timedelta(minutes=5)
"""How far the clocks of requesters, approvers and publishers may be apart."""
_SHOWN = 300
_ANEW = "request a new authorization"
_RESTORE_LOG = "the log was cut, replaced or is another one: restore it, or correct log in the policy"
_FIRST = "publish it privately, then authorize set-visibility"
_MORE = "have it approved by more people: `ckptier release approve`"
_APPROVE = "have it approved again, by the right person with the right key"


class NotAuthorized(TrustFailure):
    """Something may not be published; ``refusals`` say why, field by field."""

    def __init__(self, refusals: Sequence[Refusal]) -> None:
        reasons = "; ".join(f"{one.field}: authorized {one.authorized}, found {one.found}" for one in refusals)
        super().__init__(f"not authorized: {reasons}", hint=_steps(refusals))
        self.refusals = tuple(refusals)


def _steps(refusals: Sequence[Refusal]) -> str:
    """Say what to do; where that differs, for which field."""
    steps: dict[str, list[str]] = {}
    for one in refusals:
        steps.setdefault(one.next, []).append(one.field)
    if len(steps) == 1:
        return next(iter(steps))
    return "; ".join(f"{', '.join(fields)}: {step}" for step, fields in steps.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """Everything that is decided on."""

    authorization: Authorization
    policy: Policy
    observed: Observed
    place: PlaceState
    history: ReleaseHistory
    now: datetime
    act: Act
    publisher: str | None
    resume: bool

    @property
    def record(self) -> AuthorizationRecord:
        return self.authorization.record


def decide(
    authorization: Authorization,
    policy: Policy,
    *,
    observed: Observed,
    place: PlaceState,
    history: ReleaseHistory,
    now: datetime,
    act: Act = Act.PUBLISH,
    publisher: str | None = None,
    resume: bool = False,
) -> tuple[Refusal, ...]:
    """Return every reason why ``act`` is not permitted now; none means that it is.

    ``publisher`` is who is about to do it, a name in the policy; what it proves is what the log
    entry is signed with.  ``resume`` goes on with what the same publisher began and did not
    finish: it lifts the single use of the nonce for that and nothing else.
    """
    case = _Case(
        authorization=authorization,
        policy=policy,
        observed=observed,
        place=place,
        history=history,
        now=now,
        act=act,
        publisher=publisher,
        resume=resume,
    )
    return tuple(refusal for rule in _RULES for refusal in rule(case))


def require(refusals: Sequence[Refusal]) -> None:
    """Raise NotAuthorized where there is a refusal."""
    if refusals:
        raise NotAuthorized(refusals)


def strangers(policy: Policy, destination: Destination) -> tuple[Refusal, ...]:
    """Return why a place may not even be looked at: whoever is asked is shown the token that goes with the question."""
    field = policy.stranger(destination)
    found = "no [[destination]] of the policy that names it"
    return (_refusal(f"destination.{field}", getattr(destination, field), found, "see the policy"),) if field else ()


def _act(case: _Case) -> Iterator[Refusal]:
    record = case.record
    if record.act is not case.act:
        yield _refusal("act", record.act, case.act, _ANEW)
    if (record.commit is not None) != (record.act is Act.SET_VISIBILITY):
        yield _refusal("commit", record.commit, f"{record.act}, which {_takes(record.act)} a commit", _ANEW)


def _takes(act: Act) -> str:
    return "needs" if act is Act.SET_VISIBILITY else "has not"


def _requester(case: _Case) -> Iterator[Refusal]:
    record = case.record
    person = case.policy.named(record.requester)
    yield from _entitled(case, person, "requester", record.requester, Permission.REQUEST)
    if person and not verify(case.authorization.record_envelope, PayloadType.AUTHORIZATION, [person.public_key]):
        yield _refusal("signature", f"by the key of {record.requester}", "no such signature over these bytes", _ANEW)


def _approvals(case: _Case) -> Iterator[Refusal]:
    """Check each approval by itself: one that does not count is not passed over in silence."""
    names: set[str] = set()
    keys: set[str] = set()
    for index, signed in enumerate(case.authorization.approvals):
        field, approval = f"approvals.{index}", signed.approval
        yield from _approval(case, field, signed)
        person = case.policy.named(approval.approver)
        key = person.key if person else ""
        if approval.approver in names or key in keys:
            yield _refusal(f"{field}.approver", "each approver once", approval.approver, "remove the second one")
        names.add(approval.approver)
        keys |= {key} if key else set()


def _approval(case: _Case, field: str, signed: SignedApproval) -> Iterator[Refusal]:
    approval, record = signed.approval, case.record
    if not _same(approval.record_sha256, case.authorization.record_sha256):
        yield _refusal(
            f"{field}.record_sha256", approval.record_sha256, f"record {case.authorization.record_sha256}", _APPROVE
        )
    person = case.policy.named(approval.approver)
    yield from _entitled(case, person, f"{field}.approver", approval.approver, Permission.APPROVE)
    if person and not verify(signed.envelope, PayloadType.APPROVAL, [person.public_key]):
        yield _refusal(f"{field}.signature", f"by the key of {approval.approver}", "no such signature", _APPROVE)
    if approval.approver == record.requester and not _self_approval(case):
        yield _refusal(
            f"{field}.approver", "somebody other than the requester", approval.approver, "have somebody else approve it"
        )
    yield from _approval_time(case, field, approval)


def _self_approval(case: _Case) -> bool:
    return case.policy.requester_may_approve and case.record.requester_may_approve


def _approval_time(case: _Case, field: str, approval: Approval) -> Iterator[Refusal]:
    earliest, latest = case.record.requested_at - CLOCK_SKEW, min(case.record.expires_at, case.now + CLOCK_SKEW)
    if not earliest <= approval.approved_at <= latest:
        window = f"{rfc3339(earliest)} to {rfc3339(latest)}"
        yield _refusal(
            f"{field}.approved_at", window, approval.approved_at, "check the approver's clock and " + _APPROVE
        )


def _entitled(case: _Case, person: Person | None, field: str, name: str, needed: Permission) -> Iterator[Refusal]:
    """Refuse somebody whom the policy does not name, or not for this, or not any more."""
    somebody = f"somebody who may {needed}"
    others = [one.name for one in case.policy.who_may(needed) if one.current(case.now)]
    ask = f"those who may {needed}: {', '.join(others) or 'nobody any more'}"
    if person is None:
        yield _refusal(field, somebody, f"{name}, whom the policy does not name", ask)
    elif needed not in person.may:
        yield _refusal(field, somebody, f"{name}, whom the policy does not let {needed}", ask)
    elif not person.current(case.now):
        yield _refusal(field, somebody, f"{name}, whose not_after {_text(person.not_after)} has passed", ask)


def _threshold(case: _Case) -> Iterator[Refusal]:
    """Count by the stricter of policy and record; only an approval with nothing against it counts."""
    record, policy = case.record, case.policy
    if record.threshold < policy.threshold:
        yield _refusal("threshold", record.threshold, f"the policy asks for {policy.threshold}", _ANEW)
    if record.requester_may_approve and not policy.requester_may_approve:
        yield _refusal("requester_may_approve", "yes", "the policy does not let a requester approve", _ANEW)
    needed = max(record.threshold, policy.threshold)
    counting = {
        signed.approval.approver
        for index, signed in enumerate(case.authorization.approvals)
        if not any(_approval(case, f"approvals.{index}", signed))
    }
    if len(counting) < needed:
        have = ", ".join(sorted(counting)) or "nobody"
        yield _refusal("threshold", f"{needed} approvals", f"{len(counting)} that count ({have})", _MORE)


def _publisher(case: _Case) -> Iterator[Refusal]:
    if case.publisher is not None:
        person = case.policy.named(case.publisher)
        yield from _entitled(case, person, "publisher", case.publisher, Permission.PUBLISH)


def _policy(case: _Case) -> Iterator[Refusal]:
    if not _same(case.record.policy_sha256, case.policy.sha256):
        yield _refusal(
            "policy_sha256", case.record.policy_sha256, case.policy.sha256, "the policy was changed since: " + _ANEW
        )


def _times(case: _Case) -> Iterator[Refusal]:
    record, now = case.record, case.now
    limit = timedelta(days=case.policy.max_valid_days)
    if now < record.not_before:
        yield _refusal("not_before", record.not_before, f"it is {_text(now)}", "wait until then")
    if now >= record.expires_at:
        yield _refusal("expires_at", record.expires_at, f"it is {_text(now)}", _ANEW)
    if record.expires_at - min(record.requested_at, record.not_before) > limit:
        yield _refusal("expires_at", record.expires_at, f"the policy permits {case.policy.max_valid_days} days", _ANEW)
    if record.requested_at > now + CLOCK_SKEW:
        yield _refusal("requested_at", record.requested_at, f"it is {_text(now)}", "check the clocks")


def _used(case: _Case) -> Iterator[Refusal]:
    """Refuse a nonce that was used, but for going on with what the same publisher began."""
    state = case.history.nonce(case.record.nonce)
    entry = state.entry
    if entry is None:
        return
    found = f"{state.standing} by {entry.who} at {_text(entry.at)} (log entry {entry.slot})"
    if not _same(entry.record_sha256 or "", case.authorization.record_sha256):
        yield _refusal("nonce", "single use", f"{found}, for another record", _ANEW)
    elif state.spent:
        yield _refusal("nonce", "single use", found, f"it is done (`ckptier release log`); to do more, {_ANEW}")
    elif not case.resume:
        yield _refusal("nonce", "single use", found, f"go on with it by --resume, or {_ANEW}")
    elif entry.who != case.publisher:
        yield _refusal("nonce", f"to be resumed by {entry.who}", str(case.publisher), f"ask {entry.who}, or {_ANEW}")


def _taken_back(case: _Case) -> Iterator[Refusal]:
    revoked = case.history.revoked(case.authorization.record_sha256)
    if revoked is not None:
        yield _refusal("revocation", "a record that stands", _logged(revoked), _ANEW)
    withdrawn = case.history.withdrawn(case.record.subject.export_manifest_sha256, after=case.record.log_position)
    if withdrawn is not None:
        found = _logged(withdrawn)
        yield _refusal("withdrawal", "a release that stands", found, "find out why before you go on")


def _logged(entry: LogEntry) -> str:
    return f"{entry.kind} by {entry.who} at {_text(entry.at)} (log entry {entry.slot}): {entry.detail}"


def _log(case: _Case) -> Iterator[Refusal]:
    position, logged = case.record.log_position, case.history.logged
    found = f"a log of {len(logged)} entries that does not hold it"
    if position is not None and not case.history.holds(position):
        yield _refusal("log_position", f"entry {position.slot} with digest {position.sha256}", found, _RESTORE_LOG)
    if position is None and logged and logged[0].entry.at < case.record.requested_at - CLOCK_SKEW:
        yield _refusal("log_position", "an empty log", "a log with entries from before the request", _ANEW)


def _clock(case: _Case) -> Iterator[Refusal]:
    latest = case.history.latest_at
    if latest is not None and case.now < latest - CLOCK_SKEW:
        yield _refusal("now", f"not before the log's latest entry, {_text(latest)}", case.now, "set the clock right")


def _subject(case: _Case) -> Iterator[Refusal]:
    yield from _fields("subject", Subject, case.record.subject, case.observed.subject)
    for index, waiver in enumerate(case.record.subject.waivers):
        if case.now >= waiver.expires:
            yield _refusal(
                f"subject.waivers.{index}.expires", waiver.expires, f"it is {_text(case.now)}", "prepare and scan again"
            )


def _scan(case: _Case) -> Iterator[Refusal]:
    blocking = case.observed.report.blocking
    if blocking:
        found = "; ".join(f"{one.rule} in {one.path}" for one in blocking)
        yield _refusal("scan_report.blocking", "nothing", found, "remove the cause or waive it, and prepare again")


def _destination(case: _Case) -> Iterator[Refusal]:
    record = case.record
    # What set-visibility brings about stands in the record alone.
    free = frozenset({"visibility", "gating"}) if record.act is Act.SET_VISIBILITY else frozenset()
    yield from _fields("destination", Destination, record.destination, case.observed.destination, free)
    differing = case.policy.differing(record.destination)
    if differing:
        found = "no [[destination]] of the policy that allows it"
        yield _refusal(f"destination.{differing}", getattr(record.destination, differing), found, "see the policy")


def _place(case: _Case) -> Iterator[Refusal]:
    """Compare with what the place says of itself now."""
    destination, place = case.record.destination, case.place
    if case.record.act is Act.SET_VISIBILITY:
        yield from _published(case)
        return
    if destination.visibility is Visibility.PUBLIC:
        yield _refusal("destination.visibility", Visibility.PUBLIC, "a publication, which is private at first", _FIRST)
    if place.exists and place.visibility is not destination.visibility:
        found = f"a place that is {place.visibility} already"
        yield _refusal("destination.visibility", destination.visibility, found, "make it private, or name another")
    if place.exists and place.gating is not destination.gating:
        found = f"a place whose gating is {place.gating}"
        yield _refusal("destination.gating", destination.gating, found, "set it there first, or describe it so")
    if place.tag_taken is not None:
        yield _refusal("destination.tag", destination.tag, f"the tag names {place.tag_taken} already", "choose another")
    if place.occupied is not None:
        yield _refusal(
            "destination.url", "a place that is free", place.occupied, "name another place, or remove what is there"
        )


def _published(case: _Case) -> Iterator[Refusal]:
    """Refuse to show anything but what was published there, by this log, from these bytes."""
    record, place = case.record, case.place
    if not place.exists:
        yield _refusal("destination.url", record.destination.url, "nothing there", "publish it first")
    if place.tag_taken not in (None, record.commit):
        yield _refusal("destination.tag", record.commit, f"the tag names {place.tag_taken}", "find out who moved it")
    if place.parent != record.commit:
        yield _refusal(
            "commit", record.commit, f"the branch is at {_text(place.parent)}", "find out what was added, and by whom"
        )
    wanted = (record.destination.url, record.commit)
    publications = case.history.published_where(record.subject.export_manifest_sha256)
    if wanted not in [(one.url, one.commit) for one in publications]:
        yield _refusal("commit", record.commit, "no publication of these bytes at that commit in the log", _FIRST)


def _parent(case: _Case) -> Iterator[Refusal]:
    if case.place.parent != case.record.expected_parent:
        found = f"the branch is at {_text(case.place.parent)}"
        yield _refusal(
            "expected_parent", case.record.expected_parent, found, "look at what changed there, then " + _ANEW
        )


def _fields(
    name: str, model: type[Document], authorized: Document, found: Document, free: frozenset[str] = frozenset()
) -> Iterator[Refusal]:
    """Compare two documents field by field: a field that is added to the model is compared too."""
    for field in model.model_fields:
        ours, theirs = getattr(authorized, field), getattr(found, field)
        same = _same(ours, theirs) if isinstance(ours, str) and isinstance(theirs, str) else ours == theirs
        if field not in free and not same:
            yield _refusal(f"{name}.{field}", ours, theirs, "publish what was authorized, or " + _ANEW)


def _same(one: str, other: str) -> bool:
    """Compare in constant time, so that how long it takes tells nothing about a digest."""
    return hmac.compare_digest(one.encode(), other.encode())


def _refusal(field: str, authorized: object, found: object, step: str) -> Refusal:
    return Refusal(field=field, authorized=_text(authorized), found=_text(found), next=step)


def _text(value: object) -> str:
    """Show a value of a document in one line of bounded length."""
    if value is None:
        return "none"
    if isinstance(value, datetime):
        return rfc3339(value)
    if isinstance(value, tuple):
        return f"{len(value)} of them: " + ", ".join(map(_text, value)) if value else "none"
    words = value.value if isinstance(value, Enum) else value
    return " ".join(str(words).split())[:_SHOWN]


_RULES: tuple[Callable[[_Case], Iterator[Refusal]], ...] = (
    _act,
    _requester,
    _approvals,
    _threshold,
    _publisher,
    _policy,
    _times,
    _used,
    _taken_back,
    _log,
    _clock,
    _subject,
    _scan,
    _destination,
    _place,
    _parent,
)
