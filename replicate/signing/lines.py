"""The lines of a log entry: what it says, the digest of that, and, where it is signed, by whom."""

import base64
import re
from dataclasses import dataclass

from replicate.errors import IntegrityFailure
from replicate.signing.keys import PublicKey, SigningKey

CONTEXT = b"ckptier log entry, format 1\n"
"""Precedes what is signed, so that no signature over anything else is one over a log entry."""
_SIGNATURE = re.compile(rb"ed25519 ([0-9a-f]{16}) ([A-Za-z0-9+/]{86}==)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SignatureLine:
    """The third line: the id of the key that it claims to be by, and the 64 bytes."""

    key: str
    signature: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """An entry taken apart.  ``signed`` are the exact bytes of the first two lines."""

    content: bytes
    digest: bytes
    signed: bytes
    signature: SignatureLine | None


def key_id(key: PublicKey) -> str:
    """Return how a key is named in entries and keyrings: the first 16 hex digits of its fingerprint."""
    return key.fingerprint.removeprefix("sha256:")[:16]


def split(data: bytes, *, what: str) -> Lines:
    """Take an entry apart; raises IntegrityFailure for what is neither two lines, nor these and a signature."""
    lines = data.split(b"\n", 4)
    if len(lines) not in (3, 4) or lines[-1]:
        raise IntegrityFailure(f"{what} is damaged: it does not have two lines, or three")
    signature = _read(lines[2], what) if len(lines) == 4 else None  # noqa: PLR2004 - three lines, each ended
    signed = lines[0] + b"\n" + lines[1] + b"\n"
    return Lines(content=lines[0], digest=lines[1], signed=signed, signature=signature)


def _read(line: bytes, what: str) -> SignatureLine:
    match = _SIGNATURE.fullmatch(line)
    signature = base64.b64decode(match[2]) if match else b""
    if match is None or base64.b64encode(signature) != match[2]:  # two spellings would be two entries
        raise IntegrityFailure(f"{what} is damaged: its third line is no signature")
    return SignatureLine(key=match[1].decode(), signature=signature)


def sign(entry: bytes, key: SigningKey) -> bytes:
    """Return an entry of two lines with its signature as the third."""
    encoded = base64.b64encode(key.sign(CONTEXT + entry))
    return entry + b"ed25519 " + key_id(key.public).encode() + b" " + encoded + b"\n"


def verifies(key: PublicKey, lines: Lines) -> bool:
    """Whether the key signed exactly these lines as a log entry; raises CapabilityMissing without cryptography."""
    return lines.signature is not None and key.verifies(lines.signature.signature, CONTEXT + lines.signed)


SIGNATURE_LINE_BYTES = len("ed25519 ") + 16 + 1 + 88 + 1
"""By how much a signed entry is longer."""
