"""Provider profiles: what is known of each S3 store, as dated data, and which one fits an endpoint.

Everything in a profile is read by :class:`tiers.s3.S3Tier`, and every value that is not
the conservative one has its evidence.  A probe (:mod:`tiers.probing`) corrects them.
"""

from tiers.profiles.choosing import choose_profile, corrected, is_loopback
from tiers.profiles.data import GENERIC, PROFILES
from tiers.profiles.model import ARCHIVE_CLASSES, GIB, MIB, TIB, Checksum, Create, Evidence, Fact, Profile

__all__ = [
    "ARCHIVE_CLASSES",
    "GENERIC",
    "GIB",
    "MIB",
    "PROFILES",
    "TIB",
    "Checksum",
    "Create",
    "Evidence",
    "Fact",
    "Profile",
    "choose_profile",
    "corrected",
    "is_loopback",
]
