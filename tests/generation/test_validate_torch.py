"""Loading payloads in a process of their own: what passes, what is quarantined, and what never runs."""

import io
import os
import pickle
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from replicate import RunStore
from replicate.errors import IntegrityFailure
from replicate.generation import validate
from replicate.generation.evidence import Level
from replicate.generation.local import LocalGeneration
from replicate.generation.validate import Limits, payload_kind

STATE: dict[str, Any] = {"model": {"w": torch.arange(4.0)}, "optimizer": {}, "rng": {}, "next_update": 3}


def saved(state: object, **options: bool) -> bytes:
    buffer = io.BytesIO()
    torch.save(state, buffer, **options)
    return buffer.getvalue()


def publish(store: RunStore, payload: str = "torch", **files: bytes) -> LocalGeneration:
    """Publish next_update 3 unvalidated; keyword ``payload_pt`` becomes payload.pt."""
    publication = store.publish(next_update=3, payload=payload, validate=False)
    with publication as directory:
        for name, content in files.items():
            (directory / name.replace("_", ".")).write_bytes(content)
    assert publication.generation is not None
    return publication.generation


def reason(store: RunStore, payload: str = "torch", **files: bytes) -> str:
    """Publish and return why it was quarantined."""
    evidence = store.validate(publish(store, payload, **files).id)
    assert evidence.level is Level.QUARANTINED
    return evidence.reason


def test_a_whole_payload_is_loaded(store: RunStore) -> None:
    evidence = store.validate(publish(store, payload_pt=saved(STATE)).id)
    assert (evidence.level, evidence.detail) == (Level.VALIDATED, "loaded")
    assert store.resume().id.next_update == 3


def test_publishing_a_broken_payload_raises_and_the_older_one_is_resumed(store: RunStore) -> None:
    with store.publish(next_update=3, payload="torch") as directory:
        (directory / "payload.pt").write_bytes(saved(STATE))
    with (
        pytest.raises(IntegrityFailure, match=r"quarantined: .*unloadable"),
        store.publish(next_update=4, payload="torch") as directory,
    ):
        (directory / "payload.pt").write_bytes(saved({**STATE, "next_update": 4})[:-100])
    resumed = store.resume()
    assert resumed.id.next_update == 3
    assert "payload.pt: unloadable" in resumed.skipped[0].reason
    latest = store.latest()
    assert latest is not None
    assert latest.id == resumed.id


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({**STATE, "next_update": 4}, "says next_update 4, the generation 3"),
        ({**STATE, "next_update": True}, "says next_update True"),
        ({**STATE, "next_update": 3.0}, "says next_update 3.0"),
        ({"model": {}, "next_update": 3}, "missing restart state: optimizer, rng"),
        ([1, 2], "holds a list"),
    ],
)
def test_a_payload_that_is_no_restart_state_is_quarantined(store: RunStore, state: object, words: str) -> None:
    assert words in reason(store, payload_pt=saved(state))


def test_the_keys_that_have_to_be_there_are_configurable(store: RunStore) -> None:
    publish(store, "torch:model,next_update", payload_pt=saved({"model": {}, "next_update": 3}))
    assert store.resume().level is Level.VALIDATED
    assert payload_kind("torch:") == ("torch", ())
    assert payload_kind("files")[0] == "files"


@pytest.mark.parametrize("content", [b"", b"truncated", saved(STATE)[:200], saved(STATE)[200:]])
def test_what_is_no_payload_is_quarantined(store: RunStore, content: bytes) -> None:
    assert "payload.pt: unloadable" in reason(store, payload_pt=content)


def test_said_to_be_torch_and_nothing_there(store: RunStore) -> None:
    assert "no .pt, .pth or .bin" in reason(store, notes_txt=b"x")


def test_every_torch_file_is_loaded(store: RunStore) -> None:
    """A second broken file hides behind a good payload.pt only until here."""
    assert "ema.pt: unloadable" in reason(store, payload_pt=saved(STATE), ema_pt=b"truncated")


def test_a_truncated_zip_is_flagged_even_in_opaque_files(store: RunStore) -> None:
    assert "zip directory" in reason(store, "files", last_pt=saved(STATE)[:-30])
    assert "it is empty" in reason(store, "files", last_pt=b"")


def test_opaque_files_are_not_loaded(store: RunStore) -> None:
    """Random states of other trainers hold NumPy objects, and legacy pickles are not zips."""
    legacy = saved(STATE, _use_new_zipfile_serialization=False)
    evidence = store.validate(publish(store, "files", rng_pth=legacy, w_bin=b"raw").id)
    assert (evidence.level, evidence.detail) == (Level.VALIDATED, "digests")


class Canary:
    """Creates a file when it is unpickled without restriction."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("kind", ["zip", "legacy", "bare pickle"])
def test_a_malicious_pickle_is_quarantined_and_never_executed(store: RunStore, tmp_path: Path, kind: str) -> None:
    hostile = {**STATE, "rng": Canary(tmp_path / "executed")}
    content = {
        "zip": lambda: saved(hostile),
        "legacy": lambda: saved(hostile, _use_new_zipfile_serialization=False),
        "bare pickle": lambda: pickle.dumps(hostile["rng"]),
    }[kind]()
    words = reason(store, payload_pt=content)
    assert "unloadable" in words
    assert "weights_only=False" not in words.replace(" ", "").replace("`", "")
    assert "arbitrary" not in words
    assert not (tmp_path / "executed").exists()


def test_a_distributed_checkpoint_is_compared_with_its_metadata(store: RunStore, tmp_path: Path) -> None:
    """As torch itself writes it, and with the damage that torch reports as good (ENOSPC in a writer thread)."""
    from torch.distributed.checkpoint.state_dict_saver import save  # noqa: PLC0415 - a second, for this test only

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that there is no process group
        save(
            {"model": {"w": torch.arange(12.0), "h": torch.ones(3, dtype=torch.bfloat16)}, "step": 3},
            checkpoint_id=tmp_path / "c",
        )
    files = {path.name: path.read_bytes() for path in (tmp_path / "c").iterdir()}
    (data,) = files.keys() - {".metadata"}

    def judged(changed: dict[str, bytes]) -> tuple[Level, str]:
        publication = store.publish(next_update=3, validate=False)
        with publication as directory:
            for name, content in {**files, **changed}.items():
                (directory / name).write_bytes(content)
        assert publication.generation is not None
        evidence = store.validate(publication.generation.id)
        return evidence.level, evidence.reason

    assert judged({}) == (Level.VALIDATED, "validated")
    level, words = judged({data: files[data][:-1]})
    assert (level, "ends at" in words) == (Level.QUARANTINED, True)
    level, words = judged({".metadata": files[".metadata"].replace(b"__0_0.distcp", b"__1_0.distcp")})
    assert (level, "is missing" in words) == (Level.QUARANTINED, True)


def bomb(lists: int, compression: int = zipfile.ZIP_STORED) -> bytes:
    """Return a payload whose pickle makes ``lists`` empty lists: one byte each, and some sixty in memory."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02(" + b"]" * lists + b"l.")
        archive.writestr("archive/version", "3\n")
    return buffer.getvalue()


def test_a_pickle_that_makes_much_of_little_hits_the_memory_limit(tmp_path: Path) -> None:
    content = bomb(2_000_000)
    assert len(content) < 3 * 1024 * 1024
    store = RunStore(tmp_path / "run", limits=Limits(memory_bytes=48 * 1024 * 1024))
    assert "more memory than its size accounts for" in reason(store, payload_pt=content)
    assert store.latest() is None


def test_a_decompression_bomb_is_refused_before_anything_is_unpacked(store: RunStore) -> None:
    """By its directory, in every payload; torch itself never compresses."""
    content = bomb(64 * 1024 * 1024, zipfile.ZIP_DEFLATED)
    assert len(content) < 1024 * 1024
    assert "compressed" in reason(store, "files", payload_pt=content)


def test_a_loader_that_hangs_is_ended(tmp_path: Path) -> None:
    """Nothing loads in a hundredth of a second: importing torch alone takes longer."""
    store = RunStore(tmp_path / "run", limits=Limits(seconds=0.01))
    assert "took longer than 0.01 s" in reason(store, payload_pt=saved(STATE))


def test_without_torch_the_container_is_all_that_is_checked(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A core without torch has no opinion on what is inside; a venv without it is played by -S -I."""
    honest = subprocess.run

    def isolated(command: list[str], **options: Any) -> Any:
        return honest([command[0], "-S", "-I", *command[1:]], **options)

    monkeypatch.setattr(subprocess, "run", isolated)
    good = store.validate(publish(store, payload_pt=saved({"anything": 1})).id)
    assert (good.level, good.detail) == (Level.VALIDATED, "container only")
    assert "unloadable" in reason(store, payload_pt=saved(STATE)[:-30])


def test_the_loading_process_gets_no_secret(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, str] = {}
    honest = subprocess.run

    def recording(command: list[str], **options: Any) -> Any:
        seen.update(options["env"])
        return honest(command, **options)

    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "canary")
    monkeypatch.setattr(subprocess, "run", recording)
    store.validate(publish(store, payload_pt=saved(STATE)).id)
    assert "canary" not in seen.values()
    assert set(seen) <= {*validate._PASSED, "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "PYTHONUNBUFFERED"}
    assert sys.modules["torch"] is torch
