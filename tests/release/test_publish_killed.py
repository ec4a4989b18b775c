"""kill -9 in the middle of publishing: nothing is half visible, and the next run ends it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from crash.zygote import Point, Run, Zygote
from release.authorized_by_hand import Scene
from release.publish_child import AUTHORIZATION
from release.publish_hub_stage import LIBRARY_WARNING, TAG, HubStage, hub_stage
from release.publish_stage import folder_destination, kinds, released, set_stage, tree_of
from support.hub import Visibility as Seen
from support.seaweed import SeaweedServer

from replicate.release.authorizing import write_authorization
from replicate.release.bundle import MANIFEST
from replicate.release.destination import Destination, Visibility
from replicate.release.history import EntryKind
from replicate.release.publishing.tier import CLAIM
from tiers.clock import SystemClock
from tiers.opening import TierSpec, open_tier
from tiers.protocol import Tier, walk
from tiers.volume import VolumeTier

pytestmark = pytest.mark.filterwarnings(LIBRARY_WARNING)
ROOT = Path(__file__).parents[2]
CHILD = Path(__file__).with_name("publish_child.py")


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """Run one process that forks publishers; it knows no Hub but the one that a job names."""
    home = tmp_path_factory.mktemp("zygote")
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}",
        "HF_HOME": str(home),
        "HF_HUB_DISABLE_XET": "1",
        "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    }
    with (home / "log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, str(CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=environment,
        )
    with process:
        yield Zygote(process)
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Path]:
    """Return a folder in memory where there is one: a killed process loses no page, so a disk would only be slower."""
    place = Path("/dev/shm")
    if not os.access(place, os.W_OK):
        yield tmp_path
        return
    with TemporaryDirectory(dir=place, prefix="ckptier-release-") as folder:
        yield Path(folder)


def prepared(folder: Path, destination: Destination) -> Scene:
    """Set a stage whose authorization a child can read."""
    scene = set_stage(folder, destination)
    write_authorization(scene.authorized(expected_parent=None), folder / AUTHORIZATION)
    return scene


def run(zygote: Zygote, stage: Path, *, resume: bool = False, **job: object) -> Run:
    return zygote.run("release", stage / "journal", stage=str(stage), resume=resume, **job)  # type: ignore[arg-type]


def finish(zygote: Zygote, stage: Path, scene: Scene, **job: object) -> None:
    """Go on after a kill: it is published then, if the log did not say so already."""
    logged = EntryKind.PUBLISHED in kinds(scene)
    result = run(zygote, stage, resume=True, **job).result
    assert result is not None
    assert ("refused" in result) is logged, result
    if logged:
        assert "nonce" in result["refused"]
    assert kinds(scene).count(EntryKind.PUBLISHED) == 1
    assert kinds(scene)[-1] is EntryKind.PUBLISHED


def after_each(points: tuple[Point, ...], *words: str) -> list[int]:
    """Return the announcements after which something was done: from one to the next, nothing else happens.

    With ``words`` only those about them, before and after.
    """
    return [
        number
        for number, point in enumerate(points, start=1)
        if (any(word in point.what for word in words) if words else number == 1 or point.moment == "after")
    ]


def spread(numbers: list[int]) -> list[int]:
    """Return the first two, the last six, and every third between: most of a publication is one file after another."""
    return sorted({*numbers[:2], *numbers[2:-6:3], *numbers[-6:]})


def test_a_folder_appears_whole_or_not_at_all(memory: Path, zygote: Zygote) -> None:
    def case(name: str) -> tuple[Path, Path, Scene]:
        root = memory / name
        (root / "shelf").mkdir(parents=True)
        target = root / "shelf" / "tiny"
        return root / "stage", target, prepared(root / "stage", folder_destination(target))

    stage, _, _ = case("calm")
    calm = run(zygote, stage)
    assert calm.per_kind()["fsync"] >= 16
    assert calm.per_kind()["rename"] == 1
    for number in spread(after_each(calm.points)):
        stage, target, scene = case(str(number))
        killed = run(zygote, stage, kill_at=number)
        assert killed.killed
        shown = os.path.lexists(target)
        assert not shown or tree_of(target) == released(scene), killed.last
        finish(zygote, stage, scene)
        assert tree_of(target) == released(scene), killed.last
        assert list(target.parent.iterdir()) == [target], killed.last
        shutil.rmtree(stage.parent)


def objects(tier: Tier) -> dict[str, bytes]:
    found = {}
    for info in walk(tier, ""):
        with tier.open(info.key) as stream:
            found[str(info.key)] = stream.read()
    return found


def check_killed(found: dict[str, bytes], scene: Scene, where: str) -> None:
    """With the manifest everything is there; without it, only the claim tells what it is."""
    assert MANIFEST not in found or found.items() >= released(scene).items(), where
    assert MANIFEST in found or not found or CLAIM in found, where


def test_a_tier_holds_a_whole_release_or_none(memory: Path, zygote: Zygote) -> None:
    def case(name: str) -> tuple[Path, Path, Scene]:
        root = memory / name
        (root / "volume").mkdir(parents=True)
        destination = Destination(url="memory://volume", visibility=Visibility.UNMANAGED)
        return root / "stage", root / "volume", prepared(root / "stage", destination)

    stage, volume, _ = case("calm")
    calm = run(zygote, stage, kinds=["remote"], volume=str(volume))
    assert len([point for point in calm.points if point.what.startswith("release ")]) >= 30
    for number in spread(after_each(calm.points)):
        stage, volume, scene = case(str(number))
        killed = run(zygote, stage, kill_at=number, kinds=["remote"], volume=str(volume))
        assert killed.killed
        tier = VolumeTier("reader", volume)
        check_killed(objects(tier), scene, killed.last)
        finish(zygote, stage, scene, volume=str(volume))
        assert objects(tier) == released(scene), killed.last
        shutil.rmtree(stage.parent)


def test_an_object_store_holds_a_whole_release_or_none(
    tmp_path: Path, seaweed: SeaweedServer, bucket: str, prefix: str, zygote: Zygote
) -> None:
    def case(name: str) -> tuple[Path, Destination, Scene]:
        destination = Destination(
            url=f"s3://{bucket}/{prefix}/{name}", endpoint=seaweed.endpoint_url, visibility=Visibility.UNMANAGED
        )
        return tmp_path / name, destination, prepared(tmp_path / name, destination)

    stage, _, _ = case("calm")
    calm = run(zygote, stage, kinds=["remote"])
    numbers = after_each(calm.points, f"create {CLAIM}", "put config.json", f"create {MANIFEST}")
    assert len(numbers) == 6
    for number in numbers:
        stage, destination, scene = case(str(number))
        killed = run(zygote, stage, kill_at=number, kinds=["remote"])
        assert killed.killed
        spec = TierSpec(name="reader", url=destination.url, endpoint_url=destination.endpoint)
        with closing(open_tier(spec, clock=SystemClock())) as tier:
            check_killed(objects(tier), scene, killed.last)
            finish(zygote, stage, scene)
            assert objects(tier) == released(scene), killed.last


HUB_WRITES = ("creating the repository", "sending the files", "committing", "tagging the commit", "create log/")


@pytest.mark.slow
def test_a_repository_shows_one_whole_commit_or_none(memory: Path, zygote: Zygote) -> None:
    with staged(memory / "calm") as (stage, folder):
        points = run(zygote, folder, kinds=["remote"], token=stage.token).points
    assert len([point for point in points if point.what.startswith("hub ")]) >= 40
    numbers = after_each(points, *HUB_WRITES)
    assert len(numbers) == 12
    for number in numbers:
        with staged(memory / str(number)) as (stage, folder):
            killed = run(zygote, folder, kill_at=number, kinds=["remote"], token=stage.token)
            assert killed.killed
            check_repository(stage, killed.last)
            finish(zygote, folder, stage.scene, token=stage.token)
            assert len(stage.repo.history) == 2, killed.last
            assert stage.files("main") == released(stage.scene), killed.last
            assert stage.repo.tags == {TAG: stage.repo.head()}, killed.last


@contextmanager
def staged(folder: Path) -> Iterator[tuple[HubStage, Path]]:
    with hub_stage(folder) as stage:
        write_authorization(stage.scene.authorized(expected_parent=None), folder / "stage" / AUTHORIZATION)
        yield stage, folder / "stage"


def check_repository(stage: HubStage, where: str) -> None:
    """Check that it is private in any case, and holds nothing or the one whole commit; a tag only on that."""
    if not stage.exists:
        return
    commits = len(stage.repo.history)
    assert stage.repo.visibility is Seen.PRIVATE, where
    assert commits in (1, 2), where
    assert stage.files("main") == (released(stage.scene) if commits == 2 else {}), where
    assert set(stage.repo.tags.values()) <= ({stage.repo.head()} if commits == 2 else set()), where
