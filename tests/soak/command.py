"""``scripts/soak``: rounds of saving, hurting, recovering and comparing, for a bounded time.

Exit codes: 0 passed, 1 failed (ckptier broke a promise), 2 aborted (the soak itself got into trouble),
3 inconclusive (a fault did not happen, or no round was made).
"""

import argparse
import json
import os
import random
import subprocess
import sys
from collections.abc import Collection, Sequence
from pathlib import Path

import psutil
from soak.faults import FAULTS
from soak.soaking import CLOCK, Soak, report_of, soaking
from soak.verdicts import Report, Round

ROOT = Path(__file__).parents[2]
PLACES = ("volume", "emulator", "seaweed")
LONG = {"CKPTIER_CRASH_STATES": "all", "CKPTIER_MODEL_EXAMPLES": "2000", "HYPOTHESIS_PROFILE": "nightly"}
"""What makes tests with a long form take it."""
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test-access-key",
    "AWS_SECRET_ACCESS_KEY": "test-secret-key",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_EC2_METADATA_DISABLED": "true",
    "AWS_CONFIG_FILE": os.devnull,
    "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
}
"""Throw-away ones: nothing of whoever runs it is used."""


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/soak", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60.0, help="begin no round after so many seconds (60)")
    parser.add_argument("--rounds", type=int, help="at most so many rounds")
    parser.add_argument("--seed", type=int, help="what is done in which order; drawn, and told, unless given")
    parser.add_argument(
        "--places", default=",".join(PLACES), help=f"of {', '.join(PLACES)} (all; what is not installed is left out)"
    )
    parser.add_argument("--faults", default=",".join(FAULTS), help=f"of {', '.join(FAULTS)} (all)")
    parser.add_argument("--mounts", action="store_true", help="mount small filesystems as well (needs root)")
    parser.add_argument("--report", type=Path, help="write the report there, as JSON")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument(
        "--long",
        action="store_true",
        help="then run the long form of every test, with every crash state and many examples",
    )
    asked = parser.parse_args(arguments)
    for name, known in (("places", PLACES), ("faults", tuple(FAULTS))):
        chosen = tuple(filter(None, getattr(asked, name).split(",")))
        unknown = [one for one in chosen if one not in known]
        if unknown or not chosen:
            parser.error(f"--{name}: {', '.join(unknown) or 'nothing'} is none of {', '.join(known)}")
        setattr(asked, name, chosen)
    return asked


def tell(one: Round) -> None:
    line = f"{one.number:5d}  {one.place:9s} {one.fault:19s} {one.verdict:13s} {one.seconds:6.2f} s  {one.detail[:200]}"
    sys.stderr.write(line.rstrip() + "\n")


def run(asked: argparse.Namespace, seed: int) -> Report:
    """Soak, and return the report; whatever goes wrong outside a round is in it."""
    began = CLOCK.monotonic()
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    faults = {name: FAULTS[name] for name in asked.faults}
    soak: Soak | None = None
    trouble = ""
    try:
        with soaking(seed=seed, wanted=asked.places, mounts=asked.mounts) as soak:
            if missing := sorted(set(asked.places) - set(soak.opened)):
                sys.stderr.write(f"left out, since it is not installed: {', '.join(missing)}\n")
            while CLOCK.monotonic() - began < asked.seconds and (
                asked.rounds is None or len(soak.rounds) < asked.rounds
            ):
                tell(soak.round(faults))
        trouble = left_behind(soak.folder, before)
    except Exception as error:  # noqa: BLE001 - it is told, and makes the verdict
        trouble = f"{type(error).__name__}: {error}"
    failures = long_form() if asked.long else ()
    if soak is None:
        return Report(seed=seed, rounds=(), seconds=0, figures={}, trouble=trouble, failures=failures)
    return report_of(soak, CLOCK.monotonic() - began, trouble=trouble, failures=failures)


def left_behind(folder: Path, before: Collection[int]) -> str:
    """Say what a soak left, which is trouble: its next rounds would not begin as these did."""
    children = [child.name() for child in psutil.Process().children(recursive=True) if child.pid not in before]
    if children:
        return f"processes were left behind: {', '.join(children)}"
    return f"{folder} was left behind" if folder.exists() else ""


def long_form() -> tuple[str, ...]:
    """Run every test in its long form; returns what failed."""
    done = subprocess.run(
        [str(ROOT / "scripts" / "test"), "--all"], check=False, env={**os.environ, **LONG}, stdout=sys.stderr
    )
    return () if done.returncode == 0 else (f"scripts/test --all ended with {done.returncode}",)


def main(arguments: Sequence[str] | None = None) -> int:
    """Soak and report; returns the exit code."""
    asked = parse(arguments)
    seed = random.SystemRandom().randrange(1 << 31) if asked.seed is None else asked.seed
    os.environ.update(CREDENTIALS)
    report = run(asked, seed)
    text = json.dumps(report.document, indent=1)
    if asked.report is not None:
        asked.report.write_text(text + "\n")
    if asked.json:
        sys.stdout.write(text + "\n")
    else:
        fired = ", ".join(f"{name} {count}" for name, count in report.document["fired"].items())
        figures = ", ".join(f"{count} {name}" for name, count in sorted(report.figures.items()))
        sys.stdout.write(f"{report.verdict}: {len(report.rounds)} rounds, seed {seed}\nfaults: {fired}\n{figures}\n")
        for what in filter(None, (report.trouble, *report.failures)):
            sys.stdout.write(f"{what}\n")
    return report.verdict.exit_code


if __name__ == "__main__":
    sys.exit(main())
