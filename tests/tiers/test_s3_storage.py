"""Storage class and encryption go to what is large, and to nothing that a reader starts from."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.seaweed import ACCESS_KEY, BUCKET, SECRET_KEY

from replicate.layout import BULK_KEYS, GenerationId, RemoteRun
from tiers.bodies import BytesBody
from tiers.opening import BadTierUrl, TierSpec
from tiers.profiles import PROFILES
from tiers.protocol import Key, Tier, Verification
from tiers.s3 import open_s3
from tiers.s3_storage import storage_of
from tiers.testing import content, upload_all
from tiers.testing.s3_emulator import AWS, Credentials, Operation, S3Emulator

RUN = RemoteRun.of("llm-7b")
PREFIX = RUN.prefix(GenerationId(1, 2, 300, "1f3a9c2e"), 1, "nonce")
DATA = RUN.object(PREFIX, "model.bin")
SMALL = (RUN.manifest(PREFIX), RUN.log(3), RUN.head, Key(f"{PREFIX}generation.json"))
CLASS = "x-amz-storage-class"
SSE = "x-amz-server-side-encryption"
KMS_KEY = f"{SSE}-aws-kms-key-id"


@pytest.fixture
def emulator() -> Iterator[S3Emulator]:
    known = Credentials(access_key=ACCESS_KEY, secret_key=SECRET_KEY)
    with S3Emulator(AWS, buckets=(BUCKET,), credentials=[known]) as running:
        yield running


def spec(emulator: S3Emulator | None = None, **fields: object) -> TierSpec:
    endpoint = emulator.endpoint_url if emulator is not None else "https://127.0.0.1:1"
    chosen: dict[str, object] = {"profile": "aws", "region": "us-east-1", "bulk_keys": BULK_KEYS, **fields}
    return TierSpec(name="s3", url=f"s3://{BUCKET}/root", endpoint_url=endpoint, **chosen)  # type: ignore[arg-type]


def store_all(tier: Tier) -> None:
    """Do what replicating does: data whole and in parts, the manifest, the log, the hint."""
    tier.put(DATA, BytesBody(b"data"))
    upload_all(tier, Key(f"{DATA}.parts"), content(6_000), 5 << 20)
    for key in SMALL[:1] + SMALL[2:]:
        tier.put(key, BytesBody(b"small"))
    tier.create(SMALL[1], b"entry")
    tier.close()


def sent(emulator: S3Emulator, header: str) -> dict[str, str | None]:
    """Return a header of every write that makes an object, by operation and key."""
    makes = {Operation.PUT_OBJECT, Operation.CREATE_UPLOAD}
    return {
        f"{request.operation} {request.key.removeprefix('root/')}": request.headers.get(header)
        for request in emulator.requests
        if request.operation in makes
    }


def test_the_class_is_for_data_only(emulator: S3Emulator) -> None:
    store_all(open_s3(spec(emulator, storage_class="STANDARD_IA")))
    classes = sent(emulator, CLASS)
    assert {key: value for key, value in classes.items() if value is not None} == {
        f"PutObject {DATA}": "STANDARD_IA",
        f"CreateMultipartUpload {DATA}.parts": "STANDARD_IA",
    }
    assert len(classes) == 2 + len(SMALL)


def test_encryption_is_for_data_only(emulator: S3Emulator) -> None:
    store_all(open_s3(spec(emulator, encryption="sse-s3")))
    assert {key for key, value in sent(emulator, SSE).items() if value == "AES256"} == {
        f"PutObject {DATA}",
        f"CreateMultipartUpload {DATA}.parts",
    }
    assert set(sent(emulator, KMS_KEY).values()) == {None}


def test_a_key_of_ones_own(emulator: S3Emulator) -> None:
    store_all(open_s3(spec(emulator, encryption="sse-kms", kms_key="alias/checkpoints")))
    assert sent(emulator, SSE)[f"PutObject {DATA}"] == "aws:kms"
    assert sent(emulator, KMS_KEY)[f"PutObject {DATA}"] == "alias/checkpoints"
    assert sent(emulator, SSE)[f"PutObject {RUN.log(3)}"] is None


def test_what_is_large_and_what_is_not() -> None:
    fields: dict[str, Any] = {"storage_class": "STANDARD_IA"}
    chosen = storage_of(spec(**fields), PROFILES["aws"])
    assert chosen.fields(DATA) == {"StorageClass": "STANDARD_IA"}
    assert chosen.fields(RUN.object(PREFIX, "deep/manifest.json")) == {"StorageClass": "STANDARD_IA"}
    for key in (*SMALL, Key("llm-7b/receipts/x/files/w.json"), Key("llm-7b/log/files/a.json")):
        assert chosen.fields(key) == {}


@pytest.mark.parametrize("archive", ["GLACIER", "DEEP_ARCHIVE"])
@pytest.mark.parametrize("profile", ["aws", "generic-s3", "scaleway"])
def test_what_must_be_thawed_is_no_place_to_restart_from(archive: str, profile: str) -> None:
    with pytest.raises(BadTierUrl, match="archive: what lies there must be thawed"):
        open_s3(spec(storage_class=archive, profile=profile))


def test_a_class_that_the_store_has_not() -> None:
    with pytest.raises(BadTierUrl, match="NEARLINE is none of r2; it has STANDARD, STANDARD_IA"):
        open_s3(spec(storage_class="NEARLINE", profile="r2"))
    assert open_s3(spec(storage_class="ARCHIVE", profile="gcs")), "all classes of GCS are read at once"
    assert open_s3(spec(storage_class="WHATEVER", profile="generic-s3")), "nobody knows what it has"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"encryption": "rot13"}, "encryption 'rot13' is unknown"),
        ({"kms_key": "k", "encryption": "sse-s3"}, "encryption is not sse-kms"),
        ({"storage_class": "STANDARD", "bulk_keys": None}, "need bulk_keys"),
    ],
)
def test_what_does_not_go_together(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(BadTierUrl, match=why):
        open_s3(spec(**fields))


def test_under_kms_no_etag_is_an_md5() -> None:
    """Comparing it would fail every upload; so each is read back."""
    assert open_s3(spec(profile="ceph-rgw")).capabilities.verification is Verification.MD5_ETAG
    kms = open_s3(spec(profile="ceph-rgw", encryption="sse-kms"))
    assert kms.capabilities.verification is Verification.READ_BACK
    assert open_s3(spec(encryption="sse-kms")).capabilities.verification is Verification.STORE_SHA256
