"""Which profile an endpoint has, and what a probe makes of it."""

import ipaddress
import re
from dataclasses import replace
from urllib.parse import urlsplit

from tiers.probing.facts import ProbeFacts
from tiers.profiles.data import GENERIC, PROFILES
from tiers.profiles.model import Checksum, Create, Profile
from tiers.protocol import Fencing, Verification


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
    candidates = [PROFILES[name]] if name is not None else list(PROFILES.values())
    for profile in candidates:
        found = re.fullmatch(profile.hosts, host) if profile.hosts is not None else None
        if found is not None:
            return replace(profile, region=found.groupdict().get("region") or profile.region)
    return PROFILES[name] if name is not None else GENERIC


def corrected(profile: Profile, found: ProbeFacts | None) -> Profile:
    """Return the profile with what a probe has found in place of what is written there."""
    if found is None:
        return profile
    checksum = _checksum(profile, found)
    checks = checksum is Checksum.SHA256_HEADER
    verification = found.verification or profile.verification
    if not checks and verification is Verification.STORE_SHA256:
        verification = Verification.READ_BACK
    elif checks:
        verification = Verification.STORE_SHA256
    copies = profile.copy_part if found.copy_part is None else found.copy_part
    copies_objects = profile.copy if found.copy is None else found.copy
    return replace(
        profile,
        checksum=checksum,
        verification=verification,
        create=_create(profile, found),
        copy_part=copies and checks,
        copy=copies_objects and checks,
        sorted_listing=profile.sorted_listing if found.sorted_listing is None else found.sorted_listing,
    )


def _checksum(profile: Profile, found: ProbeFacts) -> Checksum:
    if found.checks_sha256:
        return Checksum.SHA256_HEADER
    if found.checks_sha256 is None and profile.checks_sha256:
        return profile.checksum
    if found.checks_payload_hash is False:
        return Checksum.NONE  # a hash that nobody compares is wasted
    return Checksum.SIGNED_PAYLOAD if profile.checks_sha256 else profile.checksum


def _create(profile: Profile, found: ProbeFacts) -> Create:
    if found.fencing is None or found.fencing is profile.fencing:
        return profile.create
    return Create.IF_NONE_MATCH if found.fencing is Fencing.CAS else Create.BOTH
