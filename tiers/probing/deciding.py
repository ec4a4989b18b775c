"""From outcomes to facts, and where they contradict what was believed.  Pure."""

from collections.abc import Iterable, Sequence

from tiers.probing.facts import ProbeFacts
from tiers.probing.outcomes import Contradiction, Outcome, Subject, Verdict
from tiers.protocol import Capabilities, Fencing, Verification

_SHA256 = (Subject.SHA256_TAKEN, Subject.SHA256_PUT, Subject.SHA256_PART, Subject.SHA256_ECHO)
_ETAGS = (Subject.MD5_ETAG, Subject.MULTIPART_ETAG)
_CREATES = (Subject.PUT_IF_ABSENT, Subject.ONE_WINNER)


def decide(outcomes: Iterable[Outcome], before: Capabilities) -> ProbeFacts:
    """Return what follows for the use of a store whose profile promised ``before``.

    One No decides against a thing, and only all Yes decide for it; anything else leaves it
    as it was.  That an HTTP store keeps writers apart makes it ``cas``; another kind keeps
    its own way, or loses it.
    """
    seen = {one.subject: one.verdict for one in outcomes}
    checks = _all(seen, _SHA256)
    copies = _all(seen, (Subject.SHA256_COPY,))
    copies_objects = _all(seen, (Subject.SHA256_COPY_OBJECT,))
    return ProbeFacts(
        fencing=_fencing(_all(seen, _CREATES), before),
        verification=_verification(checks, _all(seen, _ETAGS)),
        checks_sha256=checks,
        checks_payload_hash=_all(seen, (Subject.PAYLOAD_HASH,)),
        copy_part=None if copies is None else bool(copies and checks),
        copy=None if copies_objects is None else bool(copies_objects and checks),
        sorted_listing=_all(seen, (Subject.LIST_ORDER,)),
    )


def contradictions(facts: ProbeFacts, before: Capabilities, *, sorted_listing: bool) -> tuple[Contradiction, ...]:
    """Say where what was found is not what was believed, in either direction."""
    proofs = list(Verification)
    weaker = facts.verification is not None and proofs.index(facts.verification) > proofs.index(before.verification)
    found = (
        _differing("writers are kept apart by", before.fencing, facts.fencing, worse=facts.fencing is Fencing.ADVISORY),
        _differing("objects are proved by", before.verification, facts.verification, worse=weaker),
        _differing(
            "parts can be copied and proved:", _word(before.copy_part), _word(facts.copy_part), worse=before.copy_part
        ),
        _differing("objects can be copied and proved:", _word(before.copy), _word(facts.copy), worse=before.copy),
        _differing("listings are sorted:", _word(sorted_listing), _word(facts.sorted_listing), worse=sorted_listing),
    )
    return tuple(one for one in found if one is not None)


def _differing(what: str, believed: str | None, found: str | None, *, worse: bool) -> Contradiction | None:
    if found is None or found == believed:
        return None
    return Contradiction(what=what, believed=str(believed), found=found, worse=worse)


def merged(outcomes: Sequence[Outcome]) -> tuple[Outcome, ...]:
    """Return one outcome a subject: the worst of those that there are, in order of first mention."""
    rank = {Verdict.YES: 0, Verdict.UNKNOWN: 1, Verdict.NO: 2}
    found: dict[Subject, Outcome] = {}
    for one in outcomes:
        known = found.get(one.subject)
        if known is None or rank[one.verdict] > rank[known.verdict]:
            found[one.subject] = one
    return tuple(found.values())


def _all(seen: dict[Subject, Verdict], wanted: Sequence[Subject]) -> bool | None:
    verdicts = [seen.get(subject, Verdict.UNKNOWN) for subject in wanted]
    if Verdict.NO in verdicts:
        return False
    return None if Verdict.UNKNOWN in verdicts else True


def _fencing(apart: bool | None, before: Capabilities) -> Fencing | None:  # noqa: FBT001 - three-valued
    if apart is None:
        return None
    if not apart:
        return Fencing.ADVISORY
    return before.fencing if before.fencing in {Fencing.POSIX, Fencing.GIT} else Fencing.CAS


def _verification(checks: bool | None, etags: bool | None) -> Verification | None:  # noqa: FBT001 - as above
    if checks is None:
        return None
    if checks:
        return Verification.STORE_SHA256
    if etags is None:
        return None
    return Verification.MD5_ETAG if etags else Verification.READ_BACK


def _word(value: bool | None) -> str | None:  # noqa: FBT001 - as above
    return None if value is None else "yes" if value else "no"
