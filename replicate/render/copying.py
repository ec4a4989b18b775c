"""What became of a copy from tier to tier."""

from replicate.copyplan import Copied, CopyOutcome, CopyReport
from replicate.errors import ExitCode
from replicate.render.words import count, human_bytes, without


def render_copied(report: CopyReport) -> str:
    """Show what became of each generation, and first what is wrong."""
    lines = [f"note: {warning}" for warning in report.warnings]
    lines += [_copied_line(report, one) for one in report.generations]
    if not any(one.outcome in (CopyOutcome.COPIED, CopyOutcome.WOULD_COPY) for one in report.generations):
        lines.append("nothing to do" if report.exit_code is ExitCode.OK else "nothing was copied")
    if any(one.outcome is CopyOutcome.SOURCE_DAMAGED for one in report.generations):
        lines.append("  next: `ckptier list` shows which other tier has it; copy it from there")
    if any(one.outcome is CopyOutcome.TARGET_DAMAGED for one in report.generations):
        lines.append(f"  next: restore from {report.source}; a tier under another prefix can take a new copy")
    return "\n".join(lines)


def _copied_line(report: CopyReport, one: Copied) -> str:
    size = f"{human_bytes(one.total_bytes)} in {count(one.objects, 'object')}"
    match one.outcome:
        case CopyOutcome.COPIED:
            return f"{report.target}: copied {one.generation} ({size}), verified by {', '.join(one.verified_by)}"
        case CopyOutcome.WOULD_COPY:
            asked = f"{count(one.reads, 'request')} to {report.source}, {one.writes} to {report.target}"
            return f"would copy {one.generation}: {size}, {asked}"
        case CopyOutcome.ALREADY_THERE:
            return f"{one.generation} is on {report.target} already, and intact"
        case CopyOutcome.SOURCE_DAMAGED:
            return f"DAMAGED on {report.source}: {one.generation}: {without(report.source, one.reason)}"
        case CopyOutcome.TARGET_DAMAGED:
            return f"DAMAGED on {report.target}: {one.generation}: {one.reason}"
