"""Which copy is rehearsed, and where it is restored to."""

import shutil
from pathlib import Path

import pytest
from daemon.gates import impatient
from rehearsing.rehearsals import Stage, staged

from replicate.config import load_config
from replicate.engine import Replicator
from replicate.errors import ExitCode, LocalDisk, NothingFound, TrustFailure, Unreachable, UsageError
from replicate.generation.released import MARGIN
from replicate.rehearsal import RehearsalReport, RehearsalRequest, Rehearsing


@pytest.fixture
def two(tmp_path: Path) -> Stage:
    """Return a project with two tiers, of which the second lacks the newest generation."""
    stage = staged(tmp_path / "project", "old", "new", section='function = "mine:good"')
    (stage.project.folder / "old").rename(stage.project.folder / "away")
    stage.project.publish(200)
    config = load_config(stage.project.config)
    assert Replicator(config, opener=impatient).replicate_once().exit_code is ExitCode.PARTIAL
    return stage


def rehearse(stage: Stage, **options: object) -> RehearsalReport:
    request = RehearsalRequest(**options)  # type: ignore[arg-type]
    return Rehearsing(load_config(stage.project.config), opener=impatient).rehearse(request)


def test_a_tier_that_does_not_answer_is_told_and_one_that_was_named_has_to(two: Stage) -> None:
    report = rehearse(two)
    assert (report.tier, report.generation.next_update) == ("new", 200)
    (warning,) = report.warnings
    assert warning.startswith("old did not answer and may hold a newer one: ")
    with pytest.raises(Unreachable):
        rehearse(two, tier="old")


def test_the_newest_is_chosen_and_the_first_tier_that_has_it(two: Stage) -> None:
    (two.project.folder / "away").rename(two.project.folder / "old")

    def chosen(**options: object) -> tuple[str, int, str]:
        report = rehearse(two, **options)
        return report.tier, report.generation.next_update, report.why

    assert chosen() == ("new", 200, "the newest committed, and new is the first tier that has it")
    assert chosen(tier="old") == ("old", 100, "the newest committed on old")
    assert chosen(generation=two.generation) == ("old", 100, "it was named, and old has it")
    newest = two.project.store.generations()[0].id
    with pytest.raises(NothingFound):
        rehearse(two, tier="old", generation=newest)


def test_where_nothing_is_committed_it_says_so_and_a_history_that_got_shorter_is_refused(stage: Stage) -> None:
    """Evidence must not come from an old state that somebody put back."""
    (stage.project.folder / "vol").rename(stage.project.folder / "away")
    (stage.project.folder / "vol").mkdir()
    with pytest.raises(TrustFailure):
        rehearse(stage)
    shutil.rmtree(stage.project.local.root)
    with pytest.raises(NothingFound):
        rehearse(stage)
    assert stage.leftovers() == []


def test_scratch_leaves_room_for_the_next_save(shared: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Training is not stopped by a disk that a rehearsal filled; elsewhere only the margin has to stay."""
    size = shared.project.store.generations()[0].record.total_bytes
    free = MARGIN + 2 * size
    monkeypatch.setattr("shutil.disk_usage", lambda _path: type("Usage", (), {"free": free}))
    with pytest.raises(LocalDisk, match="to spare"):
        rehearse(shared)
    assert rehearse(shared, scratch=tmp_path / "elsewhere" / "deep").passed
    free = MARGIN + size - 1
    with pytest.raises(LocalDisk, match="to spare"):
        rehearse(shared, scratch=tmp_path / "elsewhere" / "deep")
    assert list((tmp_path / "elsewhere" / "deep").iterdir()) == []


def test_scratch_in_the_store_of_the_run_is_refused(shared: Stage) -> None:
    for place in (shared.project.local.root, shared.project.local.root / "generations"):
        with pytest.raises(UsageError, match="lies in the store of the run"):
            rehearse(shared, scratch=place)
