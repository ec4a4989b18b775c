"""From the SDK's parsed answers to values of the protocol.  Pure; an answer that lacks what it must have is refused."""

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tiers.checks import is_key
from tiers.errors import IntegrityError, TierUnavailable
from tiers.failures import Where
from tiers.profiles import Profile
from tiers.protocol import Key, ObjectInfo, ObjectPage, Part, PartPage

_CHECKSUM = re.compile(r"([A-Za-z0-9+/]{43}=)(?:-\d+)?")
_MISBEHAVES = "the store is misbehaving: check profile and endpoint_url"


def required(response: Mapping[str, Any], field: str, where: Where) -> str:
    """Return a field without its quotes; a success without it is a failure that was reported late."""
    value = response.get(field)
    if value in (None, ""):
        raise TierUnavailable(f"the answer has no {field}", **where.fields(), hint="the outcome is not known")
    return bare(str(value))


def attested(response: Mapping[str, Any], profile: Profile) -> str | None:
    """Return as hex the SHA-256 that the store says it found; None unless its word can be taken for it."""
    found = _CHECKSUM.fullmatch(response.get("ChecksumSHA256") or "")
    return base64.b64decode(found[1]).hex() if found and profile.checks_sha256 else None


def compare(found: str | None, expected: str, where: Where) -> None:
    """Raise IntegrityError where the store attests to other bytes than were sealed."""
    if found is not None and found != expected:
        message = f"the store found SHA-256 {found}, sealed was {expected}"
        raise IntegrityError(message, **where.fields(), hint="the object must not be used: send it again")


def object_page(response: Mapping[str, Any], root: str, prefix: str, where: Where) -> ObjectPage:
    """Return a page of a listing; ``root`` is the tier's own prefix in the bucket."""
    required(response, "IsTruncated", where)
    found = []
    for entry in response.get("Contents", []):
        key = required(entry, "Key", where).removeprefix(root)
        # Folder markers of other tools are no keys, and SeaweedFS answers for a/ when asked for a//.
        if key.startswith(prefix) and is_key(key):
            found.append(
                ObjectInfo(
                    key=Key(key),
                    size=int(required(entry, "Size", where)),
                    etag=bare(entry["ETag"]) if "ETag" in entry else None,
                    modified=entry.get("LastModified"),
                )
            )
    following = response.get("NextContinuationToken", "") if response["IsTruncated"] else None
    return ObjectPage(objects=tuple(found), next_token=following)


def part_page(response: Mapping[str, Any], token: str | None, profile: Profile, where: Where) -> PartPage:
    """Return a page of parts, without those that Complete might not take.

    A store that goes on listing a part that was replaced (SeaweedFS does, in no order that
    tells which is newer) may do so on both sides of a page's end, and never shows the second
    one then, since pages go by number.  So the last number of a page that is not the last is
    asked for again, at the head of the next one.
    """
    required(response, "IsTruncated", where)
    parts = tuple(
        Part(
            number=int(required(part, "PartNumber", where)),
            size=int(required(part, "Size", where)),
            etag=required(part, "ETag", where),
            sha256=attested(part, profile),
        )
        for part in response.get("Parts", [])
    )
    if not response["IsTruncated"]:
        return PartPage(parts=_unambiguous(parts), next_token=None)
    following = str(response.get("NextPartNumberMarker") or "")
    if profile.lists_replaced_parts and parts:
        last = parts[-1].number
        parts = tuple(part for part in parts if part.number < last)
        # A page of nothing but one number tells nothing of it: the part is sent again.
        following = str(last - 1) if parts else str(last)
    return PartPage(parts=_unambiguous(parts), next_token=advance(token, following, where))


def advance(token: str | None, following: str | None, where: Where) -> str | None:
    """Return the next token; a page that leads nowhere must not look like the last one."""
    if following is not None and following in {"", token}:
        raise TierUnavailable("the listing does not advance", **where.fields(), hint=_MISBEHAVES)
    return following


def _unambiguous(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Return one part a number, leaving out numbers that are listed with different contents."""
    found: dict[int, set[Part]] = {}
    for part in parts:
        found.setdefault(part.number, set()).add(part)
    return tuple(held.pop() for held in found.values() if len(held) == 1)


def bare(etag: str) -> str:
    """Return an ETag without quotes: quoted in headers and most bodies, bare in SeaweedFS's CopyPartResult."""
    return etag.strip('"')
