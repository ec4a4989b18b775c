"""A volume as Modal's are, out of folders: ``committed`` is the truth, each view is what one container sees."""

import os
import shutil
import threading
from pathlib import Path

from tiers.volume_modal import VolumeHooks

Signature = tuple[int, int]


class ModalVolume:
    """The shared truth; the last commit of a file wins."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.committed = folder / "committed"
        self.committed.mkdir()
        self.lock = threading.Lock()
        self._views = 0

    def view(self) -> "View":
        """Mount the volume once more: a new container sees what was committed until now."""
        self._views += 1
        return View(self, self.folder / f"view-{self._views}")


class View:
    """One container's mount.  ``calls`` is what was asked of it; ``broken`` makes commits fail."""

    def __init__(self, volume: ModalVolume, root: Path) -> None:
        self._volume = volume
        self.root = root
        self.calls: list[str] = []
        self.broken = 0
        self.frozen = False
        shutil.copytree(volume.committed, root)
        self._base = _tree(root)

    @property
    def hooks(self) -> VolumeHooks:
        return VolumeHooks(commit=self.commit, reload=self.reload)

    def commit(self) -> None:
        """Give others what changed here since the last commit or reload."""
        self.calls.append("commit")
        if self.broken:
            self.broken -= 1
            raise ConnectionError("the volume's server does not answer")
        with self._volume.lock:
            now = _tree(self.root)
            for path in self._base.keys() - now.keys():
                (self._volume.committed / path).unlink(missing_ok=True)
            for path in sorted(now.keys() - {path for path in self._base if self._base[path] == now.get(path)}):
                _copy(self.root / path, self._volume.committed / path)
            self._base = now

    def reload(self) -> None:
        """See what others committed; refused while a file is open, as there."""
        self.calls.append("reload")
        if held := self._open_files():
            raise RuntimeError(f"there are open files preventing the operation: {held[:3]}")
        if self.frozen:
            return
        with self._volume.lock:
            truth = _tree(self._volume.committed)
            mine = _tree(self.root)
            for path in mine.keys() - truth.keys():
                (self.root / path).unlink()
            for path in truth:
                if truth[path] != mine.get(path):
                    _copy(self._volume.committed / path, self.root / path)
            self._base = _tree(self.root)

    def _open_files(self) -> list[str]:
        links = []
        for one in Path("/proc/self/fd").iterdir():
            try:
                links.append(str(one.readlink()))
            except FileNotFoundError:  # closed meanwhile
                continue
        return [link for link in links if link.startswith(f"{self.root}/")]


def _tree(root: Path) -> dict[str, Signature]:
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            try:
                info = path.lstat()
            except FileNotFoundError:  # a temporary file of another thread
                continue
            found[str(path.relative_to(root))] = (info.st_size, info.st_mtime_ns)
    return found


def _copy(source: Path, target: Path) -> None:
    """Copy a file as a new one, with its time; one that is gone by now is not there to be copied."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f"{target.name}.arriving")
    try:
        shutil.copy2(source, temporary)
    except FileNotFoundError:
        return
    temporary.replace(target)
