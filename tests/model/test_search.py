"""All interleavings of two writers, an operator and fate, within small budgets; wider ones in the long form."""

from dataclasses import replace

import pytest
from model.search import Searched, search
from model.search_log import generation
from model.search_world import WEAKENINGS, Budget, Scenario, Writer
from support.figures import figure

ONE, TWO = generation(1, 1), generation(1, 2)
FIRST, BOTH = Writer("a", local=(ONE,)), Writer("a", local=(ONE, TWO))
OTHER = Writer("b", line="b")
"""A machine that has nothing yet: it begins by restoring."""
COPY = Writer("b", local=(ONE,))
"""A copy of the first machine's disk."""


def scenario(
    name: str, writers: tuple[Writer, ...], budget: Budget, *, keep_last: int | None = None, collects: bool = False
) -> Scenario:
    return Scenario(name, writers, budget, keep_last=keep_last, collects=collects)


SHORT = (
    scenario("takeover", (FIRST, OTHER), Budget(crashes=1, losses=1, restores=1, sweeps=1), collects=True),
    scenario("two restores", (FIRST, OTHER), Budget(losses=1, restores=2, sweeps=1), collects=True),
    scenario("copied disk", (FIRST, COPY), Budget(losses=1)),
    scenario("lost tracker", (FIRST, COPY), Budget(crashes=1, forgets=1)),
    scenario("retention", (BOTH, OTHER), Budget(crashes=1, pins=1, sweeps=3), keep_last=1, collects=True),
    scenario("retention elsewhere", (BOTH, OTHER), Budget(restores=1, sweeps=2), keep_last=1, collects=True),
    scenario("repair", (BOTH, OTHER), Budget(crashes=1, losses=1, hurts=1, repairs=1)),
    scenario(
        "repair and retention", (BOTH, OTHER), Budget(crashes=1, pins=1, sweeps=1, hurts=1, repairs=1), keep_last=1
    ),
)
WIDE = (
    scenario("copied disk, wide", (FIRST, COPY), Budget(crashes=1, losses=1, forgets=1)),
    scenario("retention, wide", (BOTH, OTHER), Budget(1, 0, 1, 1, 0, 2), keep_last=1, collects=True),
    scenario("repair, wide", (BOTH, OTHER), Budget(crashes=1, restores=1, sweeps=1, hurts=1, repairs=1), collects=True),
)
FLOORS = {
    "takeover": (11_000, 25_000, 26),
    "two restores": (13_000, 31_000, 33),
    "copied disk": (2_900, 6_400, 19),
    "lost tracker": (13_000, 22_000, 30),
    "retention": (3_500, 6_500, 34),
    "retention elsewhere": (5_900, 12_500, 39),
    "repair": (4_100, 7_000, 28),
    "repair and retention": (15_000, 30_500, 37),
}
"""Worlds, steps and depth that are gone through at the least: a search that shrinks proves less."""
CATCHES = {
    "unconditional-put": ("copied disk", "I2"),
    "age-only-gc": ("two restores", "I1"),
    "no-nonce-check": ("lost tracker", "I5"),
    "manifest-first": ("takeover", "I1"),
    "no-directory-fsync": ("takeover", "I2"),
    "size-only": ("takeover", "I1"),
    "old-slots-deleted": ("two restores", "I1"),
    "claim-without-lineage": ("two restores", "I3"),
}
"""Where each weakening shows, and which promise it breaks first."""


def told(found: Searched) -> str:
    """Return the shortest way there."""
    return "\n".join([found.broken, *found.trace])


@pytest.mark.parametrize("begun", SHORT, ids=lambda one: one.name)
def test_no_interleaving_breaks_a_promise(begun: Scenario) -> None:
    found = search(begun)
    assert not found.broken, told(found)
    states, transitions, depth = FLOORS[begun.name]
    figure(f"search, {begun.name}: worlds", found.states, floor=states)
    figure(f"search, {begun.name}: steps", found.transitions, floor=transitions)
    assert found.depth >= depth


@pytest.mark.long
@pytest.mark.parametrize("begun", WIDE, ids=lambda one: one.name)
def test_no_wider_interleaving_breaks_a_promise(begun: Scenario) -> None:
    found = search(begun)
    assert not found.broken, told(found)
    figure(f"search, {begun.name}: worlds", found.states, floor=100_000)


@pytest.mark.parametrize("weakening", WEAKENINGS)
def test_each_weakening_breaks_one(weakening: str) -> None:
    """The search can see: without any one of these rules it finds the way to a broken promise."""
    name, promise = CATCHES[weakening]
    begun = next(one for one in SHORT if one.name == name)
    weak = replace(begun, weak=frozenset({weakening}))
    if weakening == "size-only":
        weak = replace(weak, budget=weak.budget._replace(rot=1))
    found = search(weak)
    assert found.broken.startswith(promise), told(found)
    assert len(found.trace) > 1


def test_every_weakening_has_its_place() -> None:
    assert set(CATCHES) == set(WEAKENINGS)
    assert len(WEAKENINGS) == 8
    assert set(FLOORS) == {one.name for one in SHORT}
