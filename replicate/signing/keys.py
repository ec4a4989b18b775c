"""Ed25519 keys: made, kept in files that only their owner reads, named by fingerprint.

A private key is a PEM file (PKCS #8), with a passphrase or without one.  A passphrase comes
from a file or from a prompt that the caller supplies, never from an argument or the
environment, where other processes could read it.  A public key is one word of text,
``ed25519:`` and the base64 of its 32 bytes, and is pinned where it is trusted.

Signatures are RFC 8032; ``cryptography`` makes and checks them and is imported on first use.
"""

import base64
import hashlib
import importlib
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Self

from replicate.errors import CapabilityMissing, ConfigInvalid, Denied, LocalDisk, UsageError
from tiers import effects

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

Passphrase = Callable[[], bytes]
"""Gives the passphrase when it is asked for; it is asked once."""

RAW_BYTES = 32
SIGNATURE_BYTES = 64
MAX_KEY_FILE_BYTES = 16 * 1024
_PREFIX = "ed25519:"
_OTHERS = 0o077
_P = 2**255 - 19
_ORDER_8 = int.from_bytes(bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"), "little")
_WEAK = frozenset({0, 1, _P - 1, _ORDER_8, _P - _ORDER_8})
"""y of the eight points of small order: under such a key, signatures can be made by anybody."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A public key; ``raw`` are its 32 bytes."""

    raw: bytes

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``ed25519:<base64>``; raises ValueError that says what is wrong with it."""
        if not text.startswith(_PREFIX):
            raise ValueError(f"a public key starts with {_PREFIX}, as `ckptier keys show` prints it")
        encoded = text.removeprefix(_PREFIX)
        try:
            raw = base64.b64decode(encoded, validate=True)
        except ValueError:
            raise ValueError("a public key is the base64 of 32 bytes") from None
        if len(raw) != RAW_BYTES or base64.b64encode(raw).decode() != encoded:
            raise ValueError("a public key is the base64 of 32 bytes")
        y = int.from_bytes(raw, "little") & (2**255 - 1)
        if y >= _P or y in _WEAK:
            raise ValueError("this is no point that a key may have: make a key and use its public half")
        return cls(raw)

    @property
    def text(self) -> str:
        """The one spelling of the key."""
        return _PREFIX + base64.b64encode(self.raw).decode()

    @property
    def fingerprint(self) -> str:
        """``sha256:`` and the hex digest of the raw key."""
        return "sha256:" + hashlib.sha256(self.raw).hexdigest()

    def verifies(self, signature: bytes, data: bytes) -> bool:
        """Whether the owner of this key signed exactly these bytes.  Raises CapabilityMissing."""
        if len(signature) != SIGNATURE_BYTES:
            return False
        ed25519 = _cryptography("hazmat.primitives.asymmetric.ed25519")
        invalid = _cryptography("exceptions").InvalidSignature
        try:
            ed25519.Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, data)
        except (invalid, ValueError):  # ValueError: the bytes are no point of the curve
            return False
        return True


class SigningKey:
    """A private key in memory.  It has no spelling: nothing that prints it shows more than its fingerprint."""

    __slots__ = ("_private", "public")

    def __init__(self, private: "Ed25519PrivateKey") -> None:
        self._private = private
        self.public = PublicKey(private.public_key().public_bytes_raw())

    def sign(self, data: bytes) -> bytes:
        """Return the 64 bytes of a signature over exactly these bytes."""
        return self._private.sign(data)

    def __repr__(self) -> str:
        return f"SigningKey({self.public.fingerprint})"

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("a signing key is not pickled")


def generate(path: Path, *, passphrase: Passphrase | None = None) -> SigningKey:
    """Make a key and write its private half to a new file of mode 0600; returns it.

    Raises UsageError where the file exists (a key is never overwritten), LocalDisk where it
    cannot be written, Denied for an empty passphrase and CapabilityMissing without cryptography.
    """
    private: Ed25519PrivateKey = _cryptography("hazmat.primitives.asymmetric.ed25519").Ed25519PrivateKey.generate()
    forms = _cryptography("hazmat.primitives.serialization")
    encryption = forms.BestAvailableEncryption(_ask(passphrase)) if passphrase else forms.NoEncryption()
    pem = private.private_bytes(forms.Encoding.PEM, forms.PrivateFormat.PKCS8, encryption)
    _write_private(path, pem)
    return SigningKey(private)


def load(path: Path, *, passphrase: Passphrase | None = None) -> SigningKey:
    """Read a private key; ``passphrase`` is asked only where the file is encrypted.

    Raises Denied where others can read the file or the passphrase is wrong or missing,
    ConfigInvalid where it holds no Ed25519 key, LocalDisk where it cannot be read, and
    CapabilityMissing without cryptography.
    """
    pem = _read_private(path, what="the key file")
    ed25519 = _cryptography("hazmat.primitives.asymmetric.ed25519")
    secret = None
    if b"ENCRYPTED" in pem:
        if passphrase is None:
            raise Denied(f"{path}: the key is encrypted", hint="give its passphrase, by a file or at the prompt")
        secret = _ask(passphrase)
    private = _parse(pem, secret, path)
    if not isinstance(private, ed25519.Ed25519PrivateKey):
        raise ConfigInvalid(f"{path} holds another kind of key than Ed25519", hint="`ckptier keys new` makes one")
    return SigningKey(private)


def passphrase_from(path: Path) -> Passphrase:
    """Return a passphrase that is read from a file when it is asked for; one line end after it is not part of it.

    The file has to be as private as a key: asking raises Denied or LocalDisk.
    """

    def read() -> bytes:
        data = _read_private(path, what="the passphrase file")
        return data.removesuffix(b"\n").removesuffix(b"\r")

    return read


def _ask(passphrase: Passphrase) -> bytes:
    secret = passphrase()
    if not secret:
        raise Denied("the passphrase is empty", hint="give one; `keygen --no-passphrase` makes a key without")
    return secret


def _parse(pem: bytes, secret: bytes | None, path: Path) -> object:
    forms = _cryptography("hazmat.primitives.serialization")
    unsupported = _cryptography("exceptions").UnsupportedAlgorithm
    try:
        private: object = forms.load_pem_private_key(pem, secret)
    except (ValueError, TypeError, unsupported):
        # Its words could quote the file: they are not repeated.
        if secret is not None:
            raise Denied(f"{path}: the passphrase is wrong, or the file is damaged", hint="try again") from None
        raise ConfigInvalid(f"{path} holds no private key in PEM form", hint="name the private key's file") from None
    return private


def _read_private(path: Path, *, what: str) -> bytes:
    """Read a small file that only its owner may read; the file that was judged is the one that is read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode):
                raise ConfigInvalid(f"{what} {path} is no regular file", hint="name the file itself")
            if found.st_mode & _OTHERS or found.st_uid not in (os.geteuid(), 0):
                mode = stat.S_IMODE(found.st_mode)
                raise Denied(
                    f"{what} {path} can be read by others (mode {mode:04o}, owner {found.st_uid})",
                    hint=f"chmod 600 {path}; where others could have read it, make another key",
                )
            data = os.read(fd, MAX_KEY_FILE_BYTES + 1)
        finally:
            os.close(fd)
    except OSError as error:
        hint = "check the path; a key that is lost is rotated away: docs/signing.md"
        raise LocalDisk(f"{what} {path} cannot be read: {error.strerror}", hint=hint) from error
    if len(data) > MAX_KEY_FILE_BYTES:
        raise ConfigInvalid(f"{what} {path} is larger than {MAX_KEY_FILE_BYTES} bytes", hint="name the right file")
    return data


def _write_private(path: Path, data: bytes) -> None:
    try:
        # O_EXCL: neither a file nor a link that somebody put there is written through.
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        raise UsageError(f"{path} exists, and a key is never overwritten", hint="name a new file") from None
    except OSError as error:
        raise LocalDisk(
            f"{path} cannot be created: {error.strerror}", hint=f"check the folder {path.parent}"
        ) from error
    try:
        try:
            os.fchmod(fd, 0o600)
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            effects.fsync_fd(fd, str(path))
        finally:
            os.close(fd)
        effects.fsync_directory(path.parent)
    except OSError as error:
        effects.unlink(path)
        raise LocalDisk(f"{path} cannot be written: {error.strerror}", hint="check the disk") from error


def _cryptography(module: str) -> ModuleType:
    """Import a part of cryptography; raises CapabilityMissing where it is not installed."""
    try:
        return importlib.import_module(f"cryptography.{module}")
    except ModuleNotFoundError as error:
        raise CapabilityMissing(
            "signing and checking signatures needs cryptography, which is not installed",
            hint="pip install 'ckptier[sign]'",
        ) from error
