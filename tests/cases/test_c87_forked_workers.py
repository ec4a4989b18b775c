"""C87: the trainer forks its workers while our library is at work in it.

A worker holds none of our locks, runs none of our threads, says nothing at its exit about what
the trainer had under way, and may publish by itself.
"""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from replicate import RunStore
from replicate.generation.locks import Flock

LIMIT = 30.0

OUTLIVED = """
import os, sys, threading
from replicate import RunStore
from replicate.generation.locks import held

store = RunStore(sys.argv[1], hash_workers=1)
with store.publish(next_update=1) as directory:
    (directory / "state").write_bytes(b"one")
writing, locked, never = threading.Event(), threading.Event(), threading.Event()

def writer(directory, state):
    (directory / "half").touch()
    writing.set()
    never.wait()

def hold():
    with held(store.local.lock), store.lease(store.latest().id):
        locked.set()
        never.wait()

store.publish_async({}, writer=writer, next_update=2)
writing.wait()
threading.Thread(target=hold, daemon=True).start()
locked.wait()
worker = os.fork()
if worker == 0:
    os.read(int(sys.argv[2]), 1)   # lives until the test lets it go, longer than its parent
    os._exit(0)
os.write(1, b"%d\\n" % worker)
never.wait()
"""

WORKERS = """
import os, sys, threading, multiprocessing
from replicate import RunStore

def work(root, update, context):
    if context == "fork":
        import fsspec
        with fsspec.open("memory://worker", "wb") as stream:
            stream.write(b"x")
    with RunStore(root, hash_workers=2).publish(next_update=update) as directory:
        (directory / "state").write_bytes(b"%d" % update)

def fail(directory, state):
    raise OSError(28, "No space left on device")

if __name__ == "__main__":
    root = sys.argv[1]
    store = RunStore(root, hash_workers=2)
    gate = threading.Event()
    store.publish_async({}, writer=lambda directory, state: (gate.wait(30), (directory / "a").touch()), next_update=1)
    for number, context in enumerate(("fork", "fork", "spawn"), 2):
        worker = multiprocessing.get_context(context).Process(target=work, args=(root, number, context))
        worker.start()
        worker.join(30)
        assert worker.exitcode == 0, (context, worker.exitcode)
    gate.set()
    store.background().wait()
    failing = RunStore(root, hash_workers=1).background()
    failing.submit({}, writer=fail, next_update=9)
    while failing.in_flight:
        threading.Event().wait(0.005)
    child = os.fork()
    if child == 0:
        sys.exit(0)   # with atexit: the failure is the parent's to tell
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0, status
    print("workers done")
"""


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path / "run", hash_workers=1)


@contextmanager
def outlived(store: RunStore) -> Iterator[int]:
    """Yield the pid of a worker whose trainer was killed in the middle of everything; it ends with the block."""
    let_go, lives = os.pipe()
    command = [sys.executable, "-W", "ignore", "-c", OUTLIVED, str(store.local.root), str(let_go)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, pass_fds=(let_go,)) as trainer:
        os.close(let_go)
        try:
            assert trainer.stdout is not None
            assert select.select([trainer.stdout], [], [], LIMIT)[0], "the trainer never forked"
            worker = int(trainer.stdout.readline())
            assert Flock.attempt(store.local.lock) is None, "the trainer holds the store's lock while it lives"
            os.kill(trainer.pid, signal.SIGKILL)
            trainer.wait(LIMIT)
            yield worker
        finally:
            trainer.kill()
            os.close(lives)


def test_c87_a_worker_that_outlives_its_trainer_holds_none_of_its_locks(store: RunStore) -> None:
    """Else the store could not be published to, nor swept, for as long as the worker lives."""
    with outlived(store) as worker:
        os.kill(worker, 0)  # it is alive
        lock = Flock.attempt(store.local.lock)
        assert lock is not None, "the worker holds the store's lock"
        lock.release()
        newest = store.latest()
        assert newest is not None
        document = Flock.attempt(newest.directory / "generation.json")
        assert document is not None, "the worker holds a lease"
        document.release()
        assert [path.name.startswith(".incoming-") for path in store.sweep()] == [True]
        with store.publish(next_update=3) as directory:
            (directory / "state").write_bytes(b"three")
        os.kill(worker, 0)
    assert [one.id.next_update for one in store.generations()] == [3, 1]


def test_c87_workers_publish_by_themselves_and_tell_nothing_of_their_parents(store: RunStore, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(WORKERS)
    command = [sys.executable, "-W", "ignore", str(script), str(store.local.root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=4 * LIMIT)
    assert "workers done" in done.stdout, done.stderr
    assert done.stderr.count("NOT published") == 1, "the parent tells it, the child does not"
    assert done.returncode == 1, "a checkpoint that was lost is no success"
    assert sorted(one.id.next_update for one in store.generations()) == [1, 2, 3, 4]


def test_c87_a_child_neither_releases_nor_keeps_its_parents_lock(tmp_path: Path) -> None:
    lock = Flock.take(tmp_path / "lock")
    child = os.fork()
    if child == 0:
        mine = lock.guards(tmp_path / "lock")
        lock.release()
        os._exit(1 if mine else 0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert lock.guards(tmp_path / "lock")
    assert Flock.attempt(tmp_path / "lock") is None, "the child let go of it"
    lock.release()
    again = Flock.attempt(tmp_path / "lock")
    assert again is not None
    again.release()
