"""YAML read so that it cannot surprise: plain values only, no aliases, no key twice, bounded in size."""

from functools import cache
from typing import TYPE_CHECKING, Any

from replicate.errors import CapabilityMissing
from replicate.release.scan.jsontext import Pairs

if TYPE_CHECKING:
    import yaml

MAX_FRONT_MATTER = 64 * 1024
MARK = "---"


class YamlFault(ValueError):
    """Why a text is no YAML that the Hub and others read alike; says no content."""


def split(text: str) -> tuple[str, str, int]:
    """Return front matter, body, and the number of the body's first line; without marks there is no front matter."""
    lines = text.split("\n")
    if lines[0].rstrip() != MARK:
        return "", text, 1
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == MARK), None)
    if end is None:
        return "", text, 1
    return "\n".join(lines[1:end]), "\n".join(lines[end + 1 :]), end + 2


def parse_yaml(text: str) -> Any:
    """Parse one document; raises YamlFault that says where, and repeats nothing."""
    if len(text) > MAX_FRONT_MATTER:
        raise YamlFault(f"has {len(text)} characters, more than {MAX_FRONT_MATTER}")
    loader = _loader()
    import yaml  # noqa: PLC0415 - as below

    try:
        return yaml.load(text, Loader=loader)  # noqa: S506 - a subclass of the safe loader
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise YamlFault(f"is no YAML: line {line}") from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise YamlFault(str(error) if isinstance(error, YamlFault) else "is no YAML") from error


@cache
def _loader() -> "type[yaml.SafeLoader]":
    """Return the safe loader, with mappings as pairs and without aliases."""
    try:
        import yaml  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        raise CapabilityMissing(
            "checking a model card needs the package PyYAML", hint="pip install 'ckptier[release]'"
        ) from error

    class Loader(yaml.SafeLoader):
        def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
            if self.check_event(yaml.AliasEvent):
                raise YamlFault("uses an alias")
            return super().compose_node(parent, index)

    Loader.add_constructor("tag:yaml.org,2002:map", _mapping)
    return Loader


def _mapping(loader: "yaml.SafeLoader", node: "yaml.MappingNode") -> Pairs:
    built = (
        (loader.construct_object(key, deep=True), loader.construct_object(value, deep=True))
        for key, value in node.value
    )
    found = Pairs((str(key), value) for key, value in built)
    if len({key for key, _ in found}) != len(found):
        raise YamlFault("has a key that stands there twice")
    return found
