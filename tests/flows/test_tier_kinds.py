"""The same protocol on every kind of tier: publish, die, resume, restore; one writer; one damaged object."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import botocore.loaders
import pytest
from flows.kinds import ADVISORY, KINDS, Running
from flows.machines import Machine, Place, payload
from support.commits import tree
from support.seaweed import SeaweedServer

from replicate.errors import CkptierError, ExitCode
from replicate.layout import GenerationId
from replicate.verify import Share
from tiers import effects
from tiers.bodies import BytesBody
from tiers.effects import Effect, Moment
from tiers.protocol import Fencing, Key

Make = Callable[..., Machine]


@pytest.fixture(scope="module", params=KINDS)
def kind(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, seaweed: SeaweedServer
) -> Iterator[Running]:
    """Run what a kind of tier needs, once for the tests here."""
    with KINDS[request.param](tmp_path_factory.mktemp("kind"), seaweed) as running:
        assert running.name == request.param
        yield running


@pytest.fixture(scope="module", autouse=True)
def one_loader() -> Iterator[None]:
    """Let every client of boto3 find in memory what it reads from its data files: most of the time goes there."""
    loader = botocore.loaders.create_loader()
    with mock.patch.object(botocore.loaders, "create_loader", return_value=loader):
        yield


class Killed(BaseException):
    """The process is dead: no more side effects."""


@contextmanager
def dying(moment: Moment, verb: str, name: str) -> Iterator[list[str]]:
    """Let nothing happen, in any thread, from before or after a request of this verb on a key that ends so.

    Yields what was announced until then.
    """
    lock, dead, seen = threading.Lock(), threading.Event(), []

    def observe(effect: Effect, what: str, when: Moment) -> None:
        with lock:
            due = effect is Effect.REMOTE and when is moment and f" {verb} " in what and what.endswith(name)
            if due or dead.is_set():
                dead.set()
                raise Killed
            seen.append(f"{when} {effect} {what}")

    with effects.observing(observe):
        yield seen
    assert dead.is_set(), f"nothing died: {seen}"


DEATHS = [(Moment.BEFORE, "put", "/manifest.json"), (Moment.AFTER, "create", "/log/000000000001.json")]
"""All data is there and nothing names it; it is committed, and the journal does not know."""


def files_of(machine: Machine) -> dict[str, bytes | None]:
    return {path: data for path, data in tree(machine.resumed().files).items() if data is not None}


def check_all_there(place: Place, machine: Machine, made: list[GenerationId]) -> None:
    """Check that a tier has exactly these generations, whole, by reading every byte of them."""
    assert place.live() == sorted(made, reverse=True)
    (report,) = machine.engine.verify(tier="tier", share=Share(), generation=None, seed=0)
    assert report.sound, report
    assert {found.bytes_read for found in report.generations} == {
        sum(map(len, payload(one.next_update).values())) for one in made
    }


def test_what_dies_is_resumed_and_what_is_restored_is_what_was_sealed(kind: Running, machine: Make) -> None:
    for number, death in enumerate(DEATHS):
        place = kind.place()
        one = machine(f"one-{number}", place)
        made = [one.publish(update) for update in (100, 200)]
        with dying(*death), pytest.raises(Killed):
            one.replicate()
        committed = place.live()
        assert committed == made[1:][:number]
        before = place.meter.snapshot()
        assert one.replicate().exit_code == 0
        again = (place.meter.snapshot() - before).sent("put")
        fresh, manifest = sum(map(len, payload(100).values())), 4096
        assert again < fresh + 3 * manifest, "the newer one's data had arrived before the kill"
        two = machine(f"two-{number}", place)
        check_all_there(place, two, made)
        two.restore()
        assert two.resumed().id == made[-1]
        assert files_of(two) == payload(200)


def test_a_second_writer_is_kept_apart_as_the_store_can(kind: Running, machine: Make) -> None:
    """The one that restored goes on, the other is told; where a store cannot promise it, that has to be accepted."""
    place = kind.place()
    with place.raw() as tier:
        fencing = tier.capabilities.fencing
    assert (fencing is Fencing.ADVISORY) == (kind.name in ADVISORY)
    if fencing is Fencing.ADVISORY:
        careful = machine("careful", kind.place(accept_advisory=False))
        careful.publish(100)
        (result,) = careful.replicate().results
        assert result.failure is not None
        assert result.failure.exit_code is ExitCode.CAPABILITY
        assert "accept_advisory" in result.failure.hint
    one = machine("one", place)
    one.push(100)
    two = machine("two", place)
    two.restore()
    two.push(200)
    one.publish(300)
    (result,) = one.replicate().results
    assert result.failure is not None
    assert result.failure.exit_code is ExitCode.FENCED
    assert [found.next_update for found in place.live()] == [200, 100]


def test_an_object_that_is_hurt_makes_a_restore_fall_back(kind: Running, machine: Make) -> None:
    place = kind.place()
    one = machine("one", place)
    older, newer = one.push(100, 200)
    (key,) = (key for key in place.stored() if f"/{newer}." in key and key.endswith("/model.bin"))
    with place.raw() as tier:
        with tier.open(Key(key)) as stream:
            data = stream.read()
        tier.delete(Key(key))
        tier.put(Key(key), BytesBody(data[:-1] + bytes([data[-1] ^ 1])))
    two = machine("two", place)
    report = two.restore()
    assert (report.generation, report.fell_back) == (older, True)
    assert "model.bin" in report.skipped[0].reason
    assert files_of(two) == payload(100)
    with pytest.raises(CkptierError) as caught:
        machine("three", place).restore(generation=newer)
    assert caught.value.exit_code is ExitCode.INTEGRITY
