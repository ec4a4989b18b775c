"""A store without put-if-absent: only with the operator's word, for a single writer, and a second one is noticed.

What is promised there is less: of two machines that write at the same instant one may overwrite the
other's entry.  Whoever reads the log afterwards is told; no restore hands out anything but sealed bytes.
"""

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest
from fencing.writers import SkewedClock, Writes, check_stays_out, claims, code, outcome, via
from flows.machines import REMOTE, Machine, Place, payload
from support.commits import tree

from replicate.config import TierConfig
from replicate.engine import Replicator
from replicate.errors import ExitCode, IntegrityFailure
from replicate.logbook import Logbook
from tiers.bodies import BytesBody
from tiers.errors import ObjectExists, ObjectNotFound
from tiers.protocol import Capabilities, Fencing, Key, ObjectInfo, Tier
from tiers.testing.passthrough import PassThroughTier

Make = Callable[..., Machine]
_names = itertools.count(1)


class Advisory(PassThroughTier):
    """Looks, and then writes, as every tier does whose store knows no condition; ``between`` happens in the gap."""

    def __init__(self, inner: Tier, gap: dict[str, Callable[[], object]]) -> None:
        super().__init__(inner)
        self.gap = gap

    @property
    def capabilities(self) -> Capabilities:
        return replace(self.inner.capabilities, fencing=Fencing.ADVISORY)

    def create(self, key: Key, data: bytes) -> ObjectInfo:
        try:
            self.inner.stat(key)
        except ObjectNotFound:
            self.gap.pop(str(key), lambda: None)()
            return self.inner.put(key, BytesBody(data))
        raise ObjectExists("it is there", tier=self.name, operation="create", key=key)


def place(*, accepted: bool = True) -> Place:
    url = f"memory://advisory-{next(_names)}"
    found = Place(TierConfig(name="advisory", url=url, accept_advisory=accepted))
    found.hook = lambda tier: Advisory(tier, {})
    return found


def test_it_is_refused_before_anything_is_written_unless_the_operator_accepts_it(machine: Make) -> None:
    unaccepted, seen = place(accepted=False), list[str]()
    one = via(machine("one", unaccepted), lambda tier: Writes(Advisory(tier, {}), seen))
    one.publish(10)
    result = outcome(one)
    assert code(result) is ExitCode.CAPABILITY
    assert result.failure is not None
    assert "accept_advisory" in result.failure.hint
    assert seen == []


def test_a_single_writer_goes_on_after_a_lost_tracker_and_after_a_takeover(machine: Make) -> None:
    """One after the other everything holds: terms are read from the log, and who was overtaken stays out."""
    where = place()
    one, two = machine("one", where), machine("two", where)
    one.push(10)
    (one.folder / "runs" / REMOTE.run / "tracker.sqlite").unlink()
    one.push(15)
    two.restore()
    two.push(20)
    one.publish(16)
    check_stays_out(via(one, lambda tier: Advisory(tier, {})))
    assert claims(where) == [(1, 1), (2, 1), (3, 2)]
    assert [each.next_update for each in where.live()] == [20, 15, 10]


def overwritten(machine: Make) -> tuple[Place, Machine, Machine]:
    """Return a place where the older writer overwrote the newer one's claim, and both machines."""
    where = place()
    one, two = machine("one", where), machine("two", where)
    one.push(10)
    two.restore()
    two.publish(20)
    one.publish(15)
    came: list[ExitCode] = []
    gap: dict[str, Callable[[], object]] = {REMOTE.log(2): lambda: came.append(code(outcome(two)))}
    outcome(via(one, lambda tier: Advisory(tier, gap)))
    assert came == [ExitCode.OK], "the other wrote in the gap, and was content"
    return where, one, two


def test_an_entry_that_was_overwritten_is_noticed_by_both_and_by_every_reader(machine: Make) -> None:
    where, one, two = overwritten(machine)
    with where.raw() as tier:
        view = Logbook(tier, REMOTE).read(thorough=True)
    assert view.damaged or view.refused, "a log that was written over must not look whole"
    two.publish(30)
    result = outcome(two)
    assert isinstance(result.failure, IntegrityFailure), result
    assert "nothing is appended" in result.failure.message
    one.publish(16)
    assert code(outcome(one)) is ExitCode.INTEGRITY


def test_a_restore_after_that_gives_sealed_bytes_and_says_what_it_passed_over(machine: Make) -> None:
    where, _, _ = overwritten(machine)
    three = machine("three", where)
    report = three.restore(accept_older=True)
    assert report.generation is not None
    found = {path: data for path, data in tree(three.resumed().files).items() if data is not None}
    assert found == payload(report.generation.next_update)
    assert report.skipped, "that the log is damaged is said"


@pytest.mark.parametrize("hours", [-9, 9])
def test_which_of_two_claims_counts_goes_by_terms_and_not_by_clocks(machine: Make, hours: int) -> None:
    where = place()
    one, two = machine("one", where), machine("two", where)
    one.push(10)
    two.restore()
    two.push(20)
    one.publish(15)

    skewed = Replicator(one.config, clock=SkewedClock(hours), opener=one._open)
    assert code(skewed.replicate_once().results[0]) is ExitCode.FENCED
