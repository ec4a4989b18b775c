"""A machine full of secrets, and a record of all that the command says and starts there."""

import logging
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cli.conftest import elsewhere, impatient, loggers
from cli.driver import Done, Project
from support.canaries import CANARIES, WORDS, files_below, leaks

__all__ = ["elsewhere", "impatient", "loggers"]


class _Children:
    """The command lines of the processes that are started; a hook stays for the process, so there is one."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        sys.addaudithook(self._heard)

    def _heard(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen":
            self.lines.append(" ".join(map(str, arguments[1])))


_children = _Children()


@dataclass(kw_only=True)
class Machine:
    """A home with secrets in it.  ``folder`` holds projects and volumes: all that ckptier writes."""

    folder: Path
    log: pytest.LogCaptureFixture
    words: dict[str, str]
    said: dict[str, bytes] = field(default_factory=dict)
    codes: set[int] = field(default_factory=set)

    def run(self, project: Project, *command: str) -> Done:
        """Run a command; what it says, in whatever way, is kept."""
        done = project(*command)
        self.codes.add(done.code)
        self.said[f"{len(self.said)}: {' '.join(command)}"] = (done.out + done.err).encode()
        return done

    def check(self, stored: dict[str, bytes] | None = None) -> None:
        """Look for every secret in all that was said, logged, started, written and stored."""
        records = "\n".join(f"{record.getMessage()} {record.args} {record.exc_text}" for record in self.log.records)
        places = {
            **self.said,
            "log": self.log.text.encode() + records.encode(),
            "command lines": "\n".join(_children.lines).encode(),
            **{f"file {path}": data for path, data in files_below(self.folder).items()},
            **{f"object {key}": data for key, data in (stored or {}).items()},
        }
        found = leaks(places, self.words)
        assert not found, "; ".join(found)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Machine:
    """Return a machine with canaries in its environment and home, and every logger turned up."""
    for name, value in CANARIES.items():
        monkeypatch.setenv(name, value)
    home = tmp_path / "home"
    (home / ".aws").mkdir(parents=True)
    keys = {"aws_access_key_id": WORDS["key in a file"], "aws_secret_access_key": WORDS["secret in a file"]}
    lines = [f"{name} = {value}" for name, value in keys.items()]
    (home / ".aws" / "credentials").write_text("\n".join(["[default]", *lines, ""]))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(home / ".aws" / "credentials"))
    folder = tmp_path / "work"
    folder.mkdir()
    _children.lines.clear()
    caplog.set_level(logging.DEBUG)
    for name in ("replicate", "tiers", "cost"):  # a command that an earlier test ran here may have set them
        caplog.set_level(logging.DEBUG, logger=name)
    return Machine(folder=folder, log=caplog, words={**CANARIES, **WORDS})
