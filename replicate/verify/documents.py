"""The store's own documents: what has to be right (lineage), and what is only a hint or found again by itself."""

from collections.abc import Iterator, Sequence

from replicate import canonical
from replicate.errors import CkptierError, IntegrityFailure
from replicate.generation.disk import read_document
from replicate.generation.evidence import Level, read_evidence
from replicate.generation.lineage import read_lineage
from replicate.generation.proofs import damaged_proofs
from replicate.layout import GenerationId, LocalRun
from replicate.statusfile import read_status
from replicate.verify.findings import Note, NoteKind

_MAX_HINT_BYTES = 1024 * 1024


def document_faults(local: LocalRun) -> tuple[str, ...]:
    """Return what is wrong with the store as a whole."""
    try:
        lineage = read_lineage(local)
    except CkptierError as error:
        return (error.message,)
    present = _attempts(local)
    if lineage is not None and present and lineage.attempt < max(present):
        return (f"{local.lineage} is of attempt {lineage.attempt}, and generations of attempt {max(present)} lie here",)
    return ()


def _attempts(local: LocalRun) -> list[int]:
    names = [folder.name for folder in local.generations.iterdir()] if local.generations.is_dir() else []
    return [int(name[1:].partition("-")[0]) for name in names if name[:1] == "a" and name[1:5].isdigit()]


def document_notes(local: LocalRun, generations: Sequence[GenerationId]) -> Iterator[Note]:
    """Yield what is wrong with documents that the store does without."""
    yield from _evidence(local, generations)
    hint = _latest_fault(local, generations)
    if hint:
        yield Note(kind=NoteKind.HINT, text=f"LATEST.json {hint}; it is only a hint, and the next save rewrites it")
    try:
        read_status(local)
    except CkptierError as error:
        yield Note(kind=NoteKind.HINT, text=f"{error.message}; the next pass of a replicating process replaces it")


def _evidence(local: LocalRun, generations: Sequence[GenerationId]) -> Iterator[Note]:
    for one in generations:
        try:
            known = read_evidence(local, one)
        except CkptierError as error:
            yield Note(kind=NoteKind.EVIDENCE, text=f"{error.message}; {one} is checked again before it is used")
            continue
        if known is None:
            text = f"nothing is recorded of {one}: it is checked before it is used"
            yield Note(kind=NoteKind.EVIDENCE, text=text)
    for text in damaged_proofs(local):
        yield Note(kind=NoteKind.EVIDENCE, text=f"{text}; the copy counts as replicated and no more")


def _latest_fault(local: LocalRun, generations: Sequence[GenerationId]) -> str:
    data = read_document(local.latest, _MAX_HINT_BYTES)
    if data is None:
        return "is missing" if any(_validated(local, one) for one in generations) else ""
    try:
        named = canonical.load(data, what="LATEST.json", max_bytes=_MAX_HINT_BYTES).get("generation")
    except IntegrityFailure:
        return "is damaged"
    return "" if named in set(map(str, generations)) else f"names {str(named)[:60]}, which is not here"


def _validated(local: LocalRun, generation: GenerationId) -> bool:
    try:
        known = read_evidence(local, generation)
    except CkptierError:
        return False
    return known is not None and known.level.reaches(Level.VALIDATED)
