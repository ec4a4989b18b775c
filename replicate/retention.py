"""What to keep of the generations that one place holds, and why: a decision over values.

Only committed generations take part, ordered by (attempt, sequence); no clock, file time
or update number makes one newer than another.  ``keep_last`` counts along the line of
descent of the newest, so that generations which a rollback left behind push out none
that training stands on.  What the rollback left is kept, thinned out, until the new line
has got as far: until then it may be the most that the run has.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from replicate.layout import GenerationId


class Rule(StrEnum):
    """What keeps a generation, or lets it go."""

    NEWEST = "newest"
    LAST = "keep-last"
    MILESTONE = "keep-every"
    MINIMUM = "min-generations"
    EVERYTHING = "no-limit"
    LEFT_TIP = "left-behind"
    PINNED = "pinned"
    RESUMED_FROM = "resumed-from"
    BEING_RESTORED = "being-restored"
    UNDER_WAY = "under-way"
    NOT_HELD = "not-on-a-tier"
    NOT_VALIDATED = "not-validated"
    QUARANTINED = "quarantined"
    FORKED = "forked"
    HURT = "hurt"
    SUPERSEDED = "older"
    OVERTAKEN = "overtaken"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One rule that applies to a generation, in words."""

    rule: Rule
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What the user wants kept at one place.

    ``keep_last`` counts generations, None keeps all.  ``keep_every`` counts updates: the
    first generation at or after each multiple of it stays as well.  ``min_generations``
    are kept whatever else is said.  At most ``share`` of what is there, and one more, may
    go at a time: a setting with a typing error must not empty a tier.
    """

    keep_last: int | None = None
    keep_every: int | None = None
    min_generations: int = 1
    share: Fraction = Fraction(1, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A generation that counts at a place."""

    id: GenerationId
    parent: GenerationId | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether one generation stays, and every reason for that."""

    id: GenerationId
    keep: bool
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPlan:
    """All verdicts of a place, newest first.  ``allowed``: how many may go at a time."""

    verdicts: tuple[Verdict, ...] = ()
    allowed: int = 0

    @property
    def removed(self) -> tuple[Verdict, ...]:
        """What goes, oldest first: a process that dies in between has kept the newer ones."""
        return tuple(sorted((one for one in self.verdicts if not one.keep), key=lambda one: one.id))

    @property
    def kept(self) -> tuple[Verdict, ...]:
        """What stays, newest first."""
        return tuple(one for one in self.verdicts if one.keep)

    @property
    def too_many(self) -> str | None:
        """Why nothing of this may be done without being asked for by name; None where it may."""
        count = len(self.removed)
        if count <= self.allowed:
            return None
        return f"{count} of {len(self.verdicts)} generations would go, at most {self.allowed} may at a time"


def apply_policy(
    members: Sequence[Member],
    policy: Policy,
    *,
    starts: Mapping[int, GenerationId] | None = None,
    holds: Mapping[GenerationId, Sequence[Reason]] | None = None,
) -> RetentionPlan:
    """Decide for every member.

    ``starts`` says which generation an attempt went on from, where that is known; ``holds``
    what keeps a generation for a reason that lies outside the policy, such as a pin.
    """
    if not members:
        return RetentionPlan()
    lines = _Lines(members, starts or {}, policy.keep_every)
    newest = max(member.id for member in members)
    reasons: dict[GenerationId, list[Reason]] = {member.id: [] for member in members}
    reasons[newest].append(Reason(rule=Rule.NEWEST, text="the newest here"))
    for generation, more in (holds or {}).items():
        if generation in reasons:
            reasons[generation] += more
    gone = _policy_reasons(reasons, lines, policy)
    return RetentionPlan(
        verdicts=tuple(
            Verdict(id=one, keep=bool(why), reasons=tuple(why) or (gone[one],))
            for one, why in sorted(reasons.items(), reverse=True)
        ),
        allowed=int(len(members) * policy.share) + 1,
    )


def _policy_reasons(
    reasons: dict[GenerationId, list[Reason]], lines: "_Lines", policy: Policy
) -> dict[GenerationId, Reason]:
    """Add what the policy keeps to ``reasons``; returns for each generation why it would go if nothing keeps it."""
    if policy.keep_last is None:
        for why in reasons.values():
            why.append(Reason(rule=Rule.EVERYTHING, text="keep_last is not set: everything is kept"))
        return {}
    for one in sorted(reasons, reverse=True)[1 : policy.min_generations]:
        reasons[one].append(Reason(rule=Rule.MINIMUM, text=f"the newest {policy.min_generations} always stay"))
    branches = lines.branches()
    present = next(branches)
    line = present.ids
    for one in line[: policy.keep_last]:
        reasons[one].append(Reason(rule=Rule.LAST, text=f"one of the newest {policy.keep_last} of its line"))
    _add_milestones(reasons, present)
    words = f"older than the newest {policy.keep_last} of its line"
    gone = dict.fromkeys(line, Reason(rule=Rule.SUPERSEDED, text=words + _no_milestone(policy)))
    oldest_first = line[::-1]
    for branch in branches:
        since = len(line) - bisect_right(oldest_first, branch.ids[0])
        gone |= _left_behind(reasons, branch, line[0], since, policy)
    return gone


def _no_milestone(policy: Policy) -> str:
    return f", and no milestone of {policy.keep_every}" if policy.keep_every else ""


def _left_behind(
    reasons: dict[GenerationId, list[Reason]], branch: "_Branch", newest: GenerationId, since: int, policy: Policy
) -> dict[GenerationId, Reason]:
    """Keep the tip and the milestones of a branch that was left, until the present line has got as far.

    ``newest`` is where that line ends, and ``since`` how many of it are newer than the branch.
    """
    tip = branch.ids[0]
    if newest.next_update >= tip.next_update and since >= (policy.keep_last or 1):
        words = f"left behind at a rollback, and attempt {newest.attempt} has got as far"
        return dict.fromkeys(branch.ids, Reason(rule=Rule.OVERTAKEN, text=words))
    words = f"the newest that a rollback left behind; attempt {newest.attempt} has not got as far"
    reasons[tip].append(Reason(rule=Rule.LEFT_TIP, text=words))
    _add_milestones(reasons, branch)
    gone = Reason(rule=Rule.SUPERSEDED, text="left behind at a rollback, and not the newest there")
    return dict.fromkeys(branch.ids, gone)


def _add_milestones(reasons: dict[GenerationId, list[Reason]], branch: "_Branch") -> None:
    for one, multiple in branch.milestones:
        reasons[one].append(Reason(rule=Rule.MILESTONE, text=f"the first at or after update {multiple}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Branch:
    """Members that descend from one another, newest first, and those that are milestones, with the multiple."""

    ids: Sequence[GenerationId]
    milestones: Sequence[tuple[GenerationId, int]]


class _Lines:
    """Lines of descent among the members.

    An attempt is one line.  What it went on from is known from outside, or from the parent
    of its first generation that is here; else it is taken to be the newest one before it,
    which is where an attempt starts unless somebody rolled back.  A run that was interrupted
    a thousand times has as many of them: no member is walked over twice.
    """

    def __init__(self, members: Sequence[Member], starts: Mapping[int, GenerationId], every: int | None) -> None:
        self._starts = starts
        self._every = every
        self._ids = sorted(member.id for member in members)
        self._parents = {member.id: member.parent for member in members}
        self._reached: dict[GenerationId, int] = {}

    def branches(self) -> Iterator[_Branch]:
        """Yield the line of the newest member, and then what rollbacks left: together every member, and each once."""
        for tip in reversed(self._ids):
            if tip not in self._reached:
                yield self._branch(tip)

    def _branch(self, tip: GenerationId) -> _Branch:
        """Follow a line down to the first member that another branch had."""
        ids: list[GenerationId] = []
        joined = 0
        for one in self._line(tip):
            if one in self._reached:
                joined = self._reached[one]
                break
            ids.append(one)
        return _Branch(ids=ids, milestones=list(self._milestones(ids, joined)))

    def _milestones(self, ids: Sequence[GenerationId], reached: int) -> Iterator[tuple[GenerationId, int]]:
        """Yield the first of a line (newest first) at or after each multiple, above what was ``reached`` before it."""
        for one in reversed(ids):
            count = one.next_update // self._every if self._every else 0
            if count > reached:
                reached = count
                yield one, count * (self._every or 0)
            self._reached[one] = reached

    def _line(self, tip: GenerationId) -> Iterator[GenerationId]:
        """Yield the members that ``tip`` descends from, itself first, newest first."""
        start: GenerationId | None = tip
        while start is not None:
            first = bisect_left(self._ids, start.attempt, key=_attempt)
            last = bisect_right(self._ids, start)
            yield from (self._ids[index] for index in range(last - 1, first - 1, -1))
            start = self._start(start.attempt, first, own=last > first)

    def _start(self, attempt: int, first: int, *, own: bool) -> GenerationId | None:
        """Return what an attempt went on from; its first member is the one at ``first``, where it has any."""
        known = self._starts.get(attempt) or (self._parents[self._ids[first]] if own else None)
        if known is not None and known.attempt < attempt:
            return known
        return self._ids[first - 1] if first else None


def _attempt(generation: GenerationId) -> int:
    return generation.attempt
