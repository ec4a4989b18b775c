"""Repairs and takeovers as text for people: what is due, why, and what was done."""

from collections.abc import Iterable, Iterator

from replicate.errors import CkptierError, ExitCode
from replicate.mending.steps import Kind, Step
from replicate.mending.takeover import PlaceTaken, TakeoverReport
from replicate.mending.verbs import PlaceRepaired, RepairReport

_DUE = {
    Kind.FILL: "FILL the gap at log slot",
    Kind.CLAIM: "CLAIM a new term",
    Kind.VOID: "VOID log slot",
    Kind.ACCEPT: "ACCEPT a log that has lost slot",
    Kind.ADOPT: "COMMIT AGAIN as it lies there:",
    Kind.REPLACE: "REPLACE by the good copy of",
    Kind.RETIRE: "GIVE UP",
    Kind.LEAVE: "HURT, left alone:",
}
_DONE = {
    Kind.FILL: "filled the gap at log slot",
    Kind.CLAIM: "claimed a new term in log slot",
    Kind.VOID: "voided log slot",
    Kind.ACCEPT: "accepted the log, which has lost slot",
    Kind.ADOPT: "committed again as it lies there:",
    Kind.REPLACE: "replaced by the good copy of",
    Kind.RETIRE: "gave up",
    Kind.LEAVE: "HURT, left alone:",
}


def render_repaired(report: RepairReport, command: str = "ckptier repair --apply", *, read: bool = False) -> str:
    """Show each tier: its steps with their reasons, what stays hurt, and what to do next.

    ``command`` would do what is shown; ``read``: stored bytes were read.
    """
    lines: list[str] = []
    for place in report.places:
        lines.append(f"{place.tier}:")
        lines += [f"  {line}" for line in _place_lines(place, applied=report.applied)]
    lines += _next_steps(report, command, read=read)
    return "\n".join(lines)


def _place_lines(place: PlaceRepaired, *, applied: bool) -> Iterator[str]:
    due = place.done if applied else place.plan.due
    for step in (*due, *place.left):
        yield from _step_lines(step, _DONE if applied else _DUE)
    if place.failure is not None:
        yield from _failure_lines(place.tier, place.failure)
    elif not place.plan.steps and not place.plan.unknown and place.plan.blocked is None:
        yield "nothing to repair"
    if place.plan.blocked is not None and place.failure is None:
        yield from _failure_lines(place.tier, place.plan.blocked)
    yield from (f"not known: {words}" for words in place.plan.unknown)
    yield from (f"note: {words}" for words in (*place.plan.notes, *place.notes))


def _step_lines(step: Step, words: dict[Kind, str]) -> Iterator[str]:
    shown = words[step.kind]
    if step.kind is Kind.REPLACE:
        shown = f"{shown} {step.place}:"
    elif step.slot is not None and step.generation is None:
        shown = f"{shown} {step.slot}"
    slot = f", in log slot {step.slot}" if step.slot is not None else ""
    yield f"{shown} {step.generation}{slot}" if step.generation else shown
    yield f"  {step.reason}"


def _next_steps(report: RepairReport, command: str, *, read: bool) -> Iterable[str]:
    if not report.applied and any(place.plan.due and place.plan.blocked is None for place in report.places):
        yield f"nothing was changed; next: `{command}`"
    elif repair_exit(report) is ExitCode.OK and any(place.done for place in report.places):
        yield "next: `ckptier verify`, then start `ckptier replicate` again"
    elif repair_exit(report) is ExitCode.OK and not read:
        yield "no stored bytes were read; where they may be hurt: `ckptier repair --read-data 100%`"
    if any(place.left for place in report.places):
        yield "next: what is hurt may still be whole elsewhere: configure that tier too, or"
        yield "`ckptier restore` what is intact; --unsafe-retire-hurt gives it up"


def repair_exit(report: RepairReport) -> ExitCode:
    """Return 0, or the code on which all tiers agree that need more than was done, else 3."""
    codes = {_place_exit(place) for place in report.places}
    return codes.pop() if len(codes) == 1 else ExitCode.PARTIAL if codes else ExitCode.OK


def _place_exit(place: PlaceRepaired) -> ExitCode:
    failure = place.failure or place.plan.blocked
    if failure is not None:
        return failure.exit_code
    if place.left:
        return ExitCode.INTEGRITY
    return ExitCode.UNREACHABLE if place.plan.unknown else ExitCode.OK


def render_takeover(report: TakeoverReport) -> str:
    """Show who holds each tier's log, and what became of it."""
    lines: list[str] = []
    for place in report.places:
        lines.append(f"{place.tier}:")
        lines += [f"  {line}" for line in _taken_lines(place)]
    if not report.applied and any(place.needed for place in report.places):
        lines.append("nothing was changed; stop the other writer, then the same command with --apply")
    return "\n".join(lines)


def _taken_lines(place: PlaceTaken) -> Iterator[str]:
    if place.failure is not None:
        yield from _failure_lines(place.tier, place.failure)
        return
    if place.holder:
        since = f", since {place.since:%Y-%m-%d %H:%M:%S} UTC by the store's clock" if place.since else ""
        yield f"term {place.holders_term} {'was' if place.term else 'is'} held by {place.holder}{since}"
    if place.newest is not None:
        yield f"newest there: {place.newest}"
    if place.term is not None:
        yield f"taken over: this store holds term {place.term}; the other writer is shut out"
    elif place.needed:
        yield f"this store is shut out: {place.reason}"
        yield f"a takeover claims term {place.holders_term + 1} for it, and shuts the other writer out for good"
    else:
        yield f"nothing to take over: {place.reason}"


def takeover_exit(report: TakeoverReport) -> ExitCode:
    """Return 0, or what kept tiers from being taken over: 3 where only some failed."""
    codes = {place.failure.exit_code if place.failure else ExitCode.OK for place in report.places}
    return codes.pop() if len(codes) == 1 else ExitCode.PARTIAL if codes else ExitCode.OK


def _failure_lines(place: str, failure: CkptierError) -> Iterator[str]:
    yield f"FAILED: {failure.message.removeprefix(f'{place}: ')}"
    if failure.hint:
        yield f"next: {failure.hint}"
