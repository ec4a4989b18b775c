"""Killing a process at a chosen effect, and starting several at one moment.  Children are forked and never return."""

import os
import signal
from collections.abc import Callable, Iterator

from tiers import effects
from tiers.effects import Effect, Moment

MOST = 200
"""Announcements after which a sweep that kills no more gives up."""


def killed_at(number: int, act: Callable[[], object]) -> bool:
    """Do something in a child that is killed (-9) at its ``number``-th announcement; whether it got so far."""
    child = os.fork()
    if child == 0:
        left = number

        def die(_effect: Effect, _what: str, _moment: Moment) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        _in_child(lambda: _observed(die, act))
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in (0, -signal.SIGKILL), f"the child failed with {code} instead of being killed"
    return code != 0


def sweep(act: Callable[[int], object]) -> Iterator[int]:
    """Yield n after killing ``act(n)`` at its n-th announcement, until one of them lives to its end."""
    for number in range(1, MOST):
        died = killed_at(number, lambda number=number: act(number))  # type: ignore[misc]
        yield number
        if not died:
            return
    raise AssertionError(f"still killed at announcement {MOST}")


def at_once(count: int, act: Callable[[int], bool]) -> list[bool]:
    """Do something in ``count`` processes at one moment; what each returned."""
    gate, opened = os.pipe()
    children = []
    for number in range(count):
        child = os.fork()
        if child == 0:
            os.close(opened)
            os.read(gate, 1)  # returns once the parent has closed its end
            _in_child(lambda number=number: 0 if act(number) else 3)  # type: ignore[misc]
        children.append(child)
    os.close(gate)
    os.close(opened)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert set(codes) <= {0, 3}, f"a child failed: {codes}"
    return [code == 0 for code in codes]


def _observed(observer: effects.Observer, act: Callable[[], object]) -> int:
    with effects.observing(observer):
        act()
    return 0


def _in_child(act: Callable[[], int]) -> None:
    """Leave with what ``act`` returned: a forked test must not run on in the child."""
    code = 2
    try:
        code = act()
    finally:
        os._exit(code)
