"""Findings and the answers to them: what still blocks, what was waived, and which waivers do not count.

A waiver that answers for nothing blocks as well: it would let something pass that nobody has seen.
"""

from datetime import datetime

from replicate.release.findings import Finding, Waiver


def judge(
    found: list[tuple[Finding, str]], waivers: tuple[Waiver, ...], now: datetime
) -> tuple[list[Finding], list[Finding]]:
    """Return (blocking, waived); each finding comes with the reason why it cannot be waived, empty where it can."""
    blocking: list[Finding] = []
    waived: list[Finding] = []
    used: set[int] = set()
    for finding, refusal in found:
        answers = [number for number, waiver in enumerate(waivers) if _answers(waiver, finding)]
        used.update(answers)
        if answers and not refusal and any(waivers[number].covers(finding, now) for number in answers):
            waived.append(finding)
        else:
            blocking.append(_told(finding, [waivers[number] for number in answers], refusal))
    for number, waiver in enumerate(waivers):
        if number not in used:
            blocking.append(_unused(waiver))
    return sorted(blocking, key=_order), sorted(waived, key=_order)


def _answers(waiver: Waiver, finding: Finding) -> bool:
    """Whether a waiver is meant for a finding, expired or not."""
    same = (waiver.rule, waiver.path) == (finding.rule, finding.path)
    return same and waiver.place in ("", finding.place)


def _told(finding: Finding, waivers: list[Waiver], refusal: str) -> Finding:
    if not waivers:
        return finding
    named = ", ".join(f"{one.author}'s until {one.expires.isoformat()}" for one in waivers)
    why = f"cannot be waived, {refusal}" if refusal else "the waiver has expired"
    return finding.model_copy(update={"detail": f"{finding.detail}; {why} (waiver: {named})"})


def _unused(waiver: Waiver) -> Finding:
    detail = f"the waiver of {waiver.author} answers for nothing that was found: take it out"
    return Finding(rule=waiver.rule, path=waiver.path, place=waiver.place, detail=detail)


def _order(finding: Finding) -> tuple[str, str, str, str]:
    return (finding.path, finding.rule.value, finding.place, finding.detail)
