"""What `check` found."""

from replicate.checking import CheckReport, Grade
from replicate.probetable import probe_table
from replicate.render.words import count, without


def render_check(report: CheckReport) -> str:
    """Show a line per thing that was tried."""
    marks = {Grade.OK: "ok  ", Grade.WARNING: "warn", Grade.FAILED: "FAIL"}
    lines = []
    for finding in report.findings:
        detail = without(finding.place, finding.detail)
        lines.append(f"{marks[finding.grade]}  {finding.place}: {finding.subject}: {detail}")
        if finding.hint:
            lines.append(f"      next: {finding.hint}")
    lines += [line for probe in report.probes for line in probe_table(probe)]
    failed = sum(finding.grade is Grade.FAILED for finding in report.findings)
    warned = sum(finding.grade is Grade.WARNING for finding in report.findings)
    good = f"works, with {count(warned, 'warning')}" if warned else "all well"
    lines.append(f"{report.run}: " + (f"{failed} of {len(report.findings)} checks failed" if failed else good))
    return "\n".join(lines)
