"""C27: the training script ends while its last checkpoint is still being written in the background."""

import subprocess
import sys
from pathlib import Path

import pytest

from replicate import RunStore

LIMIT = 60.0
SIZE = 3_000_000
SCRIPT = """
import atexit, os, sys, threading
from replicate import RunStore

store, how = RunStore(sys.argv[1], hash_workers=2), sys.argv[2]
main = threading.main_thread()

def writer(directory, state):
    main.join()        # the interpreter is ending: nothing new can be scheduled on a pool any more
    if how == "fails":
        raise OSError(28, "No space left on device")
    with (directory / "model.bin").open("wb") as stream:
        for _ in range(3):
            stream.write(state["bytes"])

if how == "atexit":
    atexit.register(store.close)
store.publish_async({"bytes": b"x" * 1_000_000}, writer=writer, next_update=7)
if how == "closes":
    writer = lambda directory, state: None
    threading.Thread(target=store.close).start()
if how == "raises":
    raise RuntimeError("training crashed")
"""


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ("returns", 0),
        ("atexit", 0),
        pytest.param("closes", 0, marks=pytest.mark.long),
        pytest.param("raises", 1, marks=pytest.mark.long),
    ],
)
def test_c27_what_was_under_way_is_sealed_before_the_process_ends(tmp_path: Path, how: str, code: int) -> None:
    """What waits when main returns is finished, also from an exit handler, also where training crashed."""
    root = tmp_path / "run"
    command = [sys.executable, "-c", SCRIPT, str(root), how]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT)
    assert done.returncode == code, done.stderr
    assert "cannot schedule new futures" not in done.stderr
    (made,) = RunStore(root).generations()
    assert made.id.next_update == 7
    assert (made.files / "model.bin").stat().st_size == SIZE


def test_c27_a_last_checkpoint_that_is_lost_is_no_success(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "run"), "fails"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT)
    assert done.returncode == 1
    assert "NOT published" in done.stderr
    assert RunStore(tmp_path / "run").generations() == ()
