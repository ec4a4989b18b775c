"""What the Hub asks of content: which files are large, which are ignored, what a card may say, what must not leak."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

import yaml
from support.hub.objects import RegularFile, Tree

LARGE_FROM = 10 * 1024 * 1024
"""Bytes; a file that is larger than this has to go through LFS."""

_LARGE_SUFFIXES = [
    "7z",
    "arrow",
    "bin",
    "bz2",
    "ckpt",
    "ftz",
    "gz",
    "h5",
    "joblib",
    "model",
    "msgpack",
    "npy",
    "npz",
    "onnx",
    "ot",
    "parquet",
    "pb",
    "pickle",
    "pkl",
    "pt",
    "pth",
    "rar",
    "safetensors",
    "tar",
    "tflite",
    "tgz",
    "wasm",
    "xz",
    "zip",
    "zst",
]
_SECRET = re.compile(rb"\bhf_[A-Za-z0-9]{20,}")
_FRONT_MATTER = re.compile(r"\A(?:\ufeff)?---[ \t]*\r?\n(.*?)\r?\n---[ \t]*(?:\r?\n|\Z)", re.DOTALL)
LICENSES = frozenset(
    [
        "afl-3.0",
        "agpl-3.0",
        "apache-2.0",
        "artistic-2.0",
        "bigscience-bloom-rail-1.0",
        "bigscience-openrail-m",
        "bsd",
        "bsd-2-clause",
        "bsd-3-clause",
        "bsl-1.0",
        "cc",
        "cc-by-2.0",
        "cc-by-3.0",
        "cc-by-4.0",
        "cc-by-nc-4.0",
        "cc-by-nc-nd-4.0",
        "cc-by-nc-sa-4.0",
        "cc-by-nd-4.0",
        "cc-by-sa-3.0",
        "cc-by-sa-4.0",
        "cc0-1.0",
        "creativeml-openrail-m",
        "ecl-2.0",
        "epl-2.0",
        "gemma",
        "gpl",
        "gpl-2.0",
        "gpl-3.0",
        "isc",
        "lgpl",
        "lgpl-2.1",
        "lgpl-3.0",
        "llama2",
        "llama3",
        "llama3.1",
        "llama3.2",
        "mit",
        "mpl-2.0",
        "odbl",
        "openrail",
        "openrail++",
        "other",
        "pddl",
        "unknown",
        "unlicense",
        "wtfpl",
        "zlib",
    ]
)


def initial_files() -> Tree:
    """Return what a new repo holds."""
    patterns = [*(f"*.{suffix}" for suffix in _LARGE_SUFFIXES), "*tfevents*"]
    lines = [f"{pattern} filter=lfs diff=lfs merge=lfs -text" for pattern in patterns]
    return {".gitattributes": RegularFile(content=("\n".join(lines) + "\n").encode())}


def goes_large(tree: Tree, path: str, size: int, sample: bytes) -> bool:
    """Tell whether a file has to go through LFS: by ``.gitattributes``, size, or because it is binary."""
    if size == 0:
        return False
    if size > LARGE_FROM or any(_matches(pattern, path) for pattern in _large_patterns(tree)):
        return True
    return b"\0" in sample or not _is_text(sample)


def _large_patterns(tree: Tree) -> Iterable[str]:
    attributes = tree.get(".gitattributes")
    if isinstance(attributes, RegularFile):
        for line in attributes.content.decode(errors="replace").splitlines():
            if "filter=lfs" in line.split():
                yield line.split()[0]


def _matches(pattern: str, path: str) -> bool:
    whole = pattern.strip("/")
    return fnmatchcase(path if "/" in whole else path.rpartition("/")[2], whole) or path.startswith(f"{whole}/")


def _is_text(sample: bytes) -> bool:
    try:
        sample.decode()
    except UnicodeDecodeError as error:
        return error.start >= len(sample) - 3  # the sample may end within a character
    return True


def is_ignored(path: str, gitignore: str | None, tree: Tree) -> bool:
    """Tell whether a ``.gitignore``, the one sent or the one in the repo, keeps a file out of the commit."""
    stored = tree.get(".gitignore")
    if gitignore is None and isinstance(stored, RegularFile):
        gitignore = stored.content.decode(errors="replace")
    lines = [line.strip() for line in (gitignore or "").splitlines()]
    return any(_matches(line, path) for line in lines if line and not line.startswith("#"))


def find_secret(content: bytes) -> str | None:
    """Return the first thing that looks like one of the Hub's tokens."""
    found = _SECRET.search(content)
    return None if found is None else found.group().decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class CardVerdict:
    """What the Hub thinks of a README's metadata."""

    errors: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def judge_card(text: str) -> CardVerdict:
    """Judge the metadata block of a README: absent is a warning, unreadable or an unknown license an error."""
    block = _FRONT_MATTER.match(text)
    if block is None:
        return CardVerdict(warnings=("empty or missing yaml metadata in repo card",))
    try:
        metadata = yaml.safe_load(block.group(1))
    except yaml.YAMLError as error:
        return CardVerdict(errors=(f"invalid yaml: {' '.join(str(error).split())}",))
    if not isinstance(metadata, Mapping):
        return CardVerdict(errors=("the yaml metadata has to be a mapping",))
    license_ids = metadata.get("license", [])
    named = license_ids if isinstance(license_ids, list) else [license_ids]
    wrong = [name for name in named if name not in LICENSES]
    return CardVerdict(errors=tuple(f'"license" must be one of the known identifiers, not {name!r}' for name in wrong))
