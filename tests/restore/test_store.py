"""Restoring into the store: the same id again, a new attempt, and only ever its own history."""

from pathlib import Path

import pytest
from support.commits import (
    AT,
    REMOTE,
    RUN,
    RUN_UID,
    Made,
    Restore,
    Writer,
    expected,
    flip,
    generation,
    keys,
    make,
    payload,
    seal_local,
    tamper,
    tree,
)

from replicate import RunStore
from replicate.errors import Fenced, IntegrityFailure, NothingFound, TrustFailure, Unreachable
from replicate.generation.evidence import Evidence, Level, write_evidence
from replicate.generation.lineage import Lineage, open_attempt, read_lineage
from replicate.layout import GenerationId, LocalRun
from replicate.log import LiveCommit
from replicate.logbook import Logbook
from replicate.restore import Outcome
from replicate.restore.staging import Place, locked
from replicate.statusfile import Replica, StatusFile, TierStatus
from replicate.verify import Share, verify_local
from tiers import effects
from tiers.memory import MemoryTier
from tiers.protocol import Key
from tiers.testing.faulty import Fault, FaultyTier
from tiers.testing.manual_clock import ManualClock


def lineage_of(local: LocalRun) -> Lineage:
    lineage = read_lineage(local)
    assert lineage is not None
    return lineage


def start_lineage(local: LocalRun, clock: ManualClock, parent: Made, *, run_uid: str = RUN_UID) -> None:
    """Give a hand-made store a lineage, at attempt 1."""
    open_attempt(
        local,
        clock,
        run=RUN,
        run_uid=run_uid,
        seen_attempt=0,
        seen_sequence=parent.id.sequence,
        parent=parent.id,
        restored_from=None,
    )


def files_of(local: LocalRun, identity: GenerationId) -> Path:
    return local.generation(identity) / "files"


def commit_of(writer: Writer, made: Made) -> LiveCommit:
    assert writer.view.state is not None
    commit = writer.view.state.find(made.id)
    assert commit is not None
    return commit


def test_an_empty_store_receives_the_newest_under_its_own_id(
    writer: Writer, run_restore: Restore, local: LocalRun
) -> None:
    old, new = generation(1), generation(2)
    writer.commit(old)
    commit = writer.commit(new)
    report = run_restore(writer.tier)
    assert tree(files_of(local, new.id)) == expected(new)
    assert (local.generation(new.id) / "generation.json").read_bytes() == new.record.encode()
    assert report.attempt == 2
    lineage = lineage_of(local)
    assert (lineage.run_uid, lineage.attempt, lineage.parent) == (RUN_UID, 2, str(new.id))
    assert lineage.restored_from is not None
    assert (lineage.restored_from.tier, lineage.restored_from.slot) == ("a", commit.slot)
    latest = RunStore(local.root).latest()
    assert latest is not None
    assert latest.id == new.id
    assert not list(local.root.glob(".restoring*"))
    assert verify_local(local, read_data=Share()).sound


def test_what_is_published_next_continues_from_what_was_restored(
    writer: Writer, run_restore: Restore, local: LocalRun, clock: ManualClock
) -> None:
    old, new = generation(5), generation(9)
    writer.commit(old)
    writer.commit(new)
    run_restore(writer.tier, generation=old.id)
    store = RunStore(local.root, clock=clock)
    with store.publish(next_update=520) as directory:
        (directory / "model.bin").write_bytes(b"next")
    latest = store.latest()
    assert latest is not None
    assert (latest.id.attempt, latest.id.sequence, latest.record.parent) == (2, 10, str(old.id))
    assert latest.record.run_uid == RUN_UID


def test_the_attempt_is_open_and_durable_before_the_generation_appears(
    writer: Writer, run_restore: Restore, local: LocalRun
) -> None:
    made = generation(1)
    writer.commit(made)
    seen: list[str] = []

    def watch(kind: effects.Effect, what: str, moment: effects.Moment) -> None:
        if moment is effects.Moment.AFTER:
            seen.append(f"{kind} {what.removeprefix(str(local.root))}")

    with effects.observing(watch):
        run_restore(writer.tier)
    files = [seen.index(f"fsync /.restoring-{made.id}/files/{path}") for path in made.contents]
    order = [
        f"fsync /.restoring-{made.id}/files/",
        f"fsync /.restoring-{made.id}/generation.json",
        f"fsync /.restoring-{made.id}/",
        "rename /lineage.json",
        "fsync /",
        f"rename /generations/{made.id}",
        "fsync /generations/",
        "rename /LATEST.json",
    ]
    places = [seen.index(step, 0) for step in order if step != "fsync /"]
    assert max(files) < places[0]
    assert places == sorted(places)
    assert "fsync /" in seen[seen.index("rename /lineage.json") : seen.index(f"rename /generations/{made.id}")]


def test_a_generation_that_is_there_and_whole_is_used_and_a_new_attempt_opened(
    writer: Writer, run_restore: Restore, local: LocalRun
) -> None:
    old, new = generation(1), generation(2)
    writer.commit(old)
    writer.commit(new)
    run_restore(writer.tier, generation=old.id)
    run_restore(writer.tier)
    inode = files_of(local, old.id).stat().st_ino
    offline = FaultyTier(writer.tier, [Fault(verb="open", key="*/files/*", times=10**6)])
    report = run_restore(offline, generation=old.id)
    assert (report.generation, report.attempt, report.by_place) == (old.id, 4, ())
    assert report.leaves_reused == report.leaves > 0
    assert files_of(local, old.id).stat().st_ino == inode
    assert lineage_of(local).parent == str(old.id)
    latest = RunStore(local.root).latest()
    assert latest is not None
    assert latest.id == old.id
    assert not offline.fired


def test_c07_local_files_are_reused_only_where_their_digest_is_the_sealed_one(
    writer: Writer, run_restore: Restore, local: LocalRun, clock: ManualClock
) -> None:
    made = make({f"shard-{number}": payload(number, 3000) for number in range(8)}, sequence=40)
    writer.commit(made)
    start_lineage(local, clock, made)
    folder = seal_local(local, made)
    for number in range(3, 8):
        (folder / f"files/shard-{number}").unlink()
    wrong = folder / "files/shard-1"
    wrong.write_bytes(flip(1500)(wrong.read_bytes()))
    report = run_restore(writer.tier)
    assert tree(files_of(local, made.id)) == expected(made)
    assert dict(report.by_place) == {"local": 3 * 3000 - 1024, "a": 5 * 3000 + 1024}
    assert report.skipped[0].place == "local"
    assert verify_local(local, read_data=Share()).sound
    assert len(list(local.root.glob(".damaged-*"))) == 1


def test_c07_a_file_that_another_generation_already_has_is_not_fetched_again(
    writer: Writer, run_restore: Restore, tmp_path: Path
) -> None:
    same = payload(9, 4000)
    one = make({"frozen.bin": same, "model.bin": payload(1)}, sequence=1)
    two = make({"embedding.bin": same, "model.bin": payload(2)}, sequence=2)
    writer.commit(one)
    writer.commit(two)
    run_restore(writer.tier, generation=one.id)
    report = run_restore(writer.tier, to=tmp_path / "out")
    assert dict(report.by_place) == {"local": 4000, "a": 5000}
    assert tree(tmp_path / "out") == expected(two)


def test_bytes_are_taken_from_the_tier_that_was_named(writer: Writer, run_restore: Restore, tmp_path: Path) -> None:
    made = generation(1)
    writer.commit(made)
    run_restore(writer.tier)
    report = run_restore(writer.tier, to=tmp_path / "out", tier="a")
    assert dict(report.by_place) == {"a": made.record.total_bytes}


def test_a_generation_that_only_the_store_has_can_be_taken_out_of_it(
    run_restore: Restore, local: LocalRun, clock: ManualClock, tmp_path: Path
) -> None:
    made = generation(3)
    start_lineage(local, clock, made)
    seal_local(local, made)
    report = run_restore(MemoryTier("a"), to=tmp_path / "out")
    assert tree(tmp_path / "out") == expected(made)
    assert dict(report.by_place) == {"local": made.record.total_bytes}


def test_a_damaged_newest_in_the_store_falls_back_to_the_tier_before_an_older_one(
    writer: Writer, run_restore: Restore, local: LocalRun, clock: ManualClock
) -> None:
    old, new = generation(1), generation(2)
    writer.commit(old)
    start_lineage(local, clock, new)
    folder = seal_local(local, new)
    (folder / "files/model.bin").write_bytes(b"short")
    report = run_restore(writer.tier)
    assert (report.generation, report.fell_back) == (old.id, True)
    assert [skip.generation for skip in report.skipped] == [new.id, new.id]


def test_a_quarantined_generation_is_passed_over(
    writer: Writer, run_restore: Restore, local: LocalRun, clock: ManualClock
) -> None:
    old, bad = generation(1), generation(2)
    writer.commit(old)
    start_lineage(local, clock, bad)
    seal_local(local, bad)
    evidence = Evidence(generation=str(bad.id), level=Level.QUARANTINED, at="2026-01-01T00:00:00.000Z", reason="NaN")
    write_evidence(local, evidence)
    report = run_restore(writer.tier)
    assert report.generation == old.id
    assert report.skipped[0].reason == "quarantined: NaN"


def test_c10_a_missing_head_is_no_fresh_start(writer: Writer, run_restore: Restore, local: LocalRun) -> None:
    for number in (1, 2, 3):
        writer.commit(generation(number))
    Logbook(writer.tier, REMOTE).write_head(3)
    writer.tier.delete(REMOTE.head)
    report = run_restore(writer.tier, if_absent=True, fresh_ok=True)
    assert (report.outcome, report.generation) == (Outcome.RESTORE, generation(3).id)
    assert local.generation(generation(3).id).is_dir()


def test_c10_a_missing_log_beside_manifests_is_no_fresh_start(
    writer: Writer, run_restore: Restore, local: LocalRun
) -> None:
    for number in (1, 2, 3):
        writer.commit(generation(number))
    for slot in range(writer.view.next_slot):
        writer.tier.delete(REMOTE.log(slot))
    with pytest.raises(IntegrityFailure, match="not a fresh start") as caught:
        run_restore(writer.tier, if_absent=True, fresh_ok=True)
    assert "bring the log back" in caught.value.hint
    assert not local.root.exists()


def test_nothing_anywhere_is_proved_before_a_fresh_start(run_restore: Restore, local: LocalRun) -> None:
    report = run_restore(MemoryTier("a"), MemoryTier("b"), if_absent=True, fresh_ok=True)
    assert (report.outcome, report.generation) == (Outcome.FRESH, None)
    with pytest.raises(NothingFound):
        run_restore(MemoryTier("a"))
    down = FaultyTier(MemoryTier("b"), [Fault(verb="*", times=10**6)])
    with pytest.raises(Unreachable):
        run_restore(MemoryTier("a"), down, if_absent=True, fresh_ok=True)
    assert not local.root.exists()


def test_if_absent_opens_no_attempt_where_the_newest_is_there(
    writer: Writer, run_restore: Restore, local: LocalRun
) -> None:
    writer.commit(generation(1))
    run_restore(writer.tier)
    before = local.lineage.read_bytes()
    report = run_restore(writer.tier, if_absent=True)
    assert (report.outcome, report.generation, report.attempt) == (Outcome.ALREADY_HERE, generation(1).id, None)
    assert local.lineage.read_bytes() == before


def test_a_store_of_another_run_is_refused_and_left_alone(
    writer: Writer, run_restore: Restore, local: LocalRun, clock: ManualClock, tmp_path: Path
) -> None:
    writer.commit(generation(1))
    foreign = generation(4, run_uid="f" * 32)
    start_lineage(local, clock, foreign, run_uid="f" * 32)
    seal_local(local, foreign)
    before = tree(local.root)
    with pytest.raises(TrustFailure, match="another run") as caught:
        run_restore(writer.tier)
    assert "--to" in caught.value.hint
    assert tree(local.root) == before
    run_restore(writer.tier, to=tmp_path / "out")
    assert tree(tmp_path / "out") == expected(generation(1))


def test_a_failed_restore_leaves_the_store_as_it_was(writer: Writer, run_restore: Restore, local: LocalRun) -> None:
    old, new = generation(1), generation(2)
    writer.commit(old)
    run_restore(writer.tier)
    before = tree(local.root)
    commit = writer.commit(new)
    tamper(writer.tier, keys(writer.tier, new, commit)["model.bin"], flip(1))
    with pytest.raises(IntegrityFailure):
        run_restore(writer.tier, generation=new.id)
    assert tree(local.root) == before


def test_a_second_restore_into_the_store_is_refused(
    writer: Writer, run_restore: Restore, local: LocalRun, clock: ManualClock
) -> None:
    writer.commit(generation(1))
    local.root.mkdir(parents=True)
    with locked(Place(parent=local.root, label=""), clock), pytest.raises(Fenced):
        run_restore(writer.tier)


def test_c82_the_store_too_looks_again_at_a_rename_that_was_denied(
    writer: Writer, run_restore: Restore, local: LocalRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = generation(1)
    writer.commit(made)
    real = effects.rename
    denied: list[Path] = []

    def flaky(source: Path, target: Path) -> None:
        if target.name == str(made.id) and not denied:
            denied.append(target)
            raise FileNotFoundError(2, "No such file or directory", str(source))
        real(source, target)

    monkeypatch.setattr(effects, "rename", flaky)
    run_restore(writer.tier)
    assert denied
    assert tree(files_of(local, made.id)) == expected(made)


def test_the_manifest_is_read_once_a_tier(writer: Writer, run_restore: Restore) -> None:
    made = generation(1)
    writer.commit(made)
    manifest = Key(commit_of(writer, made).manifest_key)
    tier = FaultyTier(writer.tier, [Fault(verb="open", key=manifest, nth=2)])
    run_restore(tier)
    assert not tier.fired


def test_a_log_that_lost_its_end_is_told_from_a_short_one_where_a_slot_is_remembered(
    writer: Writer, run_restore: Restore, local: LocalRun
) -> None:
    old, new = generation(1), generation(2)
    writer.commit(old)
    run_restore(writer.tier)
    slot = writer.commit(new).slot
    seen = Replica(generation=str(new.id), slot=slot, at=AT, total_bytes=1)
    there = TierStatus(name="a", url="memory://a", newest=seen, requests={})
    view = StatusFile(
        run=RUN, pid=1, host="h", phase="idle", started_at=AT, updated_at=AT, tiers=(there,), quarantined={}
    )
    local.status.write_bytes(view.encode())
    writer.tier.delete(REMOTE.log(slot))
    with pytest.raises(TrustFailure, match=f"ends before slot {slot}"):
        run_restore(writer.tier)
    report = run_restore(writer.tier, generation=old.id)
    assert any("ends before" in warning for warning in report.warnings)
    local.status.write_bytes(b"torn")
    run_restore(writer.tier)


def test_a_store_that_is_broken_does_not_stand_in_the_way_of_its_rescue(
    writer: Writer, run_restore: Restore, local: LocalRun, tmp_path: Path
) -> None:
    made = generation(1)
    writer.commit(made)
    run_restore(writer.tier)
    local.lineage.write_bytes(b"torn")
    with pytest.raises(IntegrityFailure) as caught:
        run_restore(writer.tier)
    assert caught.value.hint
    report = run_restore(writer.tier, to=tmp_path / "out")
    assert tree(tmp_path / "out") == expected(made)
    assert "the store is not used" in report.warnings[0]
