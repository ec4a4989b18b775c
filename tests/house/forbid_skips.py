"""A pytest plugin for CI: a test that was skipped has not passed (scripts/test loads it where CI=true)."""

import pytest

_skipped: list[str] = []


def _note(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped and not hasattr(report, "wasxfail"):
        _skipped.append(report.nodeid)


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
    """Say why."""
    if _skipped:
        terminalreporter.section("skips are forbidden where CI=true")
        for nodeid in _skipped:
            terminalreporter.line(nodeid)
