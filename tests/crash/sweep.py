"""Killing at every point: the loop that all sweeps share."""

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest
from crash.zygote import Run, Zygote
from support.figures import figure, running

SOME = pytest.mark.parametrize("step", [pytest.param(3, id="some"), pytest.param(1, id="all")])
"""CI takes every third point, the long form all (tests/house/long_form.py).  Odd: both sides of effects are hit."""


def check_points(run: Run, minimum: Mapping[str, int]) -> int:
    """Check that no kind of effect has fewer points than were recorded; return the number of announcements.

    Where a change adds points, raise the minimum: run the test with it at 0 and take the
    numbers of the failure.  It is lowered only where an effect is gone on purpose.
    """
    found = run.per_kind()
    assert {kind: found[kind] for kind in minimum if found[kind] < minimum[kind]} == {}, f"points now: {dict(found)}"
    figure(f"kill points: {running()}", len(run.points), floor=sum(minimum.values()))
    return len(run.points)


def sweep(zygotes: Iterable[Zygote], points: int, case: Callable[[Zygote, int], None]) -> None:
    """Run ``case(zygote, n)`` for n from 1 to ``points``, one thread a zygote; every failure is told."""
    zygotes = list(zygotes)

    def work(share: int) -> list[str]:
        failures = []
        for number in range(1 + share, points + 1, len(zygotes)):
            try:
                case(zygotes[share], number)
            except Exception as error:  # noqa: BLE001 - collected: one failure says less than their pattern
                failures.append(f"killed at {number} of {points}: {type(error).__name__}: {error}")
        return failures

    with ThreadPoolExecutor(len(zygotes)) as pool:
        failures = [failure for found in pool.map(work, range(len(zygotes))) for failure in found]
    figure(f"kills: {running()}", points, floor=4)
    assert not failures, f"{len(failures)} of {points} kills: " + "\n".join(failures[:5])
