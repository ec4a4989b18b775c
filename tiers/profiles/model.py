"""What a profile is: limits, strategies, and how each of them is known."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from tiers.protocol import Capabilities, Fencing, Verification

MIB = 1 << 20
GIB = 1 << 30
TIB = 1 << 40

ARCHIVE_CLASSES = frozenset({"GLACIER", "DEEP_ARCHIVE"})
"""Storage classes that must be thawed, for hours, before anything can be read."""


class Evidence(StrEnum):
    """How something is known."""

    PROBED = "probed"  # tried by us on a real server
    DOCUMENTED = "documented"  # by the provider
    REPORTED = "reported"  # in issue threads and by other clients


class Checksum(StrEnum):
    """How the store is asked to compare what arrives with what was sent; trailers are never used."""

    SHA256_HEADER = "sha256-header"  # x-amz-checksum-sha256, and a payload that is not signed
    SIGNED_PAYLOAD = "signed-payload"  # the signature covers a digest of the body
    NONE = "none"  # UNSIGNED-PAYLOAD: neither


class Create(StrEnum):
    """How put-if-absent is done."""

    IF_NONE_MATCH = "if-none-match"  # and relied on
    BOTH = "look-first, if-none-match"  # sent, but not relied on
    LOOK_FIRST = "look-first"  # not even sent, because it is known to be ignored or refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """Why ``fields`` of a profile have their values; ``as_of`` is the date it was looked at."""

    fields: tuple[str, ...]
    kind: Evidence
    source: str
    as_of: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One provider.  Sizes in bytes, times in seconds; defaults are what cannot lose data anywhere.

    *Where*: ``hosts`` matches an endpoint's host; its group ``region`` names the region.
    ``region`` is the one to sign for where neither the user nor the host names one; None
    leaves it to the SDK's chain, and to us-east-1 after that.  ``headers`` go with every request.

    *Bytes*: with ``Checksum.SHA256_HEADER`` a wrong digest is refused and a right one is
    returned, so that what the store returns is its own finding; elsewhere the header is not
    sent, because stores exist that record a wrong one as true.  ``checks_size``: Complete
    compares ``x-amz-mp-object-size``.  ``verification`` is the strongest proof to be had.

    *Parts*: an :class:`tiers.protocol.Upload` has one part size, so all parts but the last
    are equal everywhere.  ``lists_replaced_parts``: ListParts may name a part that was sent
    anew both ways.  ``parts_at_once`` bounds the parts in flight.

    *Copies*: ``copy_part`` and ``copy``: UploadPartCopy and CopyObject honour the source's ETag and
    return a SHA-256 that the store computed on the copy.  A CopyObject that carries the
    source's over does not count: only a probe can tell, so no profile claims it.

    *Rest*: ``sorted_listing``: listings come in ascending order of bytes.  ``throttles``:
    codes, or statuses as text, that mean "slower", beyond the usual ones.  ``write_interval``:
    a key is not written more often.  ``complete_timeout`` is for Complete alone.
    ``storage_classes``: those that it has (empty: not known, any is passed on).
    Objects are deleted one by one.
    """

    name: str
    facts: tuple[Fact, ...]
    hosts: str | None = None
    addressing: Literal["auto", "path", "virtual"] = "path"
    region: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    checksum: Checksum = Checksum.SIGNED_PAYLOAD
    checks_size: bool = False
    verification: Verification = Verification.READ_BACK
    create: Create = Create.BOTH
    copy_part: bool = False
    copy: bool = False
    lists_replaced_parts: bool = True
    sorted_listing: bool = False
    storage_classes: frozenset[str] = frozenset()
    throttles: frozenset[str] = frozenset()
    write_interval: float = 0.0
    parts_at_once: int | None = None
    max_put: int = 5 * GIB
    min_part: int = 5 * MIB
    max_part: int = 5 * GIB
    max_parts: int = 1_000
    max_object: int = 5 * TIB
    read_timeout: float = 120.0
    complete_timeout: float = 900.0

    @property
    def checks_sha256(self) -> bool:
        """Whether the store compares ``x-amz-checksum-sha256``."""
        return self.checksum is Checksum.SHA256_HEADER

    @property
    def sign_payload(self) -> bool:
        """Whether every body is hashed for its signature."""
        return self.checksum is Checksum.SIGNED_PAYLOAD

    @property
    def conditional_put(self) -> bool:
        """Whether If-None-Match is sent."""
        return self.create is not Create.LOOK_FIRST

    @property
    def fencing(self) -> Fencing:
        """How two writers are kept apart."""
        return Fencing.CAS if self.create is Create.IF_NONE_MATCH else Fencing.ADVISORY

    @property
    def capabilities(self) -> Capabilities:
        """The same as the protocol's record."""
        return Capabilities(
            fencing=self.fencing,
            verification=self.verification,
            multipart=True,
            resumable=True,
            copy_part=self.copy_part,
            copy=self.copy,
            max_put=self.max_put,
            min_part=self.min_part,
            max_part=self.max_part,
            max_parts=self.max_parts,
            max_object=self.max_object,
        )

    def fact(self, field: str) -> Fact | None:
        """Return the evidence for a field; None where its value is the conservative one."""
        return next((fact for fact in self.facts if field in fact.fields), None)
