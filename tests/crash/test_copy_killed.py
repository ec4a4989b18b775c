"""kill -9 around every transaction of a copy from tier to tier, and a repeat.

Nearly every request has a transaction before or after it; the requests themselves are
those of a replication, which is killed at each of them in test_replication.
"""

import shutil
from pathlib import Path

import pytest
from crash.stage import PART, Case, Seen, check_nothing_rewritten, clone, look, volume_digests
from crash.sweep import check_points, sweep
from crash.zygote import Run, Zygote

from tiers.volume import VolumeTier

KINDS = ["transaction"]
MINIMUM = {"transaction": 13}  # the objects of a generation are journalled together
"""Effects of one undisturbed copy; see check_points for how to raise them."""


def look_at(volume: Path) -> Seen:
    return look(VolumeTier("reader", volume), volume_digests(volume))


@pytest.fixture(scope="module")
def source(base: Case, memory: Path, first: Zygote) -> Path:
    """Return a volume with two generations, one of them in parts."""
    case = clone(base, memory / "copied-from")
    volume = case.folder / "volume"
    volume.mkdir()
    case.configure(f"file://{volume}")
    first.finish("replicate", case.journal, config=str(case.config))
    return volume


def copier(source: Path, folder: Path) -> Case:
    """Return a machine without a store, and an empty volume beside it."""
    (folder / "target").mkdir(parents=True)
    tiers = (("a", source), ("b", folder / "target"))
    text = "".join(
        f'[[tier]]\nname = "{name}"\nurl = "file://{path}"\nconnections = 1\npart_size = {PART}\n'
        for name, path in tiers
    )
    case = Case(folder)
    case.config.write_text(f'run = "llm-7b"\nstore = "runs"\n{text}')
    return case


def run_copy(zygote: Zygote, case: Case, **job: object) -> Run:
    return zygote.run("copy", case.journal, config=str(case.config), source="a", target="b", kinds=KINDS, **job)  # type: ignore[arg-type]


def test_a_copy_killed_anywhere_is_finished_by_the_next(
    source: Path, scratch: Path, first: Zygote, second: Zygote
) -> None:
    """What is committed is whole, the journal is never ahead, and what was accepted is not sent again."""
    before_all = volume_digests(source)
    calm = copier(source, scratch / "calm")
    undisturbed = run_copy(first, calm)
    points = check_points(undisturbed, MINIMUM)
    expected = set(look_at(source).live)
    assert set(look_at(calm.folder / "target").live) == expected

    def kill_at(zygote: Zygote, number: int) -> None:
        case = copier(source, scratch / str(number))
        target = case.folder / "target"
        killed = run_copy(zygote, case, kill_at=number)
        assert killed.killed
        before = look_at(target)
        assert case.completed().items() <= before.live.items(), killed.last
        resumed = run_copy(zygote, case)
        assert resumed.result is not None
        assert resumed.result["exit_code"] == 0, killed.last
        after = look_at(target)
        assert set(after.live) == expected
        assert case.completed() == after.live
        assert after.slots <= 1 + len(expected) + 1  # at most one claim more, whose holder died before it knew
        check_nothing_rewritten(before, after)
        accepted = {one.what for one in killed.sent if one.data}
        again = [one for one in resumed.sent if one.data and one.what in accepted]
        assert len(again) <= 1, f"sent again after {killed.last}: {again}"
        assert sum(one.size for one in again) <= PART
        assert not [path for path in case.root.iterdir() if path.name.startswith("tmp")], "nothing is left of parts"
        shutil.rmtree(case.folder)

    sweep((first, second), points, kill_at)
    assert volume_digests(source) == before_all, "a copy writes nothing to its source"
