"""Replacing copies that are hurt by good ones, and giving up those of which there is none.

The good copy goes up under a new prefix and is verified there before the hurt one is taken back:
at no moment is less intact than before.
"""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from replicate.commit import Committed, HurtCopy, Replication, Source
from replicate.generation.proofs import forget_proof
from replicate.layout import GenerationId, LocalRun
from replicate.log import Body, Retire
from replicate.mending.steps import HurtFact, Kind, Step
from replicate.origins import SourceDamage
from replicate.session import Session
from replicate.terms import Descent

_log = logging.getLogger(__name__)
MAX_WORDS = 500
"""Characters of a finding that go into the log."""

OpenSource = Callable[[str, GenerationId], Source | None]
"""Opens the good copy of a generation at a place by name; None where it is not there after all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Healer:
    """Heals the copies on one tier, whose log is sound and was read."""

    session: Session
    replication: Replication
    descent: Descent
    local: LocalRun
    open_source: OpenSource

    def replace(self, hurt: HurtFact) -> Step:
        """Commit a good copy in place of a hurt one; says so where none of them is good after all.

        Raises Fenced, TrustFailure, TierError, LocalDisk, Draining.
        """
        faults = []
        for place in hurt.places:
            source = self.open_source(place, hurt.generation)
            if source is None:
                continue
            try:
                done = self._replace(hurt, source)
            except SourceDamage as error:
                _log.warning("%s of %s is no good copy: %s", hurt.generation, place, error.message)
                faults.append(error.message)
                continue
            self._forget(hurt.generation)
            return Step(kind=Kind.REPLACE, generation=hurt.generation, slot=done.slot, place=place, reason=hurt.reason)
        words = "; ".join(faults) or "no good copy is known any more"
        return Step(kind=Kind.LEAVE, generation=hurt.generation, reason=f"{words}: {hurt.reason}")

    def _replace(self, hurt: HurtFact, source: Source) -> Committed:
        reason = f"damaged on this tier: {hurt.reason[:MAX_WORDS]}"
        copy = HurtCopy(manifest_key=hurt.manifest_key, reason=reason)

        def work() -> Committed:
            for file in source.record.files:
                source.origin.check(file, force=True)
            return self.replication.replace(self.descent, source, copy)

        # In a thread, so that an interrupt can stop what is under way.
        with ThreadPoolExecutor(1, thread_name_prefix="ckptier-repair") as pool:
            try:
                return pool.submit(work).result()
            except KeyboardInterrupt:
                self.session.stop.set()
                raise

    def retire(self, hurts: Sequence[HurtFact]) -> tuple[Step, ...]:
        """Take back hurt copies of which there is no good one."""
        if hurts:
            self.replication.log.ensure_term(self.descent)
        done = tuple(step for one in hurts if (step := self._retire(one)) is not None)
        if done:
            self.replication.log.reconcile()
        return done

    def _retire(self, hurt: HurtFact) -> Step | None:
        log = self.replication.log

        def decide() -> tuple[int, Body] | None:
            live = log.state.find(hurt.generation) if log.state else None
            if live is None or live.manifest_key != hurt.manifest_key:
                return None
            reason = f"damaged on this tier, and no good copy is known: {hurt.reason[:MAX_WORDS]}"
            body = Retire(generation=live.generation, manifest_key=live.manifest_key, reason=reason, damaged=True)
            return log.held_term(self.descent), body

        entry = log.append_decided(self.descent, decide)
        if entry is None:
            return None
        self._forget(hurt.generation)
        return Step(kind=Kind.RETIRE, generation=hurt.generation, slot=entry.slot, reason=hurt.reason)

    def _forget(self, generation: GenerationId) -> None:
        """Forget that the copy was hurt: it is no longer the one that is meant."""
        forget_proof(self.local, generation, self.session_tier)

    @property
    def session_tier(self) -> str:
        """Name of the tier."""
        return self.replication.log.name
