"""Seal, replicate and restore one large file over SeaweedFS, beside boto3's own transfer, in the same run.

    scripts/bench            (2 GiB, three interleaved rounds)
    scripts/bench --mib 256 --rounds 1

Each figure is a whole child process: wall seconds, CPU seconds per GiB (user and system,
the client's only) and peak memory.  Ratios are ours / boto3's, pair by pair; the server
runs on the same machine and is often the limit, so compare CPU.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tiers.clock import SystemClock
from tiers.servers import SeaweedServer

BUCKET = "ckptier-bench"
BLOCK = 8 * 1024 * 1024
CLOCK = SystemClock()


@dataclass(frozen=True, slots=True)
class Figure:
    """What one child process took."""

    wall: float
    cpu_per_gib: float
    peak_mib: float


def child(arguments: list[str], folder: Path, environment: dict[str, str], gib: float) -> Figure:
    """Run this file again as a child, in a role, and account for that process alone."""
    began = CLOCK.monotonic()
    process = subprocess.Popen([sys.executable, __file__, *arguments], cwd=folder, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall = CLOCK.monotonic() - began
    if process.returncode != 0:
        raise SystemExit(f"{arguments[0]} ended with {process.returncode}")
    return Figure(wall, (usage.ru_utime + usage.ru_stime) / gib, usage.ru_maxrss / 1024)


def write_file(path: Path, size: int) -> None:
    """Write incompressible bytes, every block different."""
    block = bytearray(os.urandom(BLOCK))
    with path.open("wb") as stream:
        for index in range(-(-size // BLOCK)):
            block[:8] = index.to_bytes(8, "little")
            stream.write(block[: min(BLOCK, size - index * BLOCK)])


def role_seal(mib: int) -> None:
    """Write and seal a generation."""
    from replicate import RunStore

    with RunStore("runs/bench").publish(next_update=1) as directory:
        write_file(directory / "payload.bin", mib << 20)


def role_write(mib: int) -> None:
    """Write the same bytes and fsync them: what sealing is compared with."""
    path = Path("plain.bin")
    write_file(path, mib << 20)
    with path.open("rb") as stream:
        os.fsync(stream.fileno())


def role_replicate(_mib: int) -> None:
    """Replicate it."""
    from replicate.config import load_config
    from replicate.engine import Replicator

    report = Replicator(load_config(Path("ckptier.toml"))).replicate_once()
    if report.exit_code != 0 or not report.committed:
        raise SystemExit(f"not replicated: {report}")


def role_restore(_mib: int) -> None:
    """Restore it into a fresh folder."""
    from replicate.config import load_config
    from replicate.engine import Replicator
    from replicate.restore import RestoreRequest

    Replicator(load_config(Path("ckptier.toml"))).restore(RestoreRequest(to=Path("restored"), tier="s3"))


def _transfer(action: str) -> None:
    import boto3

    client = boto3.client("s3", endpoint_url=os.environ["BENCH_ENDPOINT"], region_name="us-east-1")
    if action == "up":
        client.upload_file("plain.bin", BUCKET, "plain.bin")
    else:
        client.download_file(BUCKET, "plain.bin", "plain-restored.bin")


def role_boto3_up(_mib: int) -> None:
    """Upload with boto3's upload_file at its defaults."""
    _transfer("up")


def role_boto3_down(_mib: int) -> None:
    """Download with boto3's download_file at its defaults."""
    _transfer("down")


ROLES = {
    "seal": role_seal,
    "write": role_write,
    "replicate": role_replicate,
    "restore": role_restore,
    "boto3-up": role_boto3_up,
    "boto3-down": role_boto3_down,
}
PAIRS = (("seal", "write"), ("replicate", "boto3-up"), ("restore", "boto3-down"))


def one_round(folder: Path, server: SeaweedServer, environment: dict[str, str], mib: int) -> dict[str, Figure]:
    """Run every role once in a folder of its own, ours and boto3's in turn."""
    folder.mkdir()
    (folder / "ckptier.toml").write_text(
        f'run = "bench"\nstore = "runs"\n[[tier]]\nname = "s3"\nurl = "s3://{BUCKET}/{folder.name}"\n'
        f'endpoint_url = "{server.endpoint_url}"\nprofile = "seaweedfs"\nregion = "us-east-1"\n'
    )
    figures = {}
    for pair in PAIRS:
        for role in pair:
            figures[role] = child([role, "--mib", str(mib)], folder, environment, mib / 1024)
    same = (folder / "restored/payload.bin").stat().st_size == mib << 20
    if not same:
        raise SystemExit("the restored file has another size")
    return figures


def median(rounds: list[dict[str, Figure]], role: str, name: str) -> float:
    """Return the median of one figure of one role."""
    return statistics.median(getattr(one[role], name) for one in rounds)


def report(rounds: list[dict[str, Figure]], mib: int) -> dict[str, object]:
    """Print medians and pairwise ratios, and return them."""
    print(f"{mib} MiB, {len(rounds)} rounds, medians; ratio = ours / theirs, median of the pairs")
    print(f"{'':12}{'wall s':>9}{'CPU s/GiB':>11}{'peak MiB':>10}")
    for role in ROLES:
        wall, cpu, peak = (
            statistics.median(getattr(one[role], name) for one in rounds)
            for name in ("wall", "cpu_per_gib", "peak_mib")
        )
        print(f"{role:12}{wall:9.2f}{cpu:11.2f}{peak:10.0f}")
    ratios: dict[str, object] = {}
    for ours, theirs in PAIRS:
        wall = statistics.median(one[ours].wall / one[theirs].wall for one in rounds)
        cpu = statistics.median(one[ours].cpu_per_gib / one[theirs].cpu_per_gib for one in rounds)
        ratios[f"{ours}/{theirs}"] = {"wall": round(wall, 2), "cpu": round(cpu, 2)}
        print(f"{ours} / {theirs}: wall {wall:.2f}, CPU {cpu:.2f}")
    return ratios


def main() -> None:
    """Parse, and be either the parent or one of its children."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("role", nargs="?", choices=ROLES)
    parser.add_argument("--mib", type=int, default=2048, help="size of the file (default 2048)")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds (default 3)")
    parser.add_argument("--json", action="store_true", help="also print the ratios as JSON")
    arguments = parser.parse_args()
    if arguments.role:
        ROLES[arguments.role](arguments.mib)
        return
    key, secret = "bench", "bench-secret"
    with tempfile.TemporaryDirectory(prefix="ckptier-bench-") as name:
        folder = Path(name)
        with SeaweedServer(folder / "server", access_key=key, secret_key=secret, buckets=(BUCKET,)) as server:
            environment = {
                **os.environ,
                "AWS_ACCESS_KEY_ID": key,
                "AWS_SECRET_ACCESS_KEY": secret,
                "BENCH_ENDPOINT": server.endpoint_url,
            }
            rounds = [
                one_round(folder / f"round-{number}", server, environment, arguments.mib)
                for number in range(arguments.rounds)
            ]
    ratios = report(rounds, arguments.mib)
    if arguments.json:
        print(json.dumps(ratios))


if __name__ == "__main__":
    main()
