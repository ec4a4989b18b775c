"""kill -9 at every side effect of pruning, collecting and destroying, before and after it, and the same command again.

I1 (what is committed is whole), I9 (nothing else was deleted), I10 (the newest stays) and I17
(a repeat changes nothing), with nothing of the trainer's lost on the way.
"""

import json
import shutil
from pathlib import Path

import pytest
from crash.stage import REMOTE, RUN, Case, Seen, clone, look, noise, publish, volume_digests
from crash.store import check_latest, check_whole
from crash.sweep import SOME, check_points, sweep
from crash.zygote import Zygote

from replicate import RunStore
from replicate.log import LogView
from replicate.logbook import Logbook
from tiers.protocol import Key
from tiers.volume import VolumeTier

MINIMUM = {
    "prune": {"remote": 13, "transaction": 4, "fsync": 14, "unlink": 6, "rename": 3, "link": 1},
    "gc": {"remote": 17, "transaction": 2},
    "destroy": {"remote": 33, "transaction": 3},
}
"""Effects of one undisturbed command; see check_points for how to raise them."""
# These two are killed before each request and transaction: what follows one is what precedes the next.
GC_KINDS = ["remote", "transaction"]
DESTROY_KINDS = ["remote", "transaction"]
ORPHAN = f"{RUN}/generations/a0001-g000009-u000000000900-00000000.t0-abcd/"


def look_at(case: Case) -> Seen:
    volume = case.folder / "volume"
    return look(VolumeTier("reader", volume), volume_digests(volume))


@pytest.fixture(scope="module")
def replicated(memory: Path, first: Zygote) -> Case:
    """Return a machine with two generations, all of them on its volume, and none of it pruned."""
    case = Case(memory / "kept")
    store = RunStore(case.root, run=RUN, hash_workers=1)
    for number in (1, 2):
        publish(store, 100 * number, {"state.bin": noise(10 + number, 900), "meta": noise(20 + number, 30)})
    (case.folder / "volume").mkdir()
    case.configure(f"file://{case.folder}/volume")
    first.finish("replicate", case.journal, config=str(case.config))
    return case


def machine(base: Case, folder: Path) -> Case:
    """Return a copy of it that keeps one generation, on the tier and here, and waits for nobody."""
    case = clone(base, folder)
    shutil.copytree(base.folder / "volume", folder / "volume")
    case.configure(f"file://{folder}/volume", keep_last=1, retire_delay_seconds=0)
    text = case.config.read_text()
    case.config.write_text(text.replace("hash_workers", "keep_last = 1\nhash_workers", 1))
    return case


def prefixes(seen: Seen) -> set[str]:
    return {key.partition("/files/")[0].removesuffix("/manifest.json") for key in seen.keys if "/generations/" in key}


def sequences(seen: Seen) -> list[int]:
    return sorted(int(generation[7:13]) for generation in seen.live)


@SOME
def test_pruning_killed_anywhere_is_finished_by_the_next(
    replicated: Case, scratch: Path, first: Zygote, second: Zygote, step: int
) -> None:
    calm = machine(replicated, scratch / "calm")
    whole = look_at(calm)
    assert sequences(whole) == [1, 2]
    undisturbed = first.run("prune", calm.journal, config=str(calm.config))
    points = check_points(undisturbed, MINIMUM["prune"])
    end = look_at(calm)
    assert sequences(end) == check_whole(calm.root) == [2]
    assert len(prefixes(end)) == 1

    def kill_at(zygote: Zygote, number: int) -> None:
        case = machine(replicated, scratch / str(number))
        killed = zygote.run("prune", case.journal, config=str(case.config), kill_at=number)
        assert killed.killed
        between = look_at(case)
        assert 2 in sequences(between), killed.last
        assert 2 in check_whole(case.root), killed.last
        check_latest(case.root)
        deleted = whole.keys.keys() - between.keys.keys()
        gone = {generation for generation in whole.live if generation not in between.live}
        assert all(any(f"/{one}.t" in key for one in gone) for key in deleted), killed.last  # I9
        assert all(between.keys[key] == digest for key, digest in whole.keys.items() if key not in deleted)
        assert case.completed().items() <= {**whole.live, **between.live}.items(), killed.last
        result = zygote.finish("prune", case.journal, config=str(case.config))
        assert result["failures"] == [], killed.last
        after = look_at(case)
        assert sequences(after) == check_whole(case.root) == [2], killed.last
        assert prefixes(after) == prefixes(end), killed.last
        assert case.completed() == after.live
        assert after.slots == end.slots, f"retired more than once: {killed.last}"
        assert not list(case.root.glob(".trash*")), killed.last
        shutil.rmtree(case.folder)

    sweep((first, second), points // step, lambda zygote, number: kill_at(zygote, step * number))


def test_pruning_what_is_pruned_changes_nothing(replicated: Case, scratch: Path, first: Zygote) -> None:
    case = machine(replicated, scratch / "case")
    first.finish("prune", case.journal, config=str(case.config))
    before = look_at(case)
    again = first.run("prune", case.journal, config=str(case.config))
    assert again.result == {"failures": [], "retired": [], "swept": [], "removed": []}
    assert [one for one in again.sent if not one.key.endswith("/head.json")] == []
    assert look_at(case) == before


@SOME
def test_collecting_killed_anywhere_is_finished_by_the_next(
    replicated: Case, scratch: Path, first: Zygote, second: Zygote, step: int
) -> None:
    """A prefix of a term that is over; what is committed is not touched, whatever happens."""

    def littered(folder: Path) -> Case:
        case = machine(replicated, folder)
        for name in ("files/a", "files/deep/b", "manifest.json"):
            path = folder / "volume" / ORPHAN / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"half")
        return case

    calm = littered(scratch / "calm")
    points = check_points(first.run("gc", calm.journal, config=str(calm.config), kinds=GC_KINDS), MINIMUM["gc"])
    end = look_at(calm)
    assert not any(key.startswith(ORPHAN) for key in end.keys)

    def kill_at(zygote: Zygote, number: int) -> None:
        case = littered(scratch / str(number))
        killed = zygote.run("gc", case.journal, config=str(case.config), kinds=GC_KINDS, kill_at=number)
        assert killed.killed
        between = look_at(case)
        assert between.live == end.live, killed.last
        assert end.keys.items() <= between.keys.items(), killed.last
        assert zygote.finish("gc", case.journal, config=str(case.config))["failures"] == []
        assert look_at(case) == end, killed.last
        shutil.rmtree(case.folder)

    sweep((first, second), points // (2 * step), lambda zygote, number: kill_at(zygote, 2 * step * number - 1))


def still_named(volume: Path) -> LogView:
    """Read what is left of a log, as a restore does, and check that all it names as live is whole."""
    tier = VolumeTier("reader", volume)
    view = Logbook(tier, REMOTE).read(thorough=True)
    for commit in view.live:
        with tier.open(Key(commit.manifest_key)) as stream:
            manifest = json.loads(stream.read())
        assert all((volume / item["key"]).stat().st_size == item["size"] for item in manifest["objects"])
    return view


@SOME
def test_destroying_killed_anywhere_names_nothing_that_is_not_there_and_is_finished_by_the_next(
    replicated: Case, scratch: Path, first: Zygote, second: Zygote, step: int
) -> None:
    """The log goes last, so that no reader takes a half-destroyed run for a fresh start."""

    def beside(folder: Path) -> Case:
        case = machine(replicated, folder)
        neighbour = folder / "volume" / f"{RUN}-2"
        neighbour.mkdir()
        (neighbour / "theirs").write_bytes(b"theirs")
        return case

    calm = beside(scratch / "calm")
    undisturbed = first.run("destroy", calm.journal, config=str(calm.config), kinds=DESTROY_KINDS)
    points = check_points(undisturbed, MINIMUM["destroy"])
    assert not (calm.folder / "volume" / RUN).exists()

    def kill_at(zygote: Zygote, number: int) -> None:
        case = beside(scratch / str(number))
        run = case.folder / "volume" / RUN
        killed = zygote.run("destroy", case.journal, config=str(case.config), kinds=DESTROY_KINDS, kill_at=number)
        assert killed.killed
        view = still_named(case.folder / "volume")
        if any(run.glob("generations/*")):
            assert view.next_slot > 0, f"objects without a log: {killed.last}"
        assert check_whole(case.root) == [1, 2], "the local store is not touched"
        zygote.finish("destroy", case.journal, config=str(case.config))
        assert not run.exists(), killed.last
        assert (case.folder / "volume" / f"{RUN}-2" / "theirs").exists()
        assert case.completed() == {}
        shutil.rmtree(case.folder)

    sweep((first, second), points // (2 * step), lambda zygote, number: kill_at(zygote, 2 * step * number - 1))
