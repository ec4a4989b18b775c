"""Load torch payloads with ``weights_only=True`` and say whether they are whole: a program of its own.

Run as ``python torch_check.py REQUEST`` (or ``-m replicate.generation.torch_check``), where
REQUEST is JSON.  It imports nothing of this project, limits its own memory, CPU time
and file writes before it reads a byte of the payload, and prints one JSON object.
It has no other mode: what cannot be loaded this way is not loaded.
"""

import json
import resource
import sys
from pathlib import Path
from typing import Any

NO_TORCH = 3
"""Exit status where torch is not installed."""

_PAGE = resource.getpagesize()
_STATM = Path("/proc/self/statm")
_UNKNOWN_BASE = 16 << 30
"""Bytes assumed to be in use where /proc does not tell."""


def main(arguments: list[str]) -> int:
    """Check every file of the request in turn; stop at the first fault."""
    request = json.loads(arguments[0])
    try:
        import torch  # noqa: F401, PLC0415 - the limits below are relative to what torch itself takes
    except ImportError as error:
        sys.stderr.write(f"torch cannot be imported: {error}\n")
        return NO_TORCH
    limit(request["memory_bytes"], request["cpu_seconds"])
    fault = next((fault for file in request["files"] if (fault := _fault(file))), "")
    sys.stdout.write(json.dumps({"fault": fault}) + "\n")
    return 0


def limit(allowance: int, cpu_seconds: int) -> None:
    """Allow ``allowance`` bytes on top of what is in use now, no core file and no write to any file."""
    address, data = _in_use()
    _lower(resource.RLIMIT_AS, address + allowance)
    _lower(resource.RLIMIT_DATA, data + allowance)
    used = resource.getrusage(resource.RUSAGE_SELF)
    _lower(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + cpu_seconds)
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_FSIZE, 0)


def _in_use() -> tuple[int, int]:
    try:
        pages = _STATM.read_text(encoding="ascii").split()
    except OSError:
        return _UNKNOWN_BASE, _UNKNOWN_BASE
    return int(pages[0]) * _PAGE, int(pages[5]) * _PAGE


def _lower(which: int, value: int) -> None:
    _, hard = resource.getrlimit(which)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(which, (value, value))


def _fault(file: dict[str, Any]) -> str:
    """Return what is wrong with one file, else nothing."""
    import torch  # noqa: PLC0415 - see main

    name = file["name"]
    try:
        payload = torch.load(file["path"], weights_only=True, map_location="cpu", mmap=True)
    except Exception as error:  # noqa: BLE001 - whatever a broken file provokes is the finding
        return f"{name}: unloadable: {_words(error)}"
    return _content_fault(name, payload, file["required"], file["next_update"])


def _words(error: Exception) -> str:
    """Say what failed; torch wraps it in the advice to load the file unrestricted, which is left out."""
    text = str(error)
    if isinstance(error, MemoryError) or "allocate memory" in text:
        return "loading it takes more memory than its size accounts for"
    cause = str(error.__context__ or error).strip() or "no reason given"
    return f"{type(error).__name__}: {cause.splitlines()[0].partition('. Please')[0]}"


def _content_fault(name: str, payload: object, required: list[str], next_update: int | None) -> str:
    if not required and next_update is None:
        return ""
    if not isinstance(payload, dict):
        return f"{name}: holds a {type(payload).__name__}, not a dictionary of restart state"
    missing = [key for key in required if key not in payload]
    if missing:
        return f"{name}: missing restart state: {', '.join(missing)}"
    found = payload.get("next_update")
    if next_update is not None and (type(found) is not int or found != next_update):
        return f"{name}: says next_update {found!r:.80}, the generation {next_update}"
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
