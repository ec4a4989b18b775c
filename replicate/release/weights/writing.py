"""Writing a plan as safetensors: shards and index as huggingface_hub divides them, one shard in memory at a time.

The same plan and source give the same bytes: tensors go in by name, and each file has exactly one
metadata key (several would be written in random order).  Sizes are those of the data, never of
the buffers behind it, and no file or index repeats the names of tied tensors.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from huggingface_hub import split_state_dict_into_shards_factory
from safetensors import SafetensorError
from safetensors.torch import save_file

from replicate.errors import ConfigInvalid, IntegrityFailure, LocalDisk
from replicate.formats.safetensors import read_header
from replicate.generation.disk import local_io, write_new
from replicate.release.bundle import Kind
from replicate.release.weights.casting import cast_tensor, same_bytes
from replicate.release.weights.dtypes import NAMED
from replicate.release.weights.plan import CastError, PlannedTensor, TransformPlan
from replicate.release.weights.reading import StateDict

METADATA = {"format": "pt"}
"""What loaders look for; the only metadata of every file."""
PATTERNS = {
    Kind.FULL: "model{suffix}.safetensors",
    Kind.CUSTOM: "model{suffix}.safetensors",
    Kind.ADAPTER: "adapter_model{suffix}.safetensors",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What was written: ``shards`` in order, ``total_size`` bytes of tensor data, and ``errors`` of casts by name."""

    shards: tuple[str, ...]
    index: str | None
    total_size: int
    errors: Mapping[str, CastError]


def write_weights(plan: TransformPlan, state: StateDict, folder: Path, *, kind: Kind, max_shard_size: str) -> Written:
    """Write the weights into an empty folder.

    Raises ConfigInvalid for tied tensors that differ and for a cast that loses values, and LocalDisk
    where writing fails.
    """
    _compare_ties(plan, state)
    sizes = {one.target: one.size for one in plan.tensors}
    split = split_state_dict_into_shards_factory(
        sizes,
        get_storage_size=lambda size: size,
        filename_pattern=PATTERNS[kind],
        max_shard_size=shard_bytes(max_shard_size),
    )
    if kind is Kind.ADAPTER and split.is_sharded:
        raise ConfigInvalid(
            f"weights.max_shard_size: {max_shard_size} divides the adapter, and peft loads one file only",
            hint=f"raise it above {sum(sizes.values())} bytes",
        )
    planned = {one.target: one for one in plan.tensors}
    errors: dict[str, CastError] = {}
    for name, targets in split.filename_to_tensors.items():
        _write_shard(folder / name, [planned[target] for target in targets], state, errors)
    index = None
    if split.is_sharded:
        index = PATTERNS[kind].format(suffix="") + ".index.json"
        write_new(folder / index, _index(folder, split.tensor_to_filename))
    return Written(shards=tuple(split.filename_to_tensors), index=index, total_size=sum(sizes.values()), errors=errors)


def shard_bytes(text: str) -> int:
    """Read ``5GB`` as a number of bytes; units are decimal, as everywhere on the Hub."""
    number = text.rstrip("BKMGT")
    units = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
    return int(number) * units[text.removeprefix(number)]


def _compare_ties(plan: TransformPlan, state: StateDict) -> None:
    for alias in plan.aliases:
        if not alias.shared and not same_bytes(state.tensor(alias.source), state.tensor(alias.of_source)):
            raise ConfigInvalid(
                f"weights.tied: {alias.target} and {alias.of} are declared as tied, and their bytes differ",
                hint="they were trained apart: remove the entry, and publish both",
            )


def _write_shard(path: Path, planned: Iterable[PlannedTensor], state: StateDict, errors: dict[str, CastError]) -> None:
    tensors = {}
    for one in planned:
        tensors[one.target] = _released(one, state.tensor(one.source), errors)
    try:
        with local_io(path, f"writing {path.name}"):
            save_file(tensors, path, metadata=METADATA)
    except SafetensorError as error:
        raise LocalDisk(
            f"{path.name} cannot be written: {error}", hint=f"check space and mount of {path.parent}"
        ) from error
    found = {one.name: (one.dtype, one.shape) for one in read_header(path).tensors}
    if found != {name: (NAMED[one.dtype], tuple(one.shape)) for name, one in tensors.items()}:
        raise IntegrityFailure(f"{path.name} does not hold what was written into it", hint="run it again")


def _released(one: PlannedTensor, tensor: torch.Tensor, errors: dict[str, CastError]) -> torch.Tensor:
    """Return the tensor as it is written: cast, contiguous, and alone in its buffer."""
    if (NAMED.get(tensor.dtype), tuple(tensor.shape)) != (one.from_dtype, one.shape):
        raise IntegrityFailure(f"{one.source} changed while it was read", hint="run it again")
    if one.cast:
        tensor, errors[one.target] = cast_tensor(tensor, one.to_dtype, name=one.target)
    tensor = tensor.contiguous()
    return tensor if tensor.untyped_storage().nbytes() == one.size else tensor.clone()


def _index(folder: Path, files: Mapping[str, str]) -> bytes:
    """Return the index as the Hub's own helper spells it; its total is that of the headers."""
    total = sum(read_header(folder / name).data_size for name in set(files.values()))
    document = {"metadata": {"total_size": total}, "weight_map": dict(files)}
    return json.dumps(document, indent=2, sort_keys=True).encode() + b"\n"
