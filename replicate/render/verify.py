"""What ``ckptier verify`` found, as text for people and as an exit code."""

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace

from replicate.errors import ExitCode, NothingFound, TrustFailure
from replicate.render.words import human_bytes
from replicate.scrubbing import Scrubbed
from replicate.verify import Finding, GenerationVerdict, VerifyReport

WIDTH = 80
_SHOWN = 6
"""How many reasons of one generation, and notes of one place, are shown before ``--json`` is named."""


def verify_exit(found: Scrubbed) -> ExitCode:
    """Return 5 where anything is hurt, 6 for a history that is not the one expected, 9 or so for what did not answer.

    A tier that does not have a generation that was asked for has answered.
    """
    if any(_hurt(report) for report in found.reports):
        return ExitCode.INTEGRITY
    if isinstance(found.refused, TrustFailure) or any(_untrusted(report) for report in found.reports):
        return ExitCode.TRUST
    codes = {one.failure.exit_code for one in found.reports if one.failure} - {ExitCode.NOTHING}
    if codes:
        return codes.pop() if len(codes) == 1 else ExitCode.UNREACHABLE
    unknown = any(one.verdict is Finding.UNKNOWN for report in found.reports for one in report.generations)
    return ExitCode.UNREACHABLE if unknown else ExitCode.OK


def _hurt(report: VerifyReport) -> bool:
    return replace(report, damaged=tuple(one for one in report.damaged if one.trusted)).hurt


def _untrusted(report: VerifyReport) -> bool:
    return report.rollback is not None or any(not one.trusted for one in report.damaged)


def render_verified(found: Scrubbed) -> str:
    """Show each place: what is hurt, what still works there, what to do; and what a restore would give."""
    lines = [line for report in found.reports for line in _place(report)]
    if found.refused is not None or any(not report.sound for report in found.reports):
        lines += list(_everywhere(found))
    return "\n".join(lines)


def _place(report: VerifyReport) -> Iterator[str]:
    if report.failure is not None:
        yield from _failure(report)
        return
    whole = [one for one in report.generations if one.verdict is Finding.INTACT]
    read = human_bytes(sum(one.bytes_read for one in report.generations))
    yield f"{report.tier}: {len(whole)} of {len(report.generations)} generations intact, {read} read"
    for words in (*report.faults, *([report.rollback.message] if report.rollback else [])):
        yield from _wrapped(f"WRONG: {words.removeprefix(f'{report.tier}: ')}")
    for damage in report.damaged:
        word = "DAMAGED" if damage.trusted else "NOT TRUSTED"
        yield from _wrapped(f"log slot {damage.slot} is {word}: {damage.reason}")
    for one in report.generations:
        if one.verdict is not Finding.INTACT:
            yield from _generation(one)
    yield from _more((f"note: {note.text}" for note in report.notes), len(report.notes))
    if not report.sound:
        nothing = "NOTHING, since a restore refuses it" if report.rollback else "NOTHING"
        yield f"  what still works: {report.works or nothing}"
    if report.next_step is not None:
        yield from _wrapped(f"next: {report.next_step}")


def _failure(report: VerifyReport) -> Iterator[str]:
    assert report.failure is not None
    message = report.failure.message.removeprefix(f"{report.tier}: ")
    if isinstance(report.failure, NothingFound):
        yield f"{report.tier}: {message}"
        return
    yield f"{report.tier}: UNKNOWN, it did not answer"
    yield from _wrapped(message)
    if report.failure.hint:
        yield from _wrapped(f"next: {report.failure.hint}")


def _generation(one: GenerationVerdict) -> Iterator[str]:
    yield f"  {one.generation} {one.verdict.upper()}"
    yield from _more(one.reasons, len(one.reasons), indent="    ")


def _more(items: "Iterator[str] | Sequence[str]", count: int, indent: str = "  ") -> Iterator[str]:
    for number, text in enumerate(items):
        if number == _SHOWN and count > _SHOWN + 1:
            yield f"{indent}and {count - number} more: --json has them all"
            return
        yield from _wrapped(text, indent)


def _everywhere(found: Scrubbed) -> Iterator[str]:
    """Say what a restore from all places would give."""
    if not found.everywhere:
        return
    if found.refused is not None:
        yield from _wrapped(f"a restore REFUSES: {found.refused.message}", "")
        yield from _wrapped(f"next: {found.refused.hint}")
        return
    yield f"a restore from all places gives: {found.works or 'NOTHING'}"
    if found.unanswered:
        yield from _wrapped(f"{', '.join(found.unanswered)} may hold something newer, and did not answer")


def _wrapped(text: str, indent: str = "  ") -> list[str]:
    """Break a line between words; an id or a key that is longer stays whole."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
