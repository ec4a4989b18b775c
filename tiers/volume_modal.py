"""A tier on a volume whose changes others see only after a commit, and which shows theirs only after a reload.

Modal volumes are like that.  Every verb that changes something ends with a commit, and
every verb that looks begins with a reload, which such a volume allows only while no file is
open: where this process has one open, it looks at what it has.  There are no locks between
machines and the last commit of a file wins, so writers are kept apart only by advice.
"""

import importlib
import io
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import BinaryIO, TypeVar, cast

from tiers.bodies import Body
from tiers.errors import ObjectNotFound, TierUnavailable, Unsupported
from tiers.protocol import Capabilities, Fencing, Key, ObjectInfo, ObjectPage, Part, PartPage, Tier, Upload

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeHooks:
    """What makes changes visible: ``commit`` ours to others, ``reload`` theirs to us.  They may raise anything."""

    commit: Callable[[], object]
    reload: Callable[[], object]


class BadHooks(ValueError):
    """The options name no usable hooks."""


def hooks_from(options: Mapping[str, str | int | bool], tier: str) -> VolumeHooks:
    """Return the hooks that a tier's options name.

    ``volume`` is the name of a Modal volume and needs the package modal (Unsupported
    without it); ``commit`` and ``reload`` are ``module:function`` each.  BadHooks for
    anything else.
    """
    match dict(options):
        case {"volume": str(name), **rest} if not rest:
            try:
                volume = importlib.import_module("modal").Volume.from_name(name)
            except ModuleNotFoundError as error:
                raise Unsupported(
                    "mode modal with a volume's name needs the package modal, which is not installed",
                    tier=tier,
                    operation="open tier",
                    hint="pip install modal, or name functions of yours with options commit and reload",
                ) from error
            return VolumeHooks(commit=volume.commit, reload=volume.reload)
        case {"commit": str(commit), "reload": str(again), **rest} if not rest:
            return VolumeHooks(commit=_function(commit), reload=_function(again))
    raise BadHooks("mode modal needs options volume, or commit and reload, and no others")


def _function(entry: str) -> Callable[[], object]:
    module, _, name = entry.partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadHooks(f"{entry!r} is no function that can be imported as module:function ({error})") from error
    if not callable(found):
        raise BadHooks(f"{entry!r} is not a function")
    return cast("Callable[[], object]", found)


class ModalTier:
    """``inner``, with commits and reloads where they belong."""

    def __init__(self, inner: Tier, hooks: VolumeHooks) -> None:
        self._inner = inner
        self._view = _View(hooks, inner.name)
        self._created: set[Key] = set()

    @property
    def name(self) -> str:
        """The name of the tier inside."""
        return self._inner.name

    @property
    def capabilities(self) -> Capabilities:
        """Those of the tier inside, with advisory fencing."""
        return replace(self._inner.capabilities, fencing=Fencing.ADVISORY)

    def put(self, key: Key, body: Body) -> ObjectInfo:
        """Put, then commit."""
        return self._change("put", key, lambda: self._inner.put(key, body))

    def create(self, key: Key, data: bytes) -> ObjectInfo:
        """Reload, create, then commit.  Between the two, another machine may do the same: the last commit wins."""
        self._view.refresh("create", key)
        info = self._change("create", key, lambda: self._inner.create(key, data))
        self._created.add(key)
        return info

    def open(self, key: Key, start: int = 0, length: int | None = None) -> BinaryIO:
        """Reload, then open; until the stream is closed there is no other reload."""

        def opened() -> BinaryIO:
            release = self._view.hold()
            try:
                return cast("BinaryIO", _HeldStream(self._inner.open(key, start, length), release))
            except BaseException:
                release()
                raise

        return self._look("open", key, opened)

    def stat(self, key: Key) -> ObjectInfo:
        """Reload, then stat."""
        return self._look("stat", key, lambda: self._inner.stat(key))

    def list_objects(self, prefix: str, token: str | None = None) -> ObjectPage:
        """Reload, then list.  A page that lacks what this process created is stale: TierUnavailable."""
        page = self._look("list_objects", Key(prefix), lambda: self._inner.list_objects(prefix, token))
        last = page.objects[-1].key if page.next_token is not None else None
        listed = {info.key for info in page.objects}
        for key in self._created - listed:
            if key.startswith(prefix) and (token is None or key > token) and (last is None or key <= last):
                raise self._stale("list_objects", key)
        return page

    def copy(self, key: Key, source: ObjectInfo) -> ObjectInfo:
        """Copy, then commit."""
        return self._change("copy", key, lambda: self._inner.copy(key, source))

    def delete(self, key: Key) -> None:
        """Delete, then commit."""
        self._created.discard(key)
        self._change("delete", key, lambda: self._inner.delete(key))

    def close(self) -> None:
        """Commit what is not committed, as far as that goes, and close."""
        try:
            self._view.settle("close", Key(""))
        finally:
            self._inner.close()

    def begin_upload(self, key: Key, *, size: int, part_size: int) -> Upload:
        """Begin, then commit."""
        return self._change("begin_upload", key, lambda: self._inner.begin_upload(key, size=size, part_size=part_size))

    def put_part(self, upload: Upload, number: int, body: Body) -> Part:
        """Put, then commit: a part that was accepted is there after a restart elsewhere."""
        return self._change("put_part", upload.key, lambda: self._inner.put_part(upload, number, body))

    def list_parts(self, upload: Upload, token: str | None = None) -> PartPage:
        """Reload, then list."""
        return self._look("list_parts", upload.key, lambda: self._inner.list_parts(upload, token))

    def copy_part(self, upload: Upload, number: int, source: ObjectInfo, start: int, length: int) -> Part:
        """Copy, then commit."""
        return self._change(
            "copy_part", upload.key, lambda: self._inner.copy_part(upload, number, source, start, length)
        )

    def complete(self, upload: Upload, parts: Sequence[Part]) -> ObjectInfo:
        """Complete, then commit."""
        return self._change("complete", upload.key, lambda: self._inner.complete(upload, parts))

    def abort(self, upload: Upload) -> None:
        """Abort, then commit."""
        self._change("abort", upload.key, lambda: self._inner.abort(upload))

    def _change(self, operation: str, key: Key, act: Callable[[], Result]) -> Result:
        with self._view.held():
            result = act()
        self._view.changed()
        self._view.settle(operation, key)
        return result

    def _look(self, operation: str, key: Key, act: Callable[[], Result]) -> Result:
        """Reload and look; what this process created and does not see is looked for once more, then reported."""
        for _ in range(2):
            self._view.refresh(operation, key)
            with self._view.held():
                try:
                    return act()
                except ObjectNotFound:
                    if key not in self._created:
                        raise
        raise self._stale(operation, key)

    def _stale(self, operation: str, key: str) -> TierUnavailable:
        return TierUnavailable(
            "the volume's view is older than what this process has committed to it",
            tier=self.name,
            operation=operation,
            key=key,
            hint="a reload did not help: is a file of the volume open, or is it another volume?",
        )


class _View:
    """What this process sees of the volume: commits that are due, and files that forbid a reload."""

    def __init__(self, hooks: VolumeHooks, tier: str) -> None:
        self._hooks = hooks
        self._tier = tier
        self._lock = threading.Lock()
        self._committing = threading.Lock()
        self._open = 0
        self._changes = 0
        self._committed = 0

    def hold(self) -> Callable[[], None]:
        """Forbid reloads until the function returned is called."""
        with self._lock:
            self._open += 1
        return self._release

    @contextmanager
    def held(self) -> Iterator[None]:
        """Forbid reloads during the block."""
        release = self.hold()
        try:
            yield
        finally:
            release()

    def changed(self) -> None:
        """Note that there is something to commit."""
        with self._lock:
            self._changes += 1

    def settle(self, operation: str, key: Key) -> None:
        """Commit all that was changed so far, unless a commit since then has; TierUnavailable where it fails."""
        due = self._changes
        with self._committing:
            if self._committed >= due:
                return  # another thread's commit began after our change, and took it along
            covered = self._changes
            self._call(self._hooks.commit, "commit", operation, key)
            self._committed = covered

    def refresh(self, operation: str, key: Key) -> None:
        """Commit what is due, then see what others have committed, unless a file is open."""
        self.settle(operation, key)
        with self._lock:
            if not self._open:
                self._call(self._hooks.reload, "reload", operation, key)

    def _release(self) -> None:
        with self._lock:
            self._open -= 1

    def _call(self, hook: Callable[[], object], what: str, operation: str, key: Key) -> None:
        try:
            hook()
        except Exception as error:  # whatever the volume's library raises, it means that the volume did not do it
            message = f"the volume's {what} failed: {type(error).__name__}: {error}"
            raise TierUnavailable(message, tier=self._tier, operation=operation, key=key) from error


class _HeldStream(io.RawIOBase):
    """A stream that says when it is closed."""

    def __init__(self, stream: BinaryIO, release: Callable[[], None]) -> None:
        super().__init__()
        self._stream = stream
        self._release = release

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object, /) -> int:
        return cast("io.RawIOBase", self._stream).readinto(cast("bytearray", buffer)) or 0

    def close(self) -> None:
        if not self.closed:
            super().close()
            try:
                self._stream.close()
            finally:
                self._release()
