"""DSSE: signatures over exact bytes together with what kind of document they are.

Specification: https://github.com/secure-systems-lab/dsse (v1.0.2, read 2026-11-29).  What is
signed is the pre-authentication encoding (``pae``) of payload type and payload, so that what was
signed as one kind of document is never taken for another.  The payload is parsed only from the
bytes that the signature covers.

Stricter than the specification in four ways: the base64 has one spelling, unknown fields are
errors, the number of signatures is bounded, and a ``keyid`` has to be the fingerprint of the key
that made the signature.  It still proves nothing by itself: only the caller's own keys do.
"""

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError

from replicate import canonical
from replicate.errors import IntegrityFailure
from replicate.release.documents import Document, faults
from replicate.signing.keys import SIGNATURE_BYTES, PublicKey, SigningKey

MAX_ENVELOPE_BYTES = 8 * 1024 * 1024
MAX_SIGNATURES = 16


class PayloadType(StrEnum):
    """What a signed document is."""

    AUTHORIZATION = "application/vnd.ckptier.release-authorization+json"
    APPROVAL = "application/vnd.ckptier.release-approval+json"
    LOG_ENTRY = "application/vnd.ckptier.release-log-entry+json"


class _SignatureDocument(Document):
    keyid: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]
    sig: Annotated[str, Field(max_length=128)]


class _EnvelopeDocument(Document):
    payload_type: Annotated[str, Field(alias="payloadType", max_length=256)]
    payload: Annotated[str, Field(max_length=MAX_ENVELOPE_BYTES)]
    signatures: Annotated[tuple[_SignatureDocument, ...], Field(strict=False, min_length=1, max_length=MAX_SIGNATURES)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """One signature; ``keyid`` is the fingerprint of the key that it claims to be by."""

    keyid: str
    sig: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """A payload and its signatures.  That it could be made says nothing about whether they hold."""

    payload_type: PayloadType
    payload: bytes
    signatures: tuple[Signature, ...]

    def document(self) -> dict[str, Any]:
        """Return it as a JSON document."""
        return {
            "payloadType": self.payload_type.value,
            "payload": base64.b64encode(self.payload).decode(),
            "signatures": [{"keyid": one.keyid, "sig": base64.b64encode(one.sig).decode()} for one in self.signatures],
        }

    def encode(self) -> bytes:
        """Return its canonical bytes."""
        return canonical.dump(self.document())

    def signed_by(self, key: PublicKey) -> bool:
        """Whether ``key`` made one of the signatures, over exactly this payload as exactly this type."""
        data = pae(self.payload_type, self.payload)
        return any(one.keyid == key.fingerprint and key.verifies(one.sig, data) for one in self.signatures)

    def with_signature(self, key: SigningKey) -> Self:
        """Return it with one more signature."""
        made = Signature(keyid=key.public.fingerprint, sig=key.sign(pae(self.payload_type, self.payload)))
        return type(self)(payload_type=self.payload_type, payload=self.payload, signatures=(*self.signatures, made))


def pae(payload_type: PayloadType, payload: bytes) -> bytes:
    """Return the bytes that are signed: ``DSSEv1``, then length and content of type and payload."""
    kind = payload_type.value.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def sign(payload_type: PayloadType, payload: bytes, key: SigningKey) -> Envelope:
    """Sign exact bytes; raises CapabilityMissing without cryptography."""
    return Envelope(payload_type=payload_type, payload=payload, signatures=()).with_signature(key)


def verify(envelope: Envelope, expected: PayloadType, keys: Iterable[PublicKey]) -> tuple[PublicKey, ...]:
    """Return those of ``keys`` that signed this payload as ``expected``; none where it is of another type."""
    if envelope.payload_type is not expected:
        return ()
    return tuple(key for key in keys if envelope.signed_by(key))


def parse(data: bytes, *, what: str) -> Envelope:
    """Read an envelope from JSON bytes; raises IntegrityFailure that names the field."""
    return from_document(canonical.load(data, what=what, max_bytes=MAX_ENVELOPE_BYTES), what=what)


def from_document(document: object, *, what: str) -> Envelope:
    """Read an envelope from parsed JSON; raises IntegrityFailure that names the field."""
    try:
        read = _EnvelopeDocument.model_validate(document)
        return Envelope(
            payload_type=PayloadType(read.payload_type),
            payload=_base64(read.payload, "payload"),
            signatures=tuple(_signature(one, index) for index, one in enumerate(read.signatures)),
        )
    except ValueError as error:
        words = faults(error) if isinstance(error, ValidationError) else str(error)
        raise IntegrityFailure(f"{what} is no envelope: {words}", hint="take the file as it was made") from error


def _signature(read: _SignatureDocument, index: int) -> Signature:
    sig = _base64(read.sig, f"signatures.{index}.sig")
    if len(sig) != SIGNATURE_BYTES:
        raise ValueError(f"signatures.{index}.sig: {len(sig)} bytes where {SIGNATURE_BYTES} are due")
    return Signature(keyid=read.keyid, sig=sig)


def _base64(text: str, field: str) -> bytes:
    """Decode base64 that has one spelling: padding bits that carry anything could hide a change."""
    try:
        data = base64.b64decode(text.encode("ascii"), validate=True)
    except ValueError:
        raise ValueError(f"{field}: not base64") from None
    if base64.b64encode(data).decode() != text:
        raise ValueError(f"{field}: base64 that is not in its one form")
    return data
