"""What a plan refuses because of what is known from elsewhere, or because nobody vouches for what is there."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from replicate.errors import TrustFailure
from replicate.restore.freshness import Shown, too_old

if TYPE_CHECKING:
    from replicate.restore.plan import Candidate, RestoreRequest, TierAnswer


def anchored(request: "RestoreRequest", answers: "list[TierAnswer]") -> "list[TierAnswer]":
    """Return the tiers that count where anchors are asked for: others may show an old state, or a forged one."""
    anchors = request.fresh.anchors
    if not anchors:
        return answers
    found = [answer for answer in answers if answer.anchored or answer.failure is not None]
    if not any(answer.anchored for answer in found) and (request.accept_older or not found):
        raise TrustFailure(
            f"no tier's log holds the anchor {' or '.join(map(str, anchors))}",
            hint="entries were removed or an old state was put back, or the anchor is that of another tier or run",
        )
    return found


def refuse_old(request: "RestoreRequest", answers: "Sequence[TierAnswer]", now: datetime) -> None:
    """Refuse where the newest commit is older than was asked for; a generation that is named may be of any age."""
    if request.fresh.max_age is None or request.generation is not None:
        return
    newest = [(answer, answer.view.state.newest) for answer in answers if answer.view and answer.view.state]
    shown = [Shown(tier=one.tier, commit=commit, written=one.written) for one, commit in newest if commit]
    refusal = too_old(request.fresh.max_age, shown, now)
    if refusal is not None:
        raise TrustFailure(
            f"{refusal}: the store may be hiding newer ones",
            hint="where the run really stood still so long, give a longer --max-age, or name it with --generation ID",
        )


def young_enough(request: "RestoreRequest", candidates: "Sequence[Candidate]", now: datetime) -> "list[Candidate]":
    """Return the candidates that are no older than was asked for: falling back further is what hiding would do.

    What only the store has counts, since no tier has shown it.
    """
    limit = request.fresh.max_age
    if limit is None or request.generation is not None:
        return list(candidates)

    def young(one: "Candidate") -> bool:
        shown = [Shown(tier=each.tier, commit=each.commit, written=None) for each in one.replicas]
        return too_old(limit, shown, now) is None

    return [one for one in candidates if young(one)]


def refuse_untrusted(request: "RestoreRequest", answers: "Sequence[TierAnswer]") -> None:
    """Refuse where nothing is left, and something is there for which nobody vouches, or has to be there."""
    for answer in answers:
        untrusted = next((one for one in answer.view.damaged if not one.trusted), None) if answer.view else None
        if untrusted is not None:
            raise TrustFailure(
                f"{answer.tier}: {untrusted.reason}, and nothing that was asked for is left",
                hint="find out who writes there; `ckptier keys adopt` pins what was written before signing began",
            )
    known = request.fresh.minimum is not None or request.fresh.anchors
    if known and not any(answer.failure for answer in answers):
        least = f"is as new as {request.fresh.minimum}" if request.fresh.minimum is not None else "is left"
        raise TrustFailure(
            f"no generation {least}: the newest were removed, or an old state was put back",
            hint="`ckptier list` shows what there is",
        )
