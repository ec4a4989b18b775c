"""Failures and kills at every side effect of publishing."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from replicate import RunStore
from replicate.errors import LocalDisk
from replicate.generation.evidence import Level
from tiers.effects import Effect, Moment, observing

MOMENTS = 60
"""More announcements than publishing makes; the tests assert that the last ones are not reached."""


class Full:
    """A disk that is full at the n-th announcement."""

    def __init__(self, nth: int) -> None:
        self.left = nth

    def __call__(self, _effect: Effect, what: str, moment: Moment) -> None:
        if moment is Moment.BEFORE:
            self.left -= 1
            if self.left == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), what)


def write(directory: Path, content: bytes) -> None:
    (directory / "sub").mkdir()
    (directory / "sub" / "state.bin").write_bytes(content)
    (directory / "meta").write_bytes(b"{}")


def leftovers(root: Path) -> list[str]:
    return [path.name for path in root.iterdir() if path.name.startswith((".incoming", ".tmp", ".staged"))]


@pytest.mark.parametrize("defer", [False, True], ids=["sealed", "deferred"])
def test_a_disk_that_fills_at_any_step_leaves_nothing_half_done(tmp_path: Path, defer: bool) -> None:
    """Whatever step fails, the older generation stays, and a new one exists whole or not at all."""
    failed = 0
    for nth in range(1, MOMENTS):
        store = RunStore(tmp_path / f"run-{nth}", hash_workers=1)
        with store.publish(next_update=1) as directory:
            write(directory, b"old")
        disk = Full(nth)
        try:
            with observing(disk), store.publish(next_update=2, defer_seal=defer) as directory:
                write(directory, b"new")
        except LocalDisk as error:
            failed += 1
            assert "No space left" in error.message  # noqa: PT017
            assert error.hint  # noqa: PT017
        else:
            if disk.left > 0:
                break
            store.sweep()  # it struck where what nobody needs any more was removed: that fails no save
        generations = store.generations()
        assert generations[-1].id.next_update == 1
        assert store.resume().id == generations[0].id
        assert all(store.validate(one.id).level is Level.VALIDATED for one in generations)
        assert leftovers(store.local.root) == []
        with store.publish(next_update=3) as directory:
            write(directory, b"space again")
        assert store.resume().id.next_update == 3
    assert disk.left > 0
    assert failed >= 8


DRIVER = """
import os, signal, sys
from pathlib import Path
from replicate import RunStore
from tiers.effects import observing

base, defer = Path(sys.argv[1]), sys.argv[2] == "defer"

def publish(store, update, content):
    with store.publish(next_update=update, defer_seal=defer and update == 2) as directory:
        (directory / "sub").mkdir()
        (directory / "sub" / "state.bin").write_bytes(content)

def killer(nth):
    left = [nth]
    def observe(_effect, _what, _moment):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
    return observe

killed = 0
while True:
    store = RunStore(base / f"run-{killed}", hash_workers=1)
    publish(store, 1, b"old")
    child = os.fork()
    if child == 0:
        with observing(killer(killed + 1)):
            publish(store, 2, b"new")
            if defer:
                store.seal_staged()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        break
    killed += 1
print(killed)
"""


@pytest.mark.parametrize("mode", ["sealed", "defer"])
def test_a_publisher_killed_at_any_step_is_recovered_from(tmp_path: Path, mode: str) -> None:
    """After kill -9 anywhere: what is there is whole, and publishing and resuming go on."""
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(tmp_path), mode], capture_output=True, text=True, check=True
    )
    killed = int(done.stdout)
    assert killed >= 16
    for index in range(killed):
        store = RunStore(tmp_path / f"run-{index}")
        resumed = store.resume()
        assert resumed.id.next_update in (1, 2)
        assert resumed.skipped == ()
        assert (resumed.files / "sub" / "state.bin").read_bytes() == {1: b"old", 2: b"new"}[resumed.id.next_update]
        with store.publish(next_update=3) as directory:
            (directory / "state.bin").write_bytes(b"next")
        assert leftovers(store.local.root) == []
        sequences = [one.id.sequence for one in store.generations()]
        assert len(set(sequences)) == len(sequences)
        assert store.resume().id.next_update == 3


SLOW = """
import sys
from replicate import RunStore
with RunStore(sys.argv[1]).publish(next_update=9) as directory:
    (directory / "half").write_bytes(b"x" * 1000)
    print("writing", flush=True)
    sys.stdin.read()
"""


def test_only_what_a_killed_publisher_left_is_swept(store: RunStore) -> None:
    """A lock says who is alive: a pid would mean nothing in a sidecar container."""
    root = store.local.root
    with subprocess.Popen(
        [sys.executable, "-c", SLOW, str(root)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        assert store.sweep() == ()
        assert len(leftovers(root)) == 1
        process.kill()
    assert len(store.sweep()) == 1
    assert leftovers(root) == []
    assert store.generations() == ()


CONCURRENT = """
import sys
from replicate import RunStore
store = RunStore(sys.argv[1])
for update in range(5):
    with store.publish(next_update=update) as directory:
        (directory / "state").write_text(f"{sys.argv[2]} {update}")
"""


def test_concurrent_publishers_never_share_a_sequence(store: RunStore) -> None:
    arguments = [sys.executable, "-c", CONCURRENT, str(store.local.root)]
    processes = [subprocess.Popen([*arguments, name]) for name in "abc"]
    assert [process.wait(timeout=120) for process in processes] == [0, 0, 0]
    generations = store.generations()
    assert [one.id.sequence for one in generations] == list(range(15, 0, -1))
    assert len({one.record.run_uid for one in generations}) == 1
    latest = store.latest()
    assert latest is not None
    assert latest.id.sequence == 15


def test_a_deferred_generation_is_sealed_by_resume_in_its_place(store: RunStore) -> None:
    for update, defer in ((1, False), (2, True), (3, True)):
        with store.publish(next_update=update, defer_seal=defer) as directory:
            (directory / "state").write_bytes(b"%d" % update)
    assert [one.id.next_update for one in store.generations()] == [1]
    assert store.sweep() == ()

    assert RunStore(store.local.root).resume().id.next_update == 3
    generations = store.generations()
    assert [(one.id.sequence, one.id.next_update) for one in generations] == [(3, 3), (2, 2), (1, 1)]
    assert generations[0].record.parent == str(generations[1].id)
    assert leftovers(store.local.root) == []


def test_the_daemon_seals_and_validates_what_was_deferred(store: RunStore) -> None:
    with store.publish(next_update=1, defer_seal=True) as directory:
        (directory / "state").write_bytes(b"x")
    (sealed,) = store.seal_staged()
    assert sealed.level is Level.VALIDATED
    assert store.latest() == sealed
    assert store.seal_staged() == ()


def test_a_forked_child_does_not_end_its_parents_publication(store: RunStore) -> None:
    """As a DataLoader worker that inherits the block would."""
    code = """
import os, sys
from replicate import RunStore
store = RunStore(sys.argv[1])
with store.publish(next_update=1) as directory:
    (directory / "state").write_bytes(b"x")
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        assert (directory / "state").exists()
assert (child == 0) or store.latest()
"""
    subprocess.run([sys.executable, "-c", code, str(store.local.root)], check=True, timeout=60)
    assert [one.id.sequence for one in store.generations()] == [1]


def test_resuming_needs_no_space(store: RunStore) -> None:
    """A disk that is full keeps what was found out from being recorded, not from being used."""
    for update in (1, 2):
        with store.publish(next_update=update, validate=False) as directory:
            write(directory, b"x")
    with observing(Full(1)):
        resumed = store.resume()
    assert (resumed.id.next_update, resumed.level, resumed.skipped) == (2, Level.VALIDATED, ())
    assert store.generations()[0].level is Level.SEALED


def test_a_generation_that_is_removed_while_they_are_listed_is_left_out(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for update in (1, 2):
        with store.publish(next_update=update) as directory:
            (directory / "state").write_bytes(b"x")
    listed = list(store.local.generations.iterdir())
    store.remove(store.generations()[-1].id)
    monkeypatch.setattr(Path, "iterdir", lambda _path: iter(listed))
    assert [one.id.next_update for one in store.generations()] == [2]
