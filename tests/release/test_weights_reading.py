"""Weights are read with weights_only=True or not at all, and what is missing is told with what there is."""

import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from support.releases import Built

from replicate import RunStore
from replicate.errors import CkptierError, ConfigInvalid, IntegrityFailure, NothingFound
from replicate.generation.evidence import Level
from replicate.release.description import Source
from replicate.release.source import SourceGeneration, open_local
from replicate.release.weights.reading import StateDict, read_state

Tiny = Callable[[str], Built]


@pytest.fixture(autouse=True)
def without_the_process_apart(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare the second that loading in a process apart takes, but where a test is about that."""
    if "case_93" not in request.node.name and "apart" not in request.node.name:
        monkeypatch.setattr("replicate.release.weights.reading.load_fault", lambda *_, **__: "")


def sealed(where: Path, write: Callable[[Path], None]) -> SourceGeneration:
    """Seal whatever is written, as files that nobody looked into."""
    store = RunStore(where / "runs" / "toy")
    publication = store.publish(next_update=1, validate=False)
    with publication as directory:
        write(directory)
    assert publication.generation is not None
    return open_local(store.local, publication.generation.id)


def sealed_file(where: Path, name: str, value: Any) -> SourceGeneration:
    return sealed(where, lambda directory: torch.save(value, directory / name))


def read(source: SourceGeneration, *files: str, entries: str = "") -> StateDict:
    return read_state(source, Source(files=files, entries=entries))


def refusal(source: SourceGeneration, *files: str, entries: str = "") -> CkptierError:
    with pytest.raises(CkptierError) as caught:
        read(source, *files, entries=entries)
    return caught.value


def test_a_payload_is_opened_at_a_dotted_path(tiny: Tiny) -> None:
    built = tiny("gpt2")

    state = read(open_local(built.local, None), "payload.pt", entries="model")

    names = {entry.name: entry for entry in state.entries}
    wte = names["_orig_mod.module.transformer.wte.weight"]
    head = names["_orig_mod.module.lm_head.weight"]
    assert (wte.dtype, wte.shape) == ("F32", (260, 16))
    assert wte.same_as(head)  # tied in training, and so in the file
    own = built.model.get_parameter("transformer.wte.weight")
    assert torch.equal(state.tensor(wte.name), own)
    assert not state.tensor(wte.name).requires_grad


def test_several_safetensors_files_are_one_state_dict(tiny: Tiny) -> None:
    built = tiny("llama")

    state = read(open_local(built.local, None), "model-*.safetensors")

    model = built.model.state_dict()
    assert {entry.name for entry in state.entries} == set(model)
    assert all(torch.equal(state.tensor(name), tensor) for name, tensor in model.items())


def test_a_view_of_something_larger_is_told_with_its_place(tiny: Tiny) -> None:
    state = read(open_local(tiny("custom").local, None), "payload.pt", entries="model")

    entries = {entry.name: entry for entry in state.entries}
    wave, order, allowed = entries["wave"], entries["order"], entries["allowed"]
    assert (wave.size, wave.offset) == (64 * 16 * 4, 64 * 4)
    assert state.tensor("wave").untyped_storage().nbytes() == 8 * 64 * 16 * 4
    assert (order.dtype, allowed.dtype) == ("I64", "BOOL")


@pytest.mark.parametrize("name", ["weights.pt", "weights.pth", "pytorch_model.bin", "last.ckpt"])
def test_every_suffix_of_torch_is_read(tmp_path: Path, name: str) -> None:
    source = sealed_file(tmp_path, name, {"a": torch.ones(2)})

    assert [entry.name for entry in read(source, name).entries] == ["a"]


# --- case C93: RNG files with numpy in them, and pickles that would run something


class Malicious:
    """What writes a file when it is unpickled by anything that lets it."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return Path.write_text, (self.trace, "ran")


def test_case_93_rng_files_with_numpy_beside_the_weights_pass_through_untouched(tiny: Tiny) -> None:
    built = tiny("llama")
    rng = built.local.generation(built.generation) / "files" / "rng_state_0.pth"
    with pytest.raises(pickle.UnpicklingError, match="Weights only load failed"):
        torch.load(rng, weights_only=True)  # the file is of the kind that the case is about
    before = rng.read_bytes()

    source = open_local(built.local, None)

    assert read(source, "model-*.safetensors").entries
    assert rng.read_bytes() == before


def test_case_93_numpy_in_the_weights_file_itself_is_refused_with_what_to_do(tmp_path: Path) -> None:
    source = sealed_file(tmp_path, "model.pt", {"a": torch.ones(2), "rng": np.arange(4)})

    error = refusal(source, "model.pt")

    assert isinstance(error, IntegrityFailure)
    assert re.match(r"model\.pt: unloadable: .*numpy", error.message)
    assert "weights_only=True, and nothing in it was run" in error.message
    assert "save the model's state dict alone" in error.hint


@pytest.mark.parametrize("raw", [True, False])
def test_case_93_a_malicious_pickle_is_refused_and_nothing_of_it_runs(tmp_path: Path, raw: bool) -> None:
    trace = tmp_path / "trace"
    evil = {"a": torch.ones(2), "b": Malicious(trace)}

    def write(directory: Path) -> None:
        if raw:
            (directory / "model.pt").write_bytes(pickle.dumps(evil))
        else:
            torch.save(evil, directory / "model.pt")

    source = sealed(tmp_path, write)

    error = refusal(source, "model.pt")

    assert isinstance(error, IntegrityFailure)
    assert "unloadable" in error.message
    assert not trace.exists()
    torch.load(source.files / "model.pt", weights_only=False) if not raw else pickle.loads(
        (source.files / "model.pt").read_bytes()
    )
    assert trace.read_text() == "ran"  # it would have run


def test_case_93_a_malicious_pickle_that_is_not_named_is_never_opened(tmp_path: Path) -> None:
    trace = tmp_path / "trace"

    def write(directory: Path) -> None:
        save_file({"a": torch.ones(2)}, directory / "model.safetensors")
        torch.save(Malicious(trace), directory / "training_args.bin")

    assert read(sealed(tmp_path, write), "model.safetensors").entries
    assert not trace.exists()


def test_a_quarantined_generation_is_no_source(tmp_path: Path) -> None:
    source = sealed_file(tmp_path, "model.pt", {"a": torch.ones(2)})
    store = RunStore(tmp_path / "runs" / "toy")
    store.quarantine(source.id, "loss was not finite")
    assert store.get(source.id).level is Level.QUARANTINED

    with pytest.raises(IntegrityFailure, match="quarantined: loss was not finite"):
        open_local(store.local, source.id)


# --- what is not there


def test_a_file_that_is_not_in_the_generation_is_told_with_those_that_are(tiny: Tiny) -> None:
    error = refusal(open_local(tiny("gpt2").local, None), "model.safetensors")

    assert error.message.startswith("source.files: 'model.safetensors' is no file of a0001-g000001-")
    assert error.hint == "its files: payload.pt"


@pytest.mark.parametrize(
    ("entries", "message", "hint"),
    [
        (
            "modle",
            "source.entries: payload.pt has no 'modle'",
            "there is: extra, format, model, next_update, optimizer",
        ),
        ("model.deeper", "source.entries: payload.pt has no 'deeper' in 'model'", "there is: _orig_mod.module."),
        ("next_update", "source.entries: next_update in payload.pt is a int, no state dict", "name the entry"),
        ("next_update.x", "source.entries: payload.pt has no 'x' in 'next_update'", "there is a int"),
        ("extra", "holds no tensors, only plant", "name one of extra.plant"),
    ],
)
def test_an_entry_that_is_not_there_is_told_with_those_that_are(
    tiny: Tiny, entries: str, message: str, hint: str
) -> None:
    error = refusal(open_local(tiny("gpt2").local, None), "payload.pt", entries=entries)

    assert isinstance(error, ConfigInvalid)
    assert message in error.message
    assert error.hint.startswith(hint)


def test_the_whole_payload_is_no_state_dict(tiny: Tiny) -> None:
    error = refusal(open_local(tiny("gpt2").local, None), "payload.pt")

    assert "source.entries: the file itself in payload.pt holds no tensors" in error.message
    assert "model" in error.hint


def test_a_key_with_dots_is_one_step(tmp_path: Path) -> None:
    source = sealed_file(tmp_path, "m.pt", {"ema.model": {"a": torch.ones(2)}, "ema": {"b": torch.ones(2)}})

    assert [entry.name for entry in read(source, "m.pt", entries="ema.model").entries] == ["a"]
    assert [entry.name for entry in read(source, "m.pt", entries="ema").entries] == ["b"]


def test_a_generation_without_weights_is_nothing_found(tmp_path: Path) -> None:
    error = refusal(sealed_file(tmp_path, "state.pt", {"step": 3, "name": "x"}), "state.pt")

    assert isinstance(error, NothingFound)
    assert "holds no tensor: a generation without weights" in error.message
    assert "source.files" in error.hint


def test_other_files_than_weights_are_refused(tiny: Tiny) -> None:
    source = open_local(tiny("llama").local, None)

    assert "neither one file of torch nor safetensors" in refusal(source, "trainer_state.json").message
    assert "neither one file of torch nor safetensors" in refusal(source, "model-*", "optimizer.pt").message
    assert "source.entries: 'model'" in refusal(source, "model-*.safetensors", entries="model").message


def test_a_name_in_two_files_is_refused_with_both(tmp_path: Path) -> None:
    def write(directory: Path) -> None:
        for name in ("one", "two"):
            save_file({"a": torch.ones(2)}, directory / f"{name}.safetensors")

    error = refusal(sealed(tmp_path, write), "*.safetensors")

    assert "a is in one.safetensors and in two.safetensors" in error.message


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (3, "a int, no tensor"),
        ([torch.ones(1)], "a list, no tensor"),
        (torch.eye(2).to_sparse(), "a sparse or quantized tensor"),
        (torch.complex(torch.ones(1), torch.ones(1)).to(torch.complex128), "of dtype torch.complex128"),
    ],
)
def test_entries_that_cannot_be_released_are_told_apart(tmp_path: Path, value: Any, words: str) -> None:
    state = read(sealed_file(tmp_path, "m.pt", {"a": torch.ones(2), "odd": value}), "m.pt")

    assert {entry.name: entry.unfit for entry in state.entries}["odd"].startswith(words)


def test_a_tensor_that_claims_more_than_is_behind_it_is_refused(tmp_path: Path) -> None:
    bomb = torch.ones(1).expand(1 << 40)

    error = refusal(sealed_file(tmp_path, "m.pt", {"a": torch.ones(2), "bomb": bomb}), "m.pt")

    assert "bomb claims 4398046511104 bytes and has 4 behind it" in error.message


def test_a_truncated_safetensors_file_is_refused(tmp_path: Path) -> None:
    def write(directory: Path) -> None:
        save_file({"a": torch.ones(64)}, directory / "m.safetensors")
        data = (directory / "m.safetensors").read_bytes()
        (directory / "m.safetensors").write_bytes(data[:-4])

    error = refusal(sealed(tmp_path, write), "m.safetensors")

    assert isinstance(error, IntegrityFailure)
    assert "m.safetensors: its tensors end at byte" in error.message


def test_an_old_file_of_torch_that_cannot_be_mapped_is_refused_apart(tmp_path: Path) -> None:
    def write(directory: Path) -> None:
        torch.save({"a": torch.ones(2)}, directory / "m.pt", _use_new_zipfile_serialization=False)

    assert "unloadable" in refusal(sealed(tmp_path, write), "m.pt").message
