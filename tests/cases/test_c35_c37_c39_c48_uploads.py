"""Cases of uploads that were reported as done: short objects, shifted bytes, forgotten parts, slow completes."""

import hashlib
import io
import itertools
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO

import pytest
from flows.machines import Machine, Place, payload
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.commits import tree
from support.faults import Action, Fault, When
from support.proxy import FaultProxy

from replicate.config import TierConfig
from replicate.errors import ExitCode, Unreachable
from replicate.verify import Finding, Share
from tiers.bodies import Body
from tiers.errors import TierUnavailable
from tiers.protocol import Key, ObjectInfo, Part, Tier, Upload
from tiers.retrying import RetryingTier, RetryPolicy
from tiers.testing import ManualClock, content, read_all
from tiers.testing.passthrough import PassThroughTier

Make = Callable[..., Machine]
MIB = 1 << 20
PART = 5 * MIB
_numbers = itertools.count(1)
BIG = random.Random(35).randbytes(11 * MIB)


def in_parts(place: Place, **fields: object) -> Place:
    """Return the place with parts of 5 MiB."""
    chosen = {**place.settings.model_dump(exclude_defaults=True), "part_size": PART, "connections": 2, **fields}
    place.settings = TierConfig(**chosen)
    return place


@pytest.fixture
def watched(bucket_place: Place, proxy: FaultProxy) -> Place:
    """Return a place in the bucket that is reached through the fault proxy."""
    return in_parts(bucket_place, endpoint_url=proxy.endpoint_url)


class ShortReads(PassThroughTier):
    """Says the full size of an object, and ends its bytes early: as if a part of it were lost."""

    def __init__(self, inner: Tier, name: str, left: int) -> None:
        super().__init__(inner)
        self.suffix = name
        self.left = left

    def open(self, key: Key, start: int = 0, length: int | None = None) -> BinaryIO:
        """End where the lost part would begin, as a broken answer ends: with an error, not like the end."""
        stream = self.inner.open(key, start, length)
        if not key.endswith(self.suffix):
            return stream
        with stream:
            data = stream.read(max(0, self.left - start))
        return io.BufferedReader(
            _Ending(data, TierUnavailable("the answer ended", tier=self.name, operation="open", key=key))
        )


class _Ending(io.RawIOBase):
    def __init__(self, data: bytes, error: Exception) -> None:
        self._data = io.BytesIO(data)
        self._error = error

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object, /) -> int:
        count = self._data.readinto(buffer)  # type: ignore[arg-type]
        if not count:
            raise self._error
        return count


def test_c35_an_object_without_a_part_is_not_committed_where_it_is_read_back(volume: Place, machine: Make) -> None:
    """The size of the object is right, and says nothing."""
    one = machine("one", in_parts(volume))
    one.publish(100, {"model.bin": BIG})
    volume.hook = lambda tier: ShortReads(tier, "/files/model.bin", 2 * PART)
    (result,) = one.replicate().results
    assert result.failure is not None
    assert result.failure.exit_code in (ExitCode.INTEGRITY, ExitCode.UNREACHABLE)
    assert volume.live() == []
    volume.hook = lambda tier: tier
    assert one.replicate().exit_code == 0
    assert len(volume.live()) == 1


def test_c35_a_part_that_vanished_later_is_found_by_reading_and_only_by_reading(
    bucket_place: Place, machine: Make
) -> None:
    """What the store says of size and digest stays right: ``verify`` without --read-data cannot know."""
    one = machine("one", in_parts(bucket_place))
    made = one.publish(100, {"model.bin": BIG})
    assert one.replicate().exit_code == 0
    bucket_place.hook = lambda tier: ShortReads(tier, "/files/model.bin", 2 * PART)
    by_size, by_bytes = (
        one.engine.verify(tier="bucket", share=share, generation=made, seed=0)[0].generations[0]
        for share in (None, Share())
    )
    assert by_size.verdict is Finding.INTACT
    assert by_bytes.verdict is not Finding.INTACT


def test_c35_a_restore_never_takes_the_short_bytes_for_the_object(
    bucket_place: Place, volume: Place, machine: Make
) -> None:
    """Another tier makes up for it.  Alone, the tier counts as one that does not answer: an older one only if asked."""
    one = machine("one", bucket_place, volume)
    older, newer = one.push(100, 200)

    def short(place: Place) -> Callable[[Tier], Tier]:
        (key,) = (key for key in place.stored() if f"/{newer}." in key and key.endswith("/model.bin"))
        return lambda tier: ShortReads(tier, key, 1000)

    volume.hook = short(volume)  # a tier on this machine is asked first
    two = machine("two", bucket_place, volume)
    report = two.restore()
    assert (report.generation, report.fell_back) == (newer, False)
    assert any("model.bin" in incident.path for incident in report.incidents)
    bucket_place.hook = short(bucket_place)
    alone = machine("alone", bucket_place)
    with pytest.raises(Unreachable, match=r"files/model\.bin: the answer ended") as caught:
        alone.restore()
    assert "--accept-older" in caught.value.hint
    report = alone.restore(accept_older=True)
    assert (report.generation, report.fell_back) == (older, True)
    for name, update in (("two", 200), ("alone", 100)):
        found = {"two": two, "alone": alone}[name].resumed().files
        assert (found / "model.bin").read_bytes() == payload(update)["model.bin"]


class PartialAccepts(PassThroughTier):
    """A server that takes some of the bytes of a request, and resets; a few times, then it takes all."""

    def __init__(self, inner: Tier, accepts: list[int]) -> None:
        super().__init__(inner)
        self.accepts = accepts
        self.resets = 0

    def put(self, key: Key, body: Body) -> ObjectInfo:
        """Take some, or all."""
        self._reset(body, "put", key)
        return self.inner.put(key, body)

    def put_part(self, upload: Upload, number: int, body: Body) -> Part:
        """Take some, or all."""
        self._reset(body, "put_part", upload.key)
        return self.inner.put_part(upload, number, body)

    def _reset(self, body: Body, verb: str, key: str) -> None:
        if not self.accepts:
            return
        taken = min(self.accepts.pop(), body.size)
        with body.open() as reader:
            assert len(reader.read(taken)) == taken
        self.resets += 1
        raise TierUnavailable("connection reset", tier=self.name, operation=verb, key=key)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    accepts=st.lists(st.integers(min_value=0, max_value=MIB), max_size=4),
    size=st.integers(min_value=0, max_value=300_000),
)
def test_c37_what_is_stored_is_what_was_sealed_however_much_was_accepted_before(
    machine: Make, accepts: list[int], size: int
) -> None:
    """A request is repeated whole, from its start: there is no remainder whose beginning could be off by one."""
    number = next(_numbers)
    place = Place(TierConfig(name="t", url=f"memory://c37-{number}"))
    made: list[PartialAccepts] = []

    def partial(tier: Tier) -> Tier:
        made.append(PartialAccepts(tier, list(accepts)))
        return RetryingTier(made[-1], ManualClock(), RetryPolicy(attempts=9, base=0.01))

    place.hook = partial
    one = machine(f"one-{number}", place)
    data = random.Random(size).randbytes(size)
    one.publish(100, {"model.bin": data})
    assert one.replicate().exit_code == 0
    assert made[-1].resets == len(accepts)
    (key,) = (key for key in place.stored() if key.endswith("/model.bin"))
    with place.raw() as tier:
        stored = read_all(tier.open(Key(key)))
    assert hashlib.sha256(stored).digest() == hashlib.sha256(data).digest()


@pytest.mark.parametrize("when", [When.MID_BODY, When.AFTER])
@pytest.mark.parametrize("action", [Action.DROP, Action.TRUNCATE])
def test_c37_requests_that_break_off_on_a_real_server_leave_no_shifted_bytes(
    watched: Place, proxy: FaultProxy, machine: Make, when: When, action: Action
) -> None:
    faults = [Fault(operation="UploadPart", key="*model.bin", nth=nth, when=when, action=action) for nth in (1, 3)] + [
        Fault(operation="PutObject", key="*/files/small", when=when, action=action)
    ]
    one = machine("one", in_parts(watched, connections=1))
    one.publish(100, {"model.bin": BIG, "small": content(3000)})
    proxy.inject(*faults)
    assert one.replicate().exit_code == 0
    assert len(proxy.fired) == len(faults)
    two = machine("two", watched)
    two.restore()
    assert tree(two.resumed().files) == {"model.bin": BIG, "small": content(3000)}


def test_c39_a_retry_sends_what_was_not_confirmed_and_says_done_only_of_what_is_proved(
    watched: Place, proxy: FaultProxy, machine: Make
) -> None:
    """The connection breaks at the third part, as often as is tried; the next pass finds two parts and sends one."""
    one = machine("one", in_parts(watched, connections=1))
    made = one.publish(100, {"model.bin": BIG})
    proxy.inject(
        *(
            Fault(operation="UploadPart", key="*model.bin", nth=nth, action=Action.DROP, when=When.MID_BODY)
            for nth in (3, 4)
        )
    )
    (result,) = one.replicate().results
    assert result.failure is not None
    assert result.failure.exit_code is ExitCode.UNREACHABLE
    assert len(proxy.fired) == 2
    assert watched.live() == []
    assert not one.engine.safe_to_terminate(()).safe
    before = proxy.counts
    assert one.replicate().exit_code == 0
    after = proxy.counts - before
    assert (after["UploadPart"], after["CreateMultipartUpload"], after["ListParts"]) == (1, 0, 1)
    assert watched.live() == [made]
    two = machine("two", watched)
    two.restore()
    assert tree(two.resumed().files) == {"model.bin": BIG}


@contextmanager
def completing_badly(proxy: FaultProxy, *faults: Fault) -> Iterator[None]:
    """Let Complete go wrong in these ways, and check that they happened and that nothing was ever aborted."""
    proxy.inject(*faults)
    yield
    assert [fired.operation for fired in proxy.fired] == ["CompleteMultipartUpload"] * len(faults)
    assert proxy.counts["AbortMultipartUpload"] == 0, "an abort that races with a complete can destroy the object"


def test_c48_a_complete_whose_reply_is_late_or_lost_is_looked_up_and_never_aborted(
    watched: Place, proxy: FaultProxy, machine: Make
) -> None:
    """The store did it, slowly, and the client heard nothing: the object is there, and no byte goes up again."""
    one = machine("one", watched)
    made = one.publish(100, {"model.bin": BIG})
    slow = Fault(operation="CompleteMultipartUpload", when=When.AFTER, action=Action.STALL, seconds=1.0)
    with completing_badly(proxy, slow):
        assert one.replicate().exit_code == 0
    assert proxy.counts["UploadPart"] == 3
    assert watched.live() == [made]
    two = machine("two", watched)
    two.restore()
    assert tree(two.resumed().files) == {"model.bin": BIG}


def test_c48_a_complete_that_never_arrived_is_repeated_by_the_next_pass(
    watched: Place, proxy: FaultProxy, machine: Make
) -> None:
    one = machine("one", watched)
    made = one.publish(100, {"model.bin": BIG})
    lost = [Fault(operation="CompleteMultipartUpload", nth=nth, action=Action.DROP) for nth in (1, 2)]
    with completing_badly(proxy, *lost):
        (result,) = one.replicate().results
        assert result.failure is not None
        assert result.failure.exit_code is ExitCode.UNREACHABLE
        assert one.replicate().exit_code == 0
    assert proxy.counts["UploadPart"] == 3, "the parts were still there"
    assert watched.live() == [made]
