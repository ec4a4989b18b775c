"""Users, organisations and tokens, and what they may do."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from http import HTTPStatus

from support.hub.refusals import RefusedError

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


class TokenRole(StrEnum):
    """What a token was made for."""

    READ = "read"
    WRITE = "write"


class OrgRole(StrEnum):
    """What a member may do with the organisation's repos; writing includes settings and deletion."""

    READ = "read"
    WRITE = "write"


class Visibility(StrEnum):
    """Who sees that a repo exists."""

    PUBLIC = "public"
    PRIVATE = "private"


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """A user or an organisation.

    ``default_visibility`` is what a new repo gets when its creator says nothing; the Hub's own
    default is public.  ``private_limit`` is in bytes of LFS objects over all private repos.
    """

    name: str
    members: Mapping[str, OrgRole] | None = None  # None for a user
    default_visibility: Visibility = Visibility.PUBLIC
    private_limit: int | None = None

    def role_of(self, user: str) -> OrgRole | None:
        """Return what a user may do here."""
        if self.members is None:
            return OrgRole.WRITE if user == self.name else None
        return self.members.get(user)


@dataclass(frozen=True, slots=True, kw_only=True)
class Token:
    """A credential.  Records and inspection show ``name`` only."""

    name: str
    user: str
    role: TokenRole
    secret: str = field(repr=False)


def token_secret(name: str) -> str:
    """Return a secret in the form of the Hub's, the same for the same name."""
    digest = hashlib.sha256(name.encode()).digest() + hashlib.sha256(name.encode() + b"+").digest()
    return "hf_" + "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:34])


class Accounts:
    """Everyone that the server knows."""

    def __init__(self) -> None:
        self.namespaces: dict[str, Namespace] = {}
        self._tokens: dict[str, Token] = {}

    def add_token(self, token: Token) -> None:
        """Make a token valid; its user comes into being with it."""
        self.namespaces.setdefault(token.user, Namespace(name=token.user))
        self._tokens[token.secret] = token

    def revoke(self, name: str) -> None:
        """Make the token of this name invalid."""
        self._tokens = {secret: token for secret, token in self._tokens.items() if token.name != name}

    def authenticate(self, authorization: str | None) -> Token | None:
        """Return the token of a request, None for an anonymous one; refuse what is no valid token."""
        if authorization is None:
            return None
        token = self._tokens.get(authorization.removeprefix("Bearer "))
        if token is None:
            # The library tells this from a hidden repo by the words, and only by them.
            raise RefusedError(HTTPStatus.UNAUTHORIZED, "Invalid credentials in Authorization header")
        return token

    def may_read(self, token: Token | None, namespace: str) -> bool:
        """Tell whether a token sees the private repos of a namespace."""
        return token is not None and self.namespaces[namespace].role_of(token.user) is not None

    def may_write(self, token: Token | None, namespace: str) -> bool:
        """Tell whether a token may change the repos of a namespace."""
        if token is None or token.role is not TokenRole.WRITE or namespace not in self.namespaces:
            return False
        return self.namespaces[namespace].role_of(token.user) is OrgRole.WRITE
