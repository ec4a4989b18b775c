"""``status.json``: the replicating process's own view, replaced atomically, read by ``status``.

Reading it asks no tier and takes no lock, so that looking never disturbs.
"""

from typing import Annotated, Literal

from pydantic import Field

from replicate import canonical
from replicate.errors import IntegrityFailure
from replicate.layout import LocalRun
from replicate.manifest import Count, Record, Text, parse

MAX_STATUS_BYTES = 16 * 1024 * 1024


class Failure(Record):
    """The last thing that went wrong on a tier and has not been followed by a success."""

    at: Text
    since: Text
    exit_code: int
    message: str
    hint: str
    count: Count


class UnderWay(Record):
    """An upload that is running or will be resumed; ``copied_bytes`` of what is done stood on the tier already."""

    generation: Text
    done_bytes: Count
    total_bytes: Count
    copied_bytes: Count = 0
    started_at: Text


class Replica(Record):
    """A generation whose commit entry was read back from the tier."""

    generation: Text
    slot: Count
    at: Text
    total_bytes: Count


class TierStatus(Record):
    """One tier as the replicating process sees it.

    ``waiting`` will go up; ``held`` are the store's generations that are completed there.  ``anchor``
    (``SLOT:SHA256``) is the furthest log entry that was seen there.
    """

    name: Text
    url: Text
    newest: Replica | None = None
    completed: Count = 0
    held: Annotated[tuple[str, ...], Field(strict=False)] = ()
    under_way: UnderWay | None = None
    waiting: Annotated[tuple[str, ...], Field(strict=False)] = ()
    skipped: Count = 0
    failure: Failure | None = None
    notes: Annotated[tuple[str, ...], Field(strict=False)] = ()
    verified_by: Annotated[tuple[str, ...], Field(strict=False)] = ()
    anchor: Text | None = None
    requests: Annotated[dict[str, int], Field(default_factory=dict)]
    bytes_up: Count = 0


class StatusFile(Record):
    """The whole document.  ``phase`` is a :class:`Phase` value; ``pid`` is for people, never for locking."""

    format: Literal[1] = 1
    run: Text
    pid: Count
    host: Text
    phase: Text
    started_at: Text
    updated_at: Text
    tiers: Annotated[tuple[TierStatus, ...], Field(strict=False)] = ()
    quarantined: Annotated[dict[str, str], Field(default_factory=dict)]

    def encode(self) -> bytes:
        """Return the bytes of the file."""
        return canonical.dump(self.model_dump(mode="json")) + b"\n"


def read_status(local: LocalRun) -> StatusFile | None:
    """Read the last view that a replicating process left; None where there is none.

    Raises IntegrityFailure for one that is damaged: it is replaced by the next pass.
    """
    try:
        data = canonical.read(local.status, MAX_STATUS_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise IntegrityFailure(f"{local.status} cannot be read: {error.strerror}") from error
    return parse(StatusFile, data, what=str(local.status), max_bytes=MAX_STATUS_BYTES)
