"""The record of a probe: kept beside the tracker, used whenever the tier is opened, until it no longer fits.

``<state>/probes/<tier>.json``.  A record that is of another place, of another profile or
too old is not used, and whoever opens the tier is told why.
"""

import os
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib import metadata
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from replicate import canonical
from replicate.config import Config, TierConfig
from replicate.errors import CkptierError
from replicate.generation.disk import make_directory, read_document, write_durably
from replicate.manifest import Record, Text, parse
from tiers.clock import rfc3339
from tiers.probing.facts import ProbeFacts
from tiers.probing.outcomes import ProbeReport
from tiers.protocol import Fencing, Verification

MAX_AGE = timedelta(days=90)
"""Stores change: what was found longer ago is not relied on."""
MAX_RECORD_BYTES = 256 * 1024
_SDKS = ("boto3", "botocore", "urllib3", "fsspec", "huggingface_hub")


class RecordedOutcome(Record):
    """One thing that was tried."""

    subject: Text
    verdict: Text
    evidence: Text


class ProbeRecord(Record):
    """What one probe found, where, when and with what."""

    format: Literal[1] = 1
    tier: Text
    at: Text
    url: Text
    endpoint: Text
    named_profile: Text | None = None
    profile: Text
    ckptier: Text
    sdks: dict[str, str]
    fencing: Annotated[Fencing, Field(strict=False)] | None = None
    verification: Annotated[Verification, Field(strict=False)] | None = None
    checks_sha256: bool | None = None
    checks_payload_hash: bool | None = None
    copy_part: bool | None = None
    copy_object: bool | None = None
    sorted_listing: bool | None = None
    outcomes: Annotated[tuple[RecordedOutcome, ...], Field(strict=False)] = ()
    contradictions: Annotated[tuple[str, ...], Field(strict=False)] = ()

    @property
    def facts(self) -> ProbeFacts:
        """Return what changes how the tier is used."""
        return ProbeFacts(
            fencing=self.fencing,
            verification=self.verification,
            checks_sha256=self.checks_sha256,
            checks_payload_hash=self.checks_payload_hash,
            copy_part=self.copy_part,
            copy=self.copy_object,
            sorted_listing=self.sorted_listing,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Remembered:
    """What is known from an earlier probe; where ``facts`` is None, ``unused`` says why (empty: there was none)."""

    facts: ProbeFacts | None = None
    at: str = ""
    unused: str = ""


def record_path(config: Config, tier: str) -> Path:
    """Return where a tier's record lies."""
    return config.state / "probes" / f"{tier}.json"


def write_record(config: Config, settings: TierConfig, report: ProbeReport, now: datetime) -> ProbeRecord:
    """Keep what a probe found, in place of an earlier record; raises LocalDisk."""
    record = ProbeRecord(
        tier=settings.name,
        at=rfc3339(now),
        url=settings.url,
        endpoint=_endpoint(settings),
        named_profile=settings.profile,
        profile=report.profile,
        ckptier=_version("ckptier"),
        sdks={name: found for name in _SDKS if (found := _version(name))},
        fencing=report.facts.fencing,
        verification=report.facts.verification,
        checks_sha256=report.facts.checks_sha256,
        checks_payload_hash=report.facts.checks_payload_hash,
        copy_part=report.facts.copy_part,
        copy_object=report.facts.copy,
        sorted_listing=report.facts.sorted_listing,
        outcomes=tuple(
            RecordedOutcome(subject=one.subject, verdict=one.verdict, evidence=one.evidence) for one in report.outcomes
        ),
        contradictions=tuple(str(one) for one in report.contradictions),
    )
    path = record_path(config, settings.name)
    make_directory(path.parent)
    write_durably(path, canonical.dump(record.model_dump(mode="json")) + b"\n")
    return record


def remembered(config: Config, settings: TierConfig, now: datetime) -> Remembered:
    """Return what an earlier probe of this very tier found; a record that cannot be used says why."""
    try:
        data = read_document(record_path(config, settings.name), MAX_RECORD_BYTES)
        if data is None:
            return Remembered()
        record = parse(ProbeRecord, data, what="the probe record", max_bytes=MAX_RECORD_BYTES)
        found_at = datetime.fromisoformat(record.at)
    except (CkptierError, ValueError) as error:
        return Remembered(unused=f"the probe record cannot be used: {error}")
    unused = _why_unused(record, settings, now - found_at)
    return Remembered(facts=None if unused else record.facts, at=record.at, unused=unused)


def _why_unused(record: ProbeRecord, settings: TierConfig, age: timedelta) -> str:
    now = (settings.url, _endpoint(settings), settings.profile)
    then = (record.url, record.endpoint, record.named_profile)
    for name, here, there in zip(("url", "endpoint", "profile"), now, then, strict=True):
        if here != there:
            return f"the probe of {record.at[:10]} was with {name} {there or 'none'}, now it is {here or 'none'}"
    if not timedelta() - timedelta(days=1) <= age <= MAX_AGE:
        return f"the probe of {record.at[:10]} is {age.days} days old, more than {MAX_AGE.days}"
    return ""


def _endpoint(settings: TierConfig) -> str:
    """Return the endpoint as the S3 tier would choose it."""
    if not settings.url.startswith("s3://"):
        return ""
    named = (settings.endpoint_url, os.environ.get("AWS_ENDPOINT_URL_S3"), os.environ.get("AWS_ENDPOINT_URL"))
    return next((url for url in named if url), "")


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return ""
