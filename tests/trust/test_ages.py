"""How old the newest commit may be: by the writer's clock and the store's, whichever makes it older."""

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from support import commits
from support.commits import AT, REMOTE, RUN, Restore, Writer, flip, keys, seal_local, tamper
from trust.stage import made

from replicate.errors import CkptierError, TrustFailure, UsageError
from replicate.layout import GenerationId, LocalRun
from replicate.logbook import Logbook
from replicate.restore import RestoreReport, RestoreRequest, restore
from replicate.restore.freshness import Freshness, parse_duration, parse_minimum
from replicate.signing.trust import LogTrust
from tiers.memory import MemoryTier
from tiers.protocol import Key, ObjectInfo
from tiers.testing.manual_clock import ManualClock

HOUR = 3600.0
COMMITTED = datetime.fromisoformat(AT)


class Dated(MemoryTier):
    """A store whose clock says that everything was written ``written`` ago, or says nothing."""

    written: datetime | None = None
    asked = 0

    def stat(self, key: Key) -> ObjectInfo:
        self.asked += 1
        return replace(super().stat(key), modified=self.written)


def clock_at(now: datetime) -> ManualClock:
    return ManualClock(start=now)


@pytest.fixture
def tier() -> Dated:
    found = Dated("a")
    Writer(found).commit(made(1))
    return found


@pytest.fixture
def aged(tmp_path: Path) -> Restore:
    """Return a restore at a time after the commit, with what is known of the newest."""

    def run(*tiers: Dated, after: timedelta, **known: object) -> RestoreReport:
        fresh = Freshness(**known)  # type: ignore[arg-type]
        request = RestoreRequest(to=tmp_path / "to", fresh=fresh)
        local = LocalRun(tmp_path / "runs" / RUN)
        return restore(request, tiers, local, clock_at(COMMITTED + after), remote=REMOTE)

    return run


def test_a_commit_that_is_young_enough_is_restored(aged: Restore, tier: Dated) -> None:
    assert aged(tier, after=timedelta(minutes=59), max_age=HOUR).generation == made(1).id
    assert tier.asked == 1, "one HEAD, for the store's own time"


def test_a_commit_that_is_too_old_is_refused_with_its_age(aged: Restore, tier: Dated, tmp_path: Path) -> None:
    with pytest.raises(TrustFailure, match=r"3\.0 h old, and at most 1\.0 h were asked for") as refused:
        aged(tier, after=timedelta(hours=3), max_age=HOUR)
    assert "--max-age" in refused.value.hint
    assert not (tmp_path / "to").exists()


def test_the_stores_clock_counts_where_it_makes_it_older(aged: Restore, tier: Dated) -> None:
    """A writer whose clock was ahead: the store remembers when the entry really came."""
    tier.written = COMMITTED - timedelta(hours=5)
    with pytest.raises(TrustFailure, match=r"5\.0 h old"):
        aged(tier, after=timedelta(0), max_age=HOUR)


def test_the_stores_clock_cannot_make_it_younger(aged: Restore, tier: Dated) -> None:
    """Whoever put the old state back wrote it just now."""
    tier.written = COMMITTED + timedelta(days=9)
    with pytest.raises(TrustFailure, match=r"9\.0 days old"):
        aged(tier, after=timedelta(days=9), max_age=HOUR)


def test_a_clock_that_is_wrong_is_told(aged: Restore, tier: Dated) -> None:
    with pytest.raises(TrustFailure, match="one of the clocks is wrong"):
        aged(tier, after=-timedelta(days=2), max_age=HOUR)
    assert aged(tier, after=-timedelta(seconds=200), max_age=HOUR).generation == made(1).id


def test_one_tier_that_is_up_to_date_is_enough(aged: Restore, tier: Dated) -> None:
    """A tier of milestones is always behind; what another shows of today proves that nothing is hidden there."""
    tier.written = COMMITTED - timedelta(days=30)
    young = Dated("b")
    Writer(young).commit(made(2))
    assert aged(tier, young, after=timedelta(minutes=1), max_age=HOUR).generation == made(2).id


def test_nothing_is_asked_where_no_age_is(aged: Restore, tier: Dated) -> None:
    aged(tier, after=timedelta(days=900))
    assert tier.asked == 0


def test_the_trust_root_can_say_it(tmp_path: Path, tier: Dated) -> None:
    """``max_age_seconds`` holds where no ``--max-age`` is given; what is given counts, also if it is longer."""
    local = LocalRun(tmp_path / "runs" / RUN)
    root = replace(REMOTE, trust=LogTrust(max_age=HOUR))
    late = clock_at(COMMITTED + timedelta(hours=3))
    with pytest.raises(TrustFailure, match="hiding"):
        restore(RestoreRequest(to=tmp_path / "to"), [tier], local, late, remote=root)
    longer = RestoreRequest(to=tmp_path / "to", fresh=Freshness(max_age=4 * HOUR))
    assert restore(longer, [tier], local, late, remote=root).generation == made(1).id
    named = RestoreRequest(to=tmp_path / "named", generation=made(1).id)
    assert restore(named, [tier], local, late, remote=root).generation == made(1).id, "named: no question of the newest"
    fresh = restore(RestoreRequest(if_absent=True, fresh_ok=True), [Dated("c")], local, late, remote=root)
    assert fresh.outcome == "fresh", "a first start has no age"


def test_a_minimum_counts_for_what_is_in_the_store_too(tmp_path: Path, tier: Dated) -> None:
    local = LocalRun(tmp_path / "runs" / RUN)
    seal_local(local, made(1))
    request = RestoreRequest(to=tmp_path / "to", fresh=Freshness(minimum=2))
    with pytest.raises(TrustFailure, match="as new as 2"):
        restore(request, [tier], local, clock_at(COMMITTED), remote=REMOTE)
    Writer(tier, view=Logbook(tier, REMOTE).read(), serial=5).commit(made(2))
    assert restore(request, [tier], local, clock_at(COMMITTED), remote=REMOTE).generation == made(2).id


def test_durations_and_minimums() -> None:
    spelled = {
        "90": 90,
        "90s": 90,
        "30m": 1800,
        "30min": 1800,
        "12h": 43200,
        "7d": 604800,
        "1.5h": 5400,
        " 2 d ": 172800,
    }
    assert {text: parse_duration(text) for text in spelled} == spelled
    for wrong in ("", "h", "0", "-3h", "3w", "1e9", "12h30m", "nan"):
        with pytest.raises(UsageError, match="not a duration"):
            parse_duration(wrong)
    assert parse_minimum("12") == 12
    identity = GenerationId.parse("a0002-g000006-u000000000220-1f3a9c2e")
    assert parse_minimum(str(identity)) == identity
    with pytest.raises(UsageError):
        parse_minimum("-1")
    fresh = Freshness(minimum=identity)
    assert fresh.reaches(replace(identity, attempt=3, sequence=1))
    assert not fresh.reaches(replace(identity, sequence=5))


def test_a_fallback_is_not_older_than_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hurting the newest must not bring about what hiding it could not."""
    tier = MemoryTier("a")
    writer = Writer(tier)
    writer.commit(made(1))
    monkeypatch.setattr(commits, "AT", "2026-02-01T00:00:00.000Z")
    prefix = writer.commit(made(2))
    tamper(tier, keys(tier, made(2), prefix)["model.bin"], flip(3))
    clock = ManualClock(start=datetime.fromisoformat("2026-02-01T00:10:00+00:00"))
    request = RestoreRequest(to=tmp_path / "to", fresh=Freshness(max_age=HOUR))
    with pytest.raises(CkptierError) as caught:
        restore(request, (tier,), LocalRun(tmp_path / "runs" / RUN), clock, remote=REMOTE)
    assert str(made(2).id) in caught.value.message
    assert not (tmp_path / "to").exists()
