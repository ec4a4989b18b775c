"""Load two files of torch with ``weights_only=True`` and compare them: a program of its own.

Run as ``python -m replicate.comparing.child REQUEST``, where REQUEST is JSON.  It limits its own
memory, CPU time and file writes before it reads a byte, maps the files instead of reading them
where they allow it, and prints one JSON object on its last line.
"""

import json
import sys
from typing import Any

from replicate.generation.torch_check import NO_TORCH, limit

MOST = 20
"""Differences that are told; all are counted."""
_WORDS = 200


def main(arguments: list[str]) -> int:
    """Compare each pair of the request; a file that cannot be loaded is told as what it is."""
    request = json.loads(arguments[0])
    try:
        import torch  # noqa: F401, PLC0415 - the limits below are relative to what torch itself takes

        from replicate.comparing.tensors import compare_payloads  # noqa: PLC0415 - as above
    except ImportError as error:
        sys.stderr.write(f"torch cannot be imported: {error}\n")
        return NO_TORCH
    limit(request["memory_bytes"], request["cpu_seconds"])
    differences: list[dict[str, str]] = []
    faults: list[str] = []
    compared = counted = 0
    for pair in request["pairs"]:
        try:
            found = compare_payloads(pair["path"], _load(pair["a"]), _load(pair["b"]))
        except Exception as error:  # noqa: BLE001 - whatever a broken file provokes is the finding
            faults.append(f"{pair['path']} cannot be compared: {type(error).__name__}: {str(error)[:_WORDS]}")
            continue
        unequal = [one for one in found if not one.equal]
        compared, counted = compared + len(found), counted + len(unequal)
        differences += [
            {"stage": one.stage.value, "name": one.name[:_WORDS], "detail": one.detail[:_WORDS]}
            for one in unequal[:MOST]
        ]
    answer = {"compared": compared, "differing": counted, "differences": differences[:MOST], "faults": faults[:MOST]}
    sys.stdout.write("\n" + json.dumps(answer) + "\n")
    return 0


def _load(path: str) -> Any:
    import torch  # noqa: PLC0415 - see main

    try:
        return torch.load(path, weights_only=True, map_location="cpu", mmap=True)
    except RuntimeError as error:
        if "mmap" not in str(error):
            raise
    return torch.load(path, weights_only=True, map_location="cpu")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
