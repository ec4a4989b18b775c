"""Publishing: everything is recomputed and decided, twice, before a byte is sent; every outcome is logged.

    observe ─ look ─ read the log ─ decide ─ log "begun" ─ all of it again ─ carry ─ log the outcome

"begun" is created directly after the history that permitted it, so that of two publishers with
one authorization one begins.  What was begun and not finished goes on only where somebody says so
(``resume``), by the same publisher under the same authorization.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from replicate.errors import CapabilityMissing, CkptierError, Denied, Fenced
from replicate.release.authorization import Act, LogPosition
from replicate.release.authorizing import Authorization
from replicate.release.bundle import Prepared
from replicate.release.deciding import decide, require, strangers
from replicate.release.destination import Destination, Gating, Visibility
from replicate.release.history import EntryKind, Event, ReleaseHistory, Standing
from replicate.release.policy import Policy
from replicate.release.publishing.carrying import amend
from replicate.release.publishing.opening import open_place, read_token
from replicate.release.publishing.places import Payload, Place, Published, Step
from replicate.release.releaselog import LogMoved, ReleaseLog
from replicate.release.releaselog import withdraw as log_withdrawal
from replicate.release.subject import Observed, observe
from replicate.signing.keys import SigningKey
from tiers.clock import Clock

__all__ = [
    "PublishReport",
    "VisibilityReport",
    "WithdrawReport",
    "change_visibility",
    "open_place",
    "publish",
    "read_token",
    "withdraw",
]

_RACES = 8
_DETAIL = 2_000

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishReport:
    """What was published.

    ``commit`` is the Hub's commit, else the manifest's digest; ``entry`` where the log says so.
    ``read_back`` files were read again from the place and hashed; the others are known by the
    digest that the store itself computed.
    """

    url: str
    commit: str
    entry: LogPosition
    files: int
    total_bytes: int
    read_back: int
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibilityReport:
    """Who sees a published commit now."""

    url: str
    commit: str
    visibility: Visibility
    gating: Gating
    entry: LogPosition
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WithdrawReport:
    """A withdrawal.  ``hidden`` is the commit that nobody sees any more; None where ckptier does not manage that."""

    url: str
    hidden: str | None
    entry: LogPosition
    steps: tuple[str, ...]


def publish(
    prepared: Prepared,
    authorization: Authorization,
    policy: Policy,
    *,
    place: Place,
    log: ReleaseLog,
    clock: Clock,
    publisher: str,
    resume: bool,
    step: Step,
    key: SigningKey | None = None,
) -> PublishReport:
    """Carry a prepared release to the place that was authorized, or leave that place as it was.

    ``key`` signs the log's entries.  Raises NotAuthorized, which names each field that is not as
    authorized, before anything is sent; LogMoved and Fenced where another publisher was faster;
    and what the place raises.  A failure is logged with its reason.
    """
    steps = _Steps(step)
    act = _Act(prepared, authorization, policy, place, log, clock, publisher, key, steps, Act.PUBLISH)

    def carry(payload: Payload) -> Published:
        return place.publish(payload, expected_parent=authorization.record.expected_parent, step=steps)

    published, entry = act.run(carry, lambda done: (EntryKind.PUBLISHED, done.commit), resume=resume)
    return PublishReport(
        url=published.url,
        commit=published.commit,
        entry=entry,
        files=published.files,
        total_bytes=published.total_bytes,
        read_back=published.read_back,
        steps=steps.taken,
    )


def change_visibility(
    prepared: Prepared,
    authorization: Authorization,
    policy: Policy,
    *,
    place: Place,
    log: ReleaseLog,
    clock: Clock,
    publisher: str,
    resume: bool,
    step: Step,
    key: SigningKey | None = None,
) -> VisibilityReport:
    """Show or hide a published commit, under an authorization of its own; raises as ``publish``."""
    steps = _Steps(step)
    act = _Act(prepared, authorization, policy, place, log, clock, publisher, key, steps, Act.SET_VISIBILITY)
    record = authorization.record
    commit = record.commit or ""

    def change(_payload: Payload) -> None:
        place.set_visibility(record.destination.visibility, record.destination.gating, commit=commit, step=steps)

    _, entry = act.run(change, lambda _done: (EntryKind.VISIBILITY_CHANGED, commit), resume=resume)
    return VisibilityReport(
        url=record.destination.url,
        commit=commit,
        visibility=record.destination.visibility,
        gating=record.destination.gating,
        entry=entry,
        steps=steps.taken,
    )


def withdraw(
    destination: Destination,
    export_manifest_sha256: str,
    *,
    place: Place,
    log: ReleaseLog,
    clock: Clock,
    who: str,
    key: SigningKey,
    reason: str,
    step: Step,
) -> WithdrawReport:
    """Log that a release must not be used, and hide it where ckptier manages that.  Nothing is deleted.

    Raises Denied where the policy does not permit it.  Where the log cannot be written the release
    is hidden all the same, and the error says so.
    """
    steps = _Steps(step)
    steps(f"log the withdrawal of {destination.url}")
    try:
        entry = log_withdrawal(
            log, export_manifest_sha256, reason=reason, who=who, key=key, clock=clock, url=destination.url
        )
    except Denied:
        raise
    except CkptierError as error:
        amend(error, _hide_anyway(place, steps))
        raise
    try:
        hidden: str | None = place.withdraw(step=steps)
    except CapabilityMissing as error:
        hidden = None
        steps(f"{error.message}: {error.hint}")
    except CkptierError as error:
        amend(error, f"its withdrawal is logged (entry {entry.slot}), but it may still be visible: hide it by hand")
        raise
    return WithdrawReport(url=destination.url, hidden=hidden, entry=entry, steps=steps.taken)


def _hide_anyway(place: Place, step: Step) -> str:
    try:
        return f"it is hidden (commit {place.withdraw(step=step)}), but that is not logged: withdraw it again"
    except CkptierError as error:
        return f"and it could not be hidden ({error.message})"


@dataclass(slots=True)
class _Steps:
    """Tells what is done, and remembers it."""

    tell: Step
    _taken: list[str] = field(default_factory=list)

    def __call__(self, what: str) -> None:
        self._taken.append(what)
        self.tell(what)

    @property
    def taken(self) -> tuple[str, ...]:
        return tuple(self._taken)


@dataclass(frozen=True, slots=True)
class _Act:
    """One use of one authorization: what publishing and showing have in common."""

    prepared: Prepared
    authorization: Authorization
    policy: Policy
    place: Place
    log: ReleaseLog
    clock: Clock
    publisher: str
    key: SigningKey | None
    step: Step
    act: Act

    def run(
        self, do: Callable[[Payload], Result], outcome: Callable[[Result], tuple[EntryKind, str]], *, resume: bool
    ) -> tuple[Result, LogPosition]:
        """Decide, log, decide again, do it, log what became of it."""
        require(strangers(self.policy, self.authorization.record.destination))
        begun = self._begin(resume=resume)
        history = self._history_after(begun)
        try:
            self.step("check everything again, against the bytes as they are now")
            observed = self._observe()
            self._require(observed, history, resume=True)  # of what this call itself began
            done = do(_payload(self.prepared, observed))
        except BaseException as error:
            self._log_failure(error)
            raise
        kind, commit = outcome(done)
        try:
            entry = self.log.append(self._event(kind, commit=commit), key=self.key)
        except CkptierError as error:
            amend(
                error, f"it is done ({kind.value}, {commit}), but that could not be logged: run it again with --resume"
            )
            raise
        return done, entry

    def _begin(self, *, resume: bool) -> LogPosition:
        """Log that it is begun, directly after the history that permits it."""
        observed = self._observe()
        for _ in range(_RACES):
            history = self.log.read()
            unfinished = history.nonce(self.authorization.record.nonce).standing in (Standing.BEGUN, Standing.FAILED)
            if resume and unfinished and self.act is Act.PUBLISH:
                self.step("look for what the publication before left")
                payload = _payload(self.prepared, observed)
                self.place.resume(payload, expected_parent=self.authorization.record.expected_parent)
            self._require(observed, history, resume=resume)
            self.step("log that it is begun")
            try:
                return self.log.append(self._event(EntryKind.BEGUN), expect=history, key=self.key)
            except LogMoved:
                continue  # somebody wrote to the log: what is permitted is decided anew
        raise Fenced("the release log is written faster than it can be read", hint="nothing was sent; run it again")

    def _observe(self) -> Observed:
        self.step("hash the prepared release")
        return observe(self.prepared)

    def _require(self, observed: Observed, history: ReleaseHistory, *, resume: bool) -> None:
        self.step("look at the place, and decide")
        require(
            decide(
                self.authorization,
                self.policy,
                observed=observed,
                place=self.place.state(),
                history=history,
                now=self.clock.now(),
                act=self.act,
                publisher=self.publisher,
                resume=resume,
            )
        )

    def _history_after(self, begun: LogPosition) -> ReleaseHistory:
        """Return the log as it is now; raises Fenced where somebody else resumed in between."""
        history = self.log.read()
        last = history.nonce(self.authorization.record.nonce).entry
        if last is None or last.slot != begun.slot:
            raise Fenced(
                f"log entry {last.slot if last else 0} shows another publication under this authorization",
                hint="let that one end; nothing was sent by this one",
            )
        return history

    def _log_failure(self, error: BaseException) -> None:
        """Log why it failed; where that fails too, both are told."""
        reason = error.message if isinstance(error, CkptierError) else type(error).__name__
        try:
            self.log.append(self._event(EntryKind.FAILED, detail=reason[:_DETAIL]), key=self.key)
        except CkptierError as second:
            note = f"its failure could not be logged ({second.message})"
            if isinstance(error, CkptierError):
                amend(error, note)
            else:
                error.add_note(note)

    def _event(self, kind: EntryKind, *, commit: str = "", detail: str = "") -> Event:
        record = self.authorization.record
        ended = kind in (EntryKind.PUBLISHED, EntryKind.VISIBILITY_CHANGED)
        return Event(
            kind=kind,
            at=self.clock.now(),
            who=self.publisher,
            nonce=record.nonce,
            record_sha256=self.authorization.record_sha256,
            export_manifest_sha256=record.subject.export_manifest_sha256,
            url=record.destination.url,
            commit=commit,
            visibility=record.destination.visibility if ended else None,
            gating=record.destination.gating if ended else None,
            detail=detail,
        )


def _payload(prepared: Prepared, observed: Observed) -> Payload:
    return Payload(tree=prepared.tree, manifest=observed.manifest, manifest_bytes=observed.manifest_bytes)
