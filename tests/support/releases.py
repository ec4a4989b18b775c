"""Tiny real models, trained for two updates, as sealed generations with a release description each.

    built = gpt2(tmp_path)             # also: llama, moe, adapter, custom, or BUILDERS[name]
    built.run, built.generation        # the run's folder and the generation in it
    built.description                  # …/release.toml, beside everything that it names
    built.logits()                     # what the trained model says to PROMPT
    bad = variant(built, tmp_path / "bad", {"license.id": "no-such-license", "card.summary": None})

Nothing is downloaded: models come from configs, the tokenizer from an alphabet of bytes.
"""

import json
import shutil
import sys
import tomllib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from support.toml_text import toml
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging as transformers_logging

from replicate import RunStore
from replicate.integrations.torch import TrainingState, contract_of, publish
from replicate.layout import GenerationId, LocalRun
from replicate.manifest import Experiment
from replicate.release.description import ReleaseDescription, load_description
from replicate.release.expected import Expected
from replicate.release.source import SourceGeneration, open_local
from tiers.testing.manual_clock import ManualClock

VOCABULARY = 260
"""Four special tokens and one for each byte."""
POSITIONS = 64
PROMPT = torch.tensor([[0, 72, 105, 40, 9, 200]])
BASE_REVISION = "0123456789abcdef0123456789abcdef01234567"
BASE_MODEL = "acme/tiny-base"
NEXT_UPDATE = 2


@dataclass(frozen=True, kw_only=True)
class Built:
    """A run with one sealed, validated generation, the model that it holds, and a folder that describes its release."""

    name: str
    run: Path
    generation: GenerationId
    model: torch.nn.Module
    folder: Path

    @property
    def local(self) -> LocalRun:
        return LocalRun(self.run)

    @property
    def description(self) -> Path:
        return self.folder / "release.toml"

    def logits(self) -> torch.Tensor:
        return logits(self.model)

    def described(self) -> ReleaseDescription:
        return load_description(self.description)

    def source(self) -> SourceGeneration:
        return open_local(self.local, self.generation)

    def fresh_model(self) -> torch.nn.Module:
        """Build the architecture anew, with other weights; not for an adapter."""
        if self.name == "tiny-custom":
            return load_factory(self.folder / "code", "decoder:build")(
                json.loads((self.folder / "config.json").read_text())
            )
        with torch.random.fork_rng():
            return type(self.model)(self.model.config)


def logits(model: torch.nn.Module) -> torch.Tensor:
    """Return what a model says to PROMPT; transformers' classes wrap it, a custom decoder does not."""
    with torch.no_grad():
        answer = model.eval()(PROMPT)
    return answer if isinstance(answer, torch.Tensor) else answer.logits


def gpt2(where: Path, *, plant: str = "") -> Built:
    """Tied embeddings; a torch payload whose names carry ``_orig_mod.module.`` (compiled over DataParallel)."""
    model = _seeded(lambda: GPT2LMHeadModel(GPT2Config(
        vocab_size=VOCABULARY, n_positions=POSITIONS, n_embd=16, n_layer=2, n_head=2,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=1, pad_token_id=3,
    )))  # fmt: skip
    wrapped: Any = torch.compile(torch.nn.DataParallel(model), backend="eager")
    generation = _train_and_publish(where, "tiny-gpt2", model, wrapped, plant)
    described = _described("tiny-gpt2", "full", {
        "source": {"files": ["payload.pt"], "entries": "model"},
        "weights": {"tied": [{"keep": "transformer.wte.weight", "drop": ["lm_head.weight"]}]},
        "architecture": {"model_class": "GPT2LMHeadModel"},
    })  # fmt: skip
    return _write(where, "tiny-gpt2", generation, model, described)


def llama(where: Path, *, plant: str = "") -> Built:
    """Several shards; a folder as a trainer of transformers leaves it: safetensors, optimizer.pt, RNG with numpy."""
    model = _seeded(lambda: LlamaForCausalLM(_llama_config()))
    optimizer = _train(model)
    _plant(optimizer, plant)
    store = _store(where, "tiny-llama")
    publication = store.publish(next_update=NEXT_UPDATE, **_said(plant))
    with publication as directory:
        _quietly_save(model, directory, max_shard_size="40KB")
        torch.save(optimizer.state_dict(), directory / "optimizer.pt")
        randomness = {"numpy": np.random.default_rng(1).bit_generator.state, "cpu": torch.get_rng_state()}
        randomness["legacy"] = np.arange(8)  # what weights_only refuses
        torch.save({**randomness, "plant": plant}, directory / "rng_state_0.pth")
        (directory / "trainer_state.json").write_text(json.dumps({"global_step": NEXT_UPDATE, "plant": plant}))
    assert publication.generation is not None
    described = _described("tiny-llama", "full", {
        "source": {"files": ["model-*.safetensors"]},
        "weights": {"max_shard_size": "30KB"},
        "architecture": {"model_class": "LlamaForCausalLM"},
    })  # fmt: skip
    return _write(where, "tiny-llama", publication.generation.id, model, described)


def moe(where: Path, *, plant: str = "") -> Built:
    """Three experts, of which a token sees two; saved under ``module.``."""
    model = _seeded(lambda: MixtralForCausalLM(MixtralConfig(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, num_local_experts=3, num_experts_per_tok=2, max_position_embeddings=POSITIONS,
        bos_token_id=0, eos_token_id=1, pad_token_id=3, tie_word_embeddings=False,
    )))  # fmt: skip
    generation = _train_and_publish(where, "tiny-moe", model, torch.nn.DataParallel(model), plant)
    described = _described("tiny-moe", "full", {
        "source": {"files": ["payload.pt"], "entries": "model"},
        "weights": {},
        "architecture": {"model_class": "MixtralForCausalLM"},
    })  # fmt: skip
    return _write(where, "tiny-moe", generation, model, described)


def adapter(where: Path, *, plant: str = "") -> Built:
    """LoRA over a local base; the payload holds the whole model, of which only the adapter may be released."""
    base = _seeded(lambda: LlamaForCausalLM(_llama_config()))
    _quietly_save(base, where / "base")
    config = LoraConfig(r=2, lora_alpha=4, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    base.name_or_path = str(where / "base")  # what from_pretrained leaves there: a path of this machine
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "`is_gradient_checkpointing` is deprecated", FutureWarning)  # peft 0.21.2
        model: PeftModel = _seeded(lambda: get_peft_model(base, config))
    generation = _train_and_publish(where, "tiny-adapter", model, model, plant)
    described = _described("tiny-adapter", "adapter", {
        "source": {"files": ["payload.pt"], "entries": "model"},
        "weights": {"omit": ["*.base_layer.weight", "*.[ko]_proj.weight", "*.mlp.*", "*norm.weight",
                             "*.embed_tokens.weight", "*.lm_head.weight"]},
        "adapter": {"base_model": BASE_MODEL, "base_revision": BASE_REVISION, "base_license": "apache-2.0",
                    "base_path": "base"},
    })  # fmt: skip
    built = _write(where, "tiny-adapter", generation, model, described)
    model.peft_config["default"].save_pretrained(str(built.folder))
    shutil.copytree(where / "base", built.folder / "base")
    return built


def custom(where: Path, *, plant: str = "", scale: float = 1.0) -> Built:
    """Build a decoder of its own: an int64 buffer, a boolean one, and a buffer that is a view of something larger.

    ``scale`` multiplies head.weight, for values that a smaller type cannot hold.
    """
    folder = where / "release"
    (folder / "code").mkdir(parents=True)
    (folder / "code" / "decoder.py").write_text(DECODER)
    settings = {"vocabulary": VOCABULARY, "width": 16, "layers": 2, "positions": POSITIONS, "norm_epsilon": 1e-5}
    model = _seeded(lambda: load_factory(folder / "code", "decoder:build")(settings))
    with torch.no_grad():
        model.head.weight.mul_(scale)
    generation = _train_and_publish(where, "tiny-custom", model, model, plant)
    described = _described("tiny-custom", "custom", {
        "source": {"files": ["payload.pt"], "entries": "model"},
        "weights": {},
        "architecture": {"factory": "decoder:build", "code": "code"},
    })  # fmt: skip
    described["card"]["library_name"] = "pytorch"
    return _write(where, "tiny-custom", generation, model, described, config=settings)


BUILDERS: Mapping[str, Callable[..., Built]] = {
    "gpt2": gpt2, "llama": llama, "moe": moe, "adapter": adapter, "custom": custom,
}  # fmt: skip

DECODER = Path(__file__).with_name("tiny_decoder.py").read_text(encoding="utf-8")


def load_factory(code: Path, factory: str) -> Callable[[Any], torch.nn.Module]:
    """Return ``module:function`` of a folder, under a name that no other module has."""
    module_name, function = factory.split(":")
    spec = spec_from_file_location(f"tiny_{module_name}", code / f"{module_name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = writes
    return getattr(module, function)  # type: ignore[no-any-return]


def expected_of(built: Built) -> Expected:
    """Return what the architecture is, taken from the model itself: what release code asks a process of its own."""
    tied = getattr(built.model, "_tied_weights_keys", None) or {}
    state = built.model.state_dict()
    if isinstance(built.model, PeftModel):
        state = get_peft_model_state_dict(built.model, save_embedding_layers=False)
    return Expected(
        shapes={name: tuple(tensor.shape) for name, tensor in state.items()},
        tied=tuple((keep, (drop,)) for drop, keep in tied.items() if built.name == "tiny-gpt2"),
    )


def variant(built: Built, to: Path, changes: Mapping[str, Any]) -> Built:
    """Copy the folder and change its description: ``{"license.id": "mit", "weights.cast": None}``; None deletes."""
    shutil.copytree(built.folder, to)
    tweak(to / "release.toml", changes)
    return replace(built, folder=to)


def tweak(description: Path, changes: Mapping[str, Any]) -> Path:
    """Change a description by dotted key; a number is a place in an array."""
    document = tomllib.loads(description.read_text(encoding="utf-8"))
    for key, value in changes.items():
        *above, last = key.split(".")
        table: Any = document
        for part in above:
            table = table[int(part)] if isinstance(table, list) else table.setdefault(part, {})
        if value is None:
            del table[last]
        else:
            table[last] = value
    description.write_text(toml(document), encoding="utf-8")
    return description


def _llama_config() -> LlamaConfig:
    return LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=POSITIONS, bos_token_id=0, eos_token_id=1, pad_token_id=3,
        tie_word_embeddings=False,
    )  # fmt: skip


def _seeded(build: Callable[[], Any]) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(20260101)
        return build()


def _train(model: torch.nn.Module) -> torch.optim.AdamW:
    """Take two real updates, so that there are moments to leak."""
    optimizer = torch.optim.AdamW([one for one in model.parameters() if one.requires_grad], lr=0.01)
    for step in range(NEXT_UPDATE):
        answer = model(PROMPT + step)
        said = answer if isinstance(answer, torch.Tensor) else answer.logits
        loss = torch.nn.functional.cross_entropy(said[0, :-1], PROMPT[0, 1:])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    return optimizer


def _train_and_publish(
    where: Path, name: str, model: torch.nn.Module, saved: torch.nn.Module, plant: str
) -> GenerationId:
    optimizer = _train(model)
    _plant(optimizer, plant)
    generators = {"noise": torch.Generator().manual_seed(7), "numpy": np.random.default_rng(7)}
    training = TrainingState(
        model=saved, optimizer=optimizer, next_update=NEXT_UPDATE, tokens_seen=12,
        generators=generators, extra={"plant": plant},
    )  # fmt: skip
    generation = publish(_store(where, name), training, **_said(plant))
    assert generation is not None
    return generation.id


def _store(where: Path, name: str) -> RunStore:
    return RunStore(where / "runs" / name, clock=ManualClock())


def _said(plant: str) -> dict[str, Any]:
    contract = contract_of(config={"lr": 0.01}, tokenizer="bytes")
    if not plant:
        return {"contract": contract}
    return {
        "contract": {**contract, "data": f"/data/{plant}"},
        "environment": {"node": plant},
        "experiment": Experiment(system="curves", run_id=plant, logging_step=NEXT_UPDATE),
    }


def _plant(optimizer: torch.optim.AdamW, plant: str) -> None:
    """Put the words into the bytes of the first moment that has room for them."""
    data = plant.encode()
    data += b"\0" * (-len(data) % 4)
    for state in optimizer.state.values():
        moment = state["exp_avg"]
        if moment.numel() * 4 >= len(data):
            moment.view(-1)[: len(data) // 4] = torch.frombuffer(bytearray(data), dtype=torch.float32) if data else 0
            return


def _quietly_save(model: Any, to: Path, **options: Any) -> None:
    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    model.save_pretrained(to, **options)
    transformers_logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _described(name: str, kind: str, parts: Mapping[str, Any]) -> dict[str, Any]:
    files: dict[str, Any] = {
        "tokenizer": ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"],
        "chat_template": "chat_template.jinja",
        "license": "LICENSE",
    }
    if kind == "adapter":
        files["adapter_config"] = "adapter_config.json"
    else:
        files["config"] = "config.json"
    if kind == "full":
        files["generation_config"] = "generation_config.json"
    return {
        "format": 1, "kind": kind, "name": name, "version": "1.0.0", "code_version": "trainer 3.1.4",
        "license": {"id": "apache-2.0"}, **parts, "files": files, "card": _card(name, kind),
        "destination": {"url": f"hf://acme/{name}", "visibility": "private", "tag": "v1.0.0"},
    }  # fmt: skip


def _card(name: str, kind: str) -> dict[str, Any]:
    card: dict[str, Any] = {
        "title": name.replace("-", " "),
        "summary": "A very small language model over bytes, trained for two updates.",
        "intended_use": "Checking that release tooling carries weights from training to a loader unchanged.",
        "limitations": "It has seen twelve tokens and does not write sensible text in any language.",
        "training": "Two AdamW updates at a learning rate of 0.01 on one sequence of six tokens.",
        "compute": "Two processor cores for less than a second.",
        "library_name": "peft" if kind == "adapter" else "transformers",
        "pipeline_tag": "text-generation", "language": ["en"], "tags": ["tiny"], "datasets": ["acme/six-tokens"],
        "evaluation": [{
            "task": "text-generation", "dataset": "acme/six-tokens", "split": "test", "metric": "perplexity",
            "value": "241.5", "protocol": "Mean over one sequence, teacher forcing, no padding.",
        }],
    }  # fmt: skip
    return {**card, "base_model": [BASE_MODEL], "base_model_relation": "adapter"} if kind == "adapter" else card


def _write(
    where: Path,
    name: str,
    generation: GenerationId,
    model: Any,
    described: Mapping[str, Any],
    *,
    config: Mapping[str, Any] | None = None,
) -> Built:
    folder = where / "release"
    folder.mkdir(parents=True, exist_ok=True)
    if config is not None:
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    elif described["kind"] == "full":
        model.config.architectures = [type(model).__name__]
        model.config.save_pretrained(folder)
        model.generation_config.save_pretrained(folder)
    _tokenizer(folder)
    (folder / "LICENSE").write_text("Licensed under the Apache License, Version 2.0.\n")
    (folder / "release.toml").write_text(toml(described), encoding="utf-8")
    return Built(name=name, run=where / "runs" / name, generation=generation, model=model.eval(), folder=folder)


def _tokenizer(folder: Path) -> None:
    """Write a real byte-level tokenizer, as transformers 5 does, and the map of special tokens of earlier versions."""
    special = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate([*special.values(), *alphabet])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast: Any = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=tokenizer, model_max_length=POSITIONS, **special
    )
    fast.chat_template = "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
    fast.save_pretrained(folder)
    (folder / "special_tokens_map.json").write_text(json.dumps(special, indent=2) + "\n")
