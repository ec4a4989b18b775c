"""CopyObject behind the verb ``copy``: conditions, how the copy is kept, and whose word its digest is."""

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count

import pytest
from support.s3_tiers import s3_tier
from support.seaweed import ACCESS_KEY, BUCKET, SECRET_KEY, SeaweedServer

from tiers.bodies import BytesBody
from tiers.clock import SystemClock
from tiers.errors import Unsupported
from tiers.opening import TierSpec
from tiers.probing.outcomes import ProbeReport, Subject, Verdict
from tiers.probing.s3_probe import probe_s3
from tiers.profiles import PROFILES, Profile, corrected
from tiers.protocol import Key, ObjectInfo
from tiers.s3 import S3Tier
from tiers.s3_client import build_client
from tiers.s3_storage import STANDARD, Storage
from tiers.testing import TierFactory, content
from tiers.testing.base import upload_all
from tiers.testing.copies import CopyChecks
from tiers.testing.s3_emulator import AWS, SEAWEED, Behaviour, Credentials, S3Emulator

SMALL_PART = 64 << 10
COPYING = replace(PROFILES["aws"], copy=True, min_part=SMALL_PART)
"""AWS after a probe that found it to compute the digest of a copy."""
_places = count(1)


@pytest.fixture(scope="module")
def emulator() -> Iterator[S3Emulator]:
    known = Credentials(access_key=ACCESS_KEY, secret_key=SECRET_KEY)
    with S3Emulator(replace(AWS, min_part=SMALL_PART), buckets=(BUCKET,), credentials=[known]) as opened:
        yield opened


@pytest.fixture(scope="module")
def make(emulator: S3Emulator) -> Iterator[Callable[..., S3Tier]]:
    client = build_client(COPYING, emulator.endpoint_url, None, 4)

    def tier(prefix: str, profile: Profile = COPYING, storage: Storage = STANDARD) -> S3Tier:
        return S3Tier("store", bucket=BUCKET, prefix=prefix, profile=profile, connect=lambda: client, storage=storage)

    yield tier
    client.close()


class TestCopyObject(CopyChecks):
    @pytest.fixture
    def tier_factory(self, make: Callable[..., S3Tier]) -> TierFactory:
        place = f"c{next(_places):04d}"
        return lambda: make(place)


def test_a_copy_is_kept_as_a_put_would_be(emulator: S3Emulator, make: Callable[..., S3Tier]) -> None:
    """Else what was reused would lie in another storage class, or without the encryption that was asked for."""
    bulk = Storage(bulk=re.compile("data/.*"), storage_class="STANDARD_IA", encryption="sse-s3")
    tier = make("kept", storage=bulk)
    tier.put(Key("plain"), BytesBody(b"abc"))
    source = tier.stat(Key("plain"))
    client = build_client(COPYING, emulator.endpoint_url, None, 1)
    for key, told in (("data/copied", ("STANDARD_IA", "AES256")), ("other", (None, None))):
        tier.copy(Key(key), source)
        head = client.head_object(Bucket=BUCKET, Key=f"kept/{key}")
        assert (head.get("StorageClass"), head.get("ServerSideEncryption")) == told
    client.close()


@pytest.mark.parametrize(
    ("profile", "source"),
    [
        (PROFILES["aws"], ObjectInfo(key=Key("a"), size=1, etag="e")),
        (COPYING, ObjectInfo(key=Key("a"), size=1)),
        (COPYING, ObjectInfo(key=Key("a"), size=COPYING.max_put + 1, etag="e")),
    ],
    ids=["not probed", "no etag", "too large"],
)
def test_what_cannot_be_copied_is_not_asked_for(
    emulator: S3Emulator, make: Callable[..., S3Tier], profile: Profile, source: ObjectInfo
) -> None:
    before = len(emulator.requests)
    with pytest.raises(Unsupported):
        make("none", profile).copy(Key("b"), source)
    assert len(emulator.requests) == before


def probe(endpoint_url: str, place: str) -> ProbeReport:
    spec = TierSpec(name="store", url=f"s3://{BUCKET}/{place}", endpoint_url=endpoint_url, region="us-east-1")
    return probe_s3(spec, nonce=f"n{next(_places):04d}", clock=SystemClock())


@pytest.mark.parametrize(
    ("behaviour", "verdict", "words"),
    [
        (AWS, Verdict.YES, "computes its SHA-256"),
        (SEAWEED, Verdict.NO, "does not say what it copied"),
        (replace(AWS, copy_if_match=False), Verdict.NO, "from a source that has changed"),
    ],
    ids=["computes", "carries over", "ignores the condition"],
)
def test_a_probe_tells_a_computed_digest_from_one_carried_over(
    behaviour: Behaviour, verdict: Verdict, words: str
) -> None:
    known = Credentials(access_key=ACCESS_KEY, secret_key=SECRET_KEY)
    with S3Emulator(behaviour, buckets=(BUCKET,), credentials=[known]) as opened:
        report = probe(opened.endpoint_url, "probed")
        assert not opened.objects(), "scratch keys are gone"
    found = report.outcome(Subject.SHA256_COPY_OBJECT)
    assert found is not None
    assert found.verdict is verdict
    assert words in found.evidence
    yes = verdict is Verdict.YES
    assert (report.facts.copy, corrected(PROFILES["generic-s3"], report.facts).capabilities.copy) == (yes, yes)


def test_seaweedfs_carries_the_digest_over(seaweed: SeaweedServer) -> None:
    """Measured on the real server: so its profile does not claim ``copy``, and one part of an upload does it."""
    report = probe(seaweed.endpoint_url, "copy-verb-probe")
    found = report.outcome(Subject.SHA256_COPY_OBJECT)
    assert found is not None
    assert (found.verdict, found.evidence) == (Verdict.NO, "a copy of an object does not say what it copied")
    assert not PROFILES["seaweedfs"].copy
    tier = s3_tier(seaweed.endpoint_url, "copy-verb-part")
    data = content(3_000)
    for key in (Key("put"), Key("uploaded")):
        if key == "put":
            tier.put(key, BytesBody(data))
        else:
            upload_all(tier, key, data, len(data))
        upload = tier.begin_upload(Key(f"{key}-copied"), size=len(data), part_size=len(data))
        part = tier.copy_part(upload, 1, tier.stat(key), 0, len(data))
        digest = hashlib.sha256(data)
        assert part.sha256 == digest.hexdigest()
        assert tier.complete(upload, [part]).sha256 == hashlib.sha256(digest.digest()).hexdigest()
    tier.close()
