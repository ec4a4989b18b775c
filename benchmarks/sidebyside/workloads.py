"""The bytes: three shapes of a checkpoint, incompressible, the same for every client."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.sidebyside.figures import TIMES

BLOCK = 8 << 20
MIB = 1 << 20
STAMP = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """So many files of so many bytes."""

    name: str
    files: int
    size: int

    @property
    def total(self) -> int:
        """Bytes of all files."""
        return self.files * self.size

    @property
    def label(self) -> str:
        """What a table calls it."""
        shown = f"{self.size >> 20:,} MiB" if self.size >= MIB else f"{self.size >> 10} KiB"
        return f"{self.files:,} {TIMES} {shown}"

    def scaled(self, factor: float) -> "Workload":
        """Return it with files of another size (large ones), or with another number of files (small ones)."""
        if self.size < MIB:  # small files stay small: their number is the point of them
            return replace(self, files=max(4, round(self.files * factor)))
        return replace(self, size=max(64 * 1024, round(self.size * factor) // 65536 * 65536))


ONE = Workload(name="one", files=1, size=2048 * MIB)
SIXTEEN = Workload(name="sixteen", files=16, size=128 * MIB)
MANY = Workload(name="many", files=2000, size=64 * 1024)
ALL = (ONE, SIXTEEN, MANY)
FULL_MIB = 2048


def file_names(workload: Workload) -> list[str]:
    """Names of the files; no two workloads share one."""
    return [f"{workload.name}-{number:05d}.bin" for number in range(workload.files)]


def write_files(folder: Path, workload: Workload, *, changed: float = 0.0) -> None:
    """Write them; every block differs.  The last ``changed`` of them, a fraction, are others than without."""
    block = bytearray(_seeded(BLOCK))
    unchanged = (1 - changed) * workload.total
    for number, name in enumerate(file_names(workload)):
        with (folder / name).open("wb", buffering=0) as stream:
            for start in range(0, workload.size, BLOCK):
                other = number * workload.size + start >= unchanged
                block[:STAMP] = (number << 40 | start // BLOCK << 8 | other).to_bytes(STAMP, "little")
                stream.write(memoryview(block)[: min(BLOCK, workload.size - start)])


def _seeded(size: int) -> bytes:
    """Return bytes that no compressor makes smaller; the same ones in every process of a run."""
    return hashlib.shake_128(b"ckptier").digest(size)
