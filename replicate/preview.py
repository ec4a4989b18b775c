"""``replicate --dry-run``: the decisions and the plan that a run would follow, and nothing done."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from replicate.config import TierConfig
from replicate.errors import CkptierError
from replicate.generation.evidence import Level
from replicate.generation.local import LocalGeneration
from replicate.layout import GenerationId, RemoteRun
from replicate.log import LogState, LogView
from replicate.logbook import Logbook
from replicate.plan import Choice, Decision, LocalFact, plan_generations, plan_upload
from replicate.priced import Priced
from replicate.requests import NONCE, Sending
from replicate.reuse import reusing
from replicate.stock import StockTaker
from tiers.protocol import Tier

Price = Callable[[Sequence[Sending], LogView], Priced | None]
"""What the generations that go up cost, given where the log stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedGeneration:
    """One decision; sizes and requests are 0 unless it goes up.

    ``hashed_again`` counts bytes: where parts are no leaves, each byte goes into its part's
    digest and once more into its leaf's, which has to be as sealed.  ``copied_bytes`` stand on the tier
    already, in the generation ``copied_from``.
    """

    decision: Decision
    total_bytes: int = 0
    objects: int = 0
    requests: int = 0
    hashed_again: int = 0
    copied_bytes: int = 0
    copied_from: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TierPreview:
    """What would happen on one tier, or why it cannot be told; ``money`` where a rate card is configured."""

    tier: str
    generations: tuple[PlannedGeneration, ...] = ()
    money: Priced | None = None
    failure: CkptierError | None = None


def local_fact(generation: LocalGeneration) -> LocalFact:
    """Return what deciding needs to know of a local generation."""
    quarantined = generation.level is Level.QUARANTINED
    parent = None if quarantined else generation.record.parent
    attempt_id = "" if quarantined else generation.record.attempt_id
    return LocalFact(
        id=generation.id,
        parent=GenerationId.parse(parent) if parent else None,
        validated=generation.level.reaches(Level.VALIDATED),
        quarantined=quarantined,
        attempt_id=attempt_id,
    )


def preview_tier(
    settings: TierConfig,
    tier: Tier,
    remote: RemoteRun,
    local: Sequence[LocalGeneration],
    backlog: int | None,
    price: Price = lambda _sending, _view: None,
    unwanted: Callable[[LogState | None, Sequence[LocalFact]], Mapping[GenerationId, str]] = lambda _state, _facts: {},
    hurt: Callable[[LogState], Collection[GenerationId]] = lambda _state: (),
) -> TierPreview:
    """Decide for every local generation against the tier's log as it stands; raises TierError."""
    view: LogView = Logbook(tier, remote).read()
    decisions = plan_generations(
        [local_fact(one) for one in local],
        view.state,
        replicate_every=settings.replicate_every,
        backlog=backlog,
        unwanted=lambda facts: unwanted(view.state, facts),
    )
    by_id = {one.id: one for one in local}
    term = view.state.term if view.state else 1
    previewing = _Previewing(
        settings, tier, remote, view, StockTaker(tier=tier, remote=remote, enabled=settings.reuse, hurt=hurt), term
    )
    sending = {
        decision.id: previewing.sending(by_id[decision.id])
        for decision in decisions
        if decision.choice is Choice.UPLOAD
    }
    return TierPreview(
        tier=settings.name,
        generations=tuple(_planned(decision, sending.get(decision.id)) for decision in decisions),
        money=price(tuple(one for one, _ in sending.values()), view),
    )


@dataclass(frozen=True, slots=True)
class _Previewing:
    """What every generation of one tier is planned with."""

    settings: TierConfig
    tier: Tier
    remote: RemoteRun
    view: LogView
    stock: StockTaker
    term: int

    def sending(self, generation: LocalGeneration) -> tuple[Sending, str]:
        """Return what would be sent, and the generation that some of it would be copied from.

        Those that go up before it in the same run are not there yet to be compared with.
        """
        record, can = generation.record, self.tier.capabilities
        prefix = self.remote.prefix(generation.id, self.term, NONCE)
        plan = plan_upload(record, prefix, can, part_size=self.settings.part_size)
        before = self.stock.reads
        stock = self.stock.take(self.view.state, record)
        plan = reusing(plan, stock, can)
        return Sending(plan=plan, record=record, manifest_read=self.stock.reads - before), stock.generation


def _planned(decision: Decision, found: tuple[Sending, str] | None) -> PlannedGeneration:
    if found is None:
        return PlannedGeneration(decision=decision)
    plan, source = found[0].plan, found[1]
    return PlannedGeneration(
        decision=decision,
        total_bytes=plan.total_bytes,
        objects=len(plan.objects),
        requests=plan.requests,
        hashed_again=sum(2 * item.file.size for item in plan.objects if item.second_hash),
        copied_bytes=plan.copied_bytes,
        copied_from=source if plan.copied_bytes else "",
    )
