"""The release policy (TOML): who may ask for, approve, publish and revoke a release, and to where.

Its digest stands in every authorization record, so that a change of the policy ends what was
authorized under the one before.  Keys are pinned here and nowhere else.  Somebody who leaves
stays in it with ``not_after``: what the person signed in the release log has to be provable later.

    format = 1
    threshold = 2                      # approvals; the requester's does not count
    log = "file:///srv/release-log"    # where publications are written down

    [[person]]
    name = "approver-one"
    key = "ed25519:…"
    may = ["approve"]

    [[destination]]
    url = "hf://acme/*"                # * stands for one part between slashes, or some of it
    visibility = ["private", "public"]
"""

import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, Field, ValidationError, model_validator

from replicate import canonical
from replicate.errors import ConfigInvalid, Denied
from replicate.paths import fold
from replicate.release.destination import Destination, Visibility
from replicate.release.documents import Document, Name, Text, encode, faults
from replicate.release.findings import Moment
from replicate.signing.keys import PublicKey
from replicate.tomltext import parse_toml

_NAME_IT = "name the release policy; `ckptier release init` writes one to fill in"
MAX_POLICY_BYTES = 1024 * 1024
MAX_PEOPLE = 256
MAX_VALID_DAYS = 90


class Permission(StrEnum):
    """What a person may do."""

    REQUEST = "request"
    APPROVE = "approve"
    PUBLISH = "publish"
    REVOKE = "revoke"


def _is_key(text: str) -> str:
    PublicKey.parse(text)
    return text


class Person(Document):
    """Somebody with a pinned key; from ``not_after`` on the person may do nothing new."""

    name: Name
    key: Annotated[str, AfterValidator(_is_key)]
    may: Annotated[tuple[Annotated[Permission, Field(strict=False)], ...], Field(strict=False, min_length=1)]
    not_after: Moment | None = None

    @property
    def public_key(self) -> PublicKey:
        """The pinned key."""
        return PublicKey.parse(self.key)

    def current(self, now: datetime) -> bool:
        """Whether the person may still act at ``now``."""
        return self.not_after is None or now < self.not_after


class AllowedDestination(Document):
    """Where releases may go.  ``endpoint`` has to be that of the destination, letter for letter."""

    url: Name
    endpoint: Text = ""
    visibility: Annotated[tuple[Annotated[Visibility, Field(strict=False)], ...], Field(strict=False, min_length=1)]

    def differing(self, destination: Destination) -> tuple[str, ...]:
        """Return the fields in which a destination is not this place."""
        wrong = (
            ("url", not _matches(self.url, destination.url)),
            ("endpoint", destination.endpoint != self.endpoint),
            ("visibility", destination.visibility not in self.visibility),
        )
        return tuple(field for field, differs in wrong if differs)


class Policy(Document):
    """The whole policy.  ``log`` is the URL of the release log, ``log_endpoint`` its store's address."""

    format: Literal[1]
    threshold: Annotated[int, Field(ge=1, le=MAX_PEOPLE)] = 2
    requester_may_approve: bool = False
    max_valid_days: Annotated[int, Field(ge=1, le=MAX_VALID_DAYS)] = 14
    log: Name
    log_endpoint: Text = ""
    person: Annotated[tuple[Person, ...], Field(strict=False, min_length=1, max_length=MAX_PEOPLE)]
    destination: Annotated[tuple[AllowedDestination, ...], Field(strict=False, min_length=1, max_length=256)]

    @property
    def sha256(self) -> str:
        """Digest of what the policy says, however its file is laid out."""
        return canonical.sha256(encode(self))

    @property
    def solo(self) -> bool:
        """Whether one person can ask for and approve a release alone."""
        return self.threshold == 1 and self.requester_may_approve

    def named(self, name: str) -> Person | None:
        """Return the person of that name."""
        return next((person for person in self.person if person.name == name), None)

    def who_may(self, permission: Permission) -> tuple[Person, ...]:
        """Return everybody who may do that, whether or not ``not_after`` has passed."""
        return tuple(person for person in self.person if permission in person.may)

    def stranger(self, destination: Destination) -> str:
        """Return the field for which a place is none that the policy names, visibility aside; empty where it is."""
        fields = [[one for one in place.differing(destination) if one != "visibility"] for place in self.destination]
        closest = min(fields, key=lambda wrong: ("url" in wrong, len(wrong)))
        return closest[0] if closest else ""

    def differing(self, destination: Destination) -> str:
        """Return the field for which a release may not go there; empty where it may."""
        closest = min(
            (one.differing(destination) for one in self.destination), key=lambda wrong: ("url" in wrong, len(wrong))
        )
        return closest[0] if closest else ""

    @model_validator(mode="after")
    def _holds_together(self) -> Self:
        found = [*_shared(self.person), *_unable(self), *_bad_log(self)]
        if found:
            raise ValueError("; ".join(found))
        return self


def wrong_key(policy: Policy, person: Person, found: PublicKey) -> Denied:
    """Return the refusal of a key that is not the one pinned for somebody; it says whose it is."""
    owner = next((f"that of {one.name!r}" for one in policy.person if one.key == found.text), "nobody's in the policy")
    return Denied(
        f"the key {found.text} is not the one that the policy pins for {person.name!r}: it is {owner}",
        hint=f"sign with the private half of {person.key}, or have the policy changed",
    )


def load_policy(path: Path) -> Policy:
    """Read and check a policy; every fault is named in one ConfigInvalid."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigInvalid(f"{path} cannot be read: {error.strerror}", hint=_NAME_IT) from error
    return parse_policy(data, what=str(path))


def parse_policy(data: bytes, *, what: str) -> Policy:
    """Read a policy from the bytes of its file; raises ConfigInvalid."""
    if len(data) > MAX_POLICY_BYTES:
        raise ConfigInvalid(f"{what} is larger than {MAX_POLICY_BYTES} bytes", hint="name the release policy")
    try:
        document = parse_toml(data.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigInvalid(f"{what} is not valid TOML: {error}", hint="correct the line that is named") from error
    try:
        return Policy.model_validate(document)
    except ValidationError as error:
        raise ConfigInvalid(
            f"{what}: {faults(error)}", hint="correct the keys named above; docs/release.md shows every key"
        ) from error


def _shared(people: Iterable[Person]) -> Iterator[str]:
    """Name what two people share: one key under two names would be a second approver that does not exist."""
    listed = tuple(people)
    for name, count in Counter(fold(person.name) for person in listed).items():
        if count > 1:
            alike = " and ".join(repr(person.name) for person in listed if fold(person.name) == name)
            yield f"person.name: {alike} are one name"
    for key, count in Counter(person.key for person in listed).items():
        if count > 1:
            holders = " and ".join(person.name for person in listed if person.key == key)
            yield f"person.key: {holders} have one key; each person needs a key of their own"


def _unable(policy: Policy) -> Iterator[str]:
    """Name what nobody could ever do under this policy."""
    for needed in (Permission.REQUEST, Permission.PUBLISH, Permission.REVOKE):
        if not policy.who_may(needed):
            yield f'person.may: nobody may {needed}; add "{needed}" to somebody\'s list'
    approvers = policy.who_may(Permission.APPROVE)
    spare = max((_others(policy, approvers, one) for one in policy.who_may(Permission.REQUEST)), default=len(approvers))
    if spare < policy.threshold:
        besides = "" if policy.requester_may_approve else " besides the requester"
        yield (
            f"threshold: {policy.threshold} approvers{besides} are needed and there are {spare}; "
            'add a [[person]] with their own key and may = ["approve"], or lower the threshold'
        )


def _others(policy: Policy, approvers: tuple[Person, ...], requester: Person) -> int:
    return len(approvers) - (requester in approvers and not policy.requester_may_approve)


def _bad_log(policy: Policy) -> Iterator[str]:
    if "://" not in policy.log or "@" in urlsplit(policy.log).netloc:
        yield f"log: {policy.log!r} is no tier's URL without credentials, such as file:///srv/release-log"


def _matches(pattern: str, url: str) -> bool:
    """Compare part by part, as the tier will read them: ``*`` does not cross a slash, and no part may climb."""
    wanted, parts = ([unquote(part) for part in text.split("/")] for text in (pattern, url))
    if len(wanted) != len(parts) or any(part in (".", "..") or "/" in part or "\0" in part for part in parts):
        return False
    return all((part or not want) and fnmatchcase(part, want) for part, want in zip(parts, wanted, strict=True))
