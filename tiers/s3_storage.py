"""How bulk data are kept: storage class and encryption.

They are for the objects that cost money, and never for the small documents that every
reader starts from: those stay where they are read at once, by whoever may read the bucket.
Which keys are bulk is the business of whoever lays them out (``TierSpec.bulk_keys``).
"""

import re
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from tiers.opening import TierSpec
from tiers.profiles import ARCHIVE_CLASSES, Profile
from tiers.protocol import Verification

_ALGORITHMS = MappingProxyType({"sse-s3": "AES256", "sse-kms": "aws:kms"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Storage:
    """Headers of a write, for keys that ``bulk`` matches as a whole."""

    bulk: re.Pattern[str] | None = None
    storage_class: str | None = None
    encryption: str | None = None
    kms_key: str | None = None

    def fields(self, key: str) -> dict[str, Any]:
        """Return what the SDK is to be told for ``key``."""
        if self.bulk is None or not self.bulk.fullmatch(key):
            return {}
        told = {
            "StorageClass": self.storage_class,
            "ServerSideEncryption": _ALGORITHMS[self.encryption] if self.encryption else None,
            "SSEKMSKeyId": self.kms_key,
        }
        return {name: value for name, value in told.items() if value is not None}

    def weakened(self, profile: Profile) -> Profile:
        """Return the profile as it is with this storage: under KMS no ETag is an MD5."""
        if self.encryption == "sse-kms" and profile.verification is Verification.MD5_ETAG:
            return replace(profile, verification=Verification.READ_BACK)
        return profile


STANDARD = Storage()
"""As the bucket has it."""


def storage_of(spec: TierSpec, profile: Profile) -> Storage:
    """Return how a tier is to keep its data; ValueError where the store cannot, or could not give them back at once."""
    chosen = spec.storage_class
    if chosen in ARCHIVE_CLASSES and chosen not in profile.storage_classes:
        raise ValueError(
            f"storage_class {chosen} is an archive: what lies there must be thawed for hours before a restore can begin"
        )
    if chosen is not None and profile.storage_classes and chosen not in profile.storage_classes:
        known = ", ".join(sorted(profile.storage_classes))
        raise ValueError(f"storage_class {chosen} is none of {profile.name}; it has {known}")
    if spec.encryption is not None and spec.encryption not in _ALGORITHMS:
        raise ValueError(f"encryption {spec.encryption!r} is unknown; known: {', '.join(_ALGORITHMS)}")
    if spec.kms_key is not None and spec.encryption != "sse-kms":
        raise ValueError("kms_key is given, and encryption is not sse-kms")
    wanted = chosen is not None or spec.encryption is not None
    if wanted and spec.bulk_keys is None:
        raise ValueError("storage_class and encryption need bulk_keys: which keys they are for")
    return Storage(
        bulk=re.compile(spec.bulk_keys) if wanted and spec.bulk_keys is not None else None,
        storage_class=chosen,
        encryption=spec.encryption,
        kms_key=spec.kms_key,
    )
