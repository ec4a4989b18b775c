"""How much is measured: sizes, rounds, clients, and where the files lie."""

import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.sidebyside.peers import (
    BOTO3_SHA256,
    BOTO3_TUNED,
    BOTO3_UNSIGNED,
    MORE,
    OBSTORE_SHA256,
    OBSTORE_UNSIGNED,
    RCLONE_BARE,
    S5CMD,
    USUAL,
    Peer,
)
from benchmarks.sidebyside.workloads import ALL, FULL_MIB, MIB, Workload

MEMORY = Path("/dev/shm")
ROOM = 12 << 30
"""Bytes that must be free in memory for the files to lie there."""
ROUNDS = 3
RATES = (25 * MIB, 100 * MIB)
LINK_SECONDS = 10.24
"""Seconds that a transfer over a link takes: three hundredths of them are some eight round trips."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a run does.  Sizes in MiB where they say so, else the workloads' own."""

    only: tuple[str, ...]
    place: Path
    disk: Path
    rounds: int = ROUNDS
    workloads: tuple[Workload, ...] = ALL
    server_factor: float = 0.25  # twice that of small files
    peers: tuple[Peer, ...] = USUAL
    server_peers: tuple[Peer, ...] = (
        BOTO3_UNSIGNED,
        BOTO3_SHA256,
        S5CMD,
        RCLONE_BARE,
        OBSTORE_UNSIGNED,
        OBSTORE_SHA256,
    )
    tls_peers: tuple[Peer, ...] = (BOTO3_TUNED, BOTO3_UNSIGNED, OBSTORE_UNSIGNED)
    disk_peers: tuple[Peer, ...] = (BOTO3_UNSIGNED, OBSTORE_UNSIGNED)
    link_peers: tuple[Peer, ...] = (OBSTORE_UNSIGNED,)
    link_seconds: float = LINK_SECONDS
    tls_mib: int = 512
    disk_mib: int = 512
    saving_mib: int = 512
    kill_mib: int = 1024
    beside_mib: int = 1024
    reuse_mib: int = 640
    idle_seconds: float = 20.0
    more: bool = False
    growth: tuple[int, int] = field(default=(10, 10_000))

    @classmethod
    def of(
        cls,
        *,
        only: tuple[str, ...],
        quick: bool = False,
        rounds: int | None = None,
        mib: int | None = None,
        more: bool = False,
        place: Path | None = None,
        disk: Path | None = None,
    ) -> "Settings":
        """Return the settings that options stand for."""
        folder, on_disk = place or _roomy(quick=quick), disk or Path(tempfile.gettempdir())
        if quick:
            factor = (mib or 8) / FULL_MIB
            return cls(
                only=only,
                place=folder,
                disk=on_disk,
                rounds=rounds or 1,
                workloads=tuple(one.scaled(factor) for one in ALL),
                server_factor=0.5,
                peers=(BOTO3_UNSIGNED, *(MORE if more else ())),
                more=more,
                server_peers=(BOTO3_SHA256,),
                tls_peers=(BOTO3_UNSIGNED,),
                disk_peers=(),
                link_peers=(),
                link_seconds=0.32,
                tls_mib=8,
                disk_mib=8,
                saving_mib=16,
                kill_mib=64,
                beside_mib=32,
                reuse_mib=160,
                idle_seconds=2.0,
                growth=(10, 100),
            )
        factor = (mib or FULL_MIB) / FULL_MIB
        return cls(
            only=only,
            place=folder,
            disk=on_disk,
            rounds=rounds or ROUNDS,
            workloads=tuple(one.scaled(factor) for one in ALL) if mib else ALL,
            peers=(*USUAL, *MORE) if more else USUAL,
            more=more,
        )


def _roomy(*, quick: bool) -> Path:
    """Return memory where it has room, else the folder for temporary files."""
    needed = ROOM // 16 if quick else ROOM
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= needed:
        return MEMORY
    return Path(tempfile.gettempdir())
