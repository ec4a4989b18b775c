"""Publishing in the background."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from replicate import RunStore
from replicate.errors import Fenced, LocalDisk, UsageError
from replicate.generation.background import AsyncPublisher
from replicate.generation.owned import own

WAIT = 60


def save(directory: Path, state: Any) -> None:
    torch.save(state, directory / "payload.pt")


class Gate:
    """A writer that waits until it is let through."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.open = threading.Event()

    def __call__(self, directory: Path, state: Any) -> None:
        self.started.set()
        assert self.open.wait(WAIT)
        save(directory, state)


def fail(_directory: Path, _state: Any) -> None:
    raise LocalDisk("the disk is full", hint="make room")


def loaded(store: RunStore) -> Any:
    latest = store.latest()
    assert latest is not None
    return torch.load(latest.files / "payload.pt", weights_only=True)


def test_changes_after_the_call_are_not_seen(store: RunStore) -> None:
    """The state belongs to one update, although training goes on while it is written."""
    model = torch.nn.Linear(2, 2)
    state: dict[str, Any] = {"model": model.state_dict(), "steps": [1, 2], "nested": ({"t": torch.zeros(2)},)}
    before = model.weight.detach().clone()
    gate = Gate()
    store.publish_async(state, writer=gate, next_update=1)
    with torch.no_grad():
        model.weight.add_(1)
    state["steps"].append(3)
    state["nested"][0]["t"].fill_(9)
    gate.open.set()
    store.close()
    result = loaded(store)
    assert torch.equal(result["model"]["weight"], before)
    assert result["steps"] == [1, 2]
    assert torch.equal(result["nested"][0]["t"], torch.zeros(2))


def test_tied_tensors_stay_tied_and_versions_come_along() -> None:
    weight = torch.nn.Parameter(torch.arange(6.0))
    versioned: Any = torch.nn.BatchNorm1d(2).state_dict()
    copied = own({"a": weight, "b": weight[2:], "c": weight.view(2, 3), "empty": torch.empty(0), "sd": versioned})
    copied["a"][2] = 99
    assert copied["b"][0] == 99
    assert copied["c"].shape == (2, 3)
    assert copied["c"][0, 2] == 99
    assert weight[2] == 2
    assert not copied["a"].requires_grad
    assert copied["sd"]._metadata == versioned._metadata


def test_a_failure_surfaces_at_the_next_call_and_only_once(store: RunStore) -> None:
    publisher = AsyncPublisher(store)
    publisher.submit({}, writer=fail, next_update=1)
    with pytest.raises(LocalDisk, match="disk is full"):
        publisher.wait()
    publisher.submit({}, writer=fail, next_update=2)
    with pytest.raises(LocalDisk, match="disk is full"):
        publisher.submit({}, writer=save, next_update=3)
    publisher.submit({}, writer=save, next_update=4)
    publisher.close()
    assert [one.id.next_update for one in store.generations()] == [4]


def test_a_failure_surfaces_at_close(store: RunStore) -> None:
    with pytest.raises(LocalDisk, match="disk is full"), store:
        store.publish_async({}, writer=fail, next_update=1)


def test_the_blocks_own_error_is_kept(store: RunStore) -> None:
    publisher = AsyncPublisher(store)
    publisher.submit({}, writer=fail, next_update=1)
    with pytest.raises(ZeroDivisionError) as caught, publisher:
        raise ZeroDivisionError
    assert "disk is full" in caught.value.__notes__[0]


def test_no_more_are_in_flight_than_allowed(store: RunStore) -> None:
    gate = Gate()
    publisher = AsyncPublisher(store, when_full="raise")
    publisher.submit({}, writer=gate, next_update=1)
    assert publisher.in_flight == 1
    with pytest.raises(Fenced, match="in flight"):
        publisher.submit({}, writer=save, next_update=2)
    gate.open.set()
    publisher.wait()
    publisher.submit({}, writer=save, next_update=3)
    publisher.close()
    assert [one.id.next_update for one in store.generations()] == [3, 1]


def test_a_full_publisher_makes_the_next_call_wait(store: RunStore) -> None:
    gate, publisher = Gate(), AsyncPublisher(store)
    publisher.submit({}, writer=gate, next_update=1)
    second = threading.Thread(target=publisher.submit, args=({},), kwargs={"writer": save, "next_update": 2})
    second.start()
    assert gate.started.wait(WAIT)
    assert publisher.in_flight == 1
    gate.open.set()
    second.join(WAIT)
    publisher.close()
    assert [one.id.next_update for one in store.generations()] == [2, 1]


def test_what_publish_refuses_is_refused_at_once(store: RunStore) -> None:
    publisher = AsyncPublisher(store)
    with pytest.raises(UsageError, match="next_update"):
        publisher.submit({}, writer=save, next_update=-1)
    publisher.close()
    with pytest.raises(UsageError, match="closed"):
        publisher.submit({}, writer=save, next_update=1)
    with pytest.raises(UsageError, match="limit"):
        AsyncPublisher(store, limit=0)


SCRIPT = """
import sys, time, threading
from replicate import RunStore
store = RunStore(sys.argv[1], hash_workers=4)
main = threading.main_thread()

def writer(directory, state):
    main.join()                       # the interpreter is ending by now
    if state["fail"]:
        raise OSError(28, "No space left on device")
    for name in "abc":
        (directory / name).write_bytes(b"x" * 1000)

store.publish_async({"fail": sys.argv[2] == "fail"}, writer=writer, next_update=1)
if sys.argv[2] == "drop":
    del store
"""


@pytest.mark.parametrize("mode", ["keep", "drop"])
def test_the_last_checkpoint_is_not_lost_when_the_program_ends(store: RunStore, mode: str) -> None:
    """No close(), and pools of threads cannot be used any more: it is published all the same."""
    subprocess.run([sys.executable, "-c", SCRIPT, str(store.local.root), mode], check=True, timeout=WAIT)
    latest = store.latest()
    assert latest is not None
    assert len(latest.record.files) == 3


def test_a_lost_last_checkpoint_is_no_success(store: RunStore) -> None:
    command = [sys.executable, "-c", SCRIPT, str(store.local.root), "fail"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=WAIT)
    assert done.returncode == 1
    assert "NOT published" in done.stderr
    assert "No space left" in done.stderr
    assert store.generations() == ()


FORK = """
import os, sys, threading
from replicate import RunStore
store = RunStore(sys.argv[1])
gate = threading.Event()
store.publish_async({}, writer=lambda directory, state: (gate.wait(30), (directory / "a").touch()), next_update=1)
child = os.fork()
if child == 0:
    assert store.background().in_flight == 0
    store.close()
    sys.exit(0)
_, status = os.waitpid(child, 0)
gate.set()
store.close()
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_a_forked_child_does_not_wait_for_its_parents_threads(store: RunStore) -> None:
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORK, str(store.local.root)], check=True, timeout=WAIT)
    assert [one.id.next_update for one in store.generations()] == [1]


def test_importing_the_package_loads_neither_torch_nor_numpy() -> None:
    code = "import sys, replicate; from replicate import RunStore; assert not {'torch', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=WAIT, env={**os.environ, "PYTHONPATH": ""})
