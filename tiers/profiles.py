"""Provider profiles: what is known of each S3 store, as dated data.

Only what :class:`tiers.s3.S3Tier` reads is here.  Every profile says how it is
known (``probed``: tried by us; ``documented``; ``reported``: issue threads) and
when.  Where nothing is known the value is the one that cannot lose data: no
put-if-absent, no trusted checksum, read-back.

Parts need no "equal parts" flag: an :class:`tiers.protocol.Upload` has one part size.
"""

import ipaddress
import re
from dataclasses import dataclass, replace
from typing import Literal
from urllib.parse import urlsplit

from tiers.protocol import Capabilities, Fencing, Verification

MIB = 1 << 20
GIB = 1 << 30
TIB = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One provider.  Sizes in bytes, ``read_timeout`` in seconds.

    ``hosts`` matches an endpoint's host; its group ``region`` names the region.
    ``region`` is the one to sign for where neither the user nor the host names one;
    None leaves it to the SDK's chain, and to us-east-1 after that.  ``sign_payload`` False sends UNSIGNED-PAYLOAD,
    which saves reading and hashing every body twice.  ``checks_sha256``: a wrong
    ``x-amz-checksum-sha256`` is refused and a right one is returned, so that what the
    store returns is its own finding; False means the header is not even sent, because
    stores exist that record a wrong one as true.  ``checks_size``: Complete compares
    ``x-amz-mp-object-size``.  ``conditional_put``: If-None-Match may be sent;
    ``fencing`` says whether it can be relied on.  ``sorted_listing``: listings come in
    ascending order of bytes.
    """

    name: str
    evidence: str
    as_of: str
    hosts: str | None = None
    addressing: Literal["auto", "path", "virtual"] = "path"
    region: str | None = None
    sign_payload: bool = False
    checks_sha256: bool = False
    checks_size: bool = False
    conditional_put: bool = True
    fencing: Fencing = Fencing.CAS
    verification: Verification = Verification.READ_BACK
    copy_part: bool = False
    sorted_listing: bool = True
    max_put: int = 5 * GIB
    min_part: int = 5 * MIB
    max_part: int = 5 * GIB
    max_parts: int = 10_000
    max_object: int = 5 * TIB
    read_timeout: float = 120.0

    @property
    def capabilities(self) -> Capabilities:
        """The same as the protocol's record."""
        return Capabilities(
            fencing=self.fencing,
            verification=self.verification,
            multipart=True,
            resumable=True,
            copy_part=self.copy_part,
            max_put=self.max_put,
            min_part=self.min_part,
            max_part=self.max_part,
            max_parts=self.max_parts,
            max_object=self.max_object,
        )


GENERIC = Profile(
    name="generic-s3",
    evidence="conservative defaults for a store that nobody has looked at; Scaleway's 1,000 parts bound all known ones",
    as_of="2026-11-29",
    sign_payload=True,
    fencing=Fencing.ADVISORY,
    sorted_listing=False,
    max_parts=1_000,
)

_KNOWN = (
    Profile(
        name="aws",
        evidence="documented: SHA-256 checked on PUT and part, composite for multipart, If-None-Match, 50 TB objects",
        as_of="2026-11-29",
        hosts=r"(?:.+\.)?s3(?:[.-](?:dualstack\.|fips\.)?(?P<region>[a-z]{2,}(?:-[a-z]+)+-\d))?\.amazonaws\.com(?:\.cn)?",
        addressing="auto",
        checks_sha256=True,
        checks_size=True,
        verification=Verification.STORE_SHA256,
        copy_part=True,
        max_object=50 * 10**12,
    ),
    Profile(
        name="r2",
        evidence="documented: If-None-Match on PutObject only, SHA-256 (single, composite), 4.995 GiB/TiB limits;"
        " reported: trailer uploads refused. Whether a copied part's SHA-256 is returned is not known",
        as_of="2026-11-29",
        hosts=r"[0-9a-z]+(?:\.[a-z]+)?\.r2\.cloudflarestorage\.com",
        region="auto",
        checks_sha256=True,
        verification=Verification.STORE_SHA256,
        max_put=5_114 * MIB,
        max_part=5_114 * MIB,
        max_object=5_114 * GIB,
    ),
    Profile(
        name="seaweedfs",
        evidence="probed 4.48: wrong SHA-256 refused on PUT, part and Complete, echoed by all of them and by"
        " UploadPartCopy; one winner of racing creates; x-amz-mp-object-size ignored; lists x/y before x-y",
        as_of="2026-11-29",
        checks_sha256=True,
        verification=Verification.STORE_SHA256,
        copy_part=True,
        sorted_listing=False,
    ),
    Profile(
        name="ceph-rgw",
        evidence="probed 16.2: x-amz-checksum ignored, trailer uploads refused, signed payload hash checked,"
        " ETags are the S3 formula, one winner of racing creates",
        as_of="2026-11-29",
        sign_payload=True,
        verification=Verification.MD5_ETAG,
    ),
    Profile(
        name="minio",
        evidence="documented: SHA-256 as AWS, If-None-Match on PutObject; not probed by us",
        as_of="2026-11-29",
        checks_sha256=True,
        verification=Verification.STORE_SHA256,
    ),
    Profile(
        name="gcs",
        evidence="documented: XML API wants generation headers in place of If-None-Match; multipart ETag differs;"
        " no UploadPartCopy; may decompress on GET (nothing here is stored compressed)",
        as_of="2026-11-29",
        hosts=r"(?:.+\.)?storage\.googleapis\.com",
        region="auto",
        conditional_put=False,
        fencing=Fencing.ADVISORY,
    ),
    Profile(
        name="b2",
        evidence="documented: S3 API; reported: checksum headers refused; put-if-absent claimed, not probed",
        as_of="2026-11-29",
        hosts=r"s3\.(?P<region>[a-z0-9-]+)\.backblazeb2\.com",
        conditional_put=False,
        fencing=Fencing.ADVISORY,
        max_put=5 * 10**9,
        max_part=5 * 10**9,
        max_object=10 * 10**12,
    ),
    Profile(
        name="runpod",
        evidence="documented: parts and PUT under 500 MB, region is the data centre, Complete of 10 GB may outlast a"
        " default timeout; reported: repeated list tokens; put-if-absent undocumented",
        as_of="2026-11-29",
        hosts=r"s3api-(?P<region>[a-z0-9-]+)\.runpod\.io",
        conditional_put=False,
        fencing=Fencing.ADVISORY,
        sorted_listing=False,
        max_put=500 * 10**6 - 1,
        max_part=500 * 10**6 - 1,
        max_object=4 * 10**12,
        read_timeout=900.0,
    ),
    Profile(
        name="moto",
        evidence="probed 5.2.5 (a test double): takes any checksum and returns wrong composites, ETag is the MD5 of"
        " what it received, one winner of racing creates",
        as_of="2026-11-29",
        verification=Verification.MD5_ETAG,
    ),
    GENERIC,
)

PROFILES = {profile.name: profile for profile in _KNOWN}


def is_loopback(host: str) -> bool:
    """Whether a host name or address can only be this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def choose_profile(name: str | None, endpoint_url: str | None) -> Profile:
    """Return the named profile, else the one whose ``hosts`` match, with its region filled in.

    No endpoint means AWS; an endpoint that nothing matches (loopback included) is
    ``generic-s3``.  ValueError where the name is not known.
    """
    host = "s3.amazonaws.com" if endpoint_url is None else (urlsplit(endpoint_url).hostname or "")
    if name is not None and name not in PROFILES:
        known = ", ".join(sorted(PROFILES))
        raise ValueError(f"unknown profile {name!r}; known: {known}")
    candidates = [PROFILES[name]] if name is not None else _KNOWN
    for profile in candidates:
        found = re.fullmatch(profile.hosts, host) if profile.hosts is not None else None
        if found is not None:
            return replace(profile, region=found.groupdict().get("region") or profile.region)
    return PROFILES[name] if name is not None else GENERIC
