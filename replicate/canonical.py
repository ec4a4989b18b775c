"""Canonical JSON: one document has one sequence of bytes, so that a digest names it.

Sorted keys, no spaces, UTF-8, integers and strings only (no floats: they have no
one spelling).  Reading is bounded in bytes and depth before anything is parsed.
"""

import errno
import hashlib
import json
import os
import re
import stat
from pathlib import Path
from typing import Any

from replicate.errors import IntegrityFailure

MAX_DEPTH = 32
# One that never ends takes all the rest: a search from each of its quotes would be quadratic.
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_ROUND = bytes.maketrans(b"[{]}", b"(())")
_NO_BRACKETS = bytes(set(range(256)) - set(b"[{]}"))
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
BYTES_A_VALUE = 16
"""Fewer bytes a value than any of our documents has; two are enough for one that takes sixty in memory."""
MIN_VALUES = 1024


def dump(document: Any) -> bytes:
    """Encode; raises TypeError or ValueError for what has no canonical form."""
    _refuse_floats(document)
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def read(path: Path, max_bytes: int) -> bytes:
    """Read a document of this machine, at most one byte more than it may have; raises OSError.

    What is no regular file is refused: a FIFO would be waited for, and a device need not end.
    """
    with open(path, "rb", opener=_open_regular) as file:
        return file.read(max_bytes + 1)


def _open_regular(path: str, flags: int) -> int:
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise OSError(errno.EINVAL, "it is no regular file", path)


def sha256(data: bytes) -> str:
    """Hex SHA-256 of a small document (checkpoint bytes go through replicate.digests)."""
    return hashlib.sha256(data).hexdigest()


def load(data: bytes, *, what: str, max_bytes: int) -> dict[str, Any]:
    """Decode a JSON object that came from elsewhere; refuse what is huge, deep, no text or no object."""
    if len(data) > max_bytes:
        raise IntegrityFailure(f"{what} has {len(data)} bytes, more than the {max_bytes} that one may have")
    try:
        text = data.decode()  # json would also take UTF-16, UTF-32 and lone surrogates
    except UnicodeDecodeError as error:
        raise IntegrityFailure(f"{what} is not UTF-8: {error.reason} at byte {error.start}") from error
    skeleton = _STRING.sub("", text)
    if _depth(skeleton) > MAX_DEPTH:
        raise IntegrityFailure(f"{what} is nested more than {MAX_DEPTH} deep")
    if sum(map(skeleton.count, ",[{")) > max(MIN_VALUES, max_bytes // BYTES_A_VALUE):
        raise IntegrityFailure(f"{what} holds more values than its {max_bytes} bytes may")
    try:
        document = json.loads(text, object_pairs_hook=_unique, parse_float=_no_float, parse_constant=_no_float)
        if _SURROGATE.search(text):
            json.dumps(document, ensure_ascii=False).encode()  # half of a pair is no text, and no terminal takes it
    except (ValueError, RecursionError) as error:
        raise IntegrityFailure(f"{what} is not valid JSON: {error}") from error
    if not isinstance(document, dict):
        raise IntegrityFailure(f"{what} is not a JSON object")
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError("a key stands there twice")
    return document


def _no_float(spelling: str) -> float:
    raise ValueError(f"{spelling[:40]} is no integer")


def _refuse_floats(document: Any) -> None:
    """Raise TypeError where a float hides: it could be written, and not read again."""
    pending = [document]
    while pending:
        value = pending.pop()
        if isinstance(value, float):
            raise TypeError(f"{value} has no canonical form: write it as a string")
        if isinstance(value, dict):
            pending.extend(value.values())
        elif isinstance(value, (list, tuple)):
            pending.extend(value)


def _depth(skeleton: str) -> int:
    """Deepest nesting, found without recursion so that a hostile document cannot exhaust the stack."""
    brackets = left = skeleton.encode().translate(_ROUND, _NO_BRACKETS)
    for depth in range(MAX_DEPTH + 1):
        if not left:
            return depth
        left = left.replace(b"()", b"")  # takes the innermost level away
    depth = deepest = 0  # too deep, or what is opened is not what is closed
    for bracket in brackets:
        depth += 1 if bracket == _ROUND[ord("[")] else -1
        deepest = max(deepest, depth)
    return deepest
