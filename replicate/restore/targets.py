"""Where a restored generation goes: into the store, or as plain files into a folder."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from replicate.errors import LocalDisk, UsageError
from replicate.generation.bench import Bench
from replicate.generation.disk import make_directory
from replicate.generation.lineage import RestoredFrom, open_attempt
from replicate.generation.restored import DAMAGED
from replicate.generation.store import RunStore
from replicate.generation.validate import Limits
from replicate.layout import GenerationId, LocalRun, RunName, new_nonce
from replicate.manifest import GenerationRecord
from replicate.restore.folder import Folder
from replicate.restore.plan import RestorePlan
from replicate.restore.staging import Place, Staging, current_umask
from tiers import effects
from tiers.clock import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Publication:
    """What is published: the sealed document, and the copy that it came from."""

    record: GenerationRecord
    record_bytes: bytes
    restored_from: RestoredFrom | None


class Target(Protocol):
    """A place that a generation can be restored to."""

    @property
    def place(self) -> Place:
        """Where its staging and lock lie."""
        ...

    @property
    def path(self) -> Path:
        """What the user calls it."""
        ...

    def prepare(self) -> None:
        """Refuse a target that cannot be, and create what the staging needs."""
        ...

    def staging(self, generation: GenerationId, parent: Folder) -> Staging:
        """Return the staging of one generation in the open folder of its place, not yet opened."""
        ...

    def publish(self, staging: Staging, publication: Publication) -> int | None:
        """Make the staged generation appear; returns the attempt that was opened, if any."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryTarget:
    """``--to DIR``: the trainer's files only."""

    path: Path
    store: Path

    @classmethod
    def at(cls, path: Path, store: LocalRun) -> "DirectoryTarget":
        """Take the folder as named; links among its parents are followed, the folder itself may be none."""
        _refuse_kind(path)
        parent = path.absolute().parent
        if not parent.is_dir():
            raise UsageError(f"{parent} does not exist", hint=f"create it first: mkdir -p {parent}")
        named = path.name not in ("", "..")
        return cls(path=parent.resolve() / path.name if named else path.resolve(), store=store.root.absolute())

    @property
    def place(self) -> Place:
        """Beside the folder; the label tells it from other targets there."""
        return Place(parent=self.path.parent, label=hashlib.sha256(os.fsencode(self.path.name)).hexdigest()[:8])

    def staging(self, generation: GenerationId, parent: Folder) -> Staging:
        """Return a bare one: it becomes the folder."""
        return Staging(parent, self.place.staging(generation).name, bare=True)

    def prepare(self) -> None:
        """Refuse links, mount points, folders with something in them, and the store itself."""
        _refuse_kind(self.path)
        store = self.store.resolve()
        if store == self.path or store in self.path.parents:
            raise UsageError(
                f"{self.path} lies in the store",
                hint="name a folder outside, or leave --to out to restore into the store",
            )
        if self.path.is_dir() and any(self.path.iterdir()):
            raise UsageError(
                f"{self.path} is not empty: its files would mix with the restored ones",
                hint=f"name a new folder, e.g. --to {self.path}/restored, or move its content away",
            )

    def publish(self, staging: Staging, publication: Publication) -> int | None:  # noqa: ARG002 - files only
        """Rename the files into place; an empty folder that stands there gives its mode and goes."""
        self.prepare()
        standing = staging.parent.look(self.path.name)
        staging.unveil(0o777 & ~current_umask() if standing is None else standing.st_mode & 0o777)
        staging.publish(self.path)
        return None


def _refuse_kind(path: Path) -> None:
    if path.is_symlink():
        raise UsageError(
            f"{path} is a symbolic link: it is not followed", hint=f"name the folder itself: {path.resolve()}"
        )
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path} is not a folder", hint="name a folder that does not exist yet")
    if path.is_dir() and os.path.ismount(path):
        raise UsageError(f"{path} is a mount point and cannot be replaced", hint=f"name a subfolder: {path}/restored")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreTarget:
    """The store: the same id again, and a new attempt that goes on from it."""

    local: LocalRun
    clock: Clock
    run: RunName
    run_uid: str
    plan: RestorePlan

    @property
    def place(self) -> Place:
        """Inside the run's folder, on the file system of the generations."""
        return Place(parent=self.local.root.resolve(), label="")

    @property
    def path(self) -> Path:
        """The run's folder."""
        return self.local.root

    def staging(self, generation: GenerationId, parent: Folder) -> Staging:
        """Return one that becomes the generation's folder."""
        return Staging(parent, self.place.staging(generation).name)

    def prepare(self) -> None:
        """Create the run's folder."""
        make_directory(self.local.generations, settle=True)

    def publish(self, staging: Staging, publication: Publication) -> int | None:
        """Open the attempt, durably, and only then let the generation appear."""
        generation = publication.record.generation
        staging.write_record(publication.record_bytes)
        staging.unveil(0o777 & ~current_umask())
        attempt = self.open(generation, publication.restored_from)
        self._set_aside(generation)
        self._install(staging, publication.record_bytes)
        return attempt

    def _install(self, staging: Staging, record_bytes: bytes) -> None:
        """Hand the staging to the store; once more where a network volume denied a folder that is there."""
        store = RunStore(self.local.root, run=self.run, clock=self.clock)
        try:
            store.install_restored(staging.path, record_bytes)
        except LocalDisk as error:
            if not isinstance(error.__cause__, FileNotFoundError) or not staging.path.is_dir():
                raise
            store.install_restored(staging.path, record_bytes)

    def open(self, generation: GenerationId, restored_from: RestoredFrom | None) -> int:
        """Open the attempt that continues from a generation; returns its number."""
        lineage = open_attempt(
            self.local,
            self.clock,
            run=self.run,
            run_uid=self.run_uid,
            seen_attempt=self.plan.seen_attempt,
            seen_sequence=self.plan.seen_sequence,
            parent=generation,
            restored_from=restored_from,
        )
        return lineage.attempt

    def keep(self, generation: GenerationId, restored_from: RestoredFrom) -> int:
        """Go on from a copy that the store has: a new attempt, and LATEST names what it goes on from."""
        effects.fsync_directory(self.local.generations)  # who put it there may have died before the fsync
        attempt = self.open(generation, restored_from)
        bench = Bench(local=self.local, run=self.run, clock=self.clock, hash_workers=1, limits=Limits())
        bench.point_latest()
        return attempt

    def _set_aside(self, generation: GenerationId) -> None:
        """Move a local copy that failed verification out of the way; its restored twin is complete by now."""
        present = self.local.generation(generation)
        if present.exists():
            effects.rename(present, self.local.root / f"{DAMAGED}{generation}-{new_nonce()}")
            effects.fsync_directory(self.local.generations)
            effects.fsync_directory(self.local.root)
