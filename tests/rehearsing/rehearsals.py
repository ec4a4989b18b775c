"""A project with a committed generation, and functions of a user that rehearse it well or badly."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli.driver import Done, Project, volume

from replicate.config import load_config
from replicate.generation.evidence import Level
from replicate.generation.proofs import proof_level
from replicate.generation.rehearsals import RehearsalRecord, read_rehearsal
from replicate.layout import GenerationId, RemoteRun
from replicate.logbook import Logbook
from replicate.rehearsal import RehearsalReport, RehearsalRequest, Rehearsing
from tiers.volume import VolumeTier

FUNCTIONS = """
import json, os, pathlib, sys, time

calls = 0


def good(directory):
    global calls
    calls += 1
    state = json.loads((directory / "meta" / "state.json").read_text())
    return {
        "loss": 2.5,
        "batch": {"id": "b7", "starts": [1, 2]},
        "clocks.next_update": state["next_update"],
        "calls": calls,
        "generation": os.environ["CKPTIER_GENERATION"],
    }


def drifting(directory):
    tick = pathlib.Path("tick")
    number = int(tick.read_text()) if tick.exists() else 0
    tick.write_text(str(number + 1))
    return {"updated": number, "loss": 1.0 + number, "weights": f"w{number}", "rng": "same"}


def silent(directory):
    return None


def raising(directory):
    print("on the way")
    raise ValueError("loss is nan\\nand more")


def leaving(directory):
    sys.exit(3)


def leaving_well(directory):
    sys.exit(0)


def vanishing(directory):
    os._exit(0)


def killed(directory):
    os.kill(os.getpid(), 9)


def hanging(directory):
    import subprocess
    child = subprocess.Popen(["sleep", "600"])
    pathlib.Path("pids").write_text(f"{os.getpid()} {child.pid}")
    print("hanging now", flush=True)
    time.sleep(600)


def hungry(directory):
    held = bytearray(1 << 30)
    return {"loss": len(held)}


def loud(directory):
    line = "x" * 1023
    for _ in range(8192):
        print(line)
    print("the last line")
    raise RuntimeError("after much ado")


def tampering(directory):
    (directory / "model.bin").write_bytes(b"rubbish")
    (directory / "meta" / "state.json").unlink()
    (directory / "link").symlink_to("/etc")
    (directory / "meta").chmod(0o500)
    return {"loss": 1}


def returning_objects(directory):
    return {"model": {"head": object()}}


def returning_much(directory):
    return {"weights": "x" * 100_000}


def returning_a_list(directory):
    return [1, 2]


def telling(directory):
    return {"argv": sys.argv[1:], "command": pathlib.Path("/proc/self/cmdline").read_text(), "cwd": os.getcwd(),
            "nan": float("nan"), "token": os.environ.get("TRAINER_TOKEN"), "isatty": sys.stdin.read()}


def answering_and_failing(directory):
    import atexit
    atexit.register(os._exit, 4)
    return {"loss": 1}


NOTHING = 3
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """The project, and the one generation that was committed."""

    project: Project
    generation: GenerationId

    def rehearse(
        self, function: str = "good", *, bounds: Mapping[str, object] | None = None, **options: Any
    ) -> RehearsalReport:
        """Rehearse through the verb; ``function`` is one of FUNCTIONS, ``bounds`` are keys of [rehearse]."""
        config = load_config(self.project.config)
        bounded = config.model_copy(update={"rehearse": config.rehearse.model_copy(update=dict(bounds or {}))})
        return Rehearsing(bounded).rehearse(RehearsalRequest(function=f"mine:{function}", **options))

    def command(self, *arguments: str) -> Done:
        return self.project("rehearse", *arguments)

    def digest(self, tier: str = "vol") -> str:
        """Return the digest of the manifest that a tier's log names."""
        view = Logbook(VolumeTier("reader", self.project.folder / tier), RemoteRun.of(self.project.run)).read()
        return next(one.manifest_sha256 for one in view.live if one.id == self.generation)

    def level(self, tier: str = "vol") -> Level:
        return proof_level(self.project.local, self.generation, tier, self.digest(tier))

    def record(self, tier: str = "vol") -> RehearsalRecord | None:
        return read_rehearsal(self.project.local, self.generation, tier)

    def leftovers(self) -> list[str]:
        """Return what lies beside the run's folder, where scratch is made."""
        return sorted(path.name for path in self.project.local.root.parent.iterdir() if path.name != self.project.run)


def staged(folder: Path, *tiers: str, section: str = "", top: str = "") -> Stage:
    """Publish and commit one generation; ``section`` goes below [rehearse]."""
    names = tiers or ("vol",)
    for name in names:
        (folder / name).mkdir(parents=True)
    project = Project(folder=folder, tiers={name: volume(folder / name) for name in names})
    configure(project, section=section, top=top)
    (folder / "mine.py").write_text(FUNCTIONS)
    (generation,) = project.publish(100)
    assert project("replicate", "--once").code == 0
    return Stage(project=project, generation=generation)


def configure(project: Project, *, section: str = "", top: str = "") -> None:
    """Write the configuration anew."""
    project.write(extra=top)
    if section:
        project.config.write_text(f"{project.config.read_text()}\n[rehearse]\n{section}\n")


def expected(folder: Path, **observations: Any) -> Path:
    """Write a file for --expect."""
    path = folder / "expected.json"
    path.write_text(json.dumps(observations))
    return path


def alive(pid: int) -> bool:
    """Whether a process is at work: what is only not waited for yet is not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][:1]
    except FileNotFoundError:
        return False
    return state not in "ZX"
