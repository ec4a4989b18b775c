"""Copies from a device that run beside the program: streams, events, pinned memory of the host.

The copy is queued on a stream of its own.  That stream first waits for what the current
one has queued, and the current one waits for the copy before what it is given later: so
the copy is of the state at the call, and the caller may queue the next update at once.
Work on other streams is not ordered by this; training that updates its state there has
to let the current stream wait for it, as for any other use of the state.
"""

import logging
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any, Protocol

_log = logging.getLogger(__name__)

Pair = tuple[Any, Any]
"""A storage of the host, and the one that is copied into it."""


class Devices(Protocol):
    """What copying needs of the library of the devices."""

    def queues(self, storage: Any) -> bool:
        """Whether copies of this storage can run beside the program."""
        ...

    def host(self, size: int, *, pinned: bool) -> Any:
        """Return a storage of ``size`` bytes in the host's memory."""
        ...

    def copy(self, target: Any, source: Any) -> None:
        """Copy now."""
        ...

    def queue(self, pairs: Sequence[Pair]) -> Callable[[], None]:
        """Begin copying; returns what waits for the end of it."""
        ...


class TorchDevices:
    """Those of torch.  ``cuda`` is ``torch.cuda``, or what a test puts in its place."""

    def __init__(self, torch: Any, cuda: Any = None) -> None:
        self._torch = torch
        self._cuda = cuda if cuda is not None else torch.cuda
        self._streams: dict[Any, Any] = {}

    def queues(self, storage: Any) -> bool:
        """Whether it lies in a CUDA device's memory."""
        return bool(storage.device.type == "cuda")

    def host(self, size: int, *, pinned: bool) -> Any:
        """Return storage of the host; where no more can be pinned, ordinary memory, into which copies take longer."""
        if pinned and self._cuda.is_available():
            try:
                return self._torch.empty(size, dtype=self._torch.uint8, pin_memory=True).untyped_storage()
            except RuntimeError as error:
                _log.warning("%d bytes could not be pinned, and are copied through ordinary memory: %s", size, error)
        return self._torch.empty(size, dtype=self._torch.uint8).untyped_storage()

    def copy(self, target: Any, source: Any) -> None:
        """Copy now."""
        self._bytes(target).copy_(self._bytes(source))

    def queue(self, pairs: Sequence[Pair]) -> Callable[[], None]:
        """Queue the copies, device by device; the sources stay alive until the result has been called."""
        events = []
        by_device = sorted(pairs, key=lambda pair: str(pair[1].device))
        for _name, group in groupby(by_device, key=lambda pair: str(pair[1].device)):
            events.append(self._queue(tuple(group)))
        kept = [tuple(pairs)]

        def wait() -> None:
            for event in events:
                event.synchronize()
            kept.clear()

        return wait

    def _queue(self, pairs: tuple[Pair, ...]) -> Any:
        device = pairs[0][1].device
        if device not in self._streams:
            self._streams[device] = self._cuda.Stream(device)
        side, current = self._streams[device], self._cuda.current_stream(device)
        side.wait_stream(current)
        with self._cuda.stream(side):
            for target, source in pairs:
                self._bytes(target).copy_(self._bytes(source), non_blocking=True)
        event = side.record_event()
        current.wait_event(event)
        return event

    def _bytes(self, storage: Any) -> Any:
        return self._torch.empty(0, dtype=self._torch.uint8, device=storage.device).set_(storage)
