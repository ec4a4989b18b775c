"""Publishing to a folder: whole and read back, or nothing."""

import errno
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from release.authorized_by_hand import Scene
from release.publish_stage import (
    Steps,
    carry,
    entries,
    failing,
    folder_destination,
    grow,
    kinds,
    payload_of,
    released,
    set_stage,
    tree_of,
)

from replicate.canonical import sha256
from replicate.errors import CapabilityMissing, CkptierError, IntegrityFailure, LocalDisk, TrustFailure
from replicate.release.deciding import NotAuthorized
from replicate.release.destination import Gating, Visibility
from replicate.release.history import EntryKind
from replicate.release.publishing import folder as folder_module
from replicate.release.publishing.folder import PREFIX, FolderPlace
from replicate.release.publishing.publishing import open_place
from tiers.effects import Effect


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Return where it is to go: beside nothing else."""
    parent = tmp_path / "shelf"
    parent.mkdir()
    return parent / "tiny-1.0"


@pytest.fixture
def scene(tmp_path: Path, target: Path) -> Scene:
    return set_stage(tmp_path / "stage", folder_destination(target))


@pytest.fixture
def place(scene: Scene) -> FolderPlace:
    opened = open_place(scene.observed.destination, clock=scene.clock)
    assert isinstance(opened, FolderPlace)
    return opened


def nothing_there(target: Path) -> bool:
    return not os.path.lexists(target) and list(target.parent.iterdir()) == []


def test_the_whole_tree_appears_with_plain_modes_and_the_log_says_so(
    scene: Scene, place: FolderPlace, target: Path
) -> None:
    report = carry(scene, scene.authorized(expected_parent=None), place)

    assert tree_of(target) == released(scene)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in target.rglob("*") if path.is_file()}
    folders = {stat.S_IMODE(path.stat().st_mode) for path in (target, *target.rglob("*")) if path.is_dir()}
    assert (modes, folders) == ({0o644}, {0o755})
    assert list(target.parent.iterdir()) == [target]
    assert kinds(scene) == [EntryKind.BEGUN, EntryKind.PUBLISHED]
    last = entries(scene)[-1]
    assert (last.url, last.commit) == (scene.observed.destination.url, sha256(scene.observed.manifest_bytes))
    assert (report.commit, report.url) == (last.commit, target.as_uri())
    assert report.files == report.read_back == len(released(scene))
    assert report.total_bytes == sum(map(len, released(scene).values()))
    assert report.entry == scene.history.position
    assert report.steps[-1] == f"published at {target}"


def test_modes_do_not_depend_on_the_umask(scene: Scene, place: FolderPlace, target: Path) -> None:
    before = os.umask(0o077)
    try:
        carry(scene, scene.authorized(expected_parent=None), place)
    finally:
        os.umask(before)
    assert {stat.S_IMODE(path.stat().st_mode) for path in target.rglob("*")} == {0o644, 0o755}


@pytest.mark.parametrize("standing", ["folder", "empty", "file", "link", "dangling"])
def test_what_stands_there_is_never_replaced(standing: str, scene: Scene, place: FolderPlace, target: Path) -> None:
    authorization = scene.authorized(expected_parent=None)
    if standing == "file":
        target.write_bytes(b"mine")
    elif standing in ("link", "dangling"):
        elsewhere = target.parent.parent / "elsewhere"
        if standing == "link":
            elsewhere.mkdir()
        target.symlink_to(elsewhere)
    else:
        target.mkdir()
        if standing == "folder":
            (target / "mine").write_bytes(b"mine")
    before = sorted(target.parent.rglob("*"))

    with pytest.raises(NotAuthorized, match=r"destination\.url"):
        carry(scene, authorization, place)
    with pytest.raises(TrustFailure, match="nothing is replaced"):
        place.publish(payload_of(scene), expected_parent=None, step=Steps())

    assert sorted(target.parent.rglob("*")) == before
    assert entries(scene) == []


def test_a_parent_that_does_not_exist_is_named_with_what_to_do(scene: Scene, place: FolderPlace, target: Path) -> None:
    authorization = scene.authorized(expected_parent=None)
    target.parent.rmdir()
    with pytest.raises(LocalDisk, match=r"shelf does not exist") as caught:
        carry(scene, authorization, place)
    assert "mkdir -p" in caught.value.hint


@pytest.mark.parametrize(
    "when", ["log that it is begun", "check everything again", "copy README.md", "copy model.safetensors"]
)
def test_bytes_that_change_after_the_decision_are_not_published(
    when: str, scene: Scene, place: FolderPlace, target: Path
) -> None:
    """Whenever it happens: after the first look, before the second, or while it is copied."""
    steps = Steps({when: lambda: grow(scene)})
    with pytest.raises(IntegrityFailure, match=r"model\.safetensors"):
        carry(scene, scene.authorized(expected_parent=None), place, steps=steps)
    assert steps.ran == [when]
    assert nothing_there(target)
    assert kinds(scene) == [EntryKind.BEGUN, EntryKind.FAILED]
    assert "model.safetensors" in entries(scene)[-1].detail


SWAPS: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    "link to the same bytes": (lambda path, other: path.symlink_to(other), "not a regular file"),
    "pipe": (lambda path, _other: os.mkfifo(path), "not a regular file"),
    "missing": (lambda _path, _other: None, "the file is missing"),
    "shorter": (lambda path, _other: path.write_bytes(b"{}"), "2 bytes in the prepared tree"),
}


@pytest.mark.parametrize("kind", SWAPS)
def test_a_file_that_is_swapped_for_another_is_refused_by_name(
    kind: str, scene: Scene, place: FolderPlace, target: Path
) -> None:
    make, words = SWAPS[kind]
    path = scene.prepared.tree / "config.json"
    other = scene.prepared.root / "other"
    other.write_bytes(path.read_bytes())

    def swap() -> None:
        path.unlink()
        make(path, other)

    steps = Steps({"copy LICENSE": swap})
    with pytest.raises(IntegrityFailure, match=rf"config\.json: {words}"):
        place.publish(payload_of(scene), expected_parent=None, step=steps)
    assert steps.ran
    assert nothing_there(target)


def test_a_folder_that_is_swapped_for_a_link_to_other_bytes_is_refused(
    scene: Scene, place: FolderPlace, target: Path
) -> None:
    outside = scene.prepared.root / "outside"
    outside.mkdir()
    (outside / "vocab.txt").write_bytes(b"x\ny\n")

    def swap() -> None:
        shutil.rmtree(scene.prepared.tree / "tokenizer")
        (scene.prepared.tree / "tokenizer").symlink_to(outside)

    with pytest.raises(IntegrityFailure, match=r"tokenizer/vocab\.txt"):
        place.publish(payload_of(scene), expected_parent=None, step=Steps({"copy tokenizer/vocab.txt": swap}))
    assert nothing_there(target)


def test_a_target_that_appears_meanwhile_wins(scene: Scene, place: FolderPlace, target: Path) -> None:
    def appear() -> None:
        target.mkdir()

    with pytest.raises(TrustFailure, match="an empty folder stands at"):
        carry(scene, scene.authorized(expected_parent=None), place, steps=Steps({"read 7 files back": appear}))
    assert list(target.parent.iterdir()) == [target]
    assert list(target.iterdir()) == []


def test_bytes_that_do_not_come_back_from_the_disk_are_not_shown(
    scene: Scene, place: FolderPlace, target: Path
) -> None:
    def hurt() -> None:
        (staged,) = target.parent.glob(f"{PREFIX}*/LICENSE")
        staged.chmod(0o644)
        staged.write_bytes(staged.read_bytes()[:-1] + b"?")

    with pytest.raises(IntegrityFailure, match="LICENSE: other bytes than were written"):
        carry(scene, scene.authorized(expected_parent=None), place, steps=Steps({"read 7 files back": hurt}))
    assert nothing_there(target)


def test_a_file_that_slips_into_the_staging_is_noticed(scene: Scene, place: FolderPlace, target: Path) -> None:
    def slip() -> None:
        (staging,) = (path for path in target.parent.glob(f"{PREFIX}*") if path.is_dir())
        (staging / "optimizer.pt").write_bytes(b"state")

    with pytest.raises(IntegrityFailure, match=r"optimizer\.pt was never authorized"):
        carry(scene, scene.authorized(expected_parent=None), place, steps=Steps({"read 7 files back": slip}))
    assert nothing_there(target)


def test_a_folder_whose_name_cannot_be_made_durable_disappears_again(
    scene: Scene, place: FolderPlace, target: Path
) -> None:
    authorization = scene.authorized(expected_parent=None)
    with (
        failing(Effect.FSYNC, f"{target.parent}/", OSError(errno.EIO, "Input/output error")) as fired,
        pytest.raises(LocalDisk, match="Input/output error"),
    ):
        carry(scene, authorization, place)
    assert fired == [f"{target.parent}/"]
    assert nothing_there(target)
    assert kinds(scene) == [EntryKind.BEGUN, EntryKind.FAILED]

    report = carry(scene, authorization, place, resume=True)
    assert tree_of(target) == released(scene)
    assert report.entry.slot == 4


def test_a_full_disk_leaves_nothing_and_says_what_to_do(scene: Scene, place: FolderPlace, target: Path) -> None:
    with (
        failing(Effect.FSYNC, "/LICENSE", OSError(errno.ENOSPC, "No space left on device")) as fired,
        pytest.raises(LocalDisk, match="No space left") as caught,
    ):
        place.publish(payload_of(scene), expected_parent=None, step=Steps())
    assert fired
    assert "make room" in caught.value.hint
    assert nothing_there(target)


@pytest.mark.parametrize("standing", [False, True])
def test_without_renameat2_the_name_is_claimed_by_a_folder(
    standing: bool, scene: Scene, place: FolderPlace, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unable(_source: Path, path: Path) -> None:
        raise OSError(errno.EINVAL, "Invalid argument", str(path))

    monkeypatch.setattr(folder_module, "rename_new", unable)
    if standing:
        with pytest.raises(TrustFailure, match="nothing is replaced"):
            place.publish(payload_of(scene), expected_parent=None, step=Steps({"read 7 files back": target.mkdir}))
        assert list(target.parent.iterdir()) == [target]
        return
    place.publish(payload_of(scene), expected_parent=None, step=Steps())
    assert tree_of(target) == released(scene)


def test_a_failure_that_is_our_own_bug_leaves_nothing_either(scene: Scene, place: FolderPlace, target: Path) -> None:
    def bug() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        carry(scene, scene.authorized(expected_parent=None), place, steps=Steps({"copy model.safetensors": bug}))
    assert nothing_there(target)
    assert entries(scene)[-1].detail == "ZeroDivisionError"


def test_a_used_authorization_publishes_nothing_more(scene: Scene, place: FolderPlace, target: Path) -> None:
    authorization = scene.authorized(expected_parent=None)
    carry(scene, authorization, place)
    shutil.rmtree(target)
    for resume in (False, True):
        with pytest.raises(NotAuthorized, match="nonce: authorized single use"):
            carry(scene, authorization, place, resume=resume)
    assert nothing_there(target)


def test_resuming_what_nobody_began_takes_nothing_for_its_own(scene: Scene, place: FolderPlace, target: Path) -> None:
    """Another authorization for the same bytes does not adopt what the first one published."""
    carry(scene, scene.authorized(expected_parent=None), place)
    again = scene.authorized(expected_parent=None)
    with pytest.raises(NotAuthorized, match=r"destination\.url"):
        carry(scene, again, place, resume=True)
    assert tree_of(target) == released(scene)


def test_of_two_publishers_with_one_authorization_one_publishes(scene: Scene, place: FolderPlace, target: Path) -> None:
    """The other one had decided already, and is told before it sends anything."""
    authorization = scene.authorized(expected_parent=None)
    other = FolderPlace(target)
    first: list[str] = []

    def overtake() -> None:
        first.append(carry(scene, authorization, other).url)

    with pytest.raises(NotAuthorized, match="nonce: authorized single use"):
        carry(scene, authorization, place, steps=Steps({"log that it is begun": overtake}))
    assert first == [target.as_uri()]
    assert kinds(scene) == [EntryKind.BEGUN, EntryKind.PUBLISHED]
    assert tree_of(target) == released(scene)


def test_a_publisher_that_comes_while_another_copies_is_refused(scene: Scene, place: FolderPlace, target: Path) -> None:
    authorization = scene.authorized(expected_parent=None)
    refused: list[CkptierError] = []

    def intrude() -> None:
        with pytest.raises(NotAuthorized, match="nonce") as caught:
            carry(scene, authorization, FolderPlace(target))
        refused.append(caught.value)

    carry(scene, authorization, place, steps=Steps({"copy model.safetensors": intrude}))
    assert len(refused) == 1
    assert kinds(scene) == [EntryKind.BEGUN, EntryKind.PUBLISHED]


def test_the_staging_of_a_living_publication_is_not_swept(scene: Scene, place: FolderPlace, target: Path) -> None:
    neighbour = FolderPlace(target.with_name("other"))

    def meanwhile() -> None:
        neighbour.publish(payload_of(scene), expected_parent=None, step=Steps())

    place.publish(payload_of(scene), expected_parent=None, step=Steps({"copy model.safetensors": meanwhile}))
    assert tree_of(target) == tree_of(neighbour.path) == released(scene)


def test_a_folder_has_no_commits_and_no_visibility(scene: Scene, place: FolderPlace, target: Path) -> None:
    with pytest.raises(TrustFailure, match="expected_parent"):
        place.publish(payload_of(scene), expected_parent="1" * 40, step=Steps())
    with pytest.raises(CapabilityMissing):
        place.set_visibility(Visibility.PUBLIC, Gating.NONE, commit="1" * 40, step=Steps())
    with pytest.raises(CapabilityMissing):
        place.withdraw(step=Steps())
    assert nothing_there(target)
