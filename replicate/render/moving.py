"""What became of what was to be moved: replicated, restored."""

from collections.abc import Sequence

from replicate.errors import ExitCode
from replicate.outcomes import ReplicateReport
from replicate.plan import Choice
from replicate.preview import TierPreview
from replicate.priced import money_lines
from replicate.render.words import count, human_bytes, placed, without
from replicate.restore import Outcome, RestoreReport


def preview_exit(previews: Sequence[TierPreview]) -> ExitCode:
    """Return what kept the tiers from being told: theirs where all failed alike, 3 where only some did."""
    codes = {preview.failure.exit_code if preview.failure else ExitCode.OK for preview in previews}
    return codes.pop() if len(codes) == 1 else ExitCode.PARTIAL if codes else ExitCode.OK


def render_preview(previews: Sequence[TierPreview]) -> str:
    """Show what would go up, and what would not and why."""
    lines = []
    for preview in previews:
        lines.append(f"{preview.tier}:")
        if preview.failure is not None:
            lines.append(f"  UNKNOWN: {without(preview.tier, preview.failure.message)}")
            lines += [f"  next: {preview.failure.hint}"] if preview.failure.hint else []
            continue
        for one in preview.generations:
            what = f"  {one.decision.id}  {one.decision.choice}"
            if one.decision.choice is Choice.UPLOAD:
                size = human_bytes(one.total_bytes)
                what += f": {size}{_copied(one.copied_bytes, one.copied_from)}"
                lines.append(f"{what}, {count(one.objects, 'object')}, {count(one.requests, 'request')}")
                if one.hashed_again:
                    lines.append(
                        f"    {human_bytes(one.hashed_again)} are hashed again: part_size is not the leaf size"
                    )
            else:
                lines.append(f"{what}: {one.decision.reason}")
        if not preview.generations:
            lines.append("  nothing to do: the store holds no generation")
        lines += [f"  {line}" for line in money_lines(preview.money)] if preview.money else []
    return "\n".join(lines) or "no tier is configured"


def render_replicated(report: ReplicateReport) -> str:
    """Show what became of each tier."""
    lines = []
    for result in report.results:
        if result.failure is not None:
            lines.append(f"{result.tier}: FAILED: {without(result.tier, result.failure.message)}")
            lines += [f"  next: {result.failure.hint}"] if result.failure.hint else []
        elif result.report is not None:
            done = result.report.committed
            lines += [f"{result.tier}: committed {one.generation}{_copied(one.copied_bytes)}" for one in done]
            lines += [] if done or result.forked else [f"{result.tier}: nothing to do"]
            lines += [f"  QUARANTINED {one}: {reason}" for one, reason in result.report.damaged]
            lines += [f"{result.tier}: FORKED {one.id}: {one.reason}" for one in result.forked]
            if result.forked:
                lines.append("  next: `ckptier restore --generation ID` keeps a line; another run name keeps both")
        else:
            lines.append(f"{result.tier}: stopped; the next start resumes it")
    lines += [f"QUARANTINED {one}: {reason}" for one, reason in report.quarantined.items()]
    return "\n".join(lines)


def _copied(size: int, source: str = "") -> str:
    """Say how much was, or is, copied inside the store."""
    return f", {human_bytes(size)} of it copied there{source and f' from {source}'}" if size else ""


def render_restored(report: RestoreReport) -> str:
    """Show what was restored, from where, and what was passed over."""
    lines = [f"note: {warning}" for warning in report.warnings]
    lines += [
        f"passed over {skip.generation or skip.place}: {placed(skip.place, skip.reason)}" for skip in report.skipped
    ]
    if report.outcome is Outcome.FRESH:
        return "\n".join([*lines, "nothing exists anywhere yet: start afresh"])
    if report.outcome is Outcome.ALREADY_HERE:
        return "\n".join([*lines, f"{report.generation} is in the store already"])
    what = f"{report.generation} ({count(report.files, 'file')}, {human_bytes(report.total_bytes)}"
    if report.dry_run:
        places = [place.tier for place in report.plan.candidates[0].replicas] if report.plan.candidates else []
        lines.append(f"would restore {what})")
        lines.append(f"  into {report.target}")
        lines.append(f"  from {', then '.join(places) or 'the store itself'}")
        lines += [f"  {one.tier}: {line}" for one in report.money for line in money_lines(one)]
        return "\n".join(lines)
    lines.append(f"restored {what}, every byte verified)")
    lines.append(f"  into {report.target}")
    lines.append(
        f"  from {', '.join(f'{place} ({human_bytes(count)})' for place, count in report.by_place) or 'the store'}"
    )
    if report.fell_back:
        lines.append("  this is NOT the newest: see above for what was passed over and why")
        lines.append("  next: `ckptier verify --read-data 100%`, then `ckptier repair`")
    if report.attempt is not None:
        lines.append(f"  training continues as attempt {report.attempt}")
    return "\n".join(lines)
