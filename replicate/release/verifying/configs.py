"""What config and card of a release say about its weights, held against their headers; nothing is executed."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from replicate.errors import CkptierError
from replicate.formats.safetensors import FLOATING, TensorHeader
from replicate.release.bundle import Kind
from replicate.release.description import ReleaseDescription
from replicate.release.verifying.checks import Check, judged
from replicate.release.verifying.plainfiles import read_plain

CHECK = "config"
_DTYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "float64": "F64"}
_EMBEDDING = re.compile(
    r"(^|[._])(embed_tokens|wte|word_embeddings|tok_embeddings|embed|embeddings?|embed_in)\.weight$"
)
_LIBRARY = re.compile(r"^library_name:\s*[\"']?([\w.-]+)", re.MULTILINE)


def read_config(tree: Path, name: str) -> dict[str, Any]:
    """Return a JSON object of the tree; empty where it is absent or is none."""
    try:
        document = json.loads(read_plain(tree / name))
    except (CkptierError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def check_config(
    tree: Path, kind: Kind, tensors: Mapping[str, TensorHeader], description: ReleaseDescription | None
) -> Check:
    """Check the config against the kind of release and the dtypes of its weights."""
    name = "adapter_config.json" if kind is Kind.ADAPTER else "config.json"
    config = read_config(tree, name)
    faults = [] if config else [f"{name} is missing or is no JSON object"]
    faults += _label_faults(tree, kind, config)
    if kind is Kind.FULL:
        faults += _class_faults(config, description)
    if kind is Kind.ADAPTER:
        faults += _adapter_faults(config, description)
    else:
        faults += _dtype_faults(config, tensors)
    said = config.get("dtype") or config.get("torch_dtype")
    about = f"dtype {said}" if said else "no dtype of its own: loaders take that of the weights"
    return judged(CHECK, faults, f"{name} fits the weights ({about})")


def _label_faults(tree: Path, kind: Kind, config: Mapping[str, Any]) -> Iterator[str]:
    """Code is never part of a release, so nothing may ask loaders to run some."""
    if config.get("auto_map"):
        yield "config.json has auto_map: it asks loaders to run code that is not part of a release"
    if kind is Kind.CUSTOM and library_name(tree) == "transformers":
        yield "README.md: library_name is transformers, which cannot load a custom architecture"


def library_name(tree: Path) -> str | None:
    """Return ``library_name`` of the card's front matter."""
    try:
        text = read_plain(tree / "README.md").decode()
    except (CkptierError, UnicodeDecodeError):
        return None
    _, fence, rest = text.partition("---\n")
    found = _LIBRARY.search(rest.partition("\n---")[0]) if fence else None
    return found[1] if found else None


def _class_faults(config: Mapping[str, Any], description: ReleaseDescription | None) -> Iterator[str]:
    named = config.get("architectures")
    if not isinstance(named, list) or len(named) != 1 or not isinstance(named[0], str):
        yield f"config.json: architectures is {named!r}, one class is due"
        return
    wanted = description.architecture.model_class if description else None
    if wanted not in (None, named[0]):
        yield f"config.json: architectures names {named[0]}, the description {wanted}"


def _adapter_faults(config: Mapping[str, Any], description: ReleaseDescription | None) -> Iterator[str]:
    adapter = description.adapter if description else None
    said = config.get("base_model_name_or_path")
    if adapter is not None and said != adapter.base_model:
        yield f"adapter_config.json: base_model_name_or_path is {said!r}, the description says {adapter.base_model}"
    if adapter is not None and config.get("revision") not in (None, adapter.base_revision):
        yield f"adapter_config.json: revision is {config['revision']!r}, the description says {adapter.base_revision}"
    if not said:
        yield "adapter_config.json: base_model_name_or_path is missing"


def _dtype_faults(config: Mapping[str, Any], tensors: Mapping[str, TensorHeader]) -> Iterator[str]:
    """Take the dtype of most floating elements: norms may be kept in another one."""
    said = config.get("dtype", config.get("torch_dtype"))
    if said is None:
        return
    elements: dict[str, int] = {}
    for tensor in tensors.values():
        if tensor.dtype in FLOATING:
            elements[tensor.dtype] = elements.get(tensor.dtype, 0) + tensor.elements
    if not elements:
        return
    most = max(elements, key=lambda dtype: elements[dtype])
    if _DTYPES.get(str(said).removeprefix("torch.")) != most:
        yield f"config.json: dtype is {said}, {elements[most]} of {sum(elements.values())} floating elements are {most}"


def embedding_rows(
    tree: Path, kind: Kind, tensors: Mapping[str, TensorHeader], base: Path | None
) -> tuple[int | None, str]:
    """Return the rows of the input embedding and where that is from; None where it cannot be told."""
    found = [tensor for name, tensor in sorted(tensors.items()) if _EMBEDDING.search(name) and len(tensor.shape) == 2]  # noqa: PLR2004 - rows and columns
    if found:
        return found[0].shape[0], found[0].name
    config = read_config(base or tree, "config.json") if base or kind is not Kind.ADAPTER else {}
    rows = config.get("vocab_size")
    return (rows, "vocab_size of the config") if type(rows) is int else (None, "unknown")
