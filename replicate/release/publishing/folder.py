"""A folder: the tree is put together beside it, read back, and appears in one rename.

Until the rename it is ``.publishing-<label>-<nonce>/`` beside the target, private, and owned by a
flock on ``.publishing-<label>-<nonce>.lock``, which dies with its holder: the next publication
into the same parent removes what a killed one left.
"""

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from replicate.canonical import sha256
from replicate.digests import BLOCK, CountedSha256
from replicate.errors import CapabilityMissing, CkptierError, IntegrityFailure, LocalDisk, TrustFailure
from replicate.generation.disk import FULL, remove_tree
from replicate.generation.locks import Flock
from replicate.release.destination import Gating, Visibility
from replicate.release.publishing.carrying import (
    Carried,
    amend,
    carried,
    check_set,
    differs,
    source_blocks,
    total_bytes,
)
from replicate.release.publishing.places import Payload, PlaceState, Published, Step
from tiers import effects
from tiers.volume_files import rename_new, sync_directory

PREFIX = ".publishing-"
_LOCK = ".lock"
_NO_NOREPLACE = frozenset({errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
_TAKEN = frozenset({errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR})
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_UNMANAGED = "ckptier does not manage who sees a folder"


class FolderPlace:
    """``file:///folder``: ``path`` must not exist yet, the folder that it lies in must."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._finished = False

    def state(self) -> PlaceState:
        """Look whether something stands there."""
        standing = None if self._finished else _standing(self.path)
        return PlaceState(
            exists=standing is not None,
            visibility=Visibility.UNMANAGED,
            gating=Gating.NONE,
            occupied=standing,
        )

    def resume(self, payload: Payload, *, expected_parent: str | None) -> None:  # noqa: ARG002 - no commits here
        """Look whether this very release stands there: it appeared in one piece, or not at all."""
        with _disk(self.path):
            self._finished = (
                self.path.is_dir() and not self.path.is_symlink() and _holds(self.path, carried(payload)[-1])
            )

    def publish(self, payload: Payload, *, expected_parent: str | None, step: Step) -> Published:
        """Copy, hash, make durable, read back, rename without replacing.

        Raises TrustFailure where something stands there, IntegrityFailure where bytes are not the
        authorized ones, LocalDisk where the disk fails.
        """
        if expected_parent is not None:
            raise TrustFailure(
                f"expected_parent: {self.path} is a folder and has no commits",
                hint="have it authorized without a parent commit",
            )
        files = carried(payload)
        with _disk(self.path):
            if self._finished:
                step(f"read {len(files)} files back from {self.path}")
                _read_back(self.path, files)
                sync_directory(self.path.parent)
                _sweep(self.path.parent)
            else:
                self._put(files, step)
        step(f"published at {self.path}")
        return Published(
            url=self.path.as_uri(),
            commit=sha256(payload.manifest_bytes),
            files=len(files),
            total_bytes=total_bytes(files),
            read_back=len(files),
        )

    def set_visibility(self, visibility: Visibility, gating: Gating, *, commit: str, step: Step) -> None:  # noqa: ARG002
        """Raise CapabilityMissing."""
        raise CapabilityMissing(_UNMANAGED, hint=f"change the mode or owner of {self.path} yourself")

    def withdraw(self, *, step: Step) -> str:  # noqa: ARG002
        """Raise CapabilityMissing."""
        raise CapabilityMissing(_UNMANAGED, hint=f"remove {self.path} yourself")

    def close(self) -> None:
        """Do nothing."""

    def _put(self, files: tuple[Carried, ...], step: Step) -> None:
        standing = _standing(self.path)
        if standing is not None:
            raise _occupied(self.path, standing)
        with _staging(self.path) as staging:
            _fill(staging, files, step)
            step(f"read {len(files)} files back, beside {self.path}")
            _read_back(staging, files)
            staging.chmod(0o755)
            effects.fsync_directory(staging)
            self._show(staging)

    def _show(self, staging: Path) -> None:
        """Give the finished folder its name; where that cannot be made durable, take it away again."""
        _rename_new(staging, self.path)
        try:
            sync_directory(self.path.parent)
        except BaseException:
            effects.rename(self.path, staging)
            raise


def _standing(path: Path) -> str | None:
    """Say what stands at a path, None where nothing does."""
    with _disk(path):
        if path.is_symlink():
            return "a symbolic link"
        if not path.exists():
            if not path.parent.is_dir():
                raise LocalDisk(f"{path.parent} does not exist", hint=f"create it first: mkdir -p {path.parent}")
            return None
        if not path.is_dir():
            return "something that is not a folder"
        return "a folder" if any(path.iterdir()) else "an empty folder"


def _occupied(path: Path, standing: str) -> TrustFailure:
    return TrustFailure(
        f"destination: {standing} stands at {path}: nothing is replaced",
        hint="name a folder that does not exist yet, or move away what stands there",
    )


@contextmanager
def _disk(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        where = error.filename if isinstance(error.filename, str) else str(path)
        hint = (
            "make room on that disk" if error.errno in FULL else f"check the disk and the permissions of {path.parent}"
        )
        raise LocalDisk(
            f"{where}: {error.strerror or error} (while publishing to {path})",
            hint=f"{hint}, then publish again with --resume",
        ) from error


@contextmanager
def _staging(target: Path) -> Iterator[Path]:
    """Make a private folder beside the target; whatever happens it is gone afterwards, or has become the target."""
    _sweep(target.parent)
    lock, path = _lock(target)
    staging = path.with_name(path.name.removesuffix(_LOCK))
    try:
        staging.mkdir(mode=0o700)
        yield staging
    except CkptierError as error:
        try:
            remove_tree(staging)
        except LocalDisk as second:
            amend(error, f"{staging} could not be removed ({second.message})")
        raise
    except BaseException:
        remove_tree(staging)
        raise
    finally:
        with suppress(OSError):  # the next publication sweeps it; this one is what it is
            effects.unlink(path)
        lock.release()


def _lock(target: Path) -> tuple[Flock, Path]:
    label = sha256(os.fsencode(target.name))[:8]
    while True:
        path = target.parent / f"{PREFIX}{label}-{secrets.token_hex(8)}{_LOCK}"
        lock = Flock.take(path)
        if lock.guards(path):
            return lock, path
        lock.release()  # swept between the two calls


def _sweep(parent: Path) -> None:
    """Remove what killed publications left in this folder: those whose lock is free."""
    for path in sorted(parent.glob(f"{PREFIX}*{_LOCK}")):
        with suppress(FileNotFoundError):  # its owner finished meanwhile
            lock = Flock.attempt(path)
            if lock is None:
                continue
            try:
                if lock.guards(path):
                    remove_tree(path.with_name(path.name.removesuffix(_LOCK)))
                    effects.unlink(path)
            finally:
                lock.release()


def _fill(staging: Path, files: tuple[Carried, ...], step: Step) -> None:
    """Copy every file, and make all of it durable."""
    folders = {staging}
    for file in files:
        step(f"copy {file.path} ({file.size} bytes)")
        target = staging / file.path
        target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        folders.update(folder for folder in target.parents if staging in folder.parents)
        _copy(file, target)
    for folder in sorted(folders, key=lambda one: len(one.parts), reverse=True):
        if folder != staging:
            folder.chmod(0o755)
        effects.fsync_directory(folder)


def _copy(file: Carried, target: Path) -> None:
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        for block in source_blocks(file):
            left = block
            while left:
                left = left[os.write(fd, left) :]
        os.fchmod(fd, 0o644)
        effects.fsync_fd(fd, str(target))
    finally:
        os.close(fd)


def _read_back(root: Path, files: tuple[Carried, ...]) -> None:
    """Hash every file as the disk hands it out; raises IntegrityFailure, also for a file too many."""
    found: set[str] = set()
    for folder, names, leaves in os.walk(root):
        links = [name for name in names if (Path(folder) / name).is_symlink()]
        found.update(str((Path(folder) / name).relative_to(root)) for name in (*leaves, *links))
    check_set(str(root), found, files)
    for file in files:
        _hash_again(root, file)


def _hash_again(root: Path, file: Carried) -> None:
    digest = CountedSha256()
    buffer = memoryview(bytearray(BLOCK))
    size = 0
    try:
        fd = os.open(root / file.path, _READ)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise differs(str(root), file, "it is a symbolic link") from error
        raise
    try:
        with suppress(OSError):  # some network file systems know no advice: then it may come from memory
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        while count := os.readv(fd, [buffer]):
            digest.update(buffer[:count])
            size += count
    finally:
        os.close(fd)
    if size != file.size:
        raise differs(str(root), file, f"{size} bytes, {file.size} were written")
    if digest.hexdigest() != file.sha256:
        raise differs(str(root), file, "other bytes than were written")


def _holds(folder: Path, manifest: Carried) -> bool:
    """Tell whether a folder is this release by its manifest."""
    try:
        _hash_again(folder, manifest)
    except (FileNotFoundError, NotADirectoryError, IntegrityFailure):
        return False
    return True


def _rename_new(staging: Path, target: Path) -> None:
    """Rename without replacing; raises TrustFailure where something appeared there meanwhile."""
    identity = staging.stat()
    try:
        try:
            rename_new(staging, target)
        except OSError as error:
            if error.errno not in _NO_NOREPLACE:
                raise
            target.mkdir()  # claims the name: of two, one gets it, and renaming over an empty folder is atomic
            try:
                effects.rename(staging, target)
            except BaseException:
                target.rmdir()
                raise
    except FileNotFoundError:
        # a network volume may deny a rename that took place, because its reply was lost
        if not (target.is_dir() and os.path.samestat(identity, target.stat())):
            raise
    except OSError as error:
        if error.errno in _TAKEN:
            raise _occupied(target, _standing(target) or "something") from error
        raise
