"""A copy of a training state that nothing else writes to.

``state_dict()`` hands out live tensors; a background writer that got those would mix
two updates.  Storages are copied once each, so that tied weights stay tied, and into
memory that the copy before has used: touching fresh memory costs more than the copy.
"""

import copy
import logging
import sys
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from replicate.generation.devices import Devices, Pair, TorchDevices

_log = logging.getLogger(__name__)


def own(state: Any) -> Any:
    """Return a deep copy with every tensor on the CPU, detached; torch is used only if it is loaded."""
    copied, wait = StagingBuffers().take(state)
    wait()
    return copied


def _nothing_to_wait_for() -> None:
    return


@dataclass(slots=True)
class StagingBuffers:
    """Host memory for one copy of a state, kept for the next one of the same sizes.

    What the next copy has no use for is let go before anything new is allocated, so that
    never more than one state's bytes are held beside what both have in common.  The copy
    before must not be in use any more.
    """

    devices: Devices | None = None
    _held: dict[tuple[int, bool], list[Any]] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes that are held."""
        return sum(size * len(storages) for (size, _pinned), storages in self._held.items())

    def take(self, state: Any) -> tuple[Any, Callable[[], None]]:
        """Return a deep copy of ``state``, and what has to be called before it is read.

        The caller may change what lies in the host's memory as soon as this returns, and
        may queue changes of what lies on a device on the stream that is current now.
        """
        torch: Any = sys.modules.get("torch")
        if torch is None:
            return _copied(state, {}, None), _nothing_to_wait_for
        if self.devices is None:
            self.devices = TorchDevices(torch)
        targets, wait = self._filled(self.devices, _storages(torch, state))
        return _copied(state, targets, torch), wait

    def clear(self) -> None:
        """Let go of all of it."""
        self._held.clear()

    def _filled(self, devices: Devices, storages: dict[Any, Any]) -> tuple[dict[Any, Any], Callable[[], None]]:
        """Copy each storage into a buffer of its size; returns the buffers, and what waits for what is queued."""
        wanted = Counter((storage.nbytes(), devices.queues(storage)) for storage in storages.values())
        spare = self._spare(wanted)
        targets: dict[Any, Any] = {}
        queued: list[Pair] = []
        plain: list[Pair] = []
        self._held = {}
        for key, storage in storages.items():
            kind = (storage.nbytes(), devices.queues(storage))
            target = spare[kind].pop() if spare.get(kind) else devices.host(kind[0], pinned=kind[1])
            self._held.setdefault(kind, []).append(target)
            targets[key] = target
            (queued if kind[1] else plain).append((target, storage))
        wait = devices.queue(queued) if queued else _nothing_to_wait_for
        for target, storage in plain:
            devices.copy(target, storage)
        return targets, wait

    def _spare(self, wanted: Counter[tuple[int, bool]]) -> dict[tuple[int, bool], list[Any]]:
        """Return what of the buffers can be used again; the others are gone then."""
        spare = {kind: storages[: wanted[kind]] for kind, storages in self._held.items() if wanted[kind]}
        before = self.size
        kept = sum(size * len(storages) for (size, _pinned), storages in spare.items())
        if kept < before:
            _log.info(
                "the state has changed its shape: %d of %d bytes of its copy's memory are used again; "
                "a state that keeps its sizes is copied faster",
                kept,
                before,
            )
        self._held = {}
        return spare


def _key(storage: Any) -> Any:
    return (str(storage.device), storage.data_ptr(), storage.nbytes())


def _is_plain(torch: Any, value: Any) -> bool:
    """Whether it is no more than a view of a storage."""
    return value.layout is torch.strided and not value.is_quantized and type(value) is torch.Tensor


def _storages(torch: Any, value: Any) -> dict[Any, Any]:
    """Return each storage of the state once, by what tells it from others while all are alive."""
    found: dict[Any, Any] = {}
    for tensor in _tensors(torch, value):
        detached = tensor.detach()
        if _is_plain(torch, detached) and detached.untyped_storage().nbytes():
            storage = detached.untyped_storage()
            found.setdefault(_key(storage), storage)
    return found


def _tensors(torch: Any, value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _tensors(torch, inner)
    elif type(value) in (list, tuple, set, frozenset) or (isinstance(value, tuple) and hasattr(value, "_fields")):
        for inner in value:
            yield from _tensors(torch, inner)


def _copied(value: Any, targets: dict[Any, Any], torch: Any) -> Any:
    """Build the copy over the buffers; what holds no tensor is copied deeply."""
    if torch is not None and isinstance(value, torch.Tensor):
        return _copied_tensor(value, targets, torch)
    if isinstance(value, dict):
        return _copied_dict(value, targets, torch)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_copied(inner, targets, torch) for inner in value))
    if type(value) in (list, tuple, set, frozenset):
        return type(value)(_copied(inner, targets, torch) for inner in value)
    return copy.deepcopy(value)


def _copied_dict(value: dict[Any, Any], targets: dict[Any, Any], torch: Any) -> dict[Any, Any]:
    """Copy a mapping as a plain one of its kind; the versions that a state_dict carries come along."""
    copied: dict[Any, Any] = OrderedDict() if isinstance(value, OrderedDict) else {}
    copied.update((key, _copied(inner, targets, torch)) for key, inner in value.items())
    metadata = getattr(value, "_metadata", None)
    if metadata is not None:
        copied._metadata = copy.deepcopy(metadata)  # type: ignore[attr-defined]  # noqa: SLF001 - where torch keeps them
    return copied


def _copied_tensor(value: Any, targets: dict[Any, Any], torch: Any) -> Any:
    value = value.detach()
    if not _is_plain(torch, value):
        return value.to("cpu", copy=True)
    storage = value.untyped_storage()
    empty = torch.empty(0, dtype=value.dtype, device="cpu")
    target = targets[_key(storage)] if storage.nbytes() else empty.untyped_storage()
    return empty.set_(target, value.storage_offset(), value.size(), value.stride())
