"""What there is: the verbs that only look, so that they load little and answer at once.

``status`` is what a person or a script asks most often; what replicates and restores is in replicate.engine.
"""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from replicate.config import Config, TierConfig
from replicate.errors import NothingFound, from_tier_error
from replicate.explaining import Explanation, explain, nowhere
from replicate.generation.evidence import Level
from replicate.generation.lineage import read_lineage
from replicate.generation.local import scan_generations
from replicate.generation.proofs import found_hurt, proof_levels
from replicate.generation.staging import STAGED
from replicate.layout import GenerationId
from replicate.liveness import is_replicating, last_view
from replicate.localentries import local_entries
from replicate.log import LogView
from replicate.manifest import GenerationRecord
from replicate.priced import Priced
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
from tiers.clock import Clock, SystemClock
from tiers.errors import TierError
from tiers.metered import Meter
from tiers.protocol import Tier

if TYPE_CHECKING:
    from replicate.opening import Opener
    from replicate.restore import TierAnswer
    from replicate.waiting import WaitReport


class Looking:
    """The looking verbs over one configuration.  What asks tiers is loaded by the verbs that do."""

    def __init__(self, config: Config, *, clock: Clock | None = None, opener: "Opener | None" = None) -> None:
        self.config = config
        self.clock = clock or SystemClock()
        self._given_opener = opener
        self._remote = config.remote
        self._stop = threading.Event()

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
        from replicate.exposure import exposed  # noqa: PLC0415 - `status` is fast without
        from replicate.rehearsing.telling import with_evidence  # noqa: PLC0415 - as above

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
        from replicate.verify import read_manifest  # noqa: PLC0415 - `status` is fast without

        with self._tiers(self.config.tier) as tiers:
            for tier, answer in zip(tiers, self._ask(tiers), strict=True):
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

    def wait(self, *, tier: str | None, generation: GenerationId | None, timeout: float | None) -> "WaitReport":
        """Wait until a generation (the newest sealed one) is committed on the tiers; see replicate.waiting."""
        from replicate.waiting import wait_for  # noqa: PLC0415 - `status` is fast without

        return wait_for(self.config, self.config.select(tier), generation, timeout=timeout, clock=self.clock)

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

    @property
    def _opener(self) -> "Opener":
        """What opens a tier, with what an earlier probe of it found."""
        from replicate.opening import default_opener, probed_opener  # noqa: PLC0415 - `status` is fast without

        return probed_opener(self.config, self._given_opener or default_opener)

    def _ask(self, tiers: Sequence[Tier]) -> "Sequence[TierAnswer]":
        from replicate.restore.holdings import ask  # noqa: PLC0415 - `status` is fast without

        return ask(tiers, self._remote)

    @contextmanager
    def _tiers(self, configured: Sequence[TierConfig]) -> Iterator[tuple[Tier, ...]]:
        """Open tiers for reading; a failure of a tier leaves the block as an error with an exit code."""
        from replicate.opening import open_configured  # noqa: PLC0415 - `status` is fast without

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
            answers = self._ask(tiers)
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
