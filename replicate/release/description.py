"""The release description (TOML): what is exported, under which name and license, and where it is to go.

Paths in it are relative to its own file.  Unknown keys are errors, and nothing has a default
that would publish more than was said.  docs/release.md shows every key.
"""

import tomllib
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import Field, ValidationError, model_validator

from replicate.errors import ConfigInvalid
from replicate.release.bundle import Kind
from replicate.release.destination import Destination
from replicate.release.documents import Document, Name, Text, faults
from replicate.tomltext import parse_toml

_NAME_IT = "name a release description; `ckptier release init` writes one to fill in"

Patterns = Annotated[tuple[Name, ...], Field(strict=False)]
Paths = Annotated[tuple[Name, ...], Field(strict=False)]


class Source(Document):
    """Where the state dict is: files of the generation, and the dotted path to it inside a torch file.

    ``files`` may hold shell patterns; safetensors files are merged, of torch files there is one.
    ``entries`` is empty where the file is the state dict itself.
    """

    files: Annotated[tuple[Name, ...], Field(strict=False, min_length=1)]
    entries: Text = ""


class Tie(Document):
    """Names of one tensor: ``keep`` is written, ``drop`` are the model class's tied keys that loaders tie again."""

    keep: Name
    drop: Annotated[tuple[Name, ...], Field(strict=False, min_length=1)]


class Rename(Document):
    """Replace the start of a name; applied in order, each once, after wrapper parts were taken away."""

    prefix: Text
    to: Text


class Cast(Document):
    """Cast floating tensors whose released name matches ``allow`` and not ``keep``."""

    dtype: Literal["float32", "float16", "bfloat16"]
    allow: Annotated[tuple[Name, ...], Field(strict=False, min_length=1)]
    keep: Patterns = ()


class Weights(Document):
    """How entries become tensors.  Patterns are fnmatch over names without wrapper parts."""

    omit: Patterns = ()
    rename: Annotated[tuple[Rename, ...], Field(strict=False)] = ()
    tied: Annotated[tuple[Tie, ...], Field(strict=False)] = ()
    cast: Cast | None = None
    max_shard_size: Annotated[str, Field(pattern=r"^[1-9][0-9]*(B|KB|MB|GB|TB)$")] = "5GB"


class Architecture(Document):
    """What the weights are of.  ``model_class`` is a class of transformers; ``factory`` is ``module:function``.

    A custom architecture names a factory in ``code`` (a folder, never published by itself): called
    with the parsed config it returns the torch module, whose forward takes token ids and returns logits.
    """

    model_class: Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")] | None = None
    factory: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")] | None = None
    code: Name | None = None


class Adapter(Document):
    """The model that an adapter belongs to; ``base_path`` is a local copy, used for verification only."""

    base_model: Annotated[str, Field(pattern=r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$")]
    base_revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
    base_license: Name
    base_path: Name | None = None


class ReleaseFiles(Document):
    """Files that go in beside the weights, each under its own base name."""

    config: Name | None = None
    generation_config: Name | None = None
    adapter_config: Name | None = None
    tokenizer: Paths = ()
    chat_template: Name | None = None
    license: Name
    other: Paths = ()

    def named(self) -> tuple[str, ...]:
        """Return every path, in a fixed order."""
        single = (self.config, self.generation_config, self.adapter_config, self.chat_template, self.license)
        return tuple(path for path in single if path) + self.tokenizer + self.other

    @model_validator(mode="after")
    def _base_names_are_unique(self) -> Self:
        names = [PurePosixPath(path).name for path in self.named()]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"two files would be published as {twice[0]}")
        return self


class Evaluation(Document):
    """A measured result.  ``value`` is a decimal string; ``protocol`` says how it was measured."""

    task: Name
    dataset: Name
    split: Name
    metric: Name
    value: Annotated[str, Field(pattern=r"^-?[0-9]+(\.[0-9]+)?$")]
    protocol: Annotated[str, Field(min_length=10, max_length=2_000)]
    revision: Text = ""


class Emissions(Document):
    """``co2_eq_emissions`` of the card; ``grams`` is a decimal string."""

    grams: Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?$")]
    source: Name
    training_type: Text = ""
    geographical_location: Text = ""
    hardware_used: Text = ""


class Card(Document):
    """The model card.  Prose fields are Markdown; none may be empty or a placeholder."""

    title: Name
    summary: Annotated[str, Field(min_length=20)]
    intended_use: Annotated[str, Field(min_length=20)]
    limitations: Annotated[str, Field(min_length=20)]
    training: Annotated[str, Field(min_length=20)]
    compute: Annotated[str, Field(min_length=10)]
    library_name: Name
    pipeline_tag: Text = ""
    language: Annotated[tuple[Name, ...], Field(strict=False)] = ()
    tags: Annotated[tuple[Name, ...], Field(strict=False)] = ()
    datasets: Annotated[tuple[Name, ...], Field(strict=False)] = ()
    base_model: Annotated[tuple[Name, ...], Field(strict=False)] = ()
    base_model_relation: Literal["adapter", "merge", "quantized", "finetune"] | None = None
    evaluation: Annotated[tuple[Evaluation, ...], Field(strict=False)] = ()
    emissions: Emissions | None = None


class LicenseChoice(Document):
    """The license: an id of the Hub's list or of SPDX; ``other`` needs a name and a link."""

    id: Name
    name: Text = ""
    link: Text = ""


class ReleaseDescription(Document):
    """The whole description.  ``version`` names this release for people; ``code_version`` the training code."""

    format: Literal[1]
    kind: Annotated[Kind, Field(strict=False)]
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,95}$")]
    version: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$")]
    code_version: Name
    license: LicenseChoice
    source: Source
    weights: Weights = Weights()
    architecture: Architecture = Architecture()
    adapter: Adapter | None = None
    files: ReleaseFiles
    card: Card
    destination: Destination

    @model_validator(mode="after")
    def _kind_is_whole(self) -> Self:
        for wrong, why in (
            (self.kind is Kind.FULL and not self.architecture.model_class, "architecture.model_class is missing"),
            (self.kind is Kind.FULL and not self.files.config, "files.config is missing"),
            (self.kind is Kind.CUSTOM and not self.architecture.factory, "architecture.factory is missing"),
            (self.kind is Kind.CUSTOM and not self.architecture.code, "architecture.code is missing"),
            (self.kind is Kind.CUSTOM and not self.files.config, "files.config is missing"),
            (self.kind is Kind.ADAPTER and self.adapter is None, "the table [adapter] is missing"),
            (self.kind is Kind.ADAPTER and not self.files.adapter_config, "files.adapter_config is missing"),
            (self.kind is not Kind.ADAPTER and self.adapter is not None, '[adapter] belongs to kind = "adapter"'),
            (
                self.kind is Kind.CUSTOM and self.architecture.model_class,
                "architecture.model_class: a custom architecture is no class of transformers; leave it out",
            ),
            (
                self.kind is Kind.CUSTOM and self.card.library_name == "transformers",
                "card.library_name: transformers cannot load a custom architecture; name the library that does",
            ),
        ):
            if wrong:
                raise ValueError(f"kind {self.kind.value}: {why}")
        return self


def load_description(path: Path) -> ReleaseDescription:
    """Read and check a description; every fault is named in one ConfigInvalid."""
    try:
        document = parse_toml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigInvalid(f"{path} cannot be read: {error.strerror}", hint=_NAME_IT) from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigInvalid(f"{path} is not valid TOML: {error}", hint="correct the line that is named") from error
    try:
        return ReleaseDescription.model_validate(document)
    except ValidationError as error:
        raise ConfigInvalid(
            f"{path}: {faults(error)}", hint="correct the keys named above; docs/release.md shows every key"
        ) from error
