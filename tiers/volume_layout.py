"""How objects get under their keys on a volume, and the way that needs rename.

A layout works below one root and raises OSError; :class:`tiers.volume.VolumeTier` translates.
Bodies come as pieces, each valid until the next one is asked for; what asking raises passes
unchanged, and then nothing was stored.
"""

import os
import stat
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from tiers import effects
from tiers.protocol import Key, Part, Upload
from tiers.volume_copying import copy_range
from tiers.volume_facts import VolumeMode
from tiers.volume_files import VolumeRoot, closing_fd, flush, sync_directory, write_all
from tiers.volume_uploads import SparseUploads

Pieces = Iterable[memoryview | bytes]


class PartWriting(Protocol):
    """One part while it is written; ``finish`` makes it count.  Close it in any case."""

    def write(self, data: memoryview | bytes) -> None:
        """Append to the part."""
        ...

    def copy_from(self, source: int, start: int) -> None:
        """Fill the rest of the part from an open file."""
        ...

    def finish(self) -> Part:
        """Make bytes and then marker durable."""
        ...

    def close(self) -> None:
        """Release the file."""
        ...


class Uploads(Protocol):
    """Uploads in parts.  One that is gone is FileNotFoundError."""

    def begin(self, key: Key, *, size: int, part_size: int) -> Upload:
        """Make the upload's folder, durably."""
        ...

    def write_part(self, upload: Upload, number: int) -> PartWriting:
        """Open a part for writing."""
        ...

    def parts(self, upload: Upload) -> list[Part]:
        """Return the parts that count, in order of number."""
        ...

    def complete(self, upload: Upload, parts: Sequence[Part], components: Sequence[str]) -> os.stat_result:
        """Make the object from all its parts; the stat of the object."""
        ...

    def abort(self, upload: Upload) -> None:
        """Remove the upload, where it is."""
        ...

    def sweep(self) -> None:
        """Remove uploads that were left behind."""
        ...


class Layout(Protocol):
    """One way of writing below a root."""

    mode: VolumeMode
    uploads: Uploads

    def put(self, components: Sequence[str], pieces: Pieces) -> os.stat_result:
        """Store an object, replacing what is there."""
        ...

    def create(self, components: Sequence[str], data: bytes) -> os.stat_result:
        """Store an object where the key is free; FileExistsError where it is not."""
        ...

    def copy(self, components: Sequence[str], source: int, size: int, check: Callable[[], None]) -> os.stat_result:
        """Store what the open file ``source`` holds; what ``check``, called after the last byte, raises refuses it."""
        ...

    def check_whole(self, components: Sequence[str], info: os.stat_result) -> None:
        """Raise FileNotFoundError where the file under a key, whose stat is ``info``, is no object yet."""
        ...

    def marks(self, components: Sequence[str]) -> tuple[Path, ...]:
        """Return the files and folders whose fsync makes an object durable that another process wrote."""
        ...

    def delete(self, components: Sequence[str]) -> None:
        """Remove an object, durably, and the folders that it leaves empty; a folder of other keys stays."""
        ...


class RenamedLayout:
    """Written beside, fsynced, and renamed (``put``) or linked (``create``) into place: whatever has a key is whole."""

    mode = VolumeMode.RENAME

    def __init__(self, root: VolumeRoot, tier: str) -> None:
        self._root = root
        self.uploads: Uploads = SparseUploads(root, tier)

    def put(self, components: Sequence[str], pieces: Pieces) -> os.stat_result:
        """Write beside, fsync, rename into place, fsync the folder."""
        return self._store(components, lambda fd: _write_pieces(fd, pieces), self._root.publish)

    def create(self, components: Sequence[str], data: bytes) -> os.stat_result:
        """Write beside, fsync, link into place where the key is free, fsync the folder."""
        return self._store(components, lambda fd: write_all(fd, data, 0), self._root.publish_new)

    def copy(self, components: Sequence[str], source: int, size: int, check: Callable[[], None]) -> os.stat_result:
        """Copy beside, fsync, rename into place, fsync the folder."""

        def fill(fd: int) -> None:
            copy_range(source, fd, 0, 0, size, what=self._root.path.joinpath(*components))
            check()

        return self._store(components, fill, self._root.publish)

    def check_whole(self, components: Sequence[str], info: os.stat_result) -> None:
        """Find nothing to object to."""

    def marks(self, components: Sequence[str]) -> tuple[Path, ...]:
        """Return the folder of the key: its bytes were fsynced before they got it."""
        return (self._root.path.joinpath(*components[:-1]),)

    def delete(self, components: Sequence[str]) -> None:
        """Unlink the file, fsync the folder, and remove the folders that it leaves empty."""
        path = self._root.locate(components)
        if stat.S_ISDIR(path.lstat().st_mode):
            return
        effects.unlink(path)
        with suppress(FileNotFoundError):  # another delete removed the folder with it
            sync_directory(path.parent)
        self._root.remove_empty(components)

    def _store(
        self, components: Sequence[str], fill: Callable[[int], None], publish: Callable[[Path, Sequence[str]], None]
    ) -> os.stat_result:
        fd, temporary = self._root.new_temporary()
        # Not closed before it has its key: open, it is locked, and nobody sweeps it.
        with closing_fd(fd):
            try:
                fill(fd)
                effects.fsync_fd(fd, str(temporary))
                flush(fd)
                info = os.fstat(fd)
                publish(temporary, components)
            except BaseException:
                with suppress(OSError):  # a leftover is not content; the first error is the one to report
                    effects.unlink(temporary)
                raise
        return info


def _write_pieces(fd: int, pieces: Pieces) -> None:
    offset = 0
    for piece in pieces:
        write_all(fd, piece, offset)
        offset += len(piece)
