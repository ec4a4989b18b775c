"""Verifying the store: its documents, its sealed generations, their exact file sets, and a share of the bytes."""

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from replicate import canonical
from replicate.digests import digest_range, leaf_ranges
from replicate.errors import CkptierError, IntegrityFailure, NothingFound, UsageError
from replicate.generation.evidence import Evidence, Level, read_evidence
from replicate.layout import GenerationId, LocalRun
from replicate.manifest import MAX_GENERATION_BYTES, GenerationRecord, SealedFile, parse_generation
from replicate.verify.documents import document_faults, document_notes
from replicate.verify.findings import (
    MAX_REASONS,
    Finding,
    GenerationVerdict,
    Hurt,
    Note,
    NoteKind,
    VerifyReport,
    not_sealed,
)
from replicate.verify.shares import Picker, Portion, Share, Window, pick_by_seed, pick_nothing

LOCAL = "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sealed:
    """A generation's folder with its document, or why that cannot be read."""

    generation: GenerationId
    folder: Path
    record: GenerationRecord | None
    fault: str = ""
    evidence: Evidence | None = None


def verify_local(
    local: LocalRun, *, read_data: Share | None = None, only: GenerationId | None = None, seed: int = 0
) -> VerifyReport:
    """Verify the store's sealed generations: their records, exact file sets, and a share of the bytes."""
    picker = pick_by_seed(read_data, seed) if read_data is not None else pick_nothing
    return look_local(local, picker=picker, only=only)


def look_local(local: LocalRun, *, picker: Picker = pick_nothing, only: GenerationId | None = None) -> VerifyReport:
    """Verify the store; see ``verify_local``."""
    sealed = [_open(local, folder, one) for folder, one in _folders(local) if only in (None, one)]
    if only is not None and not sealed:
        raise NothingFound(f"{only} is not in the store", hint="`ckptier list` shows what is")
    portion = picker([(one.generation, one.record.total_bytes) for one in sealed if one.record])
    found = [(one.folder, _verdict(one, portion)) for one in sealed]
    verdicts = tuple(verdict for folder, verdict in found if folder.is_dir())  # others were removed meanwhile
    return VerifyReport(
        tier=LOCAL,
        damaged=(),
        refused=(),
        generations=verdicts,
        faults=() if only is not None else document_faults(local),
        notes=tuple(_notes(local, verdicts, whole=only is None)),
    )


def _folders(local: LocalRun) -> Sequence[tuple[Path, GenerationId]]:
    """Return the folders of generations, newest first; other names are nothing of ours."""
    found = []
    for folder in local.generations.iterdir() if local.generations.is_dir() else ():
        try:
            found.append((folder, GenerationId.parse(folder.name)))
        except UsageError:
            continue
    return sorted(found, key=lambda each: each[1], reverse=True)


def _open(local: LocalRun, folder: Path, generation: GenerationId) -> _Sealed:
    try:
        evidence = read_evidence(local, generation)
    except CkptierError:
        evidence = None  # told by the notes
    try:
        record, data = _read(folder)
    except CkptierError as error:
        return _Sealed(generation=generation, folder=folder, record=None, fault=error.message, evidence=evidence)
    except OSError as error:
        return _Sealed(
            generation=generation, folder=folder, record=None, fault=f"cannot be read: {error}", evidence=evidence
        )
    known = evidence.record_sha256 if evidence else None
    fault = "" if known in (None, canonical.sha256(data)) else "generation.json is not the one that was sealed"
    return _Sealed(generation=generation, folder=folder, record=record, fault=fault, evidence=evidence)


def _verdict(one: _Sealed, portion: Portion) -> GenerationVerdict:
    """Verify one folder."""
    hurts = [Hurt(path=None, reason=one.fault)] if one.fault else []
    reasons = [one.fault] if one.fault else []
    read = 0
    if one.record is not None:
        try:
            found, read = _check(one.folder / "files", one.record, portion)
        except OSError as error:
            found = (Hurt(path=None, reason=f"cannot be read: {error}"),)
        hurts += found
        reasons += [str(hurt) for hurt in found]
    quarantined = one.evidence.reason if one.evidence and one.evidence.level is Level.QUARANTINED else None
    more = [f"and {len(reasons) - MAX_REASONS} more"] if len(reasons) > MAX_REASONS else []
    return GenerationVerdict(
        generation=one.generation,
        verdict=Finding.HURT if hurts else Finding.INTACT,
        reasons=(*reasons[:MAX_REASONS], *more),
        objects=len(one.record.files) if one.record else 0,
        total_bytes=one.record.total_bytes if one.record else 0,
        attested=0,
        bytes_read=read,
        hurts=tuple(hurts),
        quarantined=quarantined,
    )


def _notes(local: LocalRun, verdicts: Sequence[GenerationVerdict], *, whole: bool) -> Iterator[Note]:
    for one in verdicts:
        if one.quarantined is not None and one.verdict is Finding.INTACT:
            text = f"{one.generation} is quarantined and not used, although its bytes are as sealed: {one.quarantined}"
            yield Note(kind=NoteKind.QUARANTINED, text=text)
    if whole:
        yield from document_notes(local, [one.generation for one in verdicts])


def read_record(folder: Path) -> GenerationRecord:
    """Read the ``generation.json`` of a sealed generation and check that it stands in its own folder."""
    return _read(folder)[0]


def _read(folder: Path) -> tuple[GenerationRecord, bytes]:
    with (folder / "generation.json").open("rb") as stream:
        data = stream.read(MAX_GENERATION_BYTES + 1)
    record = parse_generation(data)
    if record.id != folder.name:
        raise IntegrityFailure(f"{folder} holds the record of {record.id}")
    return record, data


def check_files(
    root: Path, record: GenerationRecord, share: Share | None = None, seed: int = 0
) -> tuple[tuple[str, ...], int]:
    """Return what differs between a folder and a record, and how many bytes were hashed to find out."""
    reasons = tuple(set_faults(root, record.files, record.directories))
    if reasons:
        return reasons, 0
    window = Window.of(share, record.total_bytes, seed)
    found, read = _check(root, record, Portion({record.generation: window.within(record.total_bytes)}))
    return tuple(map(str, found)), read


def _check(root: Path, record: GenerationRecord, portion: Portion) -> tuple[tuple[Hurt, ...], int]:
    """Compare a folder with a record; what is there at its size is hashed as far as its turn has come."""
    sealed = {file.path for file in record.files}
    found = [
        Hurt(path=path, reason=reason, lost=path in sealed)
        for path, reason in _differences(root, record.files, record.directories)
    ]
    bad = {hurt.path for hurt in found}
    place, read = 0, 0
    for file in record.files:
        spans = [
            (number, span)
            for number, span in enumerate(leaf_ranges(file.size, file.leaf_size))
            if span[1] and file.path not in bad and portion.covers(record.generation, place + span[0])
        ]
        other = {number for number, span in spans if not _is_sealed(root / file.path, file, number, span)}
        found += not_sealed(file, other)
        read += sum(length for _, (_, length) in spans)
        place += file.size
    return tuple(found), read


def _is_sealed(path: Path, file: SealedFile, number: int, span: tuple[int, int]) -> bool:
    """Tell whether a leaf is the sealed one; it is read twice before it is called another."""
    return any(digest_range(path, *span) == file.leaves[number] for _ in range(2))


def set_faults(root: Path, files: tuple[SealedFile, ...], directories: tuple[str, ...]) -> Iterator[str]:
    """Yield every way in which a folder is not exactly these files, their folders and these empty folders."""
    return (f"{path}: {words}" for path, words in _differences(root, files, directories))


def _differences(root: Path, files: tuple[SealedFile, ...], directories: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    sizes: dict[str, int | None] = {file.path: file.size for file in files} | dict.fromkeys(directories)
    for path in tuple(sizes):
        for end in (index for index, letter in enumerate(path) if letter == "/"):
            sizes.setdefault(path[:end], None)
    for path, size in walk_folder(root):
        due = sizes.pop(path, "nothing")
        if due == "nothing":
            yield path, "does not belong there"
        elif size != due:
            yield path, f"{_words(size)}, sealed was {_words(due)}"
    yield from ((path, "is missing") for path in sorted(sizes))


def walk_folder(root: Path, below: str = "") -> Iterator[tuple[str, int | str | None]]:
    """Yield (path, size) of all below a folder: None for a folder, a word for what is no regular file."""
    with os.scandir(root / below) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            path = f"{below}/{entry.name}" if below else entry.name
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                yield path, None
                yield from walk_folder(root, path)
            else:
                yield path, status.st_size if stat.S_ISREG(status.st_mode) else "a special file"


def _words(size: "int | str | None") -> str:
    return "a folder" if size is None else f"{size} bytes" if isinstance(size, int) else size
