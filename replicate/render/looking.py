"""What there is: status, list, show, explain, safe-to-terminate."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from replicate.errors import CkptierError, ExitCode, TrustFailure
from replicate.explaining import Explanation
from replicate.layout import GenerationId
from replicate.logbook import name_slots
from replicate.manifest import GenerationRecord
from replicate.priced import money_lines
from replicate.rehearsing.telling import told_rehearsal
from replicate.render.words import age, count, human_bytes, without
from replicate.status import Known, Listed, Mark, RunStatus, Safety, TierView
from replicate.statusfile import StatusFile


def status_exit(run: RunStatus) -> ExitCode:
    """Return the code for a status: 6 for forks and what is not to be trusted, 3 where a tier takes nothing, else 0."""
    if run.forks or any(view.unrelated or view.untrusted for view in run.tiers):
        return ExitCode.TRUST
    return ExitCode.PARTIAL if any(view.error or view.damaged_slots for view in run.tiers) else ExitCode.OK


def render_status(
    run: RunStatus, view: StatusFile | None, *, replicating: bool, now: datetime, asked: bool = False
) -> str:
    """Show first the one thing that matters: where training would restart."""
    lines = [f"run {run.run}" + (f"  ({run.run_uid[:8]})" if run.run_uid else "")]
    lines += _restart_lines(run, now, asked=asked)
    newest = run.newest_sealed
    if newest is not None:
        lines.append(f"newest local: {newest.generation} ({newest.level}, sealed {age(newest.sealed_at, now)})")
    lines += [f"QUARANTINED {entry.generation}: {entry.reason}" for entry in run.quarantined]
    for fork in run.forks:
        lines.append(f"FORK: {fork}")
    lines.append("")
    money = {one.tier: money_lines(one) for one in run.money}
    for tier in run.tiers:
        lines += [*_tier_lines(tier, now), *(f"  {line}" for line in money.get(tier.tier, ()))]
    lines += [] if run.tiers else ["no tier is configured"]
    lines.append("")
    lines.append(_daemon_line(view, now, replicating=replicating))
    return "\n".join(lines)


def _restart_lines(run: RunStatus, now: datetime, *, asked: bool) -> list[str]:
    doubtful = [tier.tier for tier in run.tiers if tier.untrusted and tier.known_by is Known.TRACKER]
    best = _best(tier for tier in run.tiers if tier.tier not in doubtful) or _best(run.tiers)
    doubted = best is not None and best is not _best(tier for tier in run.tiers if tier.tier not in doubtful)
    gone = "if this machine disappeared now:"
    if best is None:
        return [f"{gone} {_no_restart(run)}"]
    silent = [tier.tier for tier in run.tiers if asked and tier.known_by is not Known.LOG]
    told = f"committed {age(best.at, now)}"
    if silent or doubted:
        why = f"{', '.join(silent)} did not answer" if silent else f"{', '.join(doubtful)}, for the reason below"
        last = f"  last written down: update {best.generation.next_update}, {told}"
        return [f"{gone} NOT KNOWN: {why}", last]
    return [f"{gone} restart from update {best.generation.next_update}", f"  {best.generation}, {told}"]


def _best(tiers: Iterable[TierView]) -> Mark | None:
    marks = [tier.restart for tier in tiers if tier.restart is not None]
    return max(marks, key=lambda mark: mark.generation, default=None)


def _no_restart(run: RunStatus) -> str:
    if any(tier.error for tier in run.tiers):
        return "UNKNOWN, for the reason below"
    if any(tier.hurt for tier in run.tiers):
        return "NO GOOD COPY is known here; `ckptier verify` looks for one"
    if any(tier.known_by is Known.NOTHING for tier in run.tiers):
        return "not known here; `ckptier status --remote` asks"
    if any(tier.damaged_slots for tier in run.tiers):
        return "NOTHING that can be read in the logs: see below"
    return "NOTHING is on any tier yet"


def _tier_lines(tier: TierView, now: datetime) -> list[str]:
    if tier.newest is None:
        words = "nothing committed by this store so far" if tier.error else "nothing committed"
        lines = [f"{tier.tier}: {'not asked' if tier.known_by is Known.NOTHING and not tier.error else words}"]
    else:
        lines = [f"{tier.tier}: {tier.newest.generation} in slot {tier.newest.slot}, {age(tier.newest.at, now)}"]
    if tier.lag and tier.lag.generations:
        lag = tier.lag
        behind = f"{count(lag.generations, 'generation')}, {count(lag.updates, 'update')}"
        lines.append(f"  behind by {behind}, {human_bytes(lag.bytes)}")
    if tier.under_way:
        share = 100 * tier.under_way.done_bytes // max(1, tier.under_way.total_bytes)
        lines.append(f"  uploading {tier.under_way.generation}: {share}% of {human_bytes(tier.under_way.total_bytes)}")
    if tier.skipped:
        lines.append(f"  {tier.skipped} superseded while they waited")
    lines += _damage_lines(tier)
    if tier.unrelated:
        lines.append("  HOLDS ANOTHER RUN of this name")
    if tier.error:
        since = f" (since {age(tier.failing_since, now)})" if tier.failing_since else ""
        lines.append(f"  FAILING{since}: {without(tier.tier, tier.error)}")
        lines += [f"  next: {tier.hint}"] if tier.hint else []
    return lines


def _damage_lines(tier: TierView) -> list[str]:
    lines = [f"  HURT: the copy of {one}" for one in tier.hurt]
    damaged = [slot for slot in tier.damaged_slots if slot not in tier.untrusted_slots]
    lines += [f"  DAMAGED log slots: {', '.join(map(str, damaged))}"] if damaged else []
    untrusted = ", ".join(map(str, tier.untrusted_slots))
    lines += [f"  NOT TRUSTED log slots: {untrusted}"] if untrusted else []
    return [*lines, f"  next: `ckptier verify --tier {tier.tier}` says what still works"] if lines else []


def _daemon_line(view: StatusFile | None, now: datetime, *, replicating: bool) -> str:
    if replicating and view is not None:
        return f"replicating: pid {view.pid} on {view.host}, {view.phase}, as of {age(view.updated_at, now)}"
    last = f"; what is shown was written {age(view.updated_at, now)}" if view else ""
    return f"NOT replicating: no process runs on this store{last}"


def render_list(
    listed: Sequence[Listed],
    unanswered: Mapping[str, CkptierError],
    damaged: Mapping[str, Sequence[int]] | None = None,
) -> str:
    """Show a line per generation, newest first, and then what may hide more."""
    lines = []
    for one in listed:
        places = ", ".join(f"{place.place} {place.level}{' pinned' if place.pinned else ''}" for place in one.places)
        mark = "*" if one.newest else " "
        lines.append(f"{mark} {one.generation}  {human_bytes(one.total_bytes):>10}  {places}")
    for tier, why in unanswered.items():
        told = "is not to be trusted" if isinstance(why, TrustFailure) else "did not answer"
        lines.append(f"! {tier} {told}: {without(tier, why.message)}")
        lines += [f"  next: {why.hint}"] if why.hint else []
    for tier, slots in (damaged or {}).items():
        words = f"{name_slots(slots)} damaged or not trusted: what was committed there is not shown"
        lines += [f"! {tier}: {words}", f"  next: `ckptier verify --tier {tier}` says what still works"]
    return "\n".join(lines) or "no generation anywhere"


def render_shown(record: GenerationRecord) -> str:
    """All that generation.json says, one thing a line."""
    lines = [
        f"{record.id}",
        f"  run {record.run} ({record.run_uid}), attempt {record.attempt} ({record.attempt_id})",
        f"  next update {record.next_update}, tokens seen {record.tokens_seen}, parent {record.parent or 'none'}",
        f"  payload {record.payload}, sealed {record.sealed_at}, saving took {record.save_milliseconds} ms",
    ]
    lines += [f"  contract {key} = {value}" for key, value in sorted(record.contract.items())]
    lines += [f"  environment {key} = {value}" for key, value in sorted(record.environment.items())]
    lines += [f"  {file.sha256[:16]}  {human_bytes(file.size):>10}  {file.path}" for file in record.files]
    lines += [f"  {'':16}  {'empty dir':>10}  {path}/" for path in record.directories]
    return "\n".join(lines)


def render_explained(found: Explanation) -> str:
    """One generation in sentences."""
    one = found.listed
    lines = [
        f"{one.generation}: update {one.next_update}, {count(one.objects, 'file')}, {human_bytes(one.total_bytes)}"
    ]
    lines.append(f"  {found.newest_because}")
    for place in one.places:
        slot = f", log slot {place.slot}" if place.slot is not None else ""
        note = f": {place.note}" if place.note not in ("", place.level) else ""
        pinned = ", pinned" if place.pinned else ""
        lines.append(f"  on {place.place}: {place.level}{slot}, {place.at or '?'}{pinned}{note}")
    if found.lineage:
        lines.append("  descends from " + " <- ".join(step.generation for step in found.lineage[:4]))
    lines += [f"  {words}" for record in found.rehearsals for words in told_rehearsal(record)]
    lines.append("  restored now:")
    lines += [f"    {words}" for words in found.when_restored]
    lines += [f"  {tier} did not answer and may know more" for tier in found.unanswered]
    lines += [f"  anchor of {tier}: {anchor}" for tier, anchor in found.anchors]
    if found.exposed:
        lines.append("  somebody with this bucket's keys could still:")
        lines += [f"    {words}" for words in found.exposed]
    return "\n".join(lines)


def render_safety(safety: Safety, store: Path) -> str:
    """Say whether the machine may go."""
    if safety.safe:
        what = (
            f"{safety.newest} is committed on every tier asked" if safety.newest else f"nothing was sealed in {store}"
        )
        lines = [f"safe: {what}"]
        if safety.newest and safety.silent:
            lines.append(f"  {', '.join(safety.silent)} did not answer now: it was committed there before")
        return "\n".join(lines)
    what = f" with {safety.newest}" if safety.newest else ""
    lines = [f"NOT safe to terminate{what}:"]
    for risk in safety.risks:
        ahead = f" ({count(risk.updates, 'update')} at risk)" if risk.updates else ""
        lines.append(f"  {risk.tier + ': ' if risk.tier else ''}{without(risk.tier, risk.reason)}{ahead}")
        lines += [f"    next: {risk.hint}"] if risk.hint else []
    lines.append(f"  on every tier now: {_name(safety.restart_from)}")
    then = "then" if any(risk.hint for risk in safety.risks) else "next"
    lines.append(f"  {then}: `ckptier wait` where a daemon runs, else `ckptier replicate --once`")
    return "\n".join(lines)


def _name(generation: GenerationId | None) -> str:
    return str(generation) if generation else "nothing"
