"""What of a generation stands on the tier already, and is copied there instead of being sent.

Decided from values alone: the record of what goes up, what one committed generation holds, and
what the tier can do.  A source is only ever a saving.  Where it turns out to be gone, or its copy
is not proved, the part is sent; so nothing here has to be right for a generation to be whole.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from replicate.log import LiveCommit, LogState
from replicate.manifest import GenerationRecord, SealedFile
from replicate.plan import CopySource, ObjectPlan, PartPlan, UploadPlan
from tiers.protocol import Capabilities, Key

MIB = 1 << 20
Piece = tuple[str, int]
"""(digest, size in bytes) of a leaf, or of a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Least:
    """How many bytes are worth a copy.

    A copy is a request too, and a look at its source besides: below a MiB it saves next to
    nothing.  ``alone``: a file that would go in one request, on a tier that copies parts only, takes
    an upload of one part, which is two requests more.
    """

    part: int = MIB
    alone: int = 4 * MIB


USUAL = Least()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stock:
    """What one committed generation holds on a tier: where each of its leaves stands, and each whole file."""

    generation: str = ""
    leaves: Mapping[Piece, CopySource] = field(default_factory=dict)
    files: Mapping[Piece, Key] = field(default_factory=dict)

    @classmethod
    def of(cls, generation: str, files: Iterable[SealedFile], keys: Mapping[str, Key], least: Least = USUAL) -> Self:
        """Index a generation by the keys of its files; what is too small to be worth a copy takes no room."""
        leaves: dict[Piece, CopySource] = {}
        whole: dict[Piece, Key] = {}
        for file in files:
            if file.size < least.part:
                continue
            key = keys[file.path]
            whole.setdefault((file.sha256, file.size), key)
            for index, digest in enumerate(file.leaves):
                size = _leaf_length(file, index)
                if size >= least.part:
                    leaves.setdefault((digest, size), CopySource(key=key, start=index * file.leaf_size))
        return cls(generation=generation, leaves=leaves, files=whole)

    def whole(self, file: SealedFile) -> CopySource | None:
        """Return where all of a file stands as an object of its own."""
        key = self.files.get((file.sha256, file.size))
        return None if key is None else CopySource(key=key, start=0)

    def find(self, file: SealedFile, start: int, size: int) -> CopySource | None:
        """Return where a range of a file stands in one piece; it need not begin or end with a leaf."""
        whole = self.whole(file)
        if whole is not None:
            return replace(whole, start=start)
        found = {
            self._shifted(file, index) for index in range(start // file.leaf_size, _leaf_after(file, start + size))
        }
        only = found.pop() if len(found) == 1 else None
        return None if only is None else CopySource(key=only[0], start=only[1] + start)

    def _shifted(self, file: SealedFile, index: int) -> tuple[Key, int] | None:
        """Return the object that holds a leaf, and by how much the leaf stands further on there."""
        source = self.leaves.get((file.leaves[index], _leaf_length(file, index)))
        return None if source is None else (source.key, source.start - index * file.leaf_size)


NOTHING = Stock()


def _leaf_length(file: SealedFile, index: int) -> int:
    return min(file.leaf_size, file.size - index * file.leaf_size)


def _leaf_after(file: SealedFile, end: int) -> int:
    return -(-end // file.leaf_size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """What an interrupted upload has settled already.

    The bytes of a manifest follow from its plan, and a repeat has to write the same: a file
    that was ``in_parts``, or ``verified`` as sent in one request, stays so.
    """

    in_parts: Collection[str] = ()
    verified: Collection[str] = ()


def reusing(
    plan: UploadPlan, stock: Stock, can: Capabilities, begun: Begun | None = None, least: Least = USUAL
) -> UploadPlan:
    """Return the plan with a source for each part that the tier can copy from ``stock``."""
    settled = begun or Begun()
    objects = tuple(
        _in_parts(item, stock, can, least) if item.part_size else _in_one(item, stock, can, settled, least)
        for item in plan.objects
    )
    return replace(plan, objects=objects)


def _in_parts(item: ObjectPlan, stock: Stock, can: Capabilities, least: Least) -> ObjectPlan:
    if not can.copy_part:
        return item
    return replace(item, parts=tuple(_sourced(item, part, stock, least) for part in item.parts))


def _sourced(item: ObjectPlan, part: PartPlan, stock: Stock, least: Least) -> PartPlan:
    source = stock.find(item.file, part.start, part.size) if part.size >= least.part else None
    return part if source is None else replace(part, source=source)


def _in_one(item: ObjectPlan, stock: Stock, can: Capabilities, begun: Begun, least: Least) -> ObjectPlan:
    """Copy the whole file where the tier can; else, as far as it is settled or worth it, as an upload of one part."""
    file, part = item.file, item.parts[0]
    alone = replace(item, part_size=file.leaf_size)
    if item.path in begun.in_parts:
        return _in_parts(alone, stock, can, least)
    whole = stock.whole(file) if can.copy and file.size >= least.part else None
    if whole is not None:
        return replace(item, parts=(replace(part, source=whole),))
    if item.path in begun.verified or not _fits_alone(file, can, least):
        return item
    sourced = _in_parts(alone, stock, can, least)
    return sourced if sourced.parts[0].source is not None else item


def _fits_alone(file: SealedFile, can: Capabilities, least: Least) -> bool:
    return (
        can.copy_part
        and can.multipart
        and len(file.leaves) == 1
        and least.alone <= file.size <= file.leaf_size <= can.max_part
    )


def source_commit(state: LogState | None, record: GenerationRecord, hurt: Collection[str] = ()) -> LiveCommit | None:
    """Return the committed generation that a new one is compared with: its parent, else the newest that stands.

    Only what is live in the log counts: retired, voided and untrusted commits are not.  Nor does a
    copy that is known to be ``hurt``, or another copy of the generation itself.
    """
    usable = [
        one for one in (state.live if state else ()) if one.generation not in hurt and one.generation != record.id
    ]
    parent = next((one for one in usable if one.generation == record.parent), None)
    return parent or max(usable, key=lambda commit: commit.id, default=None)
