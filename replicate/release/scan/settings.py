"""What config.json and generation_config.json say, compared with the description and with themselves.

Loaders refuse some of it, and warn about the rest only after a user has downloaded the weights.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from replicate.formats.safetensors import FLOATING
from replicate.release.findings import Rule
from replicate.release.scan.hits import Hit
from replicate.release.scan.inputs import ScanContext
from replicate.release.scan.jsontext import Pairs

GENERATION = "generation_config.json"
CONFIG = "config.json"
_DTYPES = MappingProxyType({"float16": "F16", "bfloat16": "BF16", "float32": "F32", "float64": "F64"})


@dataclass(frozen=True, slots=True)
class _Field:
    """A field of a generation config: what it may be; bounds are inclusive where finite, open below with ``above``."""

    kinds: tuple[type, ...]
    least: float = -math.inf
    most: float = math.inf
    above: float = -math.inf


_COUNT = _Field((int,), least=0)
_POSITIVE = _Field((int,), least=1)
_FLAG = _Field((bool,))
_TOKEN = _Field((int, list), least=0)
_FRACTION = _Field((int, float), least=0, most=1)

_FIELDS = MappingProxyType(
    {
        "do_sample": _FLAG,
        "use_cache": _FLAG,
        "early_stopping": _Field((bool, str)),
        "renormalize_logits": _FLAG,
        "output_scores": _FLAG,
        "output_attentions": _FLAG,
        "output_hidden_states": _FLAG,
        "return_dict_in_generate": _FLAG,
        "remove_invalid_values": _FLAG,
        "max_length": _POSITIVE,
        "max_new_tokens": _POSITIVE,
        "min_length": _COUNT,
        "min_new_tokens": _COUNT,
        "num_beams": _POSITIVE,
        "num_beam_groups": _POSITIVE,
        "num_return_sequences": _POSITIVE,
        "no_repeat_ngram_size": _COUNT,
        "encoder_no_repeat_ngram_size": _COUNT,
        "top_k": _COUNT,
        "temperature": _Field((int, float), above=0),
        "top_p": _Field((int, float), above=0, most=1),
        "min_p": _FRACTION,
        "typical_p": _Field((int, float), above=0, most=1),
        "epsilon_cutoff": _FRACTION,
        "eta_cutoff": _FRACTION,
        "repetition_penalty": _Field((int, float), above=0),
        "encoder_repetition_penalty": _Field((int, float), above=0),
        "length_penalty": _Field((int, float)),
        "diversity_penalty": _Field((int, float)),
        "guidance_scale": _Field((int, float)),
        "bos_token_id": _TOKEN,
        "eos_token_id": _TOKEN,
        "pad_token_id": _TOKEN,
        "decoder_start_token_id": _TOKEN,
        "forced_bos_token_id": _TOKEN,
        "forced_eos_token_id": _TOKEN,
        "transformers_version": _Field((str,)),
        "cache_implementation": _Field((str,)),
    }
)
_SAMPLING = MappingProxyType(
    {"temperature": 1.0, "top_p": 1.0, "top_k": 50, "min_p": None, "typical_p": 1.0, "epsilon_cutoff": 0.0,
     "eta_cutoff": 0.0}
)  # fmt: skip
"""Fields that mean nothing without sampling, and the values that say nothing."""
_TOKEN_FIELDS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")


def find_settings(path: str, document: Any, context: ScanContext) -> Iterator[Hit]:
    """Check the two files; other files have nothing to say here."""
    if path not in (CONFIG, GENERATION):
        return
    if not isinstance(document, Pairs):
        yield Hit(rule=Rule.CONFIG_INVALID, path=path, detail="is no JSON object")
        return
    found = _generation(document) if path == GENERATION else _config(document, context)
    for place, detail in found:
        yield Hit(rule=Rule.CONFIG_INVALID, path=path, place=place, detail=detail)


def find_token_ids(config: Any, generation: Any) -> Iterator[Hit]:
    """Compare the token ids of both files with the size of the vocabulary."""
    size = config.get("vocab_size") if isinstance(config, Pairs) else None
    if type(size) is not int:
        return
    for path, document in ((CONFIG, config), (GENERATION, generation)):
        for name in _TOKEN_FIELDS if isinstance(document, Pairs) else ():
            value = document.get(name)
            for number in value if isinstance(value, list) else [value]:
                if type(number) is int and not -1 <= number < size:
                    detail = f"is {number}, and the vocabulary has {size} tokens"
                    yield Hit(rule=Rule.CONFIG_INVALID, path=path, place=name, detail=detail)


def _generation(document: Pairs) -> Iterator[tuple[str, str]]:
    for name, value in document:
        expected = _FIELDS.get(name)
        several = isinstance(value, list) and expected is not None and list in expected.kinds
        for one in value if several else [value]:
            fault = "" if expected is None or one is None else _fault(one, expected)
            if fault:
                yield name, fault
    if document.get("do_sample") is not True:
        yield from _without_sampling(document)


def _without_sampling(document: Pairs) -> Iterator[tuple[str, str]]:
    for name, silent in _SAMPLING.items():
        value = document.get(name)
        if value is not None and value != silent:
            yield name, f"is {str(value)[:40]} without do_sample = true: it means nothing, and loaders refuse it"
    beams, several = document.get("num_beams") or 1, document.get("num_return_sequences") or 1
    if type(beams) is int and type(several) is int and several > beams:
        yield "num_return_sequences", f"is {several} of {beams} beams without do_sample = true"


def _fault(value: Any, expected: _Field) -> str:
    """Say what is wrong with a value; empty where nothing is."""
    names = " or ".join(kind.__name__ for kind in expected.kinds)
    if not isinstance(value, expected.kinds) or (isinstance(value, bool) and bool not in expected.kinds):
        return f"is of type {type(value).__name__}, expected {names}"
    if not isinstance(value, int | float) or isinstance(value, bool):
        return ""
    if not expected.least <= value <= expected.most:
        return f"is {value}, expected {expected.least:g} to {expected.most:g}"
    return f"is {value}, expected more than {expected.above:g}" if value <= expected.above else ""


def _config(document: Pairs, context: ScanContext) -> Iterator[tuple[str, str]]:
    wanted = context.description.architecture.model_class
    architectures = document.get("architectures")
    if wanted is not None and architectures is not None and architectures != [wanted]:
        yield "architectures", f"is not [{wanted!r}], which architecture.model_class says"
    for name in ("dtype", "torch_dtype"):
        value = document.get(name)
        stored = _main_dtype(context)
        if isinstance(value, str) and stored is not None and _DTYPES.get(value.removeprefix("torch.")) != stored:
            yield name, f"is {value[:40]!r}, and most of the floating weights are {stored}"


def _main_dtype(context: ScanContext) -> str | None:
    sizes: dict[str, int] = {}
    for tensor in context.manifest.tensors:
        if tensor.dtype in FLOATING:
            sizes[tensor.dtype] = sizes.get(tensor.dtype, 0) + math.prod(tensor.shape)
    return max(sorted(sizes), key=lambda dtype: sizes[dtype]) if sizes else None
