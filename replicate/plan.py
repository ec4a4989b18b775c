"""What to upload and how, decided from values alone.

Nothing here reads a clock, a disk or a tier, so ``--dry-run`` prints exactly what a
run would do, and the cost model counts the requests that really happen.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from replicate.errors import CapabilityMissing
from replicate.layout import GenerationId, RemoteRun
from replicate.log import LogState
from replicate.manifest import GenerationRecord, SealedFile
from tiers.protocol import Capabilities, Key, Verification


@dataclass(frozen=True, slots=True, kw_only=True)
class CopySource:
    """Where the bytes of a part stand on the same tier already: ``start`` is an offset in the object ``key``.

    Only ever a saving: a source that is gone, or a copy that the store does not prove, means that
    the part is sent from the sealed bytes.
    """

    key: Key
    start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartPlan:
    """One request's worth of a file.  ``sha256`` is None until it is computed while sending.

    ``source`` is set where the same bytes were committed to the tier before: they are copied there.
    """

    number: int
    start: int
    size: int
    sha256: str | None
    source: CopySource | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectPlan:
    """How one file goes up: in one request (``part_size`` 0) or in parts.

    ``second_hash`` marks a file whose parts are not its leaves: their digests have to be
    computed before sending, which reads and hashes the file once more.
    """

    path: str
    key: Key
    file: SealedFile
    part_size: int
    parts: tuple[PartPlan, ...]
    second_hash: bool = False

    @property
    def stored_sha256(self) -> str | None:
        """What a store that checked every part reports for the object; None where not known yet.

        An upload in parts is reported as the digest over its parts' digests, even where it has one part.
        """
        digests = [part.sha256 for part in self.parts if part.sha256 is not None]
        if len(digests) != len(self.parts):
            return None
        if not self.part_size:
            return digests[0]
        return hashlib.sha256(b"".join(map(bytes.fromhex, digests))).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadPlan:
    """Everything that one generation needs on one tier, before any of it is sent.

    ``read_back`` tells that every object is read once more, since the tier attests nothing stronger.
    """

    generation: GenerationId
    prefix: str
    objects: tuple[ObjectPlan, ...]
    read_back: bool = False

    @property
    def total_bytes(self) -> int:
        """Bytes of data, whether they are sent or copied."""
        return sum(item.file.size for item in self.objects)

    @property
    def copied_bytes(self) -> int:
        """Those of them that are copied inside the store."""
        return sum(part.size for item in self.objects for part in item.parts if part.source is not None)

    @property
    def sources(self) -> frozenset[Key]:
        """The objects that are copied from; each is looked at once."""
        return frozenset(part.source.key for item in self.objects for part in item.parts if part.source is not None)

    @property
    def requests(self) -> int:
        """Requests that an undisturbed upload makes for data (manifest and log come on top)."""
        sent = sum(1 if item.part_size == 0 else len(item.parts) + 2 for item in self.objects)
        return sent + len(self.sources) + (len(self.objects) if self.read_back else 0)


def plan_upload(
    record: GenerationRecord, prefix: str, capabilities: Capabilities, *, part_size: int | None = None
) -> UploadPlan:
    """Cut a generation into objects and parts that the tier accepts.

    Raises CapabilityMissing, naming the file, where one is larger than the tier can hold.
    """
    remote = RemoteRun.of(record.run)
    objects = tuple(
        _plan_object(file, remote.object(prefix, file.path), capabilities, part_size) for file in record.files
    )
    read_back = capabilities.verification is not Verification.STORE_SHA256
    return UploadPlan(generation=record.generation, prefix=prefix, objects=objects, read_back=read_back)


def _plan_object(file: SealedFile, key: Key, can: Capabilities, wanted: int | None) -> ObjectPlan:
    if file.size > can.max_object:
        raise CapabilityMissing(
            f"{file.path} has {file.size} bytes, the tier holds objects of at most {can.max_object}",
            hint="save the checkpoint in more than one file (sharded), or take another tier for this run",
        )
    if file.size <= min(can.max_put, wanted or file.leaf_size) or not can.multipart:
        if file.size > can.max_put:
            raise CapabilityMissing(
                f"{file.path} has {file.size} bytes, the tier takes at most {can.max_put} in one request and no parts",
                hint="save the checkpoint in smaller files, or take another tier for this run",
            )
        whole = PartPlan(number=1, start=0, size=file.size, sha256=file.sha256 if len(file.leaves) == 1 else None)
        return ObjectPlan(
            path=file.path, key=key, file=file, part_size=0, parts=(whole,), second_hash=whole.sha256 is None
        )
    size = choose_part_size(file, can, wanted)
    same = size == file.leaf_size
    parts = tuple(
        PartPlan(
            number=index + 1,
            start=start,
            size=min(size, file.size - start),
            sha256=file.leaves[index] if same else None,
        )
        for index, start in enumerate(range(0, file.size, size))
    )
    return ObjectPlan(path=file.path, key=key, file=file, part_size=size, parts=parts, second_hash=not same)


def choose_part_size(file: SealedFile, can: Capabilities, wanted: int | None) -> int:
    """Return the part size: a leaf where the tier allows it, since then nothing is hashed again."""
    size = max(wanted or file.leaf_size, can.min_part)
    while -(-file.size // size) > can.max_parts:
        size *= 2
    size = min(size, can.max_part)
    if -(-file.size // size) > can.max_parts:
        raise CapabilityMissing(
            f"{file.path} has {file.size} bytes, more than {can.max_parts} parts of at most {can.max_part} hold",
            hint="save the checkpoint in more than one file (sharded), or take another tier for this run",
        )
    return size


class Choice(StrEnum):
    """What is done with a local generation on one tier."""

    UPLOAD = "upload"
    COMMITTED = "committed"
    NOT_A_MILESTONE = "not-a-milestone"
    NOT_KEPT = "not-kept"
    SUPERSEDED = "superseded"
    QUARANTINED = "quarantined"
    NOT_VALIDATED = "not-validated"
    FORKED = "forked"


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFact:
    """What deciding needs to know of a local generation.  ``attempt_id`` tells forks of one number apart."""

    id: GenerationId
    parent: GenerationId | None
    validated: bool
    quarantined: bool = False
    attempt_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What is done with one generation, and why."""

    id: GenerationId
    choice: Choice
    reason: str


Unwanted = Callable[[Sequence[LocalFact]], Mapping[GenerationId, str]]
"""Of the generations that would go up, those that would not be kept, each with the reason."""


def is_milestone(fact: LocalFact, every: int, known: Mapping[GenerationId, LocalFact]) -> bool:
    """Whether this is the first usable generation at or after a multiple of ``every`` updates.

    Decided from the line of descent, so that rotation of older ones changes nothing; a
    quarantined parent does not take the milestone with it.
    """
    parent = fact.parent
    while parent is not None and parent in known and known[parent].quarantined:
        parent = known[parent].parent
    before = parent.next_update // every if parent is not None else 0
    return fact.id.next_update // every > before


def plan_generations(
    local: Sequence[LocalFact],
    state: LogState | None,
    *,
    replicate_every: int | None,
    backlog: int | None,
    under_way: frozenset[GenerationId] = frozenset(),
    unwanted: Unwanted = lambda _facts: {},
) -> tuple[Decision, ...]:
    """Decide for every local generation, in the order in which they go up.

    What is under way comes first (it is never pre-empted), then the newest.  ``backlog``
    bounds how many may wait; None means that all do.  Milestones and pins always wait, and
    so does what was taken back because its copy there was damaged.
    ``unwanted`` names those that retention would take back as soon as they are there.
    """
    known = {fact.id: fact for fact in local}
    pins = frozenset(state.pins) if state else frozenset()
    lost = frozenset(one.generation for one in state.lost) if state else frozenset()
    ordered = sorted(local, key=lambda fact: (fact.id in under_way, fact.id), reverse=True)
    found = [_decide(fact, state, replicate_every, known) for fact in ordered]
    wanted = [fact for fact, one in zip(ordered, found, strict=True) if one.choice is Choice.UPLOAD]
    not_kept = {one: why for one, why in unwanted(wanted).items() if one not in under_way}
    waiting = 0
    decisions = []
    for fact, decided in zip(ordered, found, strict=True):
        decision = decided
        if fact.id in not_kept:
            decision = Decision(id=fact.id, choice=Choice.NOT_KEPT, reason=not_kept[fact.id])
        elif decision.choice is Choice.UPLOAD and fact.id not in under_way:
            kept = str(fact.id) in pins | lost or (replicate_every is not None)
            if backlog is not None and waiting >= backlog and not kept:
                reason = f"{backlog} newer generations are waiting already"
                decision = Decision(id=fact.id, choice=Choice.SUPERSEDED, reason=reason)
            else:
                waiting += 1
        decisions.append(decision)
    return tuple(decisions)


def _decide(
    fact: LocalFact, state: LogState | None, every: int | None, known: Mapping[GenerationId, LocalFact]
) -> Decision:
    if state is not None and state.find(fact.id):
        return Decision(id=fact.id, choice=Choice.COMMITTED, reason="the tier's log has it")
    fork = _other_line(fact, state)
    if fork:
        reason = f"the tier holds another line of attempt {fact.id.attempt} ({fork}): the two are never mixed"
        return Decision(id=fact.id, choice=Choice.FORKED, reason=reason)
    if fact.quarantined:
        return Decision(id=fact.id, choice=Choice.QUARANTINED, reason="it failed validation; see `ckptier show`")
    if not fact.validated:
        return Decision(id=fact.id, choice=Choice.NOT_VALIDATED, reason="it is not validated yet")
    if every is not None and not is_milestone(fact, every, known):
        return Decision(id=fact.id, choice=Choice.NOT_A_MILESTONE, reason=f"only milestones of {every} go here")
    return Decision(id=fact.id, choice=Choice.UPLOAD, reason="the tier does not have it")


def _other_line(fact: LocalFact, state: LogState | None) -> str:
    """Return the id under which the log knows this attempt's number, where it is not this attempt."""
    attempts = state.attempts if state is not None and state.founded else ()
    ids = [attempt.id for attempt in attempts if attempt.number == fact.id.attempt]
    return ids[0] if fact.attempt_id and ids and fact.attempt_id not in ids else ""
