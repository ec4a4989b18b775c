"""Fixtures and helpers that the checks share."""

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO, ClassVar, Protocol, TypeVar

import pytest

from tiers.bodies import BytesBody
from tiers.errors import ObjectNotFound
from tiers.protocol import Key, ObjectInfo, Part, Tier, Upload

Result = TypeVar("Result")
TierFactory = Callable[[], Tier]
"""Opens the one store of this test, again at each call."""


class RawStore(Protocol):
    """The stored bytes, reached without the code under test."""

    def get(self, key: str) -> bytes | None:
        """Return the bytes of an object, or None where there is none."""
        ...

    def put(self, key: str, data: bytes) -> None:
        """Store bytes, replacing what is there."""
        ...


def content(size: int, seed: int = 0) -> bytes:
    """Return ``size`` bytes that look random and are the same every time."""
    return random.Random(seed).randbytes(size)  # noqa: S311 - test data


def read_all(stream: BinaryIO, chunk: int = 65_536) -> bytes:
    """Read a stream to its end in pieces, and close it."""
    with stream:
        return b"".join(iter(lambda: stream.read(chunk), b""))


def slices(data: bytes, part_size: int) -> list[bytes]:
    """Cut data into the bytes of its parts."""
    return [data[start : start + part_size] for start in range(0, len(data), part_size)]


def send_parts(tier: Tier, upload: Upload, data: bytes) -> list[Part]:
    """Send all parts of an upload, in order."""
    pieces = enumerate(slices(data, upload.part_size), start=1)
    return [tier.put_part(upload, number, BytesBody(piece)) for number, piece in pieces]


def upload_all(tier: Tier, key: Key, data: bytes, part_size: int) -> ObjectInfo:
    """Store an object in parts."""
    upload = tier.begin_upload(key, size=len(data), part_size=part_size)
    return tier.complete(upload, send_parts(tier, upload, data))


def race(count: int, act: Callable[[int], Result]) -> list[Result | Exception]:
    """Run ``act(0)`` to ``act(count - 1)`` at the same time; what each returned or raised, in order."""
    barrier = threading.Barrier(count, timeout=30)

    def one(number: int) -> Result | Exception:
        barrier.wait()
        try:
            return act(number)
        except Exception as error:  # noqa: BLE001 - handed to the check, which judges it
            return error

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


def one_by_one(count: int, act: Callable[[int], Result]) -> list[Result | Exception]:
    """Do what :func:`race` does, one after the other."""
    return [race(1, partial(_ignoring_its_number, act, number))[0] for number in range(count)]


def _ignoring_its_number(act: Callable[[int], Result], number: int, _: int) -> Result:
    return act(number)


@dataclass(frozen=True, slots=True)
class _RawByTier:
    """The second best: another tier over the same store."""

    tier: Tier

    def get(self, key: str) -> bytes | None:
        try:
            return read_all(self.tier.open(Key(key)))
        except ObjectNotFound:
            return None

    def put(self, key: str, data: bytes) -> None:
        self.tier.put(Key(key), BytesBody(data))


class ConformanceBase:
    """What a backend provides, with defaults for all but ``tier_factory``."""

    listing_keys: ClassVar[int] = 25
    racers: ClassVar[int] = 8

    @pytest.fixture
    def tier_factory(self) -> TierFactory:
        """Override: return a function that opens this test's store."""
        raise NotImplementedError(f"{type(self).__name__} must override the fixture tier_factory")

    @pytest.fixture
    def open_another(self, tier_factory: TierFactory) -> Iterator[TierFactory]:
        """Open tiers on this test's store, closed when it ends."""
        with ExitStack() as stack:

            def another() -> Tier:
                tier = tier_factory()
                stack.callback(tier.close)
                return tier

            yield another

    @pytest.fixture
    def tier(self, open_another: TierFactory) -> Tier:
        """Open the tier under test."""
        return open_another()

    @pytest.fixture
    def raw(self, open_another: TierFactory) -> RawStore:
        """Override: reach the stored bytes without the code under test."""
        return _RawByTier(open_another())

    @pytest.fixture
    def part_size(self, tier: Tier) -> int:
        """Bytes of a full part."""
        return max(tier.capabilities.min_part, 1024)
