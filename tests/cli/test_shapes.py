"""Each command's text, and the shape of its JSON: one document, and the same answer."""

from pathlib import Path

import pytest
from cli.driver import Project, run_command, volume
from support.commits import tree

from replicate.errors import ExitCode
from replicate.layout import GenerationId


@pytest.fixture
def published(project: Project) -> tuple[Project, GenerationId, GenerationId]:
    """Return a project with two generations on its volume, older first."""
    older, newer = project.publish(100, 200)
    assert project("replicate", "--once").code == 0
    return project, older, newer


Published = tuple[Project, GenerationId, GenerationId]


def test_init_writes_a_configuration_that_the_others_accept(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    folder.mkdir()
    url = volume(tmp_path / "mnt" / "deep")
    done = run_command("init", "--run", "first", "--tier", f"pod={url}", "--directory", str(folder), "--json")
    made = done.result()
    assert made["config"] == str(folder / "ckptier.toml")
    assert set(made["created"]) == {str(folder / "runs" / "first"), str(tmp_path / "mnt" / "deep")}
    assert run_command("check", "-c", made["config"]).code == 0


def test_init_without_a_tier_shows_how_one_looks(tmp_path: Path) -> None:
    done = run_command("init", "--run", "first", "--directory", str(tmp_path))
    assert done.code == 0
    done.says("wrote ", "next: `ckptier check`")
    assert '# url = "s3://bucket/prefix"' in (tmp_path / "ckptier.toml").read_text()


def test_check(project: Project) -> None:
    project.publish(1)
    before = tree(project.folder)
    text, found = project("check"), project("check", "--json").result()
    assert text.out.splitlines()[-1] == "toy: works, with 1 warning"
    assert {(one["place"], one["subject"]) for one in found["findings"]} >= {
        ("store", "writable"),
        ("store", "lineage"),
        ("volume", "reads"),
        ("volume", "put-if-absent"),
        ("volume", "deletes"),
    }
    warned = [one for one in found["findings"] if one["grade"] != "ok"]
    assert [(one["subject"], one["grade"]) for one in warned] == [("another disk", "warning")], (
        "a volume beside the store is lost with it"
    )
    text.says("same file system as the store", "is the volume mounted?")
    assert tree(project.folder) == before


def test_adopt(project: Project, tmp_path: Path) -> None:
    (tmp_path / "theirs.bin").write_bytes(b"weights")
    made = project("adopt", str(tmp_path / "theirs.bin"), "--update", "7", "--json").result()
    assert GenerationId.parse(made["generation"]).next_update == 7
    assert made["total_bytes"] == 7
    assert (Path(made["directory"]) / "files" / "theirs.bin").read_bytes() == b"weights"
    text = project("adopt", str(tmp_path / "theirs.bin"), "--update", "8")
    text.says("-u000000000008-", "7 bytes, validated")


def test_replicate_dry_run_changes_nothing(project: Project, tmp_path: Path) -> None:
    project.publish(1)
    before = tree(tmp_path)
    text = project("replicate", "--dry-run")
    (preview,) = project("replicate", "--dry-run", "--json").result()
    text.says("volume:", "upload: ", "2 objects")
    assert [one["decision"]["choice"] for one in preview["generations"]] == ["upload"]
    assert tree(tmp_path) == before


def test_a_preview_of_nothing_says_so(project: Project) -> None:
    done = project("replicate", "--dry-run")
    assert done.code == 0
    done.says("the store holds no generation")


def test_replicate_once(project: Project) -> None:
    older, newer = project.publish(100, 200)
    done = project("replicate", "--once", "--json")
    (result,) = done.result()["results"]
    assert [one["generation"] for one in result["report"]["committed"]] == [str(newer), str(older)]
    events = [line for line in done.err.splitlines() if line.startswith('{"event"')]
    assert len(events) == 4
    again = project("replicate", "--once")
    assert (again.code, again.out) == (0, "volume: nothing to do\n")


def test_replicate_once_names_each_commit_on_a_line_of_its_own(project: Project) -> None:
    made = project.publish(1, 2, 3)
    out = project("replicate", "--once").out
    assert out.splitlines() == [f"volume: committed {one}" for one in reversed(made)]


def test_status(published: Published) -> None:
    project, _, newer = published
    for flags in ((), ("--remote",)):
        text, found = project("status", *flags), project("status", *flags, "--json").result()
        assert text.out.splitlines()[1] == "if this machine disappeared now: restart from update 200"
        text.says("NOT replicating")
        assert found["status"]["tiers"][0]["newest"]["generation"] == str(newer)
        assert found["status"]["newest_validated"]["generation"] == str(newer)
        assert found["status"]["tiers"][0]["known_by"] == ("log" if flags else "tracker")
        assert found["replicating"] is False
        assert found["daemon"]["phase"] == "stopped"


def test_status_where_nobody_asked_yet_does_not_claim_that_nothing_is_there(project: Project) -> None:
    project.publish(1)
    done = project("status")
    assert done.code == 0
    done.says("not known here; `ckptier status --remote` asks", "volume: not asked")
    project("status", "--remote").says("NOTHING is on any tier yet", "behind by 1 generation, 1 update")


def test_list(published: Published) -> None:
    project, older, newer = published
    text, found = project("list"), project("list", "--json").result()
    assert [line.split()[:2] for line in text.out.splitlines()] == [["*", str(newer)], [str(older), "2.0"]]
    assert [one["generation"] for one in found["generations"]] == [str(newer), str(older)]
    assert [one["newest"] for one in found["generations"]] == [True, False]
    assert [place["place"] for place in found["generations"][0]["places"]] == ["local", "volume"]
    assert found["unanswered"] == {}


def test_list_of_nothing_is_nothing_found(project: Project) -> None:
    done = project("list", "--json")
    assert done.code == ExitCode.NOTHING
    assert done.result() == {"generations": [], "unanswered": {}, "damaged": {}}


def test_show_from_the_store_and_from_a_tier(published: Published, tmp_path: Path) -> None:
    project, older, _ = published
    text, found = project("show", str(older)), project("show", str(older), "--json").result()
    text.says(str(older), "next update 100", "model.bin", "meta/state.json")
    assert found["id"] == str(older)
    assert {file["path"] for file in found["files"]} == {"model.bin", "meta/state.json"}
    elsewhere = Project(folder=tmp_path / "b", tiers=project.tiers).write()
    assert elsewhere("show", str(older), "--json").result() == found


def test_explain(published: Published) -> None:
    project, older, newer = published
    text, found = project("explain"), project("explain", "--json").result()
    text.says("it is the newest", "on volume: replicated, log slot", f"descends from {older}", "restored now:")
    assert found["listed"]["generation"] == str(newer)
    assert [one["generation"] for one in found["lineage"]] == [str(older)]
    project("explain", str(older)).says(f"{newer} has the higher sequence")


def test_wait(published: Published) -> None:
    project, _, newer = published
    assert project("wait").out == f"{newer} is on volume\n"
    found = project("wait", "--timeout", "0", "--json").result()
    assert (found["generation"], found["tiers"], found["not_due"]) == (str(newer), ["volume"], [])


def test_wait_without_a_daemon_says_what_to_start(published: Published) -> None:
    project, _, _ = published
    project.publish(300)
    done = project.refused(ExitCode.PARTIAL, "wait", "--timeout", "5")
    done.says("no process replicates this store", "`ckptier replicate --once`")


def test_verify(published: Published) -> None:
    project, older, _ = published
    assert project("verify").out.splitlines() == [
        "local: 2 of 2 generations intact, 0 B read",
        "volume: 2 of 2 generations intact, 0 B read",
    ]
    local, remote = project("verify", "--read-data", "100%", "--json").result()
    assert (local["tier"], remote["tier"]) == ("local", "volume")
    assert sum(one["bytes_read"] for one in remote["generations"]) == sum(
        one["bytes_read"] for one in local["generations"]
    )
    (only,) = project("verify", "--tier", "volume", "--generation", str(older), "--json").result()
    assert [one["generation"] for one in only["generations"]] == [str(older)]


def test_verify_names_what_is_hurt_and_what_still_works(published: Published, tmp_path: Path) -> None:
    project, older, newer = published
    (victim,) = (tmp_path / "volume").glob(f"toy/generations/{newer}*/files/model.bin")
    victim.write_bytes(b"x" + victim.read_bytes()[1:])
    assert project("verify", "--tier", "volume").code == 0, "sizes alone cannot tell"
    done = project("verify", "--tier", "volume", "--read-data", "100%")
    assert done.code == ExitCode.INTEGRITY
    done.says(f"{newer} HURT", f"what still works: {older}")


def test_safe_to_terminate(published: Published) -> None:
    project, _, newer = published
    done = project("safe-to-terminate")
    assert (done.code, done.out) == (0, f"safe: {newer} is committed on every tier asked\n")
    (ahead,) = project.publish(300)
    risky = project("safe-to-terminate")
    assert risky.code == ExitCode.NOT_SAFE
    assert risky.out.splitlines() == [
        f"NOT safe to terminate with {ahead}:",
        f"  volume: its newest is {newer} (100 updates at risk)",
        f"  on every tier now: {newer}",
        "  next: `ckptier wait` where a daemon runs, else `ckptier replicate --once`",
    ]
    found = project("safe-to-terminate", "--tier", "volume", "--json").result()
    assert (found["safe"], found["newest"], found["restart_from"]) == (False, str(ahead), str(newer))
    assert [risk["updates"] for risk in found["risks"]] == [100]


def test_safe_to_terminate_an_empty_store_names_the_store(project: Project) -> None:
    """Whoever asked in the wrong folder has to see it."""
    project.refused(ExitCode.NOTHING, "safe-to-terminate").says(f"no store at {project.local.root}")
    project.local.root.mkdir(parents=True)
    done = project("safe-to-terminate")
    assert done.code == 0
    done.says(f"nothing was sealed in {project.local.root}")


def test_restore_into_an_empty_store(published: Published, tmp_path: Path) -> None:
    project, _, newer = published
    other = Project(folder=tmp_path / "b", tiers=project.tiers).write()
    planned = other("restore", "--dry-run")
    assert not other.local.root.exists()
    assert planned.out.splitlines() == [
        f"would restore {newer} (2 files, 2.0 KiB)",
        f"  into {other.local.root}",
        "  from volume",
    ]
    done = other("restore", "--json").result()
    assert (done["outcome"], done["generation"], done["attempt"]) == ("restore", str(newer), 2)
    assert [place for place, _count in done["by_place"]] == ["volume"]
    assert other("restore", "--if-absent").out == f"{newer} is in the store already\n"
    assert other.store.resume().id == newer


def test_restore_to_a_folder(published: Published, tmp_path: Path) -> None:
    project, older, newer = published
    done = project("restore", "--to", str(tmp_path / "out"))
    done.says(f"restored {newer}", "every byte verified", f"into {tmp_path / 'out'}")
    assert tree(tmp_path / "out") == tree(project.local.generation(newer) / "files")
    part = project("restore", "--to", str(tmp_path / "part"), "--path", "meta/*", "-g", str(older), "-t", "volume")
    assert part.code == 0
    assert set(tree(tmp_path / "part")) == {"meta", "meta/state.json"}


def test_a_fresh_start_has_to_be_allowed(project: Project) -> None:
    project.refused(ExitCode.NOTHING, "restore").says("--if-absent --fresh-ok")
    done = project("restore", "--if-absent", "--fresh-ok")
    assert (done.code, done.out) == (0, "nothing exists anywhere yet: start afresh\n")
    assert not project.local.root.exists()


def test_strict_and_fallback(published: Published, tmp_path: Path) -> None:
    project, older, newer = published
    (victim,) = (tmp_path / "volume").glob(f"toy/generations/{newer}*/files/model.bin")
    victim.write_bytes(b"short")
    other = Project(folder=tmp_path / "b", tiers=project.tiers).write()
    other.refused(ExitCode.PARTIAL, "restore", "--strict").says(str(newer), "--generation")
    assert other.store.generations() == ()
    fallen = other("restore")
    assert fallen.code == 0
    fallen.says(f"passed over {newer}", f"restored {older}", "this is NOT the newest")


def test_demo_is_refused_where_it_would_mix_with_files(tmp_path: Path) -> None:
    done = run_command("demo", "--directory", str(tmp_path), "--json")
    assert done.code == ExitCode.USAGE
    assert "is not empty" in done.error()["message"]
