"""A pytest plugin for CI: a test that was skipped has not passed (scripts/test loads it where CI=true)."""

import pytest

PERMITTED = ("this machine forbids FUSE mounts",)
"""Reasons that lie in the machine and cannot be installed away; such skips are listed and pass."""

_skipped: list[str] = []
_permitted: list[str] = []


def _note(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        permitted = any(reason in str(report.longrepr) for reason in PERMITTED)
        (_permitted if permitted else _skipped).append(report.nodeid)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note a test that skipped itself."""
    _note(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Note a module that skipped itself."""
    _note(report)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail a run that would have passed."""
    if _skipped and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say why, and what was let pass."""
    if _permitted:
        terminalreporter.section(f"skipped with leave: {'; '.join(PERMITTED)}")
        for nodeid in _permitted:
            terminalreporter.line(nodeid)
    if _skipped:
        terminalreporter.section("skips are forbidden where CI=true")
        for nodeid in _skipped:
            terminalreporter.line(nodeid)
