"""What a tier asks of an fsspec filesystem, in the few calls that mean one thing each.

fsspec's own conveniences are avoided throughout: ``put``, ``get``, ``cp``, ``rm`` and
``mv`` expand patterns and directories, ``exists`` answers False where it could not ask,
``makedirs`` would make the root of a share that is not mounted, and leaving a file's
``with`` block by an exception stores what was buffered.  Methods here raise whatever the
filesystem raises; :class:`tiers.fsspec.FsspecTier` translates.
"""

import inspect
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from tiers.checks import is_key
from tiers.errors import AccessDenied, TierError, TierUnavailable
from tiers.fsspec_stores import MIB, Store
from tiers.volume_files import HIDDEN

WINDOW = 8 * MIB
"""Bytes that a bucket is asked for at a time: each is one GET."""


class WrongSize(Exception):
    """The store kept another number of bytes than it was sent."""


class BadAnswer(Exception):
    """The store's answer does not fit what was asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """What a filesystem says of one path."""

    path: str
    size: int
    is_file: bool
    is_folder: bool
    etag: str | None
    modified: datetime | None


class Source(Protocol):
    """An object that is being read."""

    @property
    def size(self) -> int:
        """Bytes of the whole object."""
        ...

    def fetch(self, position: int, count: int) -> bytes:
        """Return up to ``count`` bytes from ``position``, none where the store has no more."""
        ...

    def close(self) -> None:
        """Release it."""
        ...


class FileSource:
    """Reads an fsspec file."""

    def __init__(self, file: Any, size: int) -> None:
        self._file = file
        self._size = size

    @property
    def size(self) -> int:
        """Bytes of the whole object."""
        return self._size

    def fetch(self, position: int, count: int) -> bytes:
        """Seek and read."""
        self._file.seek(position)
        return bytes(self._file.read(count))

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def entry_of(info: Mapping[str, Any]) -> Entry:
    """Read the few fields that are wanted, under whichever name an implementation gives them."""
    etag = str(info.get("ETag") or info.get("etag") or "").strip('"')
    names = ("LastModified", "last_modified", "mtime", "updated", "modified")
    modified = next((info[name] for name in names if info.get(name)), None)
    return Entry(
        path=str(info["name"]),
        size=int(info.get("size") or 0),
        is_file=info.get("type") == "file" and not info.get("islink"),
        is_folder=info.get("type") == "directory",
        etag=etag or None,
        modified=_instant(modified),
    )


def _instant(value: object) -> datetime | None:
    if isinstance(value, (int, float)):
        return datetime.fromtimestamp(value, UTC)
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            return None
    if not isinstance(value, datetime):
        return None
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)


class Backend:
    """A filesystem and the root below it; all methods take keys.

    ``shared``: one instance may serve several threads at once.  ``window``: bytes that a
    reader asks for at a time.  ``reserved``: the first component of what is not an object.
    ``absent_root``: what it means that the root is missing; it is never an answer about a key.
    """

    shared = True
    window = MIB
    reserved: str | None = None
    absent_root: tuple[type[TierError], str, str] = (
        TierUnavailable,
        "the root folder of this tier is not there",
        "is the share mounted, and the path right? If it is new, create the folder",
    )

    def __init__(self, fs: Any, root: str, store: Store) -> None:
        self.fs = fs
        self.root = root
        self.store = store

    def path(self, key: str) -> str:
        """Return the filesystem's path of a key."""
        return f"{self.root}/{key}"

    def stat(self, key: str) -> Entry:
        """Describe one object; FileNotFoundError where it is missing, or a folder."""
        entry = self.describe(self.path(key))
        if not entry.is_file:
            raise FileNotFoundError(key)
        return entry

    def describe(self, path: str) -> Entry:
        """Describe a path, never from a cache."""
        self.fs.invalidate_cache()
        return entry_of(self.fs.info(path))

    def exists(self, key: str) -> bool:
        """Whether the key is there; raises where that cannot be told."""
        try:
            self.stat(key)
        except FileNotFoundError:
            return False
        return True

    def open(self, key: str) -> Source:
        """Open an object for reading."""
        size = self.stat(key).size
        return FileSource(self.fs.open(self.path(key), "rb", block_size=self.window, cache_type="none"), size)

    def put(self, key: str, size: int, chunks: Iterable[memoryview]) -> Entry:
        """Store ``size`` bytes; what raises in ``chunks`` leaves nothing."""
        raise NotImplementedError

    def create(self, key: str, data: bytes) -> Entry:
        """Store data unless the key is taken (FileExistsError)."""
        raise NotImplementedError

    def listing(self, prefix: str) -> Iterator[tuple[str, Entry]]:
        """Yield key and description of the objects whose keys start with ``prefix``, in any order."""
        raise NotImplementedError

    def delete(self, key: str) -> None:
        """Remove exactly this key; FileNotFoundError where there is none."""
        self.stat(key)  # several filesystems would remove a folder with all that is in it
        self.fs.rm_file(self.path(key))

    def root_is_there(self) -> bool:
        """Whether the root, or the bucket, is there to be asked; raises where that cannot be told."""
        raise NotImplementedError

    def close(self) -> None:
        """Release connections."""


class BucketBackend(Backend):
    """A flat store in which an object appears whole when its file is closed."""

    window = WINDOW
    absent_root = (
        AccessDenied,
        "no such bucket",
        "the bucket or container does not exist: check its name, and the account or endpoint",
    )

    @property
    def _bucket(self) -> str:
        return self.root.partition("/")[0]

    def open(self, key: str) -> Source:
        """Open; the file describes the object once, and some implementations hold on to its ETag."""
        self.fs.invalidate_cache()
        file = self.fs.open(self.path(key), "rb", block_size=self.window, cache_type="none")
        details = getattr(file, "details", None)
        entry = entry_of(details) if details else self.describe(self.path(key))
        if not entry.is_file:
            file.close()
            raise FileNotFoundError(key)
        return FileSource(file, entry.size)

    def put(self, key: str, size: int, chunks: Iterable[memoryview]) -> Entry:
        """Write one file, in blocks that fit into the store's limits."""
        path = self.path(key)
        file = self.fs.open(path, "wb", block_size=self.store.block_size(size))
        try:
            for chunk in chunks:
                file.write(chunk)
            file.close()
        except BaseException:
            abandon(file)
            raise
        return self._check(path, size)

    def create(self, key: str, data: bytes) -> Entry:
        """Store by one conditional request."""
        path = self.path(key)
        self.fs.pipe_file(path, data, mode="create")
        return self._check(path, len(data))

    def listing(self, prefix: str) -> Iterator[tuple[str, Entry]]:
        """List flat, a page a request."""
        folder, _, stem = f"{self.root}/{prefix}".rpartition("/")
        if prefix.startswith("/") or "//" in prefix:
            return
        yield from self._found(folder, stem, prefix)

    def delete(self, key: str) -> None:
        """Delete; a store without folders cannot take more with it."""
        self.fs.rm_file(self.path(key))

    def close(self) -> None:
        """Let go: these filesystems end their sessions when nothing, no stream either, refers to them any more."""
        self.fs = None

    def root_is_there(self) -> bool:
        """Ask for a listing, which needs no right that a tier does without."""
        try:
            for _ in self._found(self._bucket, f"{HIDDEN}/absent", ""):
                break
        except FileNotFoundError:
            return False
        return True

    def _found(self, folder: str, stem: str, prefix: str) -> Iterator[tuple[str, Entry]]:
        self.fs.invalidate_cache()
        narrowed = {"prefix": stem} if stem and takes(type(self.fs), "find", "prefix") else {}
        found: Mapping[str, Mapping[str, Any]] = self.fs.find(folder, detail=True, **narrowed)
        start = len(self.root.strip("/")) + 1
        for name, info in found.items():
            key = name.lstrip("/")[start:]
            entry = entry_of({**info, "name": name})
            if entry.is_file and key.startswith(prefix) and is_key(key):
                yield key, entry

    def _check(self, path: str, size: int) -> Entry:
        entry = self.describe(path)
        if entry.size != size:
            raise WrongSize
        return entry


class LookingBucketBackend(BucketBackend):
    """A bucket that may take a condition for decoration; ``conditional``: it is sent all the same."""

    def __init__(self, fs: Any, root: str, store: Store, *, conditional: bool = False) -> None:
        super().__init__(fs, root, store)
        self._mode = {"mode": "create"} if conditional else {}

    def create(self, key: str, data: bytes) -> Entry:
        """Look first; a second writer may be between the look and the write."""
        if self.exists(key):
            raise FileExistsError(key)
        self.fs.pipe_file(self.path(key), data, **self._mode)
        return self._check(self.path(key), len(data))


class MemoryBackend(LookingBucketBackend):
    """fsspec's memory filesystem; a file of it is the stored object itself, so none is opened."""

    window = MIB

    def open(self, key: str) -> Source:
        """Read ranges."""
        return _RangeSource(self.fs, self.path(key), self.stat(key).size)

    def put(self, key: str, size: int, chunks: Iterable[memoryview]) -> Entry:
        """Store at once, as it is in memory anyway."""
        self.fs.pipe_file(self.path(key), b"".join(bytes(chunk) for chunk in chunks))
        return self._check(self.path(key), size)

    def root_is_there(self) -> bool:
        """Say yes: memory has no containers."""
        return True


class _RangeSource:
    def __init__(self, fs: Any, path: str, size: int) -> None:
        self._fs = fs
        self._path = path
        self.size = size

    def fetch(self, position: int, count: int) -> bytes:
        return bytes(self._fs.cat_file(self._path, start=position, end=position + count))

    def close(self) -> None:
        return


def takes(cls: type, method: str, parameter: str) -> bool:
    """Whether this release's method has a parameter of that name; the coroutine behind it, where there is one.

    A synchronous method that is only inherited has every parameter of the base class, and hands on what the
    implementation drops.
    """
    found = getattr(cls, f"_{method}", None) or getattr(cls, method)
    return parameter in inspect.signature(found).parameters


def abandon(file: Any) -> None:
    """Drop a file that is being written, so that neither closing nor collecting it stores what was buffered."""
    from fsspec.spec import AbstractBufferedFile  # type: ignore[import-untyped]  # noqa: PLC0415 - late, as all of it

    with suppress(Exception):  # parts of an upload that cannot be aborted now are for the bucket's lifecycle rule
        if hasattr(file, "discard"):
            file.discard()
    if isinstance(file, AbstractBufferedFile):
        file.closed = True
    elif not file.closed:
        with suppress(Exception):  # the first error is the one to report
            file.close()
