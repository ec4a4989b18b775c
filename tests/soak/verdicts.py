"""What a soak may say, and when; pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Verdict(StrEnum):
    """What became of a round, or of a soak."""

    PASSED = "passed"
    FAILED = "failed"
    ABORTED = "aborted"
    INCONCLUSIVE = "inconclusive"

    @property
    def exit_code(self) -> int:
        """0 passed, 1 failed, 2 aborted, 3 inconclusive."""
        return list(Verdict).index(self)


class ProductError(AssertionError):
    """What ckptier did is not what it promises."""


class HarnessError(Exception):
    """The soak itself could not do what it wanted: that says nothing about ckptier."""


class NotFiredError(Exception):
    """The fault of a round never happened: that it passed proves nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round: what was done to which place, what came of it, and how long it took."""

    number: int
    fault: str
    place: str
    verdict: Verdict
    detail: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A whole soak.  ``trouble`` is what went wrong outside the rounds."""

    seed: int
    rounds: tuple[Round, ...]
    seconds: float
    figures: dict[str, int]
    trouble: str = ""
    failures: tuple[str, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The worst of all rounds; a failure counts even where the harness got into trouble as well."""
        return total([one.verdict for one in self.rounds], trouble=self.trouble, failures=self.failures)

    @property
    def document(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {
            "verdict": str(self.verdict),
            "seed": self.seed,
            "seconds": round(self.seconds, 3),
            "rounds": [asdict(one) for one in self.rounds],
            "fired": fired(self.rounds),
            "figures": self.figures,
            "trouble": self.trouble,
            "failures": list(self.failures),
        }


def judge(error: BaseException | None, product: tuple[type[BaseException], ...] = ()) -> tuple[Verdict, str]:
    """Return the verdict over one round from what it raised; ``product``: errors that are ckptier's own."""
    if error is None:
        return Verdict.PASSED, ""
    detail = f"{type(error).__name__}: {error}"
    if isinstance(error, NotFiredError):
        return Verdict.INCONCLUSIVE, detail
    if isinstance(error, (AssertionError, *product)):
        return Verdict.FAILED, detail
    return Verdict.ABORTED, detail


def total(verdicts: Sequence[Verdict], *, trouble: str = "", failures: Sequence[str] = ()) -> Verdict:
    """Return the verdict over a soak: nothing that was tried passes nothing."""
    if Verdict.FAILED in verdicts or failures:
        return Verdict.FAILED
    if trouble or Verdict.ABORTED in verdicts:
        return Verdict.ABORTED
    if not verdicts or Verdict.INCONCLUSIVE in verdicts:
        return Verdict.INCONCLUSIVE
    return Verdict.PASSED


def fired(rounds: Iterable[Round]) -> dict[str, int]:
    """Count the rounds of each fault in which it happened."""
    counted = Counter(one.fault for one in rounds if one.verdict in (Verdict.PASSED, Verdict.FAILED))
    return dict(sorted(counted.items()))
