"""Rehearsals and comparisons as text for people, at most 80 columns where ids allow."""

import json
from collections.abc import Iterator

from replicate.comparison import ComparedReport
from replicate.errors import ExitCode
from replicate.rehearsal import RehearsalReport
from replicate.rehearsing.observations import trim
from replicate.render.words import human_bytes

_VALUE = 60
_LINES = 40
_INDENT = 40


def render_rehearsed(report: RehearsalReport) -> str:
    """Show what was rehearsed and what it came to; where it failed, the end of what it printed and what to do."""
    return "\n".join(_rehearsed_lines(report))


def _rehearsed_lines(report: RehearsalReport) -> Iterator[str]:
    verdict = "rehearsed" if report.passed else "REHEARSAL FAILED"
    yield f"{report.generation} from {report.tier}: {verdict}"
    yield f"  {report.why}"
    took = f"{report.restore_milliseconds / 1000:.1f} s, {report.function} {report.milliseconds / 1000:.1f} s"
    yield f"  {human_bytes(report.total_bytes)} restored and proved in {took}"
    for name, value in report.observations.items():
        words = json.dumps(value)
        yield f"  {name}: {words if len(words) <= _VALUE else words[:_VALUE] + '…'}"
    if report.compared_with is not None and report.passed:
        yield f"  as in {report.compared_with}"
    yield from (f"  warning: {one}" for one in report.warnings)
    if report.recorded:
        yield f"  NOT recorded: {report.recorded}"
    if not report.passed:
        yield from _failed_lines(report)


def _failed_lines(report: RehearsalReport) -> Iterator[str]:
    lines = [f"{_indent(line)}{trim(line)}" for line in report.output.splitlines() if line.strip()]
    if lines:
        yield "  the end of what it printed:"
        yield from (f"    {line}" for line in lines[-_LINES:])
    yield f"  {report.reason}"
    if report.difference is not None:
        yield "next: look at that first; the differences after it may follow from it"
    else:
        yield "next: the bytes are those that were sealed: look at the function, and what it needs"


def _indent(line: str) -> str:
    return " " * min(_INDENT, len(line) - len(line.lstrip(" ")))


def rehearsed_exit(report: RehearsalReport) -> ExitCode:
    """Return 5 for a rehearsal that failed: a restart from the copy was not proved."""
    return ExitCode.OK if report.passed else ExitCode.INTEGRITY


def render_compared(report: ComparedReport) -> str:
    """Show what was compared, and the first difference in causal order before the others."""
    lines = [f"A {report.first}", f"B {report.second}"]
    first = report.first_difference
    if first is None:
        lines.append(f"equal: {report.compared} compared, {report.by}")
        return "\n".join(lines)
    lines.append(f"first difference: {first.stage}: {first.name}")
    lines.append(f"  {first.detail}")
    more = report.differences[1:]
    if more:
        lines.append(f"{len(more)} more:")
        lines += [f"  {one.stage}: {one.name}: {one.detail}" for one in more[:_LINES]]
    lines += [f"note: {note}" for note in report.notes]
    return "\n".join(lines)


def compared_exit(report: ComparedReport) -> ExitCode:
    """Return 1 where the two differ."""
    return ExitCode.ERROR if report.differences else ExitCode.OK
