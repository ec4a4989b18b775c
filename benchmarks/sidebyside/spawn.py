"""Start one client, wait for it, and write down what it took.

    python -m benchmarks.sidebyside.spawn REPORT COMMAND...

Apart, because this process is small: a child's peak memory begins with that of whoever started it.
"""

import json
import os
import sys

from tiers.clock import SystemClock


def main() -> None:
    """Run the command with our own standard output and error."""
    report, *command = sys.argv[1:]
    clock = SystemClock()
    began = clock.monotonic()
    child = os.posix_spawn(command[0], command, os.environ)
    _, status, usage = os.wait4(child, 0)
    wall = clock.monotonic() - began
    found = {
        "wall": wall,
        "cpu": usage.ru_utime + usage.ru_stime,
        "peak_mib": usage.ru_maxrss / 1024,
        "code": os.waitstatus_to_exitcode(status),
    }
    with open(report, "w", encoding="utf-8") as stream:  # noqa: PTH123 - pathlib is not small
        json.dump(found, stream)


if __name__ == "__main__":
    main()
