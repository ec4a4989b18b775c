"""Retention as text for people: what stays and why, what goes, what waits, at most 80 columns where ids allow."""

from collections.abc import Iterable, Sequence

from replicate.clearing import CollectReport, DestroyReport, PinReport, PlaceCollected
from replicate.errors import CkptierError, ExitCode
from replicate.gc import Fate, OrphanReport
from replicate.layout import GenerationId
from replicate.pinning import PinOutcome
from replicate.prune import Pending
from replicate.pruning import PlacePruned, PruneReport
from replicate.render.words import human_bytes
from replicate.retention import RetentionPlan

_PIN = {
    PinOutcome.PINNED: "pinned",
    PinOutcome.ALREADY_PINNED: "was pinned already",
    PinOutcome.UNPINNED: "no longer pinned",
    PinOutcome.NOT_PINNED: "was not pinned",
    PinOutcome.RETIRED: "RETIRED already: its bytes go after their delay; copy it back first",
    PinOutcome.NOT_HERE: "does not have it",
}


def render_pruned(report: PruneReport, tier: str | None = None) -> str:
    """Show each place: a line a generation with its first reason, then what waits to be deleted.

    ``tier`` is the one that was asked for: what is named next must not reach further.
    """
    lines: list[str] = []
    for place in report.places:
        lines.append(f"{place.place}:")
        lines += [f"  {line}" for line in _place_lines(place, applied=report.applied)]
    if not report.applied:
        lines.append(_next_step(report, f" --tier {tier}" if tier else ""))
    return "\n".join(lines)


def _place_lines(place: PlacePruned, *, applied: bool) -> Iterable[str]:
    if place.failure is not None:
        yield from _failure_lines(place.place, place.failure)
        return
    done = {one.generation for one in place.retired} | set(place.removed)
    yield from _plan_lines(place.plan, done, applied=applied)
    for swept in place.swept:
        yield f"deleted {swept.generation}: {swept.objects} objects, {human_bytes(swept.total_bytes)}"
    for pending in place.pending:
        yield f"retired {pending.generation}, {human_bytes(pending.total_bytes)} still there"
        yield f"  {_waits(pending)}"
    if place.note:
        yield f"note: {place.note}"


def _plan_lines(plan: RetentionPlan | None, done: set[GenerationId], *, applied: bool) -> Iterable[str]:
    if plan is None or not plan.verdicts:
        yield "holds no generation"
        return
    for one in plan.verdicts:
        if one.keep:
            word = "keep   "
        elif applied:
            word = "removed" if one.id in done else "stays  "
        else:
            word = "REMOVE "
        yield f"{word} {one.id}"
        for reason in one.reasons[:2]:
            yield f"          {reason.text}"
    if plan.too_many and not applied:
        yield f"NOT done by --apply alone: {plan.too_many}"


def _waits(pending: Pending) -> str:
    if pending.due_in is None or pending.due_in <= 0:
        return pending.reason
    return f"{pending.reason}, for about {_duration(pending.due_in)} more"


def _duration(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def _next_step(report: PruneReport, only: str) -> str:
    going = [place.place for place in report.places if place.plan and place.plan.removed]
    due = [place.place for place in report.places if any((one.due_in or 0) <= 0 for one in place.pending)]
    if not going and not due:
        return f"nothing to prune{_unset(report)}"
    if any(place.plan and place.plan.too_many for place in report.places):
        return f"next: if this is meant, `ckptier prune{only} --apply --unsafe-remove-most`"
    return f"nothing was changed; next: `ckptier prune{only} --apply`"


def _unset(report: PruneReport) -> str:
    """Say which setting lets anything go, where none is made."""
    plans = [place.plan for place in report.places if place.plan is not None]
    words = {reason.text for plan in plans for one in plan.verdicts for reason in one.reasons}
    return (
        "; keep_last says how many stay (docs/retention.md)"
        if any(one.startswith("keep_last is not set") for one in words)
        else ""
    )


def prune_exit(report: PruneReport) -> ExitCode:
    """Return 0, or what kept places from being pruned: 3 where only some failed."""
    return _exit_of([place.failure for place in report.places])


def render_collected(report: CollectReport, tier: str | None = None) -> str:
    """Show each tier: what was left behind and why that is known, and what is left alone."""
    lines: list[str] = []
    for place in report.places:
        lines.append(f"{place.tier}:")
        lines += [f"  {line}" for line in _orphan_lines(place, applied=report.applied)]
    orphans = any(place.report and place.report.plan.orphans for place in report.places)
    if orphans and not report.applied:
        only = f" --tier {tier}" if tier else ""
        lines.append(f"nothing was changed; next: `ckptier gc{only} --apply`")
    return "\n".join(lines)


def _orphan_lines(place: PlaceCollected, *, applied: bool) -> Iterable[str]:
    if place.failure is not None:
        yield from _failure_lines(place.tier, place.failure)
        return
    if place.report is not None:
        yield from _found_lines(place.report, applied=applied)
    if place.note:
        yield f"note: {place.note}"


def _found_lines(found: OrphanReport, *, applied: bool) -> Iterable[str]:
    shown = [one for one in found.plan.judged if one.fate in (Fate.ORPHAN, Fate.KEPT)]
    for one in shown:
        word = "left alone"
        if one.fate is Fate.ORPHAN:
            word = ("deleted" if one in found.deleted else "stays") if applied else "DELETE"
        size = human_bytes(one.found.total_bytes)
        yield f"{word} {one.generation}.t{one.found.prefix.term}-{one.found.prefix.nonce}"
        yield f"  {one.found.objects} objects, {size}: {one.reason}"
    if not shown:
        yield "nothing was left behind"
    if found.aborted:
        yield f"aborted {found.aborted} uploads in parts that were given up"
    if found.plan.unknown:
        yield f"{found.plan.unknown} keys there are not ours and are left alone"


def collect_exit(report: CollectReport) -> ExitCode:
    """Return 0, or what kept tiers from being cleared: 3 where only some failed."""
    return _exit_of([place.failure for place in report.places])


def render_pin(report: PinReport) -> str:
    """Show what came of it on each tier."""
    lines = [str(report.generation)]
    for one in report.results:
        slot = f" (slot {one.slot})" if one.slot is not None else ""
        lines.append(f"  {one.tier}: {_PIN[one.outcome]}{slot}")
    for tier, failure in report.failures:
        lines += [f"  {line}" for line in _failure_lines(tier, failure)]
    return "\n".join(lines)


def pin_exit(report: PinReport) -> ExitCode:
    """Return 3 where a tier failed although another did what was asked."""
    return ExitCode.PARTIAL if report.failures else ExitCode.OK


def render_destroyed(report: DestroyReport) -> str:
    """Show what is gone, or what would be."""
    lines = []
    for one in report.places:
        what = f"{one.objects} objects, {human_bytes(one.total_bytes)}, {one.generations} generations committed"
        lines.append(f"{one.tier}: {'destroyed' if report.applied else 'would destroy'} {what}")
    if report.applied:
        lines.append("the local store is untouched; it goes with its folder")
    else:
        lines.append("nothing was changed; there is no way back from this:")
        lines.append(f"next: `ckptier destroy {report.run} --unsafe-delete-everything`")
    return "\n".join(lines)


def _failure_lines(place: str, failure: CkptierError) -> Sequence[str]:
    lines = [f"FAILED: {failure.message.removeprefix(f'{place}: ')}"]
    return [*lines, f"next: {failure.hint}"] if failure.hint else lines


def _exit_of(failures: Sequence[CkptierError | None]) -> ExitCode:
    """Return the code on which all agree, 3 where only some failed."""
    codes = {failure.exit_code if failure else ExitCode.OK for failure in failures}
    return codes.pop() if len(codes) == 1 else ExitCode.PARTIAL if codes else ExitCode.OK
