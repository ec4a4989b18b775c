"""One request of the S3 backend: watched, its failure translated, its credentials read again where they were refused.

Credentials that live in a file, in a process's output or behind a login are rotated by
somebody else.  The SDK refreshes those of roles by itself and reads all others once.  So
where the store refuses the key, the chain is read anew: if it holds another one, that is
used from then on, and the request fails as one that may be repeated.  The upload that it
belongs to goes on.
"""

import threading
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, TypeVar

from tiers.clock import Clock, SystemClock
from tiers.errors import AccessDenied, TierError, TierUnavailable
from tiers.failures import Where
from tiers.pacing import on_the_way
from tiers.profiles import Profile
from tiers.s3_client import identity_of
from tiers.s3_errors import SDK_FAILURES, answer_code, translate
from tiers.s3_sdk import ClientError
from tiers.s3_setup import equip
from tiers.s3_streams import WatchedRead
from tiers.s3_watchdog import WATCHDOG, Limits, Transfer, Watchdog

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client

Result = TypeVar("Result")

REFUSED_KEYS = frozenset(
    {
        *("ExpiredToken", "ExpiredTokenException", "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken"),
        *("TokenRefreshRequired", "InvalidClientTokenId", "UnrecognizedClientException", "RequestExpired"),
        *("Unauthorized", "AuthFailure"),
    }
)
"""Codes that other credentials may cure."""
PERHAPS_REFUSED_KEYS = frozenset({"400", "401", "403"})
"""What a refused key looks like where the answer has no body; but so does a policy, or a missing key."""
PERHAPS_EVERY = 60.0
"""Seconds between readings of the chain for answers that only may be about the key."""
ALLOWED_SKEW = timedelta(minutes=15)
"""By how much a store lets a clock be off."""
LONG_ANSWERS = frozenset({"complete", "copy", "copy_part"})
"""Operations in which the store may work for minutes before it says anything."""


def limits_for(
    operation: str, profile: Profile, *, timeout_seconds: float | None = None, deadline_seconds: float | None = None
) -> Limits:
    """Return the time allowed for a request; what is configured wins, but Complete always has its own time."""
    stall = timeout_seconds or profile.read_timeout
    if operation in LONG_ANSWERS:
        return Limits(stall=stall, answer=max(stall, profile.complete_timeout))
    return Limits(stall=stall, answer=stall, deadline=deadline_seconds)


class Caller:
    """The connection of a tier.  ``connect`` builds a client from what the SDK's chain holds at that moment."""

    def __init__(
        self,
        connect: "Callable[[], S3Client]",
        profile: Profile,
        *,
        limits: Callable[[str], Limits] | None = None,
        watchdog: Watchdog = WATCHDOG,
        clock: Clock | None = None,
    ) -> None:
        self._connect = connect
        self._profile = profile
        self._limits = limits if limits is not None else lambda operation: limits_for(operation, profile)
        self._watchdog = watchdog
        self._clock = clock if clock is not None else SystemClock()
        self._client: S3Client | None = None
        self._lock = threading.Lock()
        self._looked = float("-inf")

    def call(self, where: Where, send: "Callable[[S3Client], Result]", size: int = 0) -> Result:
        """Make a request that moves ``size`` bytes; raises TierError."""
        return self._call(where, send, size)[0]

    def begin(
        self, where: Where, send: "Callable[[S3Client], Mapping[str, object]]"
    ) -> tuple[Mapping[str, object], WatchedRead]:
        """Make a request whose answer is a stream, and return what to read that with."""
        response, transfer, limits = self._call(where, send, 0)
        transfer.expect(int(str(response["ContentLength"])))
        return response, WatchedRead(self._watchdog, transfer, limits)

    def close(self) -> None:
        """Close the pool of connections; the next request opens another."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _call(self, where: Where, send: "Callable[[S3Client], Result]", size: int) -> tuple[Result, Transfer, Limits]:
        limits = self._limits(where.operation)
        used: S3Client | None = None
        with self._watchdog.request(limits, size) as transfer, on_the_way(sending=False):
            try:
                used = self._connected()
                return send(used), transfer, limits
            except SDK_FAILURES as error:
                # its text may quote secrets
                raise self._failure(error, where, used, transfer) from None
            finally:
                transfer.rest()

    def _connected(self) -> "S3Client":
        with self._lock:
            if self._client is None:
                self._client = self._opened()
            return self._client

    def _opened(self) -> "S3Client":
        client = self._connect()
        equip(client, self._profile)
        return client

    def _failure(self, error: Exception, where: Where, used: "S3Client | None", transfer: Transfer) -> TierError:
        if transfer.verdict:
            hint = "the network or the store is stuck: it is tried again; timeout_seconds says how long to wait"
            return TierUnavailable(transfer.verdict, **where.fields(), hint=hint)
        profile = self._profile
        found = translate(error, **where.fields(), throttles=profile.throttles, pause=profile.write_interval)
        if not isinstance(found, AccessDenied) or not isinstance(error, ClientError) or used is None:
            return found
        code, _status = answer_code(error)
        skew = clock_difference(error, self._clock.now())
        if code == "RequestTimeTooSkewed" or (code in PERHAPS_REFUSED_KEYS and skew.is_too_much):
            return AccessDenied(f"{found.message}; {skew}", **where.fields(), hint=skew.hint)
        if code in REFUSED_KEYS or (code in PERHAPS_REFUSED_KEYS and self._may_look()):
            if self._renewed(used):
                message = f"{found.message}; the credentials have been replaced meanwhile and are used from now on"
                return TierUnavailable(message, **where.fields(), hint="nothing: it is tried again")
            if code in REFUSED_KEYS:
                message = f"{found.message}; the credentials were read again and are still the same"
                hint = "renew them where the SDK's chain finds them; what was accepted so far is kept and goes on then"
                return AccessDenied(message, **where.fields(), hint=f"{hint}; or {found.hint}")
        return found

    def _may_look(self) -> bool:
        now = self._clock.monotonic()
        with self._lock:
            may = now - self._looked >= PERHAPS_EVERY
            self._looked = now if may else self._looked
        return may

    def _renewed(self, used: "S3Client") -> bool:
        """Whether requests are made with other credentials than those of ``used`` from now on."""
        with self._lock:
            if self._client is not used:  # another thread was faster, or all was closed
                return True
            try:
                fresh = self._opened()
                changed = fresh is not used and identity_of(fresh) != identity_of(used)
            except SDK_FAILURES:  # half-written, or gone: what the store said of the old ones stands
                return False
            self._client = fresh if changed else used
        if fresh is not used:
            (used if changed else fresh).close()  # requests under way keep the connections that they hold
        return changed


class ClockDifference:
    """How far this machine's clock is from the store's, as far as an answer tells."""

    hint = "this machine's clock is off: synchronise it (chrony, ntp); a signature is good for 15 minutes"

    def __init__(self, ours: datetime, theirs: datetime | None) -> None:
        self._ours = ours
        self._theirs = theirs

    @property
    def is_too_much(self) -> bool:
        """Whether no store would accept it."""
        return self._theirs is not None and abs(self._ours - self._theirs) > ALLOWED_SKEW

    def __str__(self) -> str:
        ours = f"this machine says {self._ours:%Y-%m-%d %H:%M:%S} UTC"
        if self._theirs is None:
            return f"{ours}, the store's answer has no date"
        seconds = round((self._ours - self._theirs).total_seconds())
        direction = "ahead of" if seconds > 0 else "behind"
        return f"{ours}, {abs(seconds)} s {direction} the store, which says {self._theirs:%Y-%m-%d %H:%M:%S} UTC"


def clock_difference(error: ClientError, now: datetime) -> ClockDifference:
    """Compare ``now`` with the Date of an answer."""
    headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    try:
        theirs = parsedate_to_datetime(headers.get("date", ""))
    except (TypeError, ValueError):
        return ClockDifference(now, None)
    return ClockDifference(now, theirs if theirs.tzinfo is not None else None)
