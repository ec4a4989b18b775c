"""Case of two replicas of which one is broken: what a restore does, by which rule, and what it says.

The rule: a generation comes from any tier that has it, object by object, from what is on this machine
first, else in the order of the configuration.  A tier that does not answer might hold something newer,
so a restore stops there (exit 9, or 8) unless --accept-older.  Damage stops nothing: the next copy,
then the next older.
"""

from collections.abc import Callable

import pytest
from flows.machines import Machine, Place, payload
from support.commits import flip, tamper, tree
from support.seaweed import SeaweedServer

from replicate.config import TierConfig
from replicate.errors import Denied, Unreachable
from replicate.layout import GenerationId
from tiers.errors import TierUnavailable
from tiers.protocol import Key, Tier
from tiers.testing.faulty import Fault, FaultyTier

Make = Callable[..., Machine]


@pytest.fixture
def both(memory: Place, volume: Place, machine: Make) -> tuple[Place, Place, list[GenerationId]]:
    """Return two tiers, A and B, with the same two generations."""
    return memory, volume, machine("one", memory, volume).push(100, 200)


Both = tuple[Place, Place, list[GenerationId]]


def key_of(place: Place, generation: GenerationId, name: str) -> Key:
    (key,) = (key for key in place.stored() if f"/{generation}." in key and key.endswith(f"/{name}"))
    return Key(key)


def contents(machine: Machine) -> dict[str, bytes | None]:
    return {path: data for path, data in tree(machine.resumed().files).items() if data is not None}


def test_c80_a_bucket_that_is_gone_is_no_empty_bucket(volume: Place, machine: Make, seaweed: SeaweedServer) -> None:
    (made,) = machine("one", volume).push(100)
    gone = Place(
        TierConfig(name="gone", url="s3://no-such-bucket/x", endpoint_url=seaweed.endpoint_url, profile="seaweedfs")
    )
    two = machine("two", gone, volume)
    with pytest.raises((Denied, Unreachable), match="gone") as caught:
        two.restore()
    assert "--accept-older" in caught.value.hint
    report = two.restore(accept_older=True)
    assert (report.generation, report.by_place[0][0]) == (made, "volume")
    assert any(skip.place == "gone" for skip in report.skipped)


def timing_out(tier: Tier) -> Tier:
    """Let every request end as one does whose connection is never answered."""

    def timeout(name: str, verb: str, key: str) -> Exception:
        return TierUnavailable("connect timeout", tier=name, operation=verb, key=key)

    return FaultyTier(tier, [Fault(verb="*", times=10**6, error=timeout)])


def test_c80_a_replica_that_times_out_is_waited_for_or_done_without(both: Both, machine: Make) -> None:
    a, _b, made = both
    a.hook = timing_out
    two = machine("two", *both[:2])
    with pytest.raises(Unreachable, match="connect timeout"):
        two.restore()
    report = two.restore(accept_older=True)
    assert (report.generation, report.fell_back) == (made[-1], False)
    assert {place for place, _count in report.by_place} == {"volume"}
    assert contents(two) == payload(200)


def test_c80_a_manifest_that_is_hurt_costs_that_replica_and_not_the_generation(both: Both, machine: Make) -> None:
    a, b, made = both
    with a.raw() as tier:
        tamper(tier, key_of(a, made[-1], "manifest.json"), flip(100))
    two = machine("two", a, b)
    report = two.restore()
    assert (report.generation, report.fell_back) == (made[-1], False)
    assert {place for place, _count in report.by_place} == {"volume"}
    assert any("memory" in text for text in told(report)), told(report)
    assert contents(two) == payload(200)


def told(report: object) -> list[str]:
    """Return everything that a report says of what went wrong."""
    return [
        *(f"{skip.place}: {skip.reason}" for skip in report.skipped),  # type: ignore[attr-defined]
        *(f"{one.place}: {one.path}: {one.reason}" for one in report.incidents),  # type: ignore[attr-defined]
        *report.warnings,  # type: ignore[attr-defined]
    ]


def test_c80_an_object_that_is_cut_is_taken_from_the_other_replica(both: Both, machine: Make) -> None:
    """The other objects still come from the first one."""
    a, b, made = both
    with a.raw() as tier:
        tamper(tier, key_of(a, made[-1], "model.bin"), lambda data: data[:-7])
    two = machine("two", a, b)
    report = two.restore()
    assert (report.generation, report.fell_back) == (made[-1], False)
    wanted = payload(200)
    assert dict(report.by_place) == {
        "volume": len(wanted["model.bin"]),
        "memory": len(wanted["optim/state.bin"]) + len(wanted["meta.json"]),
    }
    assert any(text.startswith("memory: model.bin") for text in told(report))
    assert contents(two) == wanted


def test_c80_the_newest_counts_wherever_it_is(both: Both, machine: Make) -> None:
    """A is one ahead of B; where A's is hurt, the newest that both have is taken, and it is said why."""
    a, b, made = both
    b.hook = timing_out
    one = Machine(machine("unused").folder.parent / "one", (a, b))
    newest = one.publish(300)
    one.replicate()
    b.hook = lambda tier: tier
    assert (a.live()[0], b.live()[0]) == (newest, made[-1])
    two = machine("two", a, b)
    assert two.restore().generation == newest
    with a.raw() as tier:
        tamper(tier, key_of(a, newest, "model.bin"), lambda data: data[:-7])
    three = machine("three", a, b)
    report = three.restore()
    assert (report.generation, report.fell_back) == (made[-1], True)
    assert [skip.generation for skip in report.skipped if skip.generation] == [newest]
    assert "model.bin" in next(skip.reason for skip in report.skipped if skip.generation == newest)
    assert contents(three) == payload(200)
