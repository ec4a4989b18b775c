"""The table of foreign errors is complete: whatever an implementation raises, a tier's error comes out."""

import errno
import importlib
import inspect
import pkgutil
import ssl
from collections.abc import Iterator
from functools import partial
from types import ModuleType
from typing import Any

import pytest

from tiers.errors import (
    AccessDenied,
    CapacityExceeded,
    IntegrityError,
    ObjectExists,
    ObjectNotFound,
    TierError,
    TierUnavailable,
    Unsupported,
)
from tiers.fsspec import FsspecTier
from tiers.fsspec_backends import Backend, Entry, Source
from tiers.fsspec_errors import STATUSES, class_name, translate
from tiers.fsspec_stores import STORES
from tiers.fsspec_vendors import CLASSES
from tiers.protocol import Fencing, Key

PACKAGES = (
    "paramiko",
    "aiohttp",
    "botocore.exceptions",
    "botocore.parsers",
    "aiobotocore",
    "fsspec",
    "s3fs",
    "webdav4",
    "httpx",
    "httpcore",
)


def modules(name: str) -> Iterator[ModuleType]:
    """Yield a module, and where it is a package the modules in it that can be imported."""
    module = importlib.import_module(name)
    yield module
    for found in pkgutil.iter_modules(getattr(module, "__path__", ())):
        try:
            yield importlib.import_module(f"{name}.{found.name}")
        except (ImportError, AttributeError, SystemExit):
            continue  # it is for another system or package: nothing of it can be raised here


def vendor_errors(package: str) -> dict[str, type[Exception]]:
    """Return the exception classes that a package defines."""
    found: dict[str, type[Exception]] = {}
    for module in modules(package):
        for _, cls in inspect.getmembers(module, inspect.isclass):
            ours = cls.__module__.startswith(package) and not cls.__module__.startswith("aiohttp.web")  # its server
            if ours and issubclass(cls, Exception) and not issubclass(cls, Warning):
                found[f"{cls.__module__}.{cls.__name__}"] = cls
    return found


def bare(cls: type[BaseException]) -> BaseException:
    """Make an exception whose constructor nobody knows."""
    return cls.__new__(cls)


def translated(error: BaseException, operation: str = "put") -> TierError:
    return translate(error, tier="t", operation=operation, key="k")


@pytest.mark.parametrize("package", PACKAGES)
def test_every_vendor_error_is_known(package: str) -> None:
    """None is left to chance: each is in the table by itself or through what it derives from."""
    found = vendor_errors(package)
    assert found
    strangers = [
        name
        for name, cls in found.items()
        if type(translated(bare(cls))) is TierError
        and not any(class_name(base) in CLASSES for base in cls.__mro__)
        and not issubclass(cls, (ValueError, TypeError, KeyError, AttributeError, RuntimeError))
    ]
    assert strangers == []


class Raising(Backend):
    """A filesystem that raises one error at everything, but has its root."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(None, "", STORES["sftp"])
        self._error = error

    def stat(self, key: str) -> Entry:
        raise self._error

    def open(self, key: str) -> Source:
        raise self._error

    def create(self, key: str, data: bytes) -> Entry:
        raise self._error

    def root_is_there(self) -> bool:
        return True


@pytest.mark.parametrize("package", PACKAGES)
def test_no_vendor_error_leaves_a_verb(package: str) -> None:
    for cls in vendor_errors(package).values():
        raising = Raising(bare(cls))
        tier = FsspecTier("t", store=STORES["sftp"], fencing=Fencing.POSIX, connect=partial(_give, raising))
        for verb in (tier.stat, tier.open, partial(tier.create, data=b"x")):
            with pytest.raises(TierError) as caught:
                verb(Key("k"))
            assert caught.value.__cause__ is None, "a vendor's text may quote secrets"


def _give(backend: Backend) -> Backend:
    return backend


@pytest.mark.parametrize("package", PACKAGES)
def test_no_vendor_error_leaves_connecting(package: str) -> None:
    for cls in vendor_errors(package).values():
        tier = FsspecTier("t", store=STORES["sftp"], fencing=Fencing.POSIX, connect=partial(_refuse, bare(cls)))
        with pytest.raises(TierError) as caught:
            tier.stat(Key("k"))
        assert not isinstance(caught.value, ObjectNotFound), "nothing was asked yet"


def _refuse(error: BaseException) -> Backend:
    raise error


class FakeHttpError(Exception):
    def __init__(self, **fields: Any) -> None:
        super().__init__("secret text")
        self.__dict__.update(fields)


def s3(code: str, status: int, **headers: str) -> Exception:
    metadata = {"HTTPStatusCode": status, "HTTPHeaders": headers}
    return FakeHttpError(response={"Error": {"Code": code, "Message": "secret text"}, "ResponseMetadata": metadata})


def caused(outer: Exception, inner: BaseException) -> Exception:
    outer.__cause__ = inner
    return outer


CASES: list[tuple[BaseException, str, type[TierError]]] = [
    (FileNotFoundError("k"), "stat", ObjectNotFound),
    (FileExistsError("k"), "create", ObjectExists),
    (FileExistsError("k"), "put", Unsupported),
    (PermissionError("secret text"), "put", AccessDenied),
    (OSError(errno.EACCES, "x"), "put", AccessDenied),
    (OSError(errno.ENOSPC, "x"), "put", CapacityExceeded),
    (OSError(errno.EDQUOT, "x"), "put", CapacityExceeded),
    (OSError(errno.ECONNRESET, "x"), "put", TierUnavailable),
    (OSError("Failure"), "put", TierUnavailable),
    (OSError("Forbidden: secret text"), "put", AccessDenied),
    (OSError("Operation unsupported"), "create", Unsupported),
    (ConnectionResetError(), "put", TierUnavailable),
    (TimeoutError(), "put", TierUnavailable),
    (EOFError(), "put", TierUnavailable),
    (ssl.SSLError("secret text"), "put", TierUnavailable),
    (caused(OSError("x"), ssl.SSLCertVerificationError("x")), "put", AccessDenied),
    (NotImplementedError(), "put", Unsupported),
    (ValueError("secret text"), "put", TierError),
    (RuntimeError("secret text"), "put", TierError),
    (caused(RuntimeError("Failed"), ConnectionResetError()), "put", TierUnavailable),
    (caused(OSError("x"), FakeHttpError(status_code=403)), "put", AccessDenied),
    (FakeHttpError(status=404), "stat", ObjectNotFound),
    (FakeHttpError(code="429"), "put", TierUnavailable),
    (FakeHttpError(status_code=412), "create", ObjectExists),
    (FakeHttpError(status_code=412), "put", IntegrityError),
    (FakeHttpError(status_code=507), "put", CapacityExceeded),
    (FakeHttpError(status_code=599), "put", TierUnavailable),
    (FakeHttpError(status_code=418), "put", TierError),
    (caused(FileNotFoundError("b"), s3("NoSuchBucket", 404)), "stat", AccessDenied),
    (caused(FileNotFoundError("k"), s3("NoSuchKey", 404)), "stat", ObjectNotFound),
    (caused(OSError(errno.EINVAL, "x"), s3("PreconditionFailed", 412)), "create", ObjectExists),
    (caused(OSError(errno.EBUSY, "x"), s3("ConditionalRequestConflict", 409)), "create", TierUnavailable),
    (caused(OSError(errno.EBUSY, "x"), s3("SlowDown", 503)), "put", TierUnavailable),
    (caused(OSError(errno.EIO, "x"), s3("QuotaExceeded", 403)), "put", CapacityExceeded),
    (caused(OSError(errno.EINVAL, "x"), s3("InvalidRange", 416)), "open", IntegrityError),
    (s3("SomethingNew", 418), "put", TierError),
]


@pytest.mark.parametrize(("error", "operation", "kind"), CASES, ids=[repr(case[0])[:60] for case in CASES])
def test_meaning(error: BaseException, operation: str, kind: type[TierError]) -> None:
    """Each becomes what tells the caller what to do, in words that repeat nothing of the vendor's."""
    found = translated(error, operation)
    assert type(found) is kind
    assert (found.tier, found.operation, found.key) == ("t", operation, "k")
    assert "secret" not in f"{found} {found.hint}"


@pytest.mark.parametrize("status", sorted(STATUSES))
def test_statuses(status: int) -> None:
    found = translated(FakeHttpError(status_code=status))
    assert type(found) is STATUSES[status].error
    assert f"HTTP {status}" in str(found)


def test_retry_after() -> None:
    """What a store asks to wait is passed on, also where it is a date on its own clock."""
    headers = {"Retry-After": "Mon, 30 Nov 2026 10:00:07 GMT", "Date": "Mon, 30 Nov 2026 10:00:00 GMT"}
    for error, seconds in (
        (s3("SlowDown", 503, **{"retry-after": "3"}), 3.0),
        (FakeHttpError(status=429, headers=headers), 7.0),
        (FakeHttpError(status=429, headers={"Retry-After": "soon"}), None),
        (FakeHttpError(status=429), None),
    ):
        found = translated(error)
        assert isinstance(found, TierUnavailable)
        assert found.retry_after == seconds


def test_certain_classes_by_name() -> None:
    """Where classes of one package mean different things, the special one counts."""
    paramiko = importlib.import_module("paramiko")
    aiohttp = importlib.import_module("aiohttp")
    for cls, kind in (
        (paramiko.SSHException, TierUnavailable),
        (paramiko.AuthenticationException, AccessDenied),
        (paramiko.PasswordRequiredException, AccessDenied),
        (paramiko.BadHostKeyException, AccessDenied),
        (aiohttp.ClientConnectorCertificateError, AccessDenied),
        (aiohttp.ServerDisconnectedError, TierUnavailable),
        (aiohttp.ClientPayloadError, TierUnavailable),
    ):
        assert type(translated(bare(cls))) is kind, cls


def test_a_chain_that_bites_its_tail_ends() -> None:
    first, second = OSError("a"), OSError("b")
    first.__cause__, second.__cause__ = second, first
    assert type(translated(first)) in (TierError, TierUnavailable)
