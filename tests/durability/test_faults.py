"""Each call of the operating system fails once: the error is clear, nothing is promised, and a repeat succeeds."""

import errno
import logging
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from crash.stage import RUN, look, volume_digests
from crash.store import check_whole
from durability.conftest import LONG, ROOT
from durability.faulty_os import Fault, failing, sweep
from durability.recovery import completed, contents
from durability.scenarios import publish, store_of
from durability.world import configure, content, files_of
from support.strace_log import strace

from replicate.config import load_config
from replicate.engine import Replicator
from replicate.errors import CkptierError, LocalDisk
from replicate.restore import RestoreOptions, RestoreRequest
from tiers.bodies import BytesBody
from tiers.errors import TierError
from tiers.protocol import Key
from tiers.volume import VolumeTier
from tiers.volume_facts import VolumeMode

CODES = {0, 3, 8, 9}
"""What a pass may end in whose tier fails: made up for, full, denied, unreachable."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Keep what is reported on the way out of the way."""
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def place(memory: Path) -> Iterator[Path]:
    folder = memory / "faults"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


def leftovers(root: Path) -> list[str]:
    return [one.name for one in root.rglob("*") if one.name.startswith((".incoming", ".staged", ".tmp", ".trash"))]


def explained(error: CkptierError, fault: Fault) -> None:
    """Check that an error names a place, a cause and a next step."""
    words = f"{error.message} {error.hint}"
    assert os.strerror(fault.errno) in error.message or errno.errorcode[fault.errno] in error.message, words
    assert "/" in error.message, words
    assert error.hint, words


@pytest.mark.parametrize("defer", [False, True], ids=["sealed", "deferred"])
def test_publish(place: Path, defer: bool) -> None:
    """The save fails clearly or succeeds; the generation before it stays, and the next one can be published."""
    counter = iter(range(10_000))

    def act(name: str, number: int, code: int) -> Fault:
        folder = place / str(next(counter))
        store = store_of(folder)
        publish(store, 1)
        published = True
        with failing(name, number, code, folder) as fault:
            try:
                publish(store, 2, defer=defer)
            except LocalDisk as error:
                published = False
                explained(error, fault)
        resumed = store_of(folder).resume()
        assert resumed.id.next_update == 2 or not published
        assert contents(resumed.files) == files_of(resumed.id.next_update)
        check_whole(folder / "runs" / RUN)
        publish(store, 3)
        assert leftovers(folder) == [], f"{name} {number}"
        shutil.rmtree(folder)
        return fault

    fired = sweep(act, step=1 if LONG else 4)
    assert fired.keys() == {"open", "rename", "mkdir", "write", "fsync", "close"} | ({"unlink"} if not defer else set())
    assert sum(fired.values()) > 30


@pytest.mark.parametrize("verb", ["put", "create", "upload"])
@pytest.mark.parametrize("mode", [VolumeMode.RENAME, VolumeMode.DIRECT])
def test_volume(place: Path, mode: VolumeMode, verb: str) -> None:
    """An object is whole or absent, no OSError gets out, nothing stays behind, and the same work succeeds."""
    counter = iter(range(10_000))

    def act(name: str, number: int, code: int) -> Fault:
        root = place / str(next(counter))
        root.mkdir()
        VolumeTier("v", root, mode=mode).put(Key("run/b"), BytesBody(b"other"))
        stored = True
        with failing(name, number, code, root) as fault:
            try:
                store(VolumeTier("v", root, mode=mode), verb)
            except TierError as error:
                stored = False
                assert error.hint  # noqa: PT017 - one that may come, at a step that is not known
        tier = VolumeTier("v", root, mode=mode)
        found = {info.key for info in tier.list_objects("").objects} - {"run/b"}
        assert found == {"run/a"} or not stored
        if found:
            assert read(tier) == content(1)
        if not found or verb != "create":
            store(tier, verb)
        assert read(tier) == content(1)
        left = {one.name for one in (root / ".ckptier").rglob("*") if one.is_file() and "done" not in one.parts}
        assert verb == "upload" or left == {"volume.json"}, f"{name} {number}"
        shutil.rmtree(root)
        return fault

    fired = sweep(act, step=1 if LONG else 2)
    assert {"open", "fsync", "close"} <= fired.keys()
    assert sum(fired.values()) >= 20


def store(tier: VolumeTier, verb: str) -> None:
    key, data = Key("run/a"), content(1)
    if verb == "put":
        tier.put(key, BytesBody(data))
    elif verb == "create":
        tier.create(key, data)
    else:
        upload = tier.begin_upload(key, size=len(data), part_size=len(data) // 2)
        half = len(data) // 2
        parts = [tier.put_part(upload, one + 1, BytesBody(data[half * one : half * (one + 1)])) for one in range(2)]
        tier.complete(upload, parts)


def read(tier: VolumeTier) -> bytes:
    with tier.open(Key("run/a")) as stream:
        return stream.read()


@pytest.fixture(scope="module")
def filled(memory: Path) -> Path:
    """Return a machine with two generations, the newer of them on a volume, too."""
    folder = memory / "filled"
    store_ = store_of(folder)
    publish(store_, 1)
    (folder / "volume").mkdir()
    configure(folder, {"v": "rename"})
    assert Replicator(load_config(folder / "ckptier.toml")).replicate_once().exit_code == 0
    publish(store_, 2)
    return folder


def clone(base: Path, folder: Path) -> Path:
    """Copy a machine, its sealed generations as links: their inodes are what sealing saw."""

    def link_or_copy(source: str, target: str) -> str:
        if "/generations/" in source and "/runs/" in source:
            os.link(source, target)
            return target
        return str(shutil.copy2(source, target))

    shutil.copytree(base, folder, copy_function=link_or_copy)
    configure(folder, {"v": "rename"})
    return folder


def without_store(base: Path, folder: Path) -> Replicator:
    """Return a machine that has the volume and nothing else."""
    shutil.copytree(base / "volume", folder / "volume")
    configure(folder, {"v": "rename"})
    return Replicator(load_config(folder / "ckptier.toml"))


@pytest.fixture
def machine(memory: Path) -> Iterator[Path]:
    yield memory / "machine"
    shutil.rmtree(memory / "machine", ignore_errors=True)


def test_replicate(place: Path, filled: Path) -> None:
    """A tier that fails anywhere is told by its exit code; what was said is true, and the next pass succeeds."""
    counter = iter(range(10_000))

    def act(name: str, number: int, code: int) -> Fault:
        folder = clone(filled, place / str(next(counter)))
        engine = Replicator(load_config(folder / "ckptier.toml"))
        with failing(name, number, code, folder / "volume") as fault:
            report = engine.replicate_once()
        assert fault.fired == 0 or report.exit_code in CODES
        for result in report.results:
            assert result.failure is None or result.failure.hint
        seen = look(VolumeTier("reader", folder / "volume"), volume_digests(folder / "volume"))
        assert completed(folder, "v").items() <= seen.live.items()
        assert report.exit_code != 0 or len(completed(folder, "v")) == 2
        again = engine.replicate_once()
        assert (again.exit_code, len(completed(folder, "v"))) == (0, 2)
        shutil.rmtree(folder)
        return fault

    fired = sweep(act, step=2 if LONG else 19)
    assert {"open", "rename", "link", "pwrite", "fsync", "close"} <= fired.keys()


@pytest.mark.parametrize("to", ["out", None], ids=["folder", "store"])
def test_restore(place: Path, filled: Path, to: str | None) -> None:
    """A restore that fails leaves its target as it was, with exit code 11; the next one is exact."""
    counter = iter(range(10_000))

    def act(name: str, number: int, code: int) -> Fault:
        folder = place / str(next(counter))
        folder.mkdir()
        engine = without_store(filled, folder)
        target = folder / "target"
        (target / "runs").mkdir(parents=True)
        (folder / "runs").symlink_to(target / "runs")
        request = RestoreRequest(to=target / to if to else None)
        restored = True
        with failing(name, number, code, target) as fault:
            try:
                engine.restore(request, options=RestoreOptions(workers=1))
            except CkptierError as error:
                restored = False
                assert error.exit_code == 11, error.message  # noqa: PT017 - as above
                explained(error, fault)
        done = contents(target / to) if to else _in_store(folder)
        assert done in ({}, files_of(1))
        if to is None or not done:
            assert to is None or not restored
            engine.restore(request, options=RestoreOptions(workers=1))
        assert (contents(target / to) if to else _in_store(folder)) == files_of(1)
        stays = {".lock"} if name == "unlink" else set()
        assert to is None or {one.suffix for one in target.iterdir() if one.name.startswith(".")} <= stays
        shutil.rmtree(folder)
        return fault

    fired = sweep(act, step=1 if LONG else 11)
    assert {"open", "rename", "mkdir", "pwrite", "fsync", "close"} <= fired.keys()


def _in_store(folder: Path) -> dict[str, bytes]:
    found = store_of(folder).generations() if (folder / "runs" / RUN).exists() else ()
    return contents(found[0].files) if found else {}


class TestAFailedFlush:
    """After an fsync that failed the kernel may call pages clean that never arrived: bytes are written anew."""

    def test_of_a_restore_fetches_all_again(self, place: Path, filled: Path, machine: Path) -> None:
        engine = without_store(filled, machine)
        request, options = RestoreRequest(to=place / "out"), RestoreOptions(workers=1)
        with failing("fsync", 1, errno.EIO, place) as fault, pytest.raises(LocalDisk, match="target is untouched"):
            engine.restore(request, options=options)
        assert fault.fired == 1
        assert list(place.iterdir()) == []
        assert engine.restore(request, options=options).leaves_reused == 0

    def test_after_the_rename_takes_the_name_back(self, place: Path, filled: Path, machine: Path) -> None:
        engine = without_store(filled, machine)
        request, options = RestoreRequest(to=place / "out"), RestoreOptions(workers=1)
        numbers = [one for one in range(1, 20) if self._flushes(engine, place / str(one), one)]
        with failing("fsync", numbers[-1], errno.EIO, place), pytest.raises(LocalDisk, match="target is untouched"):
            engine.restore(request, options=options)
        assert not (place / "out").exists()
        engine.restore(request, options=options)
        assert contents(place / "out") == files_of(1)

    def _flushes(self, engine: Replicator, folder: Path, number: int) -> bool:
        folder.mkdir()
        with failing("fsync", number, errno.EIO, folder) as fault:
            try:
                engine.restore(RestoreRequest(to=folder / "out"), options=RestoreOptions(workers=1))
            except LocalDisk:
                assert fault.fired
        return fault.fired == 1

    def test_of_an_object_writes_another_file(self, place: Path) -> None:
        tier = VolumeTier("v", place)
        tier.put(Key("run/b"), BytesBody(b"other"))
        with failing("fsync", 1, errno.EIO, place) as fault, pytest.raises(TierError):
            tier.put(Key("run/a"), BytesBody(content(1)))
        with failing("pwrite", 100, errno.EIO, place) as written:
            tier.put(Key("run/a"), BytesBody(content(1)))
        assert (fault.fired, written.seen) == (1, 1)

    def test_of_a_save_drops_what_was_written(self, place: Path) -> None:
        store_ = store_of(place)
        with failing("fsync", 4, errno.EIO, place) as fault, pytest.raises(LocalDisk):
            publish(store_, 1)
        assert fault.fired == 1
        assert leftovers(place) == []
        assert store_.generations() == ()


def test_a_tracker_whose_disk_fails(filled: Path, machine: Path) -> None:
    """Let SQLite's own fsyncs fail: exit code 11, nothing is said that the log lacks, and a repeat succeeds."""
    clone(filled, machine)
    wal = machine / "runs" / RUN / "tracker.sqlite-wal"
    inject = ["-P", str(wal), "-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO:when=3+"]
    command = [
        sys.executable,
        "-m",
        "ckptier_command",
        "replicate",
        "--once",
        "--config",
        str(machine / "ckptier.toml"),
    ]
    done = subprocess.run(
        [*strace(), "-f", "-o", str(machine / "injected"), *inject, *command],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "INJECTED" in (machine / "injected").read_text()
    assert done.returncode == 11, done.stderr
    # strace counts by thread, and the one of the tier journals what was verified as well as what it asked for:
    # the second failure may hide the first, but the file is named in any case.
    assert str(wal.with_name("tracker.sqlite")) in done.stdout + done.stderr
    seen = look(VolumeTier("reader", machine / "volume"), volume_digests(machine / "volume"))
    assert completed(machine, "v").items() <= seen.live.items()
    engine = Replicator(load_config(machine / "ckptier.toml"))
    assert (engine.replicate_once().exit_code, len(completed(machine, "v"))) == (0, 2)
