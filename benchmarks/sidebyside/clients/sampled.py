"""Where the time of an operation goes: what every thread is doing, looked at two hundred times a second."""

import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

PERIOD = 0.005
SHOWN = 25


def _place(frame: FrameType) -> str:
    code = frame.f_code
    return f"{Path(code.co_filename).name}:{frame.f_lineno} {code.co_name}"


def _stack(frame: FrameType | None) -> str:
    """Return the innermost place, and the nearest one of ours that it was called from."""
    here = frame
    while here is not None and not any(part in here.f_code.co_filename for part in ("/replicate/", "/tiers/")):
        here = here.f_back
    inner = _place(frame) if frame else "?"
    return inner if here is None or here is frame else f"{inner} < {_place(here)}"


@contextmanager
def sampled(report: Path) -> Iterator[None]:
    """Sample a block and write the places that were seen most often, with the share of the samples of all threads."""
    seen: Counter[str] = Counter()
    stop = threading.Event()

    def sample() -> None:
        own, rounds = threading.get_ident(), 0
        while not stop.wait(PERIOD):
            rounds += 1
            for thread, frame in sys._current_frames().items():  # noqa: SLF001 - there is no other way
                if thread != own:
                    seen[_stack(frame)] += 1
        seen["rounds"] = rounds

    watcher = threading.Thread(target=sample, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        stop.set()
        watcher.join()
        rounds = max(1, seen.pop("rounds"))
        lines = [f"{count / rounds:6.2f} threads  {place}" for place, count in seen.most_common(SHOWN)]
        report.write_text("\n".join(lines) + "\n", encoding="utf-8")
