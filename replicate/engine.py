"""Wiring: one method a verb, each a short path from configuration to a report.

Both faces, the command line and a program that imports this, go through here, so no
logic exists that only one of them has.
"""

import logging
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from replicate.checking import CheckReport, Finding, check_apart, check_store, check_tier, check_transport, failed
from replicate.commit import Events
from replicate.config import Config, TierConfig
from replicate.daemon import Daemon, Signals
from replicate.errors import (
    CkptierError,
    ConfigInvalid,
    ExitCode,
    IntegrityFailure,
    NothingFound,
    from_tier_error,
)
from replicate.explaining import Explanation, explain, nowhere
from replicate.exposure import exposed
from replicate.generation.evidence import Level
from replicate.generation.lineage import read_lineage
from replicate.generation.local import LocalGeneration, scan_generations
from replicate.generation.staging import STAGED
from replicate.generation.store import RunStore
from replicate.layout import GenerationId
from replicate.localentries import local_entries
from replicate.log import LogView
from replicate.manifest import GenerationRecord
from replicate.opening import Opener, default_opener, open_configured, probed_opener
from replicate.outcomes import ReplicateReport
from replicate.preview import Price as UploadPrice
from replicate.preview import TierPreview, preview_tier
from replicate.priced import Priced
from replicate.rehearsing.telling import with_evidence
from replicate.requests import Sending
from replicate.restore import RestoreOptions, RestoreReport, RestoreRequest, restore
from replicate.restore.holdings import ask
from replicate.scrubbing import Scrubbed, ScrubRequest, scrub
from replicate.session import Session
from replicate.status import (
    Listed,
    Progress,
    Risk,
    RunStatus,
    Safety,
    TierInput,
    assemble,
    assess_termination,
    list_generations,
    progress_from,
)
from replicate.statusfile import StatusFile
from replicate.storekeeping import found_hurt, proof_levels
from replicate.verify import Share, VerifyReport, read_manifest
from replicate.waiting import WaitReport, is_replicating, last_view, wait_for
from tiers.clock import Clock, SystemClock
from tiers.errors import TierError
from tiers.metered import Meter
from tiers.protocol import Tier

if TYPE_CHECKING:
    from replicate.copyplan import CopyReport, CopyRequest
    from tiers.probing.outcomes import ProbeReport

_log = logging.getLogger(__name__)


class Replicator:
    """The verbs over one configuration."""

    def __init__(self, config: Config, *, clock: Clock | None = None, opener: Opener = default_opener) -> None:
        self.config = config
        self.clock = clock or SystemClock()
        self._plain_opener = opener
        self._opener = probed_opener(self.config, opener)
        self._remote = config.remote
        self._stop = threading.Event()

    @property
    def store(self) -> RunStore:
        """The local store of the run."""
        return RunStore(self.config.local.root, clock=self.clock, hash_workers=self.config.hash_workers)

    def replicate_once(self, events: Events | None = None, *, prune: bool = True) -> ReplicateReport:
        """Replicate all that is pending to every tier and return what became of each.

        Raises NothingFound where the store holds no generation, Fenced where another
        process replicates it, LocalDisk and ConfigInvalid; a tier's failure is in the report.
        """
        with self._session(events, prune=prune) as session:
            session.unbounded_backlog()
            prepared = session.prepare()
            if prepared.empty:
                raise NothingFound(
                    f"{self.config.local.root} holds no generation yet",
                    hint="publish one from the training script, or seal a checkpoint with `ckptier adopt`",
                )
            names = [tier.name for tier in self.config.tier]
            with ThreadPoolExecutor(len(names), thread_name_prefix="ckptier-tier") as pool:
                try:
                    results = tuple(pool.map(lambda name: session.run_tier(name, prepared), names))
                except BaseException:
                    session.stop.set()  # or leaving the block would wait for every upload to end
                    raise
            session.keep_once(results, prepared)
            session.board.stopped()
            return ReplicateReport(
                run=self.config.run,
                results=results,
                quarantined=prepared.quarantined,
                unsealed=prepared.unsealed.message if prepared.unsealed else None,
            )

    def replicate_forever(self, events: Events | None = None, *, prune: bool = True) -> ExitCode:
        """Replicate beside training until a signal; returns what the process should exit with."""
        signals = Signals()
        with self._session(events, prune=prune) as session, signals.installed():
            return Daemon(session, signals, self.clock).run()

    def preview(self) -> tuple[TierPreview, ...]:
        """Say what ``replicate`` would do now, from the tiers' logs, changing nothing anywhere.

        A tier that does not answer is told as such and hides none of the others.
        """
        local = scan_generations(self.config.local)
        return tuple(self._preview(settings, local) for settings in self.config.tier)

    def _preview(self, settings: TierConfig, local: tuple[LocalGeneration, ...]) -> TierPreview:
        from replicate.keeper import unwanted_by  # noqa: PLC0415 - as for `copy`

        try:
            with self._tiers([settings]) as (tier,):
                price = self._upload_price(settings)
                return preview_tier(
                    settings,
                    tier,
                    self._remote,
                    local,
                    self.config.backlog,
                    price,
                    unwanted_by(self.config, settings),
                )
        except ConfigInvalid:
            raise
        except CkptierError as error:
            return TierPreview(tier=settings.name, failure=error)

    def _upload_price(self, settings: TierConfig) -> UploadPrice:
        """Return what tells the money of a dry run; nothing is loaded where no card is configured."""

        def price(sending: Sequence[Sending], view: LogView) -> Priced | None:
            if settings.rates is None:
                return None
            from replicate.costing.flow import price_upload  # noqa: PLC0415 - only where money is shown

            return price_upload(self.config, settings, sending, view, self.clock.now())

        return price

    def copy(self, request: "CopyRequest", *, dry_run: bool = False, events: Events | None = None) -> "CopyReport":
        """Copy committed generations from one tier to another; see replicate.copying."""
        from replicate.copying import copy_generations  # noqa: PLC0415 - `status` is fast without it

        try:
            return copy_generations(
                request,
                self.config,
                clock=self.clock,
                stop=threading.Event(),  # closing a session sets it, and there may be another one
                opener=self._opener,
                events=events,
                dry_run=dry_run,
            )
        except TierError as error:
            raise from_tier_error(error) from error

    def restore(
        self, request: RestoreRequest, *, dry_run: bool = False, options: RestoreOptions | None = None
    ) -> RestoreReport:
        """Restore the newest provable generation, or the one named; see replicate.restore."""
        if request.to is None and request.generation is None and not dry_run:
            self._seal_staged()
        with self._tiers(self.config.tier) as tiers:
            if dry_run and any(settings.rates for settings in self.config.tier):
                from replicate.costing.restoring import restore_price  # noqa: PLC0415 - only where money is shown

                price = restore_price(self.config, request, tiers, self.clock.now())
                options = replace(options or RestoreOptions(), price=price)
            return restore(
                request, tiers, self.config.local, self.clock, remote=self._remote, options=options, dry_run=dry_run
            )

    def _seal_staged(self) -> None:
        """Seal what is staged: it may be the newest there is, and a restore opens another line beside it."""
        if not self.config.local.root.is_dir():
            return
        try:
            self.store.seal_staged()
        except IntegrityFailure as error:
            _log.warning("%s (%s)", error.message, error.hint)

    def verify(
        self, *, tier: str | None, share: Share | None, generation: GenerationId | None, seed: int | None = None
    ) -> tuple[VerifyReport, ...]:
        """Verify the store (where no tier is named) and the tiers; see ``scrub``."""
        return self.scrub(ScrubRequest(tier=tier, share=share, generation=generation, seed=seed)).reports

    def scrub(self, request: ScrubRequest) -> Scrubbed:
        """Verify what is asked for and say what still works; see replicate.scrubbing."""
        return scrub(request, self.config, clock=self.clock, stop=self._stop, opener=self._opener)

    def status(self, *, ask_tiers: bool = False) -> tuple[RunStatus, StatusFile | None]:
        """Return the run's status and the replicating process's own view; asks no tier unless told to."""
        view = last_view(self.config.local)
        progress = self._progress(view)
        if ask_tiers:
            inputs = self._inputs(self.config.tier)
        else:
            hurt = found_hurt(self.config.local)
            inputs = [
                TierInput(tier=tier.name, progress=progress.get(tier.name), found=hurt.get(tier.name, {}))
                for tier in self.config.tier
            ]
        run = assemble(self.config.run, self._run_uid(), local_entries(self.config.local), inputs)
        return replace(run, money=self._money()), view

    def _money(self) -> tuple[Priced, ...]:
        configured = [settings for settings in self.config.tier if settings.rates is not None]
        if not configured:
            return ()
        from replicate.costing.flow import price_status  # noqa: PLC0415 - only where money is shown

        now = self.clock.now()
        found = (price_status(self.config, settings, now) for settings in configured)
        return tuple(one for one in found if one is not None)

    def list_generations(self) -> tuple[tuple[Listed, ...], tuple[TierInput, ...]]:
        """Return every generation anywhere, newest first, and what each tier answered."""
        inputs = self._inputs(self.config.tier)
        return list_generations(local_entries(self.config.local), inputs), tuple(inputs)

    def explain(self, generation: GenerationId | None) -> Explanation:
        """Say all that is known of a generation, or of the newest; raises NothingFound."""
        inputs = self._inputs(self.config.tier)
        local = local_entries(self.config.local)
        chosen = generation or next((one.generation for one in list_generations(local, inputs) if one.newest), None)
        found = explain(chosen, local, inputs) if chosen else None
        if found is None:
            raise nowhere(chosen, inputs)
        found = replace(found, exposed=exposed(self._remote, [one.tier for one in inputs]))
        return with_evidence(found, self.config.local, inputs)

    def show(self, generation: GenerationId) -> GenerationRecord:
        """Return ``generation.json`` of a generation, from the store or else from a tier that has it."""
        local = scan_generations(self.config.local) if self.config.local.root.is_dir() else ()
        found = next((one for one in local if one.id == generation), None)
        if found is not None:
            return found.record
        with self._tiers(self.config.tier) as tiers:
            for tier, answer in zip(tiers, ask(tiers, self._remote), strict=True):
                state = answer.view.state if answer.view and not answer.rollback else None
                commit = state.find(generation) if state else None
                if state is not None and commit is not None:
                    return read_manifest(tier, self._remote, state.run_uid, commit).record()
        raise NothingFound(
            f"{generation} is in none of the places that answered", hint="`ckptier list` shows what there is"
        )

    def measured(self, generation: GenerationId | None) -> GenerationRecord:
        """Return the record of a generation, or of the newest: in the store, or else on a tier; raises NothingFound."""
        if generation is None:
            local = local_entries(self.config.local)
            listed = list_generations(local, []) or self.list_generations()[0]
            if not listed:
                raise NothingFound("no generation to go by", hint="publish one, or describe the run in a plan file")
            generation = listed[0].generation
        return self.show(generation)

    def replicating(self) -> bool:
        """Whether a process replicates this store now."""
        return is_replicating(self.config.local)

    def wait(self, *, tier: str | None, generation: GenerationId | None, timeout: float | None) -> WaitReport:
        """Wait until a generation (the newest sealed one) is committed on the tiers; see replicate.waiting."""
        return wait_for(self.config, self.config.select(tier), generation, timeout=timeout, clock=self.clock)

    def check(self, *, probe: bool = False) -> CheckReport:
        """Try the store and every tier; failures are in the report.

        With ``probe`` each store is tried for real under a scratch prefix, and what it does
        is remembered and used from then on.
        """
        from replicate.probing import check_remembered, probe_and_remember  # noqa: PLC0415 - as for `copy`

        probes: list[ProbeReport] = []
        findings: list[Finding] = check_store(self.config)
        run_uid = None
        with suppress(CkptierError):  # check_store has reported it
            run_uid = self._run_uid()
        for settings in self.config.tier:
            findings += [*check_apart(settings, self.config.local.root), *check_transport(settings)]
            try:
                if probe:
                    report, found = probe_and_remember(
                        self.config, settings, self._plain_opener, self.clock, self._stop
                    )
                    probes.append(report)
                    findings += found
                findings += check_remembered(self.config, settings, self.clock.now())
                with self._tiers([settings]) as (tier,):
                    findings += check_tier(tier, self._remote, run_uid)
            except CkptierError as error:
                findings.append(failed(settings.name, "opens", error))
        return CheckReport(run=self.config.run, findings=tuple(findings), probes=tuple(probes))

    def safe_to_terminate(self, names: Sequence[str]) -> Safety:
        """Ask the tiers whether the newest sealed generation is committed on each of ``names``.

        Without names every tier counts that gets all generations (all, where each gets
        milestones only).  What is staged and not sealed yet is at risk by itself.  Raises
        NothingFound where there is no store at all: a wrong path must not read as safe.
        """
        try:
            self.config.local.root.stat()
        except FileNotFoundError:
            where = self.config.local.root
            raise NothingFound(
                f"there is no store at {where}",
                hint="check `store` and `run` in ckptier.toml; on a new machine, `ckptier restore` makes one",
            ) from None
        self._refuse_emptied()
        named = [self.config.select(name)[0] for name in names]
        everything = [tier for tier in self.config.tier if tier.replicate_every is None] or list(self.config.tier)
        tiers = named or everything
        inputs = self._inputs(tiers)
        status = assemble(self.config.run, self._run_uid(), local_entries(self.config.local), inputs)
        safety = assess_termination(status, [tier.name for tier in tiers])
        staged = sorted(self.config.local.root.glob(f"{STAGED}*"))
        risks = tuple(
            Risk(tier="", generation=None, updates=0, reason=f"{path.name} is staged and not sealed yet")
            for path in staged
        )
        overtaken = _overtaken(safety, inputs)
        safe = safety.safe and not risks and not overtaken
        return replace(safety, safe=safe, risks=(*safety.risks, *overtaken, *risks))

    def _refuse_emptied(self) -> None:
        """Raise NothingFound for a store that has a history and holds nothing of it: that is no fresh start."""
        lineage = read_lineage(self.config.local)
        held = any(self.config.local.root.glob("generations/a*")) or any(self.config.local.root.glob(f"{STAGED}*"))
        if lineage is not None and lineage.highest_sequence and not held:
            raise NothingFound(
                f"{self.config.local.lineage} knows of {lineage.highest_sequence} generations, and none is here",
                hint="somebody removed them, or every save failed: `ckptier restore` brings back what the tiers have",
            )

    def _session(self, events: Events | None, *, prune: bool) -> Session:
        stop = threading.Event()  # closing sets it, and the next session must not begin stopped
        return Session(self.config, clock=self.clock, stop=stop, opener=self._opener, events=events, prune=prune)

    @contextmanager
    def _tiers(self, configured: Sequence[TierConfig]) -> Iterator[tuple[Tier, ...]]:
        """Open tiers for reading; a failure of a tier leaves the block as an error with an exit code."""
        tiers = tuple(
            open_configured(settings, self._opener, self.clock, Meter(), self._stop) for settings in configured
        )
        try:
            yield tiers
        except TierError as error:
            raise from_tier_error(error) from error
        finally:
            for tier in tiers:
                tier.close()

    def _inputs(self, configured: Sequence[TierConfig]) -> list[TierInput]:
        progress = self._progress(last_view(self.config.local))
        with self._tiers(configured) as tiers:
            answers = ask(tiers, self._remote)
        return [
            TierInput(
                tier=one.tier,
                view=one.view,
                failure=one.rollback or one.failure,
                progress=progress.get(one.tier),
                found=self._levels(one.tier, one.view),
            )
            for one in answers
        ]

    def _levels(self, tier: str, view: LogView | None) -> dict[GenerationId, Level]:
        return proof_levels(self.config.local, tier, view.live if view else ())

    def _progress(self, view: StatusFile | None) -> dict[str, Progress]:
        """Return what the view says of tiers that are still where they were: a new url is another place."""
        urls = {tier.name: tier.url for tier in self.config.tier}
        if view is not None:
            same = tuple(one for one in view.tiers if urls.get(one.name) == one.url)
            view = view.model_copy(update={"tiers": same})
        return progress_from(view)

    def _run_uid(self) -> str | None:
        lineage = read_lineage(self.config.local) if self.config.local.root.is_dir() else None
        return lineage.run_uid if lineage else None


def _overtaken(safety: Safety, inputs: Sequence[TierInput]) -> tuple[Risk, ...]:
    """Return tiers whose log went further than the newest here without ever having it: another line writes there."""
    newest = safety.newest
    told = {risk.tier for risk in safety.risks}
    return tuple(
        Risk(
            tier=one.tier,
            generation=newest,
            updates=0,
            reason=f"its log went on elsewhere, without {newest}",
            hint=f"`ckptier restore` goes on from the newest there, `ckptier restore --generation {newest}` from here",
        )
        for one in inputs
        if newest and one.tier not in told and one.view and one.view.state and one.view.state.find(newest) is None
    )
