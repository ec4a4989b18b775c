"""Measure side by side, hold the figures against the targets, and write docs/benchmarks.md.

scripts/bench             three rounds, some twenty-five minutes on two cores
scripts/bench --quick     one round of small files, a minute; writes nothing unless told to
"""

import argparse
import json
import sys
from pathlib import Path

from benchmarks.sidebyside.phases import ON_REQUEST, PHASES, Run
from benchmarks.sidebyside.reporting import report
from benchmarks.sidebyside.settings import Settings


def main() -> int:
    """Parse, measure, report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round of small files, two peers")
    parser.add_argument("--rounds", type=int, help="interleaved rounds (3)")
    parser.add_argument("--mib", type=int, help="MiB of the large workloads on the sink (2048); the others follow")
    parser.add_argument("--more", action="store_true", help="awscli, s3fs, s3torchconnector, minio and moonclip too")
    parser.add_argument("--only", default="", help=f"some of: {','.join(PHASES)}")
    parser.add_argument("--place", type=Path, help="folder for the files (memory where there is enough)")
    parser.add_argument("--disk", type=Path, help="folder on the disk that saves are measured on")
    parser.add_argument("--write", type=Path, help="folder to write benchmarks.md and .svg into (docs, unless --quick)")
    parser.add_argument("--json", type=Path, help="also write everything as JSON here")
    parser.add_argument("--verify-same", type=Path, metavar="JSON", help="an earlier run to compare verdicts with")
    arguments = parser.parse_args()
    usual = tuple(name for name in PHASES if name not in ON_REQUEST)
    only = tuple(filter(None, arguments.only.split(","))) or usual
    unknown = set(only) - set(PHASES)
    if unknown:
        parser.error(f"no phase is called {', '.join(sorted(unknown))}; there are {', '.join(PHASES)}")
    settings = Settings.of(
        quick=arguments.quick,
        rounds=arguments.rounds,
        mib=arguments.mib,
        more=arguments.more,
        only=only,
        place=arguments.place,
        disk=arguments.disk,
    )
    run = Run(settings, say=lambda text: print(text, file=sys.stderr, flush=True))
    run.measure()
    partial = arguments.quick or only != usual
    document = report(run, write=arguments.write, same_as=arguments.verify_same, partial=partial)
    if arguments.json:
        arguments.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
