"""What the release commands show to people, within 80 columns where the content allows it."""

import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path

from replicate.release.authorization import Act, AuthorizationRecord
from replicate.release.authorizing import Authorization
from replicate.release.bundle import Action, ExportManifest
from replicate.release.destination import Destination
from replicate.release.findings import Finding, ScanReport
from replicate.release.history import LogEntry, ReleaseHistory
from replicate.release.policy import Permission, Policy
from replicate.release.preparing import PrepareReport
from replicate.release.publishing.publishing import PublishReport, VisibilityReport, WithdrawReport
from replicate.release.signatures import SignatureStates, signature_states
from replicate.release.verifying.checks import Verdict
from replicate.release.verifying.verifying import VerifyReleaseReport
from tiers.clock import rfc3339

_MARK = {Verdict.PASSED: "ok  ", Verdict.FAILED: "FAIL", Verdict.NOT_DONE: "--  "}
_LABEL = 14
_WIDTH = 80


def render_prepared(report: PrepareReport) -> str:
    """Say what was prepared, what was changed on the way, and what blocks it."""
    lines = [
        _row("prepared", report.prepared.root),
        *manifest_rows(report.manifest),
        *(_row("note", note) for note in report.notes),
        *scan_rows(report.scan),
    ]
    return "\n".join(lines)


def manifest_rows(manifest: ExportManifest) -> Iterator[str]:
    """Yield what a tree is, line by line."""
    actions = [transform.action for transform in manifest.transforms]
    done = ", ".join(f"{actions.count(action)} {action.value}" for action in Action if action in actions)
    yield _row("release", f"{manifest.name} {manifest.version} ({manifest.kind.value}, {manifest.license})")
    yield _row("from", f"{manifest.source.generation}, next update {manifest.source.next_update}")
    size = sum(file.size for file in manifest.files)
    yield _row("files", f"{len(manifest.files)} with {size:,} bytes, and export-manifest.json")
    yield _row("tensors", f"{len(manifest.tensors)}; of the source's entries {done}")
    yield _row("sha256", manifest.sha256)


def scan_rows(report: ScanReport) -> Iterator[str]:
    """Yield what the scan found, the blocking ones first."""
    looked_at = f"({counted(report.files, 'file')}, {counted(report.tensors, 'tensor')} looked at)"
    if not report.blocking:
        yield _row("scan", f"nothing blocks {looked_at}")
    for finding in report.blocking:
        yield _row("BLOCKS", _finding(finding))
    for finding in report.waived:
        yield _row("waived", _finding(finding))


def _finding(finding: Finding) -> str:
    place = f" at {finding.place}" if finding.place else ""
    return f"{finding.rule.value}: {finding.path}{place}: {finding.detail}"


def render_verified(report: VerifyReleaseReport) -> str:
    """Say what came of each check."""
    width = max(len(check.name) for check in report.checks)
    lines = [_hanging(f"{_MARK[check.verdict]} {check.name:<{width}}  ", check.detail) for check in report.checks]
    left = sum(check.verdict is Verdict.NOT_DONE for check in report.checks)
    outcome = f"{counted(len(report.failed), 'check')} failed" if not report.ok else "nothing failed"
    return "\n".join([*lines, f"{outcome}; {left} of {len(report.checks)} checks could not be done"])


def render_authorization(authorization: Authorization, policy: Policy | None, *, file: Path | None = None) -> str:
    """Say what is authorized, in the words that an approver has to read before approving; ``file`` is where it lies."""
    record = authorization.record
    subject = record.subject
    known = signature_states(authorization, policy)
    return "\n".join(
        [
            _row("act", _act(record)),
            _row("release", f"{subject.name} {subject.version}, license {subject.license}"),
            _row("from", subject.source_generation),
            _row("manifest", subject.export_manifest_sha256),
            *destination_rows(record.destination),
            _row("parent", record.expected_parent or _no_parent(record.destination)),
            *(
                _row("waiver", f"{one.rule.value} in {one.path}: {one.reason} ({one.author})")
                for one in subject.waivers
            ),
            _row("statement", record.statement or "none"),
            _row("requester", f"{record.requester}, {rfc3339(record.requested_at)}"),
            _row("", known.requester.value),
            _row("valid", f"{rfc3339(record.not_before)} to {rfc3339(record.expires_at)}"),
            *_approval_rows(authorization, policy, known),
            *(
                _row(label, value)
                for label, value in (("record", authorization.record_sha256), ("file", file))
                if value
            ),
        ]
    )


def _no_parent(destination: Destination) -> str:
    if destination.scheme == "hf":
        return "none: the repository must not exist, or be empty"
    return "none: nothing may be there yet"


def _act(record: AuthorizationRecord) -> str:
    if record.act is Act.SET_VISIBILITY:
        wanted = record.destination
        return f"make commit {record.commit} {wanted.visibility.value}, gating {wanted.gating.value}"
    return "publish"


def destination_rows(destination: Destination) -> Iterator[str]:
    """Yield where it goes and who may see it."""
    yield _row("to", destination.url + (f" at {destination.endpoint}" if destination.endpoint else ""))
    yield _row("visibility", f"{destination.visibility.value}, gating {destination.gating.value}")
    if destination.scheme == "hf":
        yield _row("branch", destination.revision + (f", tag {destination.tag}" if destination.tag else ", no tag"))


def _approval_rows(authorization: Authorization, policy: Policy | None, known: SignatureStates) -> Iterator[str]:
    record = authorization.record
    for signed, state in zip(authorization.approvals, known.approvals, strict=True):
        yield _row("approved", f"{signed.approval.approver}, {rfc3339(signed.approval.approved_at)}")
        yield _row("", state.value)
    solo = "; the requester may approve: one pair of eyes" if record.requester_may_approve else ""
    yield _row("approvals", f"{known.counting} of {record.threshold} needed{solo}")
    if policy is None:
        return
    if policy.sha256 != record.policy_sha256:
        yield _row("POLICY", "is not the one that this record was made under: it has to be authorized again")
    elif known.faultless:
        yield from _next_rows(authorization, policy, known)


def _next_rows(authorization: Authorization, policy: Policy, known: SignatureStates) -> Iterator[str]:
    """Yield who can do something with it now."""
    given = {signed.approval.approver for signed in authorization.approvals}
    open_to = [one.name for one in policy.who_may(Permission.APPROVE) if one.name not in given]
    if known.counting < authorization.record.threshold:
        yield _row("may approve", ", ".join(open_to) or "nobody else: the policy names too few")
    else:
        yield _row("may publish", ", ".join(one.name for one in policy.who_may(Permission.PUBLISH)))


def render_done(report: PublishReport | VisibilityReport) -> str:
    """Say where it is now."""
    rows = [_row("at", report.url), _row("commit", report.commit), _row("log entry", report.entry.slot)]
    if isinstance(report, VisibilityReport):
        return "\n".join([*rows, _row("visibility", f"{report.visibility.value}, gating {report.gating.value}")])
    return "\n".join(
        [*rows, _row("read back", f"{report.read_back} of {report.files} files, {report.total_bytes:,} bytes in all")]
    )


def render_withdrawn(report: WithdrawReport) -> str:
    """Say what is hidden now, and what is not."""
    hidden = report.hidden or "nothing: ckptier does not manage who sees that place; remove it there"
    return "\n".join([_row("withdrawn", report.url), _row("hidden", hidden), _row("log entry", report.entry.slot)])


def render_history(history: ReleaseHistory) -> str:
    """List the release log, oldest first."""
    if not history.logged:
        return "nothing was published under this policy yet"
    return "\n".join(_history_lines(one.entry for one in history.logged))


def _history_lines(entries: Iterable[LogEntry]) -> Iterator[str]:
    for entry in entries:
        what = f"{entry.slot:>4}  {rfc3339(entry.at)}  {entry.kind.value:<18}  {entry.who}"
        yield f"{what}  {entry.url}".rstrip()
        commit = entry.commit if entry.commit != entry.export_manifest_sha256 else ""  # outside of the Hub they are one
        for label, value in (("commit ", commit), ("manifest ", entry.export_manifest_sha256), ("", entry.detail)):
            if value:
                yield _hanging(f"      {label}", value)


def counted(number: int, thing: str) -> str:
    """Return a number and what is counted, as in ``1 check`` and ``2 checks``."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _row(label: str, value: object) -> str:
    return _hanging(f"{label:<{_LABEL}}", value)


def _hanging(label: str, value: object) -> str:
    """Put a text beside its label and below itself; what has no spaces (a digest, a URL) stays in one piece.

    What a terminal would act on, or not show, is spelled out: some of the texts are those of others.
    """
    text = "".join(one if one.isprintable() else ascii(one)[1:-1] for one in " ".join(str(value).split()))
    lines = textwrap.wrap(text, _WIDTH - len(label), break_long_words=False, break_on_hyphens=False)
    return ("\n" + " " * len(label)).join([label + (lines[0] if lines else ""), *lines[1:]])
