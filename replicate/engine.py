"""Wiring: one method a verb, each a short path from configuration to a report.

Both faces, the command line and a program that imports this, go through here, so no
logic exists that only one of them has.
"""

import logging
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from replicate.checking import CheckReport, Finding, check_apart, check_store, check_tier, check_transport, failed
from replicate.commit import Events
from replicate.config import TierConfig
from replicate.daemon import Daemon, Signals, beside_training
from replicate.errors import (
    CkptierError,
    ConfigInvalid,
    ExitCode,
    IntegrityFailure,
    NothingFound,
    from_tier_error,
)
from replicate.generation.local import LocalGeneration, scan_generations
from replicate.generation.store import RunStore
from replicate.layout import GenerationId
from replicate.log import LogView
from replicate.looking import Looking
from replicate.opening import default_opener, near_of, volumes_of
from replicate.outcomes import ReplicateReport
from replicate.preview import Price as UploadPrice
from replicate.preview import TierPreview, preview_tier
from replicate.priced import Priced
from replicate.requests import Sending
from replicate.restore import RestoreOptions, RestoreReport, RestoreRequest, restore, workers_for
from replicate.scrubbing import Scrubbed, ScrubRequest, scrub
from replicate.session import Session
from replicate.verify import Share, VerifyReport
from tiers.cpu_share import CpuShare
from tiers.errors import TierError

if TYPE_CHECKING:
    from replicate.copyplan import CopyReport, CopyRequest
    from tiers.probing.outcomes import ProbeReport

_log = logging.getLogger(__name__)


class Replicator(Looking):
    """The verbs over one configuration."""

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
        """Replicate beside training until a signal; returns what the process should exit with.

        Lowers the priority of the calling thread for good, and so of all that it starts.
        """
        signals, stop = Signals(), threading.Event()
        share = beside_training(self.config, self.clock, stop)
        with self._session(events, prune=prune, stop=stop, share=share) as session, signals.installed():
            return Daemon(session, signals, self.clock, share).run()

    def preview(self) -> tuple[TierPreview, ...]:
        """Say what ``replicate`` would do now, from the tiers' logs, changing nothing anywhere.

        A tier that does not answer is told as such and hides none of the others.
        """
        local = scan_generations(self.config.local)
        return tuple(self._preview(settings, local) for settings in self.config.tier)

    def _preview(self, settings: TierConfig, local: tuple[LocalGeneration, ...]) -> TierPreview:
        from replicate.keeper import unwanted_by  # noqa: PLC0415 - as for `copy`
        from replicate.storekeeping import hurt_copies  # noqa: PLC0415

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
                    lambda state: hurt_copies(self.config.local, settings.name, state.live),
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
        """Restore the newest provable generation, or the one named; see replicate.restore.  Volumes are read first."""
        request = replace(request, near=request.near | near_of(self.config.tier))
        if options is None:
            workers = workers_for([tier.connections for tier in self.config.tier], spread=request.spread)
            options = RestoreOptions(workers=workers, volumes=volumes_of(self.config.tier))
        if request.to is None and request.generation is None and not dry_run:
            self._seal_staged()
        with self._tiers(self.config.tier) as tiers:
            if dry_run and any(settings.rates for settings in self.config.tier):
                from replicate.costing.restoring import restore_price  # noqa: PLC0415 - only where money is shown

                price = restore_price(self.config, request, tiers, self.clock.now())
                options = replace(options, price=price)
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
                        self.config, settings, self._given_opener or default_opener, self.clock, self._stop
                    )
                    probes.append(report)
                    findings += found
                findings += check_remembered(self.config, settings, self.clock.now())
                with self._tiers([settings]) as (tier,):
                    findings += check_tier(tier, self._remote, run_uid)
            except CkptierError as error:
                findings.append(failed(settings.name, "opens", error))
        return CheckReport(run=self.config.run, findings=tuple(findings), probes=tuple(probes))

    def _session(
        self,
        events: Events | None,
        *,
        prune: bool,
        stop: threading.Event | None = None,
        share: CpuShare | None = None,
    ) -> Session:
        return Session(
            self.config,
            clock=self.clock,
            stop=stop or threading.Event(),  # closing sets it, and the next session must not begin stopped
            opener=self._opener,
            events=events,
            prune=prune,
            leave=share.take if share is not None else None,
        )
