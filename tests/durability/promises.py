"""What must be durable at the moment when it is said, checked over a record of operations.

Works on the page cache and the disk of :class:`support.crash_states.Disk`: no process is
started and nothing is recovered, so that it can be asked about any change of a record.
"""

import functools
import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from crash.stage import RUN
from support.disk_model import Disk, Node, forgettable
from support.strace_log import Link, Mark, Open, Operation, Rename, Sync, Unlink

MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
"""A folder where SQLite's own fsyncs cost nothing."""

_SCRATCH = re.compile(r"/(\.trash-|\.damaged-|\.ckptier/(tmp|probe-|uploads/)|tracker\.sqlite|\.tmp-status)")
_OBJECT = re.compile(rf"(.*)/{RUN}/generations/([^/]+)/(.*)")
_SLOT = re.compile(rf"(.*)/{RUN}/log/\d{{12}}\.json")
_MARK = re.compile(r"(.*)/\.ckptier/done/(.*)")


def split(operations: Sequence[Operation]) -> dict[str, list[Operation]]:
    """Return the operations of each scenario, without those on files that nothing depends on."""
    found: dict[str, list[Operation]] = {}
    current: list[Operation] = []
    for operation in operations:
        if isinstance(operation, Mark):
            said = json.loads(operation.text)
            if "begin" in said:
                current = found.setdefault(said["begin"], [])
        elif (forgettable(operation.path) and not isinstance(operation, Rename)) or (
            isinstance(operation, Rename) and forgettable(operation.target)
        ):
            continue
        current.append(operation)
    return found


@dataclass(slots=True)
class Auditor:
    """Replays one scenario and collects what is promised too early.  ``modal``: only commits of the volume count."""

    disk: Disk
    modal: bool = False
    faults: list[str] = field(default_factory=list)
    acknowledged: int = 0
    renamed: int = 0
    retired: list[str] = field(default_factory=list)

    def run(self, operations: Sequence[Operation]) -> list[str]:
        """Return what is wrong, in order."""
        for operation in operations:
            match operation:
                case Mark():
                    self._heard(json.loads(operation.text))
                    continue
                case Rename() | Link():
                    self._before_a_name(operation)
                    self._before_what_depends(operation.target)
                case Open():
                    self._before_what_depends(operation.path)
                case Unlink():
                    self._before_a_removal(operation.path)
                case Sync() if operation.path.endswith("tracker.sqlite-wal"):
                    self._tracker_is_behind(operation.path)
                case _:
                    pass
            if not (self.modal and isinstance(operation, Sync) and "/volume" in operation.path):
                self.disk.apply(operation)
        return self.faults

    def _heard(self, said: dict[str, Any]) -> None:
        if "settled" in said:
            self.disk.settle()
        elif "commit" in said:
            self.disk.settle(f"{self.disk.root}/volume")
        elif "ack" in said:
            self.acknowledged += 1
            _RULES[said["ack"]](self, said)

    def safe(self, what: str, *paths: str) -> None:
        """Note each part of a path that a power cut may still take."""
        self.faults += [f"{what}: {fault}" for path in paths for fault in self.disk.is_safe(path)]

    def safe_below(self, what: str, folder: str, least: int = 1) -> None:
        """Note the same of every file below a folder, which has to have some."""
        files = self.disk.files(folder)
        if len(files) < least:
            self.faults.append(f"{what}: {folder} has {len(files)} files")
        self.safe(what, folder, *files)

    def gone(self, what: str, path: str) -> None:
        """Note a name that a power cut may bring back."""
        node: Node | None = self.disk.top
        for name in path.removeprefix(self.disk.root).lstrip("/").split("/"):
            node = node.safe_names.get(name) if node is not None else None
        if node is not None:
            self.faults.append(f"{what}: {path} may come back")

    def _before_a_name(self, operation: Rename | Link) -> None:
        """Bytes, and names within a folder, are durable before they get a name that counts."""
        if self.modal or _SCRATCH.search(operation.target.removeprefix(self.disk.root)):
            return
        node = self.disk.find(operation.path)
        assert node is not None, operation
        self.renamed += 1
        what = f"{type(operation).__name__} to {operation.target.removeprefix(self.disk.root)}"
        self.faults += [f"{what}: {fault}" for fault in _unsafe_below(node, "")]

    def _before_what_depends(self, path: str) -> None:
        """Have a generation appear after its lineage, a mark after its object, a log entry after what it may name."""
        if self.modal:
            return
        if path.startswith((f"{self.run_folder}/generations/", f"{self.run_folder}/.staged-")):
            self.safe(f"{path} appears", f"{self.run_folder}/lineage.json")
        mark = _MARK.fullmatch(path)
        if mark is not None and self.disk.find(path) is None:
            self.safe(f"the mark of {mark[2]}", f"{mark[1]}/{mark[2]}")
        slot = _SLOT.fullmatch(path)
        if slot is not None and mark is None and self.disk.find(path) is None:
            objects = self.disk.files(f"{slot[1]}/{RUN}/generations")
            self.safe(f"{path} appears", *objects)

    def _before_a_removal(self, path: str) -> None:
        """Objects on a tier go after a durable log, and after their manifest."""
        found = _OBJECT.fullmatch(path)
        if (
            not self.retired
            or found is None
            or "/.ckptier" in path
            or not found[1].startswith(f"{self.disk.root}/volume")
        ):
            return
        self.safe_below(f"unlink of {found[3]}", f"{found[1]}/{RUN}/log")
        if found[3].startswith("files"):
            self.gone(f"unlink of {found[3]}", f"{found[1]}/{RUN}/generations/{found[2]}/manifest.json")

    def _tracker_is_behind(self, wal: str) -> None:
        """Have the log's entry on the disk before the page cache has a tracker that says so, and may reach it too."""
        for tier, generation, slot in completed_in(self.disk, wal.removesuffix("-wal")):
            self.safe(
                f"the tracker says that {generation} is complete", f"{self.volume(tier)}/{RUN}/log/{slot:012d}.json"
            )

    def volume(self, tier: str) -> str:
        """Return where a tier of this name lies."""
        return f"{self.disk.root}/{'volume' if tier == 'v' else tier}"

    @property
    def run_folder(self) -> str:
        """The run's folder in the store."""
        return f"{self.disk.root}/runs/{RUN}"


def _unsafe_below(node: Node, way: str) -> Iterator[str]:
    if not node.folder:
        if node.safe_data != bytes(node.data):
            yield f"{way or 'it'}: its bytes are not durable"
        return
    for name, child in node.names.items():
        if node.safe_names.get(name) is not child:
            yield f"{way}/{name}: its name is not durable"
        yield from _unsafe_below(child, f"{way}/{name}")


def completed_in(disk: Disk, path: str) -> list[tuple[str, str, int]]:
    """Return (tier, generation, slot) of a tracker as the page cache has it."""
    parts = [(suffix, disk.find(f"{path}{suffix}")) for suffix in ("", "-wal", "-journal")]
    return _completed_in(tuple((suffix, bytes(node.data)) for suffix, node in parts if node is not None))


@functools.cache
def _completed_in(files: tuple[tuple[str, bytes], ...]) -> list[tuple[str, str, int]]:
    with TemporaryDirectory(dir=MEMORY) as folder:
        for suffix, data in files:
            Path(folder, f"t{suffix}").write_bytes(data)
        return completed_rows(f"{folder}/t")


def completed_rows(path: str) -> list[tuple[str, str, int]]:
    """Return (tier, generation, slot) of a tracker, which this may recover: give it a copy."""
    connection = sqlite3.connect(path)
    try:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")}
        return list(connection.execute("SELECT tier, generation, slot FROM completed")) if "completed" in tables else []
    finally:
        connection.close()


def _published(audit: Auditor, said: dict[str, Any]) -> None:
    what, run = f"{said['generation']} is published", audit.run_folder
    audit.safe_below(what, f"{run}/generations/{said['generation']}", 4)
    audit.safe(what, f"{run}/lineage.json", f"{run}/LATEST.json", f"{run}/evidence/{said['generation']}.json")


def _staged(audit: Auditor, said: dict[str, Any]) -> None:
    run = audit.disk.find(audit.run_folder)
    assert run is not None
    (name,) = [name for name in run.names if name.startswith(".staged-")]
    what = f"update {said['update']} is staged"
    audit.safe_below(what, f"{audit.run_folder}/{name}/tree", 3)
    audit.safe(what, f"{audit.run_folder}/{name}/staged.json", f"{audit.run_folder}/lineage.json")


def _replicated(audit: Auditor, said: dict[str, Any]) -> None:
    what, volume = f"{said['generation']} is replicated", audit.volume(said["tier"])
    audit.safe(what, f"{volume}/.ckptier/volume.json")
    audit.safe(what, *(f"{volume}/{RUN}/log/{slot:012d}.json" for slot in range(said["slot"] + 1)))
    folder = audit.disk.find(f"{volume}/{RUN}/generations")
    names = [name for name in (folder.names if folder else ()) if name.startswith(f"{said['generation']}.")]
    if not names:
        audit.faults.append(f"{what}: nothing of it is there")
    for name in names:
        audit.safe_below(what, f"{volume}/{RUN}/generations/{name}", 4)
        if audit.disk.find(f"{volume}/.ckptier/done") is not None:
            audit.safe_below(what, f"{volume}/.ckptier/done/{RUN}/generations/{name}", 4)
            audit.safe_below(what, f"{volume}/.ckptier/done/{RUN}/log", said["slot"] + 1)
    tracker = f"{audit.run_folder}/tracker.sqlite"
    audit.safe(what, tracker, *([f"{tracker}-wal"] if audit.disk.find(f"{tracker}-wal") else []))
    if (said["tier"], said["generation"], said["slot"]) not in completed_in(audit.disk, tracker):
        audit.faults.append(f"{what}: the tracker does not say so")


def _restored(audit: Auditor, said: dict[str, Any]) -> None:
    what, run = f"{said['generation']} is restored", audit.run_folder
    audit.safe_below(what, f"{run}/generations/{said['generation']}", 4)
    audit.safe(what, f"{run}/lineage.json")  # evidence that is lost is found again by validating


def _restored_to(audit: Auditor, _said: dict[str, Any]) -> None:
    audit.safe_below("restored to a folder", f"{audit.disk.root}/out", 3)


def _removed(audit: Auditor, said: dict[str, Any]) -> None:
    audit.gone("removed", f"{audit.run_folder}/generations/{said['generation']}")


def _quarantined(audit: Auditor, _said: dict[str, Any]) -> None:
    audit.safe_below("quarantined", f"{audit.run_folder}/evidence")


def _retired(audit: Auditor, said: dict[str, Any]) -> None:
    audit.safe_below("retired", f"{audit.volume(said['tier'])}/{RUN}/log", 4)


def _swept(audit: Auditor, said: dict[str, Any]) -> None:
    for place in (f"{audit.volume(said['tier'])}/{RUN}/generations",):
        folder = audit.disk.find(place)
        for name in folder.safe_names if folder else ():
            if name.startswith(said["generation"]):
                for path in audit.disk.files(f"{place}/{name}"):
                    audit.gone("swept", path)
                audit.gone("swept", f"{place}/{name}/manifest.json")
                audit.gone("swept", f"{place}/{name}/files/model.bin")


def _copied(audit: Auditor, said: dict[str, Any]) -> None:
    rows = completed_in(audit.disk, f"{audit.run_folder}/tracker.sqlite")
    slots = {generation: slot for tier, generation, slot in rows if tier == "other"}
    for generation in said["generations"]:
        _replicated(audit, {"tier": "other", "generation": generation, "slot": slots[generation]})


def _put(audit: Auditor, said: dict[str, Any]) -> None:
    volume = f"{audit.disk.root}/volume"
    audit.safe(f"{said['key']} is stored", f"{volume}/{said['key']}")
    if audit.disk.find(f"{volume}/.ckptier/done") is not None:
        audit.safe(f"{said['key']} is stored", f"{volume}/.ckptier/done/{said['key']}")


def _upload(audit: Auditor, said: dict[str, Any]) -> None:
    audit.safe_below(f"{said['ack']}", f"{audit.disk.root}/volume/.ckptier/uploads/{said['upload']}")


def _deleted(audit: Auditor, said: dict[str, Any]) -> None:
    done = f"{audit.disk.root}/volume/.ckptier/done"
    audit.gone(
        "deleted",
        f"{audit.disk.root}/volume/{said['key']}" if audit.disk.find(done) is None else f"{done}/{said['key']}",
    )


_RULES: dict[str, Callable[[Auditor, dict[str, Any]], None]] = {
    "published": _published,
    "staged": _staged,
    "replicated": _replicated,
    "restored": _restored,
    "restored to": _restored_to,
    "removed": _removed,
    "quarantined": _quarantined,
    "retired": _retired,
    "swept": _swept,
    "copied": _copied,
    "put": _put,
    "begun": _upload,
    "part": _upload,
    "deleted": _deleted,
}


def audited(operations: Sequence[Operation], root: str) -> Auditor:
    """Audit one scenario."""
    audit = Auditor(Disk(root), modal=root.endswith("-modal"))
    audit.run(operations)
    return audit
