"""The errno table of volumes, proved complete against a second, independent one."""

import errno
import os
from pathlib import Path

import pytest

from tiers import effects
from tiers.bodies import BytesBody
from tiers.errors import (
    AccessDenied,
    CapacityExceeded,
    ObjectExists,
    ObjectNotFound,
    TierError,
    TierUnavailable,
    Unsupported,
)
from tiers.protocol import Key
from tiers.volume import VolumeTier
from tiers.volume_errnos import ERRNO_TABLE, translate

EXPECTED: dict[type[TierError], str] = {
    ObjectNotFound: "ENOENT",
    ObjectExists: "EEXIST",
    AccessDenied: "EACCES EPERM EROFS ELOOP",
    CapacityExceeded: "ENOSPC EDQUOT EFBIG EMLINK",
    Unsupported: "EISDIR ENOTDIR ENOTEMPTY ENAMETOOLONG EXDEV EINVAL ENOSYS EOPNOTSUPP",
    TierUnavailable: "EAGAIN EBUSY ECONNABORTED ECONNREFUSED ECONNRESET EHOSTDOWN EHOSTUNREACH EINTR EIO EMFILE "
    "ENETDOWN ENETUNREACH ENFILE ENODEV ENOLCK ENOMEM ENOTCONN ENXIO EPIPE EREMOTEIO ESHUTDOWN ESTALE ETIMEDOUT",
}
CASES = [(kind, name) for kind, names in EXPECTED.items() for name in names.split()]


def test_no_errno_is_forgotten() -> None:
    assert {getattr(errno, name) for _, name in CASES} == set(ERRNO_TABLE)


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_errno(kind: type[TierError], name: str) -> None:
    """Each becomes the class that tells the caller what to do, and says its own name."""
    number = getattr(errno, name)
    error = translate(OSError(number, os.strerror(number)), tier="volume", operation="put", key="k")
    assert type(error) is kind
    assert name in str(error)
    assert (error.tier, error.operation, error.key) == ("volume", "put", "k")
    assert error.hint or kind in (ObjectNotFound, ObjectExists)


def test_default() -> None:
    """An errno that nobody thought of is not retried and not mistaken for an answer."""
    for error in (OSError(errno.EBADF, "bad"), OSError("no number")):
        assert type(translate(error, tier="volume", operation="put", key="k")) is TierError


@pytest.mark.parametrize(("kind", "name"), [*CASES, (TierError, "EBADF")])
def test_errno_through_a_verb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[TierError], name: str
) -> None:
    """No OSError leaves the tier; a file that is missing in mid-write is the volume's failure."""

    def fail(_fd: int, _what: str) -> None:
        raise OSError(getattr(errno, name), os.strerror(getattr(errno, name)))

    tier = VolumeTier("volume", tmp_path)
    monkeypatch.setattr(effects, "fsync_fd", fail)
    with pytest.raises(TierError) as caught:
        tier.put(Key("k"), BytesBody(b"x"))
    assert type(caught.value) is (TierUnavailable if kind is ObjectNotFound else kind)
