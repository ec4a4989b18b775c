"""What people are told of bytes that stood on a tier already."""

from pathlib import Path

import pytest
from cli.driver import Project, volume

from replicate.layout import GenerationId

MIB = 1 << 20


def publish(project: Project, update: int) -> GenerationId:
    """Publish a frozen base and an adapter that differs."""
    publication = project.store.publish(next_update=update)
    with publication as directory:
        (directory / "base.bin").write_bytes(b"b" * (2 * MIB))
        (directory / "adapter.bin").write_bytes(b"%d" % update)
    assert publication.generation is not None
    return publication.generation.id


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "one").mkdir()
    return Project(folder=tmp_path / "project", tiers={"first": volume(tmp_path / "one")}).write()


def test_the_dry_run_and_the_run_say_the_same(project: Project) -> None:
    first = publish(project, 100)
    assert project("replicate", "--once").code == 0
    second = publish(project, 200)
    planned = project("replicate", "--dry-run", "--json").result()[0]["generations"]
    one = next(each for each in planned if each["decision"]["id"] == str(second))
    assert (one["copied_bytes"], one["copied_from"]) == (2 * MIB, str(first))
    assert one["total_bytes"] == 2 * MIB + 3
    project("replicate", "--dry-run").says(f"{second}  upload: 2.0 MiB, 2.0 MiB of it copied there from {first}, ")
    done = project("replicate", "--once")
    done.says(f"first: committed {second}, 2.0 MiB of it copied there", "; 2.0 MiB of it were copied there")


def test_in_json(project: Project) -> None:
    publish(project, 100)
    assert project("replicate", "--once").code == 0
    publish(project, 200)
    done = project("replicate", "--once", "--json").result()
    (found,) = done["results"][0]["report"]["committed"]
    assert (found["copied_bytes"], found["total_bytes"]) == (2 * MIB, 2 * MIB + 3)


def test_it_is_switched_off_by_tier(project: Project) -> None:
    publish(project, 100)
    assert project("replicate", "--once").code == 0
    project.write(reuse=False)
    publish(project, 200)
    planned = project("replicate", "--dry-run", "--json").result()[0]["generations"]
    assert all(each["copied_bytes"] == 0 for each in planned)
    done = project("replicate", "--once", "--json").result()
    assert done["results"][0]["report"]["committed"][0]["copied_bytes"] == 0


def test_a_copy_that_a_verification_found_hurt_is_no_source(project: Project, tmp_path: Path) -> None:
    """It stands in the log still, for a repair."""
    first = publish(project, 100)
    assert project("replicate", "--once").code == 0
    base = next(path for path in (tmp_path / "one").rglob("base.bin"))
    data = bytearray(base.read_bytes())
    data[5] ^= 1
    base.write_bytes(bytes(data))
    assert project("verify", "--read-data", "100%").code != 0
    second = publish(project, 200)
    done = project("replicate", "--once", "--json").result()
    (found,) = done["results"][0]["report"]["committed"]
    assert (found["generation"], found["copied_bytes"]) == (str(second), 0)
    assert first != second
