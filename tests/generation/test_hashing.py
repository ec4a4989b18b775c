"""Sealing's two jobs on every byte, flush and hash: complete, in order, and with the right words where one fails."""

import errno
import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from replicate import RunStore
from replicate.digests import HASHED, MIN_LEAF, default_workers, digest_file
from replicate.errors import IntegrityFailure, LocalDisk
from replicate.generation import hashing
from replicate.generation.hashing import SMALL, flush, flush_and_hash
from replicate.generation.tree import scan
from tiers import effects
from tiers.effects import Effect, Moment


def write(folder: Path, sizes: dict[str, int]) -> Path:
    """Write files of these sizes, with holes, so that large ones cost nothing."""
    for name, size in sizes.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as stream:
            stream.write(name.encode()[:size])
            stream.truncate(size)
    return folder


def many(folder: Path, count: int = 600) -> Path:
    return write(folder, {f"d{number % 7}/f{number:04d}": number for number in range(count)})


def flushed_by(work: Callable[[], object]) -> list[str]:
    """Return what was fsynced, in the order of the ends."""
    seen: list[str] = []

    def observe(effect: Effect, what: str, moment: Moment) -> None:
        if effect is Effect.FSYNC and moment is Moment.AFTER:
            seen.append(what)

    with effects.observing(observe):
        work()
    return seen


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_every_file_is_flushed_once_and_hashed_once(tmp_path: Path, workers: int) -> None:
    """Small ones by the hundred, a large one of three leaves, an empty one, one just above what is small."""
    files = many(tmp_path / "files")
    write(files, {"large": 2 * MIN_LEAF + 5, "edge": SMALL, "above": SMALL + 1, "empty": 0})
    found = scan(files).files
    before = HASHED.value
    done: list[hashing.Hashed] = []
    flushed = flushed_by(lambda: done.extend(flush_and_hash(files, found, workers)))
    assert HASHED.value - before == sum(one.status.st_size for one in found)
    assert sorted(flushed) == sorted(str(files / one.path) for one in found)
    assert [file.path for _, file in done] == [one.path for one in found]
    for (identity, file), one in zip(done, found, strict=True):
        assert (identity.size, identity.mtime_ns, identity.inode) == (
            one.status.st_size, one.status.st_mtime_ns, one.status.st_ino,
        )  # fmt: skip
        assert file.size == one.status.st_size
    sealed = {file.path: file for _, file in done}
    assert sealed["d3/f0003"].sha256 == hashlib.sha256(b"d3/").hexdigest()
    expected = digest_file(files / "large", 2 * MIN_LEAF + 5)
    assert (sealed["large"].leaves, sealed["large"].sha256) == (expected.leaves, expected.sha256)
    assert len(expected.leaves) == 3


def test_one_worker_starts_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Background publications end while the interpreter does, when none can be started."""
    files = many(write(tmp_path, {"large": SMALL + 1}), 20)
    monkeypatch.setattr(threading.Thread, "start", lambda _self: pytest.fail("a thread was started"))
    assert len(flush_and_hash(files, scan(files).files, 1)) == 21
    flush(files, scan(files).files, 1)


@pytest.mark.parametrize("workers", [1, 4])
def test_flushing_alone_reads_nothing(tmp_path: Path, workers: int) -> None:
    files = many(tmp_path)
    before = HASHED.value
    flushed = flushed_by(lambda: flush(files, scan(files).files, workers))
    assert sorted(flushed) == sorted(str(path) for path in files.rglob("f*"))
    assert HASHED.value == before


@pytest.mark.parametrize("name", ["d1/f0001", "large"])
@pytest.mark.parametrize("workers", [1, 3])
def test_an_fsync_that_fails_fails_the_seal_and_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, workers: int
) -> None:
    files = many(write(tmp_path / "files", {"large": SMALL + 1}))
    real, hit = effects.fsync_fd, list[str]()

    def failing(fd: int, what: str) -> None:
        if what == str(files / name):
            hit.append(what)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(fd, what)

    monkeypatch.setattr(effects, "fsync_fd", failing)
    with pytest.raises(LocalDisk, match=f"{files / name}.*while flushing"):
        flush_and_hash(files, scan(files).files, workers)
    assert hit == [str(files / name)], "it is not repeated: a second success would prove nothing"
    with pytest.raises(LocalDisk, match="while flushing"):
        flush(files, scan(files).files, workers)


@pytest.mark.parametrize("name", ["d1/f0001", "large"])
@pytest.mark.parametrize("change", ["grown", "replaced", "gone", "touched"])
def test_what_changed_since_it_was_found_is_refused(tmp_path: Path, name: str, change: str) -> None:
    files = many(write(tmp_path / "files", {"large": SMALL + 1}), 20)
    found, path = scan(files).files, files / name
    match change:
        case "grown":
            with path.open("ab") as stream:
                stream.write(b"x")
        case "replaced":
            (tmp_path / "other").write_bytes(path.read_bytes())
            (tmp_path / "other").rename(path)
        case "gone":
            path.unlink()
        case "touched":
            os.utime(path, ns=(1, 1))
    kind = LocalDisk if change == "gone" else IntegrityFailure
    with pytest.raises(kind, match=name):
        flush_and_hash(files, found, 2)


def test_leave_is_asked_before_every_block(tmp_path: Path) -> None:
    files = write(tmp_path, {"large": 5 * (1 << 20), "small": 3})
    asked: list[int] = []
    flush_and_hash(files, scan(files).files, 2, lambda: asked.append(1))
    assert len(asked) == 6


def test_all_is_durable_before_the_document_that_says_so(store: RunStore) -> None:
    """The order of docs/design.md, with threads: bytes, document, folders, name, folder of the names."""
    threaded = RunStore(store.local.root, hash_workers=3)

    def publish() -> None:
        with threaded.publish(next_update=1, validate=False) as directory:
            many(write(directory, {"large": SMALL + 1}), 300)

    order = [Path(what).name if "files" not in what else "file" for what in flushed_by(publish)]
    document = order.index("generation.json")
    assert order[:document].count("file") == 301, "every file is flushed before the document"
    assert "generations" in order[document:]


def test_as_many_workers_as_cpus_by_default() -> None:
    assert default_workers() == min(16, len(os.sched_getaffinity(0)))


def test_where_nothing_can_begin_early_the_fsync_does_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("replicate.generation.writeback._function", lambda: None)
    files = many(tmp_path, 10)
    assert len(flushed_by(lambda: flush_and_hash(files, scan(files).files, 2))) == 10
