"""Noticing: the wake that a signal handler may set, the watch, and the fingerprint that decides whether to look."""

import subprocess
import sys
from pathlib import Path

import pytest
from daemon.stage import RUN, publish, until
from watchdog.observers import Observer

from replicate import RunStore
from replicate.watching import StoreWatcher, Wake, fingerprint
from tiers.clock import SystemClock

CLOCK = SystemClock()

SIGNALS = """
import random, signal
from replicate.watching import Wake
wake, handled = Wake(), [0]

def handle(*_):
    handled[0] += 1
    wake.set()

signal.signal(signal.SIGALRM, handle)
moments = random.Random(1)
while handled[0] < 5000:
    signal.setitimer(signal.ITIMER_REAL, moments.uniform(1e-6, 2e-4))
    wake.wait(1e-4)
"""


def test_a_signal_at_any_instant_does_not_hang_who_waits() -> None:
    """With an Event in its place this hangs in a moment: the handler waits for a lock that its own thread holds."""
    subprocess.run([sys.executable, "-c", SIGNALS], check=True, timeout=30)


def test_what_was_set_before_ends_the_next_wait_and_only_that() -> None:
    wake = Wake()
    wake.set()
    wake.set()
    began = CLOCK.monotonic()
    wake.wait(30)
    assert CLOCK.monotonic() - began < 10
    wake.wait(0.05)
    assert CLOCK.monotonic() - began >= 0.05


@pytest.mark.parametrize("defer", [False, True], ids=["sealed", "deferred"])
def test_a_publication_wakes(tmp_path: Path, defer: bool) -> None:
    root = tmp_path / RUN
    woken: list[bool] = []

    class Noted(Wake):
        def set(self) -> None:
            woken.append(True)

    with StoreWatcher(root, Noted()):
        publish(root, 1, defer=defer)
        until(lambda: woken, "the watch tells")


def test_without_inotify_it_is_said_that_polling_is_all_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_observer: object) -> None:
        raise OSError(24, "inotify instance limit reached")

    monkeypatch.setattr(Observer, "start", refuse)
    with StoreWatcher(tmp_path / RUN, Wake()):
        pass
    assert "by polling only" in caplog.text


def test_the_fingerprint_changes_with_what_there_is_to_look_at(tmp_path: Path) -> None:
    """And with nothing else: an idle store costs two listings a poll."""
    root = tmp_path / RUN
    assert fingerprint(root) == ()
    seen = [fingerprint(root)]
    publish(root, 1)
    seen.append(fingerprint(root))
    publish(root, 2, defer=True)
    seen.append(fingerprint(root))
    store = RunStore(root, run=RUN)
    store.seal_staged()
    seen.append(fingerprint(root))
    store.remove(store.generations()[-1].id)
    seen.append(fingerprint(root))
    assert len(set(seen)) == len(seen)
    (root / "status.json").write_bytes(b"{}")
    (root / ".incoming-x").mkdir()
    assert fingerprint(root) == seen[-1]
