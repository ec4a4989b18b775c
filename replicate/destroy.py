"""Removing a whole run from a tier: everything below its name, the log last.

First every generation is retired, so that at each moment what the log still says to exist
does exist.  Then all objects go, then the log from its first slot on: what is left of it
always has the retirements that end its commits.  A process that died in between is
followed by another one, which goes on.
"""

from collections.abc import Callable
from dataclasses import dataclass

from replicate.layout import RemoteRun
from replicate.log import Body, LogState, LogView, Retire, Unpin
from replicate.logwriter import LogWriter
from replicate.prune import delete_under
from replicate.terms import Descent
from tiers.protocol import Tier, walk

REASON = "the whole run is destroyed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rubble:
    """What lies below a run's name on a tier, or was deleted there."""

    tier: str
    generations: int
    objects: int
    total_bytes: int
    log_entries: int


def survey_run(tier: Tier, remote: RemoteRun, view: LogView) -> Rubble:
    """Count everything below the run's name."""
    infos = list(walk(tier, f"{remote.run}/"))
    return Rubble(
        tier=tier.name,
        generations=len(view.live),
        objects=len(infos),
        total_bytes=sum(info.size for info in infos),
        log_entries=sum(1 for info in infos if info.key.startswith(remote.log_prefix)),
    )


def retire_everything(log: LogWriter, descent: Descent) -> int:
    """Take every live commit back, pins included; returns how many.  The term has to be held.

    Raises Fenced, TierError, IntegrityFailure.
    """

    def wanted() -> tuple[int, Body] | None:
        body = _next(log.state)
        return None if body is None else (log.held_term(descent), body)

    count = 0
    while (entry := log.append_decided(descent, wanted)) is not None:
        count += isinstance(entry.body, Retire)
    log.reconcile()
    return count


def _next(state: LogState | None) -> Body | None:
    """Return the entry that is due next: pins go first, since what is pinned cannot be retired."""
    if state is None or not state.live:
        return None
    if state.pins:
        return Unpin(generation=state.pins[0])
    oldest = min(state.live, key=lambda commit: commit.id)
    return Retire(generation=oldest.generation, manifest_key=oldest.manifest_key, reason=REASON)


def raze(
    tier: Tier, remote: RemoteRun, *, connections: int = 4, interrupted: Callable[[], bool] = lambda: False
) -> bool:
    """Delete everything below the run's name, the log last and from its first slot on; False where interrupted.

    Raises TierError.  The caller has retired what was live.
    """
    for prefix in _below(tier, remote):
        if delete_under(tier, prefix, connections=connections, interrupted=interrupted) is None:
            return False
    tier.delete(remote.head)
    for info in list(walk(tier, remote.log_prefix)):
        if interrupted():
            return False
        tier.delete(info.key)
    return delete_under(tier, f"{remote.run}/", connections=connections, interrupted=interrupted) is not None


def _below(tier: Tier, remote: RemoteRun) -> list[str]:
    """Return the folders below the run's name, but for the log's: generations first."""
    root = f"{remote.run}/"
    names = {info.key.removeprefix(root).partition("/")[0] for info in walk(tier, root) if info.key.count("/") > 1}
    others = sorted(f"{root}{name}/" for name in names)
    return [prefix for prefix in others if prefix != remote.log_prefix]
