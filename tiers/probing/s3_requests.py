"""Requests of a probe: as no tier would make them, under one scratch prefix, each with its Date noted."""

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from tiers.clock import Clock
from tiers.errors import AccessDenied, TierError, TierUnavailable
from tiers.probing.clocks import Sighting
from tiers.probing.outcomes import Outcome, Subject, Verdict
from tiers.profiles import Profile
from tiers.s3_errors import SDK_FAILURES, translate
from tiers.s3_sdk import ClientError

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client

Answer = Mapping[str, Any]
Send = Callable[[], Any]


@dataclass(slots=True, kw_only=True)
class Store:
    """One bucket, as a probe sees it.

    ``plain`` sends payloads unsigned, ``signing`` hashes each into its signature, ``fresh``
    makes another client, as another machine would.  ``written`` and ``uploads`` collect what has to go.
    """

    tier: str
    bucket: str
    root: str
    scratch: str
    profile: Profile
    clock: Clock
    plain: "S3Client"
    signing: "S3Client"
    fresh: "Callable[[], S3Client]"
    written: list[str] = field(default_factory=list)
    uploads: list[dict[str, Any]] = field(default_factory=list)
    sightings: list[Sighting] = field(default_factory=list)

    def target(self, name: str) -> dict[str, Any]:
        """Return bucket and key of a scratch object, which is remembered."""
        key = f"{self.scratch}{name}"
        if key not in self.written:
            self.written.append(key)
        return {"Bucket": self.bucket, "Key": self.root + key}

    def ask(self, operation: str, send: Send) -> Answer:
        """Make a request; raises TierError."""
        sent = self.clock.now()
        try:
            answer: Answer = send()
        except SDK_FAILURES as error:
            if isinstance(error, ClientError):
                self._note(sent, error.response)
            raise translate(error, tier=self.tier, operation=operation, key=self.scratch) from None
        self._note(sent, answer)
        return answer

    def body(self, operation: str, send: Send) -> bytes:
        """Make a request for an object and return its bytes; raises TierError."""
        answer = self.ask(operation, send)
        try:
            with answer["Body"] as stream:
                found: bytes = stream.read()
        except SDK_FAILURES as error:
            raise translate(error, tier=self.tier, operation=operation, key=self.scratch) from None
        return found

    def refuses(self, subject: Subject, what: str, send: Send, *, denied: Verdict = Verdict.UNKNOWN) -> Outcome:
        """Try something that has to be refused; ``denied`` is what a 401 or 403 says of it."""
        try:
            self.ask("probe", send)
        except TierUnavailable as error:
            return Outcome(subject=subject, verdict=Verdict.UNKNOWN, evidence=f"{what}: {brief(error)}")
        except AccessDenied as error:
            return Outcome(subject=subject, verdict=denied, evidence=f"{what}: {brief(error)}")
        except TierError as error:
            return Outcome(subject=subject, verdict=Verdict.YES, evidence=f"{what} is refused: {brief(error)}")
        return Outcome(subject=subject, verdict=Verdict.NO, evidence=f"{what} is taken")

    def _note(self, sent: datetime, answer: Any) -> None:
        headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
        try:
            date = parsedate_to_datetime(headers.get("date", ""))
        except (TypeError, ValueError):  # none, or none that can be read
            return
        if date.tzinfo is not None:
            self.sightings.append(Sighting(sent=sent, received=self.clock.now(), date=date))


def brief(error: TierError) -> str:
    """Return a failure in a few words, without what only the provider's support can use."""
    return error.message.partition(", request ")[0]


class TwoFaced:
    """A body that shows other bytes to whoever signs it than it sends."""

    def __init__(self, shown: bytes, sent: bytes) -> None:
        if len(shown) != len(sent):
            raise ValueError("both faces have the same length")
        self._now, self._then = io.BytesIO(shown), io.BytesIO(sent)
        self._size = len(sent)

    def __len__(self) -> int:
        """Size in bytes."""
        return self._size

    def read(self, size: int = -1) -> bytes:
        """Read from the face that is turned here."""
        return self._now.read(size)

    def tell(self) -> int:
        """Position in bytes."""
        return self._now.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move; going back to the start after a reading turns the other face."""
        if offset == 0 and whence == io.SEEK_SET and self._now.tell() == self._size:
            self._now = self._then
        return self._now.seek(offset, whence)
