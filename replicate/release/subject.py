"""What is about to be published, from its bytes: every file hashed, every claim of the manifest recomputed.

Nothing that a document says is taken over where it can be computed.  Each file is read once,
through one descriptor, and both its digest and those of its tensors come from that reading; a
file that changes meanwhile, is a link, or has a second name is refused.
"""

import errno
import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import Field

from replicate import canonical
from replicate.digests import BLOCK, CountedSha256
from replicate.errors import IntegrityFailure, LocalDisk
from replicate.formats.safetensors import MAX_HEADER_BYTES, FileHeader, parse_header
from replicate.generation.tree import SpecialFile, scan
from replicate.release.authorization import Subject
from replicate.release.bundle import (
    MANIFEST,
    Exporter,
    ExportManifest,
    Prepared,
    PublishedFile,
    PublishedTensor,
    content_sha256,
)
from replicate.release.description import ReleaseDescription
from replicate.release.destination import Destination
from replicate.release.documents import MAX_DOCUMENT_BYTES, Document, T, decode, encode
from replicate.release.findings import ScanReport, Waiver

CARD = "README.md"
WORKERS = 2
_LENGTH = 8
_WEIGHTS = ".safetensors"
_AGAIN = "run `ckptier release prepare` again, and authorize what it makes"


class Waivers(Document):
    """``waivers.json``: what the scan was given, in the order of its report."""

    format: Literal[1] = 1
    waivers: Annotated[tuple[Waiver, ...], Field(strict=False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What lies in a prepared folder.  ``report`` may hold blocking findings: deciding refuses those."""

    subject: Subject
    destination: Destination
    manifest: ExportManifest
    manifest_bytes: bytes
    report: ScanReport


@dataclass(frozen=True, slots=True, kw_only=True)
class _Contents:
    """One file as it was read."""

    file: PublishedFile
    tensors: tuple[PublishedTensor, ...]


def observe(prepared: Prepared) -> Observed:
    """Recompute everything that an authorization binds; raises IntegrityFailure that names what differs.

    Memory stays at a few blocks and one header for each of two files, whatever the tree weighs.
    LocalDisk where a file cannot be read.
    """
    manifest_bytes, manifest = _document(ExportManifest, prepared.manifest, MANIFEST)
    _check_form(manifest)
    _, description = _document(ReleaseDescription, prepared.description, prepared.description.name)
    report_bytes, report = _document(ScanReport, prepared.scan_report, prepared.scan_report.name)
    _check_tree(prepared.tree, manifest)
    _check_description(description, manifest)
    _check_report(prepared, report, manifest.sha256)
    subject = Subject(
        name=manifest.name,
        version=manifest.version,
        source_generation=manifest.source.generation,
        source_record_sha256=manifest.source.record_sha256,
        export_manifest_sha256=canonical.sha256(manifest_bytes),
        content_sha256=manifest.content_sha256,
        transforms_sha256=manifest.transforms_sha256,
        exporter=_words(manifest.exporter),
        license=manifest.license,
        license_sha256=_digest_in(manifest, PurePosixPath(description.files.license).name),
        card_sha256=_digest_in(manifest, CARD),
        scan_report_sha256=canonical.sha256(report_bytes),
        waivers=report.waivers,
    )
    return Observed(
        subject=subject,
        destination=description.destination,
        manifest=manifest,
        manifest_bytes=manifest_bytes,
        report=report,
    )


def _document(kind: type[T], path: Path, what: str) -> tuple[bytes, T]:
    """Read a document and require its one form: two spellings of one content would have two digests."""
    with _opened(path, what) as fd:
        size = os.fstat(fd).st_size
        if size > MAX_DOCUMENT_BYTES:
            raise IntegrityFailure(f"{what} is larger than {MAX_DOCUMENT_BYTES} bytes", hint=_AGAIN)
        data = b"".join(_blocks(fd, size, what))
    document = decode(kind, data, what=what)
    if encode(document) != data:
        raise IntegrityFailure(f"{what} is not in its canonical form", hint=_AGAIN)
    return data, document


def _check_form(manifest: ExportManifest) -> None:
    """Refuse a manifest that lists twice, out of order, itself, or tensors under another digest than it says."""
    paths = [file.path for file in manifest.files]
    names = [tensor.name for tensor in manifest.tensors]
    for what, listed in (("files", paths), ("tensors", names)):
        if listed != sorted(set(listed)):
            raise IntegrityFailure(f"{MANIFEST}: {what} are not sorted, or one stands there twice", hint=_AGAIN)
    if MANIFEST in paths:
        raise IntegrityFailure(f"{MANIFEST}: files: it lists itself", hint=_AGAIN)
    found = content_sha256(manifest.tensors)
    if found != manifest.content_sha256:
        raise _differs(f"{MANIFEST}: content_sha256", manifest.content_sha256, found)


def _check_tree(tree: Path, manifest: ExportManifest) -> None:
    """Compare every file and every tensor of the tree with the manifest, and the sets both ways."""
    try:
        found = scan(tree)
    except SpecialFile as error:
        raise IntegrityFailure(f"tree: {error.message}", hint=_AGAIN) from error
    if found.empty:
        raise IntegrityFailure(f"tree: {found.empty[0]!r} is an empty folder, which nothing publishes", hint=_AGAIN)
    listed, present = {file.path for file in manifest.files}, {file.path for file in found.files} - {MANIFEST}
    for paths, words in (
        (present - listed, "is in the tree and not in"),
        (listed - present, "is not in the tree but in"),
    ):
        if paths:
            raise IntegrityFailure(f"{min(paths)!r} {words} {MANIFEST} ({len(paths)} such files)", hint=_AGAIN)
    with ThreadPoolExecutor(WORKERS, thread_name_prefix="ckptier-observe") as pool:
        contents = list(pool.map(lambda file: _read(tree, file), manifest.files))
    _check_tensors(manifest, [tensor for one in contents for tensor in one.tensors])


def _check_tensors(manifest: ExportManifest, read: list[PublishedTensor]) -> None:
    held: dict[str, PublishedTensor] = {}
    for tensor in read:
        if tensor.name in held:
            raise IntegrityFailure(
                f"tensor {tensor.name!r} is in {held[tensor.name].file} and in {tensor.file}", hint=_AGAIN
            )
        held[tensor.name] = tensor
    for listed in manifest.tensors:
        found = held.pop(listed.name, None)
        if found is None:
            raise IntegrityFailure(f"tensor {listed.name!r} of {MANIFEST} is in no file", hint=_AGAIN)
        for field in PublishedTensor.model_fields:
            if getattr(found, field) != getattr(listed, field):
                where = f"{listed.file}: tensor {listed.name!r}: {field}"
                raise _differs(where, getattr(listed, field), getattr(found, field))
    if held:
        name, tensor = min(held.items())
        raise IntegrityFailure(f"{tensor.file}: tensor {name!r} is not in {MANIFEST}", hint=_AGAIN)


def _check_description(description: ReleaseDescription, manifest: ExportManifest) -> None:
    for field, said, found in (
        ("kind", description.kind, manifest.kind),
        ("name", description.name, manifest.name),
        ("version", description.version, manifest.version),
        ("license.id", description.license.id, manifest.license),
    ):
        if said != found:
            raise _differs(f"description.json: {field}", said, f"{found} in {MANIFEST}")


def _check_report(prepared: Prepared, report: ScanReport, manifest_sha256: str) -> None:
    """Refuse a report of another tree, or one whose waivers are not those that lie beside it."""
    name = prepared.scan_report.name
    if report.export_manifest_sha256 != manifest_sha256:
        raise _differs(f"{name}: export_manifest_sha256", report.export_manifest_sha256, manifest_sha256)
    there = os.path.lexists(prepared.waivers)
    given = _document(Waivers, prepared.waivers, prepared.waivers.name)[1].waivers if there else ()
    if given != report.waivers:
        raise IntegrityFailure(
            f"{prepared.waivers.name}: its {len(given)} waivers are not the {len(report.waivers)} that {name} used",
            hint=_AGAIN,
        )


def _digest_in(manifest: ExportManifest, path: str) -> str:
    """Return the digest of a file that a release must have; it was compared with the bytes before."""
    for file in manifest.files:
        if file.path == path:
            return file.sha256
    raise IntegrityFailure(f"{path} is not in the tree", hint=_AGAIN)


def _words(exporter: Exporter) -> str:
    libraries = (f"{name} {version}" for name, version in sorted(exporter.libraries.items()))
    return "; ".join((f"ckptier {exporter.ckptier}", *libraries))


def _differs(where: str, said: object, found: object) -> IntegrityFailure:
    return IntegrityFailure(f"{where}: {said} is written down, found {found}", hint=_AGAIN)


def _read(tree: Path, listed: PublishedFile) -> _Contents:
    """Hash a file, and the tensors in it, in one reading; raises IntegrityFailure where it is not as listed."""
    with _opened(tree / listed.path, listed.path) as fd:
        before = os.fstat(fd)
        if before.st_size != listed.size:
            raise _differs(f"{listed.path}: size", listed.size, before.st_size)
        whole = CountedSha256()
        tensors = tuple(_tensors(fd, listed, whole)) if listed.path.endswith(_WEIGHTS) else ()
        for block in _blocks(fd, listed.size - os.lseek(fd, 0, os.SEEK_CUR), listed.path):
            whole.update(block)
        after = os.fstat(fd)
    if _stamp(before) != _stamp(after):
        raise IntegrityFailure(f"{listed.path}: it changed while it was read", hint="let nothing else write there")
    if whole.hexdigest() != listed.sha256:
        raise _differs(f"{listed.path}: sha256", listed.sha256, whole.hexdigest())
    return _Contents(file=listed, tensors=tensors)


def _tensors(fd: int, listed: PublishedFile, whole: CountedSha256) -> Iterator[PublishedTensor]:
    """Read a safetensors file through its last tensor, which is where it ends: parsing saw to that."""
    for tensor in _header(fd, listed, whole).tensors:
        digest = CountedSha256()
        for block in _blocks(fd, tensor.size, listed.path):
            whole.update(block)
            digest.update(block)
        yield PublishedTensor(
            name=tensor.name,
            file=listed.path,
            dtype=tensor.dtype,
            shape=tensor.shape,
            sha256=digest.hexdigest(),
        )


def _header(fd: int, listed: PublishedFile, whole: CountedSha256) -> FileHeader:
    start = b"".join(_blocks(fd, min(_LENGTH, listed.size), listed.path))
    length = int.from_bytes(start, "little")
    if listed.size < _LENGTH or length > min(listed.size - _LENGTH, MAX_HEADER_BYTES):
        raise IntegrityFailure(f"{listed.path}: a header of {length} bytes does not fit a file of {listed.size}")
    raw = b"".join(_blocks(fd, length, listed.path))
    whole.update(start)
    whole.update(raw)
    return parse_header(raw, listed.size, what=listed.path)


def _stamp(found: os.stat_result) -> tuple[int, int, int]:
    """Return what changes when somebody writes into the file."""
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns


@contextmanager
def _opened(path: Path, what: str) -> Iterator[int]:
    """Open a regular file with one name, through no link; reading errors of the block are LocalDisk."""
    try:
        # O_NONBLOCK: a FIFO that somebody put there must not be waited for.
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                raise IntegrityFailure(f"{what} is no regular file", hint=_AGAIN)
            if found.st_nlink != 1:
                raise IntegrityFailure(
                    f"{what} has {found.st_nlink} names (hard links), so that it can change under another", hint=_AGAIN
                )
            yield fd
        finally:
            os.close(fd)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise IntegrityFailure(f"{what} is a symbolic link", hint=_AGAIN) from error
        raise LocalDisk(f"{what} ({path}) cannot be read: {error.strerror}", hint="check the path") from error


def _blocks(fd: int, size: int, what: str) -> Iterator[bytes]:
    """Yield the next ``size`` bytes of a file; IntegrityFailure where it ends before."""
    left = size
    while left > 0:
        block = os.read(fd, min(BLOCK, left))
        if not block:
            raise IntegrityFailure(f"{what} ended {left} bytes early: it changed while it was read", hint=_AGAIN)
        left -= len(block)
        yield block
