"""The authorization record: what exactly somebody was entitled to publish, and who said so.

A record is signed by its requester and approved by others, each over exact bytes (DSSE, see
replicate.release.envelope).  Whether it permits a publication is decided purely, in
replicate.release.deciding, from the record, the policy, what is about to be sent, the state of
the place, the release log and the time.
"""

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from replicate.release.destination import Destination
from replicate.release.documents import Document, Name, Sha256, Text
from replicate.release.findings import Moment, Waiver

CommitId = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]


class Act(StrEnum):
    """What is authorized.  Each is a record of its own: a private release is not half of a public one."""

    PUBLISH = "publish"
    SET_VISIBILITY = "set-visibility"


class Subject(Document):
    """The exact bytes: everything is recomputed from them at the moment of publishing, and compared by field."""

    name: Name
    version: Name
    source_generation: Name
    source_record_sha256: Sha256
    export_manifest_sha256: Sha256
    content_sha256: Sha256
    transforms_sha256: Sha256
    exporter: Text
    license: Name
    license_sha256: Sha256
    card_sha256: Sha256
    scan_report_sha256: Sha256
    waivers: Annotated[tuple[Waiver, ...], Field(strict=False)] = ()


class LogPosition(Document):
    """A slot of the release log and the digest of its entry: the log must still hold it."""

    slot: Annotated[int, Field(ge=1)]
    sha256: Sha256


class AuthorizationRecord(Document):
    """What was asked for.

    ``expected_parent`` is the commit that the branch must still be at (None: the repository must
    not exist, or be empty and private).  ``commit`` is the published commit whose visibility is
    changed, only for ``set-visibility``.  ``threshold`` and ``requester_may_approve`` repeat the
    policy's rule, so that the record itself says how many eyes saw it.
    """

    format: Literal[1] = 1
    act: Act
    nonce: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    subject: Subject
    destination: Destination
    expected_parent: CommitId | None
    commit: CommitId | None = None
    policy_sha256: Sha256
    threshold: Annotated[int, Field(ge=1)]
    requester_may_approve: bool
    requester: Name
    statement: Text
    requested_at: Moment
    not_before: Moment
    expires_at: Moment
    log_position: LogPosition | None


class Approval(Document):
    """What an approver signs: this record, by its digest, seen by this person at this time."""

    format: Literal[1] = 1
    record_sha256: Sha256
    approver: Name
    approved_at: Moment
    decision: Literal["approve"] = "approve"


class Refusal(Document):
    """Why something may not be published: the field, what was authorized, what was found, what to do."""

    field: Name
    authorized: Text
    found: Text
    next: Text
