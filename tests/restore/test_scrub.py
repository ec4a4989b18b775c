"""Every stored byte matters, wherever it is bent (tests/scrub has the table of what can be done to what)."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.commits import RUN, Made, Writer, expected, flip, generation, tamper, tree

from replicate.errors import CkptierError
from replicate.layout import LocalRun, RemoteRun
from replicate.restore import RestoreRequest, restore
from tiers.memory import MemoryTier
from tiers.protocol import Key, Tier, walk
from tiers.testing.manual_clock import ManualClock

GENERATIONS = (generation(1), generation(2))


def written() -> tuple[Tier, list[Key]]:
    writer = Writer(MemoryTier("a"))
    for made in GENERATIONS:
        writer.commit(made)
    return writer.tier, [info.key for info in walk(writer.tier, "")]


KEYS = written()[1]


def outcome(tier: Tier, to: Path) -> Made | None:
    """Restore, check that it is exact or nothing, and return what it was."""
    refusal: CkptierError | None = None
    try:
        report = restore(RestoreRequest(to=to), [tier], LocalRun(to / "none"), ManualClock(), remote=RemoteRun.of(RUN))
    except CkptierError as error:
        refusal = error
    if refusal is not None:
        assert refusal.hint
        assert not to.exists()
        return None
    made = next(made for made in GENERATIONS if made.id == report.generation)
    assert tree(to) == expected(made)
    if made is not GENERATIONS[-1]:
        assert report.fell_back or report.skipped, "an older one is never taken silently"
    return made


@given(st.data())
def test_no_flipped_byte_is_ever_restored(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    tier, keys = written()
    key = data.draw(st.sampled_from(keys))
    at = data.draw(st.integers(min_value=0, max_value=tier.stat(key).size - 1))
    tamper(tier, key, flip(at))
    outcome(tier, tmp_path_factory.mktemp("scrub") / "out")


@given(st.sampled_from(KEYS), st.sampled_from(KEYS))
def test_no_two_objects_can_be_swapped(tmp_path_factory: pytest.TempPathFactory, one: Key, two: Key) -> None:
    tier, _ = written()
    with tier.open(one) as first, tier.open(two) as second:
        data = first.read(), second.read()
    tamper(tier, one, lambda _: data[1])
    tamper(tier, two, lambda _: data[0])
    outcome(tier, tmp_path_factory.mktemp("scrub") / "out")
