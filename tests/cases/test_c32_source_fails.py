"""C32: what is being uploaded cannot be read to its end; nothing short gets the final key."""

import errno
import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, cast
from unittest import mock

import pytest
from flows.kinds import KINDS, Running
from flows.machines import Machine, Place

from replicate.errors import ExitCode
from tiers import bodies
from tiers.bodies import BytesBody
from tiers.errors import ObjectNotFound, TierError
from tiers.protocol import Key, walk

Make = Callable[..., Machine]
SIZE = 6 << 20
BREAKS_AT = SIZE * 6 // 10
PART = 5 << 20


class Broken(io.RawIOBase):
    """Gives the first 60 per cent and then EIO."""

    def __init__(self) -> None:
        super().__init__()
        self._position = 0
        self.read_on = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: SIZE}[whence]
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: "memoryview[int] | bytearray") -> int:  # type: ignore[override]
        if self._position >= BREAKS_AT:
            self.read_on += 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        view = memoryview(buffer).cast("B")[: BREAKS_AT - self._position]
        view[:] = b"x" * len(view)
        self._position += len(view)
        return len(view)


@dataclass(frozen=True, slots=True)
class BrokenBody:
    """A body whose reader breaks."""

    reader: Broken
    size: int = SIZE
    sha256: str | None = None

    def open(self) -> BinaryIO:
        return cast("BinaryIO", self.reader)


@pytest.fixture(scope="module", params=["memory", "volume", "s3-aws", "fsspec-memory"])
def kind(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with KINDS[request.param](tmp_path_factory.mktemp("kind"), None) as running:  # type: ignore[arg-type]
        yield running


def test_c32_a_source_that_breaks_off_leaves_no_object(kind: Running) -> None:
    """As one request, and as a part of a large object; the next try is whole."""
    place = kind.place()
    key = Key("run/generations/g.t1-n/files/model.bin")
    with place.raw() as tier:
        reader = Broken()
        with pytest.raises((OSError, TierError)):
            tier.put(key, BrokenBody(reader))
        assert reader.read_on > 0, "it was read to where it breaks"
        with pytest.raises(ObjectNotFound):
            tier.stat(key)
        assert list(walk(tier, "run/")) == []
        tier.put(key, BytesBody(b"whole"))
        with tier.open(key) as stream:
            assert stream.read() == b"whole"


def test_c32_a_generation_whose_file_cannot_be_read_is_not_committed(volume: Place, machine: Make) -> None:
    """The disk answers EIO in the middle of a part: nothing is committed, and once it can be read all is."""
    place = Place(volume.settings.model_copy(update={"part_size": PART}))
    one = machine("one", place)
    one.push(10)
    made = one.publish(20, {"model.bin": b"x" * SIZE})
    real, hit = bodies.SliceReader.readinto, list[int]()

    def readinto(reader: bodies.SliceReader, buffer: "memoryview[int] | bytearray") -> int:
        if reader.name.endswith("model.bin") and reader._start + reader.tell() >= BREAKS_AT:
            hit.append(reader.tell())
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        view = memoryview(buffer).cast("B")[: 1 << 20]
        return real(reader, view)

    with mock.patch.object(bodies.SliceReader, "readinto", readinto):
        report = one.replicate()
    assert hit
    (result,) = report.results
    assert report.exit_code is ExitCode.DISK
    assert result.failure is not None
    assert "model.bin" in result.failure.message, "and names the file"
    assert made not in place.live()
    assert not [key for key in place.stored() if str(made) in key and key.endswith(("model.bin", "manifest.json"))]
    assert machine("two", place).restore().generation == place.live()[0]
    assert one.replicate().exit_code == ExitCode.OK
    assert made in place.live()
