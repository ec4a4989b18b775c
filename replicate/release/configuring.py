"""The configs of a release, from those that the description names: what is set, what is taken out, what is refused.

What a loader goes by is set from what is really written (``architectures``, ``dtype``, an adapter's
base).  What libraries leave there of the machine that they ran on is taken out, at any depth.  What
would have a loader run code is refused.  All else stays as it is, and the scan looks at it.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from replicate.errors import ConfigInvalid
from replicate.release.bundle import Kind
from replicate.release.description import Adapter

LOCAL_KEYS = frozenset(
    {
        "_name_or_path", "name_or_path", "_commit_hash", "_attn_implementation", "_attn_implementation_internal",
        "_attn_implementation_autoset", "_experts_implementation", "_experts_implementation_internal",
        "use_auth_token", "token", "hub_token", "cache_dir", "output_dir", "logging_dir",
    }
)  # fmt: skip
"""Keys that say something about the machine or the training, and nothing about the model."""
CODE_KEYS = frozenset({"auto_map", "custom_pipelines", "trust_remote_code"})
"""Keys that make loaders run code of the repository."""
_AUTO_KEYS = ("model_type", "architectures")
"""What AutoModel goes by."""
_DTYPES = MappingProxyType({"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Configured:
    """A config as it is published, and what was changed in it."""

    data: bytes
    notes: tuple[str, ...]


def parse(data: bytes, *, what: str) -> dict[str, Any]:
    """Read a JSON object; raises ConfigInvalid.  ``what`` is the key of the description."""
    try:
        document = json.loads(data.decode(), object_pairs_hook=_unique, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ConfigInvalid(f"{what}: is not valid JSON: {error}", hint="correct the file") from error
    if not isinstance(document, dict):
        raise ConfigInvalid(f"{what}: holds a {type(document).__name__}, no JSON object", hint="correct the file")
    return document


def model_config(
    data: bytes, *, kind: Kind, model_class: str | None, elements: Mapping[str, int], what: str = "files.config"
) -> Configured:
    """Return config.json; ``elements`` are the elements that are written, by dtype.

    ``dtype`` becomes the floating type that most elements have.  A custom architecture's config must
    have nothing that AutoModel goes by.  Raises ConfigInvalid that names the key.
    """
    document = parse(data, what=what)
    _refuse_code(document, what)
    if kind is Kind.CUSTOM:
        _refuse_auto(document, what)
    else:
        _set_architecture(document, model_class, what)
    dtype = main_dtype(elements)
    notes = _without_local(document)
    if dtype is not None:
        notes += _set_dtype(document, dtype, always=kind is Kind.FULL)
    return _configured(document, notes, what)


def adapter_config(data: bytes, adapter: Adapter, *, what: str = "files.adapter_config") -> Configured:
    """Return adapter_config.json, bound to the base model and its commit that the description names."""
    document = parse(data, what=what)
    _refuse_code(document, what)
    if not isinstance(document.get("peft_type"), str):
        raise ConfigInvalid(f"{what}: has no peft_type", hint="name the adapter_config.json that peft wrote")
    notes = _without_local(document)
    bound = {
        "base_model_name_or_path": adapter.base_model,
        "revision": adapter.base_revision,
        "inference_mode": True,  # as peft sets it when it saves
    }
    for key, value in bound.items():
        if document.get(key) != value:
            notes.append(f"{key} was set to {value}")
            document[key] = value
    return _configured(document, notes, what)


def other_config(data: bytes, *, what: str) -> Configured:
    """Return another JSON config (generation_config.json) without what is of this machine."""
    document = parse(data, what=what)
    _refuse_code(document, what)
    return _configured(document, _without_local(document), what)


def main_dtype(elements: Mapping[str, int]) -> str | None:
    """Return the floating type that most elements have, in torch's words; None where there is none."""
    floating = {dtype: count for dtype, count in elements.items() if dtype in _DTYPES}
    return _DTYPES[max(sorted(floating), key=floating.__getitem__)] if floating else None


def _set_architecture(document: dict[str, Any], model_class: str | None, what: str) -> None:
    declared = document.get("architectures")
    if declared not in (None, [model_class]):
        raise ConfigInvalid(
            f"{what}: architectures is {declared!r}, the description says {model_class}",
            hint="correct architecture.model_class or the config",
        )
    if not isinstance(document.get("model_type"), str):
        raise ConfigInvalid(f"{what}: has no model_type", hint="name the config.json of the model")
    document["architectures"] = [model_class]


def _refuse_auto(document: Mapping[str, Any], what: str) -> None:
    """Refuse what would have AutoModel take a custom architecture for one that it knows."""
    for key in _AUTO_KEYS:
        if key in document:
            raise ConfigInvalid(
                f"{what}: {key}: AutoModel goes by it, and cannot load a custom architecture",
                hint=f"call the key something else, as in decoder_{key}",
            )


def _refuse_code(document: Mapping[str, Any], what: str) -> None:
    found = sorted(key for key, _ in _pairs(document) if key in CODE_KEYS)
    if found:
        raise ConfigInvalid(
            f"{what}: {found[0]}: it makes loaders run code of the repository",
            hint='remove it; an architecture that needs code is released as kind = "custom"',
        )


def _without_local(document: dict[str, Any]) -> list[str]:
    """Take out what is of this machine, wherever it stands."""
    notes = []
    pending: list[Any] = [document]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            for key in sorted(LOCAL_KEYS & set(value)):
                del value[key]
                notes.append(f"{key} was taken out")
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)
    return sorted(set(notes))


def _set_dtype(document: dict[str, Any], dtype: str, *, always: bool) -> list[str]:
    """Make ``dtype`` agree with what is written, also in the configs of parts; the older key goes."""
    notes = []
    parts = [document, *(value for value in document.values() if isinstance(value, dict))]
    for part in parts:
        said = part.pop("torch_dtype", None)
        if "dtype" not in part and said is None and not (always and part is document):
            continue
        if part.get("dtype", said) != dtype:
            notes.append(f"dtype was set to {dtype}")
        part["dtype"] = dtype
    return notes


def _configured(document: Mapping[str, Any], notes: Iterable[str], what: str) -> Configured:
    data = json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False).encode() + b"\n"
    return Configured(data=data, notes=tuple(f"{what}: {note}" for note in notes))


def _pairs(document: Any) -> Iterable[tuple[str, Any]]:
    pending = [document]
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            yield from value.items()
            pending.extend(value.values())
        elif isinstance(value, list):
            pending.extend(value)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a key stands there twice")
    return document


def _no_constant(spelling: str) -> float:
    raise ValueError(f"{spelling} is no number of JSON")
