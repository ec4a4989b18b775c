"""The requests that are predicted are those that pass, by verb, outcome, bytes and S3 operation."""

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from socket import gethostname

import pytest
from costing.stage import MIB, PART, Machine, Stage
from support.proxy import Action, Fault

from replicate.asked import Requests
from replicate.errors import ExitCode
from replicate.layout import GenerationId
from replicate.requests import (
    Fetching,
    Held,
    LogPosition,
    Sending,
    Writer,
    data_requests,
    replicate_requests,
    restore_requests,
    verify_requests,
)
from replicate.verify import parse_share

Make = Callable[..., Stage]
MIXED = {"model.bin": b"m" * 5000, "optim/state.bin": b"o" * 700, "empty": b"", "meta.json": b"{}"}


def big(update: int, size: int = 11 * MIB + 3) -> dict[str, bytes]:
    """Return one file of more than two parts, and two small ones."""
    return {"big.bin": random.Random(update).randbytes(size), "small.bin": b"s" * 10, "empty": b""}


def writer() -> Writer:
    """Return who writes: the claim names host and process."""
    import os  # noqa: PLC0415 - one use

    return Writer(name=f"{gethostname()}:{os.getpid()}")


def replicated(stage: Stage, sending: list[Sending], at: LogPosition) -> LogPosition:
    """Replicate once, and fail unless exactly what was predicted passed; returns where the log is then."""
    predicted, after = replicate_requests(sending, at, writer(), listing_pages=stage.paged)
    reports = []
    seen = stage.passed(lambda: reports.append(stage.machine.replicate()))
    assert reports[0].exit_code == ExitCode.OK
    stage.check(predicted, seen, received=at.next_slot == 0)
    return after


def publish(stage: Stage, update: int, files: Mapping[str, bytes]) -> GenerationId:
    return stage.machine.publish(update, files)


def check_first_and_following(stage: Stage, files: Callable[[int], Mapping[str, bytes]]) -> None:
    first = publish(stage, 1, files(1))
    after = replicated(stage, [stage.sending(first)], LogPosition())
    assert (after.next_slot, after.head) == (2, 1 if after.head_written == 1 else 0)
    second, third = publish(stage, 2, files(2)), publish(stage, 3, files(3))
    newest_first = [stage.sending(third), stage.sending(second)]
    after = replicated(stage, newest_first, after.reopened())
    assert after.next_slot == 4
    predicted, _ = replicate_requests([], after.reopened(), listing_pages=stage.paged)
    stage.check(predicted, stage.passed(stage.machine.replicate), received=False)


def test_single_puts_on_s3(on_s3: Make) -> None:
    """The first generation on a tier claims its log, which is listed once; the following ones find it by the hint."""
    check_first_and_following(on_s3(), lambda _: MIXED)


def test_single_puts_on_a_volume(on_volume: Stage) -> None:
    """A volume attests nothing, so that every object is read back; no proxy counts there, the meter does."""
    check_first_and_following(on_volume, lambda _: MIXED)


def test_parts_on_s3(on_s3: Make) -> None:
    """Parts are smaller than leaves, so that their digests are a second hash: no request more."""
    stage = on_s3(part_size=PART)
    one = publish(stage, 1, big(1))
    plan = stage.plan(one)
    assert [len(item.parts) for item in plan.objects if item.part_size] == [3]
    assert any(item.second_hash for item in plan.objects)
    assert data_requests(plan).count == plan.requests
    replicated(stage, [stage.sending(one)], LogPosition())


def test_a_store_that_checks_nothing_is_read_back(on_s3: Make) -> None:
    """With a profile that trusts no checksum and no put-if-absent: a look before each entry, a GET of each object."""
    stage = on_s3(part_size=PART, profile="generic-s3", accept_advisory=True)
    one = publish(stage, 1, big(1))
    assert stage.plan(one).read_back
    after = replicated(stage, [stage.sending(one)], LogPosition())
    two = publish(stage, 2, MIXED)
    replicated(stage, [stage.sending(two)], after.reopened())


@pytest.mark.parametrize("accepted", [0, 1, 2])
def test_an_upload_that_was_interrupted_is_resumed(on_s3: Make, accepted: int) -> None:
    """With so many parts accepted of three: ListParts, and the rest."""
    stage = on_s3(part_size=PART, connections=1)
    assert stage.proxy is not None
    one = publish(stage, 1, big(1))
    stage.proxy.inject(
        *(Fault(operation="UploadPart", nth=accepted + 1 + again, action=Action.DROP) for again in range(2))
    )
    assert stage.machine.replicate().exit_code == ExitCode.UNREACHABLE
    assert len(stage.proxy.fired) == 2
    item = next(item for item in stage.plan(one).objects if item.part_size)
    there = {key.rpartition("/files/")[2] for key in stage.place.stored() if "/files/" in key}
    held = {path: Held(complete=True) for path in there}
    held[item.path] = Held(upload=True, accepted=frozenset(range(1, accepted + 1)))
    # The claim is there and this store's; the hint says so.
    at = LogPosition(next_slot=1, head=0, holds_term=True, seen=0)
    replicated(stage, [stage.sending(one, held=held)], at)


def test_an_upload_that_was_interrupted_before_its_manifest(on_s3: Make) -> None:
    """Every object is there: a look at each, and nothing is sent again."""
    stage = on_s3(part_size=PART)
    assert stage.proxy is not None
    one = publish(stage, 1, big(1))
    stage.proxy.inject(
        *(Fault(operation="PutObject", key="*/manifest.json", nth=1 + n, action=Action.DROP) for n in range(2))
    )
    assert stage.machine.replicate().exit_code == ExitCode.UNREACHABLE
    held = {item.path: Held(complete=True) for item in stage.plan(one).objects}
    at = LogPosition(next_slot=1, head=0, holds_term=True, seen=0)
    replicated(stage, [stage.sending(one, held=held)], at)


def check_verify(stage: Stage, share: str | None, seed: int = 0) -> None:
    made = [publish(stage, update, MIXED) for update in (1, 2)]
    assert stage.machine.replicate().exit_code == ExitCode.OK
    at = LogPosition(next_slot=3, head=0)
    wanted = parse_share(share) if share else None
    newest_first = [stage.stored(one) for one in reversed(made)]
    predicted = verify_requests(at, newest_first, share=wanted, seed=seed, listing_pages=stage.paged)
    seen = stage.passed(
        lambda: stage.machine.engine.verify(tier=stage.place.name, share=wanted, generation=None, seed=seed)
    )
    stage.check(predicted, seen, received=False)


@pytest.mark.parametrize("share", [None, "100%", "1/3", "0%"])
def test_verify_on_s3(on_s3: Make, share: str | None) -> None:
    """Of an empty file the size says all."""
    check_verify(on_s3(), share, seed=1)


@pytest.mark.parametrize("share", [None, "100%"])
def test_verify_on_a_volume(on_volume: Stage, share: str | None) -> None:
    check_verify(on_volume, share)


def check_restore(stage: Stage, tmp_path: Path, files: Mapping[str, bytes]) -> None:
    one = publish(stage, 1, files)
    assert stage.machine.replicate().exit_code == ExitCode.OK
    at = LogPosition(next_slot=2, head=0)
    stored = stage.stored(one)
    (tmp_path / "other").mkdir()
    other = Stage(Machine(tmp_path / "other", [stage.place]), stage.place, stage.proxy)
    predicted = restore_requests(at, Fetching(stored=stored), listing_pages=stage.paged)
    stage.check(predicted, other.passed(other.machine.restore), received=False)
    local = frozenset((file.sha256, file.size) for file in stored.record.files)
    predicted = restore_requests(at, Fetching(stored=stored, here=local), listing_pages=stage.paged)
    seen = other.passed(lambda: other.machine.restore(to=tmp_path / "files"))
    stage.check(predicted, seen, received=False)
    chosen = frozenset({"model.bin"}) & set(files) or frozenset({"big.bin"})
    predicted = restore_requests(at, Fetching(stored=stored, files=chosen), listing_pages=stage.paged)
    seen = other.passed(lambda: other.machine.restore(to=tmp_path / "part", tier=stage.place.name, paths=(*chosen,)))
    stage.check(predicted, seen, received=False)


def test_restore_from_s3(on_s3: Make, tmp_path: Path) -> None:
    """All of it, with all of it in the store already, and one file of it."""
    check_restore(on_s3(), tmp_path, MIXED)


def test_restore_of_what_was_sent_in_parts(on_s3: Make, tmp_path: Path) -> None:
    """Leaves are read, not parts: 11 MiB are one leaf."""
    check_restore(on_s3(part_size=PART), tmp_path, big(1))


def test_restore_from_a_volume(on_volume: Stage, tmp_path: Path) -> None:
    check_restore(on_volume, tmp_path, MIXED)


def test_restore_where_nothing_exists(on_s3: Make) -> None:
    """The log is listed, and then whether generations lie there without one."""
    stage = on_s3()
    predicted = restore_requests(LogPosition(), Fetching(stored=None), listing_pages=stage.paged)
    seen = stage.passed(lambda: stage.machine.restore(if_absent=True, fresh_ok=True))
    stage.check(predicted, seen)


def test_without_its_hint_the_log_is_listed(on_s3: Make) -> None:
    stage = on_s3()
    publish(stage, 1, MIXED)
    assert stage.machine.replicate().exit_code == ExitCode.OK
    stage.place.delete("flow/head.json")
    two = publish(stage, 2, MIXED)
    at = LogPosition(next_slot=2, holds_term=True, seen=1)
    replicated(stage, [stage.sending(two)], at)


def test_requests_add_up() -> None:
    read = replicate_requests([], LogPosition())[0]
    assert (read + read).usage == (read * 2).usage
    assert Requests().count == 0
    with pytest.raises(ValueError, match=r"head\.json names slot 3"):
        LogPosition(next_slot=3, head=3)
