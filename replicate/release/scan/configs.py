"""Fields of JSON files that point outside, run code, name a run, or hold a credential.

The rules look at every JSON file: a field means the same wherever a loader looks for it.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import Any

from replicate.release.findings import Rule
from replicate.release.scan.fragments import pointer
from replicate.release.scan.hits import Hit, digest_of
from replicate.release.scan.inputs import ScanContext
from replicate.release.scan.jsontext import Member, Pairs

_CREDENTIAL = re.compile(
    r"(?:.*[_.-])?(?:api_?key|access_?key|secret|secret_?key|secret_access_key|client_secret|private_?key|passw(?:or)?d|"
    r"passphrase|auth_?token|access_?token|refresh_?token|bearer_?token|hub_?token|hf_?token|push_to_hub_token|"
    r"use_auth_token|api_?token|wandb_?key|session_?token|connection_string)",
    re.IGNORECASE,
)
MIN_CREDENTIAL = 4
_RUN_FIELD = re.compile(
    r"(?:wandb|mlflow|comet|neptune|clearml|slurm|aim|trackio|swanlab)_\w+|run_?(?:id|name|uid|uuid)|job_?id|"
    r"experiment_?(?:id|name|key)|hostname|user_?name|logging_dir|report_to",
    re.IGNORECASE,
)
_CODE_FIELDS = frozenset(
    {"auto_map", "custom_pipelines", "custom_generate", "custom_pipeline", "_auto_class", "auto_class"}
)
_MODEL_FIELDS = frozenset({"_name_or_path", "name_or_path", "model_name_or_path", "tokenizer_name_or_path"})
_FOLDER_FIELD = re.compile(r".+_(?:path|paths|dir|dirs|folder|uri)|path|dir|cache_dir", re.IGNORECASE)
_REPO = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[A-Za-z0-9][\w.-]*)?")
_COMMIT = re.compile(r"[0-9a-f]{40}")

FieldRule = Callable[[str, Member, ScanContext], Iterator[Hit]]


def find_fields(path: str, members: Iterator[Member], context: ScanContext) -> Iterator[Hit]:
    """Look at every field of a JSON file, outside a tokenizer's vocabulary."""
    for member in members:
        if member.key is not None and not member.learned:
            for rule in _FIELD_RULES:
                yield from rule(path, member, context)


def _hit(rule: Rule, path: str, member: Member, detail: str, *, secret: str = "") -> Hit:
    return Hit(rule=rule, path=path, place=pointer(member.node, member.label), detail=detail, secret=secret)


def _credential(path: str, member: Member, _: ScanContext) -> Iterator[Hit]:
    value = member.value
    if isinstance(value, str) and len(value) >= MIN_CREDENTIAL and _CREDENTIAL.fullmatch(member.key or ""):
        detail = f"value of a field named like a credential (sha256 {digest_of(value)}); take the field out"
        yield _hit(Rule.SECRET, path, member, detail, secret=value)


def _run_identity(path: str, member: Member, _: ScanContext) -> Iterator[Hit]:
    if member.value not in (None, "", [], False) and _RUN_FIELD.fullmatch(member.key or ""):
        yield _hit(Rule.RUN_IDENTITY, path, member, "field that tells a training run; take it out")


def _remote_code(path: str, member: Member, _: ScanContext) -> Iterator[Hit]:
    if member.key in _CODE_FIELDS and member.value not in (None, "", [], False):
        yield _hit(Rule.REMOTE_CODE, path, member, f"{member.key} names code that a loader would run; take it out")
    if member.key == "trust_remote_code" and member.value not in (None, False):
        yield _hit(Rule.REMOTE_CODE, path, member, "trust_remote_code is set: it is for whoever loads, never preset")


def _model_name(path: str, member: Member, context: ScanContext) -> Iterator[Hit]:
    if member.key not in _MODEL_FIELDS or member.value in (None, ""):
        return
    if not isinstance(member.value, str) or member.value not in _public_models(context):
        detail = (
            f"names a model or folder (sha256 {digest_of(str(member.value))}) that the description does not; "
            "leave it empty, or name the model in card.base_model"
        )
        yield _hit(Rule.POINTS_OUTSIDE, path, member, detail)


def _adapter_base(path: str, member: Member, context: ScanContext) -> Iterator[Hit]:
    adapter = context.description.adapter
    if adapter is None or path != "adapter_config.json" or member.node is not None:
        return
    value = member.value
    if member.key == "base_model_name_or_path" and value != adapter.base_model:
        kind = "a model id" if isinstance(value, str) and _REPO.fullmatch(value) else "no model id, a path perhaps"
        detail = f"is {kind} other than adapter.base_model; write {adapter.base_model!r}"
        yield _hit(Rule.POINTS_OUTSIDE, path, member, detail)
    if member.key == "revision" and value not in (None, adapter.base_revision):
        yield _hit(Rule.CONFIG_INVALID, path, member, f"is not adapter.base_revision ({adapter.base_revision})")


def _foreign_base(path: str, member: Member, context: ScanContext) -> Iterator[Hit]:
    if member.key != "base_model_name_or_path" or path == "adapter_config.json" or member.value in (None, ""):
        return
    if member.value not in _public_models(context):
        yield _hit(Rule.POINTS_OUTSIDE, path, member, "names a base model that the description does not")


def _file_field(path: str, member: Member, context: ScanContext) -> Iterator[Hit]:
    key = (member.key or "").lower()
    if not key.endswith(("_file", "_files")) and key not in ("file", "filename"):
        return
    for value in _strings(member.value):
        if value != PurePosixPath(value).name or "\\" in value or value.startswith("."):
            detail = f"is no plain file name (sha256 {digest_of(value)}): a loader would read or publish what it names"
            yield _hit(Rule.POINTS_OUTSIDE, path, member, detail)
        elif value not in _published(context):
            yield _hit(
                Rule.POINTS_OUTSIDE, path, member, f"names a file (sha256 {digest_of(value)}) that is not published"
            )


def _folder_field(path: str, member: Member, _: ScanContext) -> Iterator[Hit]:
    key = member.key or ""
    if key in _MODEL_FIELDS or key == "base_model_name_or_path" or not _FOLDER_FIELD.fullmatch(key):
        return
    for value in _strings(member.value):
        yield _hit(Rule.POINTS_OUTSIDE, path, member, f"names a place (sha256 {digest_of(value)}); take the field out")


def _quantization(path: str, member: Member, _: ScanContext) -> Iterator[Hit]:
    node = member.node
    while node is not None and node.label != "quantization_config":
        node = node.parent
    if node is None or not isinstance(member.value, str):
        return
    if "/" in member.value or "\\" in member.value:
        yield _hit(Rule.POINTS_OUTSIDE, path, member, "a quantization field holds a path; take it out")


def _strings(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value] if value else []
    if isinstance(value, Pairs):
        return []
    return [one for one in value if isinstance(one, str) and one] if isinstance(value, list) else []


def _published(context: ScanContext) -> frozenset[str]:
    return frozenset(one.path for one in context.manifest.files)


def _public_models(context: ScanContext) -> frozenset[str]:
    one = context.description
    models = {*one.card.base_model}
    if one.adapter is not None:
        models.add(one.adapter.base_model)
    if one.destination.scheme == "hf":
        models.add(one.destination.repo)
    return frozenset(models)


_FIELD_RULES: tuple[FieldRule, ...] = (
    _credential,
    _run_identity,
    _remote_code,
    _model_name,
    _adapter_base,
    _foreign_base,
    _file_field,
    _folder_field,
    _quantization,
)
