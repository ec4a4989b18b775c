"""Figures that may not shrink: how many crash points, examples, states and mutants a run went through.

A test calls :func:`figure`; one below its floor fails it, and all that were told stand at the end of the run, where
docs/reliability.md has them from.
"""

from collections.abc import Iterator
from typing import cast

import pytest

_KIND = "ckptier-figure"
_current: list[pytest.Item] = []
_told: dict[str, tuple[int, int]] = {}


def figure(name: str, value: int, *, floor: int) -> None:
    """Tell a count of the running test; fails it below ``floor``.

    A floor is raised when something is added and lowered only where something is gone on purpose.
    """
    assert _current, "there is no running test"
    _current[-1].user_properties.append((_KIND, (name, value, floor)))
    assert value >= floor, f"{name}: {value}, at least {floor} are due: what went away?"


def running() -> str:
    """Return the name of the running test, as in ``crash/test_publish.py::test_killed[plain]``."""
    return _current[-1].nodeid.removeprefix("tests/")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Know which test is running."""
    _current.append(item)
    try:
        return (yield)
    finally:
        _current.pop()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Collect what was told, in the process that reports, wherever the test ran."""
    if report.when != "teardown":
        return
    for kind, told in report.user_properties:
        if kind == _KIND:
            name, value, floor = cast("tuple[str, int, int]", told)
            _told[name] = (value, floor)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table."""
    if not _told:
        return
    terminalreporter.section("figures (at least)")
    for name, (value, floor) in sorted(_told.items()):
        terminalreporter.line(f"{value:>9,}  ({floor:,})  {name}")
