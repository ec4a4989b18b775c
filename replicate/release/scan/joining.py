"""Every rule over one tree, joined in a fixed order."""

from collections.abc import Iterator
from importlib import metadata

from replicate.errors import LocalDisk
from replicate.release.bundle import MANIFEST
from replicate.release.documents import encode
from replicate.release.findings import Finding, Rule
from replicate.release.scan.cards import CARD, find_in_card, missing_card
from replicate.release.scan.containers import (
    Container,
    find_in_containers,
    find_in_index,
    header_pieces,
    index_name,
    read_containers,
)
from replicate.release.scan.fragments import Origin, Piece
from replicate.release.scan.hits import Hit, findings_of
from replicate.release.scan.inputs import ScanContext
from replicate.release.scan.names import FileKind, limit_of
from replicate.release.scan.people import hidden_words
from replicate.release.scan.pickles import find_pickles
from replicate.release.scan.settings import CONFIG, GENERATION, find_token_ids
from replicate.release.scan.templates import templates_in, wants_template
from replicate.release.scan.tensors import find_in_tensors
from replicate.release.scan.texts import Documents, find_in_file, find_in_named_text, find_in_text
from replicate.release.scan.tree import Walk, walk
from replicate.release.scan.values import byte_pieces, find_in_values, find_pickled_tensors

RULES_VERSION = "1"
"""Counted up when a rule comes, goes or changes: a report says what looked."""
_LIBRARIES = ("detect-secrets", "jinja2", "license-expression", "numpy", "pyyaml")


def find_all(context: ScanContext) -> tuple[list[tuple[Finding, str]], int, int]:
    """Return every finding with the reason why it cannot be waived, and how many files and tensors were seen.

    Raises LocalDisk where a file cannot be read.
    """
    try:
        seen = walk(context)
        containers, hits = read_containers(seen)
        found = [*seen.hits, *hits, *_in_weights(containers, seen, context), *_in_texts(seen, containers, context)]
    except OSError as error:
        what = error.filename or error
        raise LocalDisk(f"{what} cannot be read: {error.strerror or 'it changed'}", hint="prepare it again") from error
    tensors = sum(len(one.header.tensors) for one in containers)
    return findings_of(found, hidden=hidden_words(context.identities)), len(seen.files), tensors


def scanners() -> tuple[str, ...]:
    """Return name and version of everything that looked."""
    versions = [f"{name} {metadata.version(name)}" for name in _LIBRARIES]
    return (f"ckptier {metadata.version('ckptier')} (rules {RULES_VERSION})", *versions)


def _in_weights(containers: tuple[Container, ...], seen: Walk, context: ScanContext) -> Iterator[Hit]:
    yield from find_in_containers(containers, seen, context)
    yield from find_in_tensors(containers, context)
    yield from find_in_values(containers, context)
    yield from find_pickled_tensors(containers)
    for one in containers:
        yield from find_in_text(header_pieces(one), one.file.path, context)
        yield from find_in_text(byte_pieces(one), one.file.path, context)


def _in_texts(seen: Walk, containers: tuple[Container, ...], context: ScanContext) -> Iterator[Hit]:
    documents = Documents()
    for file in seen.files:
        yield from find_in_text([Piece(Origin.NAME, None, "file name", file.path)], file.path, context)
        yield from find_pickles(file)
        yield from find_in_file(file, context, documents)
    yield from _manifest(seen, context)
    yield from _index(seen, containers, documents)
    yield from find_token_ids(documents.by_path.get(CONFIG), documents.by_path.get(GENERATION))
    yield from _card(seen, context)
    yield from _template(seen, documents, context)


def _manifest(seen: Walk, context: ScanContext) -> Iterator[Hit]:
    """Look at the manifest, which is published too, even where it is not written yet."""
    expected, file = encode(context.manifest), seen.named(MANIFEST)
    if file is None:
        yield from find_in_named_text(MANIFEST, FileKind.JSON, expected.decode(), context, Documents())
    elif file.absolute.read_bytes() != expected:
        yield Hit(rule=Rule.CONTAINER, path=MANIFEST, detail="is not the export manifest of this release")


def _index(seen: Walk, containers: tuple[Container, ...], documents: Documents) -> Iterator[Hit]:
    paths = tuple(file.path for file in seen.files if file.kind is FileKind.WEIGHTS)
    wanted = index_name(paths)
    there = {file.path for file in seen.files if file.path.endswith(".safetensors.index.json")}
    for path in sorted(there - {wanted}):
        yield Hit(rule=Rule.CONTAINER, path=path, detail="is an index, and there are no shards that it belongs to")
    if wanted is not None and wanted not in there:
        yield Hit(rule=Rule.CONTAINER, path=wanted, detail="is missing: there are shards")
    elif wanted is not None:
        yield from find_in_index(wanted, documents.by_path.get(wanted), containers)


def _card(seen: Walk, context: ScanContext) -> Iterator[Hit]:
    file = seen.named(CARD)
    if file is None:
        yield missing_card()
    elif file.size <= limit_of(file.path, file.kind):
        yield from find_in_card(file.absolute.read_bytes(), context.description, context.manifest)


def _template(seen: Walk, documents: Documents, context: ScanContext) -> Iterator[Hit]:
    files = any(file.kind is FileKind.TEMPLATE for file in seen.files)
    inside = any(templates_in(documents.by_path.get(path)) for path in ("tokenizer_config.json", "chat_template.json"))
    if wants_template(context.description) and not files and not inside:
        detail = "is missing, and the description names a model that is talked to; name it in files.chat_template"
        yield Hit(rule=Rule.CHAT_TEMPLATE, path="chat_template.jinja", detail=detail)
