"""How a child says when its operation began and ended: after its imports, opening the client included."""

import json
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tiers.clock import SystemClock

_CLOCK = SystemClock()


def _cpu() -> float:
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in spent)


def spec() -> dict[str, Any]:
    """Return what the parent asks for."""
    found: dict[str, Any] = json.loads(sys.argv[1])
    return found


@contextmanager
def operation() -> Iterator[dict[str, Any]]:
    """Measure a block and print its marks; what is put into the dictionary goes with them."""
    more: dict[str, Any] = {}
    began, spent = _CLOCK.monotonic(), _cpu()
    yield more
    ended = _CLOCK.monotonic()
    print(json.dumps({"began": began, "ended": ended, "cpu": _cpu() - spent, **more}), flush=True)
