"""Errors by exit code: the code is part of the interface, so it lives with the error.

    CkptierError                 1   error
    ├── UsageError               2   the command was put together wrongly
    ├── PartialFailure           3   some tiers failed, or a fallback under --strict
    ├── NothingFound             4   no generation, no replica
    ├── IntegrityFailure         5   stored or local bytes are not what was sealed
    ├── TrustFailure             6   unrelated history, fork, rollback, signature
    │   └── ContractChanged      6   resuming under another contract
    ├── Fenced                   7   another writer holds the term, or a lock is taken
    ├── Denied                   8   credentials or policy
    ├── Unreachable              9   a tier did not answer; trying again helps
    ├── ConfigInvalid           10   ckptier.toml or a name in it
    ├── LocalDisk               11   local I/O, space or permissions
    ├── CapabilityMissing       12   a tier or an optional package cannot do it
    └── NotSafe                 20   terminating now would lose something

Every one carries ``hint``: one line that says what to do next.
"""

from enum import IntEnum

from tiers import errors as tier_errors


class ExitCode(IntEnum):
    """What the command exits with; a code that is not listed here means failure."""

    OK = 0
    ERROR = 1
    USAGE = 2
    PARTIAL = 3
    NOTHING = 4
    INTEGRITY = 5
    TRUST = 6
    FENCED = 7
    DENIED = 8
    UNREACHABLE = 9
    CONFIG = 10
    DISK = 11
    CAPABILITY = 12
    NOT_SAFE = 20
    INTERRUPTED = 130
    TERMINATED = 143


class CkptierError(Exception):
    """Base of everything that ckptier raises on purpose."""

    exit_code = ExitCode.ERROR

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(CkptierError):
    """The command or call was put together wrongly."""

    exit_code = ExitCode.USAGE


class PartialFailure(CkptierError):
    """Some of what was asked for was done."""

    exit_code = ExitCode.PARTIAL


class NothingFound(CkptierError):
    """Every place that could hold it answered, and none does."""

    exit_code = ExitCode.NOTHING


class IntegrityFailure(CkptierError):
    """Bytes are not what was sealed."""

    exit_code = ExitCode.INTEGRITY


class TrustFailure(CkptierError):
    """The history found is not the history expected."""

    exit_code = ExitCode.TRUST


class ContractChanged(TrustFailure):
    """The contract of the generation is not the one asked for; ``keys`` differ."""

    def __init__(self, message: str, *, keys: tuple[str, ...], hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.keys = keys


class Fenced(CkptierError):
    """Another writer holds the term, or another process holds the lock."""

    exit_code = ExitCode.FENCED


class Denied(CkptierError):
    """Credentials or policy."""

    exit_code = ExitCode.DENIED


class Unreachable(CkptierError):
    """A tier did not answer."""

    exit_code = ExitCode.UNREACHABLE


class ConfigInvalid(CkptierError):
    """Configuration that cannot be used."""

    exit_code = ExitCode.CONFIG


class LocalDisk(CkptierError):
    """Local I/O, space or permissions."""

    exit_code = ExitCode.DISK


class CapabilityMissing(CkptierError):
    """A tier or an optional package cannot do what was asked."""

    exit_code = ExitCode.CAPABILITY


class NotSafe(CkptierError):
    """Terminating now would lose something."""

    exit_code = ExitCode.NOT_SAFE


_BY_TIER_ERROR: tuple[tuple[type[tier_errors.TierError], type[CkptierError], str], ...] = (
    (tier_errors.ObjectNotFound, IntegrityFailure, "an object that should be there is not: run `ckptier verify`"),
    (tier_errors.ObjectExists, Fenced, "another writer was first: look at `ckptier status`"),
    (tier_errors.IntegrityError, IntegrityFailure, "run `ckptier verify --read-data` to see what is hurt"),
    (tier_errors.AccessDenied, Denied, "check credentials, bucket name and policy with `ckptier check`"),
    (tier_errors.CapacityExceeded, PartialFailure, "make room on the tier or raise its quota, then run again"),
    (tier_errors.Unsupported, CapabilityMissing, "look at what the tier can do with `ckptier check`"),
    (tier_errors.TierUnavailable, Unreachable, "check the endpoint with `ckptier check`, or try again later"),
    (tier_errors.TierError, CkptierError, ""),
)


def from_tier_error(error: tier_errors.TierError) -> CkptierError:
    """Translate a tier's error, in the one place where exit codes for them are decided."""
    for kind, ours, hint in _BY_TIER_ERROR:
        if isinstance(error, kind):
            return ours(str(error), hint=error.hint or hint)
    raise AssertionError(type(error))
