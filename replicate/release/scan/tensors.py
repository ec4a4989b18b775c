"""Tensors by what their headers say: names of training state, dtypes, and the architecture's own list."""

import re
from collections.abc import Iterator
from fnmatch import fnmatchcase
from types import MappingProxyType

from replicate.formats.safetensors import FLOATING, TensorHeader
from replicate.release.bundle import Kind
from replicate.release.expected import Expected
from replicate.release.findings import Rule
from replicate.release.scan.containers import Container
from replicate.release.scan.hits import Hit
from replicate.release.scan.inputs import ScanContext

_TRAINING = re.compile(
    r"(?:^|[./])(?:exp_avgs?|exp_avg_sqs?|max_exp_avg_sqs?|momentum(?:_buffer)?|square_avg|acc_delta|exp_inf|"
    r"master_?(?:params?|weights?)|fp32_(?:params?|groups?|from_fp16\w*)|optim(?:izer)?(?:_states?|_state_dict)?|"
    r"param_groups|grads?|gradients?|lr_scheduler|scheduler|grad_scaler|rng_states?|cuda_rng_states?|loss_scaler|"
    r"ema_shadow|shadow_params|state\.\d+|sampler|dataloader)(?:[./]|$)",
    re.IGNORECASE,
)
_WRAPPERS = re.compile(
    r"(?:^|\.)(?:_orig_mod|module|_fsdp_wrapped_module|_checkpoint_wrapped_module|_forward_module|base_layer)\."
)
_ADAPTER_PART = re.compile(r"(?:^|\.)(?:lora_[AB]|lora_embedding_[AB]|lora_magnitude_vector|ia3_l|base_model\.model)\b")
_PEFT_PREFIX = "base_model.model."
_CAST = MappingProxyType({"float32": "F32", "float16": "F16", "bfloat16": "BF16"})


def find_in_tensors(containers: tuple[Container, ...], context: ScanContext) -> Iterator[Hit]:
    """Check each tensor's name and dtype, and all of them against the architecture."""
    for one in containers:
        for tensor in one.header.tensors:
            for rule, detail in (*_name_faults(tensor.name, context), *_dtype_faults(tensor, context)):
                yield Hit(rule=rule, path=one.file.path, place=tensor.name, detail=detail)
    yield from _prefixes(containers, context)
    if context.expected is not None:
        yield from _architecture(containers, context.expected)


def _name_faults(name: str, context: ScanContext) -> Iterator[tuple[Rule, str]]:
    if _TRAINING.search(name):
        yield Rule.TRAINING_STATE, "is named like state of an optimizer, a schedule or a generator"
    if context.description.kind is Kind.ADAPTER:
        if ".base_layer." in name:
            yield Rule.TENSOR_UNKNOWN, "is a weight of the base model: an adapter holds its own only"
        return
    if _WRAPPERS.search(name):
        yield Rule.TENSOR_UNKNOWN, "still has the part of a wrapper (compile, data parallel, checkpointing) in its name"
    if _ADAPTER_PART.search(name):
        yield Rule.TENSOR_UNKNOWN, f"is a part of an adapter in a release of kind {context.description.kind.value}"


def _dtype_faults(tensor: TensorHeader, context: ScanContext) -> Iterator[tuple[Rule, str]]:
    cast = context.description.weights.cast
    if cast is None or tensor.dtype not in FLOATING:
        return
    named = any(fnmatchcase(tensor.name, pattern) for pattern in cast.allow)
    kept = any(fnmatchcase(tensor.name, pattern) for pattern in cast.keep)
    if named and not kept and tensor.dtype != _CAST[cast.dtype]:
        yield Rule.TENSOR_DTYPE, f"is {tensor.dtype}, and weights.cast says {cast.dtype}"


def _prefixes(containers: tuple[Container, ...], context: ScanContext) -> Iterator[Hit]:
    if context.description.kind is not Kind.ADAPTER:
        return
    places = [(tensor.name, one.file.path) for one in containers for tensor in one.header.tensors]
    without = sorted((name, path) for name, path in places if not name.startswith(_PEFT_PREFIX))
    if without and len(without) < len(places):
        for name, path in without:
            detail = f"does not begin with {_PEFT_PREFIX!r} as others here do: a loader would ignore it"
            yield Hit(rule=Rule.TENSOR_UNKNOWN, path=path, place=name, detail=detail)


def _architecture(containers: tuple[Container, ...], expected: Expected) -> Iterator[Hit]:
    stored = {tensor.name: (one.file.path, tensor.shape) for one in containers for tensor in one.header.tensors}
    first = containers[0].file.path if containers else "."
    tied = {name for kept, names in expected.tied if kept in stored for name in names}
    for name in sorted(expected.shapes.keys() - stored.keys() - tied):
        detail = f"shape {list(expected.shapes[name])} is in the architecture and not in the release"
        yield Hit(rule=Rule.TENSOR_MISSING, path=first, place=name, detail=detail)
    for name, (path, shape) in sorted(stored.items()):
        wanted = expected.shapes.get(name)
        if wanted is None:
            yield Hit(rule=Rule.TENSOR_UNKNOWN, path=path, place=name, detail="is not in the architecture")
        elif tuple(wanted) != shape:
            detail = f"has shape {list(shape)}, and {list(wanted)} in the architecture"
            yield Hit(rule=Rule.TENSOR_SHAPE, path=path, place=name, detail=detail)
