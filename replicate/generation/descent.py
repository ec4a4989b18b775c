"""Which generations a run may continue from, in order: pure functions of lineage and ids."""

from collections.abc import Callable, Collection, Mapping, Sequence

from replicate.errors import ContractChanged
from replicate.generation.lineage import Lineage
from replicate.layout import GenerationId

ParentOf = Callable[[GenerationId], str | None]


def candidates(lineage: Lineage, present: Sequence[GenerationId], parent_of: ParentOf) -> list[GenerationId]:
    """Return those on the current line of descent, the one to continue from first.

    The current attempt newest first, then the generation that it started from and what
    came before that one.  Newer generations of an attempt that was abandoned by a
    rollback are not on the line.  ``parent_of`` reads a generation's own record, for
    attempts that lineage.json has no history of.
    """
    line: list[GenerationId] = []
    attempt, limit = lineage.attempt, lineage.highest_sequence
    while True:
        own = sorted((one for one in present if one.attempt == attempt and one.sequence <= limit), reverse=True)
        line += own
        start = _start(lineage, attempt, own, parent_of)
        if start is None or start.attempt >= attempt:
            return line
        attempt, limit = start.attempt, start.sequence


def _start(lineage: Lineage, attempt: int, own: list[GenerationId], parent_of: ParentOf) -> GenerationId | None:
    """Return what an attempt started from: by lineage, else by the first of its generations that is here."""
    known = lineage.parent_of_attempt(attempt)
    if known is None and own:
        known = parent_of(own[-1])
    parent = GenerationId.parse(known) if known else None
    return parent if parent is None or parent.attempt < attempt else None


def check_contract(
    generation: GenerationId, recorded: Mapping[str, str], wanted: Mapping[str, str], *, allow: Collection[str] = ()
) -> None:
    """Raise ContractChanged naming every key that was changed, is missing or is new, but for ``allow``."""
    groups = {
        "changed": {key for key in recorded.keys() & wanted.keys() if recorded[key] != wanted[key]},
        "missing now": recorded.keys() - wanted.keys(),
        "new": wanted.keys() - recorded.keys(),
    }
    groups = {word: keys - set(allow) for word, keys in groups.items()}
    differing = tuple(sorted(set().union(*groups.values())))
    if differing:
        words = "; ".join(f"{word}: {', '.join(sorted(keys))}" for word, keys in groups.items() if keys)
        raise ContractChanged(
            f"{generation} was trained under another contract ({words})",
            keys=differing,
            hint="start a new run for the new contract, or pass allow=… with these keys to accept the change",
        )
