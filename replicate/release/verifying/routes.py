"""In the child: the ways to load each kind of release."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from replicate.errors import IntegrityFailure
from replicate.release.expected import Expected
from replicate.release.verifying.building import (
    Forms,
    adapter_config,
    config_for,
    custom_model,
    declared_class,
    forms_of,
    library,
    model_class,
    transformers_model,
)
from replicate.release.verifying.checks import listed

_ADAPTER = "default"
_OFFLINE: Mapping[str, Any] = {"local_files_only": True}


class Route(ABC):
    """How one kind of release is loaded."""

    loader = ""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.arguments = arguments
        self._forms: Forms | None = None
        self._kept: Any = None

    def forms(self) -> Forms:
        """Return the architecture's forms, built once."""
        if self._forms is None:
            self._forms = forms_of(self.arguments)
        return self._forms

    def expected(self, names: frozenset[str]) -> Expected:
        """Return the form of the architecture that the release is in."""
        return self.forms().nearest(names)

    def keep(self, model: Any) -> None:
        """Keep the second loader's model for the forward pass; its tensors get memory of their own.

        Where they lie decides which kernel runs, and in mapped files they lie anywhere.
        """
        self._kept = _with_own_memory(model)

    def kept(self) -> Any:
        """Return what ``keep`` was given."""
        return self._kept

    def token_ids(self, count: int) -> Any:
        """Return fixed token ids that the model has."""
        torch = library("torch")
        rows = self.rows()
        return torch.tensor([[(7_919 * place + 1) % rows for place in range(count)]])

    def rows(self) -> int:
        """Return the number of rows of the input embedding."""
        torch = library("torch")
        embeddings = (one for one in self._kept.modules() if isinstance(one, torch.nn.Embedding))
        return min((one.num_embeddings for one in embeddings if one.num_embeddings), default=8)

    @abstractmethod
    def assigned_on_meta(self, raw: Mapping[str, Any]) -> list[str]:
        """Assign the tensors to modules on meta, tie, and return what still has no data."""

    @abstractmethod
    def second(self) -> tuple[Any, Mapping[str, Any]]:
        """Load the tree as users do; return the model, and its tensors by the names of the release."""

    @abstractmethod
    def filled(self, tensors: Mapping[str, Any], *, like: Any) -> Any:
        """Build a model of these tensors without the second loader, in the types of ``like``: a model or a dtype."""


class FullRoute(Route):
    """A class of transformers."""

    loader = "transformers.from_pretrained"

    @property
    def _class(self) -> Any:
        return model_class(self.arguments["model_class"])

    def assigned_on_meta(self, raw: Mapping[str, Any]) -> list[str]:
        """Assign; a release in the published form is converted by the second loader alone."""
        if self.expected(frozenset(raw)) is not self.forms().module:
            return []
        torch = library("torch")
        with torch.device("meta"):
            model = transformers_model(self.arguments["config"], self.arguments["model_class"])
        model.load_state_dict(dict(raw), strict=False, assign=True)
        model.tie_weights()
        return _on_meta(model)

    def second(self) -> tuple[Any, Mapping[str, Any]]:
        """Load, and take the tensors back in the form of the release."""
        model, told = self._class.from_pretrained(
            self.arguments["tree"], dtype="auto", use_safetensors=True, output_loading_info=True, **_OFFLINE
        )
        faults = [f"{what}: {listed(map(str, names))}" for what, names in told.items() if names]
        if faults:
            raise IntegrityFailure(f"{self.loader} reports {'; '.join(faults)}")
        state = model.state_dict()
        forms = self.forms()
        if forms.published is not forms.module and self._published(state, forms):
            from transformers.core_model_loading import revert_weight_conversion  # noqa: PLC0415 - only here

            state = revert_weight_conversion(model, dict(state))
        return model, state

    def _published(self, state: Mapping[str, Any], forms: Forms) -> bool:
        names = frozenset(self.arguments["names"])
        return bool(state) and forms.nearest(names) is forms.published

    def filled(self, tensors: Mapping[str, Any], *, like: Any) -> Any:
        """Build on the CPU, so that buffers which are not saved are made; then assign all the others."""
        torch = library("torch")
        names, dtypes = frozenset(tensors), _dtypes(like)
        if self.expected(names) is not self.forms().module:
            config = config_for(self.arguments["config"], self.arguments["model_class"])
            model = self._class.from_pretrained(
                None, config=config, state_dict={**tensors}, dtype=_main(like), **_OFFLINE
            )
            return _with_own_memory(model)
        with _uninitialised():
            model = transformers_model(self.arguments["config"], self.arguments["model_class"])
        fitted = {name: _fit(tensor, dtypes.get(name, _main(like))) for name, tensor in tensors.items()}
        missing, unknown = model.load_state_dict(fitted, strict=False, assign=True)
        _refuse(set(missing) - self.expected(names).droppable, unknown)
        model.tie_weights()
        if isinstance(like, torch.dtype):
            model.to(like)
        return _with_own_memory(model)


class CustomRoute(Route):
    """The user's factory; the second loader is the library of safetensors."""

    loader = "safetensors"

    def assigned_on_meta(self, raw: Mapping[str, Any]) -> list[str]:
        """Assign, and tie what the factory tied."""
        torch = library("torch")
        with torch.device("meta"):
            model = custom_model(self.arguments)
        self._load(model, raw)
        return _on_meta(model)

    def second(self) -> tuple[Any, Mapping[str, Any]]:
        """Load every file by the library, into a fresh module, which decides the dtypes as it does for users."""
        load_file = library("safetensors.torch").load_file
        tensors: dict[str, Any] = {}
        for file in self.arguments["files"]:
            tensors.update(load_file(Path(self.arguments["tree"]) / file))
        model = custom_model(self.arguments)
        self._load(model, tensors, assign=False)
        return model, model.state_dict()

    def filled(self, tensors: Mapping[str, Any], *, like: Any) -> Any:
        """Build by the factory, and assign."""
        dtypes = _dtypes(like)
        model = custom_model(self.arguments)
        self._load(model, {name: _fit(one, dtypes.get(name, _main(like))) for name, one in tensors.items()})
        return _with_own_memory(model)

    def _load(self, model: Any, tensors: Mapping[str, Any], *, assign: bool = True) -> None:
        expected = self.expected(frozenset(tensors))
        whole = dict(tensors)
        for keep, dropped in expected.tied:
            whole.update({name: tensors[keep] for name in dropped if name not in tensors and keep in tensors})
        missing, unknown = model.load_state_dict(whole, strict=False, assign=assign)
        _refuse(missing, unknown)


class AdapterRoute(Route):
    """An adapter over a local copy of its base, by peft."""

    loader = "peft.PeftModel.from_pretrained"

    def assigned_on_meta(self, raw: Mapping[str, Any]) -> list[str]:
        """Assign to the adapter's modules over a base on meta, by the names that they have there.

        peft's own function would move what it has assigned back to meta, where the base is.
        """
        torch, peft = library("torch"), library("peft")
        config = self._base_config()
        with torch.device("meta"):
            base = transformers_model(config, declared_class(config))
            model = peft.get_peft_model(base, adapter_config(self.arguments["adapter_config"]))
        inner = {_as_saved(name): name for name in model.state_dict() if _as_saved(name) != name}
        unknown = [name for name in raw if name not in inner]
        if unknown:
            raise IntegrityFailure(f"no module of the adapter is named as {listed(unknown)}")
        model.load_state_dict({inner[name]: tensor for name, tensor in raw.items()}, strict=False, assign=True)
        state = model.state_dict()
        return [name for name in raw if state[inner[name]].is_meta]

    def second(self) -> tuple[Any, Mapping[str, Any]]:
        """Load by peft over the base."""
        peft = library("peft")
        model = peft.PeftModel.from_pretrained(self._base(), self.arguments["tree"], **_OFFLINE)
        return model, peft.get_peft_model_state_dict(model, save_embedding_layers=False)

    def filled(self, tensors: Mapping[str, Any], *, like: Any) -> Any:
        """Wrap a fresh base, and assign the adapter's tensors."""
        torch, peft = library("torch"), library("peft")
        model = peft.get_peft_model(self._base(), adapter_config(self.arguments["adapter_config"]))
        told = peft.set_peft_model_state_dict(model, {name: _fit(one, _main(like)) for name, one in tensors.items()})
        _refuse((), told.unexpected_keys)
        if isinstance(like, torch.dtype):
            model.to(like)
        return _with_own_memory(model)

    def _base_config(self) -> str:
        return str(Path(self.arguments["base_path"]) / "config.json")

    def _base(self) -> Any:
        cls = model_class(declared_class(self._base_config()))
        return cls.from_pretrained(self.arguments["base_path"], dtype="auto", use_safetensors=True, **_OFFLINE)


def _as_saved(name: str) -> str:
    """Return the name that peft saves for a module of the adapter called ``default``."""
    saved = name.replace(f".modules_to_save.{_ADAPTER}", "").replace(f".{_ADAPTER}", "")
    return saved.removesuffix(".weight") if saved.endswith(".lora_magnitude_vector.weight") else saved


def _refuse(missing: Any, unknown: Any) -> None:
    faults = [f"missing {name}" for name in sorted(missing)] + [f"unknown {name}" for name in sorted(unknown)]
    if faults:
        raise IntegrityFailure(f"the keys do not fit the architecture: {listed(faults)}")


def _on_meta(model: Any) -> list[str]:
    """Name what is saved with the model and has no data; other buffers are made when it is built for real."""
    return [name for name, tensor in model.state_dict().items() if tensor.is_meta]


def _uninitialised() -> contextlib.AbstractContextManager[None]:
    from transformers.initialization import no_init_weights  # noqa: PLC0415 - only here

    guard: contextlib.AbstractContextManager[None] = no_init_weights()
    return guard


def _dtypes(like: Any) -> Mapping[str, Any]:
    torch = library("torch")
    return {} if isinstance(like, torch.dtype) else {name: one.dtype for name, one in like.state_dict().items()}


def _main(like: Any) -> Any:
    """Return the dtype that most parameters of a model have, or the dtype itself."""
    torch = library("torch")
    if isinstance(like, torch.dtype):
        return like
    counts: dict[Any, int] = {}
    for parameter in like.parameters():
        if parameter.dtype.is_floating_point:
            counts[parameter.dtype] = counts.get(parameter.dtype, 0) + parameter.numel()
    return max(counts, key=lambda dtype: counts[dtype])


def _fit(tensor: Any, dtype: Any) -> Any:
    """Bring a floating tensor to a dtype; leave all others alone."""
    return tensor.detach().to(dtype) if tensor.dtype.is_floating_point and dtype.is_floating_point else tensor.detach()


def _with_own_memory(model: Any) -> Any:
    """Give every parameter and buffer fresh, aligned memory; what was tied stays tied."""
    torch = library("torch")
    with torch.no_grad():
        for tensor in {id(one): one for one in (*model.parameters(), *model.buffers())}.values():
            tensor.data = tensor.data.clone(memory_format=torch.contiguous_format)
    return model
