"""kill -9 at every side effect of publishing, before and after it, and the next publisher."""

import json
import shutil
from pathlib import Path

import pytest
from crash.stage import RUN, Case
from crash.store import check_latest, check_whole, leftovers
from crash.sweep import SOME, check_points, sweep
from crash.zygote import Zygote

from replicate import RunStore
from replicate.generation.lineage import read_lineage
from replicate.layout import LocalRun

MINIMUM = {
    "sealed": {"fsync": 16, "rename": 5, "unlink": 1},
    "deferred": {"fsync": 22, "rename": 6, "unlink": 1},
}
"""Effects of one undisturbed publication; see check_points for how to raise them."""


@SOME
@pytest.mark.parametrize("mode", ["sealed", "deferred"])
def test_a_publisher_killed_anywhere_leaves_nothing_half_done(
    mode: str, scratch: Path, first: Zygote, second: Zygote, step: int
) -> None:
    """What can be seen is whole, the next publisher goes on with a sequence never used, and sweeps up."""

    def prepared(name: str, zygote: Zygote) -> Case:
        case = Case(scratch / name)
        case.folder.mkdir()
        zygote.finish("publish", case.journal, store=str(case.root), update=1)
        return case

    calm = prepared("calm", first)
    job = {"update": 2, "defer": mode == "deferred"}
    points = check_points(first.run("publish", calm.journal, store=str(calm.root), **job), MINIMUM[mode])

    def kill_at(zygote: Zygote, number: int) -> None:
        case = prepared(str(number), zygote)
        killed = zygote.run("publish", case.journal, kill_at=number, store=str(case.root), **job)
        assert killed.killed
        assert set(check_whole(case.root)) in ({1}, {1, 2}), killed.last
        check_latest(case.root)
        lineage = read_lineage(LocalRun(case.root))
        assert lineage is not None
        zygote.finish("publish", case.journal, store=str(case.root), update=3)
        sequences = check_whole(case.root)
        assert max(sequences) == lineage.highest_sequence + 1, killed.last  # also where the dead one's was never seen
        assert leftovers(case.root) == []
        check_latest(case.root)
        assert json.loads((case.root / "LATEST.json").read_bytes())["next_update"] == 3
        assert RunStore(case.root, run=RUN).resume().id.next_update == 3
        shutil.rmtree(case.folder)

    sweep((first, second), points // step, lambda zygote, number: kill_at(zygote, step * number))


@SOME
def test_the_first_publisher_ever_may_die_anywhere(scratch: Path, first: Zygote, second: Zygote, step: int) -> None:
    """Also the run's identity is fixed once: it is there before any generation that carries it."""
    calm = Case(scratch / "calm")
    calm.folder.mkdir()
    points = check_points(
        first.run("publish", calm.journal, store=str(calm.root), update=1), {"fsync": 22, "rename": 6}
    )

    def kill_at(zygote: Zygote, number: int) -> None:
        case = Case(scratch / str(number))
        case.folder.mkdir()
        killed = zygote.run("publish", case.journal, kill_at=number, store=str(case.root), update=1)
        assert killed.killed
        seen = {one.record.run_uid for one in RunStore(case.root, run=RUN).generations()}
        check_whole(case.root)
        zygote.finish("publish", case.journal, store=str(case.root), update=2)
        check_whole(case.root)
        generations = RunStore(case.root, run=RUN).generations()
        assert len({one.record.run_uid for one in generations} | seen) == 1
        assert leftovers(case.root) == []
        shutil.rmtree(case.folder)

    sweep((first, second), points // step, lambda zygote, number: kill_at(zygote, step * number))
