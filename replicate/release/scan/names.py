"""Which files a release may hold: an allow-list of names, and words for what is most often in the way."""

import re
from enum import Enum, auto
from pathlib import PurePosixPath

from replicate.release.bundle import MANIFEST, Kind
from replicate.release.findings import Rule
from replicate.release.provenance import FILE as PROVENANCE

MIB = 1024 * 1024
MAX_LONG_BYTES = 64 * MIB
"""The greatest tokenizer.json files of public models have about 35 MB."""
MAX_TEXT_BYTES = 8 * MIB
MAX_CARD_BYTES = MIB
WEIGHTS = re.compile(r"(adapter_)?model(-\d{5}-of-\d{5})?\.safetensors")
SHARD = re.compile(r"(?P<stem>(?:adapter_)?model)-(?P<number>\d{5})-of-(?P<count>\d{5})\.safetensors")


class FileKind(Enum):
    """How a file is read."""

    JSON = auto()
    CARD = auto()
    TEMPLATE = auto()
    TEXT = auto()
    YAML = auto()
    VOCABULARY = auto()
    WEIGHTS = auto()
    BINARY = auto()
    """A tokenizer's compiled model: looked at for its printable runs."""
    UNKNOWN = auto()


_NAMES: dict[FileKind, frozenset[str]] = {
    FileKind.CARD: frozenset({"README.md"}),
    FileKind.TEXT: frozenset(
        {"LICENSE", "LICENSE.txt", "LICENSE.md", "NOTICE", "NOTICE.txt", "NOTICE.md", "USE_POLICY.md", ".gitattributes"}
    ),
    FileKind.JSON: frozenset(
        {
            "config.json", "generation_config.json", "adapter_config.json", "tokenizer.json", "tokenizer_config.json",
            "special_tokens_map.json", "added_tokens.json", "vocab.json", "chat_template.json",
            "preprocessor_config.json", "processor_config.json", "image_processor_config.json",
            "video_preprocessor_config.json", "feature_extractor_config.json", "quantize_config.json",
            "model.safetensors.index.json", "adapter_model.safetensors.index.json", MANIFEST, PROVENANCE,
        }
    ),
    FileKind.TEMPLATE: frozenset({"chat_template.jinja"}),
    FileKind.VOCABULARY: frozenset({"vocab.txt", "merges.txt"}),
    FileKind.BINARY: frozenset(
        {"tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "source.spm", "target.spm"}
    ),
}  # fmt: skip
_PATTERNS = (
    (FileKind.WEIGHTS, WEIGHTS),
    (FileKind.VOCABULARY, re.compile(r"[A-Za-z0-9_-]+\.tiktoken")),
    (FileKind.TEMPLATE, re.compile(r"additional_chat_templates/[A-Za-z0-9_.-]+\.jinja")),
    (FileKind.YAML, re.compile(r"\.eval_results/[A-Za-z0-9_.-]+\.ya?ml")),
)
_FURTHER = {
    ".md": FileKind.TEXT,
    ".txt": FileKind.TEXT,
    ".bib": FileKind.TEXT,
    ".cff": FileKind.YAML,
    ".json": FileKind.JSON,
    ".yaml": FileKind.YAML,
    ".yml": FileKind.YAML,
    ".jinja": FileKind.TEMPLATE,
}
"""Types that a file named in ``files.other`` may have."""
_LONG = frozenset({"tokenizer.json", "vocab.json", "added_tokens.json", "model.safetensors.index.json", MANIFEST})
"""JSON files whose length grows with a vocabulary or with the number of tensors."""
ALLOWED_FOLDERS = frozenset({".eval_results", "additional_chat_templates"})

_CODE = re.compile(
    r".+\.(py|pyc|pyx|so|dll|dylib|sh|bash|bat|ps1|exe|js|jar|ipynb|c|cu|cpp|rs|go|wasm|ptx|cubin)",
    re.IGNORECASE,
)
_PICKLED = re.compile(r".+\.(pt|pth|bin|pkl|pickle|joblib|dill|ckpt|npy|npz|mar|nemo|distcp)", re.IGNORECASE)
_TRAINING = re.compile(
    r"(optimizer|optim|scheduler|lr_scheduler|scaler|rng_state|random_states?|trainer_state|training_args|train_state|"
    r"dataloader|sampler|global_step|zero_pp_rank|mp_rank|checkpoint-\d|iter_\d|generation\.json|lineage\.json|latest$|"
    r"events\.out\.tfevents|wandb|mlruns|tensorboard|runs$|logs?$|\.env|\.git$|\.cache|\.huggingface|\.netrc|\.aws|\.ssh|"
    r"nohup\.out|core\.\d|__pycache__|\.ipynb_checkpoints|\.DS_Store|\.metadata$|hydra|ckptier\.toml|tracker\.sqlite|"
    r"all_results\.json|train_results\.json|eval_results\.json|trainer_log)|.+\.(log|tfevents|sqlite|sqlite3|db|swp|tmp|bak|orig)$",
    re.IGNORECASE,
)


def kind_of(path: str, kind: Kind, further: frozenset[str]) -> FileKind:
    """Return how a file is read; UNKNOWN is not allowed.

    ``further`` are base names that the description names; of them only text types are taken.
    """
    for known, names in _NAMES.items():
        if path in names:
            return known
    for known, pattern in _PATTERNS:
        if pattern.fullmatch(path):
            wrong = known is FileKind.WEIGHTS and path.startswith("adapter_") is not (kind is Kind.ADAPTER)
            return FileKind.UNKNOWN if wrong else known
    if path in further and not path.startswith("."):
        return _FURTHER.get(PurePosixPath(path).suffix.lower(), FileKind.UNKNOWN)
    return FileKind.UNKNOWN


def limit_of(path: str, kind: FileKind) -> int:
    """Return the greatest size in bytes up to which a file is read; weights have none."""
    if path in _LONG or kind in (FileKind.VOCABULARY, FileKind.BINARY):
        return MAX_LONG_BYTES
    return MAX_CARD_BYTES if kind in (FileKind.CARD, FileKind.TEMPLATE) else MAX_TEXT_BYTES


def name_fault(path: str) -> tuple[Rule, str] | None:
    """Say what a name gives away, whatever the file holds; None where it says nothing."""
    if any(_TRAINING.match(name) for name in path.split("/")):
        return Rule.TRAINING_STATE, "is named like training state, a log or a hidden store of it"
    name = path.rpartition("/")[2]
    if _PICKLED.fullmatch(name):
        return Rule.PICKLE, "is named like a file of pickles or arrays; weights are safetensors"
    if _CODE.fullmatch(name):
        return Rule.CODE_FILE, "is named like code"
    return None


def unknown_fault(path: str, kind: Kind) -> str:
    """Say why a file is not on the allow-list."""
    name = path.rpartition("/")[2]
    if WEIGHTS.fullmatch(path):
        return f"is named like other weights than those of kind {kind.value}"
    if name.startswith("."):
        return "is a hidden file"
    if "/" in path:
        return "lies in a folder that releases do not have"
    return "is not on the list of files that a release may hold; name it in files.other, or leave it out"
