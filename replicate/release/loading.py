"""How a release is loaded, as its card says it: what is right for its kind, and nothing that would not work."""

from replicate.release.bundle import Kind
from replicate.release.description import ReleaseDescription

_AUTO_CLASSES = (
    ("ForCausalLM", "AutoModelForCausalLM"),
    ("LMHeadModel", "AutoModelForCausalLM"),
    ("ForSequenceClassification", "AutoModelForSequenceClassification"),
    ("ForTokenClassification", "AutoModelForTokenClassification"),
    ("ForQuestionAnswering", "AutoModelForQuestionAnswering"),
    ("ForMaskedLM", "AutoModelForMaskedLM"),
    ("ForImageClassification", "AutoModelForImageClassification"),
)
"""Ends of class names and the Auto class that finds them."""
_BY_PIPELINE = {
    "text-generation": "AutoModelForCausalLM",
    "text-classification": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "question-answering": "AutoModelForQuestionAnswering",
    "fill-mask": "AutoModelForMaskedLM",
    "image-classification": "AutoModelForImageClassification",
}


def how_to_load(description: ReleaseDescription, shards: int) -> str:
    """Return Markdown: a snippet that works on a fresh machine, and what it needs."""
    if description.kind is Kind.FULL:
        return _full(description)
    return _adapter(description) if description.kind is Kind.ADAPTER else _custom(description, shards)


def _full(description: ReleaseDescription) -> str:
    name = description.architecture.model_class or ""
    loader = next((auto for end, auto in _AUTO_CLASSES if name.endswith(end)), name)
    tokenizer = ", AutoTokenizer" if description.files.tokenizer else ""
    lines = [f"from transformers import {loader}{tokenizer}", "", *_place(description)]
    lines.append(f'model = {loader}.from_pretrained(name{_revision(description)}, dtype="auto")')
    if description.files.tokenizer:
        lines.append(f"tokenizer = AutoTokenizer.from_pretrained(name{_revision(description)})")
    return _snippet(lines)


def _adapter(description: ReleaseDescription) -> str:
    one = description.adapter
    if one is None:
        raise ValueError("an adapter without its base model")
    name = description.architecture.model_class or ""
    by_class = next((auto for end, auto in _AUTO_CLASSES if name.endswith(end)), None)
    loader = by_class or _BY_PIPELINE.get(description.card.pipeline_tag, "AutoModel")
    lines = [
        "from peft import PeftModel",
        f"from transformers import {loader}",
        "",
        *_place(description),
        f'base = {loader}.from_pretrained("{one.base_model}", revision="{one.base_revision}", dtype="auto")',
        f"model = PeftModel.from_pretrained(base, name{_revision(description)})",
    ]
    told = "This is an adapter: it holds its own weights only, and belongs to exactly this revision of its base model."
    return f"{told}\n\n{_snippet(lines)}"


def _custom(description: ReleaseDescription, shards: int) -> str:
    module, _, function = (description.architecture.factory or "").partition(":")
    lines = ["import json", "from pathlib import Path", "", "from safetensors.torch import load_file", ""]
    lines += [f"from {module} import {function}", ""]
    if shards == 1:
        lines.append('state = load_file("model.safetensors")')
    else:
        lines.append("state = {}")
        lines.append('for shard in sorted(Path().glob("model-*.safetensors")):')
        lines.append("    state.update(load_file(shard))")
    for tie in description.weights.tied:
        lines += [f'state["{name}"] = state["{tie.keep}"]' for name in tie.drop]
    lines.append(f'model = {function}(json.loads(Path("config.json").read_text()))')
    lines.append("model.load_state_dict(state, strict=True)")
    told = (
        "This is an architecture of its own. The Auto classes of transformers cannot load it, and its code is "
        f"separate: `{module}:{function}` of code version `{description.code_version}`, which is not part of this "
        "release. In the folder of the files:"
    )
    return f"{told}\n\n{_snippet(lines)}"


def _place(description: ReleaseDescription) -> list[str]:
    if description.destination.scheme == "hf":
        return [f'name = "{description.destination.repo}"']
    return ['name = "."  # the folder that holds these files']


def _revision(description: ReleaseDescription) -> str:
    place = description.destination
    if place.scheme != "hf" or (place.tag is None and place.revision == "main"):
        return ""
    return f', revision="{place.tag or place.revision}"'


def _snippet(lines: list[str]) -> str:
    return "\n".join(("```python", *lines, "```"))
