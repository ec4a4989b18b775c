"""The record of a probe: used for the very same tier, for 90 days, and never silently otherwise."""

import json
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from replicate.config import Config, TierConfig
from replicate.layout import run_name
from replicate.opening import default_opener, open_configured, probed_opener
from replicate.probes import MAX_AGE, record_path, remembered, write_record
from tiers.clock import SystemClock
from tiers.metered import Meter
from tiers.opening import TierSpec
from tiers.probing.facts import ProbeFacts
from tiers.probing.outcomes import Contradiction, ProbeReport, Subject, yes
from tiers.protocol import Fencing, Tier, Verification

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
FACTS = ProbeFacts(
    fencing=Fencing.CAS,
    verification=Verification.STORE_SHA256,
    checks_sha256=True,
    checks_payload_hash=False,
    copy_part=True,
    copy=True,
    sorted_listing=False,
)
REPORT = ProbeReport(
    tier="bucket",
    store="b at x",
    profile="generic-s3",
    scratch=".ckptier-probe/n/",
    outcomes=(yes(Subject.ROUND_TRIP, "1024 bytes"),),
    facts=FACTS,
    fencing=Fencing.CAS,
    verification=Verification.STORE_SHA256,
    contradictions=(Contradiction(what="writers:", believed="advisory", found="cas", worse=False),),
)
TIER = TierConfig(name="bucket", url="s3://bucket/prefix", endpoint_url="https://store.example")


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(run=run_name("toy"), store=str(tmp_path / "runs"), tier=(TIER,))


def test_what_was_written_is_remembered(config: Config) -> None:
    write_record(config, TIER, REPORT, NOW)
    found = remembered(config, TIER, NOW + timedelta(days=1))
    assert (found.facts, found.unused, found.at) == (FACTS, "", "2026-11-30T12:00:00.000Z")


def test_the_record_says_where_when_and_with_what(config: Config) -> None:
    write_record(config, TIER, REPORT, NOW)
    path = record_path(config, "bucket")
    assert path == config.state / "probes" / "bucket.json"
    record = json.loads(path.read_text())
    assert (record["url"], record["endpoint"]) == ("s3://bucket/prefix", "https://store.example")
    assert (record["profile"], record["named_profile"], record["at"]) == (
        "generic-s3",
        None,
        "2026-11-30T12:00:00.000Z",
    )
    assert record["ckptier"]
    assert record["sdks"]["boto3"]
    assert record["outcomes"] == [{"subject": "round-trip", "verdict": "yes", "evidence": "1024 bytes"}]
    assert record["contradictions"] == ["writers: cas, not advisory"]


def test_no_record_is_no_news(config: Config) -> None:
    found = remembered(config, TIER, NOW)
    assert (found.facts, found.unused) == (None, "")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"url": "s3://other/prefix"}, "was with url s3://bucket/prefix, now it is s3://other/prefix"),
        ({"endpoint_url": "https://elsewhere.example"}, "was with endpoint https://store.example, now"),
        ({"endpoint_url": None}, "now it is none"),
        ({"profile": "r2"}, "was with profile none, now it is r2"),
    ],
)
def test_another_place_was_not_probed(config: Config, change: dict[str, str | None], why: str) -> None:
    write_record(config, TIER, REPORT, NOW)
    found = remembered(config, TIER.model_copy(update=change), NOW)
    assert found.facts is None
    assert why in found.unused


def test_an_endpoint_from_the_environment_counts(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://one.example")
    settings = TIER.model_copy(update={"endpoint_url": None})
    write_record(config, settings, REPORT, NOW)
    assert remembered(config, settings, NOW).facts == FACTS
    monkeypatch.setenv("AWS_ENDPOINT_URL", "https://two.example")
    assert "one.example" in remembered(config, settings, NOW).unused


def test_an_old_probe_is_not_relied_on(config: Config) -> None:
    write_record(config, TIER, REPORT, NOW)
    assert remembered(config, TIER, NOW + MAX_AGE).facts == FACTS
    found = remembered(config, TIER, NOW + MAX_AGE + timedelta(days=1))
    assert found.facts is None
    assert found.unused == "the probe of 2026-11-30 is 91 days old, more than 90"


@pytest.mark.parametrize(
    "damage",
    [b"", b"{}", b'{"format":1}', b"\xff\xfe", b'{"format":2,"tier":"bucket"}', b"x" * 300_000],
    ids=["empty", "bare", "partial", "binary", "newer", "huge"],
)
def test_a_damaged_record_is_told_and_not_used(config: Config, damage: bytes) -> None:
    write_record(config, TIER, REPORT, NOW)
    record_path(config, "bucket").write_bytes(damage)
    found = remembered(config, TIER, NOW)
    assert found.facts is None
    assert "cannot be used" in found.unused


def test_unknown_words_in_a_record_are_damage(config: Config) -> None:
    write_record(config, TIER, REPORT, NOW)
    path = record_path(config, "bucket")
    path.write_text(path.read_text().replace('"fencing":"cas"', '"fencing":"perfect"'))
    assert "fencing" in remembered(config, TIER, NOW).unused


def test_opening_uses_what_was_found(config: Config, caplog: pytest.LogCaptureFixture) -> None:
    """Explicit settings stay; the profile is corrected."""
    clock = SystemClock()
    write_record(config, TIER, REPORT, clock.now())
    opener = probed_opener(config, default_opener)
    tier = open_configured(TIER, opener, clock, Meter(), threading.Event())
    assert (tier.capabilities.fencing, tier.capabilities.copy_part) == (Fencing.CAS, True)
    tier.close()
    assert not caplog.records

    write_record(config, TIER, REPORT, clock.now() - MAX_AGE - timedelta(days=2))
    tier = open_configured(TIER, opener, clock, Meter(), threading.Event())
    assert tier.capabilities.fencing is Fencing.ADVISORY
    tier.close()
    assert "92 days old" in caplog.text


def test_facts_that_are_given_win_over_the_record(config: Config) -> None:
    write_record(config, TIER, REPORT, NOW)
    seen: list[TierSpec] = []

    def opener(spec: TierSpec, clock: object, meter: object, stop: object) -> Tier:
        seen.append(spec)
        return default_opener(
            TierSpec(name="m", url="memory://probe-record"), SystemClock(), Meter(), threading.Event()
        )

    given = ProbeFacts(fencing=Fencing.ADVISORY)
    spec = TierSpec(name="bucket", url=TIER.url, probed=given)
    probed_opener(config, opener)(spec, SystemClock(), Meter(), threading.Event()).close()
    other = replace(spec, name="another", probed=None)
    probed_opener(config, opener)(other, SystemClock(), Meter(), threading.Event()).close()
    assert [one.probed for one in seen] == [given, None]
