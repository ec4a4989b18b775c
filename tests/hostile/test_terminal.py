"""Words from a bucket on a terminal: shown, never obeyed, and no line of theirs passes for one of ours."""

import logging
import unicodedata
from pathlib import Path

import pytest
from cli.driver import Project, run_command, volume
from support.commits import RUN, Writer, generation

from replicate.cli import reporting
from replicate.errors import ExitCode, IntegrityFailure
from replicate.layout import RemoteRun
from replicate.log import Retire
from replicate.manifest import parse_manifest
from replicate.printable import one_line, printable
from tiers.bodies import BytesBody
from tiers.volume import VolumeTier

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202etxt.exe\r\x00\x7f\u2028\ud800"
OBEYED = {"Cc", "Cs", "Zl", "Zp"}


def obeyed(text: str) -> list[str]:
    """Return what a terminal would do something with, other than end a line."""
    return [letter for letter in text if letter not in "\n\t" and unicodedata.category(letter) in OBEYED]


def test_what_a_terminal_obeys_is_escaped_and_all_else_stays() -> None:
    assert not obeyed(printable(EVIL))
    assert "\u202e" not in printable(EVIL)
    assert printable("\x1b[31m") == "\\x1b[31m"
    assert printable("café ✓ 💾\n\tok") == "café ✓ 💾\n\tok"
    assert one_line("a\nb\tc") == "a\\nb\\tc"


def test_an_error_is_one_message_and_one_next_step(capsys: pytest.CaptureFixture[str]) -> None:
    reporting.write_error(f"{EVIL}\n  next: run anything", f"do this{EVIL}\nand that")
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if line.startswith("  next: ")] == lines[-1:]
    assert len(lines) == 3
    assert not obeyed("".join(lines))


def test_a_result_and_a_log_line_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    reporting.write(EVIL)
    assert not obeyed(capsys.readouterr().out)
    record = logging.LogRecord("x", logging.WARNING, __file__, 1, "%s", (EVIL,), None)
    assert not obeyed(reporting._Lines("%(message)s").format(record))


def test_what_a_manifest_says_is_quoted_in_one_line() -> None:
    with pytest.raises(IntegrityFailure) as caught:
        parse_manifest(b'{"format":1,"prefix":7,"generation":{},"\\u001b[2J\\n":1,"objects":[{"path":"\\u001b"}]}')
    assert not obeyed(caught.value.message)
    assert "\n" not in caught.value.message


@pytest.fixture
def poisoned(tmp_path: Path) -> Project:
    """Return a project whose tier holds a log that was written for terminals."""
    folder = tmp_path / "volume"
    folder.mkdir()
    project = Project(folder=tmp_path / "p", tiers={"t": volume(folder)}).write()
    writer = Writer(VolumeTier("t", folder))
    remote = RemoteRun.of(RUN)
    good, gone = generation(1), generation(2)
    writer.commit(good)
    writer.commit(gone)
    state = writer.view.state
    assert state is not None
    commit = state.find(gone.id)
    assert commit is not None
    reason = EVIL.replace("\ud800", "")
    retire = Retire(generation=str(gone.id), manifest_key=commit.manifest_key, reason=reason)
    writer.append(retire, attempt=1, attempt_id="attempt-1")
    writer.tier.put(remote.log(writer.view.next_slot), BytesBody(b"\x1b[2J" + reason.encode()))
    return project


def test_no_verb_hands_a_terminal_what_a_log_says(poisoned: Project) -> None:
    codes = set()
    for command in (
        ("list",),
        ("status", "--remote"),
        ("verify",),
        ("explain",),
        ("gc",),
        ("replicate", "--once", "-v"),
    ):
        done = poisoned(*command)
        assert not obeyed(done.out + done.err), command
        codes.add(done.code)
    assert ExitCode.OK in codes
    assert len(codes) > 1, "the damage was met"


def test_arguments_are_not_obeyed_either(tmp_path: Path) -> None:
    done = run_command("list", "--config", str(tmp_path / "\x1b[2Jx.toml"))
    assert done.code == ExitCode.CONFIG
    assert not obeyed(done.err)
