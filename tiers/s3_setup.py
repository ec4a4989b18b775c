"""What is added to the SDK's client before its first request."""

from typing import TYPE_CHECKING, Any

from tiers.profiles import Profile
from tiers.s3_answers import guard

if TYPE_CHECKING:
    from types_boto3_s3.client import S3Client


def equip(client: "S3Client", profile: Profile) -> None:
    """Make a client check its answers, and send the headers that the profile wants; safe to repeat."""
    guard(client)

    def add_headers(request: Any, **_: object) -> None:
        for name, value in profile.headers:
            request.headers[name] = value

    client.meta.events.register("before-sign.s3", add_headers, unique_id="ckptier-headers")
