"""The names of an adapter as peft saves them: without the adapter's own name, under ``base_model.model.``.

In memory ``base_model.model.q_proj.lora_A.default.weight``, saved ``base_model.model.q_proj.lora_A.weight``.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from replicate.errors import ConfigInvalid
from replicate.release.weights.naming import listed

PREFIX = "base_model.model."
_TUNER = re.compile(r"(lora|ia3|hada|lokr|oft|boft|hra|road|shira|fourierft|randlora|vera_lambda|miss|c3a)_\w+")
"""Parts that peft's methods give their tensors."""
_SAVED_COPY = "modules_to_save"
_LEAVES = frozenset({"weight", "bias"})
_OF_BASE = frozenset({"base_layer", "original_module"})


def is_of_adapter(name: str) -> bool:
    """Whether a name is one that only an adapter's tensor has."""
    parts = name.split(".")
    return _SAVED_COPY in parts or any(_TUNER.fullmatch(part) for part in parts)


def traces(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names that no whole model has: an adapter's, or those of a base under one."""
    return tuple(
        name for name in names if name.startswith(PREFIX) or is_of_adapter(name) or _OF_BASE & set(name.split("."))
    )


def as_saved(names: Sequence[str]) -> Mapping[str, str]:
    """Return the name under which peft saves each; raises ConfigInvalid where that cannot be told.

    Every name has to be an adapter's: weights of the base belong to the base's own repository.
    """
    foreign = [name for name in names if not name.startswith(PREFIX)]
    if foreign:
        raise ConfigInvalid(
            f"weights: {listed(foreign)}: an adapter's tensors are called {PREFIX}…",
            hint="leave out what is not the adapter's by weights.omit, or put the prefix there by [[weights.rename]]",
        )
    base = [name for name in names if _OF_BASE & set(name.split("."))]
    if base:
        raise ConfigInvalid(
            f"weights: {listed(base)} belong to the base model, not to the adapter",
            hint='leave them out by weights.omit, as in "*.base_layer.*"',
        )
    found = {name: _split(name) for name in names}
    adapters = sorted({adapter for adapter, _ in found.values() if adapter})
    if len(adapters) > 1:
        raise ConfigInvalid(
            f"weights: the source holds {len(adapters)} adapters: {listed(adapters)}",
            hint=f'a release is one of them: leave the others out by weights.omit, as in "*.{adapters[1]}.*"',
        )
    return {name: saved for name, (_, saved) in found.items()}


def saved_name(name: str) -> str:
    """Return the name under which peft saves one tensor, whatever its adapter is called."""
    return _split(name)[1]


def _split(name: str) -> tuple[str, str]:
    """Take the adapter's own name out of a tensor's; empty where none stands there."""
    parts = name.split(".")
    for index, part in enumerate(parts[:-1]):
        follows = parts[index + 1]
        if part == _SAVED_COPY:
            return follows, ".".join(parts[:index] + parts[index + 2 :])
        if _TUNER.fullmatch(part) and follows not in _LEAVES:
            return follows, ".".join(parts[: index + 1] + parts[index + 2 :])
    return "", name
