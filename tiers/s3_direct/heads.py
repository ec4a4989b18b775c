"""The head of an HTTP/1.1 answer, read strictly: anything odd is no answer.  Pure.

What is lenient here would have to be safe against a body that is taken for the next
answer on a kept connection.  So a length that is said twice and differently, a length
beside chunks, a folded line, a bare line feed or a control character refuse the whole.
"""

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import NamedTuple

MAX_HEAD = 64 << 10
"""Bytes of the longest head that is read, its interim answers not counted."""
MAX_LINES = 100
MAX_INTERIM = 8
"""Answers of 1xx before the real one."""
END = b"\r\n\r\n"

_STATUS = re.compile(r"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: [^\x00-\x08\x0a-\x1f\x7f]*)?")
_LINE = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)\r\n")
_LENGTH = re.compile(r"[0-9]{1,18}")
_EMPTY = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})


class BadHead(Exception):
    """What came is no head of an answer.  The message holds nothing of it."""


class Head(NamedTuple):
    """Status and headers, names in lower case; equal names are joined by commas.

    ``length`` is that of the body in bytes, None where only its end tells: by ``chunked``, or
    by the end of the connection.  ``keeps`` says whether the connection may serve another request.
    """

    status: int
    headers: Mapping[str, str]
    length: int | None
    chunked: bool
    keeps: bool


def parse_head(data: bytes) -> Head:
    """Read a head without its last empty line; BadHead where it is none."""
    first, _, rest = f"{data.decode('latin-1')}\r\n".partition("\r\n")
    status_line = _STATUS.fullmatch(first)
    if status_line is None:
        raise BadHead("the status line is none")
    if rest.count("\n") > MAX_LINES:
        raise BadHead("too many lines")
    pieces = _LINE.split(rest)  # what lies between two lines, a name, a value, and so on
    if any(pieces[::3]):
        raise BadHead("a line is no header")
    headers: dict[str, str] = {}
    for given, text in zip(pieces[1::3], pieces[2::3], strict=True):
        name, value = given.lower(), text.rstrip(" \t")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    status = int(status_line[2])
    length, chunked = _framing(status, headers, old=status_line[1] == "0")
    keeps = status_line[1] == "1" and "close" not in headers.get("connection", "").lower()
    return Head(status, headers, length, chunked, keeps and (chunked or length is not None))


def _framing(status: int, headers: Mapping[str, str], *, old: bool) -> tuple[int | None, bool]:
    coding, said = headers.get("transfer-encoding"), headers.get("content-length")
    if (
        coding is None
        and said is not None
        and _LENGTH.fullmatch(said)
        and status >= HTTPStatus.OK
        and status not in _EMPTY
    ):
        return int(said), False
    if coding is not None and (old or said is not None or coding.lower() != "chunked"):
        raise BadHead("how long the body is, is said in two ways or in one that is not known")
    lengths = {part.strip() for part in said.split(",")} if said is not None else set()
    if len(lengths) > 1 or not all(map(_LENGTH.fullmatch, lengths)):
        raise BadHead("Content-Length is no length")
    if status < HTTPStatus.OK or status in _EMPTY:
        return 0, False
    return (int(lengths.pop()) if lengths else None), coding is not None
