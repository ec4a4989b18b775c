"""What a scan found, and what somebody answers for: the values of the scan."""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from replicate.release.documents import Document, Name, Sha256, Text


class Rule(StrEnum):
    """What a finding is about; waivers name it."""

    FILE_NOT_ALLOWED = "file-not-allowed"
    LINK_OR_DEVICE = "link-or-device"
    PICKLE = "pickle"
    TRAINING_STATE = "training-state"
    CODE_FILE = "code-file"
    CONTAINER = "container"
    METADATA = "metadata"
    TENSOR_UNKNOWN = "tensor-unknown"
    TENSOR_MISSING = "tensor-missing"
    TENSOR_SHAPE = "tensor-shape"
    TENSOR_DTYPE = "tensor-dtype"
    TENSOR_DUPLICATE = "tensor-duplicate"
    TENSOR_NOT_FINITE = "tensor-not-finite"
    TENSOR_CONSTANT = "tensor-constant"
    ABSOLUTE_PATH = "absolute-path"
    USER_OR_HOST = "user-or-host"
    INTERNAL_ADDRESS = "internal-address"
    SECRET = "secret"  # noqa: S105 - the name of a rule
    PERSONAL_DATA = "personal-data"
    POINTS_OUTSIDE = "points-outside"
    REMOTE_CODE = "remote-code"
    RUN_IDENTITY = "run-identity"
    CARD_INCOMPLETE = "card-incomplete"
    CARD_PLACEHOLDER = "card-placeholder"
    CARD_DISAGREES = "card-disagrees"
    LICENSE = "license"
    CONFIG_INVALID = "config-invalid"
    CHAT_TEMPLATE = "chat-template"


class Finding(Document):
    """One thing that must not be published unless somebody answers for it.

    ``path`` is relative to the tree, ``place`` the line, JSON pointer or tensor name in it.
    ``detail`` never repeats a secret: it says its kind and a digest of eight digits.
    """

    rule: Rule
    path: Name
    place: Text = ""
    detail: Text


Moment = Annotated[
    AwareDatetime,
    Field(strict=False, ge=datetime(2000, 1, 1, tzinfo=UTC), lt=datetime(9000, 1, 1, tzinfo=UTC)),
]
"""A time with its zone, far enough from the ends of the calendar to be reckoned with in any zone."""


class Waiver(Document):
    """An answer to findings of one rule on one path.  All fields are needed; nothing is waived for ever."""

    rule: Rule
    path: Name
    place: Text = ""
    reason: Annotated[str, Field(min_length=10, max_length=2_000)]
    author: Name
    expires: Moment

    def covers(self, finding: Finding, now: datetime) -> bool:
        """Whether it answers for a finding at ``now``; an empty ``place`` means any in that file."""
        same = (self.rule, self.path) == (finding.rule, finding.path) and self.place in ("", finding.place)
        return same and now < self.expires


class ScanReport(Document):
    """The result of a scan of one tree, bound by an authorization.  It carries no time of its own."""

    format: Literal[1] = 1
    export_manifest_sha256: Sha256
    scanners: Annotated[tuple[Text, ...], Field(strict=False)]
    files: int
    tensors: int
    blocking: Annotated[tuple[Finding, ...], Field(strict=False)]
    waived: Annotated[tuple[Finding, ...], Field(strict=False)]
    waivers: Annotated[tuple[Waiver, ...], Field(strict=False)]
