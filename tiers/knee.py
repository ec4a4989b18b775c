"""How wide a store is worth using: up to where one more request at a time brings nothing more.

Every store and link has a knee.  Below it a wider gate moves more bytes, since requests
wait for answers; above it they only share what there is.  The knee is found by trying:
a step up stays where it brought a fair share of what it could have brought.  Decided from
values alone; :mod:`tiers.gate` measures and obeys.
"""

from dataclasses import dataclass, replace

FEW = 4
"""Where the search begins, and what it does not go below by itself: two answers are waited for while two are sent."""
FAIR_SHARE = 1 / 3
"""What part of a step's possible gain it has to bring: half as many more requests bring a sixth more bytes."""
NO_LOSS = 0.97
"""What a step down has to keep of the bytes a second."""
PATIENCE = 30
MOST_PATIENCE = 480
"""Windows between two looks once a step has brought nothing; doubled each time, since links seldom change."""
OTHER_WORK = 4.0
"""From which ratio of mean sizes on two windows are not compared: small files come slower at any width."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What passed in a while in which the gate was the limit."""

    bytes: int
    requests: int
    seconds: float

    @property
    def rate(self) -> float:
        """Bytes a second."""
        return self.bytes / self.seconds

    @property
    def mean(self) -> float:
        """Bytes a request."""
        return self.bytes / self.requests


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Where the search stands.

    ``base`` is the last window at the width that is settled: ``width``, or ``before`` while
    ``width`` is on trial.  ``rest`` windows pass until the next trial, ``patience`` after a
    trial that fails.  ``down`` tells which way the next one goes.
    """

    width: int
    base: Window | None = None
    before: int | None = None
    rest: int = 0
    patience: int = PATIENCE
    down: bool = False


def judge(search: Search, window: Window, *, floor: int, ceiling: int) -> Search:
    """Return where the search stands after a window at ``search.width``."""
    if search.base is not None and _other_work(search.base, window):
        return Search(width=search.width, base=window)
    if search.before is not None and search.base is not None:
        return _tried(search, search.before, search.base, window, ceiling)
    if search.rest:
        return replace(search, base=window, rest=search.rest - 1)
    if search.base is None and search.width < ceiling:
        return replace(search, base=window, before=search.width, width=_wider(search.width, ceiling))
    return _try(replace(search, base=window), floor, ceiling)


def give_up(search: Search) -> Search:
    """Return the search without the trial that is under way: the store asked to slow down."""
    width = search.width if search.before is None else min(search.before, search.width)
    return Search(width=width, rest=search.patience, patience=_longer(search.patience))


def _try(search: Search, floor: int, ceiling: int) -> Search:
    up, down = _wider(search.width, ceiling), _narrower(search.width, floor)
    width = down if (search.down and down < search.width) or up == search.width else up
    if width == search.width:
        return replace(search, rest=search.patience)
    return replace(search, before=search.width, width=width, down=width < search.width)


def _tried(search: Search, before: int, base: Window, window: Window, ceiling: int) -> Search:
    if search.width > before:
        needed = 1 + FAIR_SHARE * (search.width / before - 1)
        if window.rate >= needed * base.rate:
            wider = _wider(search.width, ceiling)
            if wider == search.width:
                return Search(width=search.width, base=window, rest=PATIENCE, down=True)
            return Search(width=wider, base=window, before=search.width)
    elif window.rate >= NO_LOSS * base.rate:
        return Search(width=search.width, base=window, rest=PATIENCE, down=True)
    # what it was is right, for now; next time the other way
    return Search(
        width=before,
        base=base,
        rest=search.patience,
        patience=_longer(search.patience),
        down=search.width > before,
    )


def _other_work(one: Window, other: Window) -> bool:
    low, high = sorted((one.mean, other.mean))
    return high > OTHER_WORK * low


def _wider(width: int, ceiling: int) -> int:
    return min(ceiling, width + max(1, width // 2))


def _narrower(width: int, floor: int) -> int:
    return max(floor, -(-2 * width // 3))


def _longer(patience: int) -> int:
    return min(MOST_PATIENCE, 2 * patience)
