"""After the measuring: print, write, remember, and compare with the run before."""

import json
from pathlib import Path
from typing import Any

from benchmarks.sidebyside.document import whole
from benchmarks.sidebyside.facts import machine, medium, versions, without_paths
from benchmarks.sidebyside.figures import disagreements
from benchmarks.sidebyside.peers import UP
from benchmarks.sidebyside.phases import Run
from benchmarks.sidebyside.plotting import plot
from benchmarks.sidebyside.servers import ROOT
from benchmarks.sidebyside.writing import terminal
from tiers.clock import SystemClock, rfc3339

LAST = ROOT / "benchmarks" / "results" / "last.json"


def report(run: Run, *, write: Path | None, same_as: Path | None, partial: bool) -> dict[str, Any]:
    """Print the tables; a whole run also goes into docs/ and is remembered.  Returns everything for JSON."""
    findings = run.findings()
    print(terminal(run.results, findings))
    facts = {
        "date": rfc3339(SystemClock().now())[:10],
        **machine(),
        "medium": f"{medium(run.settings.place)}; saves on {medium(run.settings.disk)}",
        "rounds": str(run.settings.rounds),
    }
    document: dict[str, Any] = {
        "facts": facts,
        "findings": [one.document() for one in findings],
        **run.results.document(),
        "more": run.details,
    }
    document["failures"] = {cell: without_paths(why) for cell, why in document["failures"].items()}
    earlier = same_as or (LAST if LAST.exists() and not partial else None)
    repeated = _repeated(earlier, document)
    print(f"\n{repeated}")
    folder = write or (None if partial else ROOT / "docs")
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "benchmarks.md"
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        said = versions(more=run.settings.more)
        path.write_text(
            whole(run.results, findings, facts=facts, versions=said, before=before, repeated=repeated), encoding="utf-8"
        )
        if run.results.of("sink", run.settings.workloads[0].name, UP):
            plot(run.results, folder / "benchmarks.svg")
    if not partial:
        LAST.parent.mkdir(exist_ok=True)
        LAST.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return document


def _repeated(earlier: Path | None, document: dict[str, Any]) -> str:
    if earlier is None:
        return "There is no run before this one to compare verdicts with."
    before = json.loads(earlier.read_text(encoding="utf-8"))
    differing = disagreements(before["findings"], document["findings"])
    if not differing:
        return f"The run before this one ({before['facts']['date']}) came to the same verdicts."
    listed = "\n".join(f"- {one}" for one in differing)
    return f"The run before this one ({before['facts']['date']}) came to other verdicts here:\n\n{listed}"
