"""How long a publication with a deferred seal holds up training after the last written byte."""

import shutil
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.sidebyside.figures import Finding, ratio, verdict
from benchmarks.sidebyside.running import Place, Say
from benchmarks.sidebyside.workloads import Workload

BLOCKED = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """Seconds by round: a plain save with fsync, writing into a publication, leaving it; ``where`` is the medium."""

    where: str
    saves: tuple[float, ...]
    writing: tuple[float, ...]
    blocked: tuple[float, ...]


def measure_saving(folder: Path, workload: Workload, rounds: int, where: str, say: Say) -> Saving:
    """Save the same bytes both ways, in turn, on the medium of ``folder``."""
    saves, writing, blocked = [], [], []
    for number in range(rounds):
        place = Place(folder=folder / f"saving-{number}", workload=workload)
        place.folder.mkdir(parents=True)
        try:
            shape = asdict(workload)
            plain = place.ours("save", workload=shape, target=str(place.folder / "plain"))
            shutil.rmtree(place.folder / "plain")
            deferred = place.ours("defer", workload=shape, store=str(place.store))
        finally:
            place.clear()
        saves.append(plain.figure.compared_wall)
        blocked.append(deferred.figure.compared_wall)
        writing.append(float(deferred.marks["writing"]))
        say(f"  saving, {where}: {saves[-1]:.2f} s with fsync; deferred {writing[-1]:.2f} + {blocked[-1]:.3f} s")
    return Saving(where=where, saves=tuple(saves), writing=tuple(writing), blocked=tuple(blocked))


def saving_findings(found: Saving) -> list[Finding]:
    """Hold it against the target."""
    value = ratio(found.blocked, found.saves)
    blocked, saved, written = map(statistics.median, (found.blocked, found.saves, found.writing))
    return [
        Finding(
            target=f"publish after the last byte, deferred seal, {found.where}",
            bound=f"≤ {BLOCKED:.0%} of a save",
            shown=f"{value:.1%}",
            verdict=verdict(value, BLOCKED, digits=3),
            beside=f"{blocked:.3f} of {saved:.2f} s; written in {written:.2f} s",
        )
    ]
