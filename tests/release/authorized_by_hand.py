"""Roles with keys, a policy that pins them, and authorizations made as people would make them.

    scene = Scene.set(tmp_path)                  # prepared release, policy, empty log on a volume
    authorization = scene.authorized()           # requested by one, approved by two others
    refusals = scene.decide(authorization)       # () as long as nothing changed

Keys are made once a process.  Nothing here is a double: files, signatures and the log are real.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from release.prepared_by_hand import HUB_DESTINATION, prepare_by_hand

from replicate.release.authorization import Act, AuthorizationRecord, LogPosition, Refusal
from replicate.release.authorizing import Authorization, approve, parse_authorization, request
from replicate.release.bundle import Prepared
from replicate.release.deciding import decide
from replicate.release.destination import Destination, Gating, Visibility
from replicate.release.documents import encode
from replicate.release.envelope import PayloadType, sign
from replicate.release.history import EntryKind, Event, ReleaseHistory
from replicate.release.policy import Policy, parse_policy
from replicate.release.publishing.places import PlaceState
from replicate.release.releaselog import ReleaseLog
from replicate.release.subject import Observed, observe
from replicate.signing.keys import SigningKey
from tiers.testing import ManualClock
from tiers.volume import VolumeTier

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
REQUESTER, APPROVERS, PUBLISHER, REVOKER = "requester", ("approver-one", "approver-two"), "publisher", "revoker"
SECOND_REQUESTER, THIRD_APPROVER, OUTSIDER = "second-requester", "approver-three", "outsider"
PERMISSIONS = {
    REQUESTER: ("request", "approve"),
    SECOND_REQUESTER: ("request",),
    APPROVERS[0]: ("approve",),
    APPROVERS[1]: ("approve",),
    THIRD_APPROVER: ("approve",),
    PUBLISHER: ("publish",),
    REVOKER: ("revoke",),
}
HEAD = "1" * 40
"""The commit that the branch is at."""


@cache
def key_of(name: str) -> SigningKey:
    """Return the key of a role; OUTSIDER's is in no policy."""
    return SigningKey(Ed25519PrivateKey.generate())


def policy_toml(log: Path, *, top: str = "", people: str | None = None, destinations: str | None = None) -> str:
    """Return the text of a policy; ``top`` are further keys at its top."""
    listed = "".join(
        f"[[person]]\nname = {name!r}\nkey = {key_of(name).public.text!r}\nmay = {list(may)}\n"
        for name, may in PERMISSIONS.items()
    )
    places = '[[destination]]\nurl = "hf://acme/*"\nvisibility = ["private", "public"]\n'
    return (
        f'format = 1\nlog = "file://{log}"\n{top}\n'
        f"{listed if people is None else people}\n{places if destinations is None else destinations}"
    )


def sealed_again(record: AuthorizationRecord, *approvers: str, requester: str | None = None) -> Authorization:
    """Return a record signed by its requester (or with the key of ``requester``) and approved by people, by hand."""
    signer = key_of(requester or record.requester)
    envelope = sign(PayloadType.AUTHORIZATION, encode(record), signer)
    made = Authorization(record_envelope=envelope, record=record)
    for name in approvers:
        made = approved_by_hand(made, name, at=record.requested_at)
    return made


def approved_by_hand(authorization: Authorization, name: str, *, at: datetime, **changes: Any) -> Authorization:
    """Add an approval without any of the checks that ``approve`` makes."""
    from replicate.release.authorization import Approval  # noqa: PLC0415 - only here
    from replicate.release.authorizing import SignedApproval  # noqa: PLC0415 - as above

    key = changes.pop("key", None) or key_of(name)
    approval = Approval(
        record_sha256=changes.pop("record_sha256", authorization.record_sha256), approver=name, approved_at=at
    )
    signed = SignedApproval(envelope=sign(PayloadType.APPROVAL, encode(approval), key), approval=approval)
    return replace(authorization, approvals=(*authorization.approvals, signed))


@dataclass(slots=True, kw_only=True)
class Scene:
    """A prepared release, and everything that decides about it.  ``place`` is what the place says of itself."""

    prepared: Prepared
    policy: Policy
    log: ReleaseLog
    clock: ManualClock
    observed: Observed
    place: PlaceState = field(
        default_factory=lambda: PlaceState(exists=True, visibility=Visibility.PRIVATE, gating=Gating.NONE, parent=HEAD)
    )

    @classmethod
    def set(
        cls, folder: Path, *, top: str = "", destination: Destination = HUB_DESTINATION, **prepared: Any
    ) -> "Scene":
        """Write everything into a folder."""
        log_folder = folder / "log-store"
        log_folder.mkdir()
        made = prepare_by_hand(folder / "prepared", destination=destination, **prepared)
        policy = parse_policy(policy_toml(log_folder, top=top).encode(), what="the policy")
        return cls(
            prepared=made,
            policy=policy,
            log=ReleaseLog(VolumeTier("release log", log_folder), policy),
            clock=ManualClock(START),
            observed=observe(made),
        )

    @property
    def history(self) -> ReleaseHistory:
        """The log as it is now."""
        return self.log.read()

    def requested(self, **changes: Any) -> Authorization:
        """Request a publication, or what ``changes`` say."""
        asked: dict[str, Any] = {
            "act": Act.PUBLISH,
            "expected_parent": HEAD,
            "commit": None,
            "requester_key": key_of(REQUESTER),
            "requester": REQUESTER,
            "statement": "The first release.",
            "not_before": self.clock.now(),
            "valid_for": timedelta(days=7),
            "log_position": self.history.position,
            "clock": self.clock,
        }
        return request(self.observed, self.policy, **asked | changes)

    def authorized(self, **changes: Any) -> Authorization:
        """Request, and have both approvers approve."""
        made = self.requested(**changes)
        for name in APPROVERS:
            made = approve(made, self.policy, key_of(name), name, self.clock, observed=self.observed)
        return parse_authorization(made.encode(), what="the authorization")

    def decide(self, authorization: Authorization, **changes: Any) -> tuple[Refusal, ...]:
        """Decide about publishing now."""
        known: dict[str, Any] = {
            "observed": self.observed,
            "place": self.place,
            "history": self.history,
            "now": self.clock.now(),
            "publisher": PUBLISHER,
        }
        return decide(authorization, self.policy, **known | changes)

    def event(self, authorization: Authorization, kind: EntryKind, **changes: Any) -> Event:
        """Return what a publisher writes down about an authorization."""
        record = authorization.record
        said: dict[str, Any] = {
            "kind": kind,
            "at": self.clock.now(),
            "who": PUBLISHER,
            "nonce": record.nonce,
            "record_sha256": authorization.record_sha256,
            "export_manifest_sha256": record.subject.export_manifest_sha256,
            "url": record.destination.url,
        }
        return Event(**said | changes)

    def begin(self, authorization: Authorization) -> LogPosition:
        """Write down that a publication begins."""
        return self.log.append(self.event(authorization, EntryKind.BEGUN), expect=self.history)

    def publish(self, authorization: Authorization, commit: str = "2" * 40) -> LogPosition:
        """Write down a whole publication."""
        self.begin(authorization)
        return self.log.append(
            self.event(authorization, EntryKind.PUBLISHED, commit=commit, visibility=Visibility.PRIVATE)
        )


def fields(refusals: tuple[Refusal, ...]) -> tuple[str, ...]:
    """Return the fields that were refused."""
    return tuple(refusal.field for refusal in refusals)


SceneFactory = Callable[..., Scene]
