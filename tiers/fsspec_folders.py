"""Filesystems that are trees of folders: how an object gets its key, and the two that need nothing of their own."""

import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from tiers import effects
from tiers.checks import is_key
from tiers.fsspec_backends import Backend, Entry, WrongSize, abandon, entry_of
from tiers.volume_files import HIDDEN, sync_directory

SWEEP_AFTER = timedelta(days=7)
"""How much older than what was just written a leftover must be, by the store's own clock."""
_ATTEMPTS = 5
"""How often a folder may vanish under a write (a delete elsewhere removes empty ones) before it is an error."""
_UNFINISHED = (HIDDEN, "tmp")
"""Folder below the root for what is not an object yet; never listed, never a key."""


class FolderBackend(Backend):
    """A tree of folders: objects are written beside and renamed into place, so that they appear whole.

    ``prunes``: removing a folder fails where it is not empty, so that empty ones may be removed.
    """

    reserved = HIDDEN
    prunes = False
    _swept = False

    def put(self, key: str, size: int, chunks: Iterable[memoryview]) -> Entry:
        """Write beside, compare sizes, rename."""
        temporary, entry = self._write_beside(size, chunks)
        self._into_place(temporary, key, replacing=True)
        return entry

    def create(self, key: str, data: bytes) -> Entry:
        """Write beside, and give it the key if that is free."""
        temporary, entry = self._write_beside(len(data), [memoryview(data)] if data else [])
        self._into_place(temporary, key, replacing=False)
        return entry

    def listing(self, prefix: str) -> Iterator[tuple[str, Entry]]:
        """Walk the folders that the prefix allows."""
        folder = prefix.rpartition("/")[0]
        if not folder and not prefix.startswith("/"):
            yield from self._walk("", prefix)
        elif is_key(folder):
            yield from self._walk(f"{folder}/", prefix)

    def delete(self, key: str) -> None:
        """Remove the file, then the folders that it leaves empty."""
        super().delete(key)
        folders = key.split("/")[:-1]
        while self.prunes and folders:
            try:
                self.fs.rmdir(self.path("/".join(folders)))
            except OSError:
                return  # in use, or already gone: an empty folder is not content
            folders.pop()

    def root_is_there(self) -> bool:
        """Look at the root folder."""
        try:
            return self.describe(self.root or "/").is_folder
        except FileNotFoundError:
            return False

    # what a filesystem does in its own way

    def write(self, path: str, size: int, chunks: Iterable[memoryview]) -> None:
        """Write a new file of ``size`` bytes; FileNotFoundError where its folder is missing."""
        raise NotImplementedError

    def replace(self, source: str, target: str) -> None:
        """Rename, replacing what is there."""
        raise NotImplementedError

    def link_new(self, source: str, target: str) -> None:
        """Give a file its key (FileExistsError where that is taken), in whatever way; ``source`` may stay."""
        raise NotImplementedError

    def make_folder(self, path: str) -> None:
        """Make one folder in one that exists."""
        self.fs.mkdir(path, create_parents=False)

    def refuse_folder(self, path: str) -> bool:
        """Raise IsADirectoryError for a folder, which must not be replaced; whether a file is there."""
        try:
            entry = self.describe(path)
        except FileNotFoundError:
            return False
        if entry.is_folder:
            raise IsADirectoryError(path)
        return True

    # how they are put together

    def _write_beside(self, size: int, chunks: Iterable[memoryview]) -> tuple[str, Entry]:
        folder = "/".join(_UNFINISHED)
        temporary = self.path(f"{folder}/{secrets.token_hex(16)}")
        if not self._swept:
            self._ensure(_UNFINISHED)  # before the write: the pieces of the body can be taken only once
        try:
            self.write(temporary, size, chunks)
            entry = self._of_size(temporary, size)
        except BaseException as error:
            self._swept = self._swept and not isinstance(error, FileNotFoundError)  # the folder is made anew next time
            self._forget(temporary)
            raise
        if not self._swept:
            self._swept = True
            self._sweep(self.path(folder), entry)
        return temporary, replace(entry, etag=None)  # it may change with the name

    def _into_place(self, temporary: str, key: str, *, replacing: bool) -> None:
        target = self.path(key)
        done = False
        try:
            for attempt in range(1, _ATTEMPTS + 1):
                try:
                    (self.replace if replacing else self.link_new)(temporary, target)
                except FileNotFoundError:
                    if attempt == _ATTEMPTS:
                        raise
                    self._ensure(key.split("/")[:-1])
                except OSError as error:
                    if error.errno is None and not isinstance(error, FileExistsError):
                        self.refuse_folder(target)
                    raise
                else:
                    done = replacing
                    return
        finally:
            if not done:
                self._forget(temporary)

    def _ensure(self, components: Sequence[str]) -> None:
        """Make folders below the root, never the root: a share that is not mounted must not be made up."""
        for depth in range(1, len(components) + 1):
            path = self.path("/".join(components[:depth]))
            try:
                self.make_folder(path)
            except Exception as error:
                # each filesystem has another word for "exists"; whether it does is what counts
                entry = self.describe(path)
                if entry.is_file:
                    raise NotADirectoryError(path) from error
                if not entry.is_folder:
                    raise

    def _of_size(self, path: str, size: int) -> Entry:
        entry = self.describe(path)
        if entry.size != size:
            raise WrongSize
        return entry

    def _forget(self, temporary: str) -> None:
        with suppress(Exception):  # a leftover is not content, it is swept later; the first error is the one to report
            self.fs.rm_file(temporary)

    def _sweep(self, folder: str, fresh: Entry) -> None:
        """Remove what killed writers left, measured by the store's clock."""
        with suppress(Exception):  # hygiene: what was written stands whether or not this works
            for entry in self._children(folder):
                if entry.modified and fresh.modified and fresh.modified - entry.modified > SWEEP_AFTER:
                    self._forget(f"{folder}/{entry.path}")

    def _walk(self, base: str, prefix: str) -> Iterator[tuple[str, Entry]]:
        try:
            children = self._children(self.path(base).rstrip("/") or "/")
        except (FileNotFoundError, NotADirectoryError):
            if base and self.root_is_there():
                return  # it vanished, or is no folder; a missing root is another matter
            raise
        for child in children:
            key = base + child.path
            if key == HIDDEN or not is_key(key):
                continue
            if child.is_file and key.startswith(prefix):
                yield key, child
            elif child.is_folder and (key.startswith(prefix) or prefix.startswith(f"{key}/")):
                yield from self._walk(f"{key}/", prefix)

    def _children(self, folder: str) -> list[Entry]:
        """Describe what is in a folder; ``path`` is the bare name."""
        self.fs.invalidate_cache()
        found = [entry_of(info) for info in self.fs.ls(folder, detail=True)]
        # some list a file as its own only child
        below = [entry for entry in found if entry.path.strip("/") != folder.strip("/")]
        return [replace(entry, path=entry.path.rstrip("/").rpartition("/")[2]) for entry in below]


class LocalBackend(FolderBackend):
    """The machine's own filesystem through fsspec; ``file://`` (the volume tier) does the same and more."""

    prunes = True

    def write(self, path: str, size: int, chunks: Iterable[memoryview]) -> None:
        """Write and fsync."""
        del size
        with self.fs.open(path, "xb") as file:
            for chunk in chunks:
                file.write(chunk)
            file.flush()
            effects.fsync_fd(file.fileno(), path)

    def replace(self, source: str, target: str) -> None:
        """Rename; fsspec's ``mv`` would move it into a folder of that name, or copy it."""
        effects.rename(Path(source), Path(target))
        sync_directory(Path(target).parent)

    def link_new(self, source: str, target: str) -> None:
        """Hard-link."""
        effects.link(Path(source), Path(target))
        sync_directory(Path(target).parent)


class OtherFolderBackend(FolderBackend):
    """A filesystem that renames and is not known further.

    Where renaming does not replace, what is there is removed first: for a moment there is nothing.
    """

    def write(self, path: str, size: int, chunks: Iterable[memoryview]) -> None:
        """Write one file."""
        del size
        file = self.fs.open(path, "wb")
        try:
            for chunk in chunks:
                file.write(chunk)
            file.close()
        except BaseException:
            abandon(file)
            raise

    def replace(self, source: str, target: str) -> None:
        """Rename, after removing what is in the way."""
        if self.refuse_folder(target):
            self.fs.rm_file(target)
        self.fs.mv(source, target)

    def link_new(self, source: str, target: str) -> None:
        """Look, then rename: a second writer may be in between."""
        if self.refuse_folder(target):
            raise FileExistsError(target)
        self.fs.mv(source, target)
