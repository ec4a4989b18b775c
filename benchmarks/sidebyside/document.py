"""docs/benchmarks.md as a whole."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.sidebyside.figures import Finding
from benchmarks.sidebyside.running import Results
from benchmarks.sidebyside.writing import MISSES, MISSES_END, facts_table, failures, kept, tables, targets_table

_HEAD = Path(__file__).with_name("head.md")

_HOW = Path(__file__).with_name("how.md")


def whole(
    results: Results,
    findings: Sequence[Finding],
    *,
    facts: Mapping[str, str],
    versions: Mapping[str, str],
    before: str,
    repeated: str,
) -> str:
    """Return the document; ``before`` is its earlier text, ``repeated`` compares the verdicts with the last run's."""
    parts = [
        _HEAD.read_text(encoding="utf-8"),
        facts_table(facts, versions),
        f"## Targets\n\n{targets_table(findings)}\n\n{repeated}",
        f"## Misses\n\n{MISSES}{kept(before)}{MISSES_END}",
        _HOW.read_text(encoding="utf-8"),
        f"## Side by side\n\n{tables(results)}",
        f"## Without a figure\n\n{failures(results)}",
    ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"
