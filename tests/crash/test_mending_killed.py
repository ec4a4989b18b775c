"""kill -9 at every side effect of a repair and of a takeover, before and after it, and the same command again.

At no moment is less intact than before, nothing is deleted or rewritten (I1, I2, I8, I9, I10), the tracker is
never ahead of the log (I6), and what was begun is gone on with: the log ends with the entries that an undisturbed
command writes, not one more (I4, I17).
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from crash.stage import REMOTE, RUN, Case, clone, noise, publish, volume_digests
from crash.sweep import SOME, check_points, sweep
from crash.zygote import Run, Zygote

from replicate import RunStore
from replicate.log import LogView
from replicate.logbook import Logbook
from replicate.manifest import parse_manifest
from tiers.volume import VolumeTier

MINIMUM = {
    "repair": {"remote": 65, "transaction": 8},
    "rebuild": {"remote": 36, "transaction": 4},
    "takeover": {"remote": 12, "transaction": 4},
}
"""Effects of one undisturbed command; see check_points for how to raise them."""
KINDS = ["remote", "transaction"]
READS = {"open", "stat", "list_objects", "list_parts"}


def kills(run: Run, step: int) -> list[int]:
    """Return every ``step``-th announcement to die at: before a write or transaction, since nothing else matters.

    The last one, after everything, is always there.
    """
    wanted = [
        number
        for number, point in enumerate(run.points, start=1)
        if point.moment == "before" and not (point.kind == "remote" and point.what.split()[1] in READS)
    ]
    return [*wanted[::step], len(run.points)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a volume holds: the log as it can be read, the live generations that are whole, and every key."""

    view: LogView
    intact: frozenset[int]
    keys: dict[str, str]


def look_at(case: Case) -> Held:
    root = case.folder / "volume"
    keys = volume_digests(root)
    view = Logbook(VolumeTier("reader", root), REMOTE).read(thorough=True)
    whole = frozenset(commit.id.sequence for commit in view.live if is_whole(root, commit.manifest_key, keys))
    return Held(view=view, intact=whole, keys={key: one for key, one in keys.items() if not key.endswith("head.json")})


def is_whole(root: Path, manifest_key: str, keys: dict[str, str]) -> bool:
    manifest = parse_manifest((root / manifest_key).read_bytes())
    return all(keys.get(item.key) == item.sha256 for item in manifest.objects)


def check_kept(before: Held, now: Held, where: str) -> None:
    """Check that nothing was deleted or rewritten, and that nothing that was whole and live is not any more."""
    assert {key for key, digest in before.keys.items() if now.keys.get(key) != digest} == set(), where
    assert before.intact <= now.intact, where


def check_tracker(case: Case, known: dict[str, int], where: str) -> None:
    """Check that what came to count as replicated since ``known`` has its commit entry in the log."""
    for generation, slot in case.completed().items() - known.items():
        body = json.loads((case.folder / "volume" / REMOTE.log(slot)).read_bytes().split(b"\n")[0])["body"]
        assert (body["kind"], body["generation"]) == ("commit", generation), where


def finish(zygote: Zygote, verb: str, case: Case, where: str) -> None:
    result = zygote.finish(verb, case.journal, config=str(case.config))
    assert result["failures"] == [], where


@pytest.fixture(scope="module")
def replicated(memory: Path, first: Zygote) -> Case:
    """Return a machine with three generations, all of them on its volume."""
    case = Case(memory / "mended")
    store = RunStore(case.root, run=RUN, hash_workers=1)
    for number in (1, 2, 3):
        publish(store, 100 * number, {"state.bin": noise(30 + number, 700)})
    (case.folder / "volume").mkdir()
    case.configure(f"file://{case.folder}/volume")
    first.finish("replicate", case.journal, config=str(case.config))
    return case


def machine(base: Case, folder: Path) -> Case:
    case = clone(base, folder)
    shutil.copytree(base.folder / "volume", folder / "volume")
    case.configure(f"file://{folder}/volume")
    return case


def hurt_machine(base: Case, folder: Path) -> Case:
    """Return one whose log has a gap and a damaged entry, both of them lost commits, and a copy that is hurt."""
    case = machine(base, folder)
    root = folder / "volume"
    (root / REMOTE.log(1)).unlink()
    path = root / REMOTE.log(2)
    path.write_bytes(path.read_bytes()[:-9])
    [only] = Logbook(VolumeTier("reader", root), REMOTE).read(thorough=True).live
    (root / only.manifest_key).parent.joinpath("files/state.bin").write_bytes(b"cut")
    return case


@SOME
def test_a_repair_killed_anywhere_is_finished_by_the_next(
    replicated: Case, scratch: Path, first: Zygote, step: int
) -> None:
    """A gap, a damaged slot, two lost commits and a hurt copy at once."""
    calm = hurt_machine(replicated, scratch / "calm")
    before = look_at(calm)
    assert before.intact == frozenset()
    undisturbed = first.run("repair", calm.journal, config=str(calm.config), kinds=KINDS)
    assert undisturbed.result is not None
    assert undisturbed.result["done"] == ["fill", "claim", "void", "void", "adopt", "adopt", "replace"]
    check_points(undisturbed, MINIMUM["repair"])
    points = kills(undisturbed, step)
    end = look_at(calm)
    assert end.intact == {1, 2, 3}
    assert end.view.damaged == ()

    def kill_at(zygote: Zygote, number: int) -> None:
        case = hurt_machine(replicated, scratch / str(number))
        whole, known = look_at(case), case.completed()
        killed = zygote.run("repair", case.journal, config=str(case.config), kinds=KINDS, kill_at=number)
        assert killed.killed
        between = look_at(case)
        check_kept(whole, between, killed.last)
        check_tracker(case, known, killed.last)
        finish(zygote, "repair", case, killed.last)
        after = look_at(case)
        check_kept(between, after, killed.last)
        check_tracker(case, {}, killed.last)
        assert after.view.damaged == (), killed.last
        assert after.intact == {1, 2, 3}, killed.last
        assert after.view.next_slot == end.view.next_slot, f"something was said twice: {killed.last}"
        assert case.completed().keys() == {commit.generation for commit in after.view.live}, killed.last
        shutil.rmtree(case.folder)

    sweep((first,), len(points), lambda zygote, number: kill_at(zygote, points[number - 1]))


@SOME
def test_a_log_that_is_rebuilt_is_rebuilt_to_its_end_whatever_happens(
    replicated: Case, scratch: Path, first: Zygote, step: int
) -> None:
    """What this store has seen of the log before is forgotten only when all that is intact is committed again."""

    def emptied(folder: Path) -> Case:
        case = machine(replicated, folder)
        shutil.rmtree(folder / "volume" / RUN / "log")
        return case

    calm = emptied(scratch / "calm")
    undisturbed = first.run("repair", calm.journal, config=str(calm.config), kinds=KINDS)
    check_points(undisturbed, MINIMUM["rebuild"])
    points = kills(undisturbed, step)
    end = look_at(calm)
    assert end.intact == {1, 2, 3}

    def kill_at(zygote: Zygote, number: int) -> None:
        case = emptied(scratch / str(number))
        killed = zygote.run("repair", case.journal, config=str(case.config), kinds=KINDS, kill_at=number)
        assert killed.killed
        between = look_at(case)
        done = between.view.next_slot == end.view.next_slot
        stuck = zygote.finish("replicate", case.journal, config=str(case.config))
        assert done or stuck["failures"], f"half a log was taken for the whole: {killed.last}"
        finish(zygote, "repair", case, killed.last)
        after = look_at(case)
        check_kept(between, after, killed.last)
        assert after.intact == {1, 2, 3}, killed.last
        assert after.view.next_slot == end.view.next_slot, killed.last
        shutil.rmtree(case.folder)

    sweep((first,), len(points), lambda zygote, number: kill_at(zygote, points[number - 1]))


def test_a_takeover_killed_anywhere_is_finished_by_the_next(replicated: Case, scratch: Path, first: Zygote) -> None:
    """The claim is journalled before it is made: a process that died before it knew does not claim twice."""
    twin = machine(replicated, scratch / "twin")
    first.finish("publish", twin.journal, store=str(twin.root), update=400)
    first.finish("replicate", twin.journal, config=str(twin.config))
    shut_out = clone(replicated, scratch / "shut-out")
    shutil.copytree(twin.folder / "volume", shut_out.folder / "volume")
    shut_out.configure(f"file://{shut_out.folder}/volume")
    first.finish("publish", shut_out.journal, store=str(shut_out.root), update=500)
    refused = first.finish("replicate", shut_out.journal, config=str(shut_out.config))
    assert "is this disk a copy?" in refused["failures"][0]

    calm = machine(shut_out, scratch / "calm")
    undisturbed = first.run("takeover", calm.journal, config=str(calm.config), kinds=KINDS)
    check_points(undisturbed, MINIMUM["takeover"])
    points = kills(undisturbed, 1)
    end = look_at(calm)

    def kill_at(zygote: Zygote, number: int) -> None:
        case = machine(shut_out, scratch / str(number))
        killed = zygote.run("takeover", case.journal, config=str(case.config), kinds=KINDS, kill_at=number)
        assert killed.killed
        if look_at(case).view.next_slot < end.view.next_slot:
            stays_out = zygote.finish("replicate", case.journal, config=str(case.config))
            assert stays_out["failures"], f"it claims by itself: {killed.last}"
        else:
            finish(zygote, "replicate", case, killed.last)
            assert len(look_at(case).view.live) == len(end.view.live) + 1, killed.last
            shutil.rmtree(case.folder)
            return
        finish(zygote, "takeover", case, killed.last)
        assert look_at(case).view.next_slot == end.view.next_slot, f"claimed twice: {killed.last}"
        shutil.rmtree(case.folder)

    sweep((first,), len(points), lambda zygote, number: kill_at(zygote, points[number - 1]))
