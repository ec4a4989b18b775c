"""A small clean release, written by hand for the scan: shards by NumPy, a real tokenizer, a rendered card.

    stage = Stage(tmp_path)                  # nothing is wrong with it
    stage.files["config.json"] = b"…"        # put something in, or change stage.description, stage.shards
    report = stage.scan()                    # writes the tree, makes the manifest true to it, scans
    found(report)                            # {(rule, path, place), …} of what blocks

``stage.write()`` and ``stage.scan(write=False)`` leave room for what must be done on disk (links, FIFOs).
"""

import hashlib
import json
import math
import struct
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from replicate import canonical
from replicate.errors import IntegrityFailure
from replicate.formats.safetensors import read_header
from replicate.release.bundle import (
    MANIFEST,
    Exporter,
    ExportManifest,
    Kind,
    PublishedFile,
    PublishedTensor,
    SourceIdentity,
    content_sha256,
)
from replicate.release.carding import CardFacts, render_card
from replicate.release.description import ReleaseDescription
from replicate.release.documents import encode
from replicate.release.expected import Expected
from replicate.release.findings import Finding, Rule, ScanReport, Waiver
from replicate.release.scan.scanning import Identities, scan_tree

NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
IDENTITIES = Identities(
    user="marthe-q",
    host="gpu-node-17.cluster-a",
    run="llm-7b-draft",
    run_uid="9f1c2b7a55d04e1c",
    places=("s3://ckpt-bucket-tiny/prefix", "file:///mnt/volume-x/ckptier", "/home/marthe-q"),
)
GENERATION = "a0001-g000003-u000000000004-1f3a9c2e"
CORPUS = (
    "a model is trained on text and says what comes next",
    "the state after each update is kept on another machine",
    "nothing is published that nobody has looked at",
    "weights, a card, a tokenizer and a license make a release",
)
PROSE = "A very small decoder that exists so that its release can be looked at."
Content = NDArray[Any] | tuple[str, tuple[int, ...], bytes]
_DTYPES = {"float32": "F32", "float16": "F16", "float64": "F64", "int64": "I64", "uint8": "U8", "bool": "BOOL"}

DESCRIPTION: Mapping[str, Any] = {
    "format": 1,
    "kind": "full",
    "name": "tiny-decoder",
    "version": "1.0",
    "code_version": "3f786850e387550fdab836ed7e6dc881de23001b",
    "license": {"id": "apache-2.0"},
    "source": {"files": ["payload.pt"], "entries": "model"},
    "weights": {"tied": [{"keep": "model.embed_tokens.weight", "drop": ["lm_head.weight"]}]},
    "architecture": {"model_class": "LlamaForCausalLM"},
    "files": {
        "config": "config.json",
        "generation_config": "generation_config.json",
        "tokenizer": ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"],
        "chat_template": "chat_template.jinja",
        "license": "LICENSE",
    },
    "card": {
        "title": "Tiny decoder, instruct",
        "summary": PROSE,
        "intended_use": "Tests of loaders. It says nothing that anybody should go by.",
        "limitations": "It was trained for four updates on four sentences and repeats them.",
        "training": "Four updates of AdamW on four sentences, in float32, from a fixed seed.",
        "compute": "Two seconds on one CPU core.",
        "library_name": "transformers",
        "pipeline_tag": "text-generation",
        "language": ["en"],
        "tags": ["conversational"],
        "datasets": ["acme/four-sentences"],
        "evaluation": [
            {
                "task": "text-generation",
                "dataset": "acme/four-sentences",
                "split": "test",
                "metric": "perplexity",
                "value": "12.5",
                "protocol": "Mean over the four sentences, one pass, no prompt.",
                "revision": "c51e7b1f0ad0d0d3a1c1b9a3c5f7e6d8b2a49f03",
            }
        ],
        "emissions": {"grams": "0.2", "source": "estimated from the running time"},
    },
    "destination": {"url": "hf://acme/tiny-decoder", "tag": "v1.0", "visibility": "private"},
}


def normal(seed: int, *shape: int) -> NDArray[np.float32]:
    """Return weights that look trained."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def bf16(values: NDArray[np.float32]) -> Content:
    """Return the same values as BF16, which NumPy does not have."""
    bits = np.ascontiguousarray(values).view(np.uint32) >> np.uint32(16)
    return "BF16", values.shape, bits.astype("<u2").tobytes()


def weights() -> dict[str, dict[str, Content]]:
    """Two shards of a Llama-like model; the head is tied to the embedding and left out."""
    return {
        "model-00001-of-00002.safetensors": {
            "model.embed_tokens.weight": bf16(normal(1, 40, 8)),
            "model.layers.0.input_layernorm.weight": bf16(np.ones(8, np.float32)),
            "model.layers.0.self_attn.q_proj.weight": bf16(normal(2, 8, 8)),
            "model.layers.0.self_attn.q_proj.bias": bf16(np.zeros(8, np.float32)),
        },
        "model-00002-of-00002.safetensors": {
            "model.layers.0.mlp.up_proj.weight": bf16(normal(3, 16, 8)),
            "model.norm.weight": normal(4, 8),
            "model.positions": np.arange(8, dtype=np.int64),
        },
    }


def safetensors_bytes(tensors: Mapping[str, Content], metadata: Mapping[str, str] | None = None) -> bytes:
    """Return a safetensors file; ``metadata`` is what loaders need unless it is said."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"} if metadata is None else dict(metadata)}
    data = b""
    for name, content in tensors.items():
        dtype, shape, raw = content if isinstance(content, tuple) else _raw(content)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    return struct.pack("<Q", len(encoded)) + encoded + data


def _raw(content: NDArray[Any]) -> tuple[str, tuple[int, ...], bytes]:
    return _DTYPES[content.dtype.name], content.shape, content.tobytes()


@cache
def tokenizer_json() -> bytes:
    """Return a tokenizer.json as the library writes it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<s>", "</s>", "<pad>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return str(tokenizer.to_str(pretty=True)).encode()


def small_files() -> dict[str, bytes]:
    """Everything beside weights and card."""
    template = (
        "{%- for message in messages %}\n{{ '<|im_start|>' + message.role + '\\n' + message.content }}<|im_end|>\n"
        "{%- if message.role == 'assistant' %}{% generation %}{{ message.content }}{% endgeneration %}{%- endif %}\n"
        "{%- endfor %}\n"
    )
    documents = {
        "config.json": {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": 40,
            "hidden_size": 8,
            "dtype": "bfloat16",
            "bos_token_id": 0,
            "eos_token_id": 1,
            "tie_word_embeddings": True,
            "transformers_version": "5.0.0",
        },
        "generation_config.json": {
            "do_sample": True, "temperature": 0.7, "top_p": 0.9, "eos_token_id": [1, 4], "max_new_tokens": 64,
            "transformers_version": "5.0.0",
        },
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 64, "bos_token": "<s>",
            "eos_token": "</s>", "pad_token": "<pad>", "clean_up_tokenization_spaces": False,
            "added_tokens_decoder": {"0": {"content": "<s>", "special": True}, "1": {"content": "</s>"}},
        },
        "special_tokens_map.json": {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"},
    }  # fmt: skip
    return {
        **{name: json.dumps(document, indent=2).encode() for name, document in documents.items()},
        "tokenizer.json": tokenizer_json(),
        "chat_template.jinja": template.encode(),
        "LICENSE": b"Apache License\nVersion 2.0, January 2004\nhttp://www.apache.org/licenses/\n",
        ".gitattributes": b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n",
    }


def adapter_description() -> dict[str, Any]:
    """Describe an adapter instead."""
    described = deepcopy(dict(DESCRIPTION))
    described |= {
        "kind": "adapter", "name": "tiny-adapter", "weights": {}, "architecture": {},
        "adapter": {"base_model": "acme/base", "base_revision": "c0ffee00" * 5, "base_license": "apache-2.0"},
        "files": {"adapter_config": "adapter_config.json", "license": "LICENSE"},
    }  # fmt: skip
    described["card"] |= {"title": "Tiny adapter", "tags": [], "library_name": "peft"}
    return described


@dataclass
class Stage:
    """A release that tests change before it is scanned."""

    root: Path
    description: dict[str, Any] = field(default_factory=lambda: deepcopy(dict(DESCRIPTION)))
    shards: dict[str, dict[str, Content]] = field(default_factory=weights)
    metadata: dict[str, str] | None = None
    files: dict[str, bytes] = field(default_factory=small_files)
    contract: dict[str, str] = field(default_factory=lambda: {"config": hashlib.sha256(b"config").hexdigest()})
    identities: Identities = IDENTITIES

    @classmethod
    def adapter(cls, root: Path) -> "Stage":
        """Return an adapter of one LoRA pair."""
        prefix = "base_model.model.model.layers.0.self_attn.q_proj."
        settings = {"peft_type": "LORA", "base_model_name_or_path": "acme/base", "revision": None, "r": 2}
        kept = {name: small_files()[name] for name in ("LICENSE", ".gitattributes")}
        return cls(
            root,
            description=adapter_description(),
            shards={
                "adapter_model.safetensors": {
                    f"{prefix}lora_A.weight": normal(5, 2, 8),
                    f"{prefix}lora_B.weight": normal(6, 8, 2),
                }
            },
            files={**kept, "adapter_config.json": json.dumps(settings).encode()},
        )

    @property
    def tree(self) -> Path:
        return self.root / "tree"

    @property
    def described(self) -> ReleaseDescription:
        return ReleaseDescription.model_validate(self.description)

    def edit(self, name: str, **changes: object) -> None:
        """Change keys of a JSON file; None takes one out."""
        document = json.loads(self.files[name])
        document |= changes
        self.files[name] = json.dumps({key: value for key, value in document.items() if value is not None}).encode()

    def write(self) -> ExportManifest:
        """Write the tree and return the manifest that belongs to it; the manifest lies in it as well."""
        for name, content in {**self._weight_files(), "README.md": b"", **self.files}.items():
            path = self.tree / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        if "README.md" not in self.files:
            (self.tree / "README.md").write_bytes(self.card())
        manifest = self.manifest()
        (self.tree / MANIFEST).write_bytes(encode(manifest))
        return manifest

    def card(self) -> bytes:
        """Return the card that goes with the weights as they are."""
        return render_card(self.described, self.facts())

    def facts(self) -> CardFacts:
        """Count what is in the files."""
        dtypes: dict[str, int] = {}
        for tensor in self.tensors():
            dtypes[tensor.dtype] = dtypes.get(tensor.dtype, 0) + math.prod(tensor.shape)
        return CardFacts(
            parameters=sum(dtypes.values()),
            dtypes=tuple(sorted(dtypes.items())),
            shards=len(self.shards),
            total_bytes=4_096,
            next_update=4,
            generation=GENERATION,
            tensors=len(self.tensors()),
        )

    def manifest(self) -> ExportManifest:
        """Return a manifest of the tree as it is."""
        files = tuple(
            PublishedFile(
                path=path.relative_to(self.tree).as_posix(),
                size=path.stat().st_size,
                sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
            )
            for path in sorted(self.tree.rglob("*"))
            if path.is_file() and not path.is_symlink() and path.name != MANIFEST
        )
        tensors = self.tensors()
        return ExportManifest(
            kind=Kind(self.description["kind"]),
            name=self.description["name"],
            version=self.description["version"],
            license=self.description["license"]["id"],
            source=SourceIdentity(
                generation=GENERATION,
                record_sha256=canonical.sha256(b"record"),
                next_update=4,
                sealed_at="2026-11-29T10:00:00Z",
                contract=self.contract,
            ),
            exporter=Exporter(ckptier="0.1.0", libraries={"safetensors": "0.8.0"}),
            files=tuple(sorted(files, key=lambda one: one.path)),
            tensors=tensors,
            content_sha256=content_sha256(tensors),
            transforms=(),
        )

    def tensors(self) -> tuple[PublishedTensor, ...]:
        """Return what the headers on disk say; a file that has none is left out."""
        listed = []
        for name in self.shards:
            path = self.tree / name
            try:
                header = read_header(path)
            except (IntegrityFailure, FileNotFoundError):
                continue
            data = path.read_bytes()
            listed += [
                PublishedTensor(
                    name=one.name,
                    file=name,
                    dtype=one.dtype,
                    shape=one.shape,
                    sha256=hashlib.sha256(data[one.start : one.end]).hexdigest(),
                )
                for one in header.tensors
            ]
        return tuple(sorted(listed, key=lambda one: (one.name, one.file)))

    def scan(
        self,
        *,
        write: bool = True,
        manifest: ExportManifest | None = None,
        expected: Expected | None = None,
        waivers: tuple[Waiver, ...] = (),
        now: datetime = NOW,
    ) -> ScanReport:
        """Scan the tree."""
        made = self.write() if write else (manifest or self.manifest())
        return scan_tree(
            self.tree,
            self.described,
            manifest or made,
            expected=expected,
            identities=self.identities,
            waivers=waivers,
            now=now,
        )

    def _weight_files(self) -> dict[str, bytes]:
        made = {name: safetensors_bytes(tensors, self.metadata) for name, tensors in self.shards.items()}
        if len(self.shards) > 1 and "model.safetensors.index.json" not in self.files:
            sizes = sum(len(_raw(one)[2] if not isinstance(one, tuple) else one[2]) for _, _, one in self._all())
            index = {
                "metadata": {"total_size": sizes},
                "weight_map": {name: file for file, name, _ in self._all()},
            }
            made["model.safetensors.index.json"] = json.dumps(index).encode()
        return made

    def _all(self) -> list[tuple[str, str, Content]]:
        return [(file, name, one) for file, tensors in self.shards.items() for name, one in tensors.items()]


def found(report: ScanReport, rule: Rule | None = None) -> set[tuple[str, str, str]]:
    """Return (rule, path, place) of what blocks, of one rule where it is named."""
    return {(one.rule.value, one.path, one.place) for one in report.blocking if rule in (None, one.rule)}


def only(report: ScanReport) -> Finding:
    """Return the one finding that blocks."""
    assert len(report.blocking) == 1, report.blocking
    return report.blocking[0]
