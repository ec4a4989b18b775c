"""The error tree of tiers, by what the caller does about each.

    TierError
    ├── ObjectNotFound      the key is not there, and the store said so: decide
    ├── ObjectExists        a create lost: read the key and decide
    ├── IntegrityError      bytes differ from what was promised: never hand them out
    ├── AccessDenied        a person must change credentials, policy or the bucket's name
    ├── CapacityExceeded    a person must make room or raise a quota
    ├── Unsupported         this store cannot do it: choose another way
    └── TierUnavailable     the only retryable one: wait (retry_after) and ask again

A missing bucket or an unmounted volume is never ObjectNotFound: "there is no
checkpoint" is a statement that only a store that answered may make.
"""


class TierError(Exception):
    """A request to a tier failed.

    ``tier`` is its configured name, ``operation`` the verb, ``key`` what it was about
    (may be empty) and ``hint`` one line for the operator: what to do next.
    """

    def __init__(self, message: str, *, tier: str, operation: str, key: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.tier = tier
        self.operation = operation
        self.key = key
        self.hint = hint

    def __str__(self) -> str:
        """One line that names tier, operation and key."""
        about = f" {self.key}" if self.key else ""
        return f"{self.tier}: {self.operation}{about}: {self.message}"


class ObjectNotFound(TierError):
    """The store answered that there is no such key."""


class ObjectExists(TierError):
    """A create found the key taken; by whom is for the caller to read."""


class IntegrityError(TierError):
    """Bytes differ from their digest, or a body is shorter or longer than declared."""


class AccessDenied(TierError):
    """Credentials, policy or bucket name need a person."""


class CapacityExceeded(TierError):
    """No space, or a quota is used up."""


class Unsupported(TierError):
    """The store cannot do what was asked; capabilities should have said so."""


class TierUnavailable(TierError):
    """A passing failure.

    ``retry_after`` is in seconds where the store named a time.  ``throttled`` says that it
    asks for fewer requests, so that fewer at once are sent to it from then on.
    """

    def __init__(
        self,
        message: str,
        *,
        tier: str,
        operation: str,
        key: str = "",
        hint: str = "",
        retry_after: float | None = None,
        throttled: bool = False,
    ) -> None:
        super().__init__(message, tier=tier, operation=operation, key=key, hint=hint)
        self.retry_after = retry_after
        self.throttled = throttled
