"""In the child: whether a custom architecture says of itself that transformers can load it."""

from typing import Any

from replicate.release.verifying.building import library
from replicate.release.verifying.checks import judged
from replicate.release.verifying.sandbox import Answer

CHECK = "label"


def run(arguments: dict[str, Any]) -> Answer:
    """Look for names of transformers in the config of a custom architecture."""
    transformers = library("transformers")
    config = arguments["config"]
    faults = []
    if config.get("model_type") in transformers.CONFIG_MAPPING:
        faults.append(f"config.json: model_type {config['model_type']!r} makes AutoModel take it for its own")
    named = config.get("architectures")
    faults += [
        f"config.json: architectures names {name}, a class of transformers"
        for name in (named if isinstance(named, list) else [])
        if isinstance(name, str) and hasattr(transformers, name)
    ]
    return Answer(checks=(judged(CHECK, faults, "AutoModel does not take it for one of its own"),))
