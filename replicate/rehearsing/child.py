"""Run the user's rehearsal function in a fresh interpreter: a program of its own.

Run as ``python child.py REQUEST``, where REQUEST is the path of a JSON document.  It imports
nothing of this project, so that the user's modules meet the interpreter as a trainer would.
What the function returned, or raised, is written to the file that the request names, whole
or not at all; without that file the rehearsal has failed, whatever the exit status.
"""

import ctypes
import importlib
import json
import math
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1


class _Unusable(Exception):
    """What is configured is no function that could be called."""


def main(arguments: list[str]) -> int:
    """Call the function once and write down what came of it."""
    request = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    _end_with(request["parent"])
    _limit(request["memory_bytes"])
    sys.path[:0] = request["python_path"]
    try:
        function = _find(request["function"])
        answer: dict[str, Any] = {"observations": _observed(function(Path(request["directory"])), request["max_bytes"])}
    except _Unusable as error:
        answer = {"unusable": str(error)}
    except Exception as error:  # noqa: BLE001 - whatever the user's code raises is the finding
        traceback.print_exc()
        answer = {"error": _words(error)}
    _write(Path(request["result"]), json.dumps(answer))
    return 0 if "observations" in answer else 1


def _end_with(parent: int) -> None:
    """Ask the kernel to end this process with the one that started it, where it can."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    except (OSError, AttributeError):
        return  # not Linux: it ends by itself
    if os.getppid() != parent:
        sys.exit("the process that asked for this rehearsal has ended")


def _limit(memory_bytes: int | None) -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory_bytes is not None:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        most = memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def _find(named: str) -> Callable[[Path], Any]:
    module, _, names = named.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name and (module == error.name or module.startswith(f"{error.name}.")):
            raise _Unusable(f"there is no module {error.name!r}") from error
        raise
    for name in names.split("."):
        found = getattr(found, name, None)
    if not callable(found):
        raise _Unusable(f"{module} has no function {names!r}")
    return found  # type: ignore[no-any-return]


def _observed(returned: Any, max_bytes: int) -> dict[str, Any]:
    """Return the observations as plain JSON; raises where they are none, or too large."""
    if returned is None:
        return {}
    if not isinstance(returned, Mapping):
        raise TypeError(f"the function returned a {type(returned).__name__}: return a mapping of observations, or None")
    plain = _plain(returned, "")
    size = len(json.dumps(plain))
    if size > max_bytes:
        raise ValueError(f"the observations take {size} bytes, at most {max_bytes} may be: return digests")
    return plain  # type: ignore[no-any-return]


def _plain(value: Any, where: str) -> Any:
    if isinstance(value, Mapping):
        return {_key(key, where): _plain(item, f"{where}.{key}" if where else str(key)) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, where) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return repr(float(value))
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    kind = type(value).__name__
    raise TypeError(f"observation {where!r} is of type {kind}: return numbers, text or lists, or a digest")


def _key(key: Any, where: str) -> str:
    if not isinstance(key, str):
        raise TypeError(f"a key of {where or 'the observations'} is a {type(key).__name__}, not text")
    return key


def _words(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "MemoryError: it took more memory than it may (memory_bytes)"
    lines = str(error).strip().splitlines() or ["no reason given"]
    return f"{type(error).__name__}: {lines[0]}"


def _write(path: Path, text: str) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
