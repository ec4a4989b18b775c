"""Which volume stands at a root, and how it is written to: found out at the first use, then held to."""

import errno
import os
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from pathlib import Path

from tiers.errors import IntegrityError, TierError, TierUnavailable, Unsupported
from tiers.protocol import Fencing
from tiers.volume_direct import DirectLayout
from tiers.volume_errnos import failure
from tiers.volume_facts import ModeDecision, VolumeFacts, VolumeMode, decide_mode
from tiers.volume_files import HIDDEN, VolumeRoot, settle, sweep
from tiers.volume_identity import MARKER, BadMarker, VolumeIdentity, read_identity, write_identity
from tiers.volume_layout import Layout, RenamedLayout
from tiers.volume_listing import walk_files
from tiers.volume_probe import PROBE, probe_volume

_ABANDONED_PROBE_NS = 3600 * 10**9
_NOT_MOUNTED = "is the volume mounted? If it was replaced on purpose, give the tier another name"

_LAYOUTS: dict[VolumeMode, Callable[[VolumeRoot, str], Layout]] = {
    VolumeMode.RENAME: RenamedLayout,
    VolumeMode.DIRECT: DirectLayout,
}


class Refused(Exception):
    """A volume that is not what it has to be; ``kind`` is the error that a tier raises for it."""

    def __init__(self, kind: type[TierError], message: str, hint: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.hint = hint


class Settling:
    """Decides once for one root.  ``expected`` is the uuid of the volume that has to be there, where one is known."""

    def __init__(self, root: VolumeRoot, tier: str, *, mode: VolumeMode, expected: str | None) -> None:
        self._root = root
        self._tier = tier
        self._mode = mode
        self._expected = expected
        self._lock = threading.Lock()
        self._identity: VolumeIdentity | None = None
        self._doubtful = False
        self._written: Layout | None = None
        self._read: Layout = RenamedLayout(root, tier)  # what any volume without a marker was written with

    @property
    def identity(self) -> VolumeIdentity | None:
        """What the volume's marker said when it was first seen."""
        return self._identity

    def to_read(self) -> Layout:
        """Return the layout that the objects have.  Raises OSError and Refused."""
        with self._lock:
            self._look()
            return self._read

    def to_write(self) -> Layout:
        """Return the layout to write with; the first call gives the volume its marker.  Raises OSError and Refused."""
        with self._lock:
            self._look()
            if self._written is None:
                if self._identity is None:
                    self._found()
                else:
                    settle(self._root.path / HIDDEN / MARKER)  # who wrote it may have died before its fsync
                self._written = self._permitted()
                self._tidy(self._written)
            return self._written

    def handle_went_stale(self) -> None:
        """Look at the marker again at the next request: what stands at the root then may be another volume."""
        with self._lock:
            self._doubtful = True

    def _look(self) -> None:
        """Make sure that the root is still the volume that it was."""
        if self._identity is not None:
            if self._doubtful or self._root.moved:
                self._doubtful = True
                self._require(self._identity.uuid, _identity_of(self._root.path))
                self._root.forget()
                self._doubtful = False
            self._root.pin()
            return
        self._root.pin()
        identity = _identity_of(self._root.path)
        if self._expected is not None:
            self._require(self._expected, identity)
        if identity is not None:
            self._take(identity)

    def _require(self, uuid: str, identity: VolumeIdentity | None) -> None:
        found = identity.uuid if identity else None
        if found == uuid:
            return
        what = f"volume {found}" if found else "a folder without volume"
        raise Refused(TierUnavailable, f"{self._root.path} is {what}, not the volume {uuid} that it was", _NOT_MOUNTED)

    def _take(self, identity: VolumeIdentity) -> None:
        self._identity = identity
        self._read = _LAYOUTS[identity.layout](self._root, self._tier)

    def _permitted(self) -> Layout:
        """Return the layout of the marked volume, where the configured mode agrees with it."""
        identity = self._identity
        if identity is None:
            raise failure(errno.ESTALE, self._root.path)
        layout = str(identity.layout)
        if self._mode in (VolumeMode.RENAME, VolumeMode.DIRECT) and self._mode is not identity.layout:
            raise Refused(
                Unsupported,
                f"the objects on this volume were written in mode {layout}, configured is mode {self._mode}",
                f'say mode = "{layout}" in its [[tier]], or name another folder of the volume in its url',
            )
        if self._mode is VolumeMode.AUTO and identity.fencing is Fencing.ADVISORY:
            raise _unproved(layout, ())
        return self._read

    def _found(self) -> None:
        """Choose a layout for a volume without a marker, and write the marker."""
        used = next(islice(walk_files(self._root.path, "", None), 1), None)
        if used is not None and self._mode is VolumeMode.DIRECT:
            message = f"{used[0]} and perhaps more is there already, without the marks that mode direct needs"
            raise Refused(Unsupported, message, "name a new folder of the volume in its url, and make it (mkdir)")
        layout, fencing = self._chosen(used=used is not None)
        create = _LAYOUTS[layout](self._root, self._tier).create
        try:
            self._take(write_identity(self._root, layout, fencing, create))
        except BadMarker as error:
            raise _damaged(error) from error

    def _chosen(self, *, used: bool) -> tuple[VolumeMode, Fencing]:
        match self._mode:
            case VolumeMode.RENAME:
                return VolumeMode.RENAME, Fencing.POSIX
            case VolumeMode.DIRECT:
                return VolumeMode.DIRECT, Fencing.ADVISORY
            case _ if used or (self._root.path / HIDDEN / "uploads").exists():
                return VolumeMode.RENAME, Fencing.POSIX  # an earlier version wrote there, and had no other way
            case _:
                return self._probed()

    def _probed(self) -> tuple[VolumeMode, Fencing]:
        facts = probe_volume(self._root.path)
        decision = decide_mode(facts)
        if decision.mode is None:
            raise _hindrance(facts, self._root.path)
        if decision.fencing is Fencing.ADVISORY and self._mode is VolumeMode.AUTO:
            raise _unproved(str(decision.mode), decision.reasons)
        return decision.mode, decision.fencing

    def _tidy(self, layout: Layout) -> None:
        """Remove what killed processes left; what cannot be removed is for the next one to try."""
        with suppress(OSError):
            sweep(self._root.ensure((HIDDEN, "tmp")))
        with suppress(OSError):
            layout.uploads.sweep()
        with suppress(OSError):
            folders = [one for one in (self._root.path / HIDDEN).iterdir() if one.name.startswith(PROBE)]
            now = self._root.clock() if folders else 0
            for folder in folders:
                if now - folder.lstat().st_mtime_ns > _ABANDONED_PROBE_NS:
                    shutil.rmtree(folder)


def _identity_of(root: Path) -> VolumeIdentity | None:
    try:
        return read_identity(root)
    except BadMarker as error:
        raise _damaged(error) from error


def _damaged(error: BadMarker) -> Refused:
    hint = "the objects are not touched by this; put the file back, or update ckptier where it is of a newer format"
    return Refused(IntegrityError, str(error), hint)


def _unproved(layout: str, reasons: tuple[str, ...]) -> Refused:
    why = f" ({'; '.join(reasons)})" if reasons else ""
    return Refused(
        Unsupported,
        f"on this volume two writers cannot be kept apart{why}",
        f'where only one writer ever exists, say mode = "{layout}" and accept_advisory = true in its [[tier]]',
    )


def _hindrance(facts: VolumeFacts, root: Path) -> OSError | Refused:
    """Return what kept a probe from finding out: the system's own answer, where there was one."""
    decision: ModeDecision = decide_mode(facts)
    numbers = [found.errno for _, found in facts.findings() if found.evidence in decision.reasons]
    number = next((one for one in numbers if one is not None), None)
    if number is not None:
        return OSError(number, os.strerror(number), str(root))
    return Refused(Unsupported, "; ".join(decision.reasons), "this filesystem cannot hold checkpoints; use another one")
