"""The block in which a trainer writes its state."""

import errno
import os
import shutil
import warnings
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from replicate.errors import IntegrityFailure, LocalDisk
from replicate.generation.bench import Bench
from replicate.generation.disk import FULL, disk_error
from replicate.generation.earlywrite import EarlyWriter
from replicate.generation.evidence import Level
from replicate.generation.local import LocalGeneration, load_generation
from replicate.generation.released import DiskNearlyFull, describe_shortage, make_room
from replicate.generation.seal import Description, check_tree, make_durable
from replicate.generation.staging import StagedRecord, Staging, sweep

_OF_TORCH = ("PytorchStreamWriter", "inline_container")
_NEXT_TO_NOTHING = 1 << 20


@dataclass(slots=True, kw_only=True)
class Publication(AbstractContextManager[Path]):
    """Entering yields a private directory to write into; leaving it seals, an exception drops it.

    ``generation`` is what came out: None before, after an exception, and when sealing
    was deferred.  A forked child that leaves the block changes nothing.
    """

    bench: Bench
    description: Description
    validate: bool = True
    defer_seal: bool = False
    generation: LocalGeneration | None = field(default=None, init=False)
    _staging: Staging | None = field(default=None, init=False)
    _began: float = field(default=0.0, init=False)
    _pid: int = field(default=0, init=False)
    _early: EarlyWriter | None = field(default=None, init=False)

    def __enter__(self) -> Path:
        sweep(self.bench.local)
        room = make_room(self.bench)
        if room is not None and not room.enough:
            warnings.warn(describe_shortage(self.bench.local, room), DiskNearlyFull, stacklevel=2)
        self._began, self._pid = self.bench.clock.monotonic(), os.getpid()
        self._staging = Staging.open(self.bench.local)
        if self.bench.hash_workers > 1:  # with one, no thread may be started
            self._early = EarlyWriter(self._staging.files, self.bench.clock)
            self._early.start()
        return self._staging.files

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        staging, self._staging = self._staging, None
        if staging is None or self._pid != os.getpid():
            return
        if self._early is not None:
            self._early.stop()
        if error is not None:
            failure = _disk_failure(error, staging)  # first: dropping frees what it says is full
            staging.discard()
            if failure is not None:
                raise failure from error
            return
        try:
            self._finish(staging)
        except BaseException:
            staging.discard()
            raise

    def _finish(self, staging: Staging) -> None:
        tree = check_tree(staging.files, self.description)
        place = self.bench.reserve()
        if self.defer_seal:
            make_durable(staging.files, tree, threads=self.bench.hash_workers > 1)
            spent = round((self.bench.clock.monotonic() - self._began) * 1000)
            staging.stage(StagedRecord(place=place, description=self.description, save_milliseconds=spent))
            return
        self.generation = self.bench.seal(staging, place, self.description, began=self._began, tree=tree)
        if self.validate:
            self.generation = self._approved(self.generation)

    def _approved(self, generation: LocalGeneration) -> LocalGeneration:
        try:
            return approve(self.bench, generation)
        except LocalDisk as error:
            raise LocalDisk(
                f"{generation.id} is sealed and resume will use it, but not recorded as validated: {error.message}",
                hint=error.hint,
            ) from error


def approve(bench: Bench, generation: LocalGeneration) -> LocalGeneration:
    """Validate and let LATEST name it; raises IntegrityFailure when it was quarantined instead."""
    evidence = bench.validate(generation.id)
    if evidence.level is Level.QUARANTINED:
        raise IntegrityFailure(
            f"{generation.id} was sealed but did not pass validation and is quarantined: {evidence.reason}",
            hint="resume continues from the generation before it; correct what is written and publish again",
        )
    bench.point_latest()
    return load_generation(bench.local, generation.id)


def _disk_failure(error: BaseException, staging: Staging) -> LocalDisk | None:
    """Explain an error of writing into the directory; the trainer's other ones are its own business."""
    if isinstance(error, RuntimeError) and any(word in str(error) for word in _OF_TORCH):
        # torch's own writer hides the errno, and says no more than how far it came.
        hidden = OSError(errno.EIO, "torch could not write it all")
        return disk_error(_full_or(hidden, staging), staging.directory, "writing the state")
    if not isinstance(error, OSError):
        return None
    name = error.filename
    inside = isinstance(name, (str, os.PathLike)) and Path(name).is_relative_to(staging.directory)
    if inside or (name is None and error.errno in FULL):
        return disk_error(error, staging.directory, "writing the state")
    return None


def _full_or(error: OSError, staging: Staging) -> OSError:
    """Return ENOSPC where next to nothing is free, else the error."""
    free = shutil.disk_usage(staging.directory).free
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) if free < _NEXT_TO_NOTHING else error
