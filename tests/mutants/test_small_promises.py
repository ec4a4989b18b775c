"""Promises that a mutant breaks and that no other test is cheap enough for: what is durable before what, and more."""

from collections.abc import Callable
from pathlib import Path

import pytest
from core.builders import sealed_bytes
from support.commits import REMOTE, RUN_UID, Writer, generation, tamper

from replicate import RunStore
from replicate.errors import IntegrityFailure
from replicate.generation.disk import write_durably
from replicate.restore.folder import Folder
from replicate.restore.staging import Staging
from replicate.verify import read_manifest
from replicate.verify.shares import Part, Window
from tiers.effects import Effect, Moment, observing
from tiers.memory import MemoryTier
from tiers.protocol import Key


def effects_of(act: Callable[[], object]) -> list[str]:
    """Return what became durable or changed its name, in order."""
    seen: list[str] = []

    def note(effect: Effect, what: str, moment: Moment) -> None:
        if moment is Moment.AFTER and effect in (Effect.FSYNC, Effect.RENAME):
            seen.append(f"{effect} {what}")

    with observing(note):
        act()
    return seen


def test_a_document_is_durable_when_it_was_written(tmp_path: Path) -> None:
    seen = effects_of(lambda: write_durably(tmp_path / "lineage.json", b"{}"))
    assert seen[0].startswith("fsync ")
    assert seen[1:] == [f"rename {tmp_path / 'lineage.json'}", f"fsync {tmp_path}/"]


def test_a_generation_is_durable_before_anything_names_it(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "run", hash_workers=1)

    def publish() -> None:
        with store.publish(next_update=1) as directory:
            (directory / "model.bin").write_bytes(b"x")

    seen = effects_of(publish)
    renamed = next(n for n, what in enumerate(seen) if what.startswith(f"rename {store.local.generations}/"))
    assert f"fsync {store.local.generations}/" in seen[renamed:]
    durable = seen.index(f"fsync {store.local.generations}/", renamed)
    named = seen.index(f"rename {store.local.latest}")
    assert renamed < durable < named
    assert any(what.endswith("/files/model.bin") for what in seen[:renamed])


def test_what_somebody_adds_to_a_staging_is_noticed(tmp_path: Path) -> None:
    """I11: the set of files is compared when all is there."""
    file = sealed_bytes("model.bin", b"1")
    with Folder.at(tmp_path) as parent:
        staging = Staging(parent, ".restoring-x")
        staging.open((file,), ())
        (staging.files / "extra").write_bytes(b"2")
        with pytest.raises(IntegrityFailure, match="extra"):
            staging.seal((file,), ())
        staging.close()


def test_a_link_that_takes_a_folders_place_is_not_followed(tmp_path: Path) -> None:
    """I13: also where what it leads to has a file of that name."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/model.bin").write_bytes(b"theirs")
    with Folder.at(tmp_path) as parent:
        staging = Staging(parent, ".restoring-x")
        staging.open((sealed_bytes("sub/model.bin", b"1"),), ())
        (staging.files / "sub/model.bin").unlink(missing_ok=True)
        (staging.files / "sub").rmdir()
        (staging.files / "sub").symlink_to(tmp_path / "outside")
        with pytest.raises(NotADirectoryError):
            staging.open_file("sub/model.bin")
        staging.close()


def test_a_manifest_is_what_its_commit_says_to_the_last_byte() -> None:
    """I12: also where what changed would change nothing that is restored."""
    writer = Writer(MemoryTier("a"))
    commit = writer.commit(generation(1))
    tamper(writer.tier, Key(commit.manifest_key), lambda data: data.replace(b"store-sha256", b"store-sha257"))
    with pytest.raises(IntegrityFailure, match="digest"):
        read_manifest(writer.tier, REMOTE, RUN_UID, commit)


@pytest.mark.parametrize("total", [1, 10, 97])
def test_the_parts_of_the_data_cover_it_once(total: int) -> None:
    windows = [Window.part(Part(number, 3), total) for number in (1, 2, 3)]
    assert sum(window.length for window in windows) == total
    assert all(sum(window.covers(place, 1) for window in windows) == 1 for place in range(total))
