"""The memory that background publications copy into: used again, bounded, and filled in the right order."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from replicate import RunStore
from replicate.errors import LocalDisk
from replicate.generation import background
from replicate.generation.background import AsyncPublisher
from replicate.generation.devices import TorchDevices
from replicate.generation.owned import StagingBuffers

WAIT = 60


def addresses(copied: Any) -> set[int]:
    return {tensor.untyped_storage().data_ptr() for tensor in copied.values()}


def take(buffers: StagingBuffers, state: Any) -> Any:
    copied, wait = buffers.take(state)
    wait()
    return copied


def test_the_next_copy_uses_the_same_memory() -> None:
    """Whatever dtype and shape the bytes have; views and tied tensors share one buffer."""
    buffers = StagingBuffers()
    weight = torch.arange(1000.0)
    state = {"w": weight, "view": weight[10:20], "step": torch.tensor(3, dtype=torch.int64)}
    first = take(buffers, state)
    where = addresses(first)
    assert len(where) == 2
    weight.add_(1)
    second = take(buffers, {"w": weight.view(10, 100).to(torch.float32), "view": weight[10:20], "step": state["step"]})
    assert addresses(second) == where
    assert torch.equal(second["w"].flatten(), torch.arange(1000.0) + 1)
    assert second["w"].untyped_storage().data_ptr() == second["view"].untyped_storage().data_ptr()
    assert buffers.size == 4000 + 8
    assert not addresses(second) & {weight.data_ptr(), state["step"].data_ptr()}


def test_a_state_that_changes_its_shape_holds_no_more_than_it_needs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "replicate.generation.owned")
    buffers = StagingBuffers()
    take(buffers, {"a": torch.zeros(100), "b": torch.zeros(50)})
    assert "changed its shape" not in caplog.text
    grown = take(buffers, {"a": torch.ones(100), "b": torch.ones(60)})
    assert buffers.size == 640
    assert torch.equal(grown["b"], torch.ones(60))
    assert "400 of 600 bytes of its copy's memory are used again" in caplog.text
    take(buffers, {"a": torch.ones(1)})
    assert buffers.size == 4
    buffers.clear()
    assert buffers.size == 0


def test_what_is_no_plain_tensor_is_copied_as_before() -> None:
    sparse = torch.eye(3).to_sparse()
    state: dict[str, Any] = {
        "sparse": sparse,
        "empty": torch.empty(0),
        "plain": {"list": [1, {2}], "t": (torch.ones(2),)},
    }
    copied = take(StagingBuffers(), state)
    assert torch.equal(copied["sparse"].to_dense(), torch.eye(3))
    assert copied["empty"].numel() == 0
    assert copied["plain"]["list"] == [1, {2}]
    assert copied["plain"]["list"] is not state["plain"]["list"]


class FakeCuda:
    """Streams that do nothing by themselves: a queued copy happens when its event is waited for, not before."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.queued: list[tuple[Any, Any]] = []
        self.on_side = False

    def is_available(self) -> bool:
        return True

    def Stream(self, device: Any) -> "FakeStream":  # noqa: N802 - torch's own name
        self.log.append(f"new stream on {device}")
        return FakeStream(self, "side")

    def current_stream(self, _device: Any) -> "FakeStream":
        return FakeStream(self, "current")

    @contextmanager
    def stream(self, stream: "FakeStream") -> Iterator[None]:
        assert stream.name == "side"
        self.on_side = True
        yield
        self.on_side = False


class FakeStream:
    def __init__(self, cuda: FakeCuda, name: str) -> None:
        self.cuda, self.name = cuda, name

    def wait_stream(self, other: "FakeStream") -> None:
        self.cuda.log.append(f"{self.name} waits for {other.name}")

    def record_event(self) -> "FakeEvent":
        self.cuda.log.append(f"event on {self.name}")
        return FakeEvent(self.cuda)

    def wait_event(self, _event: "FakeEvent") -> None:
        self.cuda.log.append(f"{self.name} waits for the event")


class FakeEvent:
    def __init__(self, cuda: FakeCuda) -> None:
        self.cuda = cuda

    def synchronize(self) -> None:
        self.cuda.log.append("synchronize")
        for target, source in self.cuda.queued:
            target.copy_(source)
        self.cuda.queued.clear()


class FakeBytes:
    """A tensor whose non-blocking copy is only queued."""

    def __init__(self, cuda: FakeCuda, tensor: torch.Tensor) -> None:
        self.cuda, self.tensor = cuda, tensor

    def copy_(self, source: "FakeBytes", *, non_blocking: bool = False) -> None:
        if not non_blocking:
            self.tensor.copy_(source.tensor)
            return
        assert self.cuda.on_side, "copies are queued on the stream of their own"
        self.cuda.log.append("copy")
        self.cuda.queued.append((self.tensor, source.tensor))


class FakeDevices(TorchDevices):
    """A device whose memory is the host's: everything of 100 bytes and more lies on it."""

    def __init__(self, cuda: FakeCuda) -> None:
        super().__init__(torch, cuda)
        self.cuda = cuda
        self.pinned: list[int] = []

    def queues(self, storage: Any) -> bool:
        return bool(storage.nbytes() >= 100)

    def host(self, size: int, *, pinned: bool) -> Any:
        if pinned:
            self.pinned.append(size)
        return super().host(size, pinned=False)

    def _bytes(self, storage: Any) -> Any:
        return FakeBytes(self.cuda, super()._bytes(storage))


def test_a_copy_of_a_device_is_ordered_between_what_is_queued_before_and_after_it() -> None:
    """The side stream waits for the current one, the current one for the copy, and the writer for the event."""
    cuda = FakeCuda()
    devices = FakeDevices(cuda)
    buffers = StagingBuffers(devices)
    state = {"a": torch.ones(100), "b": torch.ones(50), "host": torch.ones(2)}
    copied, wait = buffers.take(state)
    assert cuda.log == [
        "new stream on cpu", "side waits for current", "copy", "copy", "event on side", "current waits for the event",
    ]  # fmt: skip
    state["host"].fill_(9)
    assert torch.equal(copied["host"], torch.ones(2)), "the host's memory is copied when take returns"
    wait()
    assert cuda.log[-1] == "synchronize"
    assert torch.equal(copied["a"], torch.ones(100))
    assert devices.pinned == [400, 200]
    _, wait = buffers.take(state)
    wait()
    assert devices.pinned == [400, 200], "pinned memory is used again"
    assert cuda.log.count("new stream on cpu") == 1


def test_the_writer_sees_only_what_has_arrived(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Submit returns while the copy is still queued; the writing thread waits for its event before it writes."""
    cuda = FakeCuda()
    monkeypatch.setattr(background, "StagingBuffers", lambda: StagingBuffers(FakeDevices(cuda)))
    seen: list[tuple[list[str], float]] = []

    def write(directory: Path, state: Any) -> None:
        seen.append((list(cuda.log), float(state["a"].sum())))
        (directory / "a").write_bytes(b"1")

    publisher = AsyncPublisher(store)
    publisher.submit({"a": torch.ones(100)}, writer=write, next_update=1, validate=False)
    publisher.close()
    assert seen[0][0][-1] == "synchronize"
    assert seen[0][1] == 100


class Held:
    """A writer that notes where its copy lies and waits to be let through."""

    def __init__(self) -> None:
        self.where: list[int] = []
        self.started = threading.Semaphore(0)
        self.open = threading.Semaphore(0)

    def __call__(self, directory: Path, state: Any) -> None:
        self.where.append(state["a"].untyped_storage().data_ptr())
        self.started.release()
        assert self.open.acquire(timeout=WAIT)
        (directory / "a").write_bytes(bytes(state["a"].to(torch.uint8).tolist()))


def test_each_publication_in_flight_has_memory_of_its_own(store: RunStore) -> None:
    state, held = {"a": torch.ones(64)}, Held()
    publisher = AsyncPublisher(store, limit=2)
    for update in (1, 2):
        publisher.submit(state, writer=held, next_update=update, validate=False)
        assert held.started.acquire(timeout=WAIT)
        state["a"].add_(1)
    assert len(set(held.where)) == 2
    held.open.release()
    held.open.release()
    publisher.wait()
    publisher.submit(state, writer=held, next_update=3, validate=False)
    held.open.release()
    publisher.close()
    assert held.where[2] in held.where[:2]
    found = {one.id.next_update: (one.files / "a").read_bytes() for one in store.generations()}
    assert found == {update: bytes([update]) * 64 for update in (1, 2, 3)}


def test_after_a_failure_the_memory_is_not_used_again(store: RunStore) -> None:
    """Its copy may still be under way."""
    publisher = AsyncPublisher(store)
    kept: list[Any] = []

    def fail(_directory: Path, state: Any) -> None:
        kept.append(state["a"])
        raise LocalDisk("the disk is full", hint="make room")

    publisher.submit({"a": torch.ones(64)}, writer=fail, next_update=1)
    with pytest.raises(LocalDisk):
        publisher.wait()
    assert publisher._spare == []
    publisher.close()
    assert torch.equal(kept[0], torch.ones(64))


def test_closing_lets_go_and_a_forked_child_does_not_give_back_its_parents(
    store: RunStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = AsyncPublisher(store)
    publisher.submit({"a": torch.ones(64)}, writer=lambda d, _s: (d / "a").write_bytes(b"1"), next_update=1)
    publisher.wait()
    assert len(publisher._spare) == 1
    mine = publisher._spare
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    assert publisher.in_flight == 0
    assert background._of_the_parent[-1] is mine
    assert publisher._spare == []
    monkeypatch.undo()
    background._of_the_parent.clear()
    other = AsyncPublisher(store)
    other.submit({"a": torch.ones(64)}, writer=lambda d, _s: (d / "a").write_bytes(b"1"), next_update=2)
    other.close()
    assert other._spare == []
