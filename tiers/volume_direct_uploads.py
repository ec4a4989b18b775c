"""Uploads in parts on a filesystem without rename: a file and a marker for each part, joined at the end.

    .ckptier/uploads/<id>/upload.json           what begin_upload returned
                          000001.<etag>.data    the bytes of a part, written once
                          000001.<etag>.part    empty: the bytes are durable

Whoever writes a part again makes another file; the older one goes once the newer is marked.
"""

import errno
import fcntl
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from tiers import effects
from tiers.checks import check_part_set, check_parts_stored, part_count, part_length
from tiers.protocol import Key, Part, Upload
from tiers.volume_errnos import failure
from tiers.volume_files import VolumeRoot, closing_fd, flush, lock, remove_folder, sync_directory, write_on
from tiers.volume_uploads import UploadFolders

_MARKER = re.compile(r"([0-9]{6})\.([0-9a-f]{16})\.part")
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_BLOCK = 1 << 20

Replace = Callable[[Sequence[str], Iterator[bytes]], os.stat_result]


class SeparatePartWriter:
    """One part while it is written; ``finish`` makes it count.  Close it in any case."""

    def __init__(self, folder: Path, upload: Upload, number: int) -> None:
        self._folder = folder
        self._number = number
        self._size = part_length(upload, number)
        self._etag = secrets.token_hex(8)
        self._left = self._size
        self._path = folder / f"{number:06d}.{self._etag}.data"
        self._fd = os.open(self._path, _NEW, 0o666)
        lock(self._fd, fcntl.LOCK_EX)

    def write(self, data: memoryview | bytes) -> None:
        """Append to the part."""
        write_on(self._fd, data)
        self._left -= len(data)

    def copy_from(self, source: int, start: int) -> None:
        """Fill the rest of the part from an open file."""
        offset = start + self._size - self._left
        while self._left:
            data = os.pread(source, min(self._left, _BLOCK), offset)
            if not data:
                raise failure(errno.ESTALE, self._folder)
            self.write(data)
            offset += len(data)

    def finish(self) -> Part:
        """Make bytes and then marker durable, and remove what the part was before."""
        effects.fsync_fd(self._fd, str(self._path))
        flush(self._fd)
        write_once(self._path.with_suffix(".part"), b"")
        for marker in self._folder.glob(f"{self._number:06d}.*.part"):
            if marker.name != self._path.with_suffix(".part").name:
                effects.unlink(marker)
                effects.unlink(marker.with_suffix(".data"))
        return Part(number=self._number, size=self._size, etag=self._etag)

    def close(self) -> None:
        """Release the file; one that is not marked is removed."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            if not self._path.with_suffix(".part").exists():
                with suppress(OSError):  # it goes with the upload's folder
                    effects.unlink(self._path)
            with suppress(OSError):  # a part that counts was flushed before; any other is written again
                os.close(fd)


class SeparateUploads(UploadFolders):
    """Uploads whose parts are files of their own.  ``replace`` writes an object from pieces."""

    def __init__(self, root: VolumeRoot, tier: str, replace: Replace) -> None:
        super().__init__(root, tier)
        self._replace = replace

    def begin(self, key: Key, *, size: int, part_size: int) -> Upload:
        """Make the upload's folder, durably."""
        upload, folder = self.make_folder(key, size=size, part_size=part_size)
        write_once(folder / "upload.json", json.dumps(asdict(upload), sort_keys=True).encode())
        return upload

    def write_part(self, upload: Upload, number: int) -> SeparatePartWriter:
        """Open a part for writing."""
        return SeparatePartWriter(self.find(upload), upload, number)

    def parts(self, upload: Upload) -> list[Part]:
        """Return the parts that count, in order of number; not one that is there twice, for want of a newer."""
        by_number: dict[int, list[Part]] = {}
        for part in self._marked(upload):
            by_number.setdefault(part.number, []).append(part)
        return [each[0] for _, each in sorted(by_number.items()) if len(each) == 1]

    def complete(self, upload: Upload, parts: Sequence[Part], components: Sequence[str]) -> os.stat_result:
        """Write the object from its parts; the stat of the object."""
        folder = self.find(upload)
        check_part_set(upload, parts, tier=self._tier)
        named = {(part.number, part.etag) for part in parts}
        held = {part.number: part for part in self._marked(upload) if (part.number, part.etag) in named}
        check_parts_stored(upload, parts, held, tier=self._tier)
        size = sum(part.size for part in held.values())
        if size != upload.size:
            raise self.wrong_size(upload, size)
        info = self._replace(components, _joined([folder / f"{one.number:06d}.{one.etag}.data" for one in parts]))
        self.dispose(folder)
        return info

    def dispose(self, folder: Path) -> None:
        """Remove what makes it an upload, then the rest."""
        with suppress(FileNotFoundError, NotADirectoryError):
            effects.unlink(folder / "upload.json")
            sync_directory(folder)
            remove_folder(folder)
        if not self._root.is_there():
            raise failure(errno.ENOENT, self._root.path)

    def _marked(self, upload: Upload) -> Iterator[Part]:
        folder = self.find(upload)
        for marker in sorted(folder.iterdir()):
            if match := _MARKER.fullmatch(marker.name):
                number, etag = int(match[1]), match[2]
                try:
                    size = marker.with_suffix(".data").lstat().st_size
                except FileNotFoundError:
                    continue  # on its way out
                if not 1 <= number <= part_count(upload) or size != part_length(upload, number):
                    raise self.damaged(marker.with_suffix(".data"), upload)
                yield Part(number=number, size=size, etag=etag)


def write_once(path: Path, data: bytes) -> None:
    """Write a small file that is new, in one go and durably."""
    fd = os.open(path, _NEW, 0o666)
    with closing_fd(fd):
        write_on(fd, data)
        effects.fsync_fd(fd, str(path))
    sync_directory(path.parent)


def _joined(paths: Sequence[Path]) -> Iterator[bytes]:
    for path in paths:
        with path.open("rb", buffering=0) as reader:
            yield from iter(lambda: reader.read(_BLOCK), b"")
