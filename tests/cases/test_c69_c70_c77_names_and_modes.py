"""Cases of names that mean something to somebody, and of permissions that came out wrong."""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from flows.kinds import KINDS, Running
from flows.machines import Machine, Place
from support.commits import tree

from replicate.errors import ConfigInvalid
from replicate.layout import run_name
from replicate.paths import UnsafePath
from tiers.protocol import Key, walk

Make = Callable[..., Machine]

SPECIAL = [
    "w+b.bin", "a b.pt", "x#1", "q?.pt", "50%25.bin", "it's.pt", "=eq&amp;.bin", "~tilde", "é-ü-漢.bin", "ab:c|d.pt",
    "n" * 255, "é" * 127, "/".join(["deep"] * 60 + ["f" * 200]), "/".join(["d é" * 20] * 9 + ["file"]),
]  # fmt: skip
GLOBS = ["layer[0].bin", "layer0.bin", "a*.pt", "ab.pt", "a.pt", "file?", "file1", "[!x]", "**", "{a,b}"]


def files(names: list[str]) -> dict[str, bytes]:
    return {name: f"bytes of {name}".encode() for name in names}


def restored(machine: Machine) -> dict[str, bytes]:
    return {path: data for path, data in tree(machine.resumed().files).items() if data is not None}


@pytest.mark.parametrize("kind", KINDS, indirect=True)
def test_c69_c70_names_go_there_and_back_as_they_are(kind: Running, machine: Make) -> None:
    """On every kind of tier; keys are plain whatever the name is, and no two names share one."""
    wanted = files([*SPECIAL, *GLOBS])
    place = kind.place()
    one = machine("one", place)
    one.publish(100, wanted)
    assert one.replicate().exit_code == 0
    keys = [key for key in place.stored() if "/files/" in key]
    assert len(keys) == len(wanted)
    assert not [key for key in keys if set(key) & set("[]*?#{}é+ '|:&=")]
    two = machine("two", place)
    two.restore()
    assert restored(two) == wanted


@pytest.mark.parametrize("kind", ["fsspec-memory", "fsspec-s3fs", "s3-seaweedfs", "fsspec-local"], indirect=True)
def test_c70_deleting_a_name_of_stars_removes_that_name(kind: Running, machine: Make) -> None:
    wanted = files(GLOBS)
    place = kind.place()
    one = machine("one", place)
    one.publish(100, wanted)
    assert one.replicate().exit_code == 0
    with place.raw() as tier:
        left = {info.key for info in walk(tier, "flow/")}
        for name in ("a%2A.pt", "layer%5B0%5D.bin", "file%3F", "%2A%2A"):
            (key,) = (key for key in left if key.endswith(f"/files/{name}"))
            tier.delete(key)
            left -= {key}
            assert {info.key for info in walk(tier, "flow/")} == left
        with pytest.raises(ValueError, match="not a key"):
            tier.delete(Key("flow/generations/*"))
        assert {info.key for info in walk(tier, "flow/")} == left


@pytest.mark.parametrize("name", ["exp a+b#1 100% é=x", "a/b", "..", "", "UPPER", "a" * 64])
def test_c69_a_run_whose_name_would_mean_something_is_refused_by_name(name: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        run_name(name)
    assert repr(name[:80]) in str(caught.value)
    assert "0-9" in caught.value.hint


@pytest.mark.parametrize("name", ["back\\slash", "new\nline", "tab\t", "nul", "CON.txt", "ends.", "C:x"])
def test_c69_a_name_that_some_machine_could_not_hold_is_refused_before_anything_is_sealed(
    memory: Place, machine: Make, name: str
) -> None:
    one = machine("one", memory)
    with pytest.raises(UnsafePath) as caught:
        one.publish(100, {name: b"x"})
    assert repr(name) in caught.value.message
    assert "rename" in caught.value.hint
    assert one.store.generations() == ()


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {
        str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*") if path.is_file()
    }


@pytest.mark.parametrize("mask", [0o022, 0o027, 0o077])
def test_c77_what_is_restored_has_the_sealed_mode_narrowed_by_the_umask(
    volume: Place, machine: Make, tmp_path: Path, mask: int
) -> None:
    """Never wider than it was, and readable by those who could read it before."""
    one = machine("one", volume)
    sealed = {"plain.bin": 0o644, "shared.bin": 0o664, "private.key": 0o600, "run.sh": 0o755, "group": 0o640}
    with umask(0o022), one.store.publish(next_update=100) as directory:
        for name, mode in sealed.items():
            (directory / name).write_bytes(name.encode())
            (directory / name).chmod(mode)
    assert one.replicate().exit_code == 0
    wanted = {name: mode & ~mask for name, mode in sealed.items()}
    with umask(mask):
        two = machine("two", volume)
        two.restore()
        two.restore(to=tmp_path / "out")
    assert modes(two.resumed().files) == wanted
    assert modes(tmp_path / "out") == wanted
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o777 & ~mask


def test_c77_what_we_write_ourselves_follows_the_umask(volume: Place, machine: Make) -> None:
    """Others on the machine read the store as the umask lets them; there is no secret in it."""
    with umask(0o027):
        one = machine("one", volume)
        one.push(100)
    found = modes(one.config.local.root)
    assert found
    assert {name: mode for name, mode in found.items() if mode & 0o027} == {}
    assert found["lineage.json"] == found["status.json"] == 0o640
