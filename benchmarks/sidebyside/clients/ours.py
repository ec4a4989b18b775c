"""ckptier: sealing, replicating, restoring, as a child that imports everything before the clock starts."""

import importlib
import json
import os
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from benchmarks.sidebyside.clients.marks import operation, spec
from benchmarks.sidebyside.workloads import Workload, write_files
from tiers.clock import SystemClock

CLOCK = SystemClock()


def _fsync(path: Path) -> None:
    with path.open("rb") as stream:
        os.fsync(stream.fileno())


def publish(asked: dict[str, Any]) -> None:
    """Write a generation; only leaving the block, which reads, digests and fsyncs, is measured."""
    from replicate import RunStore

    workload = Workload(**asked["workload"])
    store = RunStore(asked["store"])
    publication = store.publish(next_update=asked.get("update", 1), validate=False)
    directory = publication.__enter__()
    write_files(directory, workload, changed=asked.get("changed", 0.0))
    for path in directory.iterdir():  # the disk's own time is measured apart
        _fsync(path)
    with operation():
        publication.__exit__(None, None, None)
    if publication.generation is None:
        raise SystemExit("nothing was sealed")
    store.validate(publication.generation.id)
    Path(asked["said"]).write_text(json.dumps({"files": str(publication.generation.files)}), encoding="utf-8")


def _perhaps_sampled(asked: dict[str, Any]) -> AbstractContextManager[None]:
    if not asked.get("sampled"):
        return nullcontext()
    from benchmarks.sidebyside.clients.sampled import sampled

    return sampled(Path(asked["sampled"]))


def _import_backend() -> None:
    """Load what opening a tier would: the process that replicates runs already when there is something to do."""
    for name in ("boto3", "boto3.session", "tiers.s3", "replicate.restore"):
        importlib.import_module(name)


def replicate(asked: dict[str, Any]) -> None:
    """Replicate what is sealed, to its acknowledgement."""
    _import_backend()
    from replicate.config import load_config
    from replicate.engine import Replicator

    with _perhaps_sampled(asked), operation():
        report = Replicator(load_config(Path(asked["config"]))).replicate_once()
    if report.exit_code != 0 or not report.committed:
        raise SystemExit(f"not replicated: {report}")


def restore(asked: dict[str, Any]) -> None:
    """Restore it, every byte verified, into a folder that was not there."""
    if asked.get("no_fsync"):
        # What the disk itself costs is seen by leaving it out.
        vars(os).update(fsync=lambda _file: None, fdatasync=lambda _file: None)
    _import_backend()
    from replicate.config import load_config
    from replicate.engine import Replicator
    from replicate.restore import RestoreRequest

    with _perhaps_sampled(asked), operation():
        Replicator(load_config(Path(asked["config"]))).restore(RestoreRequest(to=Path(asked["target"]), tier="s3"))


def save(asked: dict[str, Any]) -> None:
    """Write a payload and fsync it, as a plain synchronous save does."""
    workload = Workload(**asked["workload"])
    target = Path(asked["target"])
    target.mkdir()
    with operation():
        write_files(target, workload)
        for path in target.iterdir():
            _fsync(path)


def defer(asked: dict[str, Any]) -> None:
    """Publish with a deferred seal; only what comes after the last written byte is measured."""
    from replicate import RunStore

    publication = RunStore(asked["store"]).publish(next_update=1, defer_seal=True)
    directory = publication.__enter__()
    began = CLOCK.monotonic()
    write_files(directory, Workload(**asked["workload"]))
    written = CLOCK.monotonic() - began
    with operation() as more:
        publication.__exit__(None, None, None)
        more["writing"] = written


def hash_limit(asked: dict[str, Any]) -> None:
    """Digest the same number of bytes on all cores, from memory that is warm: what sealing cannot beat."""
    import hashlib
    import threading

    block = memoryview(bytearray(os.urandom(8 << 20)))
    threads = os.cpu_count() or 1
    share = asked["bytes"] // threads

    def digest() -> None:
        state, left = hashlib.sha256(), share
        while left > 0:
            state.update(block[: min(left, len(block))])
            left -= len(block)

    workers = [threading.Thread(target=digest) for _ in range(threads)]
    with operation():
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()


ROLES = {
    "publish": publish,
    "replicate": replicate,
    "restore": restore,
    "save": save,
    "defer": defer,
    "hash": hash_limit,
}

if __name__ == "__main__":
    ROLES[spec()["role"]](spec())
    sys.exit(0)
