"""What uploads left behind: by whose it is and whether it can still be committed, never by age."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from core.builders import FIRST, REMOTE, SECOND, LocalSource, Machine, make_source
from core.checks import check_complete
from core.intruders import add_entry
from retention.stage import Keep, keep_on

from replicate.errors import IntegrityFailure
from replicate.gc import (
    ADVISORY_FLOOR,
    Fate,
    Found,
    Knowledge,
    OrphanPlan,
    OrphanReport,
    collect,
    plan_orphans,
    survey,
)
from replicate.layout import GenerationId, UploadPrefix
from replicate.leftovers import read_leftovers
from replicate.log import Claim, LogView
from replicate.logbook import Logbook
from replicate.retention import Policy
from tiers.errors import TierUnavailable
from tiers.memory import MemoryTier
from tiers.protocol import Key
from tiers.testing import Fault

NOW = datetime(2026, 6, 1, tzinfo=UTC)


@pytest.fixture
def keep(tmp_path: Path) -> Keep:
    return keep_on(tmp_path, policy=Policy(keep_last=1))


def known(keep: Keep) -> Knowledge:
    """Return what the process that has this tracker knows."""
    tracker = keep.machine.tracker
    return Knowledge(
        given_up={one.prefix: one.reason for one in tracker.abandoned("remote")},
        under_way=frozenset(REMOTE.prefix(one.generation, one.term, one.nonce) for one in tracker.planned("remote")),
    )


def plan(keep: Keep, knowledge: Knowledge | None = None) -> OrphanPlan:
    tier = keep.machine.tier
    found, unknown = survey(tier, REMOTE)
    return plan_orphans(found, unknown, Logbook(tier, REMOTE).read(thorough=True), knowledge or known(keep))


def clear(keep: Keep) -> OrphanReport:
    return collect(keep.machine.tier, plan(keep), keep.machine.tracker, connections=1)


def interrupted(keep: Keep, sequence: int) -> GenerationId:
    """Begin an upload that dies before its manifest."""
    keep.machine.schedule(Fault(verb="put", key="*/manifest.json", times=10**6))
    with pytest.raises(TierUnavailable):
        keep.chain(1, first=sequence)
    keep.restart()
    return max(keep.sources)


def fates(found: OrphanPlan) -> dict[int, Fate]:
    return {one.generation.sequence: one.fate for one in found.judged}


def test_what_is_under_way_here_is_left_alone(keep: Keep) -> None:
    keep.chain(1)
    interrupted(keep, 2)
    assert fates(plan(keep)) == {1: Fate.LIVE, 2: Fate.KEPT}
    assert clear(keep).objects == 0
    keep.check()


def test_what_this_tracker_gave_up_is_collected_and_then_forgotten(keep: Keep) -> None:
    keep.chain(1)
    half = interrupted(keep, 2)
    keep.machine.replication.log.abandon(half, "it failed validation")
    report = clear(keep)
    assert report.objects == 2
    assert keep.keys(half) == []
    assert keep.machine.tracker.abandoned("remote") == ()
    assert clear(keep).objects == 0
    keep.check()


def test_what_a_writer_left_whose_term_is_over_is_collected_by_anybody(keep: Keep) -> None:
    """The tracker is another machine's: the log alone says that it can never be committed."""
    keep.chain(1)
    half = interrupted(keep, 2)
    assert fates(plan(keep, Knowledge())) == {1: Fate.LIVE, 2: Fate.KEPT}
    add_entry(keep.store, Claim(writer="heir"), SECOND, term=2)
    found = plan(keep, Knowledge())
    assert fates(found) == {1: Fate.LIVE, 2: Fate.ORPHAN}
    assert "term 1, the log is at 2" in found.orphans[0].reason
    collect(MemoryTier("remote", keep.store), found, keep.machine.tracker, connections=1)
    assert keep.keys(half) == []
    check_complete(keep.store, keep.sources)


def test_age_alone_collects_nothing(keep: Keep) -> None:
    """A mutant that went by age would delete what a writer that stalled for a week is about to commit."""
    keep.chain(1)
    half = interrupted(keep, 2)
    keep.clock.advance(400 * 86400)
    assert plan(keep, replace(Knowledge(), now=keep.clock.now())).orphans == ()
    keep.machine.run(keep.sources[half])
    assert half in keep.live()
    keep.check()


def test_a_writer_that_slept_through_a_takeover_cannot_commit_what_was_collected(keep: Keep, tmp_path: Path) -> None:
    """C92: it wakes, goes on, and is fenced; no generation is left half there."""
    keep.chain(1)
    half = interrupted(keep, 2)
    heir = Machine(tmp_path / "heir", keep.store, descent=SECOND, writer="heir")
    newer = make_source(tmp_path / "heirs", {"f": b"new"}, sequence=3, parent=min(keep.sources), descent=SECOND)
    heir.run(newer)
    found, unknown = survey(heir.tier, REMOTE)
    collect(heir.tier, plan_orphans(found, unknown, heir.view(), Knowledge()), heir.tracker, connections=1)
    assert keep.keys(half) == []
    keep.machine.descent = FIRST
    with pytest.raises(Exception, match="another writer has taken over"):
        keep.machine.run(keep.sources[half])
    check_complete(keep.store, {**keep.sources, newer.id: newer})
    assert half not in keep.live()
    heir.tracker.close()


def test_what_is_retired_is_not_an_orphan_though_its_term_is_over(keep: Keep) -> None:
    """Its delay is for readers that have begun with it."""
    made = keep.chain(2)
    keep.retire()
    add_entry(keep.store, Claim(writer="heir"), SECOND, term=2)
    found = plan(keep)
    assert fates(found) == {1: Fate.RETIRED, 2: Fate.LIVE}
    clear(keep)
    assert len(keep.keys(made[0])) == 3


def test_two_tries_of_one_generation_are_told_apart(keep: Keep) -> None:
    """The one that was committed stays, the one that was given up goes."""
    keep.chain(1)
    half = interrupted(keep, 2)
    keep.machine.replication.log.abandon(half, "a test")
    keep.machine.run(keep.sources[half])
    judged = [one for one in plan(keep).judged if one.generation == half]
    assert sorted(one.fate for one in judged) == [Fate.LIVE, Fate.ORPHAN]
    clear(keep)
    assert half in keep.live()
    keep.check()


def test_a_damaged_log_collects_nothing(keep: Keep) -> None:
    """The slot may be the commit of what looks like an orphan."""
    keep.chain(2)
    add_entry(keep.store, Claim(writer="heir"), SECOND, term=2)
    tier = MemoryTier("damage", keep.store)
    tier.delete(REMOTE.log(1))
    tier.create(REMOTE.log(1), b"rubbish")
    with pytest.raises(IntegrityFailure, match="slot 1 is damaged"):
        plan(keep)
    tier.delete(REMOTE.log(1))
    with pytest.raises(IntegrityFailure, match="slot 1 is damaged"):
        plan(keep)


def test_a_term_above_the_logs_is_left_alone_and_told(keep: Keep) -> None:
    """Entries are missing: what they committed cannot be known."""
    keep.chain(1)
    key = REMOTE.object(REMOTE.prefix(GenerationId(1, 9, 900, "0" * 8), 7, "n"), "f")
    MemoryTier("x", keep.store).create(key, b"bytes")
    found = plan(keep)
    assert fates(found)[9] is Fate.KEPT
    assert "entries are missing" in found.judged[-1].reason


def test_what_others_put_there_is_counted_and_left(keep: Keep) -> None:
    keep.chain(1)
    tier = MemoryTier("x", keep.store)
    for key in ("llm-7b/generations/readme.txt", "llm-7b/generations/a1.t1-x/y", "llm-7b/checks/z"):
        tier.create(Key(key), b"theirs")
    found = plan(keep)
    assert found.unknown == 2
    clear(keep)
    assert {"llm-7b/generations/readme.txt", "llm-7b/checks/z"} <= set(keep.store.objects)


@pytest.mark.parametrize(
    ("idle", "now", "fate"),
    [
        (ADVISORY_FLOOR, NOW, Fate.ORPHAN),
        (ADVISORY_FLOOR - timedelta(seconds=1), NOW, Fate.KEPT),
        (ADVISORY_FLOOR, None, Fate.KEPT),
        (-ADVISORY_FLOOR, NOW, Fate.KEPT),
    ],
)
def test_where_nothing_fences_writers_only_a_week_without_a_write_counts(
    keep: Keep, idle: timedelta, now: datetime | None, fate: Fate
) -> None:
    """Advisory mode: a higher term proves nothing there, and so it is not asked."""
    keep.chain(1)
    prefix = UploadPrefix(
        text=REMOTE.prefix(GenerationId(1, 9, 900, "0" * 8), 0, "n"),
        generation=GenerationId(1, 9, 900, "0" * 8),
        term=0,
        nonce="n",
    )
    found = Found(prefix=prefix, objects=1, total_bytes=1, newest=NOW - idle)
    view = Logbook(keep.machine.tier, REMOTE).read()
    (judged,) = plan_orphans([found], 0, view, Knowledge(advisory=True, now=now)).judged
    assert judged.fate is fate
    (untold,) = plan_orphans([replace(found, newest=None)], 0, view, Knowledge(advisory=True, now=now)).judged
    assert untold.fate is Fate.KEPT


def test_an_empty_log_makes_nothing_an_orphan() -> None:
    """Its claims may be lost, and what is there may be all that is left of a run."""
    prefix = UploadPrefix(text="p", generation=GenerationId(1, 1, 1, "0" * 8), term=1, nonce="n")
    found = Found(prefix=prefix, objects=1, total_bytes=1, newest=None)
    (judged,) = plan_orphans([found], 0, LogView(state=None), Knowledge()).judged
    assert judged.fate is Fate.KEPT


def test_collecting_that_dies_half_way_is_finished_by_the_next(keep: Keep) -> None:
    keep.chain(1)
    half = interrupted(keep, 2)
    keep.machine.replication.log.abandon(half, "a test")
    keep.restart(Fault(verb="delete", nth=2))
    with pytest.raises(TierUnavailable):
        clear(keep)
    keep.machine.faulty.assert_all_fired()
    assert len(keep.keys(half)) == 1
    assert len(keep.machine.tracker.abandoned("remote")) == 1
    assert clear(keep).objects == 1
    assert keep.machine.tracker.abandoned("remote") == ()


def test_uploads_in_parts_that_were_given_up_are_aborted_too(keep: Keep) -> None:
    keep.machine.settings = {"part_size": 64}
    keep.machine.schedule(Fault(verb="put_part", nth=2, times=10**6))
    with pytest.raises(TierUnavailable):
        keep.chain(1)
    keep.machine.replication.log.abandon(max(keep.sources), "given up")
    assert keep.store.uploads
    assert clear(keep).aborted == 1
    assert keep.store.uploads == {}


def test_an_upload_that_another_takes_the_place_of_is_remembered(keep: Keep, tmp_path: Path) -> None:
    """A part size that changed between two starts: the first upload would be billed for ever."""
    keep.machine.settings = {"part_size": 64}
    keep.machine.schedule(Fault(verb="put_part", nth=2, times=10**6))
    source: LocalSource = make_source(tmp_path / "more", {"model.bin": b"m" * 300}, sequence=1, next_update=100)
    with pytest.raises(TierUnavailable):
        keep.machine.run(source)
    (first,) = keep.store.uploads
    tracker = keep.machine.tracker
    (planned,) = tracker.planned("remote")
    upload = tracker.upload_of("remote", planned.generation, "model.bin", Key("k"), 300)
    assert upload is not None
    another = keep.machine.tier.begin_upload(upload.key, size=300, part_size=100)
    tracker.upload_begun("remote", planned.generation, "model.bin", another)
    assert [one.upload_id for one in tracker.strays("remote")] == [first]


def test_the_tracker_can_be_looked_into_beside_its_owner(keep: Keep) -> None:
    """``gc`` without --apply runs beside a daemon."""
    keep.chain(1)
    half = interrupted(keep, 2)
    (planned,) = keep.machine.tracker.planned("remote")
    folder = keep.machine.local.root
    assert read_leftovers(folder, "remote").planned == {(str(half), planned.term, planned.nonce)}
    keep.machine.replication.log.abandon(half, "a test")
    seen = read_leftovers(folder, "remote")
    assert list(seen.given_up.values()) == ["a test"]
    assert read_leftovers(folder / "absent", "remote").given_up == {}
    (folder / "other").mkdir()
    (folder / "other" / "tracker.sqlite").write_bytes(b"no database at all, and longer than a header")
    assert read_leftovers(folder / "other", "remote").swept == frozenset()
