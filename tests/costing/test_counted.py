"""What the tracker counts, an older tracker that counted less, and the estimate set against the counts."""

import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cli.driver import Project, refused, run_command, volume
from core.builders import generation_record, sealed_bytes
from costing.cards import PLAN, card, write
from costing.stage import PART, Stage
from support.proxy import Action, Fault, When

from cost.ledger import Ending
from replicate.costing.counted import Counts, Kept, intervals_of, read_counts
from replicate.errors import ExitCode, LocalDisk
from replicate.journal import SCHEMA_VERSION
from replicate.layout import GenerationId
from replicate.tracker import Completed, Seen, Tracker, detail_of
from tiers.clock import SystemClock
from tiers.metered import OK, Usage
from tiers.testing import ManualClock

Make = Callable[..., Stage]
OLD_USAGE = """
CREATE TABLE usage(
    day TEXT NOT NULL, tier TEXT NOT NULL, class TEXT NOT NULL, requests INTEGER NOT NULL, bytes_up INTEGER NOT NULL,
    bytes_down INTEGER NOT NULL, PRIMARY KEY(day, tier, class)) STRICT;
CREATE TABLE completed(
    tier TEXT NOT NULL, generation TEXT NOT NULL, slot INTEGER NOT NULL, manifest_sha256 TEXT NOT NULL,
    bytes INTEGER NOT NULL, at TEXT NOT NULL, PRIMARY KEY(tier, generation)) STRICT;
INSERT INTO usage VALUES('2026-01-01', 't', 'A', 7, 100, 0);
PRAGMA user_version = 1;
"""


def generation(sequence: int) -> GenerationId:
    return generation_record([sealed_bytes("f", b"x")], sequence=sequence).generation


def completed(sequence: int, at: str) -> Completed:
    return Completed(generation=generation(sequence), slot=sequence, manifest_sha256="0" * 64, total_bytes=9, at=at)


def counts(folder: Path) -> Counts:
    found = read_counts(folder)
    assert found is not None
    return found


def old_tracker(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "tracker.sqlite")) as db:
        db.executescript(OLD_USAGE)


def test_the_tracker_counts_what_the_meter_did(on_s3: Make) -> None:
    """With a retry, a refusal and a missing key among it: by verb, outcome, bytes up and down."""
    stage = on_s3(part_size=PART)
    assert stage.proxy is not None
    stage.proxy.inject(Fault(operation="PutObject", key="*/files/*", action=Action.DROP, when=When.BEFORE))
    stage.machine.publish(1)
    assert stage.machine.replicate().exit_code == ExitCode.OK
    usage = stage.place.meter.snapshot()
    assert usage.count("put", "TierUnavailable") == 1
    found = counts(stage.machine.config.state)
    assert found.unnamed == 0
    assert {(one.verb, one.outcome): one.requests for one in found.days} == dict(usage.requests)
    assert {(one.verb, one.outcome): one.bytes_up for one in found.days if one.bytes_up} == dict(usage.bytes_up)
    assert sum(one.bytes_down for one in found.days) == usage.bytes_down
    (held,) = found.held("bucket")
    assert held.bytes == stage.record(stage.place.live()[0]).total_bytes


def test_only_an_open_hands_out_bytes() -> None:
    spent = Usage(requests={("open", OK): 2, ("put", OK): 1}, bytes_up={("put", OK): 5}, bytes_down=7)
    assert detail_of(spent) == {("open", OK): (2, 0, 7), ("put", OK): (1, 5, 0)}


def test_a_tracker_of_the_older_schema_goes_on(tmp_path: Path) -> None:
    """Its class counts stay, and what they hide is told instead of priced as nothing."""
    old_tracker(tmp_path)
    before = counts(tmp_path)
    assert (before.unnamed, before.days) == (7, ())
    tracker = Tracker.open(tmp_path, ManualClock())
    assert tracker.rebuilt_from is None
    tracker.add_usage("t", {"A": (2, 30, 0)}, {("put", OK): (2, 30, 0)})
    tracker.close()
    with closing(sqlite3.connect(tmp_path / "tracker.sqlite")) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)
    after = counts(tmp_path)
    assert after.unnamed == 7
    (day,) = after.days
    assert (day.verb, day.outcome, day.requests, day.bytes_up) == ("put", OK, 2, 30)


def test_counts_of_one_day_add_up(tmp_path: Path) -> None:
    tracker = Tracker.open(tmp_path, ManualClock())
    for _ in range(3):
        tracker.add_usage("t", {"B": (1, 0, 4)}, {("open", OK): (1, 0, 4)})
    assert [(one.requests, one.bytes_down) for one in counts(tmp_path).of("t")] == [(3, 12)]
    assert counts(tmp_path).of("other") == ()
    tracker.close()


def test_what_was_retired_keeps_its_age(tmp_path: Path) -> None:
    clock = ManualClock()
    tracker = Tracker.open(tmp_path, clock)
    tracker.complete("t", [completed(1, "2026-01-01T00:00:00.000Z"), completed(2, "2026-01-01T00:00:00.000Z")],
                     Seen(slot=2, sha256="0" * 64))  # fmt: skip
    clock.wait(3600)
    tracker.uncomplete("t", [generation(1)])
    tracker.close()
    found = counts(tmp_path)
    gone = [one for one in found.kept if one.gone_at is not None]
    assert [one.generation for one in gone] == [str(generation(1))]
    assert gone[0].gone_at == clock.now()
    assert [one.generation for one in found.held("t")] == [str(generation(2))]


def test_intervals_of_what_was_kept() -> None:
    at, gone = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    kept = [
        Kept(tier="t", generation="b", bytes=9, at=at, gone_at=None),
        Kept(tier="t", generation="a", bytes=7, at=at, gone_at=gone),
    ]
    found = list(intervals_of(kept, "card/tier", lambda _: None, int(gone.timestamp()) + 60))
    assert [(one.bytes, one.seconds, one.ending) for one in found] == [
        (7, 86_400, Ending.DELETED),
        (9, 86_460, Ending.ALIVE),
    ]


@pytest.mark.parametrize("data", [b"", b"not a database" * 100])
def test_a_tracker_that_cannot_be_read(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "tracker.sqlite").write_bytes(data)
    with pytest.raises(LocalDisk, match="cannot be read"):
        read_counts(tmp_path)


def test_no_tracker_counts_nothing(tmp_path: Path) -> None:
    assert read_counts(tmp_path) is None


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return a project with a volume tier, a card and one replicated generation."""
    folder = tmp_path / "tier"
    folder.mkdir()
    project = Project(folder=tmp_path / "project", tiers={"place": volume(folder)})
    write(project.folder / "card.toml", card())
    project.write(rates="card.toml")
    project.publish(1)
    assert project("replicate", "--once").code == 0
    return project


def lines(result: Any, category: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for line in result["lines"]:
        if line["category"] == category:
            found[line["meter"]] += round(float(line["low"]["quantity"]))
    return found


def test_what_was_counted_is_priced(project: Project) -> None:
    result = project("cost", "estimate", "--actual", "--json").result()
    days = counts(project.local.root).days
    assert sum(lines(result, "requests").values()) == sum(one.requests for one in days) == 13
    assert any("counted by replicating processes" in line for line in result["assumptions"])


def test_the_estimate_is_reconciled_with_the_counts(project: Project) -> None:
    """One generation, committed when it was: every request is accounted for."""
    done = project("cost", "reconcile", "--json")
    rows = done.result()["reconciliation"]["meters"]
    # Storage of a second or two is counted in whole seconds, which may fall on either side of one.
    assert [row["meter"] for row in rows if not row["passed"] and row["category"] != "storage"] == []
    assert done.code in (ExitCode.OK, ExitCode.PARTIAL)
    requests = [row for row in rows if "requests" in row["meter"]]
    assert requests
    assert all(row["expected_quantity"] == row["actual_quantity"] for row in requests)


def test_requests_that_were_not_expected_fail_the_gate(project: Project) -> None:
    tracker = Tracker.open(project.local.root, SystemClock())
    tracker.add_usage("place", {"A": (50, 0, 0)}, {("put", "TierUnavailable"): (0, 0, 0), ("put", OK): (50, 0, 0)})
    tracker.close()
    done = project("cost", "reconcile")
    assert done.code == ExitCode.PARTIAL
    assert project("cost", "reconcile", "--json").document()["exit_code"] == 3


def test_example_cards_are_no_bill(project: Project) -> None:
    write(project.folder / "card.toml", card(kind="example"))
    project.refused(ExitCode.CONFIG, "cost", "reconcile").says("example rates are nobody's bill")


def test_nothing_was_counted_yet(tmp_path: Path) -> None:
    project = Project(folder=tmp_path / "new", tiers={"place": volume(tmp_path)})
    write(project.folder / "card.toml", card())
    project.write(rates="card.toml")
    project.refused(ExitCode.NOTHING, "cost", "estimate", "--actual")


def test_an_estimate_from_the_configuration(project: Project) -> None:
    """The newest generation is measured; its cadence is not known, and asked for."""
    project.refused(ExitCode.USAGE, "cost", "estimate").says("--every")
    done = project("cost", "estimate", "--every", "1h", "--for", "10h", "--json")
    assert done.code == 0
    found = lines(done.result(), "requests")
    objects = 2
    assert found["shop/standard/requests/write"] == 10 * (objects + 2) + 3
    assert found["shop/standard/requests/read"] == 10 * (objects + 2) + 1 + 1 + 9
    named = project(
        "cost", "estimate", "--every", "1h", "--for", "10h", "--keep-last", "1", "--restores", "1", "--json"
    )
    restored = lines(named.result(), "requests")["shop/standard/requests/read"] - found["shop/standard/requests/read"]
    assert restored == 1 + 11 + 1 + 1 + objects, "hint, eleven entries, the end of the log, manifest, leaves"


def test_without_a_card_nothing_is_estimated(project: Project) -> None:
    project.write()
    done = project.refused(ExitCode.CONFIG, "cost", "estimate", "--every", "1h", "--for", "10h")
    done.says("no rate card is named, and none is ever assumed")
    named = ("--rates", str(project.folder / "card.toml"))
    assert project("cost", "estimate", "--every", "1h", "--for", "10h", *named).code == 0


def test_updates_have_to_be_known_where_a_tier_counts_in_them(project: Project) -> None:
    project.write(rates="card.toml", replicate_every=100)
    spans = ("--every", "1h", "--for", "10h")
    project.refused(ExitCode.CONFIG, "cost", "estimate", *spans).says("--updates")
    result = project("cost", "estimate", *spans, "--updates", "30", "--json").result()
    assert any("replicate_every = 100 updates is taken as every 4. generation" in one for one in result["assumptions"])


def test_a_plan_is_reconciled_with_the_counts(project: Project, tmp_path: Path) -> None:
    write(tmp_path / "plan.toml", PLAN.replace('rates = ["card.toml"]\n', ""))
    done = project("cost", "reconcile", str(tmp_path / "plan.toml"))
    assert done.code == ExitCode.PARTIAL, "another run, in another month"


def test_another_tiers_card_is_never_taken(project: Project, tmp_path: Path) -> None:
    """A tier without a card is not priced by its neighbour's."""
    (tmp_path / "more").mkdir()
    text = project.config.read_text() + f'\n[[tier]]\nname = "more"\nurl = "file://{tmp_path / "more"}"\n'
    project.config.write_text(text)
    spans = ("--every", "1h", "--for", "2h")
    project.refused(ExitCode.CONFIG, "cost", "estimate", *spans).says("tier more has no rate card")
    assert project("cost", "estimate", *spans, "--tier", "place").code == 0
    other = write(tmp_path / "other.toml", card(name="other").replace('region = "here"', 'region = "there"'))
    result = project("cost", "estimate", *spans, "--rates", str(other), "--json").result()
    assert {line["meter"].partition("/")[0] for line in result["lines"]} == {"shop", "other"}


def test_the_card_is_needed_where_a_tier_names_one_that_is_gone(project: Project) -> None:
    (project.folder / "card.toml").unlink()
    done = run_command("cost", "estimate", "--every", "1h", "--for", "2h", "--config", str(project.config))
    assert done.code == ExitCode.CONFIG
    refused(ExitCode.CONFIG, "cost", "estimate", "--actual", "--config", str(project.config))
