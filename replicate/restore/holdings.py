"""What tiers and the store say before a restore is planned."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from replicate import canonical
from replicate.errors import CkptierError, from_tier_error
from replicate.generation.evidence import Level
from replicate.generation.lineage import read_lineage
from replicate.generation.local import LocalGeneration, scan_generations
from replicate.layout import GenerationId, LocalRun, RemoteRun
from replicate.log import Attempt, LogView
from replicate.logbook import Logbook, RolledBack
from replicate.manifest import GenerationRecord
from replicate.restore.freshness import Freshness
from replicate.restore.plan import Held, HeldGeneration, TierAnswer
from replicate.restore.sources import LocalSource, Source
from replicate.statusfile import read_status
from tiers.errors import TierError
from tiers.protocol import Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """The store's generations: what counts for planning, and every readable one for its bytes."""

    held: Held
    readable: tuple[LocalGeneration, ...]
    fault: str | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """Why the store was left out, if it was."""
        return (self.fault,) if self.fault else ()

    @property
    def contents(self) -> list[tuple[Path, GenerationRecord]]:
        """Folders of files with their records, for reuse by digest."""
        return [(generation.files, generation.record) for generation in self.readable]

    def sources(self, generation: GenerationId) -> list[Source]:
        """Return what the store may deliver: the generation's own files, then equal ones of others."""
        own = self.find(generation)
        mine: list[Source] = [LocalSource.of([(own.files, own.record)])] if own else []
        return [*mine, LocalSource.of(self.contents)]

    def find(self, generation: GenerationId) -> LocalGeneration | None:
        """Return a readable generation, whatever else is wrong with it."""
        return next((held for held in self.readable if held.id == generation), None)


def read_holdings(local: LocalRun) -> Holdings:
    """Look through the store; nothing is created where there is none."""
    if not local.root.is_dir():
        return Holdings(held=Held(), readable=())
    lineage = read_lineage(local)
    found: list[HeldGeneration] = []
    readable: list[LocalGeneration] = []
    for generation in scan_generations(local):
        described = _describe(generation)
        found.append(described)
        if described.objects or described.fault is None:
            readable.append(generation)
    attempts = {(each.record.attempt, each.record.attempt_id) for each in readable}
    held = Held(
        run_uid=lineage.run_uid if lineage else None,
        attempt=lineage.highest_attempt if lineage else 0,
        sequence=max((lineage.highest_sequence if lineage else 0), *(each.id.sequence for each in readable), 0),
        attempts=tuple(Attempt(number=number, id=identity) for number, identity in sorted(attempts)),
        generations=tuple(found),
        remembered=_remembered(local),
    )
    return Holdings(held=held, readable=tuple(readable))


def _remembered(local: LocalRun) -> tuple[tuple[str, int], ...]:
    """Return the slots that the replicating process recorded; a damaged record remembers nothing."""
    try:
        status = read_status(local)
    except CkptierError:
        return ()
    return tuple((tier.name, tier.newest.slot) for tier in status.tiers if tier.newest) if status else ()


def _describe(generation: LocalGeneration) -> HeldGeneration:
    try:
        record = generation.record
    except CkptierError as error:
        return HeldGeneration(id=generation.id, total_bytes=0, objects=0, fault=error.message)
    sealed = generation.evidence.record_sha256 if generation.evidence else None
    other = sealed not in (None, canonical.sha256(generation.record_bytes))
    fault = "its generation.json is not the one that was sealed" if other else None
    if generation.level is Level.QUARANTINED:
        reason = generation.evidence.reason if generation.evidence else ""
        fault = f"quarantined: {reason or 'no reason recorded'}"
    return HeldGeneration(id=generation.id, total_bytes=record.total_bytes, objects=len(record.files), fault=fault)


def ask(
    tiers: Sequence[Tier], remote: RemoteRun, *, thorough: bool = False, fresh: Freshness | None = None
) -> list[TierAnswer]:
    """Read the log of every tier; one that fails does not stop the others.

    ``thorough`` looks for lost entries, and ``fresh`` for what it takes to tell how new a log is.
    """
    return [_ask(tier, remote, thorough=thorough, fresh=fresh or Freshness()) for tier in tiers]


def _ask(tier: Tier, remote: RemoteRun, *, thorough: bool, fresh: Freshness) -> TierAnswer:
    book = Logbook(tier, remote)
    rollback: RolledBack | None = None
    try:
        try:
            view = book.read(thorough=thorough)
        except RolledBack as error:
            rollback, view = error, error.view
        empty = view.next_slot == 0 and not view.damaged
        page = tier.list_objects(f"{remote.run}/generations/") if empty else None
        anchored = any(book.holds(view, anchor) for anchor in fresh.anchors)
        written = _written(book, view) if fresh.max_age is not None else None
    except TierError as error:
        return TierAnswer(tier=tier.name, failure=from_tier_error(error))
    except CkptierError as error:
        return TierAnswer(tier=tier.name, failure=error)
    stray = page.objects[0].key if page and page.objects else None
    return TierAnswer(tier=tier.name, view=view, stray=stray, rollback=rollback, anchored=anchored, written=written)


def _written(book: Logbook, view: LogView) -> datetime | None:
    """Return when the newest commit was written, by the store's clock."""
    newest = view.state.newest if view.state else None
    return book.written_at(newest.slot) if newest else None
