"""A run with as many generations as one likes on a tier: genuine log entries, made without uploading anything."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from replicate.canonical import sha256
from replicate.layout import FOLD_EVERY, GenerationId, RemoteRun
from replicate.log import Body, Claim, Commit, Entry, LogView, Retire
from replicate.manifest import SealedFile
from tiers.bodies import BytesBody
from tiers.protocol import Tier

RUN = "growing"
RUN_UID = "0f" * 16
ATTEMPT_ID = "a" * 16
AT = "2026-01-05T10:00:00Z"
TERABYTE = 10**12


def generation(number: int) -> GenerationId:
    """Return the id of the ``number``-th generation, from 1 on."""
    return GenerationId(1, number, number * 100, sha256(b"%d" % number)[:8])


def sealed(path: str, data: bytes) -> SealedFile:
    """Return a file of one leaf."""
    digest = hashlib.sha256(data).hexdigest()
    return SealedFile(path=path, size=len(data), mode=0o644, sha256=digest, leaf_size=1 << 26, leaves=(digest,))


@dataclass(slots=True)
class LongLog:
    """Appends entries to a log on a tier as its one writer would, and keeps the view of it."""

    tier: Tier
    remote: RemoteRun = field(default_factory=lambda: RemoteRun.of(RUN))
    view: LogView = field(default_factory=lambda: LogView(state=None))

    def claim(self) -> None:
        """Open the log: term 1."""
        self.append(Claim(writer="trainer:1"))

    def commits(self, count: int) -> None:
        """Commit that many more generations."""
        done = len(self.view.state.live) if self.view.state else 0
        for number in range(done + 1, done + count + 1):
            self.append(self.commit(number))

    def commit(self, number: int) -> Commit:
        """Return the commit of a generation."""
        one = generation(number)
        return Commit(
            generation=str(one),
            parent=str(generation(number - 1)) if number > 1 else None,
            manifest_key=self.remote.manifest(self.remote.prefix(one, 1, "0123456789abcdef")),
            manifest_size=1000,
            manifest_sha256=sha256(b"manifest %d" % number),
            total_bytes=TERABYTE,
            objects=35,
        )

    def retires(self, numbers: Sequence[int]) -> None:
        """Take generations back."""
        for number in numbers:
            body = self.commit(number)
            self.append(Retire(generation=body.generation, manifest_key=body.manifest_key, reason="older"))

    def append(self, body: Body) -> None:
        """Write the next entry, with the folded state where one is due."""
        slot = self.view.next_slot
        entry = Entry(
            format=1,
            run=self.remote.run,
            run_uid=RUN_UID,
            slot=slot,
            term=1,
            attempt=1,
            attempt_id=ATTEMPT_ID,
            prev=self.view.last_sha256,
            nonce=f"{slot:016x}",
            at=AT,
            body=body,
            state=self.view.state if slot and slot % FOLD_EVERY == 0 else None,
        )
        data = entry.encode()
        self.tier.put(self.remote.log(slot), BytesBody(data))
        self.view = self.view.extended(entry, data)

    def hint(self) -> None:
        """Write head.json as a writer does."""
        from replicate.logbook import Logbook  # noqa: PLC0415

        Logbook(self.tier, self.remote).write_head(self.view.next_slot - 1)
