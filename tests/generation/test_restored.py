"""Putting restored generations in place."""

import shutil
from pathlib import Path

import pytest

from replicate import RunStore
from replicate.digests import HASHED
from replicate.errors import IntegrityFailure, TrustFailure
from replicate.generation.evidence import Level
from replicate.generation.lineage import RestoredFrom, open_attempt
from replicate.generation.local import LocalGeneration
from tiers.clock import SystemClock


@pytest.fixture
def origin(tmp_path: Path) -> LocalGeneration:
    """Return a generation of another machine."""
    store = RunStore(tmp_path / "origin" / "llm-7b")
    publication = store.publish(next_update=7)
    with publication as directory:
        (directory / "state.bin").write_bytes(b"weights")
        (directory / "empty").mkdir()
    assert publication.generation is not None
    return publication.generation


def open_for(store: RunStore, origin: LocalGeneration) -> None:
    open_attempt(
        store.local,
        SystemClock(),
        run=store.run,
        run_uid=origin.record.run_uid,
        seen_attempt=1,
        seen_sequence=1,
        parent=origin.id,
        restored_from=RestoredFrom(tier="pod", generation=str(origin.id), slot=0),
    )


def staged_copy(store: RunStore, origin: LocalGeneration) -> Path:
    return Path(shutil.copytree(origin.directory, store.local.root / ".restoring"))


def test_a_restored_generation_is_resumed_without_being_hashed(store: RunStore, origin: LocalGeneration) -> None:
    open_for(store, origin)
    before = HASHED.value
    installed = store.install_restored(staged_copy(store, origin), origin.record_bytes)
    assert installed.id == origin.id
    assert installed.level is Level.VALIDATED
    assert store.resume().id == origin.id
    assert HASHED.value == before
    with store.publish(next_update=8) as directory:
        (directory / "state.bin").write_bytes(b"next")
    latest = store.latest()
    assert latest is not None
    assert (latest.id.attempt, latest.id.sequence, latest.record.parent) == (2, 2, str(origin.id))


def test_without_an_open_attempt_it_is_refused(store: RunStore, origin: LocalGeneration) -> None:
    with pytest.raises(TrustFailure, match="not in the history"):
        store.install_restored(origin.directory, origin.record_bytes)


def test_an_extra_file_in_staging_is_refused(store: RunStore, origin: LocalGeneration) -> None:
    open_for(store, origin)
    staging = staged_copy(store, origin)
    (staging / "files" / "extra").write_bytes(b"x")
    with pytest.raises(IntegrityFailure, match="exactly the files"):
        store.install_restored(staging, origin.record_bytes)
    assert store.generations() == ()


def test_another_document_in_staging_is_refused(store: RunStore, origin: LocalGeneration) -> None:
    open_for(store, origin)
    staging = staged_copy(store, origin)
    (staging / "generation.json").write_bytes(b"{}")
    with pytest.raises(IntegrityFailure, match="not the document"):
        store.install_restored(staging, origin.record_bytes)


def test_a_good_copy_stays_and_a_damaged_one_makes_way(store: RunStore, origin: LocalGeneration) -> None:
    open_for(store, origin)
    installed = store.install_restored(staged_copy(store, origin), origin.record_bytes)
    inode = (installed.files / "state.bin").stat().st_ino
    staging = staged_copy(store, origin)
    store.install_restored(staging, origin.record_bytes)
    assert not staging.exists()
    assert (installed.files / "state.bin").stat().st_ino == inode

    (installed.files / "state.bin").write_bytes(b"WEIGHTS")
    again = store.install_restored(staged_copy(store, origin), origin.record_bytes)
    assert again.level is Level.VALIDATED
    assert (again.files / "state.bin").read_bytes() == b"weights"
    assert len(list(store.local.root.glob(".damaged-*"))) == 1
