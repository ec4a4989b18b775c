"""``copy`` on a volume: as durable as a put, never of another file than was named, and whole or not at all."""

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tiers import effects
from tiers.bodies import BytesBody
from tiers.effects import Effect, Moment
from tiers.errors import CapacityExceeded, IntegrityError, ObjectNotFound, TierError, TierUnavailable
from tiers.protocol import Key, Tier
from tiers.testing import content, read_all
from tiers.volume import VolumeTier
from tiers.volume_facts import VolumeMode

DATA = content(3_000_001)
MODES = (VolumeMode.RENAME, VolumeMode.DIRECT)
Copy = Callable[..., int]


@pytest.fixture(params=MODES, ids=str)
def tier(request: pytest.FixtureRequest, tmp_path: Path) -> Tier:
    return VolumeTier("volume", tmp_path, mode=request.param)


def leftovers(root: Path) -> list[str]:
    """Return the files in the hidden folder, but for what is kept there of objects."""
    kept = ("volume.json", "s")
    return [path.name for path in (root / ".ckptier").rglob("*") if path.is_file() and path.name not in kept]


@pytest.fixture
def source(tier: Tier) -> Iterator[Key]:
    tier.put(Key("s"), BytesBody(DATA))
    yield Key("s")
    tier.close()


def test_the_order_is_that_of_a_put(tmp_path: Path) -> None:
    """Bytes, then name, then folder: a power cut leaves all of it or none."""
    tier = VolumeTier("volume", tmp_path)
    tier.put(Key("warm/s"), BytesBody(DATA))
    known = tier.stat(Key("warm/s"))
    happened: list[str] = []

    def note(effect: Effect, what: str, moment: Moment) -> None:
        if moment is Moment.AFTER:
            name = what.removeprefix(f"{tmp_path}/")
            happened.append(f"{effect} {'TEMP' if name.startswith('.ckptier/tmp/') else name}")

    with effects.observing(note):
        tier.copy(Key("warm/t"), known)
    assert happened == ["fsync TEMP", "rename warm/t", "fsync warm/"]


@pytest.mark.parametrize("error", [errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, None])
def test_a_filesystem_that_copies_nothing_has_the_bytes_read_and_written(
    tier: Tier, source: Key, monkeypatch: pytest.MonkeyPatch, error: int | None
) -> None:
    """Refused, or said to be done and not done (0 bytes: the end, or a filesystem that lies about it)."""

    def refused(*_: object) -> int:
        if error is not None:
            raise OSError(error, os.strerror(error))
        return 0

    monkeypatch.setattr(os, "copy_file_range", refused)
    tier.copy(Key("t"), tier.stat(source))
    assert read_all(tier.open(Key("t"))) == DATA


def test_a_copy_in_pieces(tier: Tier, source: Key, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call may copy less than it was asked for."""
    real: Copy = os.copy_file_range

    def little(source: int, target: int, count: int, *offsets: int) -> int:
        return real(source, target, min(count, 700_001), *offsets)

    monkeypatch.setattr(os, "copy_file_range", little)
    tier.copy(Key("t"), tier.stat(source))
    assert read_all(tier.open(Key("t"))) == DATA


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_a_disk_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    tier = VolumeTier("volume", tmp_path)
    tier.put(Key("s"), BytesBody(DATA))

    def fail(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "copy_file_range", fail)
    with pytest.raises(TierUnavailable if number == errno.EIO else CapacityExceeded):
        tier.copy(Key("t"), tier.stat(Key("s")))
    with pytest.raises(ObjectNotFound):
        tier.stat(Key("t"))
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("how", ["touched", "shortened"])
def test_a_source_that_changes_meanwhile(tier: Tier, source: Key, tmp_path: Path, how: str) -> None:
    """Somebody writes into the file itself, while it is copied: what was copied is nobody's."""
    tier.put(Key("t"), BytesBody(b"before"))
    known = tier.stat(source)

    def act(*_: object) -> None:
        if how == "touched":
            os.utime(tmp_path / source, ns=(1, 1))
        else:
            os.truncate(tmp_path / source, 5)

    with during(act), pytest.raises(TierError) as caught:
        tier.copy(Key("t"), known)
    assert isinstance(caught.value, IntegrityError | TierUnavailable | ObjectNotFound)
    assert read_all(tier.open(Key("t"))) == b"before"


def test_a_source_that_is_replaced_or_deleted_meanwhile_is_the_one_that_was_named(tier: Tier, source: Key) -> None:
    """The open file is; whoever took its name away changed nothing in it."""
    known = tier.stat(source)

    with during(lambda: tier.delete(source)):
        tier.copy(Key("t"), known)
    assert read_all(tier.open(Key("t"))) == DATA


class during:  # noqa: N801 - reads as a sentence
    """Let something happen once, right before the first piece is copied."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act
        self._patch = pytest.MonkeyPatch()
        self._done = False

    def __enter__(self) -> None:
        real, read = os.copy_file_range, os.pread

        def copying(*arguments: int) -> int:
            self._once()
            return real(*arguments)

        def reading(*arguments: int) -> bytes:
            self._once()
            return read(*arguments)

        self._patch.setattr(os, "copy_file_range", copying)
        self._patch.setattr(os, "pread", reading)

    def _once(self) -> None:
        if not self._done:
            self._done = True
            self._act()

    def __exit__(self, *_: object) -> None:
        self._patch.undo()
        assert self._done, "it happened"
