"""Real full disks: small filesystems in memory, in a mount namespace that goes with this process.

Run as ``unshare --mount python full_disk.py SCRATCH``; prints one JSON object a line.
"""

import json
import logging
import os
import subprocess
import sys
import warnings
from pathlib import Path

from crash.stage import RUN
from durability.recovery import contents
from durability.scenarios import publish, store_of
from durability.world import configure, content, files_of

from replicate import RunStore
from replicate.config import load_config
from replicate.engine import Replicator
from replicate.errors import CkptierError
from replicate.restore import RestoreOptions, RestoreRequest

KIB = 1 << 10


def mount(point: Path, size: int) -> Path:
    """Put a filesystem of so many bytes there; returns the ballast that can be taken out of it."""
    point.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", str(point)], check=True)
    return point / "ballast"


def fill(ballast: Path, leave: int) -> None:
    """Leave so many bytes free, within a page."""
    space = os.statvfs(ballast.parent)
    with ballast.open("wb", buffering=0) as stream:
        os.posix_fallocate(stream.fileno(), 0, space.f_bavail * space.f_frsize - leave)


def told(error: CkptierError) -> dict[str, object]:
    return {"code": int(error.exit_code), "message": error.message, "hint": error.hint}


def big(store: RunStore, update: int, size: int) -> dict[str, object]:
    """Publish one file of so many bytes; says how that went."""
    try:
        with store.publish(next_update=update) as directory, (directory / "state.bin").open("wb") as stream:
            for start in range(0, size, 64 * KIB):
                stream.write(content(update, min(64 * KIB, size - start)))
                stream.flush()
    except CkptierError as error:
        return told(error)
    return {"code": 0}


def saving(scratch: Path) -> dict[str, object]:
    """Fill the store's disk while the trainer writes, and while its state is sealed."""
    mount(scratch, 1024 * KIB)
    store = RunStore(scratch / RUN)
    first = big(store, 1, 300 * KIB)
    failed = big(store, 2, 900 * KIB)
    left = [one.name for one in store.local.root.iterdir() if one.name.startswith((".incoming", ".tmp"))]
    fill(scratch / "ballast", 324 * KIB)
    sealing = big(store, 3, 320 * KIB)
    kept = store.resume().id.next_update
    (scratch / "ballast").unlink()
    return {
        "first": first,
        "failed": failed,
        "sealing": sealing,
        "left": left,
        "kept": kept,
        "again": big(store, 4, 200 * KIB),
    }


def journalling(scratch: Path) -> dict[str, object]:
    """Fill the tracker's disk: nothing is sent and said, and training goes on."""
    state = scratch / "state"
    ballast = mount(state, 1024 * KIB)
    store = store_of(scratch)
    publish(store, 1)
    (scratch / "volume").mkdir()
    configure(scratch, {"v": "rename"})
    text = (scratch / "ckptier.toml").read_text()
    (scratch / "ckptier.toml").write_text(f'state_dir = "{state}"\n{text}')
    engine = Replicator(load_config(scratch / "ckptier.toml"))
    first = int(engine.replicate_once().exit_code)
    publish(store, 2)
    fill(ballast, 0)
    try:
        report = engine.replicate_once()
        failures = [told(one.failure) for one in report.results if one.failure]
    except CkptierError as error:
        failures = [told(error)]
    view = engine.status()[1]
    publish(store, 3)
    ballast.unlink()
    again = int(engine.replicate_once().exit_code)
    shown = [str(one.failure) for one in view.tiers] if view is not None else []
    return {
        "first": first,
        "failures": failures,
        "again": again,
        "resumed": store.resume().id.next_update,
        "shown": shown,
    }


def replicating(scratch: Path) -> dict[str, object]:
    """Fill the volume."""
    ballast = mount(scratch / "volume", 256 * KIB)
    store = store_of(scratch)
    publish(store, 1)
    configure(scratch, {"v": "rename"})
    engine = Replicator(load_config(scratch / "ckptier.toml"))
    first = int(engine.replicate_once().exit_code)
    publish(store, 2)
    fill(ballast, 4 * KIB)
    report = engine.replicate_once()
    failures = [told(one.failure) for one in report.results if one.failure]
    view = engine.status()[1]
    shown = [str(one.failure) for one in view.tiers] if view is not None else []
    tmp = [one.name for one in (scratch / "volume" / ".ckptier" / "tmp").iterdir()]
    publish(store, 3)
    ballast.unlink()
    again = int(engine.replicate_once().exit_code)
    return {
        "first": first,
        "code": int(report.exit_code),
        "failures": failures,
        "shown": shown,
        "tmp": tmp,
        "again": again,
    }


def restoring(scratch: Path) -> dict[str, object]:
    """Fill the disk of a restore's target, and say that it has room."""
    store = store_of(scratch)
    publish(store, 1)
    target = scratch / "small"
    ballast = mount(target, 64 * KIB)
    fill(ballast, 4 * KIB)
    configure(scratch, {})
    engine = Replicator(load_config(scratch / "ckptier.toml"))
    found = []
    for options in (RestoreOptions(workers=1), RestoreOptions(workers=1, free_space=lambda _path: 1 << 40)):
        try:
            engine.restore(RestoreRequest(to=target / "out"), options=options)
        except CkptierError as error:
            found.append(told(error))
    left = [one.name for one in target.iterdir()]
    ballast.unlink()
    engine.restore(RestoreRequest(to=target / "out"), options=RestoreOptions(workers=1, margin=0))
    return {"failures": found, "left": left, "exact": contents(target / "out") == files_of(1)}


def main() -> None:
    """Fill them all."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    for act in (saving, journalling, replicating, restoring):
        scratch = Path(sys.argv[1], act.__name__)
        scratch.mkdir()
        sys.stdout.write(json.dumps({"what": act.__name__, **act(scratch)}) + "\n")


if __name__ == "__main__":
    main()
