"""Releases of real models, loaded and compared; each is damaged so that its manifest still fits.

Loading happens in this process (``in_this_process``): the children have tests of their own.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from release.prepared_by_hand import safetensors_bytes
from release.verifying_by_hand import (
    Maker,
    contents,
    detail,
    edit,
    in_this_process,
    read_manifest,
    reseal,
    rewrite,
    verdicts,
    write_index,
)
from support.releases import Built

from replicate.release.bundle import Action, Kind, Transform
from replicate.release.source import open_local
from replicate.release.verifying.checks import Verdict

WEIGHTS = "model.safetensors"
CAST = {"weights.cast": {"dtype": "bfloat16", "allow": ["*"], "keep": ["*ln_f*"]}}
WTE, HEAD, NORM = "transformer.wte.weight", "lm_head.weight", "transformer.ln_f.weight"


@pytest.fixture(scope="module", autouse=True)
def here() -> Iterator[None]:
    with in_this_process():
        yield


@pytest.fixture(scope="module")
def maker(tiny: Callable[[str], Built], here: None, tmp_path_factory: pytest.TempPathFactory) -> Maker:
    return Maker(tiny=tiny, root=tmp_path_factory.mktemp("prepared"))


def record(tree: Path, change: Callable[[Transform], Transform | None]) -> None:
    """Change the recorded transforms, and fit the manifest."""
    changed = [one for one in map(change, read_manifest(tree).transforms) if one is not None]
    reseal(tree, transforms=tuple(changed))


def said(name: str, **changes: Any) -> Callable[[Transform], Transform]:
    return lambda one: one.model_copy(update=changes) if one.target == name else one


def drop(path: Path, name: str) -> None:
    """Take one tensor out of a file."""
    tensors = contents(path)
    del tensors[name]
    path.write_bytes(safetensors_bytes(tensors))


@pytest.mark.parametrize("name", ["gpt2", "llama", "moe", "adapter", "custom"])
def test_every_kind_of_release_passes_every_check(maker: Maker, name: str) -> None:
    report = maker.whole(name).verify()
    assert report.failed == ()
    assert report.complete, report.checks
    forward = next(check for check in report.checks if check.name == "forward-pass")
    assert "equal those of the source exactly" in forward.detail


@pytest.mark.parametrize(
    ("name", "dtype", "allow", "keep"),
    [
        ("gpt2", "bfloat16", ["*"], ["*ln_f*"]),
        ("moe", "float16", ["*"], []),
        ("adapter", "bfloat16", ["*.lora_A.weight"], []),
        ("custom", "float16", ["embed.weight", "*.mix.*"], []),
    ],
)
def test_a_cast_release_agrees_within_what_its_dtype_allows(
    maker: Maker, name: str, dtype: str, allow: list[str], keep: list[str]
) -> None:
    report = maker.whole(name, {"weights.cast": {"dtype": dtype, "allow": allow, "keep": keep}}).verify()
    assert report.failed == ()
    assert report.complete
    forward = next(check for check in report.checks if check.name == "forward-pass")
    assert f"8 times the epsilon of {'BF16' if dtype == 'bfloat16' else 'F16'}" in forward.detail
    assert "differ from those of the source by at most" in forward.detail


def test_a_mixture_of_experts_may_be_published_in_its_librarys_form(
    maker: Maker, tmp_path: Path, tiny: Callable[[str], Built]
) -> None:
    """The names that save_pretrained writes, expert by expert, are no less strict than the modules' own."""
    made = maker.copy(tmp_path, "moe")
    model: Any = tiny("moe").model
    model.save_pretrained(tmp_path / "saved")
    tensors = contents(tmp_path / "saved" / WEIGHTS)
    (made.tree / WEIGHTS).write_bytes(safetensors_bytes(tensors))
    reseal(made.tree)
    assert any(".experts.0.w1." in name for name in tensors)
    checks = verdicts(made.verify(source=None))
    assert checks["structural-load"] is checks["second-loader"] is checks["forward-pass"] is Verdict.PASSED
    drop(made.tree / WEIGHTS, "model.layers.0.block_sparse_moe.experts.1.w2.weight")
    reseal(made.tree)
    assert "needs model.layers.0.block_sparse_moe.experts.1.w2.weight" in detail(
        made.verify(source=None), "structural-load"
    )


def test_a_download_is_verified_without_its_description(maker: Maker, tmp_path: Path) -> None:
    made = maker.copy(tmp_path, "gpt2")
    report = made.verify(description=None, base=None, source=None)
    checks = verdicts(report)
    assert report.ok
    assert checks["second-loader"] is checks["forward-pass"] is checks["tokenizer"] is Verdict.PASSED
    undone = {check.name: check.detail for check in report.checks if check.verdict is Verdict.NOT_DONE}
    assert set(undone) == {"card", "source", "source-comparison", "transforms"}
    assert "--description" in undone["card"]


@pytest.mark.parametrize("name", ["custom", "adapter"])
def test_what_cannot_be_loaded_without_a_description_is_said(maker: Maker, name: str) -> None:
    report = maker.whole(name).verify(description=None, base=None, source=None)
    assert report.ok
    assert not report.complete
    undone = {check.name: check.detail for check in report.checks if check.verdict is Verdict.NOT_DONE}
    assert "not published" in undone["structural-load"]


def test_an_adapter_without_its_base_is_not_loaded(maker: Maker) -> None:
    made = maker.whole("adapter")
    assert made.description.adapter is not None
    alone = made.description.model_copy(
        update={"adapter": made.description.adapter.model_copy(update={"base_path": None})}
    )
    checks = {check.name: check for check in made.verify(description=alone).checks}
    assert checks["second-loader"].verdict is Verdict.NOT_DONE
    assert "adapter.base_path is not given" in checks["second-loader"].detail
    assert checks["source-comparison"].verdict is checks["transforms"].verdict is Verdict.PASSED


def test_a_missing_library_is_no_pass(maker: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    checks = {check.name: check for check in maker.whole("adapter").verify().checks}
    for name in ("structural-load", "second-loader", "forward-pass"):
        assert checks[name].verdict is Verdict.NOT_DONE
    assert "pip install 'ckptier[release]'" in checks["structural-load"].detail


def test_nothing_is_loaded_unless_asked_for(maker: Maker) -> None:
    report = maker.whole("gpt2").verify(deep=False)
    assert report.ok
    undone = {check.name for check in report.checks if check.verdict is Verdict.NOT_DONE}
    assert undone == {"structural-load", "second-loader", "forward-pass"}


def test_the_source_is_the_one_that_the_release_names(maker: Maker, tiny: Callable[[str], Built]) -> None:
    other = open_local(tiny("moe").local, None)
    report = maker.whole("gpt2").verify(source=other)
    assert "given was" in detail(report, "source")
    assert "the record of the generation" in detail(report, "source")


class TestTies:
    """The name that loaders look for is written, the others are made from it."""

    def test_the_wrong_one_kept(self, maker: Maker, tmp_path: Path) -> None:
        made = maker.copy(tmp_path, "gpt2")
        rewrite(made.tree / WEIGHTS, lambda held: held.update({HEAD: held.pop(WTE)}))
        swap: dict[str, dict[str, Any]] = {
            WTE: {"action": Action.ALIAS, "of": HEAD},
            HEAD: {"action": Action.KEPT, "of": None},
        }
        record(made.tree, lambda one: one.model_copy(update=swap.get(one.target or "", {})))
        report = made.verify()
        assert f"the architecture needs {WTE}" in detail(report, "structural-load")
        assert "the description makes it kept" in detail(report, "transforms")
        assert verdicts(report)["source-comparison"] is Verdict.PASSED  # the two are equal, and truly recorded

    def test_dropped_altogether(self, maker: Maker, tmp_path: Path) -> None:
        made = maker.copy(tmp_path, "gpt2")
        drop(made.tree / WEIGHTS, WTE)
        reseal(made.tree)
        report = made.verify()
        assert f"{WTE} is not in the release" in detail(report, "source-comparison")
        assert f"needs {WTE}" in detail(report, "structural-load")

    def test_both_kept_and_different(self, maker: Maker, tmp_path: Path) -> None:
        made = maker.copy(tmp_path, "gpt2")

        def untie(held: dict[str, tuple[str, tuple[int, ...], bytes]]) -> None:
            dtype, shape, data = held[WTE]
            held[HEAD] = (dtype, shape, data[::-1])

        rewrite(made.tree / WEIGHTS, untie)
        reseal(made.tree)
        report = made.verify()
        assert f"{HEAD} and {WTE} are tied in the architecture, and differ" in detail(report, "structural-load")
        assert f"{HEAD}: recorded as an alias that is dropped, and it is released" in detail(
            report, "source-comparison"
        )

    def test_an_alias_of_something_else(self, maker: Maker, tmp_path: Path) -> None:
        made = maker.copy(tmp_path, "gpt2")
        record(made.tree, said(HEAD, of=NORM))
        assert f"an alias of {NORM}, and the two differ in the source" in detail(made.verify(), "source-comparison")

    def test_an_alias_of_nothing(self, maker: Maker, tmp_path: Path) -> None:
        made = maker.copy(tmp_path, "gpt2")
        record(made.tree, said(HEAD, of="transformer.gone"))
        assert "an alias of transformer.gone, which is not released" in detail(made.verify(), "source-comparison")


class TestComparison:
    """Against the source, through the record; each fault names its tensor."""

    def test_a_flipped_bit(self, maker: Maker, tmp_path: Path) -> None:
        made = maker.copy(tmp_path, "gpt2")

        def flip(held: dict[str, tuple[str, tuple[int, ...], bytes]]) -> None:
            dtype, shape, data = held[NORM]
            held[NORM] = (dtype, shape, bytes([data[0] ^ 1]) + data[1:])

        rewrite(made.tree / WEIGHTS, flip)
        reseal(made.tree)
        report = made.verify()
        assert detail(report, "source-comparison") == f"{NORM}: its bytes are not those of the source"
        assert "logits differ from those of the source" in detail(report, "forward-pass")
        assert {check.name for check in report.failed} == {"source-comparison", "forward-pass"}

    def test_two_tensors_swapped(self, maker: Maker, tmp_path: Path) -> None:
        made = maker.copy(tmp_path, "llama")
        first, second = (f"model.layers.{number}.mlp.up_proj.weight" for number in (0, 1))
        held = {name: one for path in made.tree.glob("*.safetensors") for name, one in contents(path).items()}
        for path in made.tree.glob("*.safetensors"):
            rewrite(
                path,
                lambda here: here.update(
                    {name: held[other] for name, other in ((first, second), (second, first)) if name in here}
                ),
            )
        reseal(made.tree)
        found = detail(made.verify(), "source-comparison")
        assert first in found
        assert second in found

    def test_a_tensor_cast_in_silence(self, maker: Maker, tmp_path: Path) -> None:
        made = maker.copy(tmp_path, "gpt2")

        def narrow(held: dict[str, tuple[str, tuple[int, ...], bytes]]) -> None:
            _, shape, data = held[NORM]
            values = torch.frombuffer(bytearray(data), dtype=torch.float32).to(torch.float16)
            held[NORM] = ("F16", shape, values.numpy().tobytes())

        rewrite(made.tree / WEIGHTS, narrow)
        reseal(made.tree)
        assert detail(made.verify(), "source-comparison") == (
            f"{NORM}: recorded as kept, and it is F16 where the source has F32"
        )

    def test_a_wrong_error(self, maker: Maker, tmp_path: Path) -> None:
        made = maker.copy(tmp_path, "gpt2", CAST)
        record(made.tree, said(WTE, max_abs_error="0", max_rel_error=None))
        found = detail(made.verify(), "source-comparison")
        assert f"{WTE}: max_abs_error is recorded as 0, measured" in found
        assert f"{WTE}: max_rel_error is recorded as None" in found

    def test_a_cast_that_truncates(self, maker: Maker, tmp_path: Path) -> None:
        """Rounding is to the nearest: cutting the lower half off is off by a bit here and there."""
        made = maker.copy(tmp_path, "gpt2", CAST)
        whole = contents(maker.whole("gpt2").tree / WEIGHTS)

        def cut(held: dict[str, tuple[str, tuple[int, ...], bytes]]) -> None:
            dtype, shape, _ = held[WTE]
            held[WTE] = (
                dtype,
                shape,
                b"".join(whole[WTE][2][at + 2 : at + 4] for at in range(0, 4 * shape[0] * shape[1], 4)),
            )

        rewrite(made.tree / WEIGHTS, cut)
        reseal(made.tree)
        assert f"{WTE}: its bytes are not those of the source cast to BF16" in detail(
            made.verify(), "source-comparison"
        )

    def test_an_integer_buffer_cast(self, maker: Maker, tmp_path: Path) -> None:
        made = maker.copy(tmp_path, "custom")

        def narrow(held: dict[str, tuple[str, tuple[int, ...], bytes]]) -> None:
            _, shape, data = held["order"]
            values = torch.frombuffer(bytearray(data), dtype=torch.int64).to(torch.bfloat16)
            held["order"] = ("BF16", shape, values.view(torch.uint8).numpy().tobytes())

        rewrite(made.tree / WEIGHTS, narrow)
        record(made.tree, said("order", action=Action.CAST, from_dtype="I64", to_dtype="BF16"))
        assert "order: cast from I64 to BF16; only floating tensors may be cast" in detail(
            made.verify(), "source-comparison"
        )

    def test_a_cast_that_is_recorded_otherwise(self, maker: Maker, tmp_path: Path) -> None:
        made = maker.copy(tmp_path, "gpt2", CAST)
        record(made.tree, said(WTE, from_dtype="F64"))
        report = made.verify()
        assert "recorded as cast from F64 to BF16, and it is F32 to BF16" in detail(report, "source-comparison")

    def test_an_entry_that_nobody_accounts_for(self, maker: Maker, tmp_path: Path) -> None:
        made = maker.copy(tmp_path, "gpt2")
        record(made.tree, lambda one: None if one.target == NORM else one)
        report = made.verify()
        found = detail(report, "source-comparison")
        assert "the source has it, and no transform says what became of it" in found
        assert f"{NORM}: is released, and no transform says where it comes from" in found
        assert "recorded as nothing" in detail(report, "transforms")

    def test_an_entry_left_out_against_the_description(self, maker: Maker, tmp_path: Path) -> None:
        made = maker.copy(tmp_path, "gpt2")
        drop(made.tree / WEIGHTS, NORM)
        record(made.tree, said(NORM, action=Action.OMITTED, target=None, reason="weights.omit: *"))
        report = made.verify()
        assert verdicts(report)["source-comparison"] is Verdict.PASSED  # the record is true
        assert "recorded as omitted (no name), the description makes it kept" in detail(report, "transforms")
        assert f"the architecture needs {NORM}" in detail(report, "structural-load")

    def test_records_that_cannot_be(self, maker: Maker, tmp_path: Path) -> None:
        made = maker.copy(tmp_path, "gpt2")
        first = read_manifest(made.tree).transforms[0]
        more = (
            first,
            Transform(source="ghost", action=Action.KEPT, target="ghost"),
            Transform(source="gone", action=Action.OMITTED, target="gone"),
        )
        reseal(made.tree, transforms=(*read_manifest(made.tree).transforms, *more))
        found = detail(made.verify(), "source-comparison")
        assert f"{first.source}: two transforms are recorded for it" in found
        assert "ghost: recorded as kept, and the source has no such tensor" in found
        assert "gone: recorded as omitted, and as released under gone" in found

    def test_another_shape(self, maker: Maker, tmp_path: Path) -> None:
        made = maker.copy(tmp_path, "gpt2")
        rewrite(made.tree / WEIGHTS, lambda held: held.update({NORM: (held[NORM][0], (4, 4), held[NORM][2])}))
        reseal(made.tree)
        report = made.verify()
        assert f"{NORM}: has shape [4, 4], the source [16]" in detail(report, "source-comparison")
        assert f"{NORM} has shape [4, 4], the architecture [16]" in detail(report, "structural-load")


class TestLoading:
    def test_a_tensor_that_the_architecture_does_not_have(self, maker: Maker, tmp_path: Path) -> None:
        made = maker.copy(tmp_path, "gpt2")
        rewrite(made.tree / WEIGHTS, lambda held: held.update({"transformer.extra": held[NORM]}))
        reseal(made.tree)
        report = made.verify()
        assert "the architecture has no transformer.extra" in detail(report, "structural-load")
        assert verdicts(report)["second-loader"] is verdicts(report)["forward-pass"] is Verdict.NOT_DONE

    def test_a_config_of_another_size(self, maker: Maker, tmp_path: Path) -> None:
        made = maker.copy(tmp_path, "gpt2")
        edit(made.tree / "config.json", lambda config: config.update({"n_layer": 1}))
        reseal(made.tree)
        assert "the architecture has no transformer.h.1." in detail(made.verify(), "structural-load")

    def test_a_config_of_another_model(self, maker: Maker, tmp_path: Path) -> None:
        made = maker.copy(tmp_path, "gpt2")
        edit(made.tree / "config.json", lambda config: config.update({"model_type": "llama"}))
        reseal(made.tree)
        assert "model_type is 'llama', GPT2LMHeadModel needs 'gpt2'" in detail(made.verify(), "structural-load")

    def test_a_config_whose_dtype_lies(self, maker: Maker, tmp_path: Path) -> None:
        made = maker.copy(tmp_path, "gpt2", CAST)
        edit(made.tree / "config.json", lambda config: config.update({"dtype": "float32"}))
        reseal(made.tree)
        assert "dtype is float32" in detail(made.verify(deep=False), "config")

    def test_a_class_that_transformers_does_not_have(self, maker: Maker, tmp_path: Path) -> None:
        made = maker.copy(tmp_path, "gpt2")
        edit(made.tree / "config.json", lambda config: config.update({"architectures": ["OwnForCausalLM"]}))
        reseal(made.tree)
        report = made.verify(description=None, base=None, source=None)
        assert "OwnForCausalLM is no model class of transformers" in detail(report, "structural-load")

    def test_an_adapter_released_as_a_model(self, maker: Maker, tmp_path: Path) -> None:
        made = maker.copy(tmp_path, "adapter")
        reseal(made.tree, kind=Kind.FULL)
        report = made.verify(description=None, base=None, source=None, deep=False)
        assert "released as full, and these are an adapter's tensors" in detail(report, "shards")

    def test_an_adapter_of_another_base(self, maker: Maker, tmp_path: Path) -> None:
        made = maker.copy(tmp_path, "adapter")
        edit(made.tree / "adapter_config.json", lambda config: config.update({"target_modules": ["gate_proj"]}))
        reseal(made.tree)
        assert "the architecture has no base_model.model.model.layers.0.self_attn" in detail(
            made.verify(), "structural-load"
        )

    def test_an_adapters_base_is_the_one_described(self, maker: Maker, tmp_path: Path) -> None:
        made = maker.copy(tmp_path, "adapter")
        changes: dict[str, Any] = {"base_model_name_or_path": "/data/base", "revision": "main"}
        edit(made.tree / "adapter_config.json", lambda config: config.update(changes))
        reseal(made.tree)
        found = detail(made.verify(deep=False), "config")
        assert "base_model_name_or_path is '/data/base'" in found
        assert "revision is 'main'" in found

    def test_a_custom_decoder_labelled_as_a_model_of_transformers(self, maker: Maker, tmp_path: Path) -> None:
        made = maker.copy(tmp_path, "custom")
        labels = {"model_type": "llama", "architectures": ["LlamaForCausalLM"]}
        edit(made.tree / "config.json", lambda config: config.update(labels))
        reseal(made.tree)
        found = detail(made.verify(deep=False), "label")
        assert "model_type 'llama' makes AutoModel take it for its own" in found
        assert "architectures names LlamaForCausalLM" in found

    def test_an_index_that_sends_loaders_to_the_wrong_shard(self, maker: Maker, tmp_path: Path) -> None:
        made = maker.copy(tmp_path, "llama")
        last = max(path.name for path in made.tree.glob("*.safetensors"))
        write_index(made.tree, {"model.embed_tokens.weight": last})
        reseal(made.tree)
        assert f"is said to be in {last}, which does not hold it" in detail(made.verify(deep=False), "shards")
