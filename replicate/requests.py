"""The requests that the protocol makes, from the very values that are executed.

An :class:`~replicate.plan.UploadPlan` says what is sent, a record which leaves are read,
the place in the log what has to be followed: nothing is counted here that was not planned
there.  Requests are the verbs of a tier with their outcomes, as :mod:`tiers.metered`
counts them, for an undisturbed run; retries and races come on top and are counted where
they happen.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from replicate import canonical
from replicate.asked import NOT_FOUND, Asked, Requests, pages
from replicate.digests import leaf_ranges
from replicate.layout import FOLD_EVERY, GenerationId
from replicate.log import NO_ENTRY, Body, Claim, Commit, Entry, LogState
from replicate.logappender import head_due
from replicate.manifest import GenerationRecord, Manifest, ManifestObject, SealedFile
from replicate.plan import ObjectPlan, PartPlan, UploadPlan
from replicate.signing.lines import SIGNATURE_LINE_BYTES
from replicate.verify import Share, Window
from tiers.metered import OK
from tiers.protocol import Verification

NONCE = "0" * 16
"""What stands for a nonce in a key that is only planned: of the same length."""
_AT = "2026-01-01T00:00:00.000Z"


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What an interrupted upload left of one object on the tier.

    ``complete``: the object is there.  ``upload``: an upload in parts was begun and journalled;
    the store lists ``listed`` parts of it, of which the ``accepted`` ones count.
    """

    complete: bool = False
    upload: bool = False
    accepted: frozenset[int] = frozenset()
    listed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPosition:
    """Where a run's log on a tier stands, and what the process that goes on with it knows.

    ``head`` is the slot that head.json names, None where it is not there.  ``read_to`` is the
    next slot after what this process has read, None before it read anything.
    ``head_written`` is the slot that this process last put into head.json.  ``seen`` is the
    slot that the tracker remembers.  ``entry_bytes`` is the size of entries that are there.
    """

    next_slot: int = 0
    head: int | None = None
    read_to: int | None = None
    head_written: int | None = None
    holds_term: bool = False
    seen: int | None = None
    entry_bytes: int = 0

    def __post_init__(self) -> None:
        if self.head is not None and self.head >= self.next_slot:
            raise ValueError(f"head.json names slot {self.head} of a log that ends before {self.next_slot}")

    def reopened(self) -> "LogPosition":
        """Return the same log as a new process with the same tracker meets it."""
        return replace(self, read_to=None, head_written=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sending:
    """A generation that goes up.  ``held`` is None unless its upload is resumed; then by path.

    ``manifest_read`` is the size of the manifest that is read first, to learn what need not be
    sent; 0 where none is, or this process has just written it.
    """

    plan: UploadPlan
    record: GenerationRecord
    held: Mapping[str, Held] | None = None
    manifest_read: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """Who writes to the log: what entries say of it.

    ``state`` is folded into each 256th slot; where ``signed``, each entry has a line more.
    """

    name: str = "host:1"
    term: int = 1
    state: LogState | None = None
    signed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A generation that a tier holds: its record, and the size of its manifest there."""

    record: GenerationRecord
    manifest_bytes: int


def data_requests(plan: UploadPlan, held: Mapping[str, Held] | None = None) -> Requests:
    """Return what sending and proving the objects asks for; ``plan.requests`` of them where nothing is held."""
    known = {item.path: None if held is None else held.get(item.path, Held()) for item in plan.objects}
    sources = {
        part.source.key for item in plan.objects for part in _missing(item, known[item.path] or Held()) if part.source
    }
    return Requests.of(
        [
            Asked(verb="stat", count=len(sources)),
            *(asked for item in plan.objects for asked in _object(item, known[item.path], read_back=plan.read_back)),
        ]
    )


def _object(item: ObjectPlan, held: Held | None, *, read_back: bool) -> Iterator[Asked]:
    proof = Asked(verb="open", down=item.file.size, count=int(read_back)) if read_back else None
    if held is not None:
        yield Asked(verb="stat", outcome=OK if held.complete else NOT_FOUND)
    if held is None or not held.complete:
        yield from _sent(item, held or Held())
    if proof is not None:
        yield proof


def _missing(item: ObjectPlan, held: Held) -> tuple[PartPlan, ...]:
    return () if held.complete else tuple(part for part in item.parts if part.number not in held.accepted)


def _sent(item: ObjectPlan, held: Held) -> Iterator[Asked]:
    if not item.part_size:
        copied = item.parts[0].source is not None
        yield Asked(verb="copy") if copied else Asked(verb="put", up=item.file.size)
        return
    if held.upload:
        listed = len(held.accepted) if held.listed is None else held.listed
        yield Asked(verb="list_parts", count=pages(listed), pages=pages(listed))
    else:
        yield Asked(verb="begin_upload")
    missing = _missing(item, held)
    sent = [part.size for part in missing if part.source is None]
    yield Asked(verb="copy_part", count=len(missing) - len(sent))
    yield Asked(verb="put_part", count=len(sent), up=sum(sent))
    yield Asked(verb="complete")


def log_requests(at: LogPosition, *, listing_pages: bool = True, thorough: bool = False) -> Requests:
    """Return what reading the log asks for: the tail to its first empty slot, by the hint or by listing.

    ``thorough``: it is listed in any case, as a restore does; so is a log of one claim.
    ``listing_pages``: the tier gives a listing page by page (one that does not sort gives it whole).
    """
    if at.read_to is not None:
        return Requests.of(_tail(at, at.read_to))
    asked = [_hint(at)]
    if at.head is None or thorough or at.next_slot == 1:
        count = pages(at.next_slot)
        asked.append(Asked(verb="list_objects", count=count if listing_pages else 1, pages=count))
    last = at.next_slot - 1 if at.head is None else at.head
    if at.next_slot:
        asked += _tail(at, last - last % FOLD_EVERY)
    return Requests.of(asked)


def _hint(at: LogPosition) -> Asked:
    if at.head is None:
        return Asked(verb="open", outcome=NOT_FOUND)
    return Asked(verb="open", down=head_bytes(at.head))


def _entries(at: LogPosition, count: int) -> list[Asked]:
    return [Asked(verb="open", count=count, down=count * at.entry_bytes)]


def _tail(at: LogPosition, first: int) -> list[Asked]:
    return [*_entries(at, at.next_slot - first), Asked(verb="open", outcome=NOT_FOUND)]


def replicate_requests(
    sending: Sequence[Sending], at: LogPosition, writer: Writer | None = None, *, listing_pages: bool = True
) -> tuple[Requests, LogPosition]:
    """Return what one pass over a tier asks for that commits ``sending`` in this order, and where the log is then.

    With nothing to send it is what a first look costs; a process that knows the log asks nothing.
    """
    writer = writer or Writer()
    if not sending and at.read_to is not None:
        return Requests(), at
    asked = [*log_requests(at, listing_pages=listing_pages).asked]
    if at.read_to is None and at.seen is not None and at.seen < at.next_slot - 1:
        asked += _entries(at, 1)  # the entry that the tracker remembers has to be there still
    at = replace(at, read_to=at.next_slot, seen=max(at.next_slot - 1, -1) if at.next_slot else at.seen)
    if sending and not at.holds_term:
        claimed, at = _claim(sending[0].record, at, writer)
        asked += claimed
    for each in sending:
        committed, at = _commit(each, at, writer)
        asked += committed
    return Requests.of(asked), at


def _claim(record: GenerationRecord, at: LogPosition, writer: Writer) -> tuple[list[Asked], LogPosition]:
    claim = Claim(writer=writer.name, start=_start(record))
    size = entry_bytes(record, claim, slot=at.next_slot, writer=writer)
    after = replace(at, holds_term=True)
    return _appended(size, after, forced=True)


def _start(record: GenerationRecord) -> str | None:
    """Return what the record's attempt started from, as far as the record says."""
    parent = record.parent
    return parent if parent and GenerationId.parse(parent).attempt < record.attempt else None


def _commit(sending: Sending, at: LogPosition, writer: Writer) -> tuple[list[Asked], LogPosition]:
    """Objects, then the manifest and its proof, then the entry and its proof, then the hint where it is due.

    Before all that comes the manifest of what stands there already, where it has to be read.
    """
    manifest = manifest_bytes(sending.record, sending.plan)
    entry = entry_bytes(
        sending.record, commit_body(sending.record, sending.plan, manifest), slot=at.next_slot, writer=writer
    )
    appended, after = _appended(entry, at, forced=False)
    proved = [Asked(verb="put", up=manifest), Asked(verb="open", down=manifest)]
    read = Asked(verb="open", count=int(sending.manifest_read > 0), down=sending.manifest_read)
    return [read, *data_requests(sending.plan, sending.held).asked, *proved, *appended], after


def _appended(size: int, at: LogPosition, *, forced: bool) -> tuple[list[Asked], LogPosition]:
    slot = at.next_slot
    asked = [Asked(verb="create", up=size), Asked(verb="open", down=size)]
    after = replace(at, next_slot=slot + 1, read_to=slot + 1, seen=slot, entry_bytes=at.entry_bytes or size)
    if forced or head_due(slot, at.head_written):
        asked.append(Asked(verb="put", up=head_bytes(slot)))
        after = replace(after, head=slot, head_written=slot)
    return asked, after


def verify_requests(
    at: LogPosition, stored: Sequence[Stored], *, share: Share | None = None, seed: int = 0, listing_pages: bool = True
) -> Requests:
    """Return what ``verify`` asks of a tier: the log, each manifest, a look at each object, and the share of leaves.

    ``stored`` are the generations that are verified, newest first.  The log is listed in any case, the hint read once
    more, and all that lies there is listed, to tell what lies beside the generations.
    """
    asked = [*log_requests(replace(at, read_to=None), listing_pages=listing_pages, thorough=True).asked, _hint(at)]
    keys = pages(sum(len(each.record.files) + 1 for each in stored))
    asked.append(Asked(verb="list_objects", count=keys if listing_pages else 1, pages=keys))
    window = Window.of(share, sum(each.record.total_bytes for each in stored), seed)
    for each in stored:
        asked.append(Asked(verb="open", down=each.manifest_bytes))
        asked += _verified(each.record.files, window)
        window = window.after(each.record.total_bytes)
    return Requests.of(asked)


def _verified(files: Iterable[SealedFile], window: Window) -> Iterator[Asked]:
    for file in files:
        yield Asked(verb="stat")
        for start, length in leaf_ranges(file.size, file.leaf_size):
            if window.covers(start, length):
                yield Asked(verb="open", down=length)
        window = window.after(file.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetching:
    """What a restore takes from one tier.

    ``files`` None means all.  ``here`` are (digest, size) of files that the store has anyway.
    ``serves``: the leaves come from this tier, and not from another that was declared before it.
    """

    stored: Stored | None
    files: frozenset[str] | None = None
    here: frozenset[tuple[str, int]] = field(default_factory=frozenset)
    serves: bool = True

    @property
    def wanted(self) -> tuple[SealedFile, ...]:
        """The files whose bytes come from the tier."""
        if self.stored is None or not self.serves:
            return ()
        return tuple(
            file
            for file in self.stored.record.files
            if (self.files is None or file.path in self.files) and (file.sha256, file.size) not in self.here
        )


def restore_requests(at: LogPosition, fetching: Fetching, *, listing_pages: bool = True) -> Requests:
    """Return what a restore asks of one tier: its log, the manifest, and each wanted leaf by its range.

    ``stored`` None: the tier is asked for its log only, since it does not have the generation.
    """
    asked = [*log_requests(replace(at, read_to=None), listing_pages=listing_pages, thorough=True).asked]
    if at.next_slot == 0:
        asked.append(Asked(verb="list_objects", pages=1))  # whether there is something although the log is empty
    if fetching.stored is not None:
        asked.append(Asked(verb="open", down=fetching.stored.manifest_bytes))
    for file in fetching.wanted:
        asked += [Asked(verb="open", down=length) for _, length in leaf_ranges(file.size, file.leaf_size)]
    return Requests.of(asked)


def manifest_bytes(record: GenerationRecord, plan: UploadPlan) -> int:
    """Return the size of the manifest that this plan leads to: digests and nonces have one length."""
    term, _, nonce = plan.prefix.rstrip("/").rpartition(".t")[2].partition("-")
    means = Verification.READ_BACK if plan.read_back else Verification.STORE_SHA256
    document = canonical.load(record.encode(), what="generation.json", max_bytes=2**30)
    objects = tuple(
        ManifestObject(
            path=item.path,
            key=item.key,
            size=item.file.size,
            sha256=item.file.sha256,
            verified_by=str(means),
            part_size=item.part_size,
            parts=(NO_ENTRY,) * len(item.parts) if item.second_hash and item.part_size else (),
        )
        for item in plan.objects
    )
    manifest = Manifest.model_construct(
        format=1,
        run_uid=record.run_uid,
        term=int(term),
        nonce=nonce,
        prefix=plan.prefix,
        generation=document,
        generation_sha256=NO_ENTRY,
        objects=objects,
        written_at=_AT,
    )
    return len(manifest.encode())


def commit_body(record: GenerationRecord, plan: UploadPlan, manifest: int) -> Commit:
    """Return the body of the commit entry, but for the manifest's digest."""
    return Commit(
        generation=record.id,
        parent=record.parent,
        manifest_key=f"{plan.prefix}manifest.json",
        manifest_size=manifest,
        manifest_sha256=NO_ENTRY,
        total_bytes=record.total_bytes,
        objects=len(record.files),
    )


def entry_bytes(record: GenerationRecord, body: Body, *, slot: int, writer: Writer) -> int:
    """Return the size of a log entry that this writer appends."""
    folded = slot > 0 and slot % FOLD_EVERY == 0
    entry = Entry(
        format=1,
        run=record.run,
        run_uid=record.run_uid,
        slot=slot,
        term=writer.term,
        attempt=record.attempt,
        attempt_id=record.attempt_id,
        prev=NO_ENTRY,
        nonce=NONCE,
        at=_AT,
        body=body,
        state=writer.state if folded else None,
    )
    return len(entry.encode()) + (SIGNATURE_LINE_BYTES if writer.signed else 0)


def head_bytes(slot: int) -> int:
    """Return the size of the hint."""
    return len(canonical.dump({"format": 1, "slot": slot})) + 1
