"""Files on their way to the disk: opened once, durable in batches, and gone where a flush failed."""

import errno
import os
import resource
import threading
from collections import Counter
from pathlib import Path

import pytest
from support.commits import Restore, Writer, expected, make, payload, tree

from replicate.errors import IntegrityFailure, LocalDisk
from replicate.restore import RestoreOptions
from replicate.restore.landing import BATCH, MAX_OPEN
from tiers import effects
from tiers.errors import TierUnavailable
from tiers.memory import MemoryTier
from tiers.testing.faulty import Action, Fault, FaultyTier

SMALL_FILES = {f"d{number % 3}/file-{number:04d}": b"%d" % number for number in range(12)}


def name_of(fd: int) -> str:
    return Path(f"/proc/self/fd/{fd}").readlink().name


def counted(patch: pytest.MonkeyPatch) -> Counter[tuple[str, str]]:
    """Count system calls by name and by the file that they are about."""
    calls: Counter[tuple[str, str]] = Counter()

    def count(call: str) -> None:
        real = getattr(os, call)

        def noting(first: object, *others: object, **named: object) -> object:
            calls[call, name_of(first) if isinstance(first, int) else str(first)] += 1
            return real(first, *others, **named)

        patch.setattr(os, call, noting)

    for call in ("open", "pwrite", "fchmod", "fsync", "close", "fstat", "dup", "posix_fallocate", "ftruncate"):
        count(call)
    return calls


def test_a_small_file_costs_one_open_one_write_one_fsync_and_one_close(
    writer: Writer, run_restore: Restore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = []
    for number, share in enumerate((2, 1), start=1):
        contents = dict(list(SMALL_FILES.items())[: len(SMALL_FILES) // share])
        made = make(contents, sequence=number)
        writer.commit(made)
        with monkeypatch.context() as patch:
            calls = counted(patch)
            run_restore(writer.tier, to=tmp_path / str(number))
        assert tree(tmp_path / str(number)) == expected(made)
        names = {Path(path).name for path in contents}
        due = {(call, name) for call in ("open", "pwrite", "fchmod", "fsync", "close") for name in names}
        assert {key: count for key, count in calls.items() if key[1] in names} == dict.fromkeys(due, 1)
        others.append(sum(count for (_, name), count in calls.items() if name not in names))
    assert others[0] == others[1], "what is paid once does not grow with the files"


@pytest.mark.parametrize("workers", [1, 4])
def test_however_many_small_files_each_is_durable_and_few_are_open(
    run_restore: Restore, tmp_path: Path, workers: int
) -> None:
    made = make({f"{number:05d}": b"%d" % number for number in range(MAX_OPEN + BATCH + 7)})
    writer = Writer(MemoryTier("a"))
    writer.commit(made)
    durable: Counter[str] = Counter()

    def watch(kind: effects.Effect, what: str, moment: effects.Moment) -> None:
        if kind is effects.Effect.FSYNC and moment is effects.Moment.AFTER:
            durable[what.rpartition("/")[2]] += 1

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(int(name) for name in os.listdir("/proc/self/fd")) + 1  # noqa: PTH208 - not a tree
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + MAX_OPEN + 32, before[1]))
    try:
        with effects.observing(watch):
            run_restore(writer.tier, to=tmp_path / "out", options=RestoreOptions(workers=workers))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert tree(tmp_path / "out") == expected(made)
    assert {name: durable[name] for name in made.contents} == dict.fromkeys(made.contents, 1)


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("number", [1, 5, 13])
def test_where_one_flush_fails_nothing_is_kept_for_another_try(
    writer: Writer, run_restore: Restore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, workers: int
) -> None:
    """Its pages may be called clean although they never arrived, so whoever goes on from them would lose bytes."""
    made = make({**SMALL_FILES, "model.bin": payload(1)})
    writer.commit(made)
    real, calls = os.fsync, []
    with monkeypatch.context() as patch:

        def broken(fd: int) -> None:
            calls.append(fd)
            if len(calls) == number:
                raise OSError(errno.EIO, "I/O error")
            real(fd)

        patch.setattr(os, "fsync", broken)
        with pytest.raises(LocalDisk, match="I/O error"):
            run_restore(writer.tier, to=tmp_path / "out", options=RestoreOptions(workers=workers))
    assert not any(tmp_path.iterdir())
    report = run_restore(writer.tier, to=tmp_path / "out")
    assert report.leaves_reused == 0
    assert tree(tmp_path / "out") == expected(made)


def test_a_flush_that_failed_counts_more_than_a_leaf_that_nobody_has(
    writer: Writer, run_restore: Restore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Were only the leaf's error seen, what is not on the disk would be kept for the next try."""
    made = make({"a.bin": payload(1), "b.bin": payload(2, 3000)})
    writer.commit(made)
    flushed = threading.Event()

    def broken(_fd: int) -> None:
        flushed.set()
        raise OSError(errno.EIO, "I/O error")

    def unanswered(tier: str, verb: str, key: str) -> Exception:
        assert flushed.wait(30)
        return TierUnavailable("no answer", tier=tier, operation=verb, key=key)

    tier = FaultyTier(writer.tier, [Fault(verb="open", key="*/b.bin", times=100, error=unanswered)])
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", broken)
        with pytest.raises(LocalDisk, match="I/O error"):
            run_restore(tier, to=tmp_path / "out", options=RestoreOptions(workers=8))
    tier.assert_all_fired()
    assert not any(tmp_path.iterdir())


def test_no_byte_of_a_small_file_is_written_before_it_is_proved(
    writer: Writer, run_restore: Restore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make({"only.bin": payload(3, 900)})
    writer.commit(made)
    tier = FaultyTier(writer.tier, [Fault(verb="open", key="*/files/*", action=Action.CORRUPT, at=5)])
    real, written = os.pwrite, []

    def note(fd: int, data: "memoryview[int]", offset: int) -> int:
        written.append((name_of(fd), bytes(data)))
        return real(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", note)
    report = run_restore(tier, to=tmp_path / "out")
    tier.assert_all_fired()
    assert [data for name, data in written if name == "only.bin"] == [made.contents["only.bin"]]
    assert len(report.incidents) == 1


def test_i11_a_second_name_of_a_restored_file_is_noticed(writer: Writer, run_restore: Restore, tmp_path: Path) -> None:
    """Who holds it could change the bytes after they were proved."""
    made = make({"a.bin": payload(1), "b.bin": b"2"})
    writer.commit(made)

    def add_name(kind: effects.Effect, what: str, moment: effects.Moment) -> None:
        if kind is effects.Effect.FSYNC and moment is effects.Moment.AFTER and what.endswith("/a.bin"):
            (tmp_path / "second").hardlink_to(what)

    with effects.observing(add_name), pytest.raises(IntegrityFailure, match=r"a\.bin"):
        run_restore(writer.tier, to=tmp_path / "out")
    assert (tmp_path / "second").exists()
    assert not (tmp_path / "out").exists()
