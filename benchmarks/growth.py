"""How the work grows with the history of a run and with the files of a generation: CPU seconds and peak memory.

    python benchmarks/growth.py                # 10, 1,000, 10,000 generations; 1,000, 10,000, 100,000 files
    python benchmarks/growth.py --quick        # a tenth of each

Each size is a child process of its own, in memory and in a temporary folder.  ``x`` is the
figure over that of the size before it: with ten times as much, 10 is linear.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GENERATIONS = (10, 1_000, 10_000)
FILES = (1_000, 10_000, 100_000)
TEN_TERABYTES = 10**13
Figures = dict[str, float]


def cpu(act: Callable[[], object]) -> float:
    """Return the CPU seconds of the process that an action takes, threads included."""
    before = time.process_time()
    act()
    return time.process_time() - before


def command_cpu(folder: Path, *words: str) -> float:
    """Return the CPU seconds of a whole ``ckptier`` command."""
    command = [
        sys.executable,
        "-c",
        "from replicate.cli.main import main; main()",
        *words,
        "--config",
        str(folder / "ckptier.toml"),
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment())
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 3):
        raise SystemExit(f"{words} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def role_generations(count: int) -> Figures:
    """Measure a run with that many generations, all of them kept."""
    from growth.stage import Machine

    from replicate.logbook import Logbook
    from replicate.prune import plan_tier
    from replicate.retention import Policy

    figures: Figures = {}
    with tempfile.TemporaryDirectory() as name:
        began = time.process_time()
        machine = Machine(Path(name) / "machine", count)
        figures["write the log, an entry (ms)"] = 1000 * (time.process_time() - began) / count
        book = Logbook(machine.memory, machine.log.remote)
        view = book.read()
        figures["read the log, cold"] = cpu(book.read)
        figures["follow it"] = cpu(lambda: book.read(view))
        policy = Policy(keep_last=10, keep_every=2500)
        figures["decide what to retire"] = cpu(lambda: plan_tier(view.state, policy, {}, {}))
        machine.publish()
        with machine.session() as session:
            prepared = session.prepare()
            figures["first pass, log and tracker"] = cpu(lambda: session.run_tier("m", prepared))
            figures["idle pass"] = cpu(lambda: session.run_tier("m", prepared))
            machine.publish()
            again = session.prepare()
            figures["one more generation"] = cpu(lambda: session.run_tier("m", again))
            figures["status.json, a write"] = cpu(session.board.write)
        looking = machine.looking()
        looking.list_generations()  # loads what it needs
        figures["list"] = cpu(looking.list_generations)
        figures["status --remote"] = cpu(lambda: looking.status(ask_tiers=True))
        figures["status, whole command"] = min(command_cpu(Path(name) / "machine", "status") for _ in range(3))
    largest = max(len(one.data) for key, one in machine.memory._store.objects.items() if "/log/" in key)  # noqa: SLF001
    figures["largest log entry (MiB)"] = largest / 2**20
    return figures


def role_files(count: int) -> Figures:
    """Measure the documents of a generation with that many files."""
    from growth.history import RUN, RUN_UID, sealed

    from replicate import canonical
    from replicate.layout import GenerationId, RemoteRun
    from replicate.manifest import (
        MAX_GENERATION_BYTES,
        GenerationRecord,
        Manifest,
        ManifestObject,
        content_digest,
        parse_generation,
        parse_manifest,
    )
    from replicate.plan import plan_upload
    from tiers.memory import MEMORY_CAPABILITIES

    figures: Figures = {}
    files = tuple(sealed(f"rank-{n // 1000:03d}/part-{n:07d}.safetensors", b"%d" % n) for n in range(count))
    said = {"format": 1, "run": RUN, "run_uid": RUN_UID, "attempt": 1, "attempt_id": "a", "sequence": 1, "parent": None}
    named = str(GenerationId(1, 1, 100, content_digest(files, ())[:8]))
    rest = {"next_update": 100, "payload": "files", "contract": {}, "sealed_at": "", "save_milliseconds": 1}
    made: dict[str, GenerationRecord] = {}
    figures["seal: check the record"] = cpu(
        lambda: made.update(record=GenerationRecord(id=named, files=files, **said, **rest))  # type: ignore[arg-type]
    )
    record = made["record"]
    data = record.encode()
    figures["write generation.json"] = cpu(record.encode)
    figures["generation.json (MiB)"] = len(data) / 2**20
    figures["read generation.json"] = cpu(lambda: parse_generation(data))
    prefix = RemoteRun.of(RUN).prefix(record.generation, 1, "0" * 16)
    figures["plan an upload"] = cpu(lambda: plan_upload(record, prefix, MEMORY_CAPABILITIES))
    objects = tuple(
        ManifestObject(
            path=one.path,
            key=one.key,
            size=one.file.size,
            sha256=one.file.sha256,
            verified_by="store-sha256",
            part_size=0,
        )
        for one in plan_upload(record, prefix, MEMORY_CAPABILITIES).objects
    )
    document = canonical.load(data, what="generation.json", max_bytes=MAX_GENERATION_BYTES)

    def manifest() -> bytes:
        return Manifest(
            format=1,
            run_uid=RUN_UID,
            term=1,
            nonce="0" * 16,
            prefix=prefix,
            generation=document,
            generation_sha256=canonical.sha256(data),
            objects=objects,
            written_at="",
        ).encode()

    stored = manifest()
    figures["write manifest.json"] = cpu(manifest)
    figures["manifest.json (MiB)"] = len(stored) / 2**20
    figures["read manifest.json"] = cpu(lambda: parse_manifest(stored).record())
    large, roomy = _large(record, count), replace(MEMORY_CAPABILITIES, max_object=1 << 44, max_part=1 << 40)
    figures["plan an upload of 10 TB"] = cpu(lambda: plan_upload(large, prefix, roomy))
    return figures


def _large(record: "GenerationRecord", count: int) -> "GenerationRecord":  # type: ignore[name-defined]  # noqa: F821
    """Return the record as if its files were 10 TB together, in leaves of 64 MiB."""
    size = TEN_TERABYTES // count
    leaf = 1 << 26
    while -(-size // leaf) > 8192:  # noqa: PLR2004 - the most leaves that a file has
        leaf *= 2
    digest = hashlib.sha256(b"").hexdigest()
    leaves = (digest,) * -(-size // leaf)
    files = tuple(file.model_copy(update={"size": size, "leaf_size": leaf, "leaves": leaves}) for file in record.files)
    return record.model_copy(update={"files": files})


ROLES = {"generations": role_generations, "files": role_files}


def environment() -> dict[str, str]:
    """Return the environment of a child that finds the packages and the tests' helpers."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}


def measure(role: str, count: int) -> Figures:
    """Run one size in a child; return its figures and its peak in MiB."""
    command = [sys.executable, "-P", __file__, "--role", role, "--count", str(count)]
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE)
    assert process.stdout is not None
    output = process.stdout.read()
    process.stdout.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{count} {role} ended with {process.returncode}")
    return {**json.loads(output), "peak memory (MiB)": usage.ru_maxrss / 1024}


def table(role: str, counts: tuple[int, ...]) -> list[Figures]:
    """Print a line a figure, a column a size with its growth beside it."""
    found = [measure(role, count) for count in counts]
    print(f"\n{role:32}" + "".join(f"{count:>12,}       x" for count in counts))
    for name in found[0]:
        cells = [f"{found[0][name]:12.4f}        "]
        cells += [
            f"{now[name]:12.4f} {now[name] / before[name]:7.1f}" if before[name] else f"{now[name]:12.4f}       -"
            for before, now in pairwise(found)
        ]
        print(f"{name:32}" + "".join(cells))
    return found


def main() -> int:
    """Print both tables; the status is 1 where ``status`` takes more than three times as long in the longest run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of each size")
    parser.add_argument("--role", choices=ROLES, help=argparse.SUPPRESS)
    parser.add_argument("--count", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.role:
        sys.stdout.write(json.dumps(ROLES[arguments.role](arguments.count)))
        return 0
    part = 10 if arguments.quick else 1
    found = table("generations", tuple(max(10, count // part) for count in GENERATIONS))
    table("files", tuple(count // part for count in FILES))
    growth = found[-1]["status, whole command"] / found[0]["status, whole command"]
    print(f"\n`status` in the longest run: {growth:.1f} x its time in the shortest (at most 3)")
    return int(growth > 3)  # noqa: PLR2004 - the target


if __name__ == "__main__":
    raise SystemExit(main())
