"""Whole passes: what commits, in which order, and what is told of failures."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from core.builders import LEAF, READ_BACK, REMOTE, LocalSource, Machine, several
from core.checks import check_all, kinds, log_bytes
from core.intruders import COMMIT

from replicate.commit import Outcome
from replicate.errors import IntegrityFailure
from replicate.plan import Choice
from tiers.effects import Effect, Moment, observing
from tiers.errors import TierError, TierUnavailable
from tiers.memory import MemoryStore, MemoryTier
from tiers.protocol import walk
from tiers.testing import Action, Fault, When


def test_pass_commits(machine: Machine, store: MemoryStore, source: LocalSource) -> None:
    report = machine.run(source)
    (done,) = report.committed
    assert (done.generation, done.outcome, done.slot) == (source.id, Outcome.COMMITTED, 1)
    assert (done.objects, done.total_bytes) == (3, source.record.total_bytes)
    assert done.verified_by == ("store-sha256",)
    assert kinds(store) == ["claim", "commit"]
    assert [item.generation for item in machine.tracker.completed("remote")] == [source.id]
    assert (machine.tracker.planned("remote"), source.leases, source.quarantined) == ((), 0, [])
    check_all(store, {source.id: source}, machine)


def test_second_pass_asks_nothing(machine: Machine, source: LocalSource) -> None:
    """A daemon that polls must not cost anything while nothing happens."""
    machine.run(source)
    usage = machine.usage_of(source)
    assert usage.count() == 0
    report = machine.run(source)
    assert [decision.choice for decision in report.decisions] == [Choice.COMMITTED]


def test_restart_with_nothing_to_do_writes_nothing(machine: Machine, store: MemoryStore, source: LocalSource) -> None:
    machine.run(source)
    before = log_bytes(store)
    machine.start()
    usage = machine.usage_of(source)
    assert usage.sent() == 0
    assert usage.count() == usage.count("open")
    assert log_bytes(store) == before


def test_newest_goes_first_and_later_ones_are_added(machine: Machine, store: MemoryStore, tmp_path: Path) -> None:
    one, two, three = several(tmp_path, 3)
    assert [done.generation for done in machine.run(one, two).committed] == [two.id, one.id]
    assert [done.generation for done in machine.run(one, two, three).committed] == [three.id]
    assert kinds(store) == ["claim", "commit", "commit", "commit"]
    check_all(store, {item.id: item for item in (one, two, three)}, machine)


def test_limit_lets_a_daemon_look_for_a_newer_one(machine: Machine, tmp_path: Path) -> None:
    sources = several(tmp_path, 3)
    report = machine.replication.run_pass(machine.descent, sources, limit=1)
    assert [done.generation for done in report.committed] == [sources[2].id]


def test_superseded_is_counted_and_never_half_committed(machine: Machine, store: MemoryStore, tmp_path: Path) -> None:
    sources = several(tmp_path, 3)
    machine.settings = {"backlog": 1}
    machine.schedule()
    assert len(machine.run(*sources).committed) == 1
    assert set(machine.tracker.skipped("remote")) == {sources[0].id, sources[1].id}
    keys = [info.key for info in walk(machine.tier, "")]
    assert not [key for key in keys if str(sources[0].id) in key or str(sources[1].id) in key]


Step = tuple[str, str]


def steps_of(act: Callable[[], object]) -> list[Step]:
    """Return what was announced to have happened, in order: (verb, key), or ("transaction", what)."""
    seen: list[Step] = []

    def note(effect: Effect, what: str, moment: Moment) -> None:
        if moment is Moment.AFTER:
            words = what.split()
            seen.append((words[1], words[2]) if effect is Effect.REMOTE else (str(effect), what))

    with observing(note):
        act()
    return seen


def test_order_of_operations(machine: Machine, source: LocalSource) -> None:
    """Plan journalled, objects, manifest, read back, entry, read back, tracker: each before the next."""
    steps = steps_of(lambda: machine.run(source))
    manifest = next(key for verb, key in steps if verb == "put" and key.endswith("manifest.json"))
    files = manifest.removesuffix("manifest.json") + "files/"
    plan = steps.index(("transaction", f"plan {source.id} to remote"))
    sent = [index for index, (verb, key) in enumerate(steps) if key.startswith(files) and verb in ("put", "complete")]
    journal = [
        index for index, (verb, what) in enumerate(steps) if verb == "transaction" and what.startswith("verified")
    ]
    wrote = steps.index(("put", manifest))
    read = steps.index(("open", manifest))
    entry = steps.index(("create", REMOTE.log(1)))
    read_entry = steps.index(("open", REMOTE.log(1)), entry)
    told = steps.index(("transaction", f"completed {source.id} on remote"))
    assert len(sent) == 3
    assert plan < min(i for i, (_, key) in enumerate(steps) if key.startswith(files))
    assert max(sent) < wrote
    assert max(journal) < wrote
    assert wrote < read < entry < read_entry < told


def test_tracker_is_told_nothing_before_the_entry_was_read_back(machine: Machine, source: LocalSource) -> None:
    """Created, and then the tier does not answer: on the tier it is, and nobody was told."""
    machine.schedule(Fault(verb="open", key=COMMIT, times=3))
    with pytest.raises(TierUnavailable):
        machine.run(source)
    assert machine.tracker.completed("remote") == ()
    machine.schedule()
    assert machine.run(source).committed == ()
    assert [item.generation for item in machine.tracker.completed("remote")] == [source.id]


@pytest.mark.parametrize("verb", ["put", "create", "put_part", "begin_upload", "complete"])
def test_lost_reply_commits_once(machine: Machine, store: MemoryStore, source: LocalSource, verb: str) -> None:
    """Each verb that writes, its reply lost at its first use; the daemon tries again."""
    machine.schedule(Fault(verb=verb, action=Action.LOST_REPLY))
    for _ in range(3):
        try:
            machine.run(source)
        except TierUnavailable:
            continue
    machine.faulty.assert_all_fired()
    assert kinds(store) == ["claim", "commit"]
    check_all(store, {source.id: source}, machine)


def test_lost_reply_of_the_commit_needs_no_second_pass(
    machine: Machine, store: MemoryStore, source: LocalSource
) -> None:
    machine.schedule(Fault(verb="create", key=COMMIT, action=Action.LOST_REPLY))
    assert machine.run(source).committed[0].outcome is Outcome.COMMITTED
    machine.faulty.assert_all_fired()
    assert kinds(store) == ["claim", "commit"]


def test_failing_create_is_raised_and_a_later_pass_sends_no_object_again(
    machine: Machine, store: MemoryStore, source: LocalSource
) -> None:
    machine.schedule(Fault(verb="create", key=COMMIT, times=2))
    with pytest.raises(TierUnavailable):
        machine.run(source)
    assert kinds(store) == ["claim"]
    machine.start()
    sent = machine.recorder.count("put_part")
    usage = machine.usage_of(source)
    assert machine.recorder.count("put_part") == sent
    assert usage.sent("put") < 10_000  # the manifest and the hint
    assert usage.count("put") == 2
    assert kinds(store) == ["claim", "commit"]
    check_all(store, {source.id: source}, machine)


def test_damaged_generation_is_quarantined_and_the_others_go_on(
    machine: Machine, store: MemoryStore, tmp_path: Path
) -> None:
    one, two, three = several(tmp_path, 3)
    (two.files / "model.bin").write_bytes(b"x" * 2 * LEAF)
    report = machine.run(one, two, three)
    assert [done.generation for done in report.committed] == [three.id, one.id]
    assert [generation for generation, _ in report.damaged] == [two.id]
    assert len(two.quarantined) == 1
    assert machine.tracker.planned("remote") == ()
    assert machine.usage_of(one, two, three).count() == 0
    check_all(store, {item.id: item for item in (one, three)}, machine)


def test_generation_json_that_is_not_what_was_sealed_is_local_damage(machine: Machine, source: LocalSource) -> None:
    """One odd document must not stop all other generations for ever."""
    source.record_bytes = source.record_bytes.replace(b'{"', b'{ "', 1)
    report = machine.run(source)
    assert [generation for generation, _ in report.damaged] == [source.id]


def test_file_written_to_during_the_upload_is_damage_where_the_store_checks_nothing(
    tmp_path: Path, source: LocalSource
) -> None:
    store = MemoryStore()
    machine = Machine(tmp_path / "m", store, capabilities=READ_BACK)
    original = machine.tracker.objects_verified

    def touch(tier: str, generation: object, means: Mapping[str, str]) -> None:
        original(tier, source.id, means)
        assert "model.bin" in means
        (source.files / "model.bin").write_bytes(b"later")

    machine.tracker.objects_verified = touch  # type: ignore[method-assign]
    report = machine.run(source)
    assert [generation for generation, _ in report.damaged] == [source.id]
    assert kinds(store) == ["claim"]
    machine.tracker.close()


def test_manifest_that_reads_back_differently_is_not_committed(
    machine: Machine, store: MemoryStore, source: LocalSource
) -> None:
    machine.schedule(Fault(verb="open", key="*/manifest.json", action=Action.CORRUPT, at=5))
    with pytest.raises(IntegrityFailure, match="reads back differently"):
        machine.run(source)
    assert kinds(store) == ["claim"]


def test_damaged_log_takes_no_commit(machine: Machine, store: MemoryStore, tmp_path: Path) -> None:
    one, two = several(tmp_path, 2)
    machine.run(one)
    tier = MemoryTier("vandal", store)
    tier.delete(REMOTE.log(1))
    tier.create(REMOTE.log(1), b"rotten")
    machine.start()
    with pytest.raises(IntegrityFailure, match="damaged"):
        machine.run(one, two)
    assert machine.tracker.completed("remote") == ()


def test_hint_that_cannot_be_written_is_told_and_harmless(
    machine: Machine, store: MemoryStore, source: LocalSource
) -> None:
    notes: list[str] = []
    machine.schedule(Fault(verb="put", key="*/head.json", times=10))
    machine.replication.log.on_note = lambda _tier, text: notes.append(text)
    assert machine.run(source).committed
    assert notes
    assert "head.json" in notes[0]
    check_all(store, {source.id: source}, machine)


def test_events_say_what_happened(machine: Machine, source: LocalSource) -> None:
    seen: list[str] = []
    machine.replication.events.on_start = lambda _t, _g, size: seen.append(f"start {size}")
    machine.replication.events.on_progress = lambda _t, _g, p: seen.append(f"at {p.done_bytes}")
    machine.replication.events.on_commit = lambda _t, done: seen.append(f"commit {done.slot}")
    machine.run(source)
    total = source.record.total_bytes
    assert (seen[0], seen[-2], seen[-1]) == (f"start {total}", f"at {total}", "commit 1")


def test_error_that_is_no_generations_own_stops_the_pass(machine: Machine, tmp_path: Path) -> None:
    def refuse(tier: str, verb: str, key: str) -> TierError:
        return TierError("odd", tier=tier, operation=verb, key=key)

    machine.schedule(Fault(verb="put", key="*/manifest.json", error=refuse, when=When.BEFORE))
    with pytest.raises(TierError, match="odd"):
        machine.run(*several(tmp_path, 1))
