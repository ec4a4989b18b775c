"""What a repair has to do, decided from values."""

from collections.abc import Iterator, Mapping, Sequence

from replicate.errors import CkptierError, Fenced, NothingFound, TrustFailure
from replicate.log import LogState, LogView
from replicate.mending.steps import (
    Candidate,
    CopyFacts,
    HurtFact,
    Kind,
    LogFacts,
    RepairOptions,
    RepairPlan,
    Step,
)
from replicate.terms import Standing
from replicate.tracker import HeldTerm, Seen

PINS = "a pin may be among what is lost, which nothing here can tell: pin again what has to stay"


def plan_repair(
    log: LogFacts, copies: CopyFacts, uploads: Sequence[Candidate], unnamed: int, options: RepairOptions
) -> RepairPlan:
    """Decide for one tier; ``unnamed`` counts the uploads there that no readable entry names."""
    steps = (*log_steps(log, options), *adopt_steps(uploads), *copy_steps(copies, options))
    due = any(step.kind is not Kind.LEAVE for step in steps)
    return RepairPlan(
        steps=steps,
        blocked=_blocked(log, uploads, options) if due or log.not_there else None,
        notes=tuple(_notes(log, uploads, unnamed, options)),
        unknown=tuple(f"{one}: {words}" for one, words in copies.unknown.items()),
    )


def log_steps(log: LogFacts, options: RepairOptions) -> tuple[Step, ...]:
    """Say what makes a log one that can be appended to."""
    steps = [
        Step(kind=Kind.FILL, slot=one.slot, reason="nothing is there: a late entry of somebody could still come to be")
        for one in log.view.damaged
        if one.missing
    ]
    accepts = log.not_there is not None and options.rebuild_log
    if log.not_there is not None and accepts:
        end = f"ends at slot {log.view.next_slot - 1} or differs" if log.view.next_slot else "is gone"
        words = f"this store has seen slot {log.not_there.slot}, the log {end}"
        steps.append(Step(kind=Kind.ACCEPT, slot=log.not_there.slot, reason=f"{words}: it goes on from here"))
    if (log.view.damaged or accepts) and needs_claim(log.view, log.held, log.not_there, log.decision.standing):
        reason = "a claim may be among what is lost: a higher term shuts its writer out"
        steps.append(Step(kind=Kind.CLAIM, reason=reason))
    steps += [Step(kind=Kind.VOID, slot=one.slot, reason=one.reason) for one in log.view.damaged]
    return tuple(steps)


def needs_claim(view: LogView, held: HeldTerm | None, not_there: Seen | None, standing: Standing) -> bool:
    """Whether the term has to be claimed anew before anything else is written: a lost claim must not be able to count.

    Where the term is held, it is known to be above all that is lost if it was claimed after it.
    """
    if standing is not Standing.HOLDS or held is None:
        return True
    if view.damaged and (view.claim_slot is None or view.claim_slot < view.damaged[-1].slot):
        return True
    return not_there is not None and held.term <= not_there.slot + 1


def highest_lost_term(view: LogView, held: HeldTerm | None, not_there: Seen | None, prefix_term: int) -> int:
    """Return what no term that was ever claimed exceeds, read or not.

    Claims raise the term by one, or to one more than their slot's number where a repair makes them.
    """
    end = max(view.next_slot, not_there.slot + 1 if not_there else 0)
    hidden = len(view.damaged) + end - view.next_slot
    known = view.state.term if view.state else 0
    return max(end, known + hidden, held.term if held else 0, prefix_term)


def adopt_steps(uploads: Sequence[Candidate]) -> tuple[Step, ...]:
    """Say which complete uploads get a commit entry again, oldest first."""
    return tuple(
        Step(
            kind=Kind.ADOPT,
            generation=one.commit.id,
            reason=f"complete and verified under term {one.commit.term}, and no entry names it",
        )
        for one in in_order(uploads)
    )


def in_order(uploads: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Return what may be adopted, oldest first."""
    return tuple(sorted((one for one in uploads if not one.why_not), key=lambda one: one.commit.id))


def copy_steps(copies: CopyFacts, options: RepairOptions) -> tuple[Step, ...]:
    """Say what becomes of each copy that is hurt, newest first."""
    ordered = sorted(copies.hurt, key=lambda one: one.generation, reverse=True)
    stays = bool(copies.intact) or any(one.places for one in ordered)
    return tuple(step for one in ordered if (step := _copy_step(one, options, intact_stays=stays)) is not None)


def _copy_step(one: HurtFact, options: RepairOptions, *, intact_stays: bool) -> Step | None:
    if one.places:
        return Step(kind=Kind.REPLACE, generation=one.generation, place=one.places[0], reason=one.reason)
    if one.lost:
        return None
    if options.retire_hurt and intact_stays:
        words = f"no good copy is known, what is left of it is given up: {one.reason}"
        return Step(kind=Kind.RETIRE, generation=one.generation, reason=words)
    words = "no good copy is known" if intact_stays else "no good copy is known, and nothing here is intact"
    return Step(kind=Kind.LEAVE, generation=one.generation, reason=f"{words}: {one.reason}")


def _blocked(log: LogFacts, uploads: Sequence[Candidate], options: RepairOptions) -> CkptierError | None:
    """Return what forbids a repair, if anything does."""
    if log.descent is None:
        return NothingFound(
            "there is no store of this run here, so this machine cannot write to its log",
            hint="repair where the run's store is; `ckptier restore` makes one here",
        )
    return (
        _kept_out(log) or _untrusted(log, options) or _shorter(log, options) or _overtaken(log.descent.attempt, uploads)
    )


def _kept_out(log: LogFacts) -> CkptierError | None:
    reason = log.decision.reason
    if log.decision.standing is Standing.FORKED:
        hint = "keep the line that you want with `ckptier restore --generation ID`; nothing was written"
        return TrustFailure(f"two lines of descent share a number: {reason}", hint=hint)
    if log.decision.standing is not Standing.FENCED:
        return None
    hint = "repair where the run goes on; where that is lost, `ckptier restore` opens a new attempt, which may repair"
    if log.decision.same_attempt and not log.view.damaged:
        hint = "repair where the run goes on; where that is lost: `ckptier takeover --reason TEXT`, then repair"
    return Fenced(f"this store may not write to the log: {reason}", hint=hint)


def _untrusted(log: LogFacts, options: RepairOptions) -> CkptierError | None:
    found = next((one for one in log.view.damaged if not one.trusted), None)
    if found is None or options.void_untrusted:
        return None
    return TrustFailure(
        found.reason,
        hint="damaged, forged, or signed with a key that your keyring lacks: find out which; "
        "only then --unsafe-void-untrusted",
    )


def _shorter(log: LogFacts, options: RepairOptions) -> CkptierError | None:
    if log.not_there is None or options.rebuild_log:
        return None
    seen, end = log.not_there.slot, log.view.next_slot
    if not end:
        return TrustFailure(
            f"the log was rolled back: this store has seen slot {seen}, and nothing of it is there",
            hint="is the volume mounted, and the url right? Only where the log is really gone: --rebuild-log",
        )
    return TrustFailure(
        f"the log was rolled back: this store has seen slot {seen}, "
        f"the tier now ends at slot {end - 1} or holds another entry there",
        hint="find out who put an old state back or removed entries; --rebuild-log goes on from what is intact",
    )


def _overtaken(attempt: int, uploads: Sequence[Candidate]) -> CkptierError | None:
    newer = [one for one in uploads if one.attempt > attempt]
    if not newer:
        return None
    return Fenced(
        f"generations of attempt {newer[0].attempt} lie there, this store is at attempt {attempt}",
        hint="rebuild the log where that attempt runs, or `ckptier restore` it here first",
    )


def _notes(log: LogFacts, uploads: Sequence[Candidate], unnamed: int, options: RepairOptions) -> Iterator[str]:
    lost = bool(log.view.damaged or log.not_there)
    if lost:
        yield PINS
    if lost and unnamed and not options.rebuild_log:
        uploads_lie = "1 upload lies there" if unnamed == 1 else f"{unnamed} uploads lie there"
        yield (
            f"{uploads_lie} that no readable entry names: lost commits, or what a writer left "
            "that was shut out; both look alike. What this store still has goes up again by itself; "
            "--rebuild-log commits those that are complete and intact"
        )
    if log.not_there is not None and not log.view.next_slot and not unnamed:
        yield (
            "nothing of this run lies there: where a volume is not mounted or the url is wrong, "
            "a repair would begin a new log in the wrong place"
        )
    yield from (f"{one.commit.generation} is not committed again: {one.why_not}" for one in uploads if one.why_not)


def attempt_ids(state: LogState | None, own: Mapping[int, str]) -> dict[int, set[str]]:
    """Return the ids under which each attempt is known, by the log and by this store."""
    known: dict[int, set[str]] = {number: {identity} for number, identity in own.items()}
    for attempt in state.attempts if state else ():
        known.setdefault(attempt.number, set()).add(attempt.id)
    return known
