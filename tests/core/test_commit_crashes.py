"""Processes that die and trackers that are lost: the work goes on, and nothing is committed twice."""

from pathlib import Path

import pytest
from core.builders import LEAF, READ_BACK, REMOTE, RUN_UID, LocalSource, Machine, RecordingTier, make_source, several
from core.checks import check_all, check_chain, kinds, log_bytes, log_entries
from core.intruders import COMMIT, add_entry, crash_at

from replicate.log import Claim, Commit
from replicate.terms import Descent
from tiers.effects import Effect, Moment, observing
from tiers.errors import TierUnavailable
from tiers.memory import MEMORY_CAPABILITIES, MemoryStore, MemoryTier
from tiers.protocol import Capabilities, Key, ObjectInfo
from tiers.testing import Fault, content, read_all


def before_commit(effect: Effect, what: str, moment: Moment) -> bool:
    return effect is Effect.REMOTE and what.endswith(REMOTE.log(1)) and moment is Moment.BEFORE


@pytest.mark.parametrize("capabilities", [MEMORY_CAPABILITIES, READ_BACK])
def test_crash_between_manifest_and_commit_writes_the_same_manifest(
    tmp_path: Path, source: LocalSource, capabilities: Capabilities
) -> None:
    """Promise 2, although time has passed and every proof is made anew."""
    store = MemoryStore()
    machine = Machine(tmp_path / "m", store, capabilities=capabilities)
    crash_at(machine, source, before_commit)
    key = next(key for key in machine.recorder.written if key.endswith("manifest.json"))
    first = read_all(MemoryTier("r", store).open(Key(key)))
    machine.clock.advance(3600)
    machine.run(source)
    assert read_all(MemoryTier("r", store).open(Key(key))) == first
    assert len([key for key in machine.recorder.written if key.endswith("manifest.json")]) == 1
    check_all(store, {source.id: source}, machine)
    machine.tracker.close()


class Forgetful(RecordingTier):
    """Attests a digest when it takes an object, and none when it is asked later."""

    def stat(self, key: Key) -> ObjectInfo:
        info = self.inner.stat(key)
        return ObjectInfo(key=info.key, size=info.size, etag=info.etag)


def test_other_proof_after_a_crash_does_not_change_the_manifest(
    machine: Machine, store: MemoryStore, source: LocalSource
) -> None:
    """Proved by the store's digest before, by reading back now: the manifest says what was journalled."""
    machine.recorder = Forgetful(MemoryTier("remote", store))
    machine.schedule()
    crash_at(machine, source, before_commit)
    machine.run(source)
    check_all(store, {source.id: source}, machine)


def test_crash_at_any_announced_effect_loses_nothing(tmp_path: Path) -> None:
    """Kill before and after each side effect in turn, restart, and the pass ends the same."""
    source = make_source(tmp_path / "store", {"model.bin": content(LEAF + 1), "empty": b""})
    total = 0
    machine = Machine(tmp_path / "count", MemoryStore())

    def count(_effect: Effect, _what: str, _moment: Moment) -> None:
        nonlocal total
        total += 1

    machine.replication.connections = 1
    with observing(count):
        machine.run(source)
    machine.tracker.close()
    for fatal in range(1, total + 1):
        crash_once(Machine(tmp_path / f"m{fatal}", MemoryStore()), source, fatal)
    assert total > 40


def crash_once(machine: Machine, source: LocalSource, fatal: int) -> None:
    left = fatal

    def die(_effect: Effect, what: str, _moment: Moment) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise KeyboardInterrupt(what)

    machine.replication.connections = 1
    with observing(die), pytest.raises(KeyboardInterrupt):
        machine.run(source)
    before = log_bytes(machine.store)
    machine.start()
    machine.run(source)
    check_chain(machine.store, before)
    check_all(machine.store, {source.id: source}, machine)
    commits = [entry for entry in log_entries(machine.store) if isinstance(entry.body, Commit)]
    assert len(commits) == 1
    assert [item.generation for item in machine.tracker.completed("remote")] == [source.id]
    machine.tracker.close()


def test_plan_of_an_old_term_does_not_stand_in_the_way(
    machine: Machine, store: MemoryStore, source: LocalSource
) -> None:
    """Killed right after a new claim was recorded: the plan of the term before is still journalled."""
    machine.schedule(Fault(verb="put", times=100))
    with pytest.raises(TierUnavailable):
        machine.run(source)
    machine.descent = Descent(run_uid=RUN_UID, attempt=2, attempt_id="attempt-two")
    add_entry(store, Claim(writer="copy"), term=2)

    def after_claim(effect: Effect, what: str, moment: Moment) -> bool:
        return effect is Effect.TRANSACTION and what == "hold term 3 on remote" and moment is Moment.AFTER

    machine.schedule()
    crash_at(machine, source, after_claim)
    assert machine.run(source).committed[0].generation == source.id
    check_all(store, {source.id: source}, machine)


def test_lost_tracker_is_rebuilt_from_the_log(machine: Machine, store: MemoryStore, tmp_path: Path) -> None:
    """What is committed is known again and not sent again; for the rest a new term is claimed."""
    one, two, three = several(tmp_path, 3)
    machine.run(one, two)
    machine.tracker.close()
    for path in machine.local.root.glob("tracker.sqlite*"):
        path.unlink()
    machine.start()
    machine.run(one, two)
    assert {item.generation for item in machine.tracker.completed("remote")} == {one.id, two.id}
    assert kinds(store) == ["claim", "commit", "commit"]
    before = len(machine.recorder.requests)
    assert [done.generation for done in machine.run(one, two, three).committed] == [three.id]
    keys = [key for _, key in machine.recorder.requests[before:]]
    assert not [key for key in keys if str(one.id) in key or str(two.id) in key]
    assert [(entry.body.kind, entry.term) for entry in log_entries(store)][3:] == [("claim", 2), ("commit", 2)]
    check_all(store, {item.id: item for item in (one, two, three)}, machine)


def test_uploads_of_a_lost_tracker_are_left_behind_under_their_old_term(
    machine: Machine, store: MemoryStore, source: LocalSource
) -> None:
    """The new claim fences our own former self: its half-sent prefix is never reused."""
    machine.schedule(Fault(verb="create", key=COMMIT, times=2))
    with pytest.raises(TierUnavailable):
        machine.run(source)
    machine.tracker.close()
    for path in machine.local.root.glob("tracker.sqlite*"):
        path.unlink()
    machine.start()
    machine.run(source)
    manifests = [key for key in machine.recorder.written if key.endswith("manifest.json")]
    assert len(manifests) == 2
    assert [(entry.body.kind, entry.term) for entry in log_entries(store)] == [
        ("claim", 1),
        ("claim", 2),
        ("commit", 2),
    ]
    check_all(store, {source.id: source}, machine)
