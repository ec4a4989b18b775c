"""What a pass over the tiers came to, and the one exit code that says it."""

from collections.abc import Iterable
from dataclasses import dataclass

from replicate.commit import Committed, PassReport
from replicate.errors import CkptierError, ExitCode
from replicate.layout import GenerationId
from replicate.plan import Choice, Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class TierResult:
    """What one pass over one tier came to: a report, or the failure (None with no report: it was stopped)."""

    tier: str
    report: PassReport | None = None
    failure: CkptierError | None = None

    @property
    def pending(self) -> int:
        """How many generations still wait for this tier."""
        if self.report is None:
            return 1
        wanted = sum(1 for decision in self.report.decisions if decision.choice is Choice.UPLOAD)
        return wanted - len(self.report.committed) - len(self.report.damaged)

    @property
    def forked(self) -> tuple[Decision, ...]:
        """Generations that are kept off this tier because it holds another line of their attempt."""
        decisions = self.report.decisions if self.report else ()
        return tuple(decision for decision in decisions if decision.choice is Choice.FORKED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicateReport:
    """What ``replicate --once`` did."""

    run: str
    results: tuple[TierResult, ...]
    quarantined: dict[GenerationId, str]
    unsealed: str | None = None

    @property
    def committed(self) -> tuple[tuple[str, Committed], ...]:
        """(tier, generation) of everything that was committed."""
        return tuple((result.tier, one) for result in self.results if result.report for one in result.report.committed)

    @property
    def exit_code(self) -> ExitCode:
        """One code for all tiers: theirs where all failed alike, 3 where only some failed."""
        return combined_exit(self.results, quarantined=bool(self.quarantined or self.unsealed))


def combined_exit(results: Iterable[TierResult], *, quarantined: bool) -> ExitCode:
    """Fold the tiers' outcomes into one exit code."""
    results = tuple(results)
    codes = [result.failure.exit_code for result in results if result.failure is not None]
    if len(codes) == len(results) and len(set(codes)) == 1:
        return codes[0]
    if ExitCode.FENCED in codes:
        return ExitCode.FENCED
    if any(result.forked for result in results):
        return ExitCode.TRUST
    if codes:
        return ExitCode.PARTIAL
    if quarantined or any(result.report and result.report.damaged for result in results):
        return ExitCode.INTEGRITY
    return ExitCode.OK
