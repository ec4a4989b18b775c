"""What every backend checks alike before it asks its store: keys, ranges and parts."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO, Protocol, cast

from tiers.bodies import Body
from tiers.errors import IntegrityError, Unsupported
from tiers.protocol import Capabilities, Part, Upload

MAX_KEY = 1024
"""Longest key in bytes that every store of interest takes."""

CHUNK = 1 << 20
"""Bytes that are copied at a time."""

_KEY = re.compile(r"[A-Za-z0-9._%~-]+(?:/[A-Za-z0-9._%~-]+)*")


def key_components(key: str) -> tuple[str, ...]:
    """Split a key at its slashes; ValueError where it is not one.

    Refused are characters outside the alphabet, empty components (and with them absolute
    keys and a slash at the end), ``.`` and ``..``, and more than MAX_KEY bytes.
    """
    if not _KEY.fullmatch(key):
        raise ValueError(f"not a key: {key!r}: only A-Z a-z 0-9 . _ % ~ - between single slashes")
    if len(key) > MAX_KEY:
        raise ValueError(f"key of {len(key)} bytes: at most {MAX_KEY}")
    components = tuple(key.split("/"))
    if "." in components or ".." in components:
        raise ValueError(f"not a key: {key!r}: '.' and '..' are not components")
    return components


def is_key(text: str) -> bool:
    """Tell whether :func:`key_components` would take it."""
    try:
        key_components(text)
    except ValueError:
        return False
    return True


def range_length(size: int, start: int, length: int | None, *, tier: str, operation: str, key: str) -> int:
    """Return how many bytes a range of an object of ``size`` bytes holds.

    IntegrityError where the range is not wholly inside, ValueError where it is negative.
    """
    if start < 0 or (length is not None and length < 0):
        raise ValueError(f"negative range: start {start}, length {length}")
    if length == 0 or (size == 0 and start == 0 and length is None):
        return 0
    wanted = size - start if length is None else length
    if start >= size or start + wanted > size:
        end = "its end" if length is None else str(start + wanted)
        raise IntegrityError(
            f"the object has {size} bytes, wanted were those from {start} to {end}",
            tier=tier,
            operation=operation,
            key=key,
            hint="the object is shorter than its record says: verify this tier",
        )
    return wanted


def part_count(upload: Upload) -> int:
    """Return the number of parts of an upload; an empty object has one, empty."""
    return max(1, -(-upload.size // upload.part_size))


def part_length(upload: Upload, number: int) -> int:
    """Return the size in bytes that part ``number`` must have; ValueError where there is no such part."""
    count = part_count(upload)
    if not 1 <= number <= count:
        raise ValueError(f"part {number} of an upload that has parts 1 to {count}")
    return min(upload.part_size, upload.size - (number - 1) * upload.part_size)


def check_upload(upload: Upload, limits: Capabilities, *, tier: str) -> None:
    """Raise Unsupported where an upload does not fit the store's limits, ValueError where it makes no sense."""
    if upload.size < 0 or upload.part_size < 1:
        raise ValueError(f"upload of {upload.size} bytes in parts of {upload.part_size}")
    count = part_count(upload)
    problem = ""
    if upload.size > limits.max_object:
        problem = f"{upload.size} bytes: at most {limits.max_object} in one object"
    elif count > limits.max_parts:
        problem = f"{count} parts: at most {limits.max_parts}"
    elif upload.part_size > limits.max_part:
        problem = f"parts of {upload.part_size} bytes: at most {limits.max_part}"
    elif count > 1 and upload.part_size < limits.min_part:
        problem = f"parts of {upload.part_size} bytes: at least {limits.min_part}"
    if problem:
        raise Unsupported(problem, tier=tier, operation="begin_upload", key=upload.key, hint="choose another part size")


def check_part_size(upload: Upload, number: int, size: int, *, tier: str, operation: str) -> None:
    """Raise IntegrityError where a part has not the size that its number says."""
    expected = part_length(upload, number)
    if size != expected:
        message = f"part {number} has {size} bytes, expected {expected}"
        raise IntegrityError(message, tier=tier, operation=operation, key=upload.key)


def check_part_set(upload: Upload, parts: Sequence[Part], *, tier: str) -> None:
    """Raise IntegrityError unless ``parts`` are all parts of the upload, in order, of the right sizes.

    Stores do not know how many parts were meant: a client that leaves out the last one
    would get a shorter object and a success.
    """
    numbers = [part.number for part in parts]
    if numbers != list(range(1, part_count(upload) + 1)):
        message = f"parts {numbers[:10]} given, wanted are 1 to {part_count(upload)}, each once and in order"
        raise IntegrityError(message, tier=tier, operation="complete", key=upload.key)
    for part in parts:
        check_part_size(upload, part.number, part.size, tier=tier, operation="complete")


def check_parts_stored(upload: Upload, parts: Sequence[Part], stored: Mapping[int, Part], *, tier: str) -> None:
    """Raise IntegrityError where a part is not the one that the store holds."""
    for part in parts:
        held = stored.get(part.number)
        if held is None or held.etag != part.etag or held.size != part.size:
            what = "is not there" if held is None else "was replaced since"
            message = f"part {part.number} {what}"
            raise IntegrityError(message, tier=tier, operation="complete", key=upload.key)


class _ReadsInto(Protocol):
    def readinto(self, buffer: memoryview, /) -> int | None: ...


def _fill(reader: BinaryIO, view: memoryview) -> int:
    if hasattr(reader, "readinto"):
        return cast("_ReadsInto", reader).readinto(view) or 0
    data = reader.read(len(view))
    view[: len(data)] = data
    return len(data)


def body_chunks(body: Body, *, tier: str, operation: str, key: str) -> Iterator[memoryview]:
    """Yield the bytes of a body in pieces, each valid until the next one is asked for.

    IntegrityError where the body is shorter or longer than its size; an OSError from
    reading it is the caller's own affair and passes unchanged.
    """
    view = memoryview(bytearray(min(CHUNK, body.size + 1)))
    sent = 0
    with body.open() as reader:
        while True:
            try:
                count = _fill(reader, view)
            except OSError as error:
                if error.errno is not None:
                    raise
                raise IntegrityError(str(error), tier=tier, operation=operation, key=key) from error
            sent += count
            if sent > body.size or (count == 0 and sent < body.size):
                what = "more than" if sent > body.size else f"only {sent} of"
                message = f"the body has {what} its {body.size} bytes"
                raise IntegrityError(message, tier=tier, operation=operation, key=key)
            if count == 0:
                return
            yield view[:count]
