"""Whether the signatures of an authorization hold, for people to read before they approve.

It permits nothing: that is decided again, from bytes and signatures, at the moment of publishing.
"""

from dataclasses import dataclass
from enum import StrEnum

from replicate.release.authorizing import Authorization, SignedApproval
from replicate.release.envelope import Envelope, PayloadType, verify
from replicate.release.policy import Policy


class SignatureState(StrEnum):
    """What is known of one signature; the value says it in words."""

    HOLDS = "its signature holds"
    WRONG_KEY = "NOT SIGNED by the key that the policy pins"
    STRANGER = "NOT IN THE POLICY, so nobody knows whose signature it is"
    OTHER_RECORD = "OF ANOTHER RECORD, so it does not count"
    UNCHECKED = "its signature was not checked: --policy does"


_FAULTLESS = (SignatureState.HOLDS, SignatureState.UNCHECKED)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureStates:
    """What is known of the requester's signature, and of each approval's in their order."""

    requester: SignatureState
    approvals: tuple[SignatureState, ...]

    @property
    def faultless(self) -> bool:
        """Whether nothing is known against the requester's signature."""
        return self.requester in _FAULTLESS

    @property
    def counting(self) -> int:
        """How many approvals have nothing known against them."""
        return sum(one in _FAULTLESS for one in self.approvals)


def signature_states(authorization: Authorization, policy: Policy | None) -> SignatureStates:
    """Check every signature against the keys of a policy; without one nothing is known."""
    record = authorization.record
    return SignatureStates(
        requester=_state(authorization.record_envelope, PayloadType.AUTHORIZATION, policy, record.requester),
        approvals=tuple(_of_approval(authorization, one, policy) for one in authorization.approvals),
    )


def _of_approval(authorization: Authorization, signed: SignedApproval, policy: Policy | None) -> SignatureState:
    if signed.approval.record_sha256 != authorization.record_sha256:
        return SignatureState.OTHER_RECORD
    return _state(signed.envelope, PayloadType.APPROVAL, policy, signed.approval.approver)


def _state(envelope: Envelope, kind: PayloadType, policy: Policy | None, name: str) -> SignatureState:
    if policy is None:
        return SignatureState.UNCHECKED
    person = policy.named(name)
    if person is None:
        return SignatureState.STRANGER
    return SignatureState.HOLDS if verify(envelope, kind, [person.public_key]) else SignatureState.WRONG_KEY
