"""Log entries made by hand, and logs written with them."""

from core.builders import REMOTE, RUN, RUN_UID

from replicate import canonical
from replicate.layout import FOLD_EVERY, GenerationId
from replicate.log import NO_ENTRY, Body, Claim, Commit, Entry, LogState, LogView, fold
from tiers.memory import MemoryStore, MemoryTier


def generation(sequence: int, attempt: int = 1) -> GenerationId:
    return GenerationId(attempt, sequence, 300 * sequence, f"{sequence:08x}")


def commit(sequence: int, *, term: int = 1, attempt: int = 1, nonce: str = "n") -> Commit:
    one = generation(sequence, attempt)
    return Commit(
        generation=str(one),
        parent=None,
        manifest_key=REMOTE.manifest(REMOTE.prefix(one, term, f"{nonce}{sequence}")),
        manifest_size=10,
        manifest_sha256="0" * 64,
        total_bytes=100,
        objects=1,
    )


def entry(
    slot: int,
    body: Body,
    *,
    term: int = 1,
    attempt: int = 1,
    attempt_id: str = "attempt-one",
    run: str = RUN,
    run_uid: str = RUN_UID,
    prev: str = NO_ENTRY,
    nonce: str | None = None,
    state: LogState | None = None,
) -> Entry:
    return Entry(
        format=1,
        run=run,
        run_uid=run_uid,
        slot=slot,
        term=term,
        attempt=attempt,
        attempt_id=attempt_id,
        prev=prev,
        nonce=nonce or f"nonce-{slot}",
        at="2026-01-01T00:00:00.000Z",
        body=body,
        state=state,
    )


CLAIM = Claim(writer="one")


def fold_all(*entries: Entry) -> LogState:
    """Return what entries add up to."""
    state: LogState | None = None
    for one in entries:
        state, _ = fold(state, one)
    assert state is not None
    return state


class LogOnTier:
    """A log that is written slot by slot, with the folded state where it belongs."""

    def __init__(self, store: MemoryStore) -> None:
        self.tier = MemoryTier("remote", store)
        self.view = LogView(state=None)

    def add(self, body: Body, *, term: int = 1) -> Entry:
        slot = self.view.next_slot
        folded = slot > 0 and slot % FOLD_EVERY == 0
        made = entry(slot, body, term=term, prev=self.view.last_sha256, state=self.view.state if folded else None)
        self.tier.create(REMOTE.log(slot), made.encode())
        self.view = self.view.extended(made, made.encode())
        return made

    def write(self, commits: int) -> "LogOnTier":
        """Claim, and commit so many generations."""
        self.add(CLAIM)
        for sequence in range(1, commits + 1):
            self.add(commit(sequence))
        return self

    def head(self, slot: object) -> None:
        data = slot if isinstance(slot, bytes) else canonical.dump({"format": 1, "slot": slot})
        replace_object(self.tier, REMOTE.head, data)


def replace_object(tier: MemoryTier, key: str, data: bytes | None) -> None:
    """Do what only damage does: change or remove what is stored."""
    at = type(REMOTE.head)(key)
    tier.delete(at)
    if data is not None:
        tier.create(at, data)
