"""WebDAV through fsspec and webdav4.

webdav4's files are not used: one that is written spools the whole body to local disk, and
one that is read repeats requests by itself and takes the start of an object for a range
where a server ignores ranges.  Its client is used underneath, one request at a time.

Paths are URLs: whoever joins them leaves ``%2F`` as it is, and the server would make a
slash of it.  Every path is therefore encoded once, here.
"""

import re
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from typing import Any

from webdav4.client import ResourceNotFound  # type: ignore[import-untyped]

from tiers.fsspec_backends import BadAnswer, Entry, Source, entry_of
from tiers.fsspec_folders import FolderBackend
from tiers.fsspec_stores import MIB, Store

_RANGE = re.compile(r"bytes (\d+)-(\d+)/(?:\d+|\*)")


class WebdavBackend(FolderBackend):
    """Objects as resources of a WebDAV server.  Removing a collection removes what is in it, so none is removed."""

    def __init__(self, fs: Any, root: str, store: Store) -> None:
        super().__init__(fs, root.replace("%", "%25"), store)

    def path(self, key: str) -> str:
        """Return the path of a key as it goes into a URL."""
        return f"{self.root}/{key.replace('%', '%25')}"

    def describe(self, path: str) -> Entry:
        """Ask for this resource alone; webdav4's ``info`` asks for its children too."""
        try:
            found = self.fs.client.propfind(path, headers={"Depth": "0"}).responses
        except ResourceNotFound as error:
            raise FileNotFoundError(path) from error
        if len(found) != 1:
            raise BadAnswer
        (response,) = found.values()
        properties = response.properties.as_dict()
        return entry_of({**properties, "name": path, "size": properties["content_length"]})

    def open(self, key: str) -> Source:
        """Describe; the bytes are asked for at the first read."""
        entry = self.stat(key)
        return _WebdavSource(self.fs.client, self.path(key), entry)

    def write(self, path: str, size: int, chunks: Iterable[memoryview]) -> None:
        """PUT, streamed."""
        self._request("PUT", path, content=_copies(chunks), headers={"Content-Length": str(size)})

    def replace(self, source: str, target: str) -> None:
        """MOVE, overwriting; but never a collection, which would go with all that is in it."""
        self.refuse_folder(target)
        self._move(source, target, "T")

    def link_new(self, source: str, target: str) -> None:
        """Look, then MOVE without overwriting: some servers look by themselves, and then move."""
        if self.refuse_folder(target):
            raise FileExistsError(target)
        self._move(source, target, "F")

    def close(self) -> None:
        """Close the connections."""
        self.fs.client.http.close()

    def _move(self, source: str, target: str, overwrite: str) -> None:
        destination = str(self.fs.client.join_url(target))
        self._request("MOVE", source, headers={"Destination": destination, "Overwrite": overwrite, "Depth": "infinity"})

    def _request(self, method: str, path: str, **fields: Any) -> None:
        response = self.fs.client.http.request(method, self.fs.client.join_url(path), **fields)
        if response.status_code in (HTTPStatus.CONFLICT, HTTPStatus.NOT_FOUND):
            raise FileNotFoundError(path)  # 409 is WebDAV's word for a folder that is missing
        if method == "MOVE" and response.status_code == HTTPStatus.PRECONDITION_FAILED:
            raise FileExistsError(path)
        response.raise_for_status()
        if response.status_code == HTTPStatus.MULTI_STATUS:
            raise BadAnswer  # something in it failed, or else the status would be that of the whole


class _WebdavSource:
    """One GET for all that is read in a row."""

    def __init__(self, client: Any, path: str, entry: Entry) -> None:
        self._client = client
        self._path = path
        self.size = entry.size
        self._position = -1
        self._response: Any = None
        self._pieces: Iterator[bytes] = iter(())
        self._rest = b""

    def fetch(self, position: int, count: int) -> bytes:
        if position != self._position:
            self._begin(position)
        while len(self._rest) < count and (piece := next(self._pieces, b"")):
            self._rest += piece
        data, self._rest = self._rest[:count], self._rest[count:]
        self._position += len(data)
        return data

    def close(self) -> None:
        if self._response is not None:
            self._response.close()

    def _begin(self, position: int) -> None:
        self.close()
        http = self._client.http
        headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={position}-"} if position else {})}
        request = http.build_request("GET", self._client.join_url(self._path), headers=headers)
        self._response = http.send(request, stream=True)
        self._response.raise_for_status()
        self._pieces = self._response.iter_raw(chunk_size=MIB)
        self._rest = b""
        self._skip(position - self._first_byte())
        self._position = position

    def _first_byte(self) -> int:
        if self._response.status_code != HTTPStatus.PARTIAL_CONTENT:
            return 0
        found = _RANGE.fullmatch(self._response.headers.get("Content-Range", ""))
        if found is None:
            raise BadAnswer
        return int(found[1])

    def _skip(self, count: int) -> None:
        if count < 0:
            raise BadAnswer
        while count:
            piece = next(self._pieces, b"")
            if not piece:
                raise EOFError
            self._rest = piece[count:]
            count -= min(count, len(piece))


def _copies(chunks: Iterable[memoryview]) -> Iterator[bytes]:
    for chunk in chunks:
        yield bytes(chunk)
