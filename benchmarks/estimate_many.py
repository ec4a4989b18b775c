"""Estimate a year of 10,000, 50,000 and 100,000 generations of 35 objects: seconds and peak memory.

    python benchmarks/estimate_many.py
    python benchmarks/estimate_many.py --generations 100000 --limit 5 --limit-mib 300

Each size is a whole child process, so that its peak is its own.  With limits, the exit
status is 1 where the largest size is above one of them.
"""

import argparse
import json
import os
import subprocess
import sys
from datetime import UTC, date, datetime
from pathlib import Path

from tiers.clock import SystemClock

ROOT = Path(__file__).resolve().parent.parent
SIZES = (10_000, 50_000, 100_000)
START = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp())
YEAR = 365 * 86_400
TODAY = date(2026, 3, 2)
CLOCK = SystemClock()


def role_estimate(generations: int) -> None:
    """Estimate one run on S3 Standard, with parts in flight, and on R2 by daily peaks; print seconds."""
    from support.example_rates import r2, s3

    from cost.estimate import Plan, estimate
    from cost.rates.terms import Operation
    from cost.schedule import ObjectGroup, RunPlan, TierPlan
    from cost.usage import Requests, Usage

    cards = (s3({"metering": "byte_hours_calendar", "month_hours": "calendar"}), r2())
    began = CLOCK.monotonic()
    cadence = YEAR // generations
    run = RunPlan(
        start=START,
        horizon=YEAR,
        cadence=cadence,
        objects=(ObjectGroup(bytes=3_062_500_000, count=32), ObjectGroup(bytes=4096, count=3)),
        tiers=(
            TierPlan(tier="s3/sia", keep_last=3, keep_every=12, upload=cadence // 2),
            TierPlan(tier="r2/standard", keep_last=3, keep_every=100),
        ),
    )
    asked = tuple(
        Requests(tier="s3/sia", operation=Operation.UPLOAD_PART, count=1539, at=at, generation=ordinal)
        for ordinal, at in enumerate(run.instants, 1)
    )
    result = estimate(Plan(plan_id="many", runs=(run,), usage=Usage(requests=asked)), cards, TODAY)
    seconds = CLOCK.monotonic() - began
    sys.stdout.write(json.dumps({"seconds": seconds, "lines": len(result.lines), "total": str(result.total.low)}))


def measure(generations: int) -> tuple[float, float]:
    """Run one size in a child; return its seconds and its peak in MiB."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    command = [sys.executable, __file__, "--role", "--generations", str(generations)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)
    assert process.stdout is not None
    output = process.stdout.read()
    process.stdout.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{generations} generations ended with {process.returncode}")
    return float(json.loads(output)["seconds"]), usage.ru_maxrss / 1024


def main() -> int:
    """Print one row a size; judge the last one by the limits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--generations", type=int)
    parser.add_argument("--limit", type=float, default=float("inf"), help="seconds")
    parser.add_argument("--limit-mib", type=float, default=float("inf"), help="peak memory")
    parser.add_argument("--role", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.role:
        role_estimate(arguments.generations)
        return 0
    seconds = peak = 0.0
    for generations in (arguments.generations,) if arguments.generations else SIZES:
        seconds, peak = measure(generations)
        each = 1e6 * seconds / generations
        print(f"{generations:>8} generations of 35 objects: {seconds:6.2f} s  {peak:6.1f} MiB  {each:5.1f} us each")
    return int(seconds > arguments.limit or peak > arguments.limit_mib)


if __name__ == "__main__":
    raise SystemExit(main())
