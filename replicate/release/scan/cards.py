"""A model card checked offline, against the description and the export manifest.

The Hub validates a card when it is pushed, over the network; what it would refuse, and what it
does not look at (whether the numbers are those of the weights), is looked at here before.
"""

import math
import re
from collections.abc import Iterator
from typing import Any

from replicate.errors import CkptierError
from replicate.release.bundle import MANIFEST, ExportManifest, Kind
from replicate.release.description import ReleaseDescription
from replicate.release.findings import Finding, Rule
from replicate.release.licenses import card_license, check_license, derivative_faults, license_of_base
from replicate.release.scan.frontmatter import YamlFault, parse_yaml, split
from replicate.release.scan.hits import Hit, findings_of
from replicate.release.scan.jsontext import Pairs
from replicate.release.scan.placeholders import placeholders

CARD = "README.md"
PARAMETERS_ROW = "Parameters"
DTYPES_ROW = "Data types"
MODEL_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}/[A-Za-z0-9][\w.-]{0,95}")
DATASET_ID = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(?:/[A-Za-z0-9][\w.-]{0,95})?")
_LANGUAGE = re.compile(r"[a-z]{2,3}(?:-[A-Za-z0-9]{2,8})*|code|multilingual")
_ROW = re.compile(r"\|[ \t]*([A-Za-z ]{1,40}?)[ \t]*\|[ \t]*([^|\n]{1,2000}?)[ \t]*\|")
_TARGET = re.compile(r"\]\(([^()\s]{1,500})\)")
_CLAIM = re.compile(r"(?<![\w.])(\d{1,6}(?:\.\d{1,4})?)[ -]?([BMK])[ -]?(?:parameters|params)(?!\w)")
_UNITS = {"K": 10**3, "M": 10**6, "B": 10**9}
_TOLERANCE = 0.15
"""How far a rounded claim in prose may be from the count: people say 7B for 6.7 and for 7.6."""
_DERIVED = ("adapter", "finetune", "merge", "quantized")

Said = tuple[Rule, str, str]
"""A rule, the place in the card, and what is wrong there."""


def check_card(card: bytes, description: ReleaseDescription, manifest: ExportManifest) -> tuple[Finding, ...]:
    """Check README.md; every finding names the field or the line, and what was expected."""
    return tuple(finding for finding, _ in findings_of(find_in_card(card, description, manifest)))


def find_in_card(card: bytes, description: ReleaseDescription, manifest: ExportManifest) -> Iterator[Hit]:
    """As ``check_card``, for the scan that joins it with its other rules."""
    try:
        text = card.decode()
    except UnicodeDecodeError as error:
        yield _hit((Rule.CARD_INCOMPLETE, "", f"is no UTF-8 text: byte {error.start}"))
        return
    front, body, first_line = split(text)
    try:
        document = parse_yaml(front)
    except YamlFault as error:
        yield _hit((Rule.CARD_INCOMPLETE, "front matter", str(error)))
        document = Pairs()
    if not isinstance(document, Pairs) or not document:
        yield _hit(
            (Rule.CARD_INCOMPLETE, "front matter", "is missing, or is no mapping: the Hub shows no license then")
        )
        document = Pairs()
    for said in (
        *_required(document, description),
        *_license(document, description, manifest),
        *_as_described(document, description),
        *_ids(document),
        *_emissions(document),
        *_numbers(body, manifest, description),
        *_links(body, manifest),
        *((Rule.CARD_PLACEHOLDER, f"line {line}", detail) for line, detail in placeholders(text)),
    ):
        yield _hit(said)
    if not body.strip():
        yield _hit((Rule.CARD_INCOMPLETE, f"line {first_line}", "has no text below the front matter"))


def missing_card() -> Hit:
    """Say that there is no card."""
    return _hit((Rule.CARD_INCOMPLETE, "", "is missing: a release says what it is"))


def _hit(said: Said) -> Hit:
    rule, place, detail = said
    return Hit(rule=rule, path=CARD, place=place, detail=detail)


def _required(front: Pairs, description: ReleaseDescription) -> Iterator[Said]:
    names = ["license", "library_name"]
    derived = description.kind is Kind.ADAPTER or description.card.base_model_relation in _DERIVED
    if derived or front.get("base_model_relation") is not None:
        names += ["base_model", "base_model_relation"]
    for name in names:
        if front.get(name) in (None, "", []):
            yield Rule.CARD_INCOMPLETE, name, "is missing in the front matter"
    if front.get("license") == "other":
        for name in ("license_name", "license_link"):
            if not isinstance(front.get(name), str) or not front.get(name):
                yield Rule.CARD_INCOMPLETE, name, "is missing, and license is other"
    if description.kind is Kind.CUSTOM and front.get("library_name") == "transformers":
        yield Rule.CARD_DISAGREES, "library_name", "is transformers, which cannot load a custom architecture"


def _license(front: Pairs, description: ReleaseDescription, manifest: ExportManifest) -> Iterator[Said]:
    choice = description.license
    try:
        check_license(choice)
    except CkptierError as error:
        yield Rule.LICENSE, "license", f"{error.message}; {error.hint}"
        return
    wanted = card_license(choice)
    for name, value in (("license", wanted.id), ("license_name", wanted.name), ("license_link", wanted.link)):
        if front.get(name) != value:
            yield Rule.LICENSE, name, f"is {_shown(front.get(name))}, and the description says {_shown(value)}"
    if manifest.license != choice.id:
        yield Rule.LICENSE, "license", f"is {choice.id!r}, and {manifest.license!r} in the export manifest"
    link = wanted.link
    if link is not None and not link.startswith("https://") and link not in _paths(manifest):
        yield Rule.LICENSE, "license_link", f"names {link!r}, which is not published"
    if not any(path.upper().startswith("LICENSE") for path in _paths(manifest)):
        yield Rule.LICENSE, "license", "its text is not published: no file is named LICENSE"
    yield from _derivatives(description)


def _derivatives(description: ReleaseDescription) -> Iterator[Said]:
    bases = {base: license_of_base(base) for base in description.card.base_model}
    if description.adapter is not None:
        bases[description.adapter.base_model] = description.adapter.base_license
    for base, base_license in sorted(bases.items()):
        for fault in derivative_faults(base, base_license or "", description.license, description.name):
            yield Rule.LICENSE, "base_model", fault


def _as_described(front: Pairs, description: ReleaseDescription) -> Iterator[Said]:
    card = description.card
    base = list(card.base_model) or ([description.adapter.base_model] if description.adapter else [])
    relation = card.base_model_relation or ("adapter" if description.kind is Kind.ADAPTER else None)
    for name, value in (
        ("library_name", card.library_name),
        ("pipeline_tag", card.pipeline_tag or None),
        ("language", list(card.language)),
        ("datasets", list(card.datasets)),
        ("base_model", base),
        ("base_model_relation", relation),
    ):
        found = front.get(name)
        if isinstance(value, list):
            found = found if isinstance(found, list) else [found] if found is not None else []
        if found != value:
            yield Rule.CARD_DISAGREES, name, f"is {_shown(front.get(name))}, and the description says {_shown(value)}"


def _ids(front: Pairs) -> Iterator[Said]:
    for name, expression, what in (
        ("base_model", MODEL_ID, "an id of a model on the Hub (owner/name)"),
        ("datasets", DATASET_ID, "an id of a dataset on the Hub (owner/name)"),
        ("language", _LANGUAGE, "a code of ISO 639 in lower case"),
    ):
        for value in _listed(front.get(name)):
            odd = isinstance(value, str) and (".." in value or "--" in value)
            if not isinstance(value, str) or not expression.fullmatch(value) or odd:
                yield Rule.CARD_INCOMPLETE, name, f"{_shown(value)} is not {what}"


def _emissions(front: Pairs) -> Iterator[Said]:
    value = front.get("co2_eq_emissions")
    if value is None:
        return
    grams = value.get("emissions") if isinstance(value, Pairs) else value
    if isinstance(grams, bool) or not isinstance(grams, int | float) or not math.isfinite(grams) or grams < 0:
        yield Rule.CARD_INCOMPLETE, "co2_eq_emissions", "is no number of grams"
    elif not isinstance(value, Pairs) or not value.get("source"):
        yield Rule.CARD_INCOMPLETE, "co2_eq_emissions", "does not say its source"


def _numbers(body: str, manifest: ExportManifest, description: ReleaseDescription) -> Iterator[Said]:
    count = sum(math.prod(one.shape) for one in manifest.tensors)
    dtypes: dict[str, int] = {}
    for one in manifest.tensors:
        dtypes[one.dtype] = dtypes.get(one.dtype, 0) + math.prod(one.shape)
    rows = {found[1]: found[2] for found in _ROW.finditer(body)}
    for name, value in ((PARAMETERS_ROW, f"{count:,}"), (DTYPES_ROW, dtypes_row(tuple(sorted(dtypes.items()))))):
        if name not in rows:
            yield Rule.CARD_INCOMPLETE, name, "is missing in the table of the weights"
        elif rows[name] != value:
            yield Rule.CARD_DISAGREES, name, f"is {rows[name]}, and {value} in the files"
    for number, found in _in_lines(_CLAIM, body) if description.kind is not Kind.ADAPTER else ():
        claimed = float(found[1]) * _UNITS[found[2]]
        if count and abs(claimed - count) > _TOLERANCE * count:
            detail = f"says {found[0]}, and the files hold {count:,}"
            yield Rule.CARD_DISAGREES, f"body line {number}", detail


def dtypes_row(dtypes: tuple[tuple[str, int], ...]) -> str:
    """Write dtypes with the number of parameters of each, as a card's table has them."""
    return ", ".join(f"{dtype} ({count:,})" for dtype, count in sorted(dtypes))


def _links(body: str, manifest: ExportManifest) -> Iterator[Said]:
    known = {*_paths(manifest), MANIFEST, CARD}
    for number, found in _in_lines(_TARGET, body):
        target = found[1].partition("#")[0]
        if target and "://" not in target and not target.startswith("mailto:") and target not in known:
            yield Rule.CARD_DISAGREES, f"body line {number}", f"links {_shown(target)}, which is not published"


def _in_lines(expression: re.Pattern[str], body: str) -> Iterator[tuple[int, re.Match[str]]]:
    for number, line in enumerate(body.split("\n"), 1):
        for found in expression.finditer(line):
            yield number, found


def _paths(manifest: ExportManifest) -> frozenset[str]:
    return frozenset(one.path for one in manifest.files)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else [] if value is None else [value]


def _shown(value: Any) -> str:
    return "missing" if value in (None, []) else repr(value)[:120]
