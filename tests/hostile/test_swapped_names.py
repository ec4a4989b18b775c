"""I13, I11: another user of the folder swaps names under a restore, before every single system call of it.

Nothing outside is created, written, chmod-ed or removed; what comes out is the sealed tree or an error.
"""

import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from hostile.swapping import at_look, picture, replace_by_link, replace_by_second_name
from support.commits import REMOTE, RUN, Made, Writer, expected, generation, make, payload, tree
from support.figures import figure

from replicate.errors import CkptierError, TrustFailure
from replicate.layout import LocalRun
from replicate.restore import RestoreOptions, RestoreRequest, restore
from replicate.restore.folder import Folder
from replicate.restore.lanes import is_small
from replicate.restore.staging import PREFIX, Staging
from replicate.restore.targets import DirectoryTarget
from tiers import effects
from tiers.memory import MemoryTier
from tiers.testing.manual_clock import ManualClock

LOOKS = 45
"""A restore of two files makes at least so many system calls on files; raise it where there are more."""


PLACE = DirectoryTarget.at(Path("/out"), LocalRun(Path("/nowhere"))).place
"""Names depend on what the target is called only, which is why others can guess them."""


@dataclass(frozen=True)
class Scene:
    """A parent that others may write to, something outside of it that is ours, and a tier."""

    folder: Path
    tier: MemoryTier
    made: Made

    @property
    def parent(self) -> Path:
        return self.folder / "shared"

    @property
    def outside(self) -> Path:
        return self.folder / "outside"

    @property
    def out(self) -> Path:
        return self.parent / "out"

    @property
    def local(self) -> LocalRun:
        return LocalRun(self.folder / "runs" / RUN)

    @property
    def staging(self) -> Path:
        return self.parent / PLACE.staging(self.made.id).name

    @property
    def lock(self) -> Path:
        return self.parent / PLACE.lock.name

    def fresh(self) -> None:
        """Begin again."""
        self.folder.mkdir(parents=True)
        self.parent.mkdir()
        (self.outside / "d").mkdir(parents=True)
        (self.outside / "d" / "b.bin").write_bytes(b"not to be touched")
        (self.outside / "a.bin").write_bytes(b"nor this")
        (self.outside / "a.bin").chmod(0o640)

    def restore(self) -> None:
        request = RestoreRequest(to=self.out)
        options = RestoreOptions(workers=1)
        restore(request, [self.tier], self.local, ManualClock(), remote=REMOTE, options=options)


def _second_name(scene: Scene) -> None:
    """Swap a file of the staging, where one stands that is a file still."""
    file = scene.staging / "a.bin"
    if file.is_file():
        replace_by_second_name(file, scene.outside / "a.bin")


SWAPS: dict[str, Callable[[Scene], None]] = {
    "the staging": lambda scene: replace_by_link(scene.staging, scene.outside),
    "a folder of it": lambda scene: _inside(scene, "d", scene.outside / "d"),
    "a file of it": lambda scene: _inside(scene, "a.bin", scene.outside / "a.bin"),
    "the target": lambda scene: replace_by_link(scene.out, scene.outside),
    "the lock": lambda scene: replace_by_link(scene.lock, scene.outside / "a.bin"),
    "the parent": lambda scene: replace_by_link(scene.parent, scene.outside),
    "the lock, by a second name": lambda scene: replace_by_second_name(scene.lock, scene.outside / "a.bin"),
    "a file of it, by a second name": _second_name,
}


PRIVATE = ("a folder of it", "a file of it", "a file of it, by a second name")
"""What only this user could swap, since nobody else may enter the staging: what is published is their business."""


def _inside(scene: Scene, name: str, target: Path) -> None:
    """Swap a name in the staging, where it stands; before it stands, plant the whole staging with the link in it."""
    if not scene.staging.is_dir():
        replace_by_link(scene.staging, scene.outside)
    else:
        replace_by_link(scene.staging / name, target)


@pytest.fixture(scope="module")
def committed() -> tuple[MemoryTier, Made]:
    tier = MemoryTier("a")
    made = make({"a.bin": payload(1, 300), "d/b.bin": payload(2, 200)}, directories=("e",))
    Writer(tier).commit(made)
    return tier, made


@pytest.mark.parametrize("swap", SWAPS)
def test_i13_a_name_swapped_before_any_system_call_leads_nowhere(
    swap: str, committed: tuple[MemoryTier, Made], tmp_path: Path
) -> None:
    outcomes = {"whole": 0, "refused": 0}
    for number in itertools.count(1):
        scene = Scene(tmp_path / str(number), *committed)
        scene.fresh()
        before = picture(scene.outside)
        try:
            with at_look(number, lambda scene=scene: SWAPS[swap](scene)) as looks:  # type: ignore[misc]
                scene.restore()
            outcomes["whole"] += 1
        except CkptierError:
            outcomes["refused"] += 1
        assert picture(scene.outside) == before, f"{swap}, before look {number}"
        if swap not in PRIVATE and not scene.parent.is_symlink() and not scene.out.is_symlink() and scene.out.is_dir():
            assert tree(scene.out) == expected(scene.made), f"{swap}, before look {number}"
        if looks() < number:
            break
    figure(f"swaps, {swap}: system calls", number - 1, floor=LOOKS)
    assert outcomes["whole"] >= 1
    assert outcomes["refused"] >= (0 if "the lock" in swap else 1), "no swap ever mattered"


@pytest.mark.parametrize("what", ["staging", "parent"])
def test_i11_a_folder_swapped_for_another_folder_is_not_published(
    what: str, committed: tuple[MemoryTier, Made], tmp_path: Path
) -> None:
    """Not a link but a real folder, put there after the last check of the files and before the rename."""
    scene = Scene(tmp_path / "x", *committed)
    scene.fresh()
    swapped: list[str] = []

    def swap(kind: effects.Effect, path: str, moment: effects.Moment) -> None:
        sealed = kind is effects.Effect.FSYNC and path == f"{scene.staging}/" and moment is effects.Moment.AFTER
        if sealed and not swapped:
            swapped.append(path)
            here = scene.staging if what == "staging" else scene.parent
            here.rename(here.with_name("aside"))
            here.mkdir()
            (here / "evil").write_bytes(b"")

    with effects.observing(swap), pytest.raises(TrustFailure, match="was replaced"):
        scene.restore()
    assert swapped
    assert not scene.out.exists()
    assert not (scene.folder / "aside" / "out").exists()


def test_i13_a_staging_that_another_user_made_is_not_written_into(
    committed: tuple[MemoryTier, Made], tmp_path: Path
) -> None:
    """Its name can be guessed, and who owns it reads and replaces what is put in."""
    scene = Scene(tmp_path / "x", *committed)
    scene.fresh()
    scene.staging.mkdir()
    os.chown(scene.staging, 12345, 12345)
    with pytest.raises(TrustFailure, match="uid 12345") as caught:
        scene.restore()
    assert caught.value.hint
    assert not any(scene.staging.iterdir())
    assert not scene.out.exists()


@pytest.mark.parametrize("kind", ["link", "second name", "another owner", "fifo", "other size", "folder"])
def test_c82_what_lies_in_a_staging_is_used_again_only_where_it_is_ours(tmp_path: Path, kind: str) -> None:
    made = make({"a.bin": payload(1, 300)})
    (tmp_path / "outside").write_bytes(payload(1, 300))
    (tmp_path / "outside").chmod(0o600)
    left = tmp_path / f"{PREFIX}x"
    left.mkdir()
    file = left / "a.bin"
    lay: dict[str, Callable[[], object]] = {
        "link": lambda: file.symlink_to(tmp_path / "outside"),
        "second name": lambda: file.hardlink_to(tmp_path / "outside"),
        "another owner": lambda: _of_another(file, payload(1, 300)),
        "fifo": lambda: os.mkfifo(file),
        "other size": lambda: file.write_bytes(b"x"),
        "folder": lambda: (file / "deep").mkdir(parents=True),
    }
    lay[kind]()
    before = (tmp_path / "outside").stat().st_mode, (tmp_path / "outside").read_bytes()
    with Folder.at(tmp_path) as parent:
        staging = Staging(parent, left.name, bare=True)
        assert staging.open(made.record.files, ()) == frozenset()
        os.close(staging.open_file("a.bin", create=True))
        staging.close()
    assert file.read_bytes() == b""
    assert file.stat().st_uid == os.geteuid()
    assert ((tmp_path / "outside").stat().st_mode, (tmp_path / "outside").read_bytes()) == before


def _of_another(file: Path, data: bytes) -> None:
    file.write_bytes(data)
    os.chown(file, 12345, 12345)


def test_a_staging_is_private_until_it_is_published(tmp_path: Path) -> None:
    made = generation(1)
    with Folder.at(tmp_path) as parent:
        staging = Staging(parent, f"{PREFIX}y")
        present = staging.open(made.record.files, ())
        for file in made.record.files:
            os.close(staging.open_file(file.path, create=is_small(file) and file.path not in present))
        assert (tmp_path / f"{PREFIX}y").stat().st_mode & 0o777 == 0o700
        assert {path.stat().st_mode & 0o777 for path in staging.files.rglob("*") if path.is_file()} == {0o600}
        staging.remove()
    assert not any(tmp_path.iterdir())
