"""A strict S3 for tests: it checks what real stores check, has their quirks as data, and has bad days on schedule.

:class:`S3Emulator` listens on loopback, with or without TLS.  A :class:`Behaviour` says
how it acts; the ready-made ones are the dialects of providers.  :class:`Fault` breaks
connections and statuses, :class:`Lie` what is said.  Standard library only, but for TLS,
which needs cryptography to make its certificate.
"""

from tiers.testing.s3_emulator.behaviour import (
    Behaviour,
    ChecksumRule,
    ConditionRule,
    Encryption,
    EtagRule,
    LifecycleRule,
    ListOrder,
    Padding,
    TrailerRule,
    WrongRegion,
)
from tiers.testing.s3_emulator.checksums import Algorithm, checksum, composite
from tiers.testing.s3_emulator.emulator import BUCKET, DEFAULT_CREDENTIALS, Footprint, S3Emulator
from tiers.testing.s3_emulator.faults import LONGEST_PAUSE, Action, Fault, Fired, Request, When
from tiers.testing.s3_emulator.lies import ENDLESS_LIMIT, Lie, LieKind, Told
from tiers.testing.s3_emulator.operations import EVERYTHING, Operation, billing_class
from tiers.testing.s3_emulator.providers import (
    AWS,
    B2,
    CEPH_RGW,
    GCS_INTEROP,
    GENERIC,
    IGNORES_PUT_IF_ABSENT,
    R2,
    RUNPOD,
    SEAWEED,
    STORES_CHUNK_FRAMING,
    STORES_WRONG_CHECKSUMS,
)
from tiers.testing.s3_emulator.signing import Credentials

__all__ = [
    "AWS",
    "B2",
    "BUCKET",
    "CEPH_RGW",
    "DEFAULT_CREDENTIALS",
    "ENDLESS_LIMIT",
    "EVERYTHING",
    "GCS_INTEROP",
    "GENERIC",
    "IGNORES_PUT_IF_ABSENT",
    "LONGEST_PAUSE",
    "R2",
    "RUNPOD",
    "SEAWEED",
    "STORES_CHUNK_FRAMING",
    "STORES_WRONG_CHECKSUMS",
    "Action",
    "Algorithm",
    "Behaviour",
    "ChecksumRule",
    "ConditionRule",
    "Credentials",
    "Encryption",
    "EtagRule",
    "Fault",
    "Fired",
    "Footprint",
    "Lie",
    "LieKind",
    "LifecycleRule",
    "ListOrder",
    "Operation",
    "Padding",
    "Request",
    "S3Emulator",
    "Told",
    "TrailerRule",
    "When",
    "WrongRegion",
    "billing_class",
    "checksum",
    "composite",
]
