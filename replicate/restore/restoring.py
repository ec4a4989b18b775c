"""Carrying out a restore: the newest provable generation, whole and verified, or nothing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path

from replicate.errors import (
    CkptierError,
    IntegrityFailure,
    LocalDisk,
    NothingFound,
    PartialFailure,
    TrustFailure,
)
from replicate.generation.lineage import RestoredFrom
from replicate.generation.reading import reading
from replicate.generation.released import free_bytes
from replicate.layout import GenerationId, LocalRun, RemoteRun
from replicate.log import LogState
from replicate.logbook import Logbook
from replicate.manifest import GenerationRecord, SealedFile
from replicate.priced import Priced
from replicate.restore.documents import Provable, read_documents, unfetched
from replicate.restore.fetch import MIB, RETIRED, AllRetired, Fetcher, Tally, Ways
from replicate.restore.folder import Folder
from replicate.restore.holdings import Holdings, ask, read_holdings
from replicate.restore.pages import available_memory, page_policy
from replicate.restore.places import Incident, NotProved
from replicate.restore.plan import (
    LOCAL,
    Candidate,
    Held,
    Outcome,
    RestorePlan,
    RestoreRequest,
    Skip,
    TierAnswer,
    plan_restore,
)
from replicate.restore.sources import on_volume
from replicate.restore.staging import FULL, Staging, current_umask, disk_failure, locked
from replicate.restore.targets import DirectoryTarget, Publication, StoreTarget, Target
from replicate.verify import Share, check_files
from tiers.clock import Clock
from tiers.errors import TierError
from tiers.protocol import Tier

Price = Callable[[RestorePlan, Sequence[TierAnswer], Holdings], tuple[Priced, ...]]
"""What a plan costs on each tier that has a rate card."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreOptions:
    """How a restore works.  ``margin`` bytes stay free; memory is ``workers`` buffers and a constant.

    ``memory`` says how many bytes of memory could be had: it decides what stays in the page cache.  ``volumes``
    are the folders of tiers that are folders here.  ``price`` is asked by a dry run.
    """

    workers: int = 4
    buffer_bytes: int = MIB
    margin: int = 64 * MIB
    free_space: Callable[[Path], int] = free_bytes
    memory: Callable[[], int | None] = available_memory
    volumes: Mapping[str, Path] = field(default_factory=dict)
    price: Price = lambda _plan, _answers, _holdings: ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreReport:
    """What a restore did, or with ``dry_run`` would do.

    ``skipped`` says what was passed over and why, ``incidents`` which faults were made up
    for by another place.  ``attempt`` is the new one, None where none was opened.
    """

    outcome: Outcome
    dry_run: bool
    generation: GenerationId | None
    target: Path
    plan: RestorePlan
    files: int = 0
    total_bytes: int = 0
    leaves: int = 0
    leaves_reused: int = 0
    by_place: tuple[tuple[str, int], ...] = ()
    incidents: tuple[Incident, ...] = ()
    skipped: tuple[Skip, ...] = ()
    fell_back: bool = False
    attempt: int | None = None
    warnings: tuple[str, ...] = ()
    milliseconds: int = 0
    money: tuple[Priced, ...] = ()


def restore(
    request: RestoreRequest,
    tiers: Sequence[Tier],
    local: LocalRun,
    clock: Clock,
    *,
    remote: RemoteRun,
    options: RestoreOptions | None = None,
    dry_run: bool = False,
) -> RestoreReport:
    """Restore what is asked for; raises the CkptierError that tells why not, the target then untouched.

    ``tiers`` are in declared order and all are asked for their logs, also where the request
    names one: the new attempt has to be above all that are known.
    """
    attempt = partial(_restore, request, tiers, local, clock, remote=remote, dry_run=dry_run)
    try:
        try:
            return attempt(options=options or RestoreOptions())
        except AllRetired:  # newer ones were committed since the logs were read; twice in a row is told
            return attempt(options=options or RestoreOptions())
    except OSError as error:
        raise disk_failure(error, request.to or local.root, "restoring") from error


def _restore(
    request: RestoreRequest,
    tiers: Sequence[Tier],
    local: LocalRun,
    clock: Clock,
    *,
    remote: RemoteRun,
    options: RestoreOptions,
    dry_run: bool,
) -> RestoreReport:
    started = clock.monotonic()
    if request.fresh.max_age is None:
        request = replace(request, fresh=replace(request.fresh, max_age=remote.trust.max_age))
    directory = DirectoryTarget.at(request.to, local) if request.to is not None else None
    if directory is not None:
        directory.prepare()
    holdings = read_holdings(local) if directory is None else _readable_holdings(local)
    answers = ask(tiers, remote, thorough=True, fresh=request.fresh)
    plan = plan_restore(request, answers, holdings.held, now=clock.now())
    if dry_run or plan.outcome is not Outcome.RESTORE:
        unchanged = _unchanged(plan, holdings, directory.path if directory else local.root, dry_run=dry_run)
        priced = dry_run and plan.outcome is Outcome.RESTORE
        return replace(unchanged, money=options.price(plan, answers, holdings)) if priced else unchanged
    target: Target = directory or StoreTarget(local=local, clock=clock, run=remote.run, run_uid=_uid(plan), plan=plan)
    job = _Restoration(
        request=request,
        tiers={tier.name: tier for tier in tiers},
        remote=remote,
        local=local,
        holdings=holdings,
        plan=plan,
        target=target,
        options=options,
        clock=clock,
    )
    return job.run(started)


def _readable_holdings(local: LocalRun) -> Holdings:
    """Read the store as far as it can serve a folder: one that is broken must not stand in the way of its rescue."""
    try:
        return read_holdings(local)
    except CkptierError as error:
        return Holdings(held=Held(), readable=(), fault=f"the store is not used: {error.message}")


def _uid(plan: RestorePlan) -> str:
    if plan.run_uid is None:
        raise TrustFailure(
            "the store has generations but no lineage that says of which run",
            hint="restore with --to DIR, or into an empty store",
        )
    return plan.run_uid


def _unchanged(plan: RestorePlan, holdings: Holdings, target: Path, *, dry_run: bool) -> RestoreReport:
    best = plan.candidates[0] if plan.candidates else None
    return RestoreReport(
        outcome=plan.outcome,
        dry_run=dry_run,
        generation=best.generation if best else None,
        target=target,
        plan=plan,
        files=best.objects if best else 0,
        total_bytes=best.total_bytes if best else 0,
        skipped=plan.skipped,
        warnings=(*plan.warnings, *holdings.warnings),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done:
    """A candidate that was published."""

    record: GenerationRecord
    files: tuple[SealedFile, ...]
    tally: Tally
    attempt: int | None


@dataclass(slots=True, kw_only=True)
class _Restoration:
    """One restore under way: the candidates are tried in turn under the target's lock."""

    request: RestoreRequest
    tiers: dict[str, Tier]
    remote: RemoteRun
    local: LocalRun
    holdings: Holdings
    plan: RestorePlan
    target: Target
    options: RestoreOptions
    clock: Clock
    skipped: list[Skip] = field(default_factory=list)

    def run(self, started: float) -> RestoreReport:
        self.target.prepare()
        if self.request.strict and self.request.generation is None and self.plan.hidden:
            raise PartialFailure(
                f"the log of {', '.join(self.plan.hidden)} is damaged after its newest generation: "
                "a newer one may be hidden",
                hint="without --strict the newest that can be proved is taken",
            )
        with locked(self.target.place, self.clock) as parent:
            wanted = frozenset(str(candidate.generation) for candidate in self.plan.candidates)
            self._sweep(parent, wanted)
            done = self._first_provable(parent)
            self._sweep(parent, frozenset())
        return self._report(done, round((self.clock.monotonic() - started) * 1000))

    def _report(self, done: _Done, milliseconds: int) -> RestoreReport:
        return RestoreReport(
            outcome=Outcome.RESTORE,
            dry_run=False,
            generation=done.record.generation,
            target=self.target.path,
            plan=self.plan,
            files=len(done.files),
            total_bytes=sum(file.size for file in done.files),
            leaves=done.tally.leaves,
            leaves_reused=done.tally.leaves_reused,
            by_place=done.tally.by_place,
            incidents=done.tally.incidents,
            skipped=(*self.plan.skipped, *self.skipped),
            fell_back=done.record.generation != self.plan.candidates[0].generation,
            attempt=done.attempt,
            warnings=(*self.plan.warnings, *self.holdings.warnings),
            milliseconds=milliseconds,
        )

    def _sweep(self, parent: Folder, keep: frozenset[str]) -> None:
        """Remove what killed restores of this target left and that cannot serve any more."""
        for path in self.target.place.leftovers(keep):
            Staging(parent, path.name).remove()

    def _first_provable(self, parent: Folder) -> _Done:
        for candidate in self.plan.candidates:
            staging = self.target.staging(candidate.generation, parent)
            try:
                with reading(self.local, candidate.generation):
                    return self._try(candidate, staging)
            except IntegrityFailure as error:
                self._give_up(candidate, staging, error)
            except OSError as error:
                if error.errno in FULL:
                    staging.remove()
                raise disk_failure(error, self.target.path, f"restoring {candidate.generation}") from error
            except LocalDisk as error:
                if isinstance(error.__cause__, OSError) and error.__cause__.errno in FULL:
                    staging.remove()
                raise
            finally:
                staging.close()
        reasons = "; ".join(f"{skip.generation}: {skip.reason}" for skip in self.skipped)
        retired = all(skip.reason.startswith(RETIRED) for skip in self.skipped)
        raise (AllRetired if retired else IntegrityFailure)(
            f"no generation could be proved ({reasons})",
            hint="`ckptier verify --read-data 100%` shows what is hurt; another tier may still hold a good copy",
        )

    def _give_up(self, candidate: Candidate, staging: Staging, error: IntegrityFailure) -> None:
        """Note why a candidate was given up; raise where it must not be replaced by an older one."""
        unanswered = unfetched(candidate, error)
        if unanswered is not None and not self.request.accept_older:
            raise unanswered from error
        staging.remove()
        retired = self._retired(candidate, error)
        reason = f"{RETIRED} on {', '.join(retired)}" if retired else error.message
        self.skipped.append(Skip(generation=candidate.generation, place=_places(candidate), reason=reason))
        if self.request.generation is not None:
            raise _explicit(candidate, reason, retired) from error
        if self.request.strict:
            raise PartialFailure(
                f"the newest generation, {candidate.generation}, cannot be proved: {reason}",
                hint="name an older one with --generation, or leave --strict out to fall back",
            ) from error

    def _retired(self, candidate: Candidate, error: IntegrityFailure) -> list[str]:
        """Return the tiers that took a generation back while it was being fetched."""
        missing = error.missing if isinstance(error, NotProved) else frozenset()
        retired = []
        for replica in candidate.replicas:
            if replica.tier in missing:
                view = _read_again(self.tiers[replica.tier], self.remote)
                if view is not None and view.find(candidate.generation) is None:
                    retired.append(replica.tier)
        return retired

    def _try(self, candidate: Candidate, staging: Staging) -> _Done:
        if isinstance(self.target, StoreTarget):
            kept = self._kept_in_store(candidate, self.target)
            if kept is not None:
                return kept
        found = self._provable(candidate)
        files, directories = self._selection(found.record)
        self._check_space(staging, files, candidate)
        resumed = staging.open(files, directories)
        sources = [on_volume(source, self.options.volumes) for source in found.sources]
        tally = Fetcher(staging, sources, self._ways(files)).fetch(files, resumed)
        staging.seal(files, directories)
        attempt = self.target.publish(
            staging,
            Publication(record=found.record, record_bytes=found.record_bytes, restored_from=found.restored_from),
        )
        return _Done(record=found.record, files=files, tally=tally, attempt=attempt)

    def _ways(self, files: tuple[SealedFile, ...]) -> Ways:
        total = sum(file.size for file in files)
        return Ways(
            umask=current_umask(),
            workers=self.options.workers,
            buffer_bytes=self.options.buffer_bytes,
            pages=page_policy(total, self.options.memory()),
            spread=self.request.spread,
            monotonic=self.clock.monotonic,
        )

    def _kept_in_store(self, candidate: Candidate, target: StoreTarget) -> _Done | None:
        """Use the store's own copy where every byte of it is as sealed; the attempt is new all the same."""
        generation = self.holdings.find(candidate.generation)
        if generation is None or self.holdings.held.find(candidate.generation) is None:
            return None
        faults, hashed = check_files(generation.files, generation.record, Share())
        if faults:
            self.skipped.append(Skip(generation=candidate.generation, place=LOCAL, reason="; ".join(faults[:5])))
            return None
        first = candidate.replicas[0] if candidate.replicas else None
        slot = first.commit.slot if first else None
        origin = RestoredFrom(tier=LOCAL, generation=str(candidate.generation), slot=slot)
        leaves = sum(len(file.leaves) for file in generation.record.files)
        tally = Tally(leaves=leaves, leaves_reused=leaves, bytes_reused=hashed, by_place=(), incidents=())
        attempt = target.keep(candidate.generation, origin)
        return _Done(record=generation.record, files=generation.record.files, tally=tally, attempt=attempt)

    def _provable(self, candidate: Candidate) -> Provable:
        """Read the documents of a candidate wherever it lies; NotProved where none is readable."""
        only = self.request.tier is not None
        found = read_documents(candidate, self.tiers, self.remote, self.plan.run_uid, self.holdings, only_tiers=only)
        place = candidate.generation
        self.skipped.extend(Skip(generation=place, place=fault.split(":")[0], reason=fault) for fault in found.faults)
        return found

    def _selection(self, record: GenerationRecord) -> tuple[tuple[SealedFile, ...], tuple[str, ...]]:
        """Return the files and empty folders that are wanted."""
        patterns = self.request.paths
        if not patterns:
            return record.files, record.directories
        files = tuple(file for file in record.files if _matches(file.path, patterns))
        if not files:
            raise NothingFound(
                f"no file of {record.id} matches {', '.join(patterns)}",
                hint=f"`ckptier show {record.id}` lists its files",
            )
        return files, tuple(path for path in record.directories if _matches(path, patterns))

    def _check_space(self, staging: Staging, files: tuple[SealedFile, ...], candidate: Candidate) -> None:
        needed = sum(file.size for file in files) - staging.allocated()
        free = self.options.free_space(self.target.place.parent)
        if needed + self.options.margin > free:
            raise LocalDisk(
                f"restoring {candidate.generation} needs {needed} bytes and {self.options.margin} to spare, "
                f"{free} are free on the disk of {self.target.place.parent}",
                hint="make room there, or restore to another disk with --to DIR",
            )


def _matches(path: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(path, pattern) for pattern in patterns)


def _places(candidate: Candidate) -> str:
    here = [LOCAL] if candidate.local else []
    return ", ".join([*here, *(replica.tier for replica in candidate.replicas)])


def _read_again(tier: Tier, remote: RemoteRun) -> LogState | None:
    """Read a log once more; None where it does not answer, since that proves no retirement."""
    try:
        return Logbook(tier, remote).read().state
    except (TierError, CkptierError):
        return None


def _explicit(candidate: Candidate, reason: str, retired: list[str]) -> CkptierError:
    """Return the error for a named generation: nothing else is put in its place."""
    if retired:
        return NothingFound(f"{candidate.generation} was {reason}", hint="choose another one from `ckptier list`")
    return IntegrityFailure(
        f"{candidate.generation} cannot be proved: {reason}",
        hint="`ckptier verify --read-data 100%` shows what is hurt where; `ckptier list` shows the others",
    )
