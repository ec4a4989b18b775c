"""Publishing: what is sealed, what is refused, and that failures leave nothing behind."""

import json
import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from replicate import RunStore
from replicate.digests import HASHED, digest_open
from replicate.errors import CkptierError, ConfigInvalid, IntegrityFailure, LocalDisk, UsageError
from replicate.generation.evidence import Level
from replicate.generation.tree import SpecialFile
from replicate.manifest import Accumulation, Experiment
from replicate.paths import UnsafePath


def publish(store: RunStore, update: int, content: bytes = b"weights") -> None:
    with store.publish(next_update=update) as directory:
        (directory / "state.bin").write_bytes(content)


def leftovers(store: RunStore) -> list[str]:
    """Return what lies in the store and belongs to no finished generation."""
    return sorted(
        path.name for path in store.local.root.iterdir() if path.name.startswith((".incoming", ".tmp", ".trash"))
    )


def test_a_published_generation_is_sealed_validated_and_latest(store: RunStore) -> None:
    publication = store.publish(
        next_update=500,
        tokens_seen=1_000,
        contract={"config": "aa"},
        experiment=Experiment(system="wandb", run_id="r1", logging_step=500),
    )
    with publication as directory:
        (directory / "shards").mkdir()
        (directory / "shards" / "0.bin").write_bytes(b"zero")
        (directory / "meta.json").write_text("{}")

    generation = store.latest()
    assert generation is not None
    assert generation == publication.generation
    assert generation.level is Level.VALIDATED
    record = generation.record
    assert (record.run, record.attempt, record.sequence, record.next_update) == ("llm-7b", 1, 1, 500)
    assert (record.parent, record.tokens_seen, record.contract) == (None, 1_000, {"config": "aa"})
    assert [file.path for file in record.files] == ["meta.json", "shards/0.bin"]
    assert (generation.files / "shards" / "0.bin").read_bytes() == b"zero"
    assert sorted(path.name for path in generation.directory.iterdir()) == ["files", "generation.json"]
    assert json.loads(store.local.latest.read_bytes())["generation"] == record.id
    assert leftovers(store) == []


def test_sequences_count_up_and_each_names_its_parent(store: RunStore) -> None:
    for update in (5, 100, 9):
        publish(store, update)
    newest = store.generations()
    assert [(one.id.sequence, one.id.next_update) for one in newest] == [(3, 9), (2, 100), (1, 5)]
    assert newest[0].record.parent == str(newest[1].id)


def test_every_byte_is_hashed_once(store: RunStore) -> None:
    """Validation by digest trusts the seal, and validating again costs no hashing either."""
    before = HASHED.value
    publish(store, 1, bytes(1_000_000))
    assert HASHED.value - before == 1_000_000
    latest = store.latest()
    assert latest is not None
    store.validate(latest.id)
    assert HASHED.value - before == 1_000_000


def fail_half_way(directory: Path) -> None:
    (directory / "half").write_bytes(b"x")
    raise KeyError("boom")


def test_an_exception_leaves_no_generation(store: RunStore) -> None:
    publish(store, 1)
    with pytest.raises(KeyError), store.publish(next_update=2) as directory:
        fail_half_way(directory)
    assert [one.id.next_update for one in store.generations()] == [1]
    assert leftovers(store) == []


def test_nothing_written_is_refused(store: RunStore) -> None:
    with pytest.raises(UsageError, match="nothing was written"), store.publish(next_update=1) as directory:
        (directory / "only-a-directory").mkdir()
    assert store.generations() == ()


def test_empty_files_and_directories_are_kept(store: RunStore) -> None:
    with store.publish(next_update=1) as directory:
        (directory / "empty").touch()
        (directory / "logs" / "deep").mkdir(parents=True)
    latest = store.latest()
    assert latest is not None
    assert latest.record.directories == ("logs/deep",)
    assert (latest.files / "logs" / "deep").is_dir()
    assert (latest.files / "empty").stat().st_size == 0


def make_symlink(path: Path) -> None:
    path.symlink_to("state.bin")


def make_socket(path: Path) -> None:
    """Bind through the file descriptor of the directory: the path itself is too long for a socket."""
    folder = os.open(path.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(f"/proc/self/fd/{folder}/{path.name}")
    os.close(folder)


@pytest.mark.parametrize(
    ("make", "word"),
    [(make_symlink, "symbolic link"), (os.mkfifo, "FIFO"), (make_socket, "socket")],
    ids=["symlink", "fifo", "socket"],
)
def test_what_is_no_regular_file_is_refused_by_name(store: RunStore, make: Callable[[Path], None], word: str) -> None:
    """A FIFO would hang whoever opens it: it is judged by lstat."""

    def write(directory: Path) -> None:
        (directory / "state.bin").write_bytes(b"x")
        (directory / "sub").mkdir()
        make(directory / "sub" / "odd")

    with pytest.raises(SpecialFile, match=f"'sub/odd' is a {word}"), store.publish(next_update=1) as directory:
        write(directory)
    assert store.generations() == ()


def write_colliding(directory: Path) -> None:
    (directory / "Model.bin").write_bytes(b"x")
    (directory / "model.bin").write_bytes(b"x")


def test_a_path_that_another_machine_cannot_hold_is_refused(store: RunStore) -> None:
    with pytest.raises(UnsafePath, match="letter case"), store.publish(next_update=1) as directory:
        write_colliding(directory)


@pytest.fixture
def umask_027() -> Iterator[None]:
    previous = os.umask(0o027)
    yield
    os.umask(previous)


@pytest.mark.usefixtures("umask_027")
def test_modes_follow_the_umask(store: RunStore) -> None:
    """Not 0600, as files that went through tempfile would have."""
    with store.publish(next_update=1) as directory:
        (directory / "state.bin").write_bytes(b"x")
        (directory / "run.sh").touch(mode=0o777)
    latest = store.latest()
    assert latest is not None
    assert {file.path: file.mode for file in latest.record.files} == {"state.bin": 0o640, "run.sh": 0o750}
    for path in (latest.directory, latest.files):
        assert stat.S_IMODE(path.stat().st_mode) == 0o750
    assert stat.S_IMODE((latest.directory / "generation.json").stat().st_mode) == 0o640


@pytest.mark.parametrize("bad", [True, -1, 1.5, "7", None])
def test_next_update_has_to_be_a_count(store: RunStore, bad: object) -> None:
    with pytest.raises(UsageError, match="next_update"):
        store.publish(next_update=bad)  # type: ignore[arg-type]


def test_mid_accumulation_needs_its_gradients(store: RunStore) -> None:
    cursor = Accumulation(microbatches_done=2, microbatches_total=8, gradients_path="gradients.pt")
    with (
        pytest.raises(UsageError, match="partial gradients"),
        store.publish(next_update=1, accumulation=cursor) as directory,
    ):
        (directory / "state.bin").write_bytes(b"x")
    with store.publish(next_update=1, accumulation=cursor) as directory:
        (directory / "gradients.pt").write_bytes(b"x")
    assert [one.record.accumulation for one in store.generations()] == [cursor]


def test_an_environment_without_canonical_form_is_refused(store: RunStore) -> None:
    with pytest.raises(UsageError, match=r"environment\.lr holds a float"):
        store.publish(next_update=1, environment={"lr": 0.1})


def test_the_run_name_is_checked(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="run name"):
        RunStore(tmp_path / "Not A Run")


def test_a_store_under_another_name_is_refused(store: RunStore) -> None:
    publish(store, 1)
    renamed = store.local.root.rename(store.local.root.with_name("other"))
    with pytest.raises(CkptierError, match="belongs to the run 'llm-7b'"):
        publish(RunStore(renamed), 2)


def test_a_file_written_to_while_it_is_sealed_is_noticed(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer thread that was not joined must not end up in a sealed generation."""

    def racing(fd: int, *rest: Any) -> str:
        digest = digest_open(fd, *rest)
        Path(f"/proc/self/fd/{fd}").readlink().write_bytes(b"later, and longer")
        return digest

    monkeypatch.setattr("replicate.generation.hashing.digest_open", racing)
    with pytest.raises(IntegrityFailure, match="changed while it was sealed"):
        publish(store, 1)
    assert store.generations() == ()
    assert leftovers(store) == []


def test_a_store_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(LocalDisk, match="file") as caught, RunStore(tmp_path / "file" / "run").publish(next_update=1):
        pass
    assert caught.value.hint


def test_a_full_disk_in_the_trainers_own_write_is_explained(store: RunStore) -> None:
    with pytest.raises(LocalDisk, match="No space left") as caught, store.publish(next_update=1):
        raise OSError(28, "No space left on device")
    assert "free space" in caught.value.hint
    assert leftovers(store) == []


def test_another_oserror_of_the_trainer_is_its_own(store: RunStore, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), store.publish(next_update=1):
        (tmp_path / "no-dataset").read_bytes()
