"""What a log adds up to: the folded state, which every 256th entry carries."""

from collections import Counter
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Self

from pydantic import Field

from replicate.layout import GenerationId
from replicate.manifest import Count, GenerationText, Record, Sha256, Text


class LiveCommit(Record):
    """A commit that stands; part of the folded state."""

    generation: GenerationText
    parent: str | None
    slot: Count
    term: Count
    manifest_key: str
    manifest_size: Count
    manifest_sha256: Sha256
    total_bytes: Count
    objects: Count
    at: Text

    @property
    def id(self) -> GenerationId:
        """The parsed id."""
        return GenerationId.parse(self.generation)


class Retired(Record):
    """A commit that was taken back and of which something may still lie on the tier; part of the folded state.

    ``slot`` is that of the retire entry: when the store says that this was written, the delay begins.
    ``damaged``: it was taken back because this copy was hurt, not because it was no longer wanted.
    """

    generation: GenerationText
    manifest_key: str
    slot: Count
    total_bytes: Count
    objects: Count
    reason: Text
    at: Text
    damaged: bool = False

    @property
    def id(self) -> GenerationId:
        """The parsed id."""
        return GenerationId.parse(self.generation)


class Attempt(Record):
    """An attempt that wrote to this log; ``start`` is the generation that it went on from, where that is known."""

    number: Count
    id: str
    start: str | None = None


class LogState(Record):
    """What a log adds up to before some slot.

    ``founded`` once a commit ever stood here.  Before that the log holds claims only, left
    by a machine that was lost during its first upload, and another run may take the name.
    """

    run_uid: str
    founded: bool = False
    term: Count
    writer: Text
    claim_nonce: str
    attempts: Annotated[tuple[Attempt, ...], Field(strict=False)] = ()
    live: Annotated[tuple[LiveCommit, ...], Field(strict=False)] = ()
    pins: Annotated[tuple[str, ...], Field(strict=False)] = ()
    retired: Annotated[tuple[Retired, ...], Field(strict=False)] = ()

    @property
    def newest(self) -> LiveCommit | None:
        """The newest live commit by (attempt, sequence)."""
        return max(self.live, key=lambda commit: commit.id, default=None)

    def find(self, generation: GenerationId | str) -> LiveCommit | None:
        """Return the live commit of a generation."""
        return self.by_name.get(str(generation))

    @cached_property
    def by_name(self) -> dict[str, LiveCommit]:
        """Live commits by generation; of two that bear one name, the first."""
        return {commit.generation: commit for commit in reversed(self.live)}

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy; pydantic takes along what was derived, so what live commits it was derived from must stand."""
        after = super().model_copy(update=update, deep=deep)
        if update and "live" in update:
            after.__dict__.pop("by_name", None)
        return after

    def with_commit(self, commit: LiveCommit) -> Self:
        """Return the state with one more live commit, of a generation that has none."""
        after = self.model_copy(update={"founded": True, "live": (*self.live, commit)})
        # Following a long log would otherwise index all of it again at each entry.
        after.__dict__["by_name"] = {**self.by_name, commit.generation: commit}
        return after

    def without(self, commit: LiveCommit) -> Self:
        """Return the state in which a live commit stands no more."""
        return self.model_copy(update={"live": tuple(one for one in self.live if one is not commit)})

    @property
    def lost(self) -> tuple[Retired, ...]:
        """What was taken back as damaged, and neither committed again nor taken back for another reason since."""
        last = {one.generation: one for one in sorted(self.retired, key=lambda one: one.slot)}
        return tuple(one for one in last.values() if one.damaged and self.find(one.generation) is None)

    @property
    def highest_attempt(self) -> int:
        """Highest attempt number that this log knows; 0 where it knows none."""
        return max((attempt.number for attempt in self.attempts), default=0)

    @property
    def highest_sequence(self) -> int:
        """Highest sequence among live commits."""
        return max((commit.id.sequence for commit in self.live), default=0)

    @property
    def forks(self) -> tuple[int, ...]:
        """Attempt numbers that stand here under two ids."""
        counts = Counter(attempt.number for attempt in self.attempts)
        return tuple(sorted(number for number, count in counts.items() if count > 1))
