"""kill -9 on the machine that goes on with a run: between its restore, its claim and its first commit."""

import shutil
from pathlib import Path

import pytest
from crash.stage import REMOTE, RUN, Case, Seen, check_nothing_rewritten, clone, look, noise, publish, volume_digests
from crash.sweep import SOME, check_points, sweep
from crash.zygote import Zygote

from replicate import RunStore
from replicate.log import Claim
from replicate.logbook import Logbook
from tiers.volume import VolumeTier

MINIMUM = {"remote": 13, "transaction": 6}  # the objects of a generation are journalled together
"""Effects of one undisturbed replication by the heir; see check_points for how to raise them."""


def look_at(volume: Path) -> Seen:
    return look(VolumeTier("reader", volume), volume_digests(volume))


@pytest.fixture(scope="module")
def volume(memory: Path, first: Zygote) -> Path:
    """Return a volume with the run of a machine that is lost: one generation, under term 1."""
    lost = Case(memory / "lost")
    publish(RunStore(lost.root, run=RUN), 100, {"state.bin": noise(1, 3000)})
    place = memory / "lost-volume"
    place.mkdir()
    lost.configure(f"file://{place}")
    first.finish("replicate", lost.journal, config=str(lost.config))
    return place


@pytest.fixture(scope="module")
def heir(memory: Path, volume: Path, first: Zygote) -> Case:
    """Return the store of the next machine, restored and a generation further."""
    case = Case(memory / "heir")
    case.folder.mkdir()
    case.configure(f"file://{volume}")
    first.finish("restore", case.journal, config=str(case.config))
    first.finish("publish", case.journal, store=str(case.root), update=200)
    return case


@SOME
def test_an_heir_killed_anywhere_still_takes_the_run_over_once(
    heir: Case, volume: Path, scratch: Path, first: Zygote, second: Zygote, step: int
) -> None:
    """The term rises, by one more where the holder died before it knew; what the lost machine left stays."""

    def machine(name: str) -> tuple[Case, Path]:
        case = clone(heir, scratch / name)
        own = case.folder / "volume"
        shutil.copytree(volume, own)
        case.configure(f"file://{own}")
        return case, own

    calm, _ = machine("calm")
    points = check_points(first.run("replicate", calm.journal, config=str(calm.config)), MINIMUM)
    inherited = set(look_at(volume).live)

    def kill_at(zygote: Zygote, number: int) -> None:
        case, own = machine(str(number))
        killed = zygote.run("replicate", case.journal, kill_at=number, config=str(case.config))
        assert killed.killed
        before = look_at(own)
        assert inherited <= set(before.live), killed.last
        assert case.completed().items() <= before.live.items(), killed.last
        result = zygote.finish("replicate", case.journal, config=str(case.config))
        assert (result["exit_code"], result["failures"]) == (0, []), killed.last
        after = look_at(own)
        assert len(after.live) == len(inherited) + 1
        assert case.completed() == after.live
        check_nothing_rewritten(before, after)
        book = Logbook(VolumeTier("reader", own), REMOTE)
        claims = [entry for slot in range(after.slots) if isinstance((entry := book.entry(slot)[0]).body, Claim)]
        assert [entry.term for entry in claims] == list(range(1, len(claims) + 1))
        assert [entry.attempt for entry in claims] in ([1, 2], [1, 2, 2]), killed.last
        shutil.rmtree(case.folder)

    sweep((first, second), points // step, lambda zygote, number: kill_at(zygote, step * number))
