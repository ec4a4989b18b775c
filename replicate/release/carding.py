"""The model card of a release: README.md with the Hub's front matter, the same bytes for the same facts.

Front matter is written by huggingface_hub's own classes.  What is said of the weights comes
from their headers, what is said of their use from the description; nothing of the machine.
"""

import math
import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from replicate.errors import CapabilityMissing
from replicate.release.bundle import MANIFEST, Kind
from replicate.release.description import Card, Evaluation, ReleaseDescription
from replicate.release.licenses import card_license
from replicate.release.loading import how_to_load
from replicate.release.scan.cards import CARD, DTYPES_ROW, PARAMETERS_ROW, check_card, dtypes_row

__all__ = ["CARD", "CardFacts", "check_card", "render_card"]

_INTEGER = re.compile(r"-?[0-9]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFacts:
    """What the files say: ``dtypes`` are (dtype, parameters), sizes in bytes.

    ``parameters`` counts every element of every tensor that is released, tied names once.
    """

    parameters: int
    dtypes: tuple[tuple[str, int], ...]
    shards: int
    total_bytes: int
    next_update: int
    generation: str
    tensors: int


def render_card(description: ReleaseDescription, facts: CardFacts) -> bytes:
    """Return README.md; raises CapabilityMissing where huggingface_hub is not installed."""
    card = description.card
    sections = (
        f"# {_line(card.title)}\n\n{card.summary.strip()}",
        _weights(description, facts),
        f"## How to load\n\n{how_to_load(description, facts.shards)}",
        f"## Intended use\n\n{card.intended_use.strip()}",
        f"## Limitations\n\n{card.limitations.strip()}",
        f"## Training\n\n{card.training.strip()}",
        _compute(card),
        _evaluation(card),
        _provenance(description, facts),
        _license(description),
    )
    body = "\n\n".join(section for section in sections if section)
    return f"---\n{_front_matter(description)}\n---\n\n{body}\n".encode()


def _front_matter(description: ReleaseDescription) -> str:
    try:
        from huggingface_hub import ModelCardData  # noqa: PLC0415 - an extra, and slow to load
    except ModuleNotFoundError as error:
        raise CapabilityMissing(
            "writing a model card needs the package huggingface_hub", hint="pip install 'ckptier[release]'"
        ) from error
    card, chosen = description.card, card_license(description.license)
    base = list(card.base_model) or ([description.adapter.base_model] if description.adapter else [])
    relation = card.base_model_relation or ("adapter" if description.kind is Kind.ADAPTER else None)
    results = [_result(one) for one in card.evaluation]
    data = ModelCardData(
        language=list(card.language) or None,
        license=chosen.id,
        license_name=chosen.name,
        license_link=chosen.link,
        library_name=card.library_name,
        pipeline_tag=card.pipeline_tag or None,
        tags=list(dict.fromkeys((*card.tags, "safetensors"))),
        datasets=list(card.datasets) or None,
        base_model=base or None,
        model_name=description.name if results else None,
        eval_results=results or None,
        base_model_relation=relation,
        co2_eq_emissions=_emissions(card),
    )
    return data.to_yaml(line_break="\n", original_order=list(_FRONT_ORDER))


_FRONT_ORDER = (
    "license", "license_name", "license_link", "language", "library_name", "pipeline_tag", "tags", "datasets",
    "base_model", "base_model_relation", "co2_eq_emissions",
)  # fmt: skip


def _result(one: Evaluation) -> Any:
    from huggingface_hub import EvalResult  # noqa: PLC0415 - as above

    return EvalResult(
        task_type=one.task,
        dataset_type=one.dataset,
        dataset_name=one.dataset,
        dataset_split=one.split,
        dataset_revision=one.revision or None,
        metric_type=one.metric,
        metric_value=_number(one.value),
        metric_name=one.metric,
    )


def _number(text: str) -> int | float:
    return int(text) if _INTEGER.fullmatch(text) else float(text)


def _emissions(card: Card) -> dict[str, Any] | None:
    if card.emissions is None:
        return None
    told = {
        "emissions": _number(card.emissions.grams),
        "source": card.emissions.source,
        "training_type": card.emissions.training_type,
        "geographical_location": card.emissions.geographical_location,
        "hardware_used": card.emissions.hardware_used,
    }
    return {name: value for name, value in told.items() if value != ""}


def _weights(description: ReleaseDescription, facts: CardFacts) -> str:
    files = "1 file" if facts.shards == 1 else f"{facts.shards} shards with an index"
    rows = (
        ("Version", description.version),
        (
            "Kind",
            {Kind.FULL: "full model", Kind.ADAPTER: "adapter", Kind.CUSTOM: "custom architecture"}[description.kind],
        ),
        (PARAMETERS_ROW, f"{facts.parameters:,}"),
        (DTYPES_ROW, dtypes_row(facts.dtypes)),
        ("Tensors", f"{facts.tensors:,}"),
        ("Files", f"{files}, safetensors"),
        ("Size", f"{facts.total_bytes:,} bytes ({_human(facts.total_bytes)})"),
    )
    return "## Weights\n\n" + _table(("", ""), rows)


def _compute(card: Card) -> str:
    text = f"## Compute and environment\n\n{card.compute.strip()}"
    if card.emissions is None:
        return text
    told = f"Emissions: {card.emissions.grams} g of CO2 equivalent (source: {_line(card.emissions.source)})."
    return f"{text}\n\n{told}"


def _evaluation(card: Card) -> str:
    if not card.evaluation:
        return "## Evaluation\n\nNo evaluation was measured for this release."
    head = ("Task", "Dataset", "Split", "Metric", "Value", "Protocol")
    rows = tuple(
        (
            one.task,
            f"{one.dataset}{f' at {one.revision}' if one.revision else ''}",
            one.split,
            one.metric,
            one.value,
            one.protocol,
        )
        for one in card.evaluation
    )
    return "## Evaluation\n\n" + _table(head, rows)


def _provenance(description: ReleaseDescription, facts: CardFacts) -> str:
    return (
        "## Provenance\n\n"
        f"The weights come from generation `{facts.generation}`, the state after {facts.next_update:,} updates, "
        f"trained by code version `{_line(description.code_version)}`. "
        f"`{MANIFEST}` lists the SHA-256 digest of every other file and of every tensor, and what was done to each "
        "entry of the training state. Its own digest cannot stand in it or here: it stands in the authorization "
        "and in the release log of whoever published this."
    )


def _license(description: ReleaseDescription) -> str:
    chosen = card_license(description.license)
    text = f"## License\n\nReleased under `{chosen.name or chosen.id}`"
    text += (
        f" ([text]({chosen.link}))."
        if chosen.link
        else f"; the text is in the file `{PurePosixPath(description.files.license).name}` beside this card."
    )
    if description.adapter is not None:
        one = description.adapter
        text += f" The base model {one.base_model} has a license of its own, `{_line(one.base_license)}`."
    return text


def _table(head: tuple[str, ...], rows: tuple[tuple[str, ...], ...]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(_cell(value) for value in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return _line(text).replace("|", "\\|")


def _line(text: str) -> str:
    return " ".join(text.split())


def _human(size: int) -> str:
    units = ("B", "kB", "MB", "GB", "TB")
    power = min(len(units) - 1, int(math.log(size, 1_000)) if size else 0)
    return f"{size / 1_000**power:.4g} {units[power]}"
