"""``ckptier rehearse``: go on from a copy as a restart would, for one update, and write down that it went."""

import json
import re
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from replicate.bounded import Ended
from replicate.config import Config
from replicate.errors import CkptierError, ConfigInvalid, UsageError
from replicate.generation.evidence import Level
from replicate.generation.local import scan_generations
from replicate.generation.proofs import Proof, record_proof
from replicate.generation.rehearsals import Rehearsed, read_rehearsal, record_rehearsal
from replicate.generation.released import MARGIN
from replicate.keeping import Keeping
from replicate.layout import GenerationId
from replicate.log import LiveCommit
from replicate.rehearsing.observations import Reference, Verdict, judge, read_expected
from replicate.rehearsing.plan import RehearsalPlan, plan_rehearsal
from replicate.rehearsing.running import Function, call
from replicate.rehearsing.scratch import scratch
from replicate.restore import RestoreOptions, RestoreReport, RestoreRequest, restore
from replicate.restore.holdings import ask, read_holdings
from tiers.clock import rfc3339

_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_DETAIL = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalRequest:
    """What to rehearse.  ``function`` and ``scratch`` take the place of what is configured.

    Compared with ``expect``, a file of observations, or else with what an earlier rehearsal of
    the generation saw, unless ``compare`` is False.
    """

    generation: GenerationId | None = None
    tier: str | None = None
    function: str | None = None
    scratch: Path | None = None
    expect: Path | None = None
    compare: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalReport:
    """What came of it.  ``output`` is the end of what the function printed, where it failed.

    ``recorded`` is empty, or says why no evidence was written.  ``compared_with`` names what the
    observations were compared with, None where they were not.
    """

    generation: GenerationId
    tier: str
    why: str
    manifest_sha256: str
    function: str
    passed: bool
    reason: str
    observations: Mapping[str, Any] = field(default_factory=dict)
    compared_with: str | None = None
    difference: str | None = None
    total_bytes: int = 0
    restore_milliseconds: int = 0
    milliseconds: int = 0
    output: str = ""
    recorded: str = ""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Restored:
    """Which committed copy lies in the scratch folder now."""

    plan: RehearsalPlan
    commit: LiveCommit
    report: RestoreReport


class Rehearsing(Keeping):
    """The verb over one configuration."""

    def rehearse(self, request: RehearsalRequest) -> RehearsalReport:
        """Restore a committed copy into scratch, call the user's function on it, and record the outcome.

        A function that fails is in the report.  Raises ConfigInvalid where there is none to
        call, UsageError for a scratch folder or expectations that cannot be, and what a
        restore raises.
        """
        function = function_of(self.config, request.function)
        function.require_module()
        expected = read_expected(request.expect) if request.expect is not None else None
        with scratch(self._scratch_parent(request.scratch)) as workspace:
            found = self._restored(request, workspace / "files")
            generation = found.plan.generation
            reference = expected or (self._earlier(generation, function) if request.compare else None)
            started = self.clock.monotonic()
            ended, answer = call(function, workspace / "files", workspace, generation, self.clock)
            milliseconds = round((self.clock.monotonic() - started) * 1000)
        verdict = judge(ended, answer, function.seconds, reference)
        recorded = self._record(found, function, verdict, milliseconds)
        return _report(found, function, verdict, reference, ended, milliseconds, recorded)

    def _scratch_parent(self, named: Path | None) -> Path:
        root = self.config.local.root
        if named is None:
            return root.parent
        if root.resolve() in (named.resolve(), *named.resolve().parents):
            raise UsageError(f"{named} lies in the store of the run", hint="name a folder outside of it with --scratch")
        return named

    def _restored(self, request: RehearsalRequest, target: Path) -> _Restored:
        """Choose a copy and restore it from its tier alone: bytes that lie here prove nothing of those there."""
        chosen = self.config.select(request.tier)
        with ExitStack() as opened:
            tiers = {one.name: opened.enter_context(self.reading(one)) for one in chosen}
            plan = plan_rehearsal(
                ask(list(tiers.values()), self.remote, thorough=True),
                read_holdings(self.config.local).held,
                generation=request.generation,
                tier=request.tier,
            )
            report = restore(
                RestoreRequest(generation=plan.generation, tier=plan.tier, to=target),
                [tiers[plan.tier]],
                self.config.local,
                self.clock,
                remote=self.remote,
                options=RestoreOptions(margin=MARGIN + (0 if request.scratch else self._next_save())),
            )
        commit = report.plan.candidates[0].replicas[0].commit
        return _Restored(plan=plan, commit=commit, report=report)

    def _next_save(self) -> int:
        """Return what the trainer's next save will take of the disk, which a rehearsal must leave to it."""
        if not self.config.local.root.is_dir():
            return 0
        for one in scan_generations(self.config.local):
            try:
                return one.record.total_bytes * 11 // 10
            except CkptierError:
                continue
        return 0

    def _earlier(self, generation: GenerationId, function: Function) -> Reference | None:
        """Return what the last successful rehearsal of the generation by this function saw, on whichever tier."""
        records = [read_rehearsal(self.config.local, generation, tier.name) for tier in self.config.tier]
        passed = [(one.tier, one.passed) for one in records if one is not None and one.passed is not None]
        seen = [(done.at, tier, done) for tier, done in passed if done.function == function.named and done.observed]
        if not seen:
            return None
        at, tier, done = max(seen, key=lambda one: one[0])
        return Reference(what=f"the rehearsal of the copy on {tier} at {at}", observations=done.observed)

    def _record(self, found: _Restored, function: Function, verdict: Verdict, milliseconds: int) -> str:
        """Write the outcome down; returns why that could not be, if so."""
        local, plan, digest = self.config.local, found.plan, found.commit.manifest_sha256
        if not local.root.is_dir():
            return f"there is no store of this run at {local.root}"
        at = rfc3339(self.clock.now())
        observations = json.dumps(verdict.observations)
        rehearsed = Rehearsed(
            at=at,
            function=function.named,
            milliseconds=milliseconds,
            reason=verdict.reason,
            observations=observations,
        )
        proof = Proof(
            generation=str(plan.generation),
            tier=plan.tier,
            manifest_sha256=digest,
            level=Level.REHEARSED,
            at=at,
            detail=f"rehearse {function.named}: {observations}"[:_DETAIL],
        )
        try:
            if verdict.passed:
                record_proof(local, proof)
            # Last: its folder is what a replicating process looks at, and the proof has to be there then.
            record_rehearsal(local, plan.generation, plan.tier, digest, rehearsed, passed=verdict.passed)
        except CkptierError as error:
            return error.message
        return ""


def function_of(config: Config, named: str | None) -> Function:
    """Return the function to call; raises ConfigInvalid where none is named, or none that could be."""
    settings = config.rehearse
    function = named or settings.function
    if function is None:
        kept = config.local_requires == "rehearsed"
        also = ', and local_requires = "rehearsed" keeps every local generation until then' if kept else ""
        raise ConfigInvalid(
            f"no function is configured that could rehearse{also}",
            hint='say function = "package.module:function" under [rehearse], or --function; examples/rehearse has one',
        )
    if not _FUNCTION.fullmatch(function):
        raise ConfigInvalid(f"{function[:80]!r} is no function", hint='write "package.module:function"')
    return Function(
        named=function,
        base=config.base,
        python_path=tuple(str(config.base / path) for path in settings.python_path),
        seconds=settings.timeout_seconds,
        memory_bytes=settings.memory_bytes,
    )


def _report(
    found: _Restored,
    function: Function,
    verdict: Verdict,
    reference: Reference | None,
    ended: Ended,
    milliseconds: int,
    recorded: str,
) -> RehearsalReport:
    difference = verdict.difference
    return RehearsalReport(
        generation=found.plan.generation,
        tier=found.plan.tier,
        why=found.plan.why,
        manifest_sha256=found.commit.manifest_sha256,
        function=function.named,
        passed=verdict.passed,
        reason=verdict.reason,
        observations=verdict.observations,
        compared_with=reference.what if reference is not None else None,
        difference=f"{difference.stage}: {difference.name}" if difference is not None else None,
        total_bytes=found.report.total_bytes,
        restore_milliseconds=found.report.milliseconds,
        milliseconds=milliseconds,
        output="" if verdict.passed else ended.tail,
        recorded=recorded,
        warnings=(*found.plan.warnings, *found.report.warnings),
    )
