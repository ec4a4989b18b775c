"""A copy needs no room for what it carries: a file larger than its memory passes in parts, and in one piece."""

import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from flows.machines import RUN, Machine, Place

MIB = 1 << 20
SIZE = 256 * MIB
ROOM_KIB = 96 * 1024
"""What a copy may take beyond what the same process has in use before it."""

CHILD = textwrap.dedent("""
    import sys
    from pathlib import Path
    from replicate.config import load_config
    from replicate.copyplan import CopyRequest
    from replicate.engine import Replicator
    import tiers.volume, tiers.fsspec_opening, fsspec.implementations.local

    def peak():
        # not ru_maxrss: that remembers the process which started this one, from before exec
        return [line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line]

    before = peak()
    engine = Replicator(load_config(Path(sys.argv[1])))
    report = engine.copy(CopyRequest(source="volume", target=sys.argv[2]))
    assert report.generations[0].outcome == "copied", report
    print(*before, *peak())
""")


@pytest.fixture
def source(volume: Place, machine: Callable[..., Machine]) -> Place:
    """Return a volume with one large file of several leaves, mostly a hole."""
    one = machine("one", volume)
    with one.store.publish(next_update=1) as directory, (directory / "model.bin").open("wb") as stream:
        stream.truncate(SIZE)
        stream.seek(SIZE // 2)
        stream.write(b"the middle")
    assert one.replicate().exit_code == 0
    return volume


def test_memory_does_not_grow_with_what_is_copied(source: Place, tmp_path: Path) -> None:
    """To a volume, which takes parts, and through fsspec, which takes the file in one request."""
    config = tmp_path / "copier" / "ckptier.toml"
    text = f'run = "{RUN}"\nstore = "runs"\n[[tier]]\nname = "volume"\nurl = "{source.settings.url}"\n'
    for name, scheme in (("parts", ""), ("whole", "fsspec+")):
        folder = tmp_path / name
        folder.mkdir()
        text += f'[[tier]]\nname = "{name}"\nurl = "{scheme}{folder.as_uri()}"\nconnections = 2\n'
    config.parent.mkdir()
    config.write_text(text)
    for name in ("parts", "whole"):
        command = [sys.executable, "-c", CHILD, str(config), name]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        before, after = map(int, done.stdout.split())
        assert after - before < ROOM_KIB, f"{name}: copying took {after - before} KiB"
        (copied,) = (tmp_path / name).glob(f"{RUN}/generations/*/files/model.bin")
        assert copied.stat().st_size == SIZE
        with copied.open("rb") as stream:
            stream.seek(SIZE // 2)
            assert stream.read(10) == b"the middle"
        copied.unlink()
    left = {path.name for path in (config.parent / "runs" / RUN).iterdir()}
    assert left <= {"tracker.sqlite", "tracker.sqlite-wal", "tracker.sqlite-shm", "status.json", ".daemon.lock"}, (
        "what was held of the parts is gone"
    )
