"""A disk that fills up, a process that is killed, and what memory a restore takes."""

import errno
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from support.commits import Restore, Writer, expected, generation, make, payload, tree

from replicate.errors import LocalDisk
from replicate.layout import LocalRun
from replicate.restore import RestoreOptions
from replicate.restore import staging as staging_module
from tiers import effects
from tiers.protocol import Key
from tiers.testing.passthrough import PassThroughTier

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_c81_free_space_is_checked_before_anything_is_written(
    writer: Writer, run_restore: Restore, tmp_path: Path
) -> None:
    made = generation(1)
    writer.commit(made)
    need = made.record.total_bytes
    options = RestoreOptions(margin=1000, free_space=lambda _: need + 999)
    with pytest.raises(LocalDisk, match=f"needs {need} bytes") as caught:
        run_restore(writer.tier, to=tmp_path / "out", options=options)
    assert "make room" in caught.value.hint
    assert not any(tmp_path.iterdir())
    enough = RestoreOptions(margin=1000, free_space=lambda _: need + 1000)
    run_restore(writer.tier, to=tmp_path / "out", options=enough)


@pytest.mark.parametrize("where", ["posix_fallocate", "pwrite", "fsync"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_c81_a_full_disk_removes_the_staging_and_leaves_the_target(
    writer: Writer,
    run_restore: Restore,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    code: int,
) -> None:
    made = generation(1)
    writer.commit(made)
    (tmp_path / "out").mkdir()
    real, calls = getattr(os, where), []

    def full(*arguments: object) -> object:
        calls.append(arguments)
        if len(calls) == 2:
            raise OSError(code, os.strerror(code))
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(os, where, full)
        with pytest.raises(LocalDisk, match="target is untouched") as caught:
            run_restore(writer.tier, to=tmp_path / "out")
    assert "make room" in caught.value.hint
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]
    assert tree(tmp_path / "out") == {}
    run_restore(writer.tier, to=tmp_path / "out")
    assert tree(tmp_path / "out") == expected(made)


def test_c81_a_full_disk_while_the_record_is_written_leaves_the_store_as_it_was(
    writer: Writer, run_restore: Restore, local: LocalRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = generation(1)
    writer.commit(made)
    with monkeypatch.context() as patch:

        def full(_path: Path, _data: bytes, **_: int) -> None:
            raise LocalDisk("no space", hint="make room") from FULL

        patch.setattr(staging_module, "write_new", full)
        with pytest.raises(LocalDisk):
            run_restore(writer.tier)
    assert tree(local.root) == {"generations": None}
    run_restore(writer.tier)
    assert tree(local.generation(made.id) / "files") == expected(made)


def test_c81_where_nothing_can_be_reserved_files_are_sparse(
    writer: Writer, run_restore: Restore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = generation(1)
    writer.commit(made)

    def unsupported(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(os, "posix_fallocate", unsupported)
    run_restore(writer.tier, to=tmp_path / "out")
    assert tree(tmp_path / "out") == expected(made)


def test_another_error_of_the_disk_keeps_what_was_fetched(
    writer: Writer, run_restore: Restore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = generation(1)
    writer.commit(made)
    with monkeypatch.context() as patch:

        def broken(*_: object, **__: object) -> None:
            raise OSError(errno.EIO, "I/O error")

        patch.setattr(effects, "rename", broken)
        with pytest.raises(LocalDisk, match="I/O error"):
            run_restore(writer.tier, to=tmp_path / "out")
    report = run_restore(writer.tier, to=tmp_path / "out")
    assert report.leaves_reused == report.leaves
    assert tree(tmp_path / "out") == expected(made)


class Counting(PassThroughTier):
    """Notes how many bytes are asked for at once, and of how many objects at the same time."""

    def __init__(self, writer: Writer) -> None:
        super().__init__(writer.tier)
        self.asked: list[int] = []

    def open(self, key: Key, start: int = 0, length: int | None = None):  # type: ignore[no-untyped-def] # noqa: ANN201
        stream = super().open(key, start, length)
        if "/files/" not in key:
            return stream
        asked = self.asked

        class Noting:
            def readinto(self, buffer: "memoryview[int]") -> int:
                asked.append(len(buffer))
                return int(stream.readinto(buffer))  # type: ignore[attr-defined]

            def close(self) -> None:
                stream.close()

        return Noting()


def test_memory_is_bounded_by_workers_and_buffers(writer: Writer, run_restore: Restore, tmp_path: Path) -> None:
    """No read is larger than a buffer, whatever the leaf; the buffers are all there is per worker."""
    made = make({"big": payload(1, 64 * 1024)})
    writer.commit(made)
    tier = Counting(writer)
    run_restore(tier, to=tmp_path / "out", options=RestoreOptions(workers=3, buffer_bytes=100))
    assert max(tier.asked) == 100
    assert tree(tmp_path / "out") == expected(made)


CHILD = """
    import os, signal, sys
    from pathlib import Path
    from support.commits import RUN, Writer, expected, generation, tree
    from replicate.errors import UsageError
    from replicate.layout import LocalRun, RemoteRun
    from replicate.restore import RestoreOptions, RestoreRequest, restore
    from tiers import effects
    from tiers.clock import SystemClock
    from tiers.memory import MemoryTier
    from tiers.testing.passthrough import PassThroughTier

    scratch, to = Path(sys.argv[1]), sys.argv[2]
    writer = Writer(MemoryTier("a"))
    for number in (1, 2):
        writer.commit(generation(number))
    made = generation(2)

    def run(where, kill_at):
        count = 0

        def step(*_):
            nonlocal count
            count += 1
            if count == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

        class Tier(PassThroughTier):
            def open(self, key, start=0, length=None):
                step()
                return super().open(key, start, length)

        request = RestoreRequest(to=where / to if to else None)
        tier, local = Tier(writer.tier), LocalRun(where / "runs" / RUN)
        with effects.observing(step):
            restore(request, [tier], local, SystemClock(), remote=RemoteRun.of(RUN), options=RestoreOptions(workers=1))
        return count

    (scratch / "0").mkdir()
    steps = run(scratch / "0", 0)
    for kill_at in range(1, steps + 1):
        where = scratch / str(kill_at)
        where.mkdir()
        child = os.fork()
        if child == 0:
            run(where, kill_at)
            os._exit(0)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
        target = where / to if to else LocalRun(where / "runs" / RUN).generation(made.id) / "files"
        complete = target.exists()
        assert not complete or tree(target) == expected(made), kill_at
        try:
            run(where, 0)
        except UsageError as error:
            assert to and complete and "not empty" in error.message, (kill_at, error.message)
        assert tree(target) == expected(made), kill_at
        home = where if to else where / "runs" / RUN
        assert not list(home.glob(".restoring-a*")), kill_at
    print(steps)
"""


@pytest.mark.parametrize("to", ["out", ""])
def test_c79_killed_anywhere_and_run_again_the_result_is_exact(tmp_path: Path, to: str) -> None:
    """Kill at every request and side effect, run again: the target is complete or not there, in the end complete."""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CHILD), str(tmp_path), to],
        env={**os.environ, "PYTHONPATH": f"{root}:{root / 'tests'}"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 30, "the fixture has to engage"


def test_c79_half_a_restore_is_reused_and_only_where_it_is_right(
    writer: Writer, run_restore: Restore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = generation(1)
    writer.commit(made)
    with monkeypatch.context() as patch:

        def stop(*_: object) -> None:
            raise KeyboardInterrupt

        patch.setattr(effects, "fsync_fd", stop)
        with pytest.raises(KeyboardInterrupt):
            run_restore(writer.tier, to=tmp_path / "out")
    left = next(tmp_path.glob(".restoring-a*"))
    model = left / "model.bin"
    data = bytearray(model.read_bytes())
    data[2048:3072] = bytes(1024)
    model.write_bytes(data)
    (left / "config.json").unlink()
    report = run_restore(writer.tier, to=tmp_path / "out")
    assert dict(report.by_place) == {"a": 1024 + len(made.contents["config.json"])}
    assert tree(tmp_path / "out") == expected(made)
