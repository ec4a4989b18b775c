"""What a restore leaves in the page cache: what the trainer reads next, unless that would push out everything else."""

import os
from pathlib import Path

import pytest
from support.commits import Restore, Writer, expected, make, payload, tree

from replicate.generation import writeback
from replicate.restore import RestoreOptions, landing, pages
from replicate.restore.pages import Pages, available_memory, page_policy

MIB = 1 << 20


@pytest.mark.parametrize(
    ("total", "available", "policy"),
    [
        (50, 100, Pages.KEEP),
        (51, 100, Pages.DROP),
        (0, 0, Pages.KEEP),
        (1, 0, Pages.DROP),
        (1 << 60, None, Pages.KEEP),
    ],
)
def test_more_than_half_of_the_memory_does_not_stay_in_it(total: int, available: int | None, policy: Pages) -> None:
    assert page_policy(total, available) is policy


@pytest.mark.parametrize(
    ("text", "available"),
    [
        ("MemTotal: 9 kB\nMemAvailable:       3 kB\n", 3072),
        ("MemTotal: 9 kB\n", None),
        ("MemAvailable: none\n", None),
        ("", None),
    ],
)
def test_the_kernel_is_asked_and_where_it_does_not_say_nobody_guesses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, available: int | None
) -> None:
    (tmp_path / "meminfo").write_text(text)
    monkeypatch.setattr(pages, "_MEMINFO", tmp_path / "meminfo")
    assert available_memory() == available
    monkeypatch.setattr(pages, "_MEMINFO", tmp_path / "missing")
    assert available_memory() is None


def name_of(fd: int) -> str:
    return Path(f"/proc/self/fd/{fd}").readlink().name


@pytest.mark.parametrize(("available", "dropped"), [(0, True), (1 << 50, False)])
def test_what_was_written_leaves_the_memory_only_where_it_must(
    writer: Writer,
    run_restore: Restore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    available: int,
    dropped: bool,
) -> None:
    made = make({"big": payload(1, 5000), "small": payload(2, 300)})
    writer.commit(made)
    told: list[tuple[str, int, int]] = []
    flushed: list[str] = []

    def note(fd: int, start: int = 0, length: int = 0) -> None:
        name = name_of(fd)
        if not length:
            assert name in flushed, "pages may go only when they are durable"
        told.append((name, start, length))

    real = os.fsync

    def fsync(fd: int) -> None:
        real(fd)
        flushed.append(name_of(fd))

    monkeypatch.setattr(landing, "drop_written", note)
    monkeypatch.setattr(os, "fsync", fsync)
    options = RestoreOptions(workers=1, memory=lambda: available)
    run_restore(writer.tier, to=tmp_path / "out", options=options)
    assert tree(tmp_path / "out") == expected(made)
    leaves = [("big", start, 1024) for start in range(0, 4096, 1024)]
    assert told == ([*leaves, ("big", 0, 0), ("small", 0, 0)] if dropped else [])


def test_where_the_kernel_has_no_such_calls_the_fsync_does_it_all(
    writer: Writer, run_restore: Restore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make({"big": payload(1, 5000), "small": payload(2, 300)})
    writer.commit(made)
    monkeypatch.setattr(writeback, "_function", lambda: None)
    monkeypatch.delattr(os, "posix_fadvise")
    run_restore(writer.tier, to=tmp_path / "out", options=RestoreOptions(memory=lambda: 0))
    assert tree(tmp_path / "out") == expected(made)
