"""Whole passes: what commits, in which order, and what survives lost replies, kills and other writers."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from core.builders import (
    FIRST,
    LEAF,
    READ_BACK,
    REMOTE,
    RUN_UID,
    SECOND,
    LocalSource,
    Machine,
    RecordingTier,
    make_source,
)
from core.checks import check_all, check_chain, log_bytes, log_entries

from replicate.commit import Outcome
from replicate.errors import Fenced, IntegrityFailure, TrustFailure
from replicate.log import Claim, Commit, Entry, Pin
from replicate.logbook import Logbook
from replicate.manifest import parse_manifest
from replicate.plan import Choice
from replicate.terms import Descent
from tiers.effects import Effect, Moment, observing
from tiers.errors import TierError, TierUnavailable
from tiers.memory import MemoryStore, MemoryTier
from tiers.protocol import Key, ObjectInfo, walk
from tiers.testing import Action, Fault, When, content, read_all

FILES = {"model.bin": content(3 * LEAF + 1), "sub/rng.pt": content(9), "empty": b""}
COMMIT = "*/log/00000000000[1-9].json"


@pytest.fixture
def source(tmp_path: Path) -> LocalSource:
    return make_source(tmp_path / "store", FILES)


def several(root: Path, count: int) -> list[LocalSource]:
    """Return generations that descend from each other, oldest first."""
    found: list[LocalSource] = []
    for sequence in range(1, count + 1):
        parent = found[-1].id if found else None
        files = {"model.bin": content(2 * LEAF, seed=sequence)}
        found.append(make_source(root / "store", files, sequence=sequence, parent=parent))
    return found


@pytest.fixture
def other(tmp_path: Path, store: MemoryStore) -> Iterator[Machine]:
    """Another machine on the same tier, which restored and so opened attempt 2."""
    machine = Machine(tmp_path / "two", store, descent=SECOND, writer="two")
    yield machine
    machine.tracker.close()


def kinds(store: MemoryStore) -> list[str]:
    return [entry.body.kind for entry in log_entries(store)]


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


class Intruder(RecordingTier):
    """Lets somebody else write right before one create."""

    def __init__(self, inner: MemoryTier, slot: int, act: Callable[[], object]) -> None:
        super().__init__(inner)
        self.slot = slot
        self.act = act
        self.done = False

    def create(self, key: Key, data: bytes) -> ObjectInfo:
        if key == REMOTE.log(self.slot) and not self.done:
            self.done = True
            self.act()
        return super().create(key, data)


def intrude(machine: Machine, slot: int, act: Callable[[], object]) -> None:
    machine.recorder = Intruder(MemoryTier("remote", machine.store), slot, act)
    machine.schedule()


def add_entry(store: MemoryStore, body: Claim | Pin, descent: Descent = FIRST, *, term: int = 1) -> None:
    """Write as some other program would."""
    book = Logbook(MemoryTier("intruder", store), REMOTE)
    view = book.read()
    made = Entry(
        format=1,
        run=REMOTE.run,
        run_uid=descent.run_uid,
        slot=view.next_slot,
        term=term,
        attempt=descent.attempt,
        attempt_id=descent.attempt_id,
        prev=view.last_sha256,
        nonce="intruder",
        at="2026-01-01T00:00:00.000Z",
        body=body,
    )
    book.append(view, made)


def test_slot_that_a_pin_took_is_passed_over(machine: Machine, store: MemoryStore, tmp_path: Path) -> None:
    one, two = several(tmp_path, 2)
    machine.run(one)
    intrude(machine, 2, lambda: add_entry(store, Pin(generation=str(one.id), reason="paper"), term=0))
    assert machine.run(one, two).committed[0].slot == 3
    assert kinds(store) == ["claim", "commit", "pin", "commit"]
    check_all(store, {item.id: item for item in (one, two)}, machine)


def test_slot_that_a_pin_took_after_a_lost_request_is_passed_over(
    machine: Machine, store: MemoryStore, source: LocalSource
) -> None:
    """The create failed, was offered again, and found another entry by then."""
    intrude(machine, 1, lambda: add_entry(store, Pin(generation=str(source.id), reason="early"), term=0))
    machine.schedule(Fault(verb="create", key=COMMIT))
    assert machine.run(source).committed[0].slot == 2
    assert kinds(store) == ["claim", "pin", "commit"]
    check_all(store, {source.id: source}, machine)


def test_higher_claim_in_between_fences(
    machine: Machine, other: Machine, store: MemoryStore, tmp_path: Path, source: LocalSource
) -> None:
    """The other restored and committed while we were about to: we stay out, now and later, also after a restart."""
    theirs = make_source(tmp_path / "elsewhere", {"m": b"1"}, sequence=2, descent=SECOND, parent=source.id)
    intrude(machine, 1, lambda: other.run(theirs))
    with pytest.raises(Fenced, match="taken over"):
        machine.run(source)
    held = machine.tracker.term("remote")
    assert held is not None
    assert held.fenced
    assert machine.tracker.completed("remote") == () or source.id not in {
        item.generation for item in machine.tracker.completed("remote")
    }
    before = log_bytes(store)
    for _ in range(2):
        with pytest.raises(Fenced):
            machine.run(source)
        machine.start()
    assert log_bytes(store) == before
    assert kinds(store) == ["claim", "claim", "commit"]
    check_all(store, {theirs.id: theirs}, machine, other)


def test_fenced_store_goes_on_after_a_restore(
    machine: Machine, other: Machine, store: MemoryStore, tmp_path: Path, source: LocalSource
) -> None:
    theirs = make_source(tmp_path / "elsewhere", {"m": b"1"}, sequence=2, descent=SECOND, parent=source.id)
    machine.run(source)
    other.run(theirs)
    third = Descent(run_uid=RUN_UID, attempt=3, attempt_id="attempt-three")
    later = make_source(tmp_path / "store", {"m": b"2"}, sequence=3, descent=third, parent=theirs.id)
    with pytest.raises(Fenced):
        machine.run(source, later)
    machine.descent = third
    assert [done.generation for done in machine.run(source, later).committed] == [later.id]
    with pytest.raises(Fenced):
        other.run(make_source(tmp_path / "elsewhere", {"m": b"3"}, sequence=4, descent=SECOND))
    check_all(store, {item.id: item for item in (source, theirs, later)}, machine, other)


def test_term_that_was_lost_without_being_fenced_writes_no_stale_commit(
    machine: Machine, store: MemoryStore, tmp_path: Path, source: LocalSource
) -> None:
    """A restore opened attempt 2 here while term 1 is held; a copy of attempt 1 claims in between.

    Our line is the newer one, so we may claim again, and then have to send under the new term.
    """
    machine.run(source)
    machine.descent = SECOND
    later = make_source(tmp_path / "store", {"m": b"2"}, sequence=2, descent=SECOND, parent=source.id)
    intrude(machine, 2, lambda: add_entry(store, Claim(writer="copy"), term=2))
    with pytest.raises(TierUnavailable, match="term was lost"):
        machine.run(source, later)
    assert kinds(store) == ["claim", "commit", "claim"]
    machine.run(source, later)
    assert kinds(store) == ["claim", "commit", "claim", "claim", "commit"]
    check_all(store, {source.id: source, later.id: later}, machine)


def test_fork_is_told_and_nothing_is_written(machine: Machine, store: MemoryStore, source: LocalSource) -> None:
    machine.run(source)
    fork = Descent(run_uid=RUN_UID, attempt=1, attempt_id="other-one")
    copy = Machine(machine.local.root.parent / "copy", store, descent=fork)
    again = make_source(copy.local.root, {"m": b"1"}, sequence=2, descent=fork)
    before = log_bytes(store)
    with pytest.raises(TrustFailure, match="share a number"):
        copy.run(again)
    assert log_bytes(store) == before
    assert not [info.key for info in walk(machine.tier, "") if str(again.id) in info.key]
    copy.tracker.close()


def test_unrelated_run_of_the_same_name_is_refused(machine: Machine, store: MemoryStore, source: LocalSource) -> None:
    machine.run(source)
    stranger = Descent(run_uid="another-run", attempt=5, attempt_id="x")
    theirs = Machine(machine.local.root.parent / "stranger", store, descent=stranger)
    before = log_bytes(store)
    with pytest.raises(TrustFailure, match="another run"):
        theirs.run(make_source(theirs.local.root, {"m": b"1"}, descent=stranger))
    assert log_bytes(store) == before
    theirs.tracker.close()


def crash_at(machine: Machine, source: LocalSource, where: Callable[[Effect, str, Moment], bool]) -> None:
    """Run a pass that dies where told, and start again as a new process."""

    def die(effect: Effect, what: str, moment: Moment) -> None:
        if where(effect, what, moment):
            raise KeyboardInterrupt(what)

    with observing(die), pytest.raises(KeyboardInterrupt):
        machine.run(source)
    machine.start()


def before_commit(effect: Effect, what: str, moment: Moment) -> bool:
    return effect is Effect.REMOTE and what.endswith(REMOTE.log(1)) and moment is Moment.BEFORE


@pytest.mark.parametrize("capabilities", [None, READ_BACK])
def test_crash_between_manifest_and_commit_writes_the_same_manifest(
    tmp_path: Path, source: LocalSource, capabilities: None
) -> None:
    """Promise 2, although time has passed and every proof is made anew."""
    store = MemoryStore()
    machine = Machine(tmp_path / "m", store, **({"capabilities": capabilities} if capabilities else {}))
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


def test_crash_at_any_announced_effect_loses_nothing(tmp_path: Path, source: LocalSource) -> None:
    """Kill before and after each side effect in turn, restart, and the pass ends the same."""
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
    original = machine.tracker.object_verified

    def touch(tier: str, generation: object, path: str, verified_by: str) -> None:
        original(tier, source.id, path, verified_by)
        if path == "model.bin":
            (source.files / path).write_bytes(b"later")

    machine.tracker.object_verified = touch  # type: ignore[method-assign,assignment]
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
