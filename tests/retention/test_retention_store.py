"""What goes from the store: only what tiers have, as well proved as is asked for; and making room for a save."""

import threading
import warnings
from pathlib import Path

import pytest
from daemon.gates import impatient
from daemon.stage import CLOCK, Machine, publish, volume_view

from replicate import RunStore, canonical
from replicate.engine import Replicator
from replicate.errors import ExitCode
from replicate.generation.bench import Bench
from replicate.generation.evidence import Level
from replicate.generation.proofs import Proof, forget_proof, proof_level, record_proof
from replicate.generation.reading import being_read, reading
from replicate.generation.released import (
    MARGIN,
    DiskNearlyFull,
    Released,
    ReleasedGeneration,
    make_room,
    read_released,
    write_released,
)
from replicate.generation.validate import Limits
from replicate.layout import GenerationId, LocalRun, run_name
from replicate.localkeeping import Holding, LocalFacts, LocalPlan, plan_local
from replicate.opening import default_opener
from replicate.plan import Choice, LocalFact
from replicate.pruning import Pruning
from replicate.restore import RestoreRequest
from replicate.retention import Policy, Rule
from replicate.session import Session
from replicate.verify import parse_share

ONE, TWO, THREE, FOUR = (GenerationId(1, number, 100 * number, f"{number:08x}") for number in range(1, 5))
ALL = (ONE, TWO, THREE, FOUR)
HAVE = dict.fromkeys(ALL, Level.REPLICATED)


def facts(*, quarantined: GenerationId | None = None, sealed: GenerationId | None = None) -> LocalFacts:
    made = []
    parent = None
    for one in ALL:
        made.append(LocalFact(id=one, parent=parent, validated=one != sealed, quarantined=one == quarantined))
        parent = one
    return LocalFacts(generations=made, latest=FOUR, resumed_from=None)


def decide(
    *holdings: Holding, keep: int = 1, requires: Level = Level.REPLICATED, of: LocalFacts | None = None
) -> LocalPlan:
    return plan_local(of or facts(), Policy(keep_last=keep), holdings, requires)


def going(plan: LocalPlan) -> list[GenerationId]:
    return [one.id for one in plan.plan.removed]


def why(plan: LocalPlan, generation: GenerationId) -> list[str]:
    return [reason.text for one in plan.plan.verdicts if one.id == generation for reason in one.reasons]


def test_what_every_tier_has_goes_but_for_the_newest() -> None:
    plan = decide(Holding(tier="a", held=HAVE), Holding(tier="b", held=HAVE))
    assert going(plan) == [ONE, TWO, THREE]


def test_what_one_tier_lacks_stays_and_names_it() -> None:
    """The local copy is what the missing one is made from."""
    plan = decide(Holding(tier="a", held=HAVE), Holding(tier="b", held={TWO: Level.REPLICATED}))
    assert going(plan) == [TWO]
    assert why(plan, ONE) == ["b does not have it"]


def test_without_any_tier_nothing_goes() -> None:
    assert going(decide()) == []


@pytest.mark.parametrize("choice", [Choice.NOT_A_MILESTONE, Choice.SUPERSEDED, Choice.NOT_KEPT])
def test_what_a_tier_will_never_get_does_not_wait_for_it_once_it_has_a_newer_one(choice: Choice) -> None:
    side = Holding(tier="b", held={THREE: Level.REPLICATED}, choices={ONE: choice, TWO: Choice.UPLOAD})
    plan = decide(Holding(tier="a", held=HAVE), side)
    assert going(plan) == [ONE, THREE]
    none_newer = Holding(tier="b", held={}, choices={ONE: choice})
    assert going(decide(Holding(tier="a", held=HAVE), none_newer)) == []


def test_a_weaker_proof_than_is_asked_for_does_not_do() -> None:
    mixed = {**HAVE, TWO: Level.READ_BACK, THREE: Level.REHEARSED}
    plan = decide(Holding(tier="a", held=mixed), requires=Level.READ_BACK)
    assert going(plan) == [TWO, THREE]
    assert why(plan, ONE) == ["a has it replicated, not read-back"]
    assert going(decide(Holding(tier="a", held=mixed), requires=Level.REHEARSED)) == [THREE]


def test_what_is_needed_here_stays_whatever_tiers_have() -> None:
    held = Holding(tier="a", held=HAVE, pins=frozenset({str(ONE)}), under_way=frozenset({TWO}))
    of = LocalFacts(generations=facts().generations, latest=FOUR, resumed_from=THREE, being_read=frozenset({FOUR}))
    plan = decide(held, of=of)
    assert going(plan) == []
    assert plan.released == ()
    assert {rule for one in plan.plan.verdicts for rule in (reason.rule for reason in one.reasons)} >= {
        Rule.PINNED,
        Rule.UNDER_WAY,
        Rule.RESUMED_FROM,
        Rule.BEING_RESTORED,
    }


def test_what_is_not_validated_or_quarantined_stays_and_counts_for_nothing() -> None:
    plan = decide(Holding(tier="a", held=HAVE), of=facts(quarantined=THREE, sealed=TWO), keep=2)
    assert going(plan) == []
    assert why(plan, THREE) == ["quarantined: kept as evidence, see `ckptier show`"]
    assert why(plan, TWO) == ["not validated yet"]


def test_what_may_go_for_room_is_more_than_what_goes_and_never_the_newest() -> None:
    """First what the policy lets go, then the oldest; one tier that has it is enough."""
    lacking = Holding(tier="b", held={THREE: Level.REPLICATED}, choices={TWO: Choice.NOT_KEPT})
    plan = decide(Holding(tier="a", held=HAVE), lacking, keep=2)
    assert going(plan) == [TWO]
    assert [one for one, _ in plan.released] == [TWO, ONE, THREE]
    assert dict(plan.released)[ONE] == "it is on a (replicated)"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "machine")


def ids(machine: Machine) -> list[int]:
    return sorted(one.id.next_update for one in RunStore(machine.root).generations())


def test_replicating_once_prunes_the_store_and_the_tier(machine: Machine) -> None:
    """With the delay the bytes stay on the tier; what is retired there still goes from the store."""
    tier = {**machine.volume(), "keep_last": 2, "keep_every": 500, "retire_delay_seconds": 0}
    machine.configure(tier, keep_last=2)
    for update in range(100, 800, 100):
        publish(machine.root, update)
        assert Replicator(machine.config).replicate_once().exit_code is ExitCode.OK
    assert ids(machine) == [600, 700]
    prefixes = (machine.folder / "vol" / "llm-7b" / "generations").iterdir()
    found = sorted(GenerationId.parse(path.name.partition(".t")[0]).next_update for path in prefixes)
    assert found == [500, 600, 700]


def test_no_prune_removes_nothing_and_sends_nothing_that_would_go_at_once(machine: Machine) -> None:
    machine.configure({**machine.volume(), "keep_last": 1}, keep_last=1)
    for update in (100, 200, 300):
        publish(machine.root, update)
    report = Replicator(machine.config).replicate_once(prune=False)
    assert [one.generation.next_update for _, one in report.committed] == [300]
    assert ids(machine) == [100, 200, 300]


def test_a_generation_that_retention_took_back_is_not_sent_again(machine: Machine) -> None:
    """It still lies in the store: without this it would go up and be retired for ever."""
    machine.configure({**machine.volume(), "keep_last": 1, "retire_delay_seconds": 0}, keep_last=9)
    committed = []
    for update in (100, 200, 300):
        publish(machine.root, update)
        committed += [one.generation for _, one in Replicator(machine.config).replicate_once().committed]
    again = Replicator(machine.config).replicate_once()
    assert [one.next_update for one in committed] == [100, 200, 300]
    assert again.committed == ()
    (result,) = again.results
    assert result.report is not None
    assert [one.choice for one in result.report.decisions] == [Choice.COMMITTED, Choice.NOT_KEPT, Choice.NOT_KEPT]
    assert ids(machine) == [100, 200, 300]
    (preview,) = Replicator(machine.config).preview()
    assert [one.decision.choice for one in preview.generations] == [one.choice for one in result.report.decisions]


def test_a_tier_that_is_down_keeps_the_store_whole(machine: Machine) -> None:
    """What the other tier has may go for room, and nothing goes by policy."""
    gone = machine.volume("gone")
    machine.configure(machine.volume(), gone, keep_last=1)
    (machine.folder / "gone").rmdir()
    for update in (100, 200):
        publish(machine.root, update)
    assert Replicator(machine.config, opener=impatient).replicate_once().exit_code is ExitCode.PARTIAL
    assert ids(machine) == [100, 200]
    found = read_released(LocalRun(machine.root))
    assert found is not None
    assert [GenerationId.parse(one.generation).next_update for one in found.generations] == [100]


def test_local_requires_read_back_waits_for_it(machine: Machine) -> None:
    """A volume is read back at each commit; a proof of another copy of it does not count."""
    machine.configure(machine.volume(), keep_last=1, local_requires="read-back")
    publish(machine.root, 100)
    publish(machine.root, 200)
    assert Replicator(machine.config).replicate_once().exit_code is ExitCode.OK
    assert ids(machine) == [200]
    machine.configure(machine.volume(), keep_last=1, local_requires="rehearsed")
    publish(machine.root, 300)
    Replicator(machine.config).replicate_once()
    assert ids(machine) == [200, 300]
    report = Pruning(machine.config).prune(tier="local")
    (place,) = report.places
    assert place.plan is not None
    assert [one.reasons[0].text for one in place.plan.verdicts][1] == "vol has it read-back, not rehearsed"


def test_verify_of_every_byte_is_the_evidence_that_a_store_may_ask_for(machine: Machine) -> None:
    """A share of the bytes is none, and neither is a copy that is hurt."""
    machine.configure(machine.volume())
    made = [GenerationId.parse(publish(machine.root, update)) for update in (100, 200)]
    engine = Replicator(machine.config)
    engine.replicate_once()
    digests = {one.id: one.manifest_sha256 for one in volume_view(machine.folder / "vol").live}

    def levels() -> list[Level]:
        return [proof_level(LocalRun(machine.root), one, "vol", digests[one]) for one in made]

    engine.verify(tier="vol", share=parse_share("50%"), generation=None, seed=0)
    assert Level.REPLICATED in levels()
    (hurt,) = (machine.folder / "vol").glob(f"llm-7b/generations/{made[0]}*/files/state.bin")
    hurt.write_bytes(b"x" * hurt.stat().st_size)
    engine.verify(tier=None, share=parse_share("100%"), generation=None, seed=0)
    assert levels() == [Level.QUARANTINED, Level.READ_BACK]
    engine.verify(tier=None, share=parse_share("50%"), generation=None, seed=0)
    assert levels() == [Level.QUARANTINED, Level.READ_BACK], "what was found hurt stays so until all of it is read"


def test_a_copy_that_was_found_hurt_pushes_out_nothing_and_lets_nothing_go(machine: Machine) -> None:
    """Promise 6: the last good one survives.  The newest on the tier is no good, so the one before it counts."""
    machine.configure(machine.volume())
    for update in (100, 200, 300):
        publish(machine.root, update)
    Replicator(machine.config).replicate_once()
    (hurt,) = (machine.folder / "vol").glob("llm-7b/generations/a0001-g000003-*/files/state.bin")
    hurt.write_bytes(b"x" * hurt.stat().st_size)
    Replicator(machine.config).verify(tier="vol", share=parse_share("100%"), generation=None, seed=0)
    machine.configure({**machine.volume(), "keep_last": 1, "retire_delay_seconds": 0}, keep_last=1)
    assert Replicator(machine.config).replicate_once().exit_code is ExitCode.OK
    assert sorted(one.id.next_update for one in volume_view(machine.folder / "vol").live) == [200, 300]
    assert ids(machine) == [300]
    (place,) = Pruning(machine.config).prune(tier="vol").places
    assert place.plan is not None
    assert [reason.rule for one in place.plan.verdicts[:1] for reason in one.reasons] == [Rule.HURT]
    publish(machine.root, 400)
    assert Replicator(machine.config).replicate_once().exit_code is ExitCode.OK
    assert sorted(one.id.next_update for one in volume_view(machine.folder / "vol").live) == [300, 400]
    assert ids(machine) == [300, 400], "the only good copy of 300 is here"


def test_a_proof_is_bound_to_its_copy_and_a_stronger_one_stays(tmp_path: Path) -> None:
    local = LocalRun(tmp_path / "run")

    def proof(level: Level, digest: str = "0" * 64) -> Proof:
        return Proof(generation=str(ONE), tier="t", manifest_sha256=digest, level=level, at="now")

    record_proof(local, proof(Level.REHEARSED))
    record_proof(local, proof(Level.READ_BACK))
    assert proof_level(local, ONE, "t", "0" * 64) is Level.REHEARSED
    assert proof_level(local, ONE, "t", "1" * 64) is Level.REPLICATED
    assert proof_level(local, ONE, "u", "0" * 64) is Level.REPLICATED
    (local.evidence / f"{ONE}@t.json").write_bytes(b"rubbish")
    assert proof_level(local, ONE, "t", "0" * 64) is Level.REPLICATED
    forget_proof(local, ONE, "t")
    assert list(local.evidence.iterdir()) == []


def test_a_lease_keeps_a_generation_from_pruning(machine: Machine) -> None:
    """An upload of it, or a reader: it goes with the next pass."""
    machine.configure(machine.volume(), keep_last=1)
    publish(machine.root, 100)
    publish(machine.root, 200)
    store = RunStore(machine.root)
    oldest = store.generations()[-1].id
    with store.lease(oldest):
        Replicator(machine.config).replicate_once()
        assert ids(machine) == [100, 200]
    Replicator(machine.config).replicate_once()
    assert ids(machine) == [200]


def test_what_is_being_restored_says_so_until_its_process_ends(tmp_path: Path) -> None:
    local = LocalRun(tmp_path)
    with reading(local, ONE):
        assert being_read(local) == {ONE}
    assert being_read(local) == frozenset()
    (tmp_path / f".reading-{ONE}-dead").touch()  # what a killed restore leaves
    assert being_read(local) == frozenset()
    assert list(tmp_path.iterdir()) == []
    with reading(LocalRun(tmp_path / "absent"), ONE):
        assert not (tmp_path / "absent").exists()


def test_a_rollback_in_the_store_keeps_what_the_attempt_started_from(machine: Machine) -> None:
    """Promise 6, and nothing that was left behind pushes it out."""
    machine.configure({**machine.volume(), "retire_delay_seconds": 0}, keep_last=9)
    for update in (100, 200, 300):
        publish(machine.root, update)
    Replicator(machine.config).replicate_once()
    first = RunStore(machine.root).generations()[-1].id
    Replicator(machine.config).restore(RestoreRequest(generation=first))
    machine.configure({**machine.volume(), "keep_last": 1, "retire_delay_seconds": 0}, keep_last=1)
    publish(machine.root, 110)
    Replicator(machine.config).replicate_once()
    assert ids(machine) == [100, 110, 300]
    report = Pruning(machine.config).prune()
    kept = {place.place: [one.id.next_update for one in place.plan.kept] for place in report.places if place.plan}
    assert kept == {"vol": [110, 300, 100], "local": [110, 300, 100]}


def bench_of(root: Path) -> Bench:
    return Bench(local=LocalRun(root), run=run_name(root.name), clock=CLOCK, hash_workers=1, limits=Limits())


class Disk:
    """Free space that grows by what is removed."""

    def __init__(self, root: Path, free: int) -> None:
        self.root = root
        self.total = free + self.used()

    def used(self) -> int:
        return sum(path.stat().st_size for path in self.root.glob("generations/*/files/*"))

    def __call__(self, _path: Path) -> int:
        return self.total - self.used()


SIZE = 2000
ENOUGH = SIZE * 11 // 10 + MARGIN


def replicated(machine: Machine, *, headroom: bool = True) -> None:
    machine.configure(machine.volume(), local_headroom=headroom)
    for update in (100, 200, 300, 400):
        publish(machine.root, update, SIZE)
    assert Replicator(machine.config).replicate_once().exit_code is ExitCode.OK


def test_a_save_that_would_not_fit_takes_the_oldest_that_tiers_have_and_no_more_than_it_needs(machine: Machine) -> None:
    replicated(machine)
    room = make_room(bench_of(machine.root), Disk(machine.root, ENOUGH - SIZE - 1))
    assert room is not None
    assert room.enough
    assert [one.next_update for one in room.removed] == [100, 200]
    assert ids(machine) == [300, 400]


def test_where_it_fits_nothing_goes(machine: Machine) -> None:
    replicated(machine)
    room = make_room(bench_of(machine.root), Disk(machine.root, ENOUGH))
    assert room is not None
    assert room.removed == ()


def test_the_newest_stays_however_full_the_disk_is(machine: Machine) -> None:
    replicated(machine)
    room = make_room(bench_of(machine.root), Disk(machine.root, 0))
    assert room is not None
    assert not room.enough
    assert ids(machine) == [400]


def test_without_headroom_or_a_tier_that_has_them_nothing_goes(machine: Machine) -> None:
    replicated(machine, headroom=False)
    room = make_room(bench_of(machine.root), Disk(machine.root, 0))
    assert room is not None
    assert room.removed == ()
    assert ids(machine) == [100, 200, 300, 400]


def test_a_list_of_another_run_or_a_damaged_one_removes_nothing(machine: Machine) -> None:
    replicated(machine)
    local = LocalRun(machine.root)
    oldest = RunStore(machine.root).generations()[-1].id
    write_released(
        local, Released(run_uid="another", generations=(ReleasedGeneration(generation=str(oldest), reason=""),))
    )
    assert read_released(local) is None
    (machine.root / "released.json").write_bytes(b"{")
    room = make_room(bench_of(machine.root), Disk(machine.root, 0))
    assert room is not None
    assert room.removed == ()


def test_a_list_that_names_the_newest_or_what_was_resumed_from_is_not_followed(machine: Machine) -> None:
    """The store protects them by itself, whatever somebody wrote down."""
    replicated(machine)
    store = RunStore(machine.root)
    Replicator(machine.config).restore(RestoreRequest(generation=store.generations()[-1].id))
    publish(machine.root, 110, SIZE)
    lineage = store.lineage()
    assert lineage is not None
    everything = tuple(ReleasedGeneration(generation=str(one.id), reason="") for one in store.generations())
    write_released(store.local, Released(run_uid=lineage.run_uid, generations=everything))
    make_room(bench_of(machine.root), Disk(machine.root, 0))
    assert ids(machine) == [100, 110]


def test_publishing_makes_room_first_and_warns_where_it_cannot(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C85, promise 7: our own generations do not fill the disk while tiers have them; training decides on the rest."""
    replicated(machine)
    disk = Disk(machine.root, ENOUGH - 1)
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": disk(path)}))
    publish(machine.root, 500, SIZE)
    assert ids(machine) == [200, 300, 400, 500]
    disk.total = 0
    with pytest.warns(DiskNearlyFull, match="prune --tier local"):
        publish(machine.root, 600, SIZE)
    assert ids(machine) == [400, 500, 600], "400 was the newest when it was released, and 500 is on no tier yet"


def test_a_disk_that_cannot_be_asked_stops_no_save(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(machine.root, 100)

    def fails(_path: Path) -> object:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("shutil.disk_usage", fails)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        publish(machine.root, 200)
    assert ids(machine) == [100, 200]


def test_the_hint_of_the_size_is_no_more_than_a_hint(machine: Machine) -> None:
    publish(machine.root, 100)
    (machine.root / "LATEST.json").write_bytes(canonical.dump({"format": 1, "total_bytes": "much"}))
    assert make_room(bench_of(machine.root), lambda _path: 0) is None
    (machine.root / "LATEST.json").write_bytes(b"rubbish")
    assert make_room(bench_of(machine.root), lambda _path: 0) is None


def test_pruning_of_the_store_that_fails_fails_no_replication(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    machine.configure(machine.volume(), keep_last=1)
    publish(machine.root, 100)
    publish(machine.root, 200)
    with Session(machine.config, clock=CLOCK, stop=threading.Event(), opener=default_opener) as session:
        prepared = session.prepare()
        assert session.run_tier("vol", prepared).failure is None
        (machine.root / "lineage.json").write_bytes(b"rubbish")
        session.tend_store(prepared)
        session.tend_store(prepared)
    assert caplog.text.count("store: pruning: ") == 1
    assert len(list((machine.root / "generations").iterdir())) == 2
