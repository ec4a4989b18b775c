"""The local store of one run: the public face of :mod:`replicate.generation`."""

import logging
import warnings
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import ValidationError

from replicate.digests import Leave, default_workers
from replicate.errors import IntegrityFailure, LocalDisk, NothingFound, UsageError
from replicate.generation import adoption, deferred, removal, restored
from replicate.generation.bench import Bench
from replicate.generation.descent import check_contract
from replicate.generation.environment import changes, check_plain, describe_environment
from replicate.generation.evidence import Evidence, Level
from replicate.generation.lineage import Lineage, read_lineage
from replicate.generation.local import LocalGeneration, Skipped, load_generation, scan_generations
from replicate.generation.publication import Publication
from replicate.generation.seal import Description
from replicate.generation.staging import STAGED, sweep
from replicate.generation.validate import Limits
from replicate.layout import GenerationId, LocalRun, RunName, run_name
from replicate.manifest import Accumulation, Experiment
from tiers.clock import Clock, SystemClock

if TYPE_CHECKING:
    from replicate.generation.background import AsyncPublisher

_log = logging.getLogger(__name__)


class EnvironmentChanged(UserWarning):
    """Training continues under other versions or devices: exact continuation is not certain."""


class RunStore:
    """The local generations of one run, under ``path`` = ``<store>/<run>``.

    Several processes may use one store at a time.  Opening it creates nothing.  ``hash_workers``
    are leaves hashed at once, by default one for each CPU.  ``leave`` is asked before each
    block of bytes is hashed, and waits where the process has to.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        run: str | None = None,
        clock: Clock | None = None,
        hash_workers: int | None = None,
        limits: Limits | None = None,
        leave: Leave | None = None,
    ) -> None:
        root = Path(path).absolute()
        self._bench = Bench(
            local=LocalRun(root),
            run=run_name(root.name if run is None else run),
            clock=clock or SystemClock(),
            hash_workers=default_workers() if hash_workers is None else max(1, hash_workers),
            leave=leave,
            limits=limits or Limits(),
        )
        self._background: AsyncPublisher | None = None

    @property
    def local(self) -> LocalRun:
        """Where things lie."""
        return self._bench.local

    @property
    def run(self) -> RunName:
        """The run's name."""
        return self._bench.run

    def publish(
        self,
        *,
        next_update: int,
        contract: Mapping[str, str] | None = None,
        tokens_seen: int | None = None,
        payload: str = "files",
        environment: Mapping[str, Any] | None = None,
        accumulation: Accumulation | None = None,
        experiment: Experiment | None = None,
        validate: bool = True,
        defer_seal: bool = False,
    ) -> Publication:
        """Return a block that yields an empty directory; leaving it seals what was written there.

        ``with store.publish(next_update=500, contract=contract) as directory: …``.  An
        exception leaves no generation.  ``payload`` "torch" has payload.pt loaded for
        validation and its restart keys checked ("torch:model,next_update" names them).
        ``defer_seal`` flushes and returns; the daemon or the next resume digests.
        Raises LocalDisk, UsageError, and IntegrityFailure for a tree that cannot be
        sealed or a payload that did not pass.
        """
        facts = {**describe_environment(), **(environment or {})}
        check_plain(facts)
        try:
            description = Description(
                next_update=next_update,
                tokens_seen=tokens_seen,
                payload=payload,
                contract=dict(contract or {}),
                environment=facts,
                accumulation=accumulation,
                experiment=experiment,
            )
        except ValidationError as error:
            raise _usage(error) from error
        return Publication(bench=self._bench, description=description, validate=validate, defer_seal=defer_seal)

    def publish_async(
        self, state: Any, *, writer: Callable[[Path, Any], object], next_update: int, **options: Any
    ) -> None:
        """Copy ``state`` to the CPU now, and write and seal it in the background.

        At most one is in flight: a second call waits for it.  A failure of an earlier
        one is raised here or by close().  ``writer(directory, state)`` writes the
        copy; ``options`` are those of publish.
        """
        self.background().submit(state, writer=writer, next_update=next_update, **options)

    def background(self) -> "AsyncPublisher":
        """Return this store's background publisher."""
        if self._background is None:
            from replicate.generation.background import AsyncPublisher  # noqa: PLC0415 - only who publishes in the background pays

            self._background = AsyncPublisher(self)
        return self._background

    def close(self) -> None:
        """Wait for background publications and raise what went wrong in them."""
        if self._background is not None:
            self._background.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def single_threaded(self) -> Self:
        """Return the same store without hashing threads, for work that may outlive the main thread."""
        return type(self)(
            self.local.root, run=self.run, clock=self._bench.clock, hash_workers=1, limits=self._bench.limits
        )

    def adopt(
        self,
        path: str | Path,
        *,
        next_update: int,
        contract: Mapping[str, str] | None = None,
        payload: str = "files",
        tokens_seen: int | None = None,
        experiment: Experiment | None = None,
        validate: bool = True,
    ) -> LocalGeneration:
        """Seal a copy of a directory or file that something else wrote; the original is not touched.

        Shares the bytes by reflink where the filesystem can.  A symlink becomes its
        target's bytes where that is a regular file of the same tree; other links and
        special files are refused by name.  Raises SourceChanged where it was written to meanwhile.
        """
        source = adoption.resolve_source(Path(path), self.local.root)
        publication = self.publish(
            next_update=next_update,
            contract=contract,
            payload=payload,
            tokens_seen=tokens_seen,
            experiment=experiment,
            validate=validate,
        )
        with publication as directory:
            adoption.bring(source, directory)
        assert publication.generation is not None
        return publication.generation

    def generations(self) -> tuple[LocalGeneration, ...]:
        """Return every sealed generation, newest first by (attempt, sequence), quarantined ones too."""
        return scan_generations(self.local)

    def get(self, generation: GenerationId | str) -> LocalGeneration:
        """Return one generation; raises NothingFound."""
        return load_generation(self.local, _id(generation))

    def latest(self) -> LocalGeneration | None:
        """Return the validated generation that training would continue from, found by scanning.

        What a deferred seal left staged does not count yet: :meth:`resume_or_none` seals it.
        """
        return self._bench.latest()

    def lineage(self) -> Lineage | None:
        """Return the store's place in the run's descent; None before the first publish."""
        return read_lineage(self.local)

    def validate(self, generation: GenerationId | str) -> Evidence:
        """Check a generation and record the outcome; a quarantined one is not checked again."""
        return self._bench.validate(_id(generation))

    def quarantine(self, generation: GenerationId | str, reason: str) -> None:
        """Keep a generation as evidence, never to be resumed or replicated; ``reason`` is shown."""
        self._bench.quarantine(_id(generation), reason)

    def lease(self, generation: GenerationId | str) -> AbstractContextManager[LocalGeneration]:
        """Return a block during which the generation's files are not removed."""
        return removal.lease(self.local, _id(generation))

    def remove(self, generation: GenerationId | str) -> None:
        """Remove a generation; Fenced for the newest good one, the one resumed from, and a leased one."""
        removal.remove(self._bench, _id(generation))

    def sweep(self) -> tuple[Path, ...]:
        """Remove what killed publishers left behind; what is being written, or staged, stays."""
        return sweep(self.local)

    def install_restored(self, staging: Path, record_bytes: bytes) -> LocalGeneration:
        """Put a fully verified, durable staging directory in place; see :mod:`replicate.generation.restored`."""
        return restored.install_restored(self._bench, staging, record_bytes)

    def seal_staged(self) -> tuple[LocalGeneration, ...]:
        """Seal and validate what was deferred, but for what another process is sealing.

        One that does not pass validation is returned too, quarantined.  Raises
        IntegrityFailure, after the rest, for what cannot be sealed.
        """
        outcome = deferred.seal_staged(self._bench, wait=False)
        for generation in outcome.done:
            self._bench.validate(generation.id)
        if outcome.done:
            self._bench.point_latest()
        if outcome.failed:
            first = outcome.failed[0]
            raise IntegrityFailure(
                f"{first.generation} cannot be sealed: {first.reason}", hint="it was left where it is"
            )
        return tuple(self.get(generation.id) for generation in outcome.done)

    def resume(self, *, contract: Mapping[str, str] | None = None, allow: Collection[str] = ()) -> LocalGeneration:
        """Return the generation to continue from; what was passed over is in its ``skipped``.

        Newest validated of the current attempt, else what the attempt started from.
        Raises ContractChanged where the contract differs in keys that are not in
        ``allow``, NothingFound where nothing can be used, LocalDisk where a deferred one
        cannot be sealed; warns EnvironmentChanged.
        """
        skipped = list(deferred.seal_staged(self._bench, wait=True).failed)
        for generation in self._bench.line():
            evidence, reason = self._judge(generation.id)
            if evidence is None:
                _log.warning("%s is passed over: %s", generation.id, reason)
                skipped.append(Skipped(generation=str(generation.id), reason=reason))
                continue
            chosen = replace(generation, evidence=evidence, skipped=tuple(skipped))
            if contract is not None:
                check_contract(chosen.id, chosen.record.contract, contract, allow=allow)
            _warn_of_changes(chosen)
            self._point_latest()
            return chosen
        raise NothingFound(
            f"{self.local.root} holds no generation to continue from{_words(skipped)}",
            hint="`ckptier restore` gets one from the tiers; start afresh only if that finds none",
        )

    def resume_or_none(
        self, *, contract: Mapping[str, str] | None = None, allow: Collection[str] = ()
    ) -> LocalGeneration | None:
        """Return what :meth:`resume` does, or None where nothing was ever published or restored here.

        The beginning of a training script.  Where something was here and cannot be used, or
        is gone, NothingFound passes: that is no fresh start.
        """
        try:
            return self.resume(contract=contract, allow=allow)
        except NothingFound:
            lineage = read_lineage(self.local)
            staged = any(self.local.root.glob(f"{STAGED}*"))
            if staged or self.generations() or (lineage is not None and lineage.parent is not None):
                raise
            return None

    def _judge(self, generation: GenerationId) -> tuple[Evidence | None, str]:
        """Return the evidence of a generation that can be used, or None and why it cannot."""
        try:
            evidence = self._bench.judge(generation)
        except (IntegrityFailure, LocalDisk) as error:
            return None, error.message
        return (None, evidence.reason) if evidence.level is Level.QUARANTINED else (evidence, "")

    def _point_latest(self) -> None:
        try:
            self._bench.point_latest()
        except LocalDisk as error:
            _log.warning("LATEST.json could not be replaced, which is only a hint: %s", error.message)


def _id(generation: GenerationId | str) -> GenerationId:
    return GenerationId.parse(generation) if isinstance(generation, str) else generation


def _usage(error: ValidationError) -> UsageError:
    first = error.errors(include_url=False, include_input=False)[0]
    return UsageError(
        f"{'.'.join(map(str, first['loc']))}: {first['msg']}",
        hint="next_update and tokens_seen are plain integers from 0, contract maps names to digests, all strings",
    )


def _warn_of_changes(generation: LocalGeneration) -> None:
    differing = changes(generation.record.environment, describe_environment())
    if differing:
        warnings.warn(
            f"{generation.id} was made in another environment ({'; '.join(differing)}): compare the first updates",
            EnvironmentChanged,
            stacklevel=3,
        )


def _words(skipped: list[Skipped]) -> str:
    return ": " + "; ".join(f"{one.generation}: {one.reason}" for one in skipped) if skipped else ""
