"""Starts of a recipe at the price of a fork: ``warm.py FOLDER`` serves what ``launch.sh`` asks for.

A harness that starts a program hundreds of times spends its time on imports.  Here they are made once;
each start is a child of its own, armed by the harness's own boot file, with the environment, folder and
streams of the process that the harness waits for.
"""

import gc
import multiprocessing
import os
import runpy
import sys
import traceback
from pathlib import Path

import ckpt_chaos  # type: ignore[import-untyped]
import ckpt_chaos.inject  # type: ignore[import-untyped]
import ckpt_chaos.targets.common  # type: ignore[import-untyped]
from chaos import recipe

_ = multiprocessing.current_process()  # the boot file asks for it in each child
BOOT = Path(ckpt_chaos.__file__).parent / "_boot" / "sitecustomize.py"


def child(asker: str, what: str, base: Path, out: str) -> int:
    """Be the program that the harness started; returns its exit code."""
    process = Path("/proc") / asker
    for number in (1, 2):
        stream = os.open(process / "fd" / str(number), os.O_WRONLY)
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    for entry in (process / "environ").read_text().split("\0")[:-1]:
        name, _, value = entry.partition("=")
        os.environ[name] = value
    os.chdir(process / "cwd")
    runpy.run_path(str(BOOT))
    try:
        recipe.start(what, base, Path(out))
    except SystemExit as leaving:
        sys.stderr.write(f"{leaving.code}\n")
        return 1
    except BaseException:  # noqa: BLE001 - what the interpreter would do
        traceback.print_exc()
        return 1
    return 0


def serve(folder: Path) -> None:
    """Serve one start at a time, until the parent ends."""
    os.mkfifo(folder / "asked")
    # Open for writing too: a fifo would end each time that nobody asks.
    with os.fdopen(os.open(folder / "asked", os.O_RDWR), "r", buffering=1) as asked:
        os.write(1, b"ready\n")
        for line in asked:
            asker, what, out = line.split()
            pid = os.fork()
            if pid == 0:
                code = child(asker, what, folder / "base", out)
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
            _, status = os.waitpid(pid, 0)
            code = os.waitstatus_to_exitcode(status)
            (folder / f"answer.{asker}").write_text(f"{code if code >= 0 else 128 - code}\n")


if __name__ == "__main__":
    recipe.prepare(Path(sys.argv[1]) / "base")
    gc.freeze()  # children share what is there instead of copying it at their first collection
    serve(Path(sys.argv[1]))
