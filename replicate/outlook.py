"""What still works, and what to do about what does not: decided over what was found at each place."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from replicate.errors import CkptierError, NothingFound
from replicate.layout import GenerationId
from replicate.restore.plan import Candidate, Held, RestoreRequest, TierAnswer, plan_restore
from replicate.verify import Finding, GenerationVerdict, Hurt, VerifyReport

LOCAL = "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was found at a place; ``answer`` is what a restore would be told by it, None for the store."""

    report: VerifyReport
    answer: TierAnswer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """The reports, completed; what a restore would give from all places, or why it would refuse."""

    reports: tuple[VerifyReport, ...]
    works: GenerationId | None
    refused: CkptierError | None


def look_ahead(seen: Sequence[Seen], held: Held, *, everywhere: bool) -> Outlook:
    """Say of each place, and of all, what a restore would give, and what to do next."""
    answers = [one.answer for one in seen if one.answer is not None]
    found = {one.report.tier: {each.generation: each for each in one.report.generations} for one in seen}
    works, refused = _restored(RestoreRequest(accept_older=True), answers, held, found) if everywhere else (None, None)
    reports = []
    for one in seen:
        report = one.report
        if report.failure is None:
            here = report.newest_intact if one.answer is None else _alone(one.answer, answers, held, found)
            report = replace(report, works=here, next_step=_next_step(report, found, works or here))
        reports.append(report)
    return Outlook(reports=tuple(reports), works=works, refused=refused)


Found = Mapping[str, Mapping[GenerationId, GenerationVerdict]]
"""Verdicts by place and generation."""


def _alone(answer: TierAnswer, answers: Sequence[TierAnswer], held: Held, found: Found) -> GenerationId | None:
    return _restored(RestoreRequest(tier=answer.tier, accept_older=True), answers, held, found)[0]


def _restored(
    request: RestoreRequest, answers: Sequence[TierAnswer], held: Held, found: Found
) -> tuple[GenerationId | None, CkptierError | None]:
    """Return what a restore would give, as far as was looked, or why it would refuse."""
    try:
        plan = plan_restore(request, answers, held)
    except NothingFound:
        return None, None
    except CkptierError as error:
        return None, error
    return next((one.generation for one in plan.candidates if provable(one, found)), None), None


def provable(candidate: Candidate, found: Found) -> bool:
    """Tell whether the places of a candidate have all of it between them.  What did not answer proves nothing."""
    places = [*(replica.tier for replica in candidate.replicas), *([LOCAL] if candidate.local else [])]
    known = [verdict for place in places if (verdict := found.get(place, {}).get(candidate.generation)) is not None]
    usable = [one for one in known if one.verdict is not Finding.UNKNOWN and _described(one)]
    return bool(usable) and all(_made_up_for(hurt, one, usable) for one in usable for hurt in one.hurts if hurt.lost)


def _described(verdict: GenerationVerdict) -> bool:
    """Tell whether the document that describes the generation is as it should be: without it nothing there counts."""
    return all(hurt.path is not None for hurt in verdict.hurts)


def _made_up_for(hurt: Hurt, here: GenerationVerdict, usable: Iterable[GenerationVerdict]) -> bool:
    """Tell whether other places have each leaf that is hurt here."""
    others = [[each for each in one.hurts if each.path == hurt.path] for one in usable if one is not here]
    if hurt.leaves is None:
        return any(not hurts for hurts in others)
    first, last = hurt.leaves
    return all(any(not _spoilt(number, hurts) for hurts in others) for number in range(first, last + 1))


def _spoilt(number: int, hurts: Iterable[Hurt]) -> bool:
    return any(one.leaves is None or one.leaves[0] <= number <= one.leaves[1] for one in hurts)


def _next_step(report: VerifyReport, found: Found, works: GenerationId | None) -> str | None:
    """Return the one thing to do about what is hurt at a place."""
    hurt = [one.generation for one in report.generations if one.verdict is Finding.HURT]
    if report.rollback is not None:
        return report.rollback.hint
    if any(not damage.trusted for damage in report.damaged):
        return "find out who wrote there, or which key the keyring lacks, before you repair: docs/signing.md"
    if not hurt and not report.damaged:
        return None
    elsewhere = [place for place in found if place != report.tier]
    good = [one for one in hurt if any(_is_good(found[place].get(one)) for place in elsewhere)]
    if report.tier == LOCAL:
        return f"`ckptier restore --generation {max(good)}` takes it from a tier" if good else _last_resort(works)
    if report.damaged or good:
        return f"`ckptier repair --tier {report.tier}`"
    return _last_resort(works)


def _is_good(verdict: GenerationVerdict | None) -> bool:
    return verdict is not None and verdict.verdict is Finding.INTACT and verdict.quarantined is None


def _last_resort(works: GenerationId | None) -> str:
    if works is None:
        return "no good copy was found: look for older versions of the objects in the bucket, or for a backup"
    return f"no place that was looked at has a good copy: `ckptier restore` gives {works}"
