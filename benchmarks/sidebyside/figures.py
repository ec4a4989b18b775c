"""What rounds amount to: medians, spreads, ratios and verdicts.  Pure."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

NONE = "\N{EN DASH}"
TIMES = "\N{MULTIPLICATION SIGN}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One child process.  Seconds and MiB; ``operation`` is None for a program that is measured as a whole."""

    wall: float
    cpu: float
    peak_mib: float
    operation_wall: float | None = None
    operation_cpu: float | None = None
    began: float | None = None
    ended: float | None = None

    @property
    def compared_wall(self) -> float:
        """What is compared: the operation where the client says when it began, else the process."""
        return self.wall if self.operation_wall is None else self.operation_wall

    @property
    def compared_cpu(self) -> float:
        """Likewise."""
        return self.cpu if self.operation_cpu is None else self.operation_cpu

    def document(self) -> dict[str, float | None]:
        """Return it for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The middle and both ends of some rounds."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Take at least one value."""
        return cls(median=statistics.median(values), low=min(values), high=max(values))


class Verdict(StrEnum):
    """What became of a target."""

    MET = "met"
    MISSED = "MISSED"
    UNMEASURED = "not measured"


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Return the median of the ratios within each round: what a slow round does to both cancels out."""
    return statistics.median(mine / other for mine, other in zip(ours, theirs, strict=False))


def fastest(peers: Mapping[str, Sequence[float]]) -> str | None:
    """Return the peer with the lowest median; None where there is none."""
    measured = {name: values for name, values in peers.items() if values}
    return min(measured, key=lambda name: statistics.median(measured[name]), default=None)


def verdict(value: float | None, bound: float, *, at_least: bool = False, digits: int = 2) -> Verdict:
    """Compare as the tables show it, with so many digits: what reads as met is met."""
    if value is None:
        return Verdict.UNMEASURED
    shown = round(value, digits)
    return Verdict.MET if (shown >= bound if at_least else shown <= bound) else Verdict.MISSED


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One target beside its figure.  ``shown`` is the figure in words, ``beside`` what it was compared with."""

    target: str
    bound: str
    shown: str
    verdict: Verdict
    beside: str = ""

    def document(self) -> dict[str, str]:
        """Return it for JSON."""
        return {name: str(value) for name, value in asdict(self).items()}


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """Return what a target with several figures comes to."""
    for one in (Verdict.MISSED, Verdict.UNMEASURED):
        if one in verdicts:
            return one
    return Verdict.MET if verdicts else Verdict.UNMEASURED


def disagreements(before: Sequence[Mapping[str, str]], now: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the targets whose verdicts differ between two runs, with both."""
    known = {one["target"]: one["verdict"] for one in before}
    found = {one["target"]: one["verdict"] for one in now}
    return [
        f"{target}: {known.get(target, 'absent')}, then {found.get(target, 'absent')}"
        for target in dict.fromkeys((*known, *found))
        if known.get(target) != found.get(target)
    ]
