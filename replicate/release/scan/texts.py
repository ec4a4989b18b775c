"""Every text of a release, read whole and given to every rule over text."""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from replicate.release.bundle import MANIFEST
from replicate.release.findings import Rule
from replicate.release.scan import addresses, guesses, people, tokens
from replicate.release.scan.configs import find_fields
from replicate.release.scan.fragments import Block, Origin, Piece, blocks, lines
from replicate.release.scan.frontmatter import YamlFault, parse_yaml, split
from replicate.release.scan.hits import Hit
from replicate.release.scan.inputs import ScanContext
from replicate.release.scan.jsontext import Parsed, members, parse, pieces
from replicate.release.scan.matching import Match, TextRule, hits_of
from replicate.release.scan.names import FileKind, limit_of
from replicate.release.scan.runs import printable_runs
from replicate.release.scan.settings import find_settings
from replicate.release.scan.templates import constants, find_in_template, templates_in
from replicate.release.scan.tree import UNSCANNED, TreeFile

LEARNED = {
    "tokenizer.json": (("model", "vocab"), ("model", "merges")),
    "vocab.json": ((),),
}
"""Where the vocabulary of a tokenizer lies: words that it learned from data."""
MAX_HITS = 2_000
_ORIGINS = {
    FileKind.CARD: Origin.CARD,
    FileKind.TEMPLATE: Origin.TEMPLATE,
    FileKind.VOCABULARY: Origin.VOCABULARY,
}
_RULES: tuple[TextRule, ...] = (
    people.find_identities,
    people.find_personal,
    addresses.find_paths,
    addresses.find_addresses,
    guesses.find_assigned,
)


@dataclass(frozen=True, slots=True)
class Documents:
    """What the JSON files of a tree say, for rules that compare files; those that are no JSON are missing."""

    by_path: dict[str, Any] = field(default_factory=dict)


def find_in_text(found: Iterable[Piece], path: str, context: ScanContext) -> Iterator[Hit]:
    """Give pieces of text to every rule; a text made of findings is not looked through to its end."""
    for number, hit in enumerate(_every_hit(found, path, context)):
        if number == MAX_HITS:
            detail = f"holds more than {MAX_HITS} findings: it was not looked through to its end"
            yield Hit(rule=Rule.FILE_NOT_ALLOWED, path=path, detail=detail, never=UNSCANNED)
            return
        yield hit


def _every_hit(found: Iterable[Piece], path: str, context: ScanContext) -> Iterator[Hit]:
    for block in blocks(found):
        known = list(tokens.find_tokens(block, context))
        yield from hits_of(block, path, iter(known))
        yield from hits_of(block, path, _further(block, known, context))
        for rule in _RULES:
            yield from hits_of(block, path, rule(block, context))


def _further(block: Block, known: list[Match], context: ScanContext) -> Iterator[Match]:
    """Yield what is a secret by its looks, and not one that is known by its form."""
    for guess in guesses.find_guesses(block, context):
        if not any(match.secret in guess.secret or guess.secret in match.secret for match in known):
            yield guess


def find_in_file(file: TreeFile, context: ScanContext, documents: Documents) -> Iterator[Hit]:
    """Read one file that is no safetensors file and apply every rule to it."""
    if file.kind is FileKind.WEIGHTS or file.size > limit_of(file.path, file.kind):
        return
    data = file.absolute.read_bytes()
    if file.kind is FileKind.BINARY or (file.kind is FileKind.UNKNOWN and b"\0" in data):
        runs = printable_runs(file.absolute, 0, file.size)
        yield from find_in_text((Piece(Origin.BYTES, None, "", run) for run in runs), file.path, context)
        return
    text, faults = _decoded(data, file.path)
    yield from faults
    yield from find_in_named_text(file.path, file.kind, text, context, documents)


def find_in_named_text(
    path: str, kind: FileKind, text: str, context: ScanContext, documents: Documents
) -> Iterator[Hit]:
    """Apply every rule to the text of one file."""
    if kind is FileKind.JSON:
        yield from _json(path, text, context, documents)
        return
    origin = _ORIGINS.get(kind, Origin.PROSE)
    found = [lines(text, origin)]
    if kind is FileKind.TEMPLATE:
        yield from find_in_template(path, "", text)
        found.append(constants(None, "", text))
    if kind in (FileKind.CARD, FileKind.YAML):
        yield from _yaml(path, kind, text, context)
    yield from find_in_text(itertools.chain.from_iterable(found), path, context)


def _decoded(data: bytes, path: str) -> tuple[str, tuple[Hit, ...]]:
    faults = []
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        text = data.decode(errors="replace")
        faults.append(f"is no UTF-8 text: byte {error.start}")
    if "\0" in text:
        faults.append("is no text: it holds a zero byte")
    return text, tuple(Hit(rule=Rule.FILE_NOT_ALLOWED, path=path, detail=fault) for fault in faults)


def _json(path: str, text: str, context: ScanContext, documents: Documents) -> Iterator[Hit]:
    parsed = parse(text)
    for fault in parsed.faults:
        yield Hit(rule=Rule.CONFIG_INVALID, path=path, detail=fault)
    if parsed.document is None:
        yield from find_in_text(lines(text, Origin.VALUE), path, context)
        return
    documents.by_path[path] = parsed.document
    learned = LEARNED.get(path, ())
    found = pieces(members(parsed.document, learned))
    yield from find_in_text(itertools.chain(found, _template_constants(parsed)), path, context)
    if path != MANIFEST:
        yield from find_fields(path, members(parsed.document, learned), context)
        yield from find_settings(path, parsed.document, context)
    for place, template in templates_in(parsed.document):
        yield from find_in_template(path, place, template)


def _template_constants(parsed: Parsed) -> Iterator[Piece]:
    for place, template in templates_in(parsed.document):
        yield from constants(None, place, template)


def _yaml(path: str, kind: FileKind, text: str, context: ScanContext) -> Iterator[Hit]:
    """Look at the values of YAML as well: its escapes and folds hide from a look at lines."""
    front = split(text)[0] if kind is FileKind.CARD else text
    try:
        document = parse_yaml(front)
    except YamlFault as error:
        rule = Rule.CARD_INCOMPLETE if kind is FileKind.CARD else Rule.CONFIG_INVALID
        yield Hit(rule=rule, path=path, place="front matter", detail=str(error))
        return
    yield from find_in_text(pieces(members(document)), path, context)
    yield from find_fields(path, members(document), context)
