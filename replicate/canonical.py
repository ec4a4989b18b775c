"""Canonical JSON: one document has one sequence of bytes, so that a digest names it.

Sorted keys, no spaces, UTF-8, integers and strings only (no floats: they have no
one spelling).  Reading is bounded in bytes and depth before anything is parsed.
"""

import hashlib
import json
import re
from typing import Any

from replicate.errors import IntegrityFailure

MAX_DEPTH = 32
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BRACKET = re.compile(rb"[\[\]{}]")


def dump(document: Any) -> bytes:
    """Encode; raises TypeError or ValueError for what has no canonical form."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def sha256(data: bytes) -> str:
    """Hex SHA-256 of a small document (checkpoint bytes go through replicate.digests)."""
    return hashlib.sha256(data).hexdigest()


def load(data: bytes, *, what: str, max_bytes: int) -> dict[str, Any]:
    """Decode a JSON object that came from elsewhere; refuse what is huge, deep or no object."""
    if len(data) > max_bytes:
        raise IntegrityFailure(f"{what} has {len(data)} bytes, more than the {max_bytes} that one may have")
    if _depth(data) > MAX_DEPTH:
        raise IntegrityFailure(f"{what} is nested more than {MAX_DEPTH} deep")
    try:
        document = json.loads(data, object_pairs_hook=_unique)
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


def _depth(data: bytes) -> int:
    """Deepest nesting, found without recursion so that a hostile document cannot exhaust the stack."""
    depth = deepest = 0
    for match in _BRACKET.finditer(_STRING.sub(b"", data)):
        depth += 1 if match[0] in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest
