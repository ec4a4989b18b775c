"""A project folder with a configuration, and the command run in it, inside this process."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.commits import tree
from typer.testing import CliRunner

from replicate import RunStore
from replicate.cli.main import app
from replicate.errors import ExitCode
from replicate.layout import GenerationId, LocalRun

RUN = "toy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a command left: exit code, stdout, stderr."""

    code: int
    out: str
    err: str

    def document(self) -> dict[str, Any]:
        """Return the one JSON document on stdout, its frame checked."""
        found: dict[str, Any] = json.loads(self.out)
        assert found["exit_code"] == self.code
        assert found["ok"] is (self.code == 0)
        return found

    def result(self) -> Any:
        """Return what the document is about."""
        return self.document()["result"]

    def error(self) -> dict[str, Any]:
        """Return the error of the document: a message and a next step."""
        found = self.document()
        assert set(found) == {"ok", "exit_code", "error"}
        error: dict[str, Any] = found["error"]
        assert error["exit_code"] == self.code
        assert error["message"]
        assert error["hint"]
        return error

    def says(self, *words: str) -> None:
        """Fail unless the words are somewhere in what a person sees."""
        shown = self.out + self.err
        missing = [word for word in words if word not in shown]
        assert not missing, f"{missing} not in:\n{shown}"


def run_command(*arguments: str) -> Done:
    """Run ``ckptier`` in this process; whatever it does not expect reaches the test as it is."""
    done = CliRunner().invoke(app, arguments, prog_name="ckptier")
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return Done(code=done.exit_code, out=done.stdout, err=done.stderr)


def refused(code: ExitCode, *arguments: str) -> Done:
    """Run a command that has to fail like this: one message, one next step, nothing on stdout, no traceback."""
    done = run_command(*arguments)
    assert done.code == code, done
    lines = done.err.splitlines()
    assert not done.out
    assert len(lines) == 2, done.err
    assert lines[0].startswith("ckptier: ")
    assert lines[1].startswith("  next: ")
    assert len(lines[1]) > len("  next: ")
    return done


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A folder with a ``ckptier.toml``; ``tiers`` are NAME -> URL."""

    folder: Path
    tiers: Mapping[str, str] = field(default_factory=dict)
    run: str = RUN

    @property
    def config(self) -> Path:
        """The configuration file."""
        return self.folder / "ckptier.toml"

    @property
    def local(self) -> LocalRun:
        """Where the run's generations lie."""
        return LocalRun(self.folder / "runs" / self.run)

    @property
    def store(self) -> RunStore:
        """The store, as a training script opens it."""
        return RunStore(self.local.root, hash_workers=1)

    def write(self, *, extra: str = "", **tier_keys: object) -> "Project":
        """Write the configuration; ``tier_keys`` go into every [[tier]], ``extra`` on top."""
        keys = "".join(f"{name} = {json.dumps(value)}\n" for name, value in tier_keys.items())
        sections = [
            f"[[tier]]\nname = {json.dumps(name)}\nurl = {json.dumps(url)}\n{keys}" for name, url in self.tiers.items()
        ]
        self.folder.mkdir(parents=True, exist_ok=True)
        self.config.write_text("\n".join([f'run = "{self.run}"\nstore = "runs"\n{extra}', *sections]))
        return self

    def publish(self, *updates: int, size: int = 2000) -> list[GenerationId]:
        """Publish a generation for each update; its bytes tell which."""
        made = []
        for update in updates:
            publication = self.store.publish(next_update=update)
            with publication as directory:
                (directory / "model.bin").write_bytes(f"update {update}\n".encode().ljust(size, b"."))
                (directory / "meta").mkdir()
                (directory / "meta" / "state.json").write_text(json.dumps({"next_update": update}))
            assert publication.generation is not None
            made.append(publication.generation.id)
        return made

    def __call__(self, *arguments: str) -> Done:
        """Run a command with this project's configuration."""
        return run_command(*arguments, "--config", str(self.config))

    def refused(self, code: ExitCode, *arguments: str) -> Done:
        """Run a command that has to be refused."""
        return refused(code, *arguments, "--config", str(self.config))

    def snapshot(self) -> dict[str, bytes | None]:
        """Return every path of the folder with its bytes, but for the files that hold locks."""
        return {path: data for path, data in tree(self.folder).items() if not path.endswith(".lock")}


def volume(folder: Path) -> str:
    """Return the URL of a folder."""
    return f"file://{folder}"
