"""Runs one test for each mutant, in forks of one process that has imported what all tests need and nothing of ours.

Jobs come as one JSON list on standard input; each answer is a line of JSON on standard output.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

import hypothesis.stateful
import pydantic
import pytest
import pytest_timeout  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[2]
SECONDS = 60
"""After which a test that a mutant has sent into a loop is ended."""
OURS = ("replicate", "tiers", "cost")
SHARED = ("tiers.testing", "tiers.memory", "tiers.metered", "tiers.opening", "tiers.volume", "tiers.retrying")
"""What every test of what lies above imports; once for all mutants there."""


class Loader(importlib.machinery.SourceFileLoader):
    """Loads a module from a text that no file holds."""

    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self.text = text

    def get_code(self, fullname: str) -> CodeType:
        return compile(self.text, self.path, "exec", dont_inherit=True)


class Finder(importlib.abc.MetaPathFinder):
    """Finds one module, and leaves the others to whoever finds them."""

    def __init__(self, name: str, path: Path, text: str) -> None:
        self.name = name
        self.loader = Loader(name, str(path), text)

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self.name:
            return None
        return importlib.util.spec_from_file_location(fullname, self.loader.path, loader=self.loader)


class Witness:
    """Notes which tests ran and failed, and on what."""

    def __init__(self) -> None:
        self.failed: list[tuple[str, str, list[str]]] = []
        self.uncollected = 0
        self.passed = 0

    def pytest_exception_interact(self, node: Any, call: Any, report: Any) -> None:
        if isinstance(report, pytest.CollectReport):
            self.uncollected += 1
            return
        kinds = [f"{kind.__module__}.{kind.__qualname__}" for kind in type(call.excinfo.value).__mro__]
        self.failed.append((node.nodeid, report.when, kinds))

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.passed += report.when == "call" and report.passed


def applied(job: dict[str, str]) -> tuple[str, int]:
    """Return the mutated text, and how often the old one was there."""
    text = (ROOT / job["file"]).read_text()
    return text.replace(job["old"], job["new"]), text.count(job["old"])


def run(job: dict[str, str]) -> dict[str, Any]:
    """Run the test in this process, which the mutant spoils."""
    text, count = applied(job)
    if count != 1:
        return {"count": count}
    name = job["file"].removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    finder = Finder(name, ROOT / job["file"], text)
    if any(module.partition(".")[0] in OURS for module in sys.modules if not _below(module, name)):
        raise RuntimeError("something that may hold on to the real module was imported before the mutant")
    sys.meta_path.insert(0, finder)
    witness = Witness()
    options = ["-q", "-x", "--assert=plain", "--tb=no", "-p", "no:cacheprovider"]
    options.append(f"--confcutdir={(ROOT / job['test'].partition('::')[0]).parent}")  # what tests share is servers
    code = pytest.main(
        [*options, f"--rootdir={ROOT}", f"-c={ROOT / 'pyproject.toml'}", job["test"]], [pytest_timeout, witness]
    )
    module = sys.modules.get(name)
    return {
        "count": count,
        "code": int(code),
        "failed": witness.failed,
        "passed": witness.passed,
        "uncollected": witness.uncollected,
        "loaded": module is not None and module.__loader__ is finder.loader,
        "from": {top: str(sys.modules[top].__file__) for top in OURS if top in sys.modules},
    }


def _below(module: str, mutated: str) -> bool:
    """Whether a module cannot have imported the mutated one: the tiers know nothing of what lies above them."""
    return module.partition(".")[0] == "tiers" and not mutated.startswith("tiers")


def forked(job: dict[str, str]) -> dict[str, Any]:
    """Run one job in a child; its output goes nowhere, what it found comes through a pipe."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        signal.alarm(SECONDS)
        with open(os.devnull, "w") as nowhere:  # noqa: PTH123 - no pathlib: the child ends at once
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        try:
            found = run(job)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is told
            found = {"count": -1, "error": repr(error)}
        os.write(writing, json.dumps(found).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        data = stream.read()
    _, status = os.waitpid(child, 0)
    spent = {"status": status}
    return {**json.loads(data), **spent} if data else {"count": -1, "error": "it was ended", **spent}


def main() -> None:
    """Answer all jobs."""
    os.chdir(ROOT)
    assert hypothesis.stateful
    assert pydantic
    assert pytest_timeout
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    for job in sorted(json.load(sys.stdin), key=lambda job: not job["file"].startswith("tiers/")):
        if not job["file"].startswith("tiers/"):
            for name in SHARED:
                importlib.import_module(name)
        sys.stdout.write(json.dumps({"name": job["name"], **forked(job)}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
