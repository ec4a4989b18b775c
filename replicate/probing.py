"""``ckptier check --probe``: try a tier for real, and say what that means."""

import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from urllib.parse import unquote, urlsplit

from replicate.checking import Finding, Grade
from replicate.config import Config, TierConfig
from replicate.errors import ExitCode, from_tier_error
from replicate.layout import new_nonce
from replicate.opening import Opener, open_configured, tier_spec
from replicate.probes import remembered, write_record
from tiers.clock import Clock
from tiers.errors import TierError
from tiers.metered import Meter
from tiers.probing.outcomes import ProbeReport, Subject, Verdict
from tiers.probing.tier_probe import probe_tier
from tiers.protocol import Fencing

SIGNATURE_LIMIT = 900.0
"""Seconds of difference between two clocks after which a store refuses every signature."""
_ABORT_RULE = (
    'add a lifecycle rule {"Status":"Enabled","Filter":{"Prefix":""},"AbortIncompleteMultipartUpload":'
    '{"DaysAfterInitiation":7}}: what a killed upload left is billed until then'
)


def probe_and_remember(
    config: Config, settings: TierConfig, opener: Opener, clock: Clock, stop: threading.Event
) -> tuple[ProbeReport, list[Finding]]:
    """Probe one tier, keep what was found, and return it with what there is to say; raises CkptierError."""
    report = probe_configured(settings, opener, clock, stop)
    report = replace(report, notes=volume_notes(settings, config.local.root))
    write_record(config, settings, report, clock.now())
    return report, probe_findings(report)


def check_remembered(config: Config, settings: TierConfig, now: datetime) -> list[Finding]:
    """Say where an earlier probe is not used any more, and why."""
    unused = remembered(config, settings, now).unused
    if not unused:
        return []
    hint = "run `ckptier check --probe` again; until then the profile is believed"
    return [Finding(place=settings.name, subject="probe", grade=Grade.WARNING, detail=unused, hint=hint)]


def probe_configured(settings: TierConfig, opener: Opener, clock: Clock, stop: threading.Event) -> ProbeReport:
    """Probe one tier; raises CkptierError where not even a small object can be written and read."""
    spec = tier_spec(settings)
    try:
        if settings.url.startswith("s3://"):
            open_configured(settings, opener, clock, Meter(), stop).close()  # bad settings are told as ever
            from tiers.probing.s3_probe import probe_s3  # noqa: PLC0415 - it loads the SDK

            return probe_s3(spec, nonce=new_nonce(), clock=clock)
        tier = open_configured(settings, opener, clock, Meter(), stop)
        try:
            report = probe_tier(
                tier,
                lambda: open_configured(settings, opener, clock, Meter(), stop),
                nonce=new_nonce(),
                store=settings.url,
            )
        finally:
            tier.close()
    except TierError as error:
        raise from_tier_error(error) from error
    return report


def volume_notes(settings: TierConfig, store: Path) -> tuple[str, ...]:
    """Return how a volume is written to and why, and what to know about it; nothing for other kinds."""
    url = urlsplit(settings.url)
    root = Path(unquote(url.path))
    if url.scheme != "file" or not root.is_dir():
        return ()
    from tiers.volume_facts import decide_mode  # noqa: PLC0415 - only for volumes
    from tiers.volume_probe import probe_volume  # noqa: PLC0415 - as above

    decided = decide_mode(probe_volume(root, store=store))
    how = f"written by {decided.mode or 'no way that would be safe'}"
    return (f"{how}: {'; '.join(decided.reasons)}", *decided.advice)


def probe_findings(report: ProbeReport) -> list[Finding]:
    """Return what a probe has to say to the user, other than that all is well."""
    return [*_failures(report), *_warnings(report)]


def _failures(report: ProbeReport) -> Iterator[Finding]:
    broken = (Subject.ROUND_TRIP, Subject.RANGES, Subject.LIST_PAGES, Subject.ABORT)
    for subject in broken:
        outcome = report.outcome(subject)
        if outcome is not None and outcome.verdict is Verdict.NO:
            yield Finding(
                place=report.tier,
                subject=subject,
                grade=Grade.FAILED,
                detail=outcome.evidence,
                hint="this store does not do what every tier needs: take another one",
                exit_code=ExitCode.CAPABILITY,
            )
    if report.clock is not None and report.clock.off > SIGNATURE_LIMIT:
        outcome = report.outcome(Subject.CLOCK)
        yield Finding(
            place=report.tier,
            subject="clock",
            grade=Grade.FAILED,
            detail=outcome.evidence if outcome else "",
            hint="synchronise this machine's clock: signatures are good for 15 minutes",
            exit_code=ExitCode.DENIED,
        )


def _warnings(report: ProbeReport) -> Iterator[Finding]:
    if report.fencing is Fencing.ADVISORY:
        detail = "a second writer could replace what the first committed: this store does not keep writers apart"
        hint = "make sure that only one machine writes, and say accept_advisory = true; else `replicate` refuses"
        yield _warning(report, "writers", detail, hint)
    for found in report.contradictions:
        said = f"as profile {report.profile} says" if report.profile else "as was believed"
        if found.worse:
            yield _warning(report, "profile", f"{found}, {said}", "nothing: what was found is used from now on")
        else:
            yield Finding(place=report.tier, subject="profile", grade=Grade.OK, detail=f"{found}, {said}")
    conditional = (
        (Subject.LIFECYCLE, Verdict.NO, _ABORT_RULE),
        (
            Subject.VERSIONING,
            Verdict.YES,
            "add a lifecycle rule NoncurrentVersionExpiration, or what prune deletes goes on being billed",
        ),
        (Subject.DELETE, Verdict.NO, "that is right for a writer; give the collector another key"),
        (Subject.CLOCK, Verdict.NO, "synchronise this machine's clock (chrony, ntp)"),
    )
    for subject, bad, hint in conditional:
        outcome = report.outcome(subject)
        if outcome is not None and outcome.verdict is bad:
            yield _warning(report, subject, outcome.evidence, hint)
    if report.leftovers:
        yield _warning(
            report,
            "scratch",
            f"{len(report.leftovers)} small objects stay under {report.scratch}",
            "delete them with a key that may",
        )


def _warning(report: ProbeReport, subject: str, detail: str, hint: str) -> Finding:
    return Finding(place=report.tier, subject=subject, grade=Grade.WARNING, detail=detail, hint=hint)
