"""kill -9 at every side effect of a replication to a volume, before and after it, and a restart."""

import shutil
from pathlib import Path

from crash.stage import (
    BIG,
    PART,
    Case,
    Seen,
    check_nothing_rewritten,
    clone,
    look,
    volume_digests,
)
from crash.sweep import SOME, check_points, sweep
from crash.zygote import Run, Zygote

from tiers.volume import VolumeTier

MINIMUM = {"remote": 25, "fsync": 45, "rename": 12, "link": 3, "transaction": 12}
"""Effects of one undisturbed replication; see check_points for how to raise them.

The objects of a generation that were verified are journalled in one transaction, no longer one each.
"""


def machine(base: Case, folder: Path) -> Case:
    """Return a copy of the run beside an empty volume."""
    case = clone(base, folder)
    (folder / "volume").mkdir()
    case.configure(f"file://{folder}/volume")
    return case


def look_at(case: Case) -> Seen:
    volume = case.folder / "volume"
    return look(VolumeTier("reader", volume), volume_digests(volume))


def check_sent_again(killed: Run, resumed: Run, *, whole: int) -> None:
    """Check promise 9, counted below the meter: what was accepted before the kill goes up once, but for one request."""
    accepted = {one.what for one in killed.sent if one.data}
    again = [one for one in resumed.sent if one.data and one.what in accepted]
    assert len(again) <= 1, f"sent again: {again}"
    assert sum(one.size for one in again) <= PART
    sent = [one for run in (killed, resumed) for one in run.sent if one.data]
    assert sum(one.size for one in sent) - sum(one.size for one in again) <= whole  # less, where only a reply was lost
    assert resumed.result is not None
    assert resumed.result["bytes_up"] == sum(one.size for one in resumed.sent)  # the meter says the same


@SOME
def test_a_replication_killed_anywhere_is_finished_by_the_next(
    base: Case, scratch: Path, first: Zygote, second: Zygote, step: int
) -> None:
    """Promises 1, 2, 3 and 9 at every point: what is committed is whole, and the tracker is never ahead."""
    calm = machine(base, scratch / "calm")
    undisturbed = first.run("replicate", calm.journal, config=str(calm.config))
    points = check_points(undisturbed, MINIMUM)
    expected = set(look_at(calm).live)
    assert len(expected) == 2
    whole = BIG + 3000 + 5000

    def kill_at(zygote: Zygote, number: int) -> None:
        case = machine(base, scratch / str(number))
        killed = zygote.run("replicate", case.journal, config=str(case.config), kill_at=number)
        assert killed.killed
        before = look_at(case)
        assert case.completed().items() <= before.live.items(), killed.last
        resumed = zygote.run("replicate", case.journal, config=str(case.config))
        assert resumed.result is not None
        assert (resumed.result["exit_code"], resumed.result["failures"]) == (0, []), killed.last
        after = look_at(case)
        assert set(after.live) == expected
        assert case.completed() == after.live
        assert after.slots <= 1 + len(expected) + 1  # at most one claim more, whose holder died before it knew
        check_nothing_rewritten(before, after)
        check_sent_again(killed, resumed, whole=whole)
        shutil.rmtree(case.folder)

    sweep((first, second), points // step, lambda zygote, number: kill_at(zygote, step * number))


def test_a_finished_replication_has_nothing_left_to_send(base: Case, scratch: Path, first: Zygote) -> None:
    case = machine(base, scratch / "case")
    first.finish("replicate", case.journal, config=str(case.config))
    before = look_at(case)
    again = first.run("replicate", case.journal, config=str(case.config))
    assert [one for one in again.sent if not one.key.endswith("/head.json")] == []
    assert look_at(case) == before


def test_a_machine_that_dies_again_and_again_gets_there(base: Case, scratch: Path, first: Zygote) -> None:
    """Each start lives a little longer than it takes to see what is there; every byte still goes up about once."""
    case = machine(base, scratch / "case")
    sent, lives = [], 0
    for _ in range(30):
        lives += 1
        run = first.run("replicate", case.journal, config=str(case.config), kill_at=110)
        sent += [one for one in run.sent if one.data]
        assert case.completed().items() <= look_at(case).live.items()
        if not run.killed:
            break
    assert len(look_at(case).live) == 2
    assert sum(one.size for one in sent) <= BIG + 8000 + lives * PART
