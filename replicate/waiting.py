"""``ckptier wait``: return once a generation is provably on the tiers.

Reads what the replicating process writes down, which is never ahead of a tier's log, so
that waiting costs no request.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from replicate.config import Config, TierConfig
from replicate.errors import IntegrityFailure, NothingFound, PartialFailure, Unreachable
from replicate.generation.evidence import Level
from replicate.generation.local import load_generation, scan_generations
from replicate.generation.staging import STAGED
from replicate.layout import GenerationId, LocalRun
from replicate.liveness import is_replicating, last_view
from replicate.plan import is_milestone
from replicate.preview import local_fact
from replicate.statusfile import StatusFile
from tiers.clock import Clock

_log = logging.getLogger(__name__)

POLL = 0.25
_START = "start `ckptier replicate`, or run `ckptier replicate --once`"


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitReport:
    """What was waited for.  ``not_due`` tiers take milestones only, and this is none."""

    generation: GenerationId
    tiers: tuple[str, ...]
    not_due: tuple[str, ...]
    waited_milliseconds: int


def wait_for(
    config: Config,
    tiers: Sequence[TierConfig],
    generation: GenerationId | None,
    *,
    timeout: float | None,
    clock: Clock,
) -> WaitReport:
    """Wait for ``generation`` (None: the newest sealed now) on ``tiers``, at most ``timeout`` seconds.

    Raises NothingFound, IntegrityFailure for a quarantined one, PartialFailure where nobody
    replicates the store, and Unreachable after the timeout, saying what stands in the way.
    """
    began = clock.monotonic()
    wanted = generation or _newest(config.local, clock, began, timeout)
    due, not_due = _due(config, tiers, wanted)
    urls = {tier.name: tier.url for tier in tiers}
    while True:
        alive = is_replicating(config.local)  # asked first: what a process that has ended wrote is then final
        status = last_view(config.local)
        missing = [name for name in due if not _held(status, name, urls[name], wanted)]
        if not missing:
            waited = round((clock.monotonic() - began) * 1000)
            return WaitReport(generation=wanted, tiers=tuple(due), not_due=tuple(not_due), waited_milliseconds=waited)
        _refuse_hopeless(config.local, wanted, missing, status, alive=alive)
        if timeout is not None and clock.monotonic() - began >= timeout:
            raise Unreachable(
                f"{wanted} is not on {', '.join(missing)} after {timeout:g} s: {_why(status, missing)}",
                hint="`ckptier status` shows what is under way; wait longer with --timeout",
            )
        clock.wait(POLL)


def _newest(local: LocalRun, clock: Clock, began: float, timeout: float | None) -> GenerationId:
    """Return the newest sealed generation, once what is staged is sealed too: that is newer, and still at risk."""
    while staged := next(local.root.glob(f"{STAGED}*"), None):
        if not is_replicating(local):
            raise PartialFailure(f"{staged.name} is not sealed yet, and no process replicates this store", hint=_START)
        if timeout is not None and clock.monotonic() - began >= timeout:
            raise Unreachable(
                f"{staged.name} is not sealed after {timeout:g} s",
                hint="a large one takes as long as reading it; wait longer with --timeout, or look at the daemon's log",
            )
        clock.wait(POLL)
    found = scan_generations(local) if local.root.is_dir() else ()
    if not found:
        raise NothingFound(
            f"{local.root} holds no generation to wait for",
            hint="publish one first; on a new machine, `ckptier restore`",
        )
    return found[0].id


def _due(config: Config, tiers: Sequence[TierConfig], wanted: GenerationId) -> tuple[list[str], list[str]]:
    known = {one.id: local_fact(one) for one in scan_generations(config.local)}
    due: list[str] = []
    not_due: list[str] = []
    for tier in tiers:
        fact = known.get(wanted)
        every = tier.replicate_every
        goes = every is None or fact is None or is_milestone(fact, every, known)
        (due if goes else not_due).append(tier.name)
    return due, not_due


def _held(status: StatusFile | None, tier: str, url: str, wanted: GenerationId) -> bool:
    """Whether the tier has it, at the place that it is configured at now."""
    tiers = status.tiers if status else ()
    return any((one.name, one.url) == (tier, url) and str(wanted) in one.held for one in tiers)


def _refuse_hopeless(
    local: LocalRun, wanted: GenerationId, missing: list[str], status: StatusFile | None, *, alive: bool
) -> None:
    found = load_generation(local, wanted)
    if found.level is Level.QUARANTINED:
        reason = found.evidence.reason if found.evidence else ""
        raise IntegrityFailure(f"{wanted} is quarantined and will not be replicated: {reason}", hint="publish again")
    if not alive:
        raise PartialFailure(
            f"{wanted} is not on {', '.join(missing)}, and no process replicates this store: {_why(status, missing)}",
            hint=_way_on(status, missing),
        )


def _why(status: StatusFile | None, missing: list[str]) -> str:
    reasons = [
        f"{tier.name}: {tier.failure.message.removeprefix(f'{tier.name}: ')}"
        if tier.failure
        else f"{tier.name}: under way"
        for tier in (status.tiers if status else ())
        if tier.name in missing and (tier.failure or tier.under_way)
    ]
    return "; ".join(reasons) or "nothing has failed so far"


def _way_on(status: StatusFile | None, missing: list[str]) -> str:
    """Return what to do first: where a pass failed, the next one would fail alike until that is put right."""
    hints = [
        tier.failure.hint
        for tier in (status.tiers if status else ())
        if tier.name in missing and tier.failure and tier.failure.hint
    ]
    return f"{hints[0]}; then {_START}" if hints else _START
