"""A project with two volumes whose stored bytes are hurt behind everybody's back."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from cli.driver import RUN, Project, volume

from replicate.layout import GenerationId, RemoteRun
from replicate.log import LogView
from replicate.logbook import Logbook
from tiers.volume import VolumeTier

REMOTE = RemoteRun.of(RUN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """The project and the folders of its tiers."""

    project: Project
    folder: Path

    @property
    def ids(self) -> list[GenerationId]:
        """What the store holds, oldest first."""
        return sorted(one.id for one in self.project.store.generations())

    def root(self, tier: str) -> Path:
        return self.folder / tier

    def slot(self, number: int, tier: str = "one") -> Path:
        return self.root(tier) / REMOTE.log(number)

    def flip_slot(self, number: int, tier: str = "one") -> None:
        path = self.slot(number, tier)
        data = path.read_bytes()
        path.write_bytes(data[:30] + bytes([data[30] ^ 1]) + data[31:])

    def view(self, tier: str = "one") -> LogView:
        """Read a log as somebody new does."""
        return Logbook(VolumeTier("reader", self.root(tier)), REMOTE).read(thorough=True)

    def live(self, tier: str = "one") -> list[int]:
        return sorted(commit.id.sequence for commit in self.view(tier).live)

    def prefix(self, generation: GenerationId, tier: str = "one") -> Path:
        """Return the folder of the live copy."""
        state = self.view(tier).state
        found = state.find(generation) if state else None
        assert found is not None
        return (self.root(tier) / found.manifest_key).parent

    def hurt(self, generation: GenerationId, tier: str = "one", *, same_size: bool = False) -> None:
        """Damage one object: what a look at its size tells, or with ``same_size`` only reading."""
        path = self.prefix(generation, tier) / "files" / "model.bin"
        data = path.read_bytes()
        path.write_bytes(bytes([data[0] ^ 1]) + data[1:] if same_size else data[:-1])

    def snapshot(self) -> dict[str, bytes]:
        """Return all that lies on the tiers."""
        found = [path for tier in ("one", "two") for path in self.root(tier).rglob("*") if path.is_file()]
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in found}

    def sound(self, *arguments: str) -> None:
        """Check that every command goes on as on a healthy run."""
        done = self.project("verify", "--read-data", "100%", *arguments)
        assert done.code == 0, done.out
        assert self.project("replicate", "--once").code == 0
        for verb in ("gc", "prune"):
            assert self.project(verb, "--apply").code == 0
        for tier in ("one", "two"):
            assert self.view(tier).damaged == ()

    def copied(self, folder: Path) -> "Bench":
        """Return a copy of everything, tiers and all."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)
        return Bench(project=self.project, folder=folder).named("project")

    def named(self, name: str) -> "Bench":
        """Return the machine whose disk is in this folder beside the tiers."""
        tiers = {tier: volume(self.folder / tier) for tier in self.project.tiers}
        return Bench(project=Project(folder=self.folder / name, tiers=tiers).write(), folder=self.folder)

    def clone(self, name: str) -> "Bench":
        """Copy the disk of the machine, tracker and all, beside the same tiers."""
        other = Project(folder=self.folder / name, tiers=self.project.tiers)
        shutil.copytree(self.project.folder, other.folder)
        return Bench(project=other, folder=self.folder)


def bench(folder: Path, *updates: int, tiers: tuple[str, ...] = ("one", "two")) -> Bench:
    """Return a project that has replicated these updates."""
    for tier in ("one", "two"):
        (folder / tier).mkdir()
    made = Project(folder=folder / "project", tiers={tier: volume(folder / tier) for tier in tiers}).write()
    made.publish(*updates)
    assert made("replicate", "--once").code == 0
    return Bench(project=made, folder=folder)


def document(path: Path) -> dict[str, object]:
    """Return the body of a log entry."""
    found: dict[str, object] = json.loads(path.read_bytes().split(b"\n")[0])["body"]
    return found
