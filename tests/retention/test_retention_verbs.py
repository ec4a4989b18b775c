"""``prune``, ``gc``, ``pin``, ``unpin`` and ``destroy`` as people type them; looking changes nothing."""

import json
from datetime import timedelta
from pathlib import Path

import pytest
from cli.driver import Project, refused, volume
from support.commits import tree

from replicate.clearing import Clearing
from replicate.cli.main import app
from replicate.config import load_config
from replicate.errors import ExitCode, Fenced, NothingFound
from replicate.generation.locks import Flock
from replicate.layout import RemoteRun
from replicate.log import Claim
from replicate.logappender import LogAppender
from replicate.logbook import Logbook
from replicate.probes import ProbeRecord, record_path
from replicate.pruning import Pruning
from replicate.terms import Descent
from tiers.protocol import Key
from tiers.testing import ManualClock
from tiers.volume import VolumeTier

RUN = "toy"
REMOTE = RemoteRun.of(RUN)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return a project whose tier keeps two, deletes at once, and has four generations without being pruned."""
    folder = tmp_path / "volume"
    folder.mkdir()
    made = Project(folder=tmp_path / "project", tiers={"volume": volume(folder)}).write()
    made.publish(100, 200, 300, 400)
    assert made("replicate", "--once").code == 0
    settle(made, "keep_last = 2", "retire_delay_seconds = 0")
    return made


def settle(project: Project, *lines: str) -> None:
    """Add lines to the tier's section."""
    path = project.folder / "ckptier.toml"
    kept = [line for line in path.read_text().splitlines() if not line.startswith(("keep_", "retire_"))]
    path.write_text("\n".join([*kept, *lines]) + "\n")


def live(tmp_path: Path) -> list[int]:
    view = Logbook(VolumeTier("reader", tmp_path / "volume"), REMOTE).read()
    return [commit.id.next_update for commit in view.live]


def test_prune_says_what_stays_and_why_and_changes_nothing(project: Project, tmp_path: Path) -> None:
    before = tree(tmp_path)
    done = project("prune")
    assert done.code == 0
    assert tree(tmp_path) == before
    assert done.out.count("REMOVE ") == 2
    done.says("older than the newest 2 of its line", "the newest here", "next: `ckptier prune --apply`", "local:")
    assert max(map(len, done.out.splitlines())) <= 80


def test_prune_applies_and_then_there_is_nothing_to_do(project: Project, tmp_path: Path) -> None:
    done = project("prune", "--apply")
    assert done.code == 0
    assert done.out.count("removed ") == 2
    assert done.out.count("deleted ") == 2
    assert live(tmp_path) == [400, 300]
    project("prune").says("nothing to prune")
    assert project("status").code == 0


def test_prune_tells_what_waits_and_for_how_long(project: Project, tmp_path: Path) -> None:
    settle(project, "keep_last = 2", "retire_delay_seconds = 7200")
    done = project("prune", "--apply", "--tier", "volume")
    done.says("still there", "readers elsewhere may still be at it, for about 2.0 h more")
    assert len(list((tmp_path / "volume" / RUN / "generations").iterdir())) == 4
    again = project("prune", "--json").result()
    waiting = again["places"][0]["pending"]
    assert [0 < one["due_in"] <= 7200 for one in waiting] == [True, True]
    assert again["applied"] is False


def test_prune_says_everything_in_json(project: Project) -> None:
    found = project("prune", "--json").result()
    tier, local = found["places"]
    assert [one["keep"] for one in tier["plan"]["verdicts"]] == [True, True, False, False]
    assert tier["plan"]["verdicts"][2]["reasons"] == [{"rule": "older", "text": "older than the newest 2 of its line"}]
    assert local["place"] == "local"
    assert all(one["keep"] for one in local["plan"]["verdicts"])


def test_most_of_a_tier_goes_only_where_the_danger_is_named(project: Project, tmp_path: Path) -> None:
    project.publish(500, 600, 700)
    settle(project)
    assert project("replicate", "--once").code == 0
    settle(project, "keep_last = 1", "retire_delay_seconds = 0")
    project("prune").says("NOT done by --apply alone", "--unsafe-remove-most")
    done = project("prune", "--apply")
    assert done.code == ExitCode.PARTIAL
    done.says("6 of 7 generations would go, at most 4", "next: ")
    assert len(live(tmp_path)) == 7
    assert project("prune", "--apply", "--unsafe-remove-most").code == 0
    assert live(tmp_path) == [700]


def test_what_writes_stays_out_beside_a_daemon_and_what_looks_does_not(project: Project) -> None:
    lock = Flock.attempt(project.local.daemon_lock)
    assert lock is not None
    try:
        refused(ExitCode.FENCED, "prune", "--apply", "--config", str(project.folder / "ckptier.toml"))
        refused(ExitCode.FENCED, "gc", "--apply", "--config", str(project.folder / "ckptier.toml"))
        refused(
            ExitCode.FENCED,
            *("destroy", RUN, "--unsafe-delete-everything", "--config", str(project.folder / "ckptier.toml")),
        )
        assert project("prune").code == 0
        assert project("gc").code == 0
        newest = project("list", "--json").result()["generations"][0]["generation"]
        assert project("pin", newest).code == 0
    finally:
        lock.release()


def test_a_pin_keeps_a_generation_and_is_taken_back(project: Project, tmp_path: Path) -> None:
    oldest = project("list", "--json").result()["generations"][-1]["generation"]
    project("pin", oldest, "--reason", "figure 3").says("volume: pinned (slot 5)")
    project("pin", oldest).says("was pinned already")
    project("list").says("pinned")
    assert project("prune", "--apply").code == 0
    assert live(tmp_path) == [400, 300, 100]
    assert project("unpin", oldest).code == 0
    done = refused(ExitCode.NOTHING, "unpin", oldest, "--config", str(project.folder / "ckptier.toml"))
    done.says("volume: not-pinned")
    assert project("prune", "--apply").code == 0
    assert live(tmp_path) == [400, 300]


def test_a_pin_comes_too_late_for_what_is_retired(project: Project) -> None:
    settle(project, "keep_last = 2", "retire_delay_seconds = 7200")
    oldest = project("list", "--json").result()["generations"][-1]["generation"]
    project("prune", "--apply")
    toml = str(project.folder / "ckptier.toml")
    refused(ExitCode.NOTHING, "pin", oldest, "--config", toml).says("volume: retired")
    refused(ExitCode.NOTHING, "pin", oldest.replace("g000001", "g000077"), "--config", toml).says("not-here")
    refused(ExitCode.USAGE, "pin", "nonsense", "--config", toml)


def test_a_pin_may_come_before_its_generation(project: Project, tmp_path: Path) -> None:
    """It is in the store and on its way: the pin waits for it, and it is neither skipped nor pruned."""
    settle(project, "keep_last = 1", "retire_delay_seconds = 0")
    first, *_ = project.publish(500, 600, 700)
    assert project("pin", str(first)).code == 0
    project("replicate", "--once")
    assert 500 in live(tmp_path)


def test_gc_finds_nothing_then_what_a_dead_writer_left(project: Project, tmp_path: Path) -> None:
    project("gc").says("nothing was left behind")
    generations = tmp_path / "volume" / RUN / "generations"
    orphan = generations / "a0001-g000009-u000000000900-00000000.t0-abcd" / "files" / "x"
    orphan.parent.mkdir(parents=True)
    orphan.write_bytes(b"half")
    before = tree(tmp_path)
    project("gc").says("DELETE", "it can never be committed", "next: `ckptier gc --apply`")
    assert tree(tmp_path) == before
    done = project("gc", "--apply", "--json").result()
    assert done["places"][0]["report"]["objects"] == 1
    assert not orphan.exists()
    assert live(tmp_path) == [400, 300, 200, 100]


def test_destroy_wants_the_name_and_the_danger(project: Project, tmp_path: Path) -> None:
    toml = str(project.folder / "ckptier.toml")
    refused(ExitCode.USAGE, "destroy", "other", "--config", toml).says("'toy'", "'other'")
    before = tree(tmp_path)
    project("destroy", RUN).says("would destroy", "no way back", "--unsafe-delete-everything")
    assert tree(tmp_path) == before
    stranger = tmp_path / "volume" / "toy-2"
    stranger.mkdir()
    (stranger / "keep").write_bytes(b"theirs")
    oldest = project("list", "--json").result()["generations"][-1]["generation"]
    project("pin", oldest)
    done = project("destroy", RUN, "--unsafe-delete-everything")
    assert done.code == 0
    done.says("destroyed", "the local store is untouched")
    assert not (tmp_path / "volume" / RUN).exists()
    assert (stranger / "keep").exists()
    assert project("destroy", RUN, "--unsafe-delete-everything").code == 0
    assert len(project.store.generations()) == 4
    assert project("replicate", "--once").code == 0, "the name is free again"


def test_destroy_retires_before_it_deletes_and_takes_the_log_last(project: Project, tmp_path: Path) -> None:
    """Read at any moment, the log names nothing that is not there."""
    run = tmp_path / "volume" / RUN
    (run / "receipts").mkdir()
    (run / "receipts" / "of-a-writer.json").write_bytes(b"{}")
    seen: list[tuple[int, int]] = []
    deleted: list[str] = []

    class Watching(VolumeTier):
        def delete(self, key: Key) -> None:
            super().delete(key)
            deleted.append(key)
            view = Logbook(VolumeTier("reader", tmp_path / "volume"), REMOTE).read()
            seen.append((len(view.live), len(list(run.glob("generations/*"))) if run.exists() else 0))

    clearing = Clearing(
        load_config(project.folder / "ckptier.toml"),
        opener=lambda spec, _clock, _meter, _stop: Watching(spec.name, tmp_path / "volume"),
    )
    clearing.destroy(RUN, apply=True)
    assert {count for count, _ in seen} == {0}
    entries = [key for key in deleted if key.startswith(REMOTE.log_prefix)]
    assert deleted[-len(entries) :] == entries == sorted(entries)
    folders = [left for _, left in seen]
    assert folders == sorted(folders, reverse=True)
    assert not run.exists()


def test_destroy_of_a_run_that_another_writer_holds_is_refused(project: Project, tmp_path: Path) -> None:
    tier = VolumeTier("volume", tmp_path / "volume")
    book = Logbook(tier, REMOTE)
    view = book.read()
    assert view.state is not None
    lineage = project.store.lineage()
    assert lineage is not None
    log = LogAppender(tier=tier, remote=REMOTE, clock=ManualClock(), view=view)
    heir = Descent(run_uid=lineage.run_uid, attempt=2, attempt_id="heir")
    assert log.append(log.entry(heir, view.state.term + 1, Claim(writer="heir")))
    clearing = Clearing(load_config(project.folder / "ckptier.toml"))
    with pytest.raises(Fenced):
        clearing.destroy(RUN, apply=True)
    assert live(tmp_path) == [400, 300, 200, 100]
    assert project("prune", "--apply").code == ExitCode.PARTIAL, "fenced there; the store itself has nothing to remove"


def test_a_machine_without_the_store_prunes_nothing_and_says_where_to(project: Project, tmp_path: Path) -> None:
    path = project.folder / "ckptier.toml"
    path.write_text(path.read_text().replace('store = "', 'store = "elsewhere-'))
    report = Pruning(load_config(path)).prune(tier="volume", apply=True)
    (place,) = report.places
    assert isinstance(place.failure, NothingFound)
    assert live(tmp_path) == [400, 300, 200, 100]


def test_c98_a_bucket_that_keeps_versions_is_told_of(project: Project) -> None:
    """As an earlier probe found: what is deleted there goes on being billed."""
    config = load_config(project.folder / "ckptier.toml")
    record = ProbeRecord(
        tier="volume",
        at="2026-01-01T00:00:00.000Z",
        url=config.tier[0].url,
        endpoint="",
        profile="aws",
        ckptier="0",
        sdks={},
        outcomes=({"subject": "versioning", "verdict": "yes", "evidence": "versioning: Enabled"},),  # type: ignore[arg-type]
    )
    path = record_path(config, "volume")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(record.model_dump(mode="json"), sort_keys=True, separators=(",", ":")) + "\n")
    done = project("prune")
    done.says("this bucket keeps old versions", "NoncurrentVersionExpiration")


def test_the_delay_of_a_dry_run_is_by_this_machines_clock_since_looking_writes_nothing(project: Project) -> None:
    settle(project, "keep_last = 2", "retire_delay_seconds = 7200")
    config = load_config(project.folder / "ckptier.toml")
    Pruning(config).prune(tier="volume", apply=True)
    clock = ManualClock(Pruning(config).clock.now() + timedelta(hours=3))
    (place,) = Pruning(config, clock=clock).prune(tier="volume").places
    assert [one.reason for one in place.pending] == ["may be deleted", "may be deleted"]


def test_every_verb_is_registered() -> None:
    names = {command.name or getattr(command.callback, "__name__", "") for command in app.registered_commands}
    assert {"prune", "gc", "pin", "unpin", "destroy"} <= names
