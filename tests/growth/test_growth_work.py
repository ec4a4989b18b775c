"""What is decided over values takes work in proportion to them: twice as much of everything, twice the work.

Counted in instructions, so that nothing depends on the machine; a quadratic loop shows as a growth of 3 to 4.
"""

import hashlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from growth.counting import growth, steps
from growth.history import AT, ATTEMPT_ID, RUN, RUN_UID, LongLog, generation, sealed
from growth.stage import CLOCK

from replicate.errors import UsageError
from replicate.generation.evidence import Level
from replicate.layout import GenerationId, RemoteRun
from replicate.log import LiveCommit, LogState, LogView, Retired
from replicate.logbook import Logbook
from replicate.manifest import (
    MAX_GENERATION_BYTES,
    MAX_MANIFEST_BYTES,
    GenerationRecord,
    Manifest,
    ManifestObject,
    SealedFile,
    content_digest,
    parse_generation,
    parse_manifest,
)
from replicate.paths import check_paths
from replicate.plan import LocalFact, plan_generations, plan_upload
from replicate.prune import plan_tier
from replicate.restore.plan import Held, HeldGeneration, RestoreRequest, TierAnswer, plan_restore
from replicate.retention import Member, Policy, apply_policy
from replicate.status import LocalEntry, TierInput, assemble, list_generations
from replicate.tracker import Completed, Seen, Tracker
from tiers.memory import MEMORY_CAPABILITIES, MemoryTier

LINEAR = 2.3
REMOTE = RemoteRun.of(RUN)
Work = Callable[[int], Callable[[], object]]


def view(count: int) -> LogView:
    log = LongLog(MemoryTier("m"))
    log.claim()
    log.commits(count)
    return log.view


def state(count: int) -> LogState:
    found = view(count).state
    assert found is not None
    return found


def local(count: int) -> list[LocalEntry]:
    return [
        LocalEntry(
            generation=generation(number),
            level=Level.VALIDATED,
            at=AT,
            reason="",
            sealed_at=AT,
            total_bytes=1,
            objects=1,
            attempt_id=ATTEMPT_ID,
            parent=None,
        )
        for number in range(1, count + 1)
    ]


def listing(count: int) -> Callable[[], object]:
    inputs = [TierInput(tier=name, view=view(count)) for name in ("a", "b")]
    return partial(list_generations, local(count), inputs)


def assembling(count: int) -> Callable[[], object]:
    return partial(assemble, RUN, RUN_UID, local(count), [TierInput(tier="a", view=view(count))])


def reading(count: int) -> Callable[[], object]:
    log = LongLog(MemoryTier("m"))
    log.claim()
    log.commits(count)
    log.hint()
    return lambda: Logbook(log.tier, REMOTE).read(thorough=True)


def retiring(count: int) -> Callable[[], object]:
    return partial(plan_tier, state(count), Policy(keep_last=count // 2, keep_every=500), {}, {})


def rolling_back(count: int) -> Callable[[], object]:
    """As many attempts as that, each from the last generation but one of the attempt before it."""
    members, starts = [], {}
    for attempt in range(1, count + 1):
        ids = [
            GenerationId(attempt, 3 * attempt + n, 100 * attempt + 50 * n, f"{attempt:06x}{n:02x}") for n in range(3)
        ]
        members += [Member(id=one) for one in ids]
        starts[attempt + 1] = ids[1]
    return partial(apply_policy, members, Policy(keep_last=2, keep_every=500), starts=starts)


def going_up(count: int) -> Callable[[], object]:
    """Half of the store is committed, half of the rest quarantined; some were taken back as damaged."""
    facts = [
        LocalFact(
            id=generation(number),
            parent=generation(number - 1) if number > 1 else None,
            validated=True,
            quarantined=number % 4 == 1,
            attempt_id=ATTEMPT_ID,
        )
        for number in range(1, count + 1)
    ]
    known = state(count // 2)
    lost = tuple(
        Retired(
            generation=str(generation(number)),
            manifest_key="k",
            slot=number,
            total_bytes=1,
            objects=1,
            reason="hurt",
            at=AT,
            damaged=True,
        )
        for number in range(1, count + 1, 3)
    )
    known = known.model_copy(update={"retired": lost})
    return partial(plan_generations, facts, known, replicate_every=500, backlog=5)


def restoring(count: int) -> Callable[[], object]:
    answers = [TierAnswer(tier=name, view=view(count)) for name in ("a", "b")]
    held = tuple(HeldGeneration(id=generation(number), total_bytes=1, objects=1) for number in range(1, count + 1))
    return partial(plan_restore, RestoreRequest(), answers, Held(run_uid=RUN_UID, generations=held))


def files(count: int) -> tuple[SealedFile, ...]:
    return tuple(sealed(f"rank-{number % 7}/part-{number:06d}.bin", b"%d" % number) for number in range(count))


def record(found: tuple[SealedFile, ...]) -> GenerationRecord:
    return GenerationRecord(
        format=1,
        id=str(GenerationId(1, 1, 100, content_digest(found, ())[:8])),
        run=RUN,
        run_uid=RUN_UID,
        attempt=1,
        attempt_id=ATTEMPT_ID,
        sequence=1,
        parent=None,
        next_update=100,
        payload="files",
        contract={},
        sealed_at=AT,
        save_milliseconds=1,
        files=found,
    )


def manifest(count: int) -> bytes:
    sealed_record = record(files(count))
    data = sealed_record.encode()
    prefix = REMOTE.prefix(sealed_record.generation, 1, "0" * 16)
    return Manifest(
        format=1,
        run_uid=RUN_UID,
        term=1,
        nonce="0" * 16,
        prefix=prefix,
        generation=sealed_record.model_dump(mode="json"),
        generation_sha256=hashlib.sha256(data).hexdigest(),
        objects=tuple(
            ManifestObject(
                path=file.path,
                key=REMOTE.object(prefix, file.path),
                size=file.size,
                sha256=file.sha256,
                verified_by="store-sha256",
                part_size=0,
            )
            for file in sealed_record.files
        ),
        written_at=AT,
    ).encode()


def uploading(count: int) -> Callable[[], object]:
    return partial(plan_upload, record(files(count)), "p/", MEMORY_CAPABILITIES)


WORKS: dict[str, Work] = {
    "list": listing,
    "status": assembling,
    "read a log": reading,
    "retire": retiring,
    "roll back": rolling_back,
    "decide what goes up": going_up,
    "plan a restore": restoring,
    "plan an upload": uploading,
    "seal": lambda count: record(files(count)).encode,
    "read generation.json": lambda count: partial(parse_generation, record(files(count)).encode()),
    "read manifest.json": lambda count: partial(parse_manifest, manifest(count)),
    "check paths": lambda count: partial(check_paths, [file.path for file in files(count)]),
}


@pytest.mark.parametrize("name", WORKS)
def test_twice_as_much_is_twice_the_work(name: str) -> None:
    assert 1.2 < growth(WORKS[name], 60) < LINEAR


def test_the_counter_tells_linear_from_quadratic() -> None:
    def pairs(count: int) -> Callable[[], object]:
        numbers = range(count)
        return lambda: [one for one in numbers for other in numbers if one == other]

    assert 1.9 < growth(lambda count: lambda: [one for one in range(count)], 500) < 2.1  # noqa: C416 - a loop is wanted
    assert growth(pairs, 60) > 3.8


def test_adding_an_entry_costs_the_same_in_a_long_log() -> None:
    def adding(count: int) -> int:
        log = LongLog(MemoryTier("m"))
        log.claim()
        log.commits(count)
        assert log.view.state is not None
        _ = log.view.state.find("what indexes it once")
        return steps(lambda: log.commits(1))

    assert adding(220) < 1.1 * adding(20)


def test_finding_a_commit_follows_what_is_committed_and_retired() -> None:
    log = LongLog(MemoryTier("m"))
    log.claim()
    log.commits(5)
    log.retires([2])
    log.commits(0)
    found = log.view.state
    assert found is not None
    assert [found.find(generation(number)) is not None for number in range(1, 7)] == [
        True,
        False,
        True,
        True,
        True,
        False,
    ]
    log.append(log.commit(2))
    again = log.view.state
    assert again is not None
    assert isinstance(again.find(generation(2)), LiveCommit)
    assert found.find(generation(2)) is None, "a state that was kept stays as it was"
    assert again.model_copy(update={"live": ()}).find(generation(3)) is None
    plain = LogState.model_validate(again.model_dump())
    assert plain == again, "what was derived is no part of the state"


def test_the_tracker_reads_what_is_complete_once(tmp_path: Path) -> None:
    tracker = Tracker.open(tmp_path, CLOCK)
    asked: list[str] = []

    def complete(number: int) -> None:
        done = Completed(generation=generation(number), slot=number, manifest_sha256="0" * 64, total_bytes=1, at=AT)
        tracker.complete("m", [done], Seen(slot=number, sha256="0" * 64))

    complete(1)
    complete(2)
    tracker._connection.set_trace_callback(asked.append)
    assert [one.slot for one in tracker.completed("m")] == [2, 1]
    assert sum("FROM completed" in query for query in asked) == 1
    assert len(tracker.completed("m")) == 2
    assert sum("FROM completed" in query for query in asked) == 1
    complete(3)
    assert [one.slot for one in tracker.completed("m")] == [3, 2, 1]
    tracker.uncomplete("m", [generation(3), generation(1)])
    assert [one.slot for one in tracker.completed("m")] == [2]
    other = Tracker.open(tmp_path, CLOCK)
    other.uncomplete("m", [generation(2)])
    assert tracker.completed("m") == (), "what another process wrote is seen"
    other.close()
    tracker.close()


def test_a_hundred_thousand_files_fit_and_more_than_fit_are_refused_at_sealing() -> None:
    """By what one file adds: a generation of a hundred thousand takes seconds to make."""
    few, more = record(files(100)), record(files(200))
    sealed_each = (len(more.encode()) - len(few.encode())) / 100
    stored_each = (len(manifest(200)) - len(manifest(100))) / 100
    assert 100_000 * sealed_each < MAX_GENERATION_BYTES / 2
    assert 100_000 * stored_each < MAX_MANIFEST_BYTES / 2


def test_too_many_files_are_refused_before_anything_goes_up(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = record(files(300))
    data = whole.encode()
    monkeypatch.setattr("replicate.manifest.MAX_GENERATION_BYTES", len(data))
    assert whole.encode() == data
    monkeypatch.setattr("replicate.manifest.MAX_GENERATION_BYTES", len(data) - 1)
    with pytest.raises(UsageError, match="300 files are too many for one generation"):
        whole.encode()
    monkeypatch.undo()
    monkeypatch.setattr("replicate.manifest.MAX_MANIFEST_BYTES", len(manifest(300)) - 1)
    with pytest.raises(UsageError, match="on a tier"):
        whole.encode()
