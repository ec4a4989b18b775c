"""Results as text for people: what matters first, at most 80 columns where ids allow.

Every function turns a report into a string and decides nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from replicate.checking import CheckReport, Grade
from replicate.copyplan import Copied, CopyOutcome, CopyReport
from replicate.errors import CkptierError, ExitCode, TrustFailure
from replicate.explaining import Explanation
from replicate.layout import GenerationId
from replicate.logbook import name_slots
from replicate.manifest import GenerationRecord
from replicate.outcomes import ReplicateReport
from replicate.plan import Choice
from replicate.preview import TierPreview
from replicate.priced import money_lines
from replicate.probetable import probe_table
from replicate.progress import human_bytes
from replicate.rehearsing.telling import told_rehearsal
from replicate.restore import Outcome, RestoreReport
from replicate.status import Known, Listed, Mark, RunStatus, Safety, TierView
from replicate.statusfile import StatusFile


def age(at: str | None, now: datetime) -> str:
    """Write how long ago an RFC 3339 time was."""
    if at is None:
        return "?"
    seconds = int((now - datetime.fromisoformat(at)).total_seconds())
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{max(0, seconds)} s ago"


def render_check(report: CheckReport) -> str:
    """Show a line per thing that was tried."""
    marks = {Grade.OK: "ok  ", Grade.WARNING: "warn", Grade.FAILED: "FAIL"}
    lines = []
    for finding in report.findings:
        detail = _without(finding.place, finding.detail)
        lines.append(f"{marks[finding.grade]}  {finding.place}: {finding.subject}: {detail}")
        if finding.hint:
            lines.append(f"      next: {finding.hint}")
    lines += [line for probe in report.probes for line in probe_table(probe)]
    failed = sum(finding.grade is Grade.FAILED for finding in report.findings)
    warned = sum(finding.grade is Grade.WARNING for finding in report.findings)
    good = f"works, with {_count(warned, 'warning')}" if warned else "all well"
    lines.append(f"{report.run}: " + (f"{failed} of {len(report.findings)} checks failed" if failed else good))
    return "\n".join(lines)


def preview_exit(previews: Sequence[TierPreview]) -> ExitCode:
    """Return what kept the tiers from being told: theirs where all failed alike, 3 where only some did."""
    codes = {preview.failure.exit_code if preview.failure else ExitCode.OK for preview in previews}
    return codes.pop() if len(codes) == 1 else ExitCode.PARTIAL if codes else ExitCode.OK


def render_preview(previews: Sequence[TierPreview]) -> str:
    """Show what would go up, and what would not and why."""
    lines = []
    for preview in previews:
        lines.append(f"{preview.tier}:")
        if preview.failure is not None:
            lines.append(f"  UNKNOWN: {_without(preview.tier, preview.failure.message)}")
            lines += [f"  next: {preview.failure.hint}"] if preview.failure.hint else []
            continue
        for one in preview.generations:
            what = f"  {one.decision.id}  {one.decision.choice}"
            if one.decision.choice is Choice.UPLOAD:
                size = human_bytes(one.total_bytes)
                lines.append(f"{what}: {size}, {_count(one.objects, 'object')}, {_count(one.requests, 'request')}")
                if one.hashed_again:
                    lines.append(
                        f"    {human_bytes(one.hashed_again)} are hashed again: part_size is not the leaf size"
                    )
            else:
                lines.append(f"{what}: {one.decision.reason}")
        if not preview.generations:
            lines.append("  nothing to do: the store holds no generation")
        lines += [f"  {line}" for line in money_lines(preview.money)] if preview.money else []
    return "\n".join(lines) or "no tier is configured"


def render_replicated(report: ReplicateReport) -> str:
    """Show what became of each tier."""
    lines = []
    for result in report.results:
        if result.failure is not None:
            lines.append(f"{result.tier}: FAILED: {_without(result.tier, result.failure.message)}")
            lines += [f"  next: {result.failure.hint}"] if result.failure.hint else []
        elif result.report is not None:
            done = [str(one.generation) for one in result.report.committed]
            lines += [f"{result.tier}: committed {one}" for one in done]
            lines += [] if done or result.forked else [f"{result.tier}: nothing to do"]
            lines += [f"  QUARANTINED {one}: {reason}" for one, reason in result.report.damaged]
            lines += [f"{result.tier}: FORKED {one.id}: {one.reason}" for one in result.forked]
            if result.forked:
                lines.append("  next: `ckptier restore --generation ID` keeps a line; another run name keeps both")
        else:
            lines.append(f"{result.tier}: stopped; the next start resumes it")
    lines += [f"QUARANTINED {one}: {reason}" for one, reason in report.quarantined.items()]
    return "\n".join(lines)


def render_copied(report: CopyReport) -> str:
    """Show what became of each generation, and first what is wrong."""
    lines = [f"note: {warning}" for warning in report.warnings]
    lines += [_copied_line(report, one) for one in report.generations]
    if not any(one.outcome in (CopyOutcome.COPIED, CopyOutcome.WOULD_COPY) for one in report.generations):
        lines.append("nothing to do" if report.exit_code is ExitCode.OK else "nothing was copied")
    if any(one.outcome is CopyOutcome.SOURCE_DAMAGED for one in report.generations):
        lines.append("  next: `ckptier list` shows which other tier has it; copy it from there")
    if any(one.outcome is CopyOutcome.TARGET_DAMAGED for one in report.generations):
        lines.append(f"  next: restore from {report.source}; a tier under another prefix can take a new copy")
    return "\n".join(lines)


def _copied_line(report: CopyReport, one: Copied) -> str:
    size = f"{human_bytes(one.total_bytes)} in {_count(one.objects, 'object')}"
    match one.outcome:
        case CopyOutcome.COPIED:
            return f"{report.target}: copied {one.generation} ({size}), verified by {', '.join(one.verified_by)}"
        case CopyOutcome.WOULD_COPY:
            asked = f"{_count(one.reads, 'request')} to {report.source}, {one.writes} to {report.target}"
            return f"would copy {one.generation}: {size}, {asked}"
        case CopyOutcome.ALREADY_THERE:
            return f"{one.generation} is on {report.target} already, and intact"
        case CopyOutcome.SOURCE_DAMAGED:
            return f"DAMAGED on {report.source}: {one.generation}: {_without(report.source, one.reason)}"
        case CopyOutcome.TARGET_DAMAGED:
            return f"DAMAGED on {report.target}: {one.generation}: {one.reason}"


def render_restored(report: RestoreReport) -> str:
    """Show what was restored, from where, and what was passed over."""
    lines = [f"note: {warning}" for warning in report.warnings]
    lines += [
        f"passed over {skip.generation or skip.place}: {_skip(skip.place, skip.reason)}" for skip in report.skipped
    ]
    if report.outcome is Outcome.FRESH:
        return "\n".join([*lines, "nothing exists anywhere yet: start afresh"])
    if report.outcome is Outcome.ALREADY_HERE:
        return "\n".join([*lines, f"{report.generation} is in the store already"])
    what = f"{report.generation} ({_count(report.files, 'file')}, {human_bytes(report.total_bytes)}"
    if report.dry_run:
        places = [place.tier for place in report.plan.candidates[0].replicas] if report.plan.candidates else []
        lines.append(f"would restore {what})")
        lines.append(f"  into {report.target}")
        lines.append(f"  from {', then '.join(places) or 'the store itself'}")
        lines += [f"  {one.tier}: {line}" for one in report.money for line in money_lines(one)]
        return "\n".join(lines)
    lines.append(f"restored {what}, every byte verified)")
    lines.append(f"  into {report.target}")
    lines.append(
        f"  from {', '.join(f'{place} ({human_bytes(count)})' for place, count in report.by_place) or 'the store'}"
    )
    if report.fell_back:
        lines.append("  this is NOT the newest: see above for what was passed over and why")
        lines.append("  next: `ckptier verify --read-data 100%`, then `ckptier repair`")
    if report.attempt is not None:
        lines.append(f"  training continues as attempt {report.attempt}")
    return "\n".join(lines)


def _skip(place: str, reason: str) -> str:
    return f"{place}: {reason}" if place not in reason else reason


def _without(place: str, message: str) -> str:
    """Drop the place that a message starts with where the line names it already."""
    return message.removeprefix(f"{place}: ")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


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
        behind = f"{_count(lag.generations, 'generation')}, {_count(lag.updates, 'update')}"
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
        lines.append(f"  FAILING{since}: {_without(tier.tier, tier.error)}")
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
        lines.append(f"! {tier} {told}: {_without(tier, why.message)}")
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
        f"{one.generation}: update {one.next_update}, {_count(one.objects, 'file')}, {human_bytes(one.total_bytes)}"
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
        ahead = f" ({_count(risk.updates, 'update')} at risk)" if risk.updates else ""
        lines.append(f"  {risk.tier + ': ' if risk.tier else ''}{_without(risk.tier, risk.reason)}{ahead}")
        lines += [f"    next: {risk.hint}"] if risk.hint else []
    lines.append(f"  on every tier now: {_name(safety.restart_from)}")
    then = "then" if any(risk.hint for risk in safety.risks) else "next"
    lines.append(f"  {then}: `ckptier wait` where a daemon runs, else `ckptier replicate --once`")
    return "\n".join(lines)


def _name(generation: GenerationId | None) -> str:
    return str(generation) if generation else "nothing"
