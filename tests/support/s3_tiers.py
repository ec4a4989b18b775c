"""S3 tiers on test servers, and the stored bytes without them."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from support.seaweed import BUCKET

from tiers.profiles import PROFILES
from tiers.s3 import S3Tier
from tiers.s3_client import build_client
from tiers.s3_direct import direct
from tiers.s3_sdk import ClientError

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client


def s3_tier(
    endpoint_url: str,
    prefix: str,
    *,
    profile: str = "seaweedfs",
    bucket: str = BUCKET,
    page_size: int = 1_000,
    name: str = "store",
    by_sdk: bool = False,
) -> S3Tier:
    """Return a tier that uses the credentials in the environment; ``by_sdk``: nothing goes the direct way."""
    chosen = PROFILES[profile]
    return S3Tier(
        name,
        bucket=bucket,
        prefix=prefix,
        profile=chosen,
        connect=connecting(by_sdk, lambda: build_client(chosen, endpoint_url, None, 4)),
        page_size=page_size,
    )


def connecting(by_sdk: bool, build: "Callable[[], S3Client]") -> "Callable[[], S3Client]":
    """Return what a tier is given to connect with, for either way of its bodies."""
    return build if by_sdk else lambda: direct(build())


class RawS3:
    """Stored bytes by plain requests."""

    def __init__(self, endpoint_url: str, prefix: str, bucket: str = BUCKET) -> None:
        self._client = build_client(PROFILES["generic-s3"], endpoint_url, None, 1)
        self._bucket = bucket
        self._prefix = prefix

    def get(self, key: str) -> bytes | None:
        """Return an object's bytes, or None."""
        try:
            with self._client.get_object(Bucket=self._bucket, Key=f"{self._prefix}/{key}")["Body"] as stream:
                return stream.read()
        except ClientError as error:
            if error.response["Error"]["Code"] != "NoSuchKey":
                raise
            return None

    def put(self, key: str, data: bytes) -> None:
        """Store bytes."""
        self._client.put_object(Bucket=self._bucket, Key=f"{self._prefix}/{key}", Body=data)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()
