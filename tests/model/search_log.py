"""The log of the search: the product's own folding, computed once for each log that ever comes up."""

from dataclasses import dataclass, field
from typing import NamedTuple, Self

from replicate.layout import GenerationId, RemoteRun
from replicate.log import NO_ENTRY, Body, Claim, Commit, Entry, LogState, Pin, Retire, Verdict, fold

RUN_UID = "uid"
REMOTE = RemoteRun.of("search")


def generation(attempt: int, sequence: int) -> GenerationId:
    """Return a generation that nobody has to seal."""
    return GenerationId(attempt, sequence, 10 * sequence, f"{attempt:04x}{sequence:04x}")


class Upload(NamedTuple):
    """One try to upload one generation."""

    generation: GenerationId
    term: int
    nonce: str

    @property
    def prefix(self) -> str:
        return REMOTE.prefix(self.generation, self.term, self.nonce)

    @property
    def manifest(self) -> str:
        return REMOTE.manifest(self.prefix)


class Slot(NamedTuple):
    """One entry.  ``nonce`` is its own; ``upload`` is what a commit or a retirement is about (``hurt``: for damage).

    A ``reclaim`` is a claim of a writer that has held a term in this attempt before, and knows it.
    """

    kind: str
    term: int
    attempt: int
    line: str
    nonce: str
    upload: Upload | None = None
    generation: GenerationId | None = None


def _body(slot: Slot) -> Body:
    match slot.kind:
        case "claim" | "reclaim":
            return Claim(writer=slot.line)
        case "pin":
            return Pin(generation=str(slot.generation), reason="")
    assert slot.upload is not None
    if slot.kind in ("retire", "hurt"):
        damaged = slot.kind == "hurt"
        manifest = slot.upload.manifest
        return Retire(generation=str(slot.upload.generation), manifest_key=manifest, reason="", damaged=damaged)
    return Commit(
        generation=str(slot.upload.generation),
        parent=None,
        manifest_key=slot.upload.manifest,
        manifest_size=1,
        manifest_sha256=NO_ENTRY,
        total_bytes=1,
        objects=1,
    )


def _entry(number: int, slot: Slot) -> Entry:
    return Entry(
        format=1,
        run=REMOTE.run,
        run_uid=RUN_UID,
        slot=number,
        term=slot.term,
        attempt=slot.attempt,
        attempt_id=slot.line,
        prev=NO_ENTRY,
        nonce=slot.nonce,
        at="",
        body=_body(slot),
    )


@dataclass(eq=False, slots=True)
class Log:
    """A log; there is one object for each sequence of entries, so that comparing two is comparing identities.

    ``wrong`` names the first promise that its last entry breaks.
    """

    slots: tuple[Slot, ...] = ()
    prefixes: tuple["Log", ...] = ()
    state: LogState | None = None
    wrong: str = ""
    live: frozenset[Upload] = frozenset()
    newest: GenerationId | None = None
    _next: dict[Slot, "Log"] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.slots)

    def __bool__(self) -> bool:
        return True

    def upto(self, count: int) -> "Log":
        """Return the log before slot ``count``."""
        return self if count >= len(self.slots) else self.prefixes[count]

    def with_(self, slot: Slot) -> "Log":
        """Return the log with one more entry."""
        found = self._next.get(slot)
        if found is None:
            found = self._next[slot] = self._extended(slot)
        return found

    def _extended(self, slot: Slot) -> "Log":
        entry = _entry(len(self.slots), slot)
        state, verdict = fold(self.state, entry)
        live = self.live
        if verdict is Verdict.APPLIED and slot.upload is not None:
            live = live | {slot.upload} if slot.kind == "commit" else live - {slot.upload}
        newest = max((one.generation for one in live), default=None)
        wrong = self.wrong or self._judge(slot, verdict, live)
        return Log(
            slots=(*self.slots, slot),
            prefixes=(*self.prefixes, self),
            state=state,
            wrong=wrong,
            live=live,
            newest=newest,
        )

    def _judge(self, slot: Slot, verdict: Verdict, live: frozenset[Upload]) -> str:
        """Name the promise that an entry breaks."""
        if verdict is not Verdict.APPLIED:
            return f"I4 {verdict}" if verdict is Verdict.REPEATED else f"I3 {verdict}"
        if slot.kind == "reclaim":
            return "I3 a term was taken back by one who knew that it was lost"
        highest = self.state.highest_attempt if self.state else 0
        if slot.kind in ("claim", "commit") and slot.attempt < highest:
            return "I3 an attempt that was left goes on"
        if slot.kind == "retire" and (slot.upload is None or slot.upload.generation == self.newest or not live):
            return "I10 the newest was taken back"
        return ""

    def rebuilt(self, slots: tuple[Slot, ...]) -> Self:
        """Return another log: what only a weakened protocol can bring about."""
        log: Log = self.prefixes[0] if self.prefixes else self
        for slot in slots:
            log = log.with_(slot)
        return log  # type: ignore[return-value]
