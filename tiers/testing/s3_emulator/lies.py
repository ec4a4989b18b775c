"""Answers that are no answers: what a broken or hostile store, or a box on the way, may say."""

import gzip
from dataclasses import dataclass, replace
from enum import StrEnum

from tiers.testing.s3_emulator.answers import Answer
from tiers.testing.s3_emulator.documents import document
from tiers.testing.s3_emulator.faults import When


class LieKind(StrEnum):
    """What is said in place of the truth."""

    HTML_PAGE = "html-page"  # a web page, with ``status``
    ERROR_IN_200 = "error-in-200"  # success in the status, ``code`` in the body
    REDIRECT_LOOP = "redirect-loop"  # 307 to where the request came to
    TRUNCATED_XML = "truncated-xml"  # half of the answer's document, well framed
    UNASKED_GZIP = "unasked-gzip"  # the body compressed, and labelled so
    WRONG_BYTES = "wrong-bytes"  # a flipped bit under all the right headers
    LENGTH_TOO_SHORT = "length-too-short"  # Content-Length is less than what comes
    SHORT_READ = "short-read"  # Content-Length is right, half of it comes, the connection ends in good order
    ENDLESS_BODY = "endless-body"  # a body that goes on until somebody hangs up, or ENDLESS_LIMIT
    GARBAGE_STATUS_LINE = "garbage-status-line"  # something that is not HTTP
    EARLY_REPLY = "early-reply"  # ``status`` before the body was read, and then no more reading


ENDLESS_LIMIT = 1 << 25
"""Bytes of a body without end: a client that takes them all has failed already, and the machine is to survive it."""

ALONE = frozenset(
    {
        LieKind.HTML_PAGE,
        LieKind.ERROR_IN_200,
        LieKind.REDIRECT_LOOP,
        LieKind.GARBAGE_STATUS_LINE,
        LieKind.EARLY_REPLY,
        LieKind.ENDLESS_BODY,
    }
)
"""Kinds that need no true answer to start from, and so can come before the request was done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lie:
    """What to say at the ``nth`` request (from 1) of an operation on a key; both are globs.

    ``when`` says whether the request was done (``AFTER``) or not (``BEFORE``; only for
    kinds in ALONE, and always for EARLY_REPLY).  ValueError where that cannot be.
    """

    operation: str
    kind: LieKind
    when: When = When.AFTER
    key: str = "*"
    nth: int = 1
    status: int = 200
    code: str = "InternalError"

    def __post_init__(self) -> None:
        if self.when is When.MID_BODY:
            raise ValueError("a lie comes before or after the request was done")
        if self.when is When.BEFORE and self.kind not in ALONE:
            raise ValueError(f"{self.kind} is made of the true answer: it can only come after")
        if self.when is When.AFTER and self.kind is LieKind.EARLY_REPLY:
            raise ValueError("an early reply comes before the request was done")


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A lie that was told, and of what."""

    lie: Lie
    operation: str
    key: str


def falsify(lie: Lie, truth: Answer, url: str) -> Answer:
    """Return the answer to send instead; kinds that lie about the framing are left to the connection."""
    told = truth
    match lie.kind:
        case LieKind.HTML_PAGE:
            page = f"<!DOCTYPE html><html><head><title>{lie.status}</title></head><body>Sorry.</body></html>"
            told = Answer(status=lie.status, headers={"Content-Type": "text/html"}, body=page.encode())
        case LieKind.ERROR_IN_200:
            body = document("Error", ("Code", lie.code), ("Message", "We encountered an internal error."))
            told = Answer(headers={"Content-Type": "application/xml"}, body=body)
        case LieKind.REDIRECT_LOOP:
            told = Answer(status=307, headers={"Location": url})
        case LieKind.TRUNCATED_XML:
            told = replace(truth, body=truth.body[: len(truth.body) // 2])
        case LieKind.UNASKED_GZIP:
            headers = {**truth.headers, "Content-Encoding": "gzip"}
            told = replace(truth, headers=headers, body=gzip.compress(truth.body, mtime=0))
        case LieKind.WRONG_BYTES:
            told = replace(truth, body=_flipped(truth.body))
    return told


def _flipped(data: bytes | memoryview) -> bytes:
    changed = bytearray(data)
    if changed:
        changed[len(changed) // 2] ^= 1
    return bytes(changed)
