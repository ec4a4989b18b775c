"""Bad input and broken disks: each refusal names the key or the file, and nothing is left of the attempt."""

import errno
import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from release.prepare_stage import IDENTITIES, Tiny, architectures_at_hand, refusal, run
from support.releases import BUILDERS, Built, variant

from replicate.errors import CapabilityMissing, ConfigInvalid, LocalDisk, UsageError
from replicate.release.preparing import prepare
from tiers.effects import Effect, Moment, observing
from tiers.testing.manual_clock import ManualClock


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, tiny: Tiny) -> None:
    """Do without processes apart."""
    architectures_at_hand(monkeypatch, tiny)


def test_integers_are_not_cast_even_where_they_are_named(tiny: Tiny, tmp_path: Path) -> None:
    built = variant(tiny("custom"), tmp_path / "ints", {"weights.cast": {"dtype": "float16", "allow": ["order"]}})

    error = refusal(built, tmp_path / "out")

    assert "weights.cast.allow: 'order': order is I64, and only floating tensors are cast" in error.message


def test_a_value_that_overflows_in_a_cast_stops_the_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built = BUILDERS["custom"](tmp_path / "built", scale=1e6)
    changed = variant(built, tmp_path / "cast", {"weights.cast": {"dtype": "float16", "allow": ["*.weight"]}})

    error = refusal(changed, tmp_path / "out")

    assert "weights.cast: head.weight: " in error.message
    assert "is finite and does not fit F16" in error.message


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("gpt2", {"license.id": "apache-3.0"}, "license.id: 'apache-3.0'"),
        ("gpt2", {"source.files": ["weights.pt"]}, "source.files: 'weights.pt' is no file of"),
        (
            "gpt2",
            {"source.entries": "optimizer.state"},
            "source.entries: optimizer.state in payload.pt holds no tensors",
        ),
        ("gpt2", {"weights.tied": []}, "weights.tied: the model class ties lm_head.weight to transformer.wte.weight"),
        (
            "gpt2",
            {"weights.tied": [{"keep": "lm_head.weight", "drop": ["transformer.wte.weight"]}]},
            "weights.tied: the model class does not tie transformer.wte.weight: loaders would leave it random",
        ),
        ("llama", {"weights.omit": ["model.norm.weight"]}, "1 missing: model.norm.weight"),
        (
            "moe",
            {"weights.rename": [{"prefix": "lm_head.", "to": "head."}]},
            "1 unknown to it: head.weight; 1 missing: lm_head.weight",
        ),
        ("adapter", {"weights.omit": ["*.mlp.*"]}, "belong to the base model, not to the adapter"),
        ("adapter", {"weights.max_shard_size": "100B"}, "weights.max_shard_size: 100B divides the adapter"),
        ("gpt2", {"files.other": ["config.json.bak"]}, "files.other.0: config.json.bak cannot be read"),
        ("gpt2", {"files.config": "release.toml"}, "files.config: release.toml would be published as release.toml"),
    ],
)
def test_a_wrong_description_names_its_key(
    tiny: Tiny, tmp_path: Path, name: str, changes: dict[str, Any], message: str
) -> None:
    built = variant(tiny(name), tmp_path / "wrong", changes)

    error = refusal(built, tmp_path / "out")

    assert message in error.message
    assert error.hint


def test_the_adapter_of_a_model_is_not_released_as_a_whole_model(tiny: Tiny, tmp_path: Path) -> None:
    built = tiny("adapter")
    changes: dict[str, Any] = {
        "kind": "full", "adapter": None, "architecture": {"model_class": "LlamaForCausalLM"},
        "files.config": "base/config.json", "files.adapter_config": None, "card.library_name": "transformers",
        "weights.omit": [],
    }  # fmt: skip

    error = refusal(variant(built, tmp_path / "wrong", changes), tmp_path / "out")

    assert error.message.startswith("kind: base_model.model.")
    assert "merge the adapter" in error.hint


def test_a_config_beside_an_adapter_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    built = variant(tiny("adapter"), tmp_path / "wrong", {"files.config": "base/config.json"})

    assert refusal(built, tmp_path / "out").message.startswith("files.config: an adapter has adapter_config.json")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("link", "extra.txt is a link"),
        ("fifo", "extra.txt is not a regular file"),
        ("folder", "extra.txt is not a regular file"),
        ("huge", "extra.txt has 67108865 bytes, more than the 67108864"),
    ],
)
def test_only_regular_files_of_a_sane_size_are_taken(tiny: Tiny, tmp_path: Path, kind: str, words: str) -> None:
    built = variant(tiny("custom"), tmp_path / "wrong", {"files.other": ["extra.txt"]})
    path = built.folder / "extra.txt"
    if kind == "link":
        path.symlink_to("/etc/passwd")
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        with path.open("wb") as file:
            file.truncate(64 * 1024 * 1024 + 1)

    assert f"files.other.0: {words}" in refusal(built, tmp_path / "out").message


@pytest.mark.parametrize("name", ["README.md", "Provenance.JSON", ".gitattributes", "license", "model.safetensors"])
def test_names_that_are_taken_and_weights_from_elsewhere_are_refused(tiny: Tiny, tmp_path: Path, name: str) -> None:
    built = variant(tiny("custom"), tmp_path / "wrong", {"files.other": [f"more/{name}"]})
    (built.folder / "more").mkdir()
    (built.folder / "more" / name).write_text("text")

    assert "files.other.0: " in refusal(built, tmp_path / "out").message


def test_an_absolute_path_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    built = variant(tiny("custom"), tmp_path / "wrong", {"files.other": ["/etc/hostname"]})

    assert "is not relative to the description" in refusal(built, tmp_path / "out").message


def test_where_something_stands_nothing_is_prepared(tiny: Tiny, tmp_path: Path) -> None:
    built = tiny("custom")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "kept").write_text("kept")
    (tmp_path / "file").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    (tmp_path / "empty").mkdir()

    for name in ("full", "file", "link"):
        with pytest.raises(UsageError, match=f"{name} exists and is no empty folder"):
            run(built, tmp_path / name)
    assert (tmp_path / "full" / "kept").read_text() == "kept"
    assert run(built, tmp_path / "empty").prepared.tree.is_dir()


def test_without_the_libraries_the_error_says_what_to_install(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "replicate.release.weights.exporting", None)

    error = refusal(tiny("custom"), tmp_path / "out")

    assert isinstance(error, CapabilityMissing)
    assert error.hint == "pip install 'ckptier[release]'"


# --- failures leave nothing


class Failing:
    """Make one announced effect fail as a full disk does, and count what was announced."""

    def __init__(self, kind: Effect, number: int) -> None:
        self.kind = kind
        self.left = number
        self.fired = False

    def __call__(self, kind: Effect, what: str, moment: Moment) -> None:
        if kind is not self.kind or moment is not Moment.BEFORE or self.fired:
            return
        self.left -= 1
        if self.left < 0:
            self.fired = True
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), what)


def effects_of(built: Built, out: Path) -> dict[Effect, int]:
    """Count the effects of a preparation that succeeds."""
    seen: dict[Effect, int] = {}

    def count(kind: Effect, _what: str, moment: Moment) -> None:
        if moment is Moment.BEFORE:
            seen[kind] = seen.get(kind, 0) + 1

    with observing(count):
        run(built, out)
    return seen


def test_a_disk_that_fills_at_any_moment_leaves_nothing(tiny: Tiny, tmp_path: Path) -> None:
    built = tiny("custom")
    seen = effects_of(built, tmp_path / "good")
    assert seen[Effect.RENAME] == 1
    moments = [(Effect.RENAME, 0), *((Effect.FSYNC, number) for number in range(0, seen[Effect.FSYNC], 5))]

    for kind, number in (*moments, (Effect.FSYNC, seen[Effect.FSYNC] - 1)):
        failing = Failing(kind, number)
        with observing(failing), pytest.raises(LocalDisk, match="No space left on device"):
            run(built, tmp_path / "out")
        assert failing.fired
        assert sorted(path.name for path in tmp_path.iterdir()) == ["good"]


def test_a_file_that_may_not_grow_leaves_nothing(tiny: Tiny, tmp_path: Path) -> None:
    built = tiny("llama")
    source = built.source()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(LocalDisk, match="File too large"):
            prepare(
                built.described(), built.folder, source, tmp_path / "out",
                identities=IDENTITIES, waivers=(), clock=ManualClock(),
            )  # fmt: skip
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    assert list(tmp_path.iterdir()) == []


def test_preparing_loads_no_torch_until_weights_are_opened() -> None:
    code = "import sys, replicate.release.preparing; print(sorted({'torch', 'transformers'} & set(sys.modules)))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.strip() == "[]"


def test_a_config_that_runs_code_is_refused_before_anything_is_built(tiny: Tiny, tmp_path: Path) -> None:
    built = variant(tiny("gpt2"), tmp_path / "wrong", {})
    config = json.loads((built.folder / "config.json").read_text())
    (built.folder / "config.json").write_text(json.dumps({**config, "auto_map": {"AutoModel": "x.Y"}}))

    error = refusal(built, tmp_path / "out")

    assert isinstance(error, ConfigInvalid)
    assert error.message.startswith("files.config: auto_map")
