"""What really was asked of the tiers, as the tracker counted it by day, and what they hold because of it.

Read beside a process that replicates, without a lock and without changing anything.  The
counts are those of replicating processes: what ``restore`` and ``verify`` ask for is not
in them.
"""

import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from urllib.parse import quote

from cost.ledger import Ending, Interval, Reason
from cost.schedule import ObjectGroup
from cost.usage import Retrieval, Usage
from replicate.asked import Asked, Requests
from replicate.costing.forecast import NO_ZONE
from replicate.costing.places import Place, Shape
from replicate.costing.usage import UPLOAD, used, wire
from replicate.errors import LocalDisk


@dataclass(frozen=True, slots=True, kw_only=True)
class DayCount:
    """What was asked of one tier on one day (UTC) by one verb with one outcome."""

    day: date
    tier: str
    verb: str
    outcome: str
    requests: int
    bytes_up: int
    bytes_down: int

    @property
    def asked(self) -> Asked:
        """The same as planned requests are."""
        return Asked(verb=self.verb, outcome=self.outcome, count=self.requests, up=self.bytes_up, down=self.bytes_down)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A generation on a tier, from its commit on; ``gone_at`` is None while it is there."""

    tier: str
    generation: str
    bytes: int
    at: datetime
    gone_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class Counts:
    """All that was counted.  ``unnamed`` requests were counted by class only, by an older version."""

    days: tuple[DayCount, ...]
    kept: tuple[Kept, ...]
    unnamed: int

    def of(self, tier: str, since: date | None = None) -> tuple[DayCount, ...]:
        """Return the counts of a tier."""
        return tuple(each for each in self.days if each.tier == tier and (since is None or each.day >= since))

    def held(self, tier: str) -> tuple[Kept, ...]:
        """Return what a tier holds now."""
        return tuple(each for each in self.kept if each.tier == tier and each.gone_at is None)


def read_counts(folder: Path) -> Counts | None:
    """Read the tracker in ``folder``; None where there is none.  Raises LocalDisk where it cannot be read."""
    path = folder / "tracker.sqlite"
    if not path.is_file():
        return None
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=2)) as db:
            return _counts(db)
    except (sqlite3.Error, ValueError) as error:
        raise LocalDisk(
            f"the tracker {path} cannot be read: {error}", hint="`ckptier replicate` checks and repairs it"
        ) from error


def _counts(db: sqlite3.Connection) -> Counts:
    (version,) = db.execute("PRAGMA user_version").fetchone()
    by_class = db.execute("SELECT coalesce(sum(requests), 0) FROM usage").fetchone()[0]
    if version < 2:  # noqa: PLR2004 - the first schema with verbs
        return Counts(
            days=(), kept=tuple(_kept(db, "SELECT tier, generation, bytes, at, NULL FROM completed")), unnamed=by_class
        )
    rows = db.execute("SELECT day, tier, verb, outcome, requests, bytes_up, bytes_down FROM request ORDER BY day, tier")
    days = tuple(
        DayCount(
            day=date.fromisoformat(day),
            tier=tier,
            verb=verb,
            outcome=outcome,
            requests=requests,
            bytes_up=up,
            bytes_down=down,
        )
        for day, tier, verb, outcome, requests, up, down in rows
    )
    kept = _kept(
        db,
        "SELECT tier, generation, bytes, at, NULL FROM completed "
        "UNION ALL SELECT tier, generation, bytes, at, gone_at FROM retired",
    )
    return Counts(days=days, kept=tuple(kept), unnamed=by_class - sum(each.requests for each in days))


def _kept(db: sqlite3.Connection, query: str) -> Iterator[Kept]:
    for tier, generation, size, at, gone in db.execute(query):
        yield Kept(
            tier=tier,
            generation=generation,
            bytes=size,
            at=datetime.fromisoformat(at),
            gone_at=None if gone is None else datetime.fromisoformat(gone),
        )


def usage_of(counts: Iterable[DayCount], place: Place) -> Usage:
    """Return one tier's counts as usage, day by day, every attempt with its status."""
    by_day: dict[date, list[DayCount]] = defaultdict(list)
    for each in counts:
        by_day[each.day].append(each)
    usage = Usage()
    for day, rows in sorted(by_day.items()):
        at = int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())
        requests = Requests.of(row.asked for row in rows)
        legs = []
        if place.route is not None:
            legs = [
                place.route.sent(place.ref, requests.up, at),
                place.route.received(place.ref, requests.down, at, UPLOAD),
            ]
        taken = Retrieval(tier=place.ref, bytes=requests.down, objects=0, at=at, label=UPLOAD)
        usage = usage + Usage(
            requests=used(place.ref, wire(requests, place.traits), at, label=UPLOAD),
            transfers=tuple(leg for leg in legs if leg.bytes),
            retrievals=(taken,) if place.meters_reads and requests.down else (),
        )
    return usage


def intervals_of(kept: Iterable[Kept], ref: str, shape: Shape, until: int) -> Iterator[Interval]:
    """Yield what lay there and when; a generation that nobody knows the files of counts as one object."""
    ordered = sorted(kept, key=lambda each: (each.at, each.generation))
    for ordinal, each in enumerate(ordered, 1):
        start = int(each.at.timestamp())
        end = until if each.gone_at is None else int(each.gone_at.timestamp())
        for group in shape(each.generation) or (ObjectGroup(bytes=each.bytes),):
            yield Interval(
                tier=ref,
                bytes=group.bytes,
                objects=group.count,
                start=start,
                end=max(start, end),
                reason=Reason.LAST_K,
                ending=Ending.ALIVE if each.gone_at is None else Ending.DELETED,
                entered=start,
                created=start,
                generation=ordinal,
            )


def notes_of(counts: Counts, places: Sequence[Place]) -> tuple[str, ...]:
    """Return what the counts leave out."""
    notes = ["counted by replicating processes: what restores and verifications ask for is not in it"]
    if counts.unnamed:
        notes.append(f"{counts.unnamed} requests that an older version counted by class only are not priced")
    notes += [f"{place.name}: {NO_ZONE}" for place in places if place.route is None]
    return tuple(notes)
