"""Pages of a listing, linked as the library follows them; and ranges of a body."""

import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import TypeVar
from urllib.parse import urlencode

from support.hub.refusals import Answer, RefusedError
from support.hub.state import Call

_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
Item = TypeVar("Item")


def page_of(items: Sequence[Item], call: Call, origin: str, *, size: int) -> tuple[list[Item], Mapping[str, str]]:
    """Return the page that a request asks for, and the link to the next one as headers."""
    start = int(call.query.get("cursor", ["0"])[0])
    end = start + size
    if end >= len(items):
        return list(items[start:]), {}
    query = [(name, value) for name, values in call.query.items() if name != "cursor" for value in values]
    link = f"{origin}{call.path}?{urlencode([*query, ('cursor', str(end))])}"
    return list(items[start:end]), {"Link": f'<{link}>; rel="next"'}


def ranged(content: bytes, call: Call, headers: Mapping[str, str]) -> Answer:
    """Answer with a body or the one range of it that the request asks for; several ranges get it whole."""
    headers = {"Accept-Ranges": "bytes", **headers}
    asked = _RANGE.fullmatch(call.headers.get("range", ""))
    if asked is None or asked.groups() == ("", ""):
        return Answer(headers=headers, body=content)
    first, last = asked.groups()
    start = int(first) if first else max(len(content) - int(last), 0)
    end = min(int(last) if first and last else len(content) - 1, len(content) - 1)
    if start > end:
        raise RefusedError(
            HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE,
            "The requested range is not satisfiable",
            headers={"Content-Range": f"bytes */{len(content)}"},
        )
    headers["Content-Range"] = f"bytes {start}-{end}/{len(content)}"
    return Answer(status=HTTPStatus.PARTIAL_CONTENT, headers=headers, body=content[start : end + 1])
