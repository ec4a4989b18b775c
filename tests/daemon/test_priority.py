"""The daemon yields to training: its priorities, its share of the CPU, and how many threads it has."""

import ctypes
import errno
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest
from daemon.stage import CLOCK, LIMIT, Machine, publish, until

from replicate import RunStore
from replicate.daemon import Daemon, Signals, beside_training
from replicate.errors import ExitCode
from replicate.generation.hashing import FLUSHERS
from replicate.opening import default_opener
from replicate.priority import IoPriority, system_call, yield_to_others
from replicate.session import Session
from tiers.bodies import Body
from tiers.clock import Clock
from tiers.cpu_share import CpuShare
from tiers.metered import Meter
from tiers.opening import TierSpec, open_tier
from tiers.protocol import Key, ObjectInfo, Part, Tier, Upload
from tiers.testing import PassThroughTier

T = TypeVar("T")


def in_a_thread(work: Callable[[], T]) -> T:
    """Priorities are a thread's own: they end with it."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result(LIMIT)


def test_the_daemon_is_nice_by_default_and_so_is_what_it_starts(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    machine.configure(machine.volume(), nice=10)
    caplog.set_level(logging.INFO, "replicate.daemon")

    def begin() -> tuple[CpuShare | None, int, int]:
        share = beside_training(machine.config, CLOCK, threading.Event())
        inherited: list[int] = []
        thread = threading.Thread(target=lambda: inherited.append(os.getpriority(os.PRIO_PROCESS, 0)))
        thread.start()
        thread.join(LIMIT)
        return share, os.getpriority(os.PRIO_PROCESS, 0), inherited[0]

    here = os.getpriority(os.PRIO_PROCESS, 0)
    assert in_a_thread(begin) == (None, max(here, 10), max(here, 10))
    assert os.getpriority(os.PRIO_PROCESS, 0) == here
    assert "yields to training: nice 10, io_priority low" in caplog.text


def test_what_was_lower_is_not_raised() -> None:
    def twice() -> tuple[int, int]:
        first = yield_to_others(15, IoPriority.NORMAL).nice
        return first, yield_to_others(3, IoPriority.NORMAL).nice

    first, second = in_a_thread(twice)
    assert first == second >= 15


def test_the_disk_priority_reaches_the_kernel() -> None:
    """ioprio_get says what ioprio_set was told: best effort, lowest level."""
    getter = {"x86_64": 252, "aarch64": 31}.get(os.uname().machine)

    def ask() -> tuple[tuple[str, ...], int]:
        applied = yield_to_others(0, IoPriority.LOW)
        return applied.missed, ctypes.CDLL(None).syscall(getter, 1, 0) if getter else -1

    missed, value = in_a_thread(ask)
    assert missed or value == (2 << 13) | 7 or value < 0


@pytest.mark.parametrize(("io", "value"), [(IoPriority.IDLE, 3 << 13), (IoPriority.LOW, (2 << 13) | 7)])
def test_what_the_kernel_is_told(io: IoPriority, value: int) -> None:
    told: list[int] = []
    in_a_thread(lambda: yield_to_others(0, io, told.append))
    assert told == [value]
    in_a_thread(lambda: yield_to_others(0, IoPriority.NORMAL, told.append))
    assert told == [value]


def test_what_cannot_be_had_is_told_and_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another machine, another system, a jail: the daemon runs as any other process."""
    monkeypatch.setattr("replicate.priority.platform.machine", lambda: "vax")
    with pytest.raises(OSError, match="vax") as caught:
        system_call(0)
    assert caught.value.errno == errno.ENOSYS

    def refuse(*_: int) -> None:
        raise PermissionError(errno.EPERM, "no")

    monkeypatch.setattr(os, "setpriority", refuse)
    applied = in_a_thread(lambda: yield_to_others(19, IoPriority.IDLE, refuse))
    assert [missed.split(":")[0] for missed in applied.missed] == ["nice 19", "io_priority idle"]


def test_a_share_of_the_cpu_holds_hashing_and_sending_and_draining_lifts_it(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """cpu_share reaches every block that is hashed and every piece that is sent; a machine that ends is in a hurry."""
    machine.configure(machine.volume(), cpu_share=0.5)
    stop, asked = threading.Event(), list[str]()
    share = in_a_thread(lambda: beside_training(machine.config, CLOCK, stop))
    assert share is not None
    lifted = threading.Event()
    monkeypatch.setattr(CpuShare, "lift", lambda _self: lifted.set())

    def leave() -> bool:
        asked.append(threading.current_thread().name)
        return True

    publish(machine.root, 1, defer=True)
    with Session(machine.config, clock=CLOCK, stop=stop, opener=default_opener, leave=leave) as session:
        prepared = session.prepare()
        hashed = len(asked)
        assert hashed
        assert session.run_tier("vol", prepared).failure is None
        assert len(asked) > hashed
        signals = Signals()
        signals.draining.set()
        assert Daemon(session, signals, CLOCK, share).run() is ExitCode.OK
    assert lifted.is_set()


class Counting(PassThroughTier):
    """Notes how many threads there are whenever bytes are sent, and holds each tier's first bytes until all send."""

    most = 0
    names: frozenset[str] = frozenset()

    def __init__(self, inner: Tier, together: threading.Barrier) -> None:
        super().__init__(inner)
        self._together = together
        self._held = threading.Lock()
        self._first = True

    def _note(self) -> None:
        with self._held:
            first, self._first = self._first, False
        if first:
            self._together.wait(LIMIT)
        names = [thread.name for thread in threading.enumerate()]
        if len(names) > Counting.most:
            Counting.most, Counting.names = len(names), frozenset(names)

    def put(self, key: Key, body: Body) -> ObjectInfo:
        self._note()
        return self.inner.put(key, body)

    def put_part(self, upload: Upload, number: int, body: Body) -> Part:
        self._note()
        return self.inner.put_part(upload, number, body)


TIERS, CONNECTIONS, WORKERS = 3, 4, 2
FIXED = 4
"""The main thread, and the watch of the store: an observer, a reader of inotify and an emitter."""


def test_the_daemons_threads_are_bounded(machine: Machine) -> None:
    """Three tiers that all send at once: a thread each, their connections, and nothing that grows with the work."""
    names = [f"t{number}" for number in range(TIERS)]
    machine.configure(
        *({"name": name, "url": f"memory://threads-{name}", "connections": CONNECTIONS} for name in names),
        hash_workers=WORKERS,
    )
    together = threading.Barrier(TIERS)
    Counting.most = 0

    def opener(spec: TierSpec, clock: Clock, meter: Meter, stop: threading.Event) -> Tier:
        return open_tier(spec, clock=clock, meter=meter, stop=stop, below=lambda tier: Counting(tier, together))

    before = threading.active_count()
    publish_many(machine.root, 60)
    signals = Signals()
    with Session(machine.config, clock=CLOCK, stop=threading.Event(), opener=opener) as session:
        thread = threading.Thread(target=Daemon(session, signals, CLOCK).run)
        thread.start()
        until(lambda: all((tier := machine.tier(name)) and tier.held for name in names), "all have it")
        signals.draining.set()
        signals.wake.set()
        thread.join(LIMIT)
    bound = FIXED + WORKERS + FLUSHERS + TIERS * (1 + 2 * CONNECTIONS)
    assert TIERS < Counting.most - before <= bound, sorted(Counting.names)


def publish_many(root: Path, files: int) -> None:
    with RunStore(root, hash_workers=1).publish(next_update=1) as directory:
        for number in range(files):
            (directory / f"f{number:03d}").write_bytes(bytes([number]) * 4000)
