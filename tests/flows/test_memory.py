"""Memory does not grow with a file: 2 GiB there and back in processes of less than 300 MiB."""

import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable

import pytest
from flows.machines import RUN, Machine, Place

GIB = 1024**3
SIZE = 2 * GIB
LIMIT_KIB = 300 * 1024

CHILD = textwrap.dedent("""
    import sys
    from pathlib import Path
    from replicate import RunStore
    from replicate.config import load_config
    from replicate.engine import Replicator
    from replicate.restore import RestoreRequest

    what, folder, size = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    config = load_config(folder / "ckptier.toml")
    if what == "replicate":
        with RunStore(config.local.root).publish(next_update=1) as directory:
            with (directory / "model.bin").open("wb") as stream:
                stream.truncate(size)
                stream.seek(size // 2)
                stream.write(b"the middle")
        assert Replicator(config).replicate_once().exit_code == 0
    else:
        assert Replicator(config).restore(RestoreRequest()).total_bytes == size
    # not ru_maxrss: that remembers the process which started this one, from before exec
    print(*(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line))
""")


def peak_kib(what: str, machine: Machine) -> int:
    """Run one half in a process of its own; returns its peak resident size."""
    (place,) = machine.places
    text = f'run = "{RUN}"\nstore = "runs"\n[[tier]]\nname = "{place.name}"\nurl = "{place.settings.url}"\n'
    (machine.folder / "ckptier.toml").write_text(text)
    command = [sys.executable, "-c", CHILD, what, str(machine.folder), str(SIZE)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.slow
def test_two_gibibytes_fit_through_a_small_process(volume: Place, machine: Callable[..., Machine]) -> None:
    one, two = machine("one", volume), machine("two", volume)
    free = shutil.disk_usage(one.folder).free
    assert free > 4 * SIZE, f"this test needs {4 * SIZE} bytes of disk for a moment, {free} are free"
    try:
        sealing = peak_kib("replicate", one)
        shutil.rmtree(one.folder / "runs")
        restoring = peak_kib("restore", two)
        assert (two.resumed().files / "model.bin").stat().st_size == SIZE
        with (two.resumed().files / "model.bin").open("rb") as stream:
            stream.seek(SIZE // 2)
            assert stream.read(10) == b"the middle"
    finally:
        for folder in (one.folder, two.folder, one.folder.parent / "volume"):
            shutil.rmtree(folder, ignore_errors=True)
    assert sealing < LIMIT_KIB, f"sealing and replicating took {sealing} KiB"
    assert restoring < LIMIT_KIB, f"restoring took {restoring} KiB"
