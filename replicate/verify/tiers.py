"""Verifying one run on one tier: the log, every committed generation, and what else lies there."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from replicate.errors import NothingFound, from_tier_error
from replicate.layout import GenerationId, RemoteRun
from replicate.log import LiveCommit, LogView, Verdict
from replicate.logbook import Logbook, RolledBack
from replicate.verify.checking import Checker
from replicate.verify.crew import work_through
from replicate.verify.early import early_faults
from replicate.verify.findings import Finding, GenerationVerdict, Note, NoteKind, VerifyReport
from replicate.verify.shares import NOTHING, Picker, Share, pick_by_seed, pick_nothing
from replicate.verify.strays import beside, head_note
from tiers.errors import TierError
from tiers.protocol import Tier

_REFUSED = {
    Verdict.STALE_TERM: "written by who no longer held the term",
    Verdict.FOREIGN_PREFIX: "names objects of another term",
    Verdict.UNRELATED: "of another run",
    Verdict.REPEATED: "repeats a commit that stands",
    Verdict.PINNED: "retires what was pinned before",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What verifying a tier came to: the report, the log as it was read, and whether all that was asked for came."""

    report: VerifyReport
    view: LogView
    answered: bool


def verify(
    tier: Tier, remote: RemoteRun, *, read_data: Share | None = None, only: GenerationId | None = None, seed: int = 0
) -> VerifyReport:
    """Verify one run on one tier; raises CkptierError where not even the log can be read.

    ``read_data`` is the share of the bytes that is read and hashed; None reads none.  With
    ``seed`` counted up, successive calls read successive parts until all was read.
    """
    picker = pick_by_seed(read_data, seed) if read_data is not None else pick_nothing
    return look(tier, remote, picker=picker, only=only).report


def look(
    tier: Tier,
    remote: RemoteRun,
    *,
    picker: Picker = pick_nothing,
    only: GenerationId | None = None,
    workers: int = 1,
) -> Looked:
    """Verify one run on one tier, ``workers`` requests at a time; see ``verify``."""
    try:
        book = Logbook(tier, remote)
        view, rollback = _log(book)
        commits = [commit for commit in view.live if only in (None, commit.id)]
        if only is not None and not commits:
            raise NothingFound(f"{only} is not on {tier.name}", hint="`ckptier list` shows what is where")
        checkers = _checked(tier, remote, view, commits, picker, workers)
        faults = early_faults(book, view, workers) if picker is not pick_nothing and only is None else ()
        notes = () if only is not None else tuple(_notes(book, view, checkers))
    except TierError as error:
        raise from_tier_error(error) from error
    report = VerifyReport(
        tier=tier.name,
        damaged=view.damaged,
        refused=view.refused,
        generations=tuple(checker.verdict() for checker in checkers),
        faults=faults,
        rollback=rollback,
        notes=(*notes, *(note for checker in checkers for note in checker.notes)),
    )
    return Looked(report=report, view=view, answered=all(checker.answered for checker in checkers))


def look_at(tier: Tier, remote: RemoteRun, view: LogView, commit: LiveCommit) -> GenerationVerdict:
    """Verify one committed generation by its manifest and by what the tier says of each object; reads no data."""
    checker = Checker(tier, remote, view.state.run_uid if view.state else "", commit)
    work_through([partial(checker.begin, NOTHING)], 1)
    return checker.verdict()


def _log(book: Logbook) -> tuple[LogView, RolledBack | None]:
    """Read the log, with what this machine knows against it: one that was rolled back is looked at all the same."""
    try:
        return book.read(thorough=True), None
    except RolledBack as error:
        return error.view, error


def _checked(
    tier: Tier, remote: RemoteRun, view: LogView, commits: Sequence[LiveCommit], picker: Picker, workers: int
) -> list[Checker]:
    portion = picker([(commit.id, commit.total_bytes) for commit in commits])
    run_uid = view.state.run_uid if view.state else ""
    checkers = [Checker(tier, remote, run_uid, commit) for commit in commits]
    work_through((partial(checker.begin, portion) for checker in checkers), workers)
    return checkers


def _notes(book: Logbook, view: LogView, checkers: Sequence[Checker]) -> Iterator[Note]:
    """Yield what hurts nothing: what counts for nothing, a wrong hint, and what lies there beside the generations."""
    for damage in view.voided:
        text = f"log slot {damage.slot} was damaged, and a repair has given it up: {damage.reason}"
        yield Note(kind=NoteKind.VOIDED, text=text)
    for slot, verdict in view.refused:
        text = f"log slot {slot} counts for nothing: {_REFUSED.get(verdict, verdict)}"
        yield Note(kind=NoteKind.REFUSED, text=text)
    hurt = {checker.commit.id for checker in checkers if checker.verdict().verdict is not Finding.INTACT}
    try:
        yield from head_note(book, view)
        yield from beside(book, view, [checker.commit for checker in checkers], hurt)
    except TierError as error:
        text = f"what else lies there is not known: {error.message}"
        yield Note(kind=NoteKind.UNLISTED, text=text)
