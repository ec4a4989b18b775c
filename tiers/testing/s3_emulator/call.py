"""One request that was authenticated and received, with the store that it is put to."""

from dataclasses import dataclass, field

from tiers.testing.s3_emulator.asked import Asked
from tiers.testing.s3_emulator.operations import EVERYTHING, Operation
from tiers.testing.s3_emulator.payload import Received
from tiers.testing.s3_emulator.state import Bucket, State


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What an operation is handed, under the store's lock; ``may`` is what the caller is allowed."""

    state: State
    asked: Asked
    body: Received = field(default_factory=Received)
    may: frozenset[Operation] = EVERYTHING

    @property
    def bucket(self) -> Bucket:
        """The bucket that is asked for; Refusal where there is none."""
        return self.state.bucket(self.asked.bucket)
