"""Copying from tier to tier: what arrives is what was sealed, committed like any other, and asked for once."""

from collections.abc import Callable

import pytest
from flows.machines import REMOTE, Machine, Place, payload, spent
from support.commits import flip, tamper, tree

from replicate import digests
from replicate.config import TierConfig
from replicate.copyplan import CopyOutcome, CopyReport, CopyRequest
from replicate.errors import (
    CapabilityMissing,
    ConfigInvalid,
    ExitCode,
    Fenced,
    NothingFound,
    TrustFailure,
    Unreachable,
    UsageError,
)
from replicate.generation.locks import Flock
from replicate.layout import GenerationId
from replicate.log import Claim
from replicate.logbook import Logbook
from replicate.verify import Share
from tiers.protocol import Key, Tier
from tiers.testing.faulty import Action, Fault, FaultyTier

Make = Callable[..., Machine]
MIB = 1 << 20


def copy(machine: Machine, source: Place, target: Place, **request: object) -> CopyReport:
    """Copy between two places that the machine knows."""
    return machine.engine.copy(CopyRequest(source=source.name, target=target.name, **request))  # type: ignore[arg-type]


def outcomes(report: CopyReport) -> dict[GenerationId, CopyOutcome]:
    return {one.generation: one.outcome for one in report.generations}


def keys_of(place: Place, generation: GenerationId) -> dict[str, Key]:
    """Return the data keys of a generation by the last part of their names."""
    return {key.rpartition("/")[2]: Key(key) for key in place.stored() if f"/{generation}." in key}


@pytest.fixture(params=["volume to bucket", "bucket to memory", "bucket to volume", "volume to memory"])
def ways(request: pytest.FixtureRequest) -> tuple[Place, Place]:
    """Return where a copy comes from and where it goes."""
    names = {"bucket": "bucket_place"}
    source, target = (request.getfixturevalue(names.get(name, name)) for name in request.param.split(" to "))
    return source, target


def test_what_is_copied_is_what_was_sealed(ways: tuple[Place, Place], machine: Make) -> None:
    """From a machine without a store; the copy is proved by reading all of it, and by a restore from it alone."""
    source, target = ways
    one = machine("one", source)
    made = one.push(100, 200)
    copier = machine("copier", source, target)
    report = copy(copier, source, target, everything=True)
    assert outcomes(report) == dict.fromkeys(made, CopyOutcome.COPIED)
    assert report.exit_code is ExitCode.OK
    assert target.live() == source.live() == made[::-1]
    (verified,) = copier.engine.verify(tier=target.name, share=Share(), generation=None, seed=0)[-1:]
    assert verified.sound
    two = machine("two", target)
    two.restore()
    assert {path: data for path, data in tree(two.resumed().files).items() if data is not None} == payload(200)
    assert two.store.get(made[1]).record_bytes == one.store.get(made[1]).record_bytes


def test_only_the_newest_is_copied_unless_more_is_asked_for(memory: Place, volume: Place, machine: Make) -> None:
    made = machine("one", memory).push(100, 200, 300)
    copier = machine("copier", memory, volume)
    assert outcomes(copy(copier, memory, volume)) == {made[2]: CopyOutcome.COPIED}
    assert outcomes(copy(copier, memory, volume, generation=made[0])) == {made[0]: CopyOutcome.COPIED}
    assert volume.live() == [made[2], made[0]]
    assert outcomes(copy(copier, memory, volume, everything=True)) == {
        made[2]: CopyOutcome.ALREADY_THERE,
        made[1]: CopyOutcome.COPIED,
        made[0]: CopyOutcome.ALREADY_THERE,
    }
    assert volume.live() == made[::-1]


def test_what_is_there_and_intact_is_looked_at_and_not_sent(memory: Place, volume: Place, machine: Make) -> None:
    machine("one", memory).push(100)
    copier = machine("copier", memory, volume)
    copy(copier, memory, volume)
    before, stored = memory.meter.snapshot(), volume.stored()
    usage = spent(volume, lambda: copy(copier, memory, volume))
    assert usage.sent() == 0
    assert usage.count("stat") == len(payload(100))
    assert (memory.meter.snapshot() - before).bytes_down < 16 * 1024, "the log, and no data"
    assert volume.stored() == stored


def test_a_copy_that_is_hurt_is_no_copy(memory: Place, volume: Place, machine: Make) -> None:
    (made,) = machine("one", memory).push(100)
    copier = machine("copier", memory, volume)
    copy(copier, memory, volume)
    volume.delete(keys_of(volume, made)["model.bin"])
    report = copy(copier, memory, volume)
    assert (report.exit_code, outcomes(report)) == (ExitCode.INTEGRITY, {made: CopyOutcome.TARGET_DAMAGED})
    assert "model.bin: is missing" in report.generations[0].reason


def test_each_part_is_fetched_once_and_sent_once(bucket_place: Place, volume: Place, machine: Make) -> None:
    """Requests on both sides, as the dry run says; and each byte is hashed once on the way."""
    volume.settings = TierConfig(name="volume", url=volume.settings.url)
    files = {"model.bin": payload(1, 11 * MIB)["model.bin"], "small": b"x" * 1000, "empty": b""}
    one = machine("one", bucket_place)
    made = one.publish(100, files)
    assert one.replicate().exit_code == 0
    copier = machine("copier", bucket_place, volume)
    (planned,) = copier.engine.copy(CopyRequest(source="bucket", target="volume"), dry_run=True).generations
    assert (planned.outcome, planned.generation) == (CopyOutcome.WOULD_COPY, made)
    assert volume.stored() == set()
    assert not copier.config.local.root.exists(), "a dry run writes nothing"
    sealed = sum(map(len, files.values()))
    read, hashed = bucket_place.meter.snapshot(), digests.HASHED.value
    written = spent(volume, lambda: copy(copier, bucket_place, volume))
    read = bucket_place.meter.snapshot() - read
    log = {"head": 1, "entries": 2, "end": 1, "manifest": 1}
    assert read.count("open") == planned.reads + sum(log.values())
    assert read.count("list_objects") == 1
    assert read.count() == planned.reads + sum(log.values()) + 1
    assert 0 <= read.bytes_down - sealed < 16 * 1024
    data = written.count("put") + written.count("put_part") + written.count("begin_upload") + written.count("complete")
    manifest, head = 1, 1
    assert data - manifest - head == planned.writes - len(files), "a volume is read back: one request more an object"
    assert digests.HASHED.value - hashed == 2 * sealed, "on the way, and as it is read back"


def test_parts_that_are_no_leaves_are_read_twice_as_announced(
    volume: Place, bucket_place: Place, machine: Make
) -> None:
    bucket_place.settings = TierConfig(**{**bucket_place.settings.model_dump(), "part_size": 5 * MIB})
    files = {"model.bin": payload(1, 11 * MIB)["model.bin"]}
    one = machine("one", volume)
    one.publish(100, files)
    assert one.replicate().exit_code == 0
    copier = machine("copier", volume, bucket_place)
    (planned,) = copier.engine.copy(CopyRequest(source="volume", target="bucket"), dry_run=True).generations
    assert (planned.reads, planned.writes) == (4, 5)
    before = volume.meter.snapshot()
    usage = spent(bucket_place, lambda: copy(copier, volume, bucket_place))
    assert (usage.count("put_part"), usage.count("begin_upload"), usage.count("complete")) == (3, 1, 1)
    assert usage.count("stat") == usage.bytes_down // (1 << 20) == 0, "the store checked every part"
    assert 2 * 11 * MIB <= (volume.meter.snapshot() - before).bytes_down < 2 * 11 * MIB + 16 * 1024
    machine("two", bucket_place).restore()


def test_what_the_source_was_asked_is_on_the_bill(bucket_place: Place, memory: Place, machine: Make) -> None:
    machine("one", bucket_place).push(100)
    copier = machine("copier", bucket_place, memory)
    copy(copier, bucket_place, memory)
    _status, view = copier.engine.status()
    assert view is not None
    counted = {tier.name: (tier.requests.get("A", 0), tier.requests.get("B", 0)) for tier in view.tiers}
    assert counted["bucket"][1] >= len(payload(100))
    assert counted["memory"][0] >= len(payload(100))


@pytest.mark.parametrize("hurt", ["flipped", "shorter", "longer", "gone", "manifest"])
def test_a_source_that_is_damaged_is_named_and_nothing_of_it_is_committed(
    memory: Place, volume: Place, machine: Make, hurt: str
) -> None:
    good, bad = machine("one", memory).push(100, 200)
    found = keys_of(memory, bad)
    key = found["manifest.json" if hurt == "manifest" else "model.bin"]
    if hurt == "gone":
        memory.delete(key)
    else:
        change = {"shorter": lambda data: data[:-1], "longer": lambda data: data + b"x"}.get(hurt, flip(7))
        with memory.raw() as tier:
            tamper(tier, key, change)
    copier = machine("copier", memory, volume)
    report = copy(copier, memory, volume, everything=True)
    assert report.exit_code is ExitCode.INTEGRITY
    assert outcomes(report) == {bad: CopyOutcome.SOURCE_DAMAGED, good: CopyOutcome.COPIED}
    assert key in report.generations[0].reason
    assert volume.live() == [good]
    assert not [key for key in keys_of(volume, bad) if key == "manifest.json"]
    again = copy(copier, memory, volume)
    assert (again.exit_code, volume.live()) == (ExitCode.INTEGRITY, [good])


def test_a_leaf_that_was_hurt_on_the_way_is_asked_for_again(memory: Place, volume: Place, machine: Make) -> None:
    (made,) = machine("one", memory).push(100)
    faulty: list[FaultyTier] = []
    memory.hook = lambda tier: _watched(
        faulty, tier, Fault(verb="open", key="*/model.bin", action=Action.CORRUPT, at=5)
    )
    copier = machine("copier", memory, volume)
    assert outcomes(copy(copier, memory, volume)) == {made: CopyOutcome.COPIED}
    faulty[-1].assert_all_fired()
    memory.hook = lambda tier: tier
    assert machine("two", volume).restore().generation == made


def _watched(kept: list[FaultyTier], tier: Tier, *faults: Fault) -> Tier:
    kept.append(FaultyTier(tier, faults))
    return kept[-1]


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_side_that_does_not_answer_is_told_by_name_and_a_repeat_goes_on(
    memory: Place, volume: Place, machine: Make, side: str
) -> None:
    (made,) = machine("one", memory).push(100)
    place, verb = (memory, "open") if side == "source" else (volume, "put")
    faulty: list[FaultyTier] = []
    place.hook = lambda tier: _watched(faulty, tier, Fault(verb=verb, key="*/files/optim/state.bin", times=9))
    copier = machine("copier", memory, volume)
    with pytest.raises(Unreachable, match=f"{place.name}: {verb}"):
        copy(copier, memory, volume)
    faulty[-1].assert_all_fired()
    assert volume.live() == []
    place.hook = lambda tier: tier
    assert outcomes(copy(copier, memory, volume)) == {made: CopyOutcome.COPIED}


def test_a_daemon_on_the_same_store_keeps_a_copy_out(memory: Place, volume: Place, machine: Make) -> None:
    one = machine("one", memory, volume)
    one.push(100)
    lock = Flock.attempt(one.config.local.daemon_lock)
    assert lock is not None
    try:
        with pytest.raises(Fenced, match="replicates") as caught:
            copy(one, memory, volume)
        assert "stop it" in caught.value.hint
        assert one.engine.copy(CopyRequest(source="memory", target="volume"), dry_run=True).exit_code == 0
    finally:
        lock.release()


def test_the_store_that_writes_there_copies_under_its_own_term(memory: Place, volume: Place, machine: Make) -> None:
    """Milestones only go to the volume by themselves; a copy brings one more, and the daemon goes on after it."""
    volume.settings = TierConfig(name="volume", url=volume.settings.url, replicate_every=250)
    one = machine("one", memory, volume)
    made = one.push(100, 250)
    assert volume.live() == [made[1]]
    assert outcomes(copy(one, memory, volume, generation=made[0])) == {made[0]: CopyOutcome.COPIED}
    assert [one.term for one in volume.log().live] == [1, 1]
    made += one.push(300, 500)
    assert volume.live() == [made[3], made[1], made[0]]
    status, _ = one.engine.status()
    assert {tier.tier: tier.newest.generation if tier.newest else None for tier in status.tiers} == {
        "memory": made[3],
        "volume": made[3],
    }


def test_a_writer_of_the_same_attempt_is_never_overtaken_by_a_copy(memory: Place, volume: Place, machine: Make) -> None:
    """It may be training: taking its term would shut it out of its own tier."""
    volume.settings = TierConfig(name="volume", url=volume.settings.url, replicate_every=1000)
    one = machine("one", memory, volume)
    one.push(100)
    made = one.push(1000)
    copier = machine("copier", memory, volume)
    (other,) = one.push(1100)
    before = volume.stored()
    with pytest.raises(Fenced, match="holds term 1 of attempt 1") as caught:
        copy(copier, memory, volume, generation=other)
    assert "restore" in caught.value.hint
    assert volume.stored() == before
    assert volume.live() == made
    one.push(2000)


def test_a_copy_may_follow_another_copy_and_is_told_when_it_was_followed(
    memory: Place, volume: Place, machine: Make
) -> None:
    one = machine("one", memory)
    made = one.push(100, 200)
    first, second = machine("first", memory, volume), machine("second", memory, volume)
    copy(first, memory, volume)
    copy(second, memory, volume, everything=True)
    assert volume.live() == made[::-1]
    one.push(300)
    with pytest.raises(Fenced, match="term 2 was claimed by copy on"):
        copy(first, memory, volume)
    assert outcomes(copy(second, memory, volume))[max(memory.live())] is CopyOutcome.COPIED


def test_the_store_itself_may_write_where_a_copy_was(memory: Place, volume: Place, machine: Make) -> None:
    """The tier is added to the trainer's configuration later: it claims the next term, and the copy stays out."""
    one = machine("one", memory)
    one.push(100)
    copier = machine("copier", memory, volume)
    copy(copier, memory, volume)
    later = Machine(one.folder, (memory, volume))
    later.push(200)
    assert volume.live() == memory.live()
    later.publish(300)
    volume.hook = lambda tier: FaultyTier(tier, [Fault(verb="*", times=10_000)])
    assert later.replicate().exit_code is ExitCode.PARTIAL
    volume.hook = lambda tier: tier
    with pytest.raises(Fenced, match="term 2 was claimed by"):
        copy(copier, memory, volume)
    assert len(volume.live()) == 2


def test_a_machine_that_was_overtaken_does_not_copy(memory: Place, volume: Place, machine: Make) -> None:
    one = machine("one", memory)
    one.push(100)
    two = machine("two", memory)
    two.restore()
    two.push(200)
    old = Machine(one.folder, (memory, volume))
    with pytest.raises(Fenced, match="gone on to attempt 2, this store is at attempt 1"):
        copy(old, memory, volume)
    assert volume.stored() == set()


def test_another_run_of_the_name_is_never_mixed_in(memory: Place, volume: Place, machine: Make) -> None:
    machine("one", memory).push(100)
    machine("other", volume).push(100)
    before = volume.stored()
    with pytest.raises(TrustFailure, match=r"several runs: memory has .* volume has"):
        copy(machine("copier", memory, volume), memory, volume)
    stranger = machine("stranger", memory, volume)
    stranger.publish(7)
    with pytest.raises(TrustFailure, match="this store has"):
        copy(stranger, memory, volume)
    assert volume.stored() == before


def test_a_forked_history_is_never_mixed_in(memory: Place, volume: Place, machine: Make) -> None:
    """Two machines restored the same generation and went on: two attempts 2."""
    machine("one", memory, volume).push(100)
    for name, place in (("left", memory), ("right", volume)):
        each = machine(name, place)
        each.restore()
        each.push(200)
    before = volume.stored()
    copier = machine("copier", memory, volume)
    for dry_run in (True, False):
        with pytest.raises(TrustFailure, match="attempt 2 was opened twice"):
            copier.engine.copy(CopyRequest(source="memory", target="volume"), dry_run=dry_run)
    assert volume.stored() == before


def test_a_target_that_cannot_keep_writers_apart_has_to_be_accepted(volume: Place, machine: Make) -> None:
    machine("one", volume).push(100)
    loose = Place(TierConfig(name="loose", url="fsspec+memory://copied-loosely"))
    with pytest.raises(CapabilityMissing, match="cannot keep two writers apart"):
        copy(machine("copier", volume, loose), volume, loose)
    accepted = TierConfig(name="loose", url="fsspec+memory://copied-loosely", accept_advisory=True)
    loose = Place(accepted)
    assert copy(machine("second", volume, loose), volume, loose).exit_code is ExitCode.OK
    assert machine("two", loose).restore().generation == loose.live()[0]


def test_what_cannot_be_meant_is_refused(memory: Place, volume: Place, machine: Make) -> None:
    (made,) = machine("one", memory).push(100)
    copier = machine("copier", memory, volume)
    with pytest.raises(UsageError, match="to itself"):
        copy(copier, memory, memory)
    with pytest.raises(UsageError):
        copy(copier, memory, volume, generation=made, everything=True)
    with pytest.raises(ConfigInvalid):
        copier.engine.copy(CopyRequest(source="nowhere", target="volume"))
    with pytest.raises(NothingFound, match="no generation of this run is on volume"):
        copy(copier, volume, memory)
    unknown = GenerationId(made.attempt, made.sequence + 1, 7, "0" * 8)
    with pytest.raises(NothingFound, match=f"{unknown} is not on memory"):
        copy(copier, memory, volume, generation=unknown)
    assert volume.stored() == set()


def test_the_log_says_that_a_copy_wrote(memory: Place, volume: Place, machine: Make) -> None:
    machine("one", memory).push(100)
    copy(machine("copier", memory, volume), memory, volume)
    with volume.raw() as tier:
        entry, _ = Logbook(tier, REMOTE).entry(0)
    assert isinstance(entry.body, Claim)
    assert entry.body.writer.startswith("copy on ")
