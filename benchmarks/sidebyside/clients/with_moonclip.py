"""moonclip: a checkpoint of its own format, saved as tensors and synchronised with the store.

It is no copier of files: the same bytes go in as tensors, and what it stores is its own.  Only uploads are measured.
"""

import tempfile
from pathlib import Path

import moonclip
import torch

from benchmarks.sidebyside.clients.marks import operation, spec


def main() -> None:
    """Save every file of a folder as a tensor, and wait until the store has it."""
    asked = spec()
    names = sorted(path.name for path in Path(asked["source"]).iterdir())
    tensors = {
        name: torch.frombuffer(bytearray((Path(asked["source"]) / name).read_bytes()), dtype=torch.uint8)
        for name in names
    }
    with tempfile.TemporaryDirectory(dir=asked["target"]) as folder, operation():
        manager = moonclip.MoonclipManager(
            folder,
            s3_bucket=asked["bucket"],
            s3_prefix=asked["prefix"],
            s3_endpoint=asked["endpoint"],
            async_save=False,
        )
        manager.save_tensors(1, tensors)
        manager.flush()
        manager.sync_now()


main()
