"""In the child: architectures, by class name, by the user's factory, or as an adapter over its base.

Nothing is downloaded, no code of a repository is trusted, and shapes are taken on the meta
device.  transformers may publish a model under other names than its modules have (a mixture of
experts is split into experts, say): both forms are known, and a release may use either.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from replicate.errors import CapabilityMissing, ConfigInvalid, IntegrityFailure
from replicate.release.expected import Expected
from replicate.release.verifying.checks import words
from replicate.release.verifying.sandbox import Answer

INSTALL = "pip install 'ckptier[release]'"
_META = "meta"


@dataclass(frozen=True, slots=True, kw_only=True)
class Forms:
    """What an architecture expects: by its modules' names, and by those that its library publishes."""

    module: Expected
    published: Expected

    def nearest(self, names: frozenset[str]) -> Expected:
        """Return the form that has most of ``names``; the modules' one where both have as many."""
        return min((self.module, self.published), key=lambda form: len(set(form.shapes) ^ names) if names else 0)


def library(name: str) -> ModuleType:
    """Import an optional library; raises CapabilityMissing."""
    import importlib  # noqa: PLC0415 - only the child comes here

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise CapabilityMissing(f"{name} cannot be imported ({error})", hint=INSTALL) from error


def run(arguments: dict[str, Any]) -> Answer:
    """Describe an architecture as data, for the parent."""
    forms = forms_of(arguments)
    form = forms.nearest(frozenset(arguments["names"]))
    shapes = {name: list(shape) for name, shape in form.shapes.items()}
    return Answer(checks=(), data={"shapes": shapes, "tied": [[keep, list(drop)] for keep, drop in form.tied]})


def forms_of(arguments: dict[str, Any]) -> Forms:
    """Build on the meta device, and take names, shapes and ties."""
    torch = library("torch")
    with torch.device(_META):
        if arguments.get("factory"):
            return _same(_expected(custom_model(arguments), {}))
        if arguments.get("adapter_config"):
            return _same(_adapter(arguments))
        model = transformers_model(arguments["config"], arguments["model_class"])
    return _transformers_forms(model)


def _same(expected: Expected) -> Forms:
    return Forms(module=expected, published=expected)


def read_json(path: str) -> dict[str, Any]:
    """Read a JSON object; raises ConfigInvalid."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigInvalid(f"{Path(path).name} is not readable JSON: {error}", hint="correct it") from error
    if not isinstance(document, dict):
        raise ConfigInvalid(f"{Path(path).name} is no JSON object", hint="correct it")
    return document


def model_class(name: str) -> Any:
    """Return a model class of transformers by name; raises ConfigInvalid for anything else."""
    transformers = library("transformers")
    found = getattr(transformers, name, None)
    is_model = isinstance(found, type) and issubclass(found, transformers.PreTrainedModel)
    if not is_model or getattr(found, "config_class", None) is None:
        raise ConfigInvalid(
            f"{name} is no model class of transformers {transformers.__version__}",
            hint='name a class that it has, or release it as kind = "custom"',
        )
    return found


def config_for(path: str, name: str) -> Any:
    """Read a config as that of a model class; raises ConfigInvalid where the two disagree."""
    document, cls = read_json(path), model_class(name)
    if document.get("auto_map"):
        raise ConfigInvalid("config.json has auto_map: it asks loaders to run code", hint="remove auto_map")
    declared, own = document.get("model_type"), cls.config_class.model_type
    if declared != own:
        raise ConfigInvalid(f"config.json: model_type is {declared!r}, {name} needs {own!r}", hint="correct model_type")
    return cls.config_class.from_dict(document)


def transformers_model(config: str, name: str) -> Any:
    """Build a model of transformers from its config alone, on the device that is current."""
    return model_class(name)(config_for(config, name))


def declared_class(config: str) -> str:
    """Return the class that a config names; raises ConfigInvalid where it names none or several."""
    named = read_json(config).get("architectures")
    if not isinstance(named, list) or len(named) != 1 or not isinstance(named[0], str):
        raise ConfigInvalid("config.json: architectures does not name one class", hint='as in ["LlamaForCausalLM"]')
    return named[0]


def _transformers_forms(model: Any) -> Forms:
    tied = model.get_expanded_tied_weights_keys(all_submodels=True)
    module = _expected(model, tied)
    state = dict(model.state_dict())
    from transformers.core_model_loading import revert_weight_conversion  # noqa: PLC0415 - only here

    ignored = set(model._keys_to_ignore_on_save or ()) - set(tied)  # noqa: SLF001 - the class's own declaration
    reverted = revert_weight_conversion(model, state)
    shapes = {name: tuple(tensor.shape) for name, tensor in reverted.items() if name not in ignored}
    if set(shapes) == set(module.shapes):
        return _same(module)
    held = tuple((keep, drop) for keep, drop in module.tied if {keep, *drop} <= set(shapes))
    return Forms(module=module, published=Expected(shapes=shapes, tied=held))


def _expected(model: Any, tied: dict[str, str]) -> Expected:
    """Take every persistent tensor; ties that the class does not declare are found by identity."""
    shapes, groups = {}, dict[int, list[str]]()
    for name, tensor in model.state_dict(keep_vars=True).items():
        shapes[name] = tuple(tensor.shape)
        groups.setdefault(id(tensor), []).append(name)
    declared: dict[str, list[str]] = {}
    for dropped, kept in tied.items():
        declared.setdefault(kept, []).append(dropped)
    for first, *others in groups.values():
        if others and not {first, *others} & (set(declared) | set(tied)):
            declared[first] = others
    return Expected(shapes=shapes, tied=tuple((keep, tuple(sorted(drop))) for keep, drop in sorted(declared.items())))


def custom_model(arguments: dict[str, Any]) -> Any:
    """Call the user's factory with the parsed config; raises ConfigInvalid for what is no torch module."""
    torch = library("torch")
    module, function = arguments["factory"].split(":")
    sys.path.insert(0, arguments["code"])
    try:
        factory = getattr(library_of_user(module), function)
        model = factory(read_json(arguments["config"]))
    finally:
        sys.path.remove(arguments["code"])
    if not isinstance(model, torch.nn.Module):
        raise ConfigInvalid(
            f"{arguments['factory']} returned a {type(model).__name__}, no torch module",
            hint="return the module; ckptier loads the weights into it",
        )
    return model


def library_of_user(module: str) -> ModuleType:
    """Import the module of a factory; raises ConfigInvalid."""
    import importlib  # noqa: PLC0415 - only the child comes here

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigInvalid(
            f"{module} cannot be imported from the code folder: {words(error)}", hint="correct architecture.code"
        ) from error


def _adapter(arguments: dict[str, Any]) -> Expected:
    peft = library("peft")
    base_config = str(Path(arguments["base_path"]) / "config.json")
    base = transformers_model(base_config, declared_class(base_config))
    model = peft.get_peft_model(base, adapter_config(arguments["adapter_config"]))
    state = peft.get_peft_model_state_dict(model, save_embedding_layers=False)
    return Expected(shapes={name: tuple(tensor.shape) for name, tensor in state.items()})


def adapter_config(path: str) -> Any:
    """Read the config of an adapter; its base is given apart, so the name in it is not followed."""
    peft = library("peft")
    document = read_json(path)
    kind = peft.PEFT_TYPE_TO_CONFIG_MAPPING.get(document.get("peft_type"))
    if kind is None:
        raise IntegrityFailure(f"adapter_config.json: peft_type {document.get('peft_type')!r} is unknown to peft")
    return kind.from_peft_type(**{**document, "base_model_name_or_path": None})
