"""What to keep in the store, and what may go there once tiers have it: decisions over values.

A local generation is what its replicas are made from, so that it goes only when each tier
that is to have it has it, as well proved as ``local_requires`` demands.  Apart from that
policy, what at least one tier has may go where the disk would not hold the next save.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from replicate.generation.evidence import Level
from replicate.layout import GenerationId
from replicate.plan import Choice, LocalFact
from replicate.retention import Member, Policy, Reason, RetentionPlan, Rule, Verdict, apply_policy

NOT_DUE = frozenset({Choice.NOT_A_MILESTONE, Choice.NOT_KEPT, Choice.SUPERSEDED})
"""Choices after which a tier will not get a generation, so that it need not have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What one tier has of the store, as far as is known.

    ``held``: committed generations with how well each copy is proved.  ``choices``: what the
    plan of the tier says of the store's generations.
    """

    tier: str
    held: Mapping[GenerationId, Level]
    choices: Mapping[GenerationId, Choice] = field(default_factory=dict)
    under_way: frozenset[GenerationId] = frozenset()
    pins: frozenset[str] = frozenset()

    def has(self, generation: GenerationId, requires: Level) -> bool:
        """Whether it has a copy that is proved well enough."""
        level = self.held.get(generation)
        return level is not None and level.reaches(requires)

    def done_with(self, generation: GenerationId, requires: Level) -> bool:
        """Whether it has it, or will never get it and has a newer one."""
        if self.has(generation, requires):
            return True
        newer = any(one > generation and level.reaches(requires) for one, level in self.held.items())
        return newer and self.choices.get(generation) in NOT_DUE


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFacts:
    """The store: its generations, what training would continue from, and where its attempts began."""

    generations: Sequence[LocalFact]
    latest: GenerationId | None
    resumed_from: GenerationId | None
    starts: Mapping[int, GenerationId] = field(default_factory=dict)
    being_read: frozenset[GenerationId] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalPlan:
    """What stays and goes by policy, and what may go where the disk is needed, first what should go first."""

    plan: RetentionPlan
    released: tuple[tuple[GenerationId, str], ...] = ()


def plan_local(facts: LocalFacts, policy: Policy, holdings: Sequence[Holding], requires: Level) -> LocalPlan:
    """Decide for every local generation; one that is quarantined or not validated stays and counts for nothing."""
    usable = [fact for fact in facts.generations if fact.validated and not fact.quarantined]
    fixed = {fact.id: _fixed(fact.id, facts, holdings) for fact in usable}
    holds = {one: [*why, *_waits_for(one, holdings, requires)] for one, why in fixed.items()}
    plan = apply_policy(
        [Member(id=fact.id, parent=fact.parent) for fact in usable],
        Policy(keep_last=policy.keep_last, keep_every=policy.keep_every, share=Fraction(1)),
        starts=facts.starts,
        holds=holds,
    )
    others = [_unusable(fact) for fact in facts.generations if fact.quarantined or not fact.validated]
    verdicts = sorted((*plan.verdicts, *others), key=lambda one: one.id, reverse=True)
    free = {one: where for one, why in fixed.items() if not why and (where := _where(one, holdings, requires))}
    newest = max((fact.id for fact in usable), default=None)
    order = sorted(free, key=lambda one: (one not in {verdict.id for verdict in plan.removed}, one))
    return LocalPlan(
        plan=RetentionPlan(verdicts=tuple(verdicts), allowed=len(verdicts)),
        released=tuple((one, free[one]) for one in order if one != newest),
    )


def _fixed(generation: GenerationId, facts: LocalFacts, holdings: Sequence[Holding]) -> list[Reason]:
    """Return what keeps a generation whatever the policy and the disk say."""
    reasons = []
    if generation == facts.latest:
        reasons.append(Reason(rule=Rule.NEWEST, text="what training would continue from"))
    if generation == facts.resumed_from:
        reasons.append(Reason(rule=Rule.RESUMED_FROM, text="what this attempt started from"))
    if generation in facts.being_read:
        reasons.append(Reason(rule=Rule.BEING_RESTORED, text="it is being restored on this machine"))
    for one in holdings:
        if str(generation) in one.pins:
            reasons.append(Reason(rule=Rule.PINNED, text=f"pinned on {one.tier}"))
        if generation in one.under_way:
            reasons.append(Reason(rule=Rule.UNDER_WAY, text=f"on its way to {one.tier}"))
    return reasons


def _waits_for(generation: GenerationId, holdings: Sequence[Holding], requires: Level) -> list[Reason]:
    """Return for each tier that has to have it first why it stays."""
    reasons = []
    for one in holdings:
        if one.done_with(generation, requires):
            continue
        level = one.held.get(generation)
        words = f"{one.tier} does not have it" if level is None else f"{one.tier} has it {level}, not {requires}"
        if level is Level.QUARANTINED:
            words = f"the copy on {one.tier} was found hurt"
        reasons.append(Reason(rule=Rule.NOT_HELD, text=words))
    if not holdings:
        reasons.append(Reason(rule=Rule.NOT_HELD, text="no tier is configured that could have it"))
    return reasons


def _where(generation: GenerationId, holdings: Sequence[Holding], requires: Level) -> str:
    """Say which tiers have it; empty where none does."""
    places = [f"{one.tier} ({one.held[generation]})" for one in holdings if one.has(generation, requires)]
    return f"it is on {', '.join(places)}" if places else ""


def _unusable(fact: LocalFact) -> Verdict:
    if fact.quarantined:
        reason = Reason(rule=Rule.QUARANTINED, text="quarantined: kept as evidence, see `ckptier show`")
    else:
        reason = Reason(rule=Rule.NOT_VALIDATED, text="not validated yet")
    return Verdict(id=fact.id, keep=True, reasons=(reason,))
