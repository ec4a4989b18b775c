"""Reading a state dict from a generation, without running anything that lies in it.

A file of torch is loaded in a limited process of its own first (replicate.generation.torch_check),
then here, both with ``weights_only=True``; there is no other way in.  Tensors stay in the file
(mmap) until they are written.  Of a generation's files only those that are named are opened.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

import torch
from safetensors import SafetensorError, safe_open

from replicate.errors import CapabilityMissing, ConfigInvalid, IntegrityFailure, NothingFound
from replicate.formats.safetensors import FileHeader, read_header
from replicate.generation.validate import Limits, load_fault
from replicate.release.description import Source
from replicate.release.source import SourceGeneration
from replicate.release.weights.dtypes import NAMED
from replicate.release.weights.naming import listed
from replicate.release.weights.stored import StoredTensor

TORCH_SUFFIXES = frozenset({".pt", ".pth", ".bin", ".ckpt"})
SAFETENSORS = ".safetensors"
_SLACK = 1 << 20
"""Bytes that a tensor may have beyond its storage: small ones are expanded in earnest, large ones to fill memory."""


class StateDict(Protocol):
    """A state dict whose tensors are read when they are asked for."""

    @property
    def entries(self) -> tuple[StoredTensor, ...]:
        """Every entry, tensors or not."""
        ...

    def tensor(self, name: str) -> torch.Tensor:
        """Return one tensor; its bytes may still lie in the file."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchStateDict:
    """From a file of torch."""

    values: Mapping[str, Any]
    entries: tuple[StoredTensor, ...]

    def tensor(self, name: str) -> torch.Tensor:
        """Return one tensor, detached."""
        value: torch.Tensor = self.values[name].detach()
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class SafetensorsStateDict:
    """From safetensors files, each name in one of them."""

    files: Mapping[str, Path]
    entries: tuple[StoredTensor, ...]

    def tensor(self, name: str) -> torch.Tensor:
        """Return one tensor."""
        with _opened(self.files[name]) as file:
            value: torch.Tensor = file.get_tensor(name)
        return value


def read_state(source: SourceGeneration, wanted: Source, *, limits: Limits | None = None) -> StateDict:
    """Open the state dict that a description names.

    Raises ConfigInvalid for files or entries that are not there (with what is), NothingFound where
    there is no tensor at all, and IntegrityFailure for what cannot be loaded safely.
    """
    paths = chosen_files(source, wanted)
    suffixes = {PurePosixPath(path).suffix for path in paths}
    if suffixes == {SAFETENSORS}:
        if wanted.entries:
            raise ConfigInvalid(
                f"source.entries: {wanted.entries!r}: safetensors files hold tensors and nothing else",
                hint="leave source.entries out",
            )
        state: StateDict = _from_safetensors(source, paths)
    elif len(paths) == 1 and suffixes <= TORCH_SUFFIXES:
        state = _from_torch(source.files / paths[0], paths[0], wanted.entries, limits or Limits())
    else:
        raise ConfigInvalid(
            f"source.files: {listed(paths)}: neither one file of torch nor safetensors files alone",
            hint=f"name one of {', '.join(sorted(TORCH_SUFFIXES))}, or the {SAFETENSORS} files",
        )
    if not any(entry.dtype for entry in state.entries):
        raise NothingFound(
            f"source.files: {listed(paths)} of {source.id} holds no tensor: a generation without weights",
            hint="name the files of the model in source.files, and the state dict in source.entries",
        )
    return state


def chosen_files(source: SourceGeneration, wanted: Source) -> tuple[str, ...]:
    """Return the paths that the patterns name, in order; raises ConfigInvalid for a pattern that names none."""
    every = [file.path for file in source.record.files]
    for pattern in wanted.files:
        if not any(fnmatchcase(path, pattern) for path in every):
            raise ConfigInvalid(
                f"source.files: {pattern!r} is no file of {source.id}", hint=f"its files: {listed(every)}"
            )
    return tuple(path for path in every if any(fnmatchcase(path, pattern) for pattern in wanted.files))


def _from_torch(path: Path, name: str, entries: str, limits: Limits) -> TorchStateDict:
    fault = load_fault(path, name, limits=limits)
    if fault:
        raise IntegrityFailure(
            f"{fault} (it was loaded with weights_only=True, and nothing in it was run)",
            hint="save the model's state dict alone, with torch.save or as safetensors, and publish that generation",
        )
    try:
        document = torch.load(path, weights_only=True, map_location="cpu", mmap=True)
    except Exception as error:
        raise IntegrityFailure(f"{name} changed while it was read: {error}", hint="run it again") from error
    values = _walk(document, entries, name)
    described = tuple(stored_tensor(str(key), value) for key, value in values.items())
    for entry, value in zip(described, values.values(), strict=True):
        if entry.dtype and entry.size > value.untyped_storage().nbytes() + _SLACK:
            raise IntegrityFailure(
                f"{name}: {entry.name} claims {entry.size} bytes and has {value.untyped_storage().nbytes()} behind it",
                hint="save it as contiguous()",
            )
    return TorchStateDict(values={str(key): value for key, value in values.items()}, entries=described)


def _walk(document: Any, entries: str, name: str) -> Mapping[Any, Any]:
    """Follow the dotted path; a key may itself have dots."""
    here, rest = document, entries
    while rest:
        keys = [str(key) for key in here] if isinstance(here, Mapping) else []
        step = next((key for key in sorted(keys, key=len, reverse=True) if f"{rest}.".startswith(f"{key}.")), None)
        if step is None:
            done = entries.removesuffix(rest).rstrip(".")
            raise ConfigInvalid(
                f"source.entries: {name} has no {rest!r}{f' in {done!r}' if done else ''}",
                hint=f"there is: {listed(keys)}" if keys else f"there is a {type(here).__name__}, which has no entries",
            )
        here, rest = next(value for key, value in here.items() if str(key) == step), rest[len(step) + 1 :]
    if not isinstance(here, Mapping):
        raise ConfigInvalid(
            f"source.entries: {entries or 'the file itself'} in {name} is a {type(here).__name__}, no state dict",
            hint="name the entry that holds the tensors by name",
        )
    inner = [str(key) for key, value in here.items() if isinstance(value, Mapping)]
    if inner and not any(isinstance(value, torch.Tensor) for value in here.values()):
        raise ConfigInvalid(
            f"source.entries: {entries or 'the file itself'} in {name} holds no tensors, only {listed(map(str, here))}",
            hint=f"name one of {', '.join(f'{entries}.{key}' if entries else key for key in sorted(inner))}",
        )
    return here


def stored_tensor(name: str, value: Any) -> StoredTensor:
    """Describe an entry of a state dict in memory; what is no plain dense tensor is marked unfit."""
    unfit = _unfit(value)
    if unfit:
        return StoredTensor(name=name, unfit=unfit)
    return StoredTensor(
        name=name,
        dtype=NAMED[value.dtype],
        shape=tuple(value.shape),
        storage=value.untyped_storage().data_ptr(),
        offset=value.storage_offset() * value.element_size(),
        strides=tuple(value.stride()),
    )


def _unfit(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return f"a {type(value).__name__}, no tensor"
    if type(value) not in (torch.Tensor, torch.nn.Parameter):
        return f"a {type(value).__name__}, no plain tensor"
    if value.layout is not torch.strided or value.is_quantized:
        return "a sparse or quantized tensor of torch"
    if value.is_meta or value.is_conj() or value.is_neg():
        return "a tensor without bytes of its own"
    return "" if value.dtype in NAMED else f"of dtype {value.dtype}, which safetensors does not have"


def _from_safetensors(source: SourceGeneration, paths: Sequence[str]) -> SafetensorsStateDict:
    files: dict[str, Path] = {}
    entries: list[StoredTensor] = []
    for path in paths:
        header: FileHeader = read_header(source.files / path, what=path)
        for tensor in header.tensors:
            if tensor.name in files:
                raise ConfigInvalid(
                    f"source.files: {tensor.name} is in {files[tensor.name].name} and in {path}",
                    hint="name the files of one model",
                )
            files[tensor.name] = source.files / path
            known = tensor.dtype in NAMED.values()
            entries.append(
                StoredTensor(
                    name=tensor.name,
                    dtype=tensor.dtype if known else "",
                    shape=tensor.shape,
                    storage=len(files),
                    strides=_contiguous(tensor.shape),
                    unfit="" if known else f"of dtype {tensor.dtype}, which this version does not write",
                )
            )
    return SafetensorsStateDict(files=files, entries=tuple(entries))


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    strides = [1]
    for length in reversed(shape[1:]):
        strides.append(strides[-1] * length)
    return tuple(reversed(strides)) if shape else ()


def _opened(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt", device="cpu")
    except SafetensorError as error:
        raise IntegrityFailure(f"{path.name}: {error}", hint="restore the generation from a tier") from error
    except OSError as error:
        raise CapabilityMissing(f"{path.name} cannot be mapped: {error}", hint="copy it to a local disk") from error
