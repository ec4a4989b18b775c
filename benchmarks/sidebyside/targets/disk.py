"""Restores to the disk, where fsync costs something: ours with and without it, peers as they are and with one."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.sidebyside.figures import Figure
from benchmarks.sidebyside.measuring import CLOCK, ClientFailed, run_child
from benchmarks.sidebyside.peers import DOWN, UP, Peer, Task
from benchmarks.sidebyside.running import OURS, Cell, Place, Results, Say, fresh, our_transfer, peer_transfer
from benchmarks.sidebyside.servers import Sink
from benchmarks.sidebyside.writing import FSYNC

WITHOUT = "ckptier, no fsync"


def disk_round(results: Results, place: Place, disk: Path, peers: Sequence[Peer], number: int, say: Say) -> None:
    """Upload once, then let every client write to the disk in turn."""
    results.workloads["disk/disk"] = place.workload
    server = f"disk-{number}"
    with Sink() as sink:
        sink.read_from(place.files)
        our_transfer(place, server, sink.url, UP)
        for name, no_fsync in ((OURS, False), (WITHOUT, True)):
            target = disk / "ours"
            config = place.project(server, sink.url, empty=True)
            ran = place.ours("restore", config=str(config), target=str(target), no_fsync=no_fsync)
            _end(target)
            _add(results, name, ran.figure, say)
        for peer in peers:
            if peer.missing:
                results.failures[Cell("disk", "disk", DOWN, peer.name)] = "not installed"
                continue
            _peer(results, place, disk, peer, server, sink, say)


def _peer(results: Results, place: Place, disk: Path, peer: Peer, server: str, sink: Sink, say: Say) -> None:
    try:
        peer_transfer(place, peer, server, sink.url, UP)
        target = fresh(disk / "theirs")
        prefix = f"{server}-{place.name}-{peer.name}"
        task = Task(action=DOWN, endpoint=sink.url, prefix=prefix, source=place.files, target=target)
        ran = run_child(peer.command(task), extra=peer.variables(task), log=place.folder / "disk.log")
    except ClientFailed as error:
        results.failures[Cell("disk", "disk", DOWN, peer.name)] = str(error)
        return
    _add(results, peer.name, ran.figure, say)
    began = CLOCK.monotonic()
    for path in target.iterdir():
        with path.open("rb") as stream:
            os.fsync(stream.fileno())
    synced = CLOCK.monotonic() - began
    whole = replace(ran.figure, wall=ran.figure.wall + synced, operation_wall=ran.figure.compared_wall + synced)
    _add(results, peer.name + FSYNC, whole, say)
    _end(target)


def _add(results: Results, name: str, figure: Figure, say: Say) -> None:
    results.add(Cell("disk", "disk", DOWN, name), figure)
    say(f"  disk/{name:38} {figure.compared_wall:7.2f} s {figure.compared_cpu:7.2f} CPU s")


def _end(target: Path) -> None:
    """Remove what was written before the system writes it out into the next one's time."""
    shutil.rmtree(target)
    os.sync()
