"""Where a store stands in the descent of its run: ``lineage.json``.

The file is what keeps a store in its own history.  It is replaced durably, under
the store's lock, before anything that depends on it appears.
"""

import secrets
from typing import Annotated, Literal

from pydantic import Field

from replicate import canonical
from replicate.errors import CkptierError, IntegrityFailure, TrustFailure
from replicate.generation.disk import make_directory, read_document, write_durably
from replicate.generation.locks import held
from replicate.layout import MAX_ATTEMPT, MAX_SEQUENCE, GenerationId, LocalRun, RunName, new_nonce
from replicate.manifest import Count, Record, Text, parse
from tiers.clock import Clock, rfc3339

MAX_LINEAGE_BYTES = 16 * 1024 * 1024


class RestoredFrom(Record):
    """Which copy an attempt was restored from; ``slot`` is that of its commit entry."""

    tier: Text
    generation: Text
    slot: Count | None = None


class PastAttempt(Record):
    """An earlier attempt of this store."""

    number: Count
    id: Text
    parent: Text | None


class Lineage(Record):
    """``lineage.json``.  ``parent`` is the generation that the attempt starts from; None for a fresh run."""

    format: Literal[1] = 1
    run: Text
    run_uid: Text
    attempt: Annotated[int, Field(ge=1)]
    attempt_id: Text
    parent: Text | None = None
    restored_from: RestoredFrom | None = None
    highest_attempt: Count
    highest_sequence: Count
    opened_at: Text
    history: Annotated[tuple[PastAttempt, ...], Field(strict=False)] = ()

    def encode(self) -> bytes:
        """Return the bytes of ``lineage.json``."""
        return canonical.dump(self.model_dump(mode="json")) + b"\n"

    def parent_of_attempt(self, number: int) -> str | None:
        """Return the generation that an attempt started from; None where it is unknown or a fresh start."""
        if number == self.attempt:
            return self.parent
        return next((past.parent for past in self.history if past.number == number), None)


def read_lineage(local: LocalRun) -> Lineage | None:
    """Read it; None for a store that never published.  A damaged one raises, and nothing is guessed."""
    data = read_document(local.lineage, MAX_LINEAGE_BYTES)
    if data is None:
        _refuse_orphans(local)
        return None
    try:
        return parse(Lineage, data, what=str(local.lineage), max_bytes=MAX_LINEAGE_BYTES)
    except IntegrityFailure as error:
        raise IntegrityFailure(error.message, hint=_recovery(local)) from error


def _refuse_orphans(local: LocalRun) -> None:
    """Refuse generations without a lineage: copied here, or the file was lost; their attempt is not known."""
    found = next(local.generations.glob("a*-g*-u*"), None)
    if found is not None:
        raise IntegrityFailure(
            f"{local.lineage} is missing beside generations such as {found.name}", hint=_recovery(local)
        )


def _recovery(local: LocalRun) -> str:
    return f"put the file back from a copy; else move {local.root} away and run `ckptier restore` into an empty store"


def open_first(local: LocalRun, clock: Clock, *, run: RunName) -> Lineage:
    """Return the lineage of a store, opening attempt 1 under a new random run_uid if there is none."""
    make_directory(local.root, settle=True)
    with held(local.lock):
        return _existing_or_first(local, clock, run)


def open_attempt(
    local: LocalRun,
    clock: Clock,
    *,
    run: RunName,
    run_uid: str,
    seen_attempt: int,
    seen_sequence: int,
    parent: GenerationId,
    restored_from: RestoredFrom | None,
) -> Lineage:
    """Open an attempt that continues from ``parent``: its number is above all that were seen anywhere.

    Durable when it returns, and called before the restored generation appears, so that
    nothing published afterwards can be taken for a continuation of the old attempt.
    Raises TrustFailure where the store holds another run.
    """
    make_directory(local.root, settle=True)
    with held(local.lock):
        own = read_lineage(local)
        if own is not None and own.run_uid != run_uid:
            raise TrustFailure(
                f"{local.root} holds the run {own.run_uid}, not {run_uid}",
                hint="restore into another store, or give this run another name",
            )
        number = max(seen_attempt, own.highest_attempt if own else 0) + 1
        sequence = max(seen_sequence, parent.sequence, own.highest_sequence if own else 0)
        if number > MAX_ATTEMPT or sequence >= MAX_SEQUENCE:
            raise TrustFailure(
                f"no number is left after attempt {number - 1} and sequence {sequence}: somebody else wrote those",
                hint="`ckptier list` shows what the tiers say; restore with --to DIR, and give the run another name",
            )
        opened = Lineage(
            run=run,
            run_uid=run_uid,
            attempt=number,
            attempt_id=new_nonce(),
            parent=str(parent),
            restored_from=restored_from,
            highest_attempt=number,
            highest_sequence=sequence,
            opened_at=rfc3339(clock.now()),
            history=(*own.history, PastAttempt(number=own.attempt, id=own.attempt_id, parent=own.parent))
            if own
            else (),
        )
        write_durably(local.lineage, opened.encode())
        return opened


def allocate(local: LocalRun, clock: Clock, *, run: RunName, present: int) -> Lineage:
    """Take the next sequence, durably; the result's ``highest_sequence`` is the one taken.

    ``present`` is the highest sequence found in the store.  The caller holds the store's
    lock.  A publication that fails afterwards leaves a gap, never a number used twice.
    """
    lineage = _existing_or_first(local, clock, run)
    sequence = max(lineage.highest_sequence, present) + 1
    taken = lineage.model_copy(update={"highest_sequence": sequence})
    write_durably(local.lineage, taken.encode())
    return taken


def _existing_or_first(local: LocalRun, clock: Clock, run: RunName) -> Lineage:
    lineage = read_lineage(local)
    if lineage is None:
        lineage = Lineage(
            run=run,
            run_uid=secrets.token_hex(16),
            attempt=1,
            attempt_id=new_nonce(),
            highest_attempt=1,
            highest_sequence=0,
            opened_at=rfc3339(clock.now()),
        )
        write_durably(local.lineage, lineage.encode())
    elif lineage.run != run:
        raise CkptierError(
            f"{local.lineage} belongs to the run {lineage.run!r}, not {run!r}",
            hint="the folder of a run carries its name: rename it back, or publish into another one",
        )
    return lineage
