"""The documents of a release: canonical JSON, strict types, a format number, unknown fields refused.

Unlike the documents of a tier these are signed or digested as they are, and a field that
a reader does not know could be one that limits what was approved: so it is an error.
"""

from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from replicate import canonical
from replicate.errors import CapabilityMissing, IntegrityFailure, LocalDisk

FORMAT = 1
MAX_DOCUMENT_BYTES = 64 * 1024 * 1024

_WORDS = MappingProxyType(
    {
        "extra_forbidden": "unknown key",
        "missing": "missing",
        "tuple_type": 'a list is due, as in ["one", "two"]',
        "string_type": "text in quotes is due",
        "string_too_short": "too short: fewer than {min_length} characters",
        "string_too_long": "too long: more than {max_length} characters",
        "string_pattern_mismatch": "does not fit the pattern {pattern}",
        "literal_error": "{expected} is due",
    }
)
"""What pydantic finds, in the words of a configuration and not in those of Python."""

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Count = Annotated[int, Field(ge=0, lt=2**53)]
Text = Annotated[str, Field(max_length=16_384)]
Name = Annotated[str, Field(min_length=1, max_length=1_024)]


class Document(BaseModel):
    """A frozen document or a part of one; unknown fields are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


T = TypeVar("T", bound=Document)


def encode(document: Document) -> bytes:
    """Return the canonical bytes, which a digest or a signature names."""
    return canonical.dump(document.model_dump(mode="json"))


def decode(kind: type[T], data: bytes, *, what: str) -> T:
    """Read a document that came from elsewhere.

    Raises IntegrityFailure, which names each field that is wrong, and CapabilityMissing for a
    format that this version does not know.
    """
    try:
        document = canonical.load(data, what=what, max_bytes=MAX_DOCUMENT_BYTES)
    except IntegrityFailure as error:
        error.hint = error.hint or "name the file that was meant, or take it again from where it was made"
        raise
    number = document.get("format")
    if isinstance(number, int) and number > FORMAT:
        raise CapabilityMissing(f"{what} has format {number}, this version reads {FORMAT}", hint="update ckptier")
    try:
        return kind.model_validate_json(canonical.dump(document))
    except ValidationError as error:
        raise IntegrityFailure(f"{what} is not valid: {faults(error)}", hint="make it again") from error


def read(kind: type[T], path: Path, *, what: str) -> T:
    """Read a document from a file; raises LocalDisk where that fails, and what ``decode`` raises."""
    return decode(kind, read_bytes(path, what=what), what=what)


def read_bytes(path: Path, *, what: str) -> bytes:
    """Return the bytes of a document; raises LocalDisk, and IntegrityFailure where it is too large."""
    try:
        if path.stat().st_size > MAX_DOCUMENT_BYTES:
            raise IntegrityFailure(f"{what} ({path}) is larger than {MAX_DOCUMENT_BYTES} bytes", hint="check the path")
        return path.read_bytes()
    except OSError as error:
        raise LocalDisk(f"{what} ({path}) cannot be read: {error.strerror}", hint="check the path") from error


def faults(error: ValidationError) -> str:
    """Name each wrong field of a document, with what is wrong about it."""
    found = error.errors(include_url=False, include_input=False)
    places = [fault["loc"] for fault in found]
    return "; ".join(
        f"{'.'.join(map(str, fault['loc']))}: {_words(fault)}".removeprefix(": ")
        for fault in found
        if not (fault["type"] == "too_short" and _has_faults_below(fault["loc"], places))
    )


def _has_faults_below(place: tuple[int | str, ...], places: list[tuple[int | str, ...]]) -> bool:
    """Tell whether entries of a list are wrong: then its length was counted without them."""
    return any(len(other) > len(place) and other[: len(place)] == place for other in places)


def _words(fault: Any) -> str:
    """Say in the words of a configuration what pydantic says in those of Python."""
    template, limits = _WORDS.get(fault["type"]), fault.get("ctx", {})
    if limits.get("min_length") == 1:
        return "empty"
    if template is not None:
        return template.format(**limits)
    return str(fault["msg"]).removeprefix("Value error, ").replace("Input should be", "it has to be")
