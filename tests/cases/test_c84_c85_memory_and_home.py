"""C84: memory stays flat over many generations.  C85: nothing of ours piles up in HOME, in TMPDIR or in the store.

That one large generation fits through a small process is measured in tests/flows/test_memory.py.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from crash.stage import RUN, Case, noise, publish
from crash.zygote import Zygote, zygote

from replicate import RunStore

MIB = 1 << 20
GROWTH_KIB = 6 * 1024
"""What a process may grow by after its first five generations: a tenth of what 30 generations send through it."""

CHILD = """
import json, sys
from pathlib import Path
from replicate import RunStore
from replicate.config import load_config
from replicate.engine import Replicator
from replicate.restore import RestoreRequest

folder, count, size = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
config = load_config(folder / "ckptier.toml")
store = RunStore(config.local.root, hash_workers=1)

def resident():
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1])

seen = []
for update in range(1, count + 1):
    with store.publish(next_update=update) as directory:
        with (directory / "model.bin").open("wb") as stream:
            stream.truncate(size)
            stream.write(b"%d" % update)
    assert Replicator(config).replicate_once().exit_code == 0
    if update % 9 == 0:
        Replicator(config).restore(RestoreRequest(to=folder / f"restored-{update}"))
    seen.append(resident())
print(json.dumps(seen))
"""


@pytest.fixture
def case(tmp_path: Path) -> Case:
    """Return a machine whose tier and store keep two generations."""
    case = Case(tmp_path / "machine")
    (case.folder / "volume").mkdir(parents=True)
    case.configure(
        f"file://{case.folder}/volume", mode="rename", keep_last=2, retire_delay_seconds=0, part_size=5 * MIB
    )
    text = case.config.read_text().replace("hash_workers = 1\n", "hash_workers = 1\nkeep_last = 2\n")
    case.config.write_text(text)
    return case


@pytest.mark.parametrize("count", [10, pytest.param(30, marks=pytest.mark.long)])
def test_c84_memory_is_flat_over_many_generations(case: Case, count: int) -> None:
    """Saved, replicated, pruned, and restored now and then, in one process."""
    command = [sys.executable, "-c", CHILD, str(case.folder), str(count), str(2 * MIB)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert len(seen) == count
    assert max(seen[5:]) - max(seen[:5]) < GROWTH_KIB, f"KiB resident after each generation: {seen}"


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """Let HOME, TMPDIR and caches be folders that can be looked at."""
    places = {}
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
            places[name] = tmp_path_factory.mktemp(name.lower())
            patch.setenv(name, str(places[name]))
        yield places


@pytest.fixture(scope="module")
def killable(elsewhere: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    """Start a process whose children can be killed, in that environment."""
    with zygote(tmp_path_factory.mktemp("zygote") / "log") as running:
        yield running


def size_below(folder: Path) -> int:
    """Return the bytes below a folder, those of a file with several names once."""
    inodes = {}
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            found = path.stat()
            inodes[found.st_ino] = found.st_size
    return sum(inodes.values())


def test_c85_nothing_piles_up_where_nobody_asked_for_it(
    case: Case, elsewhere: dict[str, Path], killable: Zygote, tmp_path: Path
) -> None:
    """Four generations, four kills of the replication, and a restore: no copy, no scratch, nothing in HOME."""
    store = RunStore(case.root, run=RUN, hash_workers=1)
    size = MIB
    for update in range(1, 5):
        publish(store, update, {"model.bin": noise(update, size)})
        if update in (2, 3):
            for at in (25, 60):
                assert killable.run("replicate", case.journal, config=str(case.config), kill_at=at).killed
        result = killable.finish("replicate", case.journal, config=str(case.config))
        assert (result["exit_code"], result["failures"]) == (0, [])
    killable.finish("restore", case.journal, config=str(case.config), to=str(tmp_path / "restored"))
    assert [str(path) for place in elsewhere.values() for path in place.rglob("*")] == []
    small = 256 * 1024
    assert len(store.generations()) == 2
    assert size_below(case.root) < 2 * size + small, "the store holds no second copy of anything"
    assert size_below(case.folder / "volume") < 2 * size + small, "nor does the tier, whatever was killed"
    assert size_below(tmp_path / "restored") == size
    assert [path.name for path in case.root.iterdir() if path.name.startswith((".incoming", ".staged", ".trash"))] == []


def test_c85_what_a_killed_save_left_is_swept_by_the_next(case: Case, killable: Zygote) -> None:
    """Twice in a row: no more than one half-written generation ever lies there."""
    for update, at in ((1, 9), (2, 14), (3, 12)):
        assert killable.run("publish", case.journal, store=str(case.root), update=update, kill_at=at).killed
        left = [path for path in case.root.iterdir() if path.name.startswith(".incoming")]
        assert len(left) == 1
    killable.finish("publish", case.journal, store=str(case.root), update=4)
    assert [path.name for path in case.root.iterdir() if path.name.startswith((".incoming", ".tmp"))] == []
    assert [one.id.next_update for one in RunStore(case.root, run=RUN).generations()] == [4]
