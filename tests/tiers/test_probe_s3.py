"""What a probe says of real servers and of dialects, and what it leaves behind."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
from support.moto_server import MotoServer
from support.proxy import Action, Fault, FaultProxy
from support.rclone_server import RcloneServer
from support.s3_tiers import RawS3
from support.seaweed import ACCESS_KEY, BUCKET, SECRET_KEY, SeaweedServer

from tiers.clock import SystemClock
from tiers.errors import AccessDenied, TierUnavailable
from tiers.opening import BadTierUrl, TierSpec
from tiers.probing.outcomes import ProbeReport, Subject, Verdict
from tiers.probing.s3_probe import probe_s3
from tiers.profiles import PROFILES, corrected
from tiers.protocol import Fencing, Verification
from tiers.testing.s3_emulator import (
    AWS,
    B2,
    CEPH_RGW,
    EVERYTHING,
    GCS_INTEROP,
    GENERIC,
    IGNORES_PUT_IF_ABSENT,
    R2,
    RUNPOD,
    SEAWEED,
    STORES_WRONG_CHECKSUMS,
    Behaviour,
    ConditionRule,
    Credentials,
    LifecycleRule,
    Operation,
    S3Emulator,
)

_nonces = itertools.count(1)


def probe(
    endpoint_url: str, *, profile: str | None = None, region: str | None = None, url: str = f"s3://{BUCKET}/root"
) -> ProbeReport:
    spec = TierSpec(name="store", url=url, endpoint_url=endpoint_url, profile=profile, region=region)
    return probe_s3(spec, nonce=f"n{next(_nonces):04d}", clock=SystemClock())


def verdicts(report: ProbeReport) -> dict[Subject, Verdict]:
    return {one.subject: one.verdict for one in report.outcomes}


def says(report: ProbeReport, subject: Subject, verdict: Verdict, words: str = "") -> None:
    outcome = report.outcome(subject)
    assert outcome is not None
    assert outcome.verdict is verdict, outcome
    assert words in outcome.evidence


@contextmanager
def emulated(behaviour: Behaviour, *, may: frozenset[Operation] = EVERYTHING) -> Iterator[S3Emulator]:
    known = Credentials(access_key=ACCESS_KEY, secret_key=SECRET_KEY, may=may)
    with S3Emulator(behaviour, buckets=(BUCKET,), credentials=[known]) as emulator:
        yield emulator


def probe_emulated(
    behaviour: Behaviour, *, may: frozenset[Operation] = EVERYTHING, profile: str | None = None
) -> ProbeReport:
    region = behaviour.location if behaviour.regions is not None else None
    with emulated(behaviour, may=may) as emulator:
        report = probe(emulator.endpoint_url, region=region, profile=profile)
        left = {key for key in emulator.objects() if key.startswith("root/")}
        assert left == {f"root/{key}" for key in report.leftovers}
        assert not emulator.uploads()
    return report


def test_seaweedfs_keeps_writers_apart_and_checks_sha256(seaweed: SeaweedServer) -> None:
    """Nobody said what it is; the probe finds it."""
    report = probe(seaweed.endpoint_url)
    assert (report.profile, report.fencing, report.verification) == (
        "generic-s3",
        Fencing.CAS,
        Verification.STORE_SHA256,
    )
    assert report.facts.checks_sha256
    assert report.facts.copy_part
    assert report.facts.sorted_listing is False
    assert report.facts.checks_payload_hash is False
    says(report, Subject.SHA256_PUT, Verdict.YES, "BadDigest")
    says(report, Subject.SHA256_PART, Verdict.YES, "BadDigest")
    says(report, Subject.CONTENT_MD5, Verdict.YES)
    says(report, Subject.ONE_WINNER, Verdict.YES, "of 8 writers at once one won, in each of 3 rounds")
    says(report, Subject.CLOCK, Verdict.YES)
    assert [str(one) for one in report.contradictions if one.worse] == []


def test_its_own_profile_is_confirmed(seaweed: SeaweedServer) -> None:
    report = probe(seaweed.endpoint_url, profile="seaweedfs")
    assert report.contradictions == ()
    assert corrected(PROFILES["seaweedfs"], report.facts) == PROFILES["seaweedfs"]


def test_nothing_is_left_behind(seaweed: SeaweedServer) -> None:
    report = probe(seaweed.endpoint_url)
    assert report.leftovers == ()
    store = RawS3(seaweed.endpoint_url, f"root/{report.scratch}".rstrip("/"))
    assert [name for name in ("object", "parts", "create/once", "order/a-b") if store.get(name) is not None] == []
    store.close()


def test_rclone_takes_what_it_is_told(rclone: RcloneServer) -> None:
    report = probe(rclone.endpoint_url)
    assert (report.fencing, report.verification) == (Fencing.ADVISORY, Verification.READ_BACK)
    says(report, Subject.PUT_IF_ABSENT, Verdict.NO, "replaces the first")
    says(report, Subject.SHA256_PUT, Verdict.NO, "repeated as if it were true")
    says(report, Subject.MULTIPART_ETAG, Verdict.NO)
    says(report, Subject.RANGES, Verdict.YES, "200")
    says(report, Subject.CONTENT_MD5, Verdict.YES)


def test_a_profile_that_promises_too_much_is_contradicted(rclone: RcloneServer) -> None:
    report = probe(rclone.endpoint_url, profile="minio")
    worse = [str(one) for one in report.contradictions if one.worse]
    assert worse == [
        "writers are kept apart by advisory, not cas",
        "objects are proved by read-back, not store-sha256",
    ]
    used = corrected(PROFILES["minio"], report.facts)
    assert (used.fencing, used.verification) == (Fencing.ADVISORY, Verification.READ_BACK)
    assert not used.sign_payload, "a hash that nobody compares is wasted"


def test_moto_believes_everything(moto: MotoServer) -> None:
    report = probe(moto.endpoint_url, profile="moto")
    assert (report.fencing, report.verification) == (Fencing.CAS, Verification.MD5_ETAG)
    for subject in (Subject.SHA256_PUT, Subject.SHA256_PART, Subject.CONTENT_MD5, Subject.PAYLOAD_HASH):
        says(report, subject, Verdict.NO)


@pytest.mark.parametrize(
    ("behaviour", "fencing", "verification"),
    [
        (AWS, Fencing.CAS, Verification.STORE_SHA256),
        (R2, Fencing.CAS, Verification.STORE_SHA256),
        (CEPH_RGW, Fencing.CAS, Verification.MD5_ETAG),
        (GCS_INTEROP, Fencing.ADVISORY, Verification.READ_BACK),
        (B2, Fencing.ADVISORY, Verification.READ_BACK),
        (RUNPOD, Fencing.ADVISORY, Verification.READ_BACK),
        (SEAWEED, Fencing.CAS, Verification.STORE_SHA256),
        (GENERIC, Fencing.ADVISORY, Verification.READ_BACK),
        (IGNORES_PUT_IF_ABSENT, Fencing.ADVISORY, Verification.STORE_SHA256),
        (STORES_WRONG_CHECKSUMS, Fencing.CAS, Verification.MD5_ETAG),
    ],
    ids=lambda value: value.name if isinstance(value, Behaviour) else "",
)
def test_dialects(behaviour: Behaviour, fencing: Fencing, verification: Verification) -> None:
    report = probe_emulated(behaviour)
    assert (report.fencing, report.verification) == (fencing, verification)
    says(report, Subject.ROUND_TRIP, Verdict.YES)
    says(report, Subject.RANGES, Verdict.YES)
    says(report, Subject.LIST_PAGES, Verdict.YES)
    says(report, Subject.ABORT, Verdict.YES)
    says(report, Subject.DELETE, Verdict.YES)


def test_a_create_that_is_refused_one_by_one_and_lost_in_a_race(seaweed: SeaweedServer) -> None:
    """A store that looks and then writes refuses the second create, and lets several win at once."""
    with FaultProxy(seaweed.port) as proxy:
        for nth in range(3, 19):  # the first create, and then the second, are told the truth
            proxy.inject(
                Fault(
                    operation="PutObject",
                    key="*/create/race-*",
                    nth=nth - 2,
                    action=Action.STATUS,
                    status=200,
                    headers={"ETag": '"e"'},
                )
            )
        report = probe(proxy.endpoint_url)
        assert len(proxy.fired) > 8
    says(report, Subject.PUT_IF_ABSENT, Verdict.YES)
    says(report, Subject.ONE_WINNER, Verdict.NO, "were told that they won")
    assert report.fencing is Fencing.ADVISORY


def test_a_key_that_may_not_delete_still_gives_a_whole_probe() -> None:
    may = EVERYTHING - {Operation.DELETE_OBJECT, Operation.DELETE_OBJECTS}
    report = probe_emulated(AWS, may=may)
    says(report, Subject.DELETE, Verdict.NO, "may not delete")
    assert report.leftovers
    assert all(key.startswith(report.scratch) for key in report.leftovers)
    assert (report.fencing, report.verification) == (Fencing.CAS, Verification.STORE_SHA256)


def test_what_may_not_be_asked_is_unknown() -> None:
    may = EVERYTHING - {Operation.GET_BUCKET_LIFECYCLE, Operation.GET_BUCKET_VERSIONING}
    report = probe_emulated(AWS, may=may)
    says(report, Subject.LIFECYCLE, Verdict.UNKNOWN, "AccessDenied")
    says(report, Subject.VERSIONING, Verdict.UNKNOWN, "AccessDenied")
    assert report.fencing is Fencing.CAS


@pytest.mark.parametrize(
    ("rules", "verdict"),
    [
        ((), Verdict.NO),
        ((LifecycleRule(rule_id="all", abort_incomplete_days=7),), Verdict.YES),
        ((LifecycleRule(rule_id="ours", prefix="root/", abort_incomplete_days=3),), Verdict.YES),
        ((LifecycleRule(rule_id="others", prefix="other/", abort_incomplete_days=3),), Verdict.NO),
        ((LifecycleRule(rule_id="expiry", expire_days=3),), Verdict.NO),
    ],
    ids=["none", "all", "ours", "others", "another kind"],
)
def test_a_rule_that_ends_unfinished_uploads(rules: tuple[LifecycleRule, ...], verdict: Verdict) -> None:
    says(probe_emulated(replace(AWS, lifecycle=rules)), Subject.LIFECYCLE, verdict)


def test_a_bucket_that_keeps_versions() -> None:
    with emulated(replace(AWS, versioned=True)) as emulator:
        says(probe(emulator.endpoint_url, region="us-east-1"), Subject.VERSIONING, Verdict.YES, "billed")


@pytest.mark.parametrize("minutes", [5, -5])
def test_clocks_that_differ_are_told_with_both_times(minutes: int) -> None:
    report = probe_emulated(replace(AWS, clock_skew=timedelta(minutes=minutes)))
    says(report, Subject.CLOCK, Verdict.NO, "here ")
    assert report.clock is not None
    low, high = report.clock.ahead
    assert low <= 60.0 * minutes <= high
    assert high - low < 2.0


def test_an_upload_that_broke_is_aborted(seaweed: SeaweedServer) -> None:
    """What a probe that failed half-way left would be billed."""
    with FaultProxy(seaweed.port) as proxy:
        proxy.inject(Fault(operation="CompleteMultipartUpload", action=Action.STATUS, status=503))
        report = probe(proxy.endpoint_url, profile="seaweedfs")
        assert len(proxy.fired) == 1
        assert proxy.counts["AbortMultipartUpload"] == 1
    says(report, Subject.RESUME, Verdict.UNKNOWN, "503")
    assert report.facts.checks_sha256 is None
    assert report.verification is Verification.STORE_SHA256, "what could not be tried stays as it was believed"


def test_a_conditional_write_that_is_refused_outright() -> None:
    report = probe_emulated(replace(AWS, put_if_absent=ConditionRule.REFUSED))
    says(report, Subject.PUT_IF_ABSENT, Verdict.NO, "NotImplemented")
    assert report.fencing is Fencing.ADVISORY


def test_a_check_that_the_store_does_not_let_end_stays_unknown(seaweed: SeaweedServer) -> None:
    with FaultProxy(seaweed.port) as proxy:
        proxy.inject(Fault(operation="ListObjectsV2", action=Action.STATUS, status=503))
        report = probe(proxy.endpoint_url, profile="seaweedfs")
        assert len(proxy.fired) == 1
    says(report, Subject.LIST_ORDER, Verdict.UNKNOWN, "503")
    assert report.facts.sorted_listing is None
    assert report.fencing is Fencing.CAS


def test_a_store_that_does_not_answer_is_no_report(seaweed: SeaweedServer) -> None:
    with FaultProxy(seaweed.port) as proxy:
        proxy.inject(Fault(operation="PutObject", action=Action.STATUS, status=503))
        with pytest.raises(TierUnavailable):
            probe(proxy.endpoint_url)
        assert len(proxy.fired) == 1


def test_a_bucket_that_is_not_there(seaweed: SeaweedServer) -> None:
    with pytest.raises(AccessDenied):
        probe(seaweed.endpoint_url, url="s3://no-such-bucket/root")


def test_bad_settings_are_told_before_any_request() -> None:
    with pytest.raises(BadTierUrl, match="unknown profile 'r3'"):
        probe("https://127.0.0.1:1", profile="r3")
