"""How every command ends: the result on stdout, the error in one line with a next step, the exit code."""

import json
import logging
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import typer

from replicate.errors import CkptierError, ExitCode, LocalDisk, from_tier_error
from replicate.printable import one_line, printable
from tiers.errors import TierError

_NEXT = {
    ExitCode.USAGE: "see `ckptier COMMAND --help`",
    ExitCode.INTEGRITY: "`ckptier verify --read-data 100%` names what is hurt",
    ExitCode.TRUST: "`ckptier status --remote` shows the histories; decide which one is meant",
    ExitCode.CONFIG: "correct ckptier.toml; docs/design.md shows every key",
    ExitCode.DISK: "look at the path, its permissions and its disk; `ckptier check` tries the store",
}
"""What to do next where an error itself does not know better."""
_ELSE = "`ckptier check` tries the store and every tier"


@dataclass(slots=True)
class Reporter:
    """Writes one result.  ``as_json`` gives one document on stdout; else text is given."""

    as_json: bool
    exit_code: ExitCode = ExitCode.OK

    def show(self, value: Any, text: str, *, exit_code: ExitCode = ExitCode.OK) -> None:
        """Print a result: ``value`` as JSON, or ``text``; and remember what to exit with."""
        self.exit_code = exit_code
        if self.as_json:
            from replicate.jsonable import jsonable  # noqa: PLC0415 - only where JSON is asked for

            document = {"ok": exit_code is ExitCode.OK, "exit_code": int(exit_code), "result": jsonable(value)}
            write(json.dumps(document, indent=2))
        elif text:
            write(text)

    def document(self, fields: dict[str, Any], text: str, *, exit_code: ExitCode) -> None:
        """Print a result that is a document of its own: its fields stand beside ``ok``."""
        self.exit_code = exit_code
        if self.as_json:
            write(json.dumps({"ok": exit_code is ExitCode.OK, "exit_code": int(exit_code), **fields}, indent=2))
        else:
            write(text)

    def progress(self, line: str) -> None:
        """Print a line of a long work's result as it goes; nothing with ``as_json``."""
        if not self.as_json:
            write(line)

    def fail(self, error: CkptierError) -> None:
        """Print an error: to stderr for people, as a document with ``error`` for programs."""
        self.exit_code = error.exit_code
        hint = error.hint or _NEXT.get(error.exit_code, _ELSE)
        if self.as_json:
            detail = {"exit_code": int(error.exit_code), "message": error.message, "hint": hint}
            write(json.dumps({"ok": False, "exit_code": int(error.exit_code), "error": detail}, indent=2))
            return
        write_error(error.message, hint)


def write_error(message: str, hint: str) -> None:
    """Write what went wrong and what to do next, for people; no line of the message can pass for the next step."""
    lines = printable(message).replace("\n", "\n    ")
    sys.stderr.write(f"ckptier: {lines}\n  next: {one_line(hint)}\n")


def write(text: str) -> None:
    """Write a line of result; a reader that has gone away is not our failure."""
    try:
        sys.stdout.write(printable(text) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        raise typer.Exit(ExitCode.OK) from None


class _Lines(logging.Formatter):
    """Log lines for a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one, with what a terminal would obey escaped."""
        return printable(super().format(record))


def _log_to_stderr() -> None:
    """Let everything that is logged go to stderr, unless the process has set up logging already."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Lines("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(handlers=[handler])


def _disk(error: OSError) -> LocalDisk:
    """Describe a failure of this machine that nothing further down could put better."""
    where = f"{error.filename}: " if error.filename else ""
    return LocalDisk(f"{where}{error.strerror or error}")


@contextmanager
def reporting(*, as_json: bool, verbose: bool = False) -> Iterator[Reporter]:
    """Run a command's body; every expected error ends in its message, next step and exit code."""
    _log_to_stderr()
    for ours in ("replicate", "tiers"):
        logging.getLogger(ours).setLevel(logging.INFO if verbose else logging.WARNING)
    logging.getLogger("botocore").setLevel(logging.WARNING)  # where it found credentials is nobody's result
    reporter = Reporter(as_json)
    try:
        yield reporter
    except CkptierError as error:
        reporter.fail(error)
    except TierError as error:
        reporter.fail(from_tier_error(error))
    except OSError as error:
        reporter.fail(_disk(error))
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    if reporter.exit_code is not ExitCode.OK:
        raise typer.Exit(int(reporter.exit_code))
