"""What the numbers that a filesystem answers with mean to a caller, in one table."""

import errno
import os
from collections.abc import Mapping
from pathlib import Path

from tiers.errors import (
    AccessDenied,
    CapacityExceeded,
    ObjectExists,
    ObjectNotFound,
    TierError,
    TierUnavailable,
    Unsupported,
)

_PERMISSION = "check owner, mode and mount options of the volume for this user"
_ROOM = "make room on the volume or raise its quota"
_PASSING = "the volume does not answer as it should; it is tried again"
_NAMES = "on a volume, names are at most 255 bytes and a key cannot also be the folder of another key"
_FILESYSTEM = "this filesystem lacks what a volume needs: `ckptier check --probe` says what, and which mode fits"

ERRNO_TABLE: Mapping[int, tuple[type[TierError], str]] = {
    errno.ENOENT: (ObjectNotFound, ""),
    errno.EEXIST: (ObjectExists, ""),
    errno.EACCES: (AccessDenied, _PERMISSION),
    errno.EPERM: (AccessDenied, _PERMISSION),
    errno.EROFS: (AccessDenied, "the volume is mounted read-only"),
    errno.ELOOP: (AccessDenied, "symbolic links below the root are not followed: remove the link"),
    errno.ENOSPC: (CapacityExceeded, _ROOM),
    errno.EDQUOT: (CapacityExceeded, _ROOM),
    errno.EFBIG: (CapacityExceeded, "the file would be larger than the filesystem or `ulimit -f` allows"),
    errno.EMLINK: (CapacityExceeded, "too many links or folders in one folder"),
    errno.EISDIR: (Unsupported, _NAMES),
    errno.ENOTDIR: (Unsupported, _NAMES),
    errno.ENOTEMPTY: (Unsupported, _NAMES),
    errno.ENAMETOOLONG: (Unsupported, _NAMES),
    errno.EXDEV: (Unsupported, "another filesystem is mounted below the root: make it a tier of its own"),
    errno.EINVAL: (Unsupported, _FILESYSTEM),
    errno.ENOSYS: (Unsupported, _FILESYSTEM),
    errno.EOPNOTSUPP: (Unsupported, _FILESYSTEM),
    **dict.fromkeys(
        (
            errno.EAGAIN,
            errno.EBUSY,
            errno.ECONNABORTED,
            errno.ECONNREFUSED,
            errno.ECONNRESET,
            errno.EHOSTDOWN,
            errno.EHOSTUNREACH,
            errno.EINTR,
            errno.EIO,
            errno.EMFILE,
            errno.ENETDOWN,
            errno.ENETUNREACH,
            errno.ENFILE,
            errno.ENODEV,
            errno.ENOLCK,
            errno.ENOMEM,
            errno.ENOTCONN,
            errno.ENXIO,
            errno.EPIPE,
            errno.EREMOTEIO,
            errno.ESHUTDOWN,
            errno.ESTALE,
            errno.ETIMEDOUT,
        ),
        (TierUnavailable, _PASSING),
    ),
}
"""What each errno means to the caller, and what to tell the operator.  An errno that is not here is a TierError."""


_NAMES_OF_ERRNOS = {**errno.errorcode, errno.EOPNOTSUPP: "EOPNOTSUPP", errno.EAGAIN: "EAGAIN"}  # two have two names


def name_of(number: int | None) -> str:
    """Return the symbol of an errno."""
    return _NAMES_OF_ERRNOS.get(number or 0, "no errno")


def translate(error: OSError, *, tier: str, operation: str, key: str) -> TierError:
    """Return the tier's error for an OSError."""
    kind, hint = ERRNO_TABLE.get(error.errno or 0, (TierError, "an unexpected answer of the filesystem"))
    message = f"{error.strerror or error} [{name_of(error.errno)}]"
    return kind(message, tier=tier, operation=operation, key=key, hint=hint)


def failure(number: int, path: Path) -> OSError:
    """Return the OSError that the system would raise."""
    return OSError(number, os.strerror(number), str(path))
