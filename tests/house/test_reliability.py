"""docs/reliability.md names the tests that prove each promise: they are there, and each invariant has one."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "reliability.md").read_text(encoding="utf-8")
NAMED = re.compile(r"`([\w/]+\.py)(?:::(\w+))?`")
CASES = ("C18", "C19", "C21", "C23", "C26", "C27", "C32", "C84", "C85", "C87", "C92")
WEAKENINGS = 8


@cache
def functions(path: Path) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def exists(file: str, name: str) -> bool:
    """Tell whether a test file has a test, or whether a file without one is of the tests or the product."""
    if name:
        return (ROOT / "tests" / file).is_file() and name in functions(ROOT / "tests" / file)
    return any((ROOT / folder / file).is_file() for folder in ("tests", ".", "replicate"))


def rows(start: str) -> list[str]:
    return [line for line in TEXT.splitlines() if re.match(rf"\| {start}\b", line)]


def test_every_test_that_is_named_exists() -> None:
    named = NAMED.findall(TEXT)
    assert len(named) > 60
    assert [f"{file}::{name}" for file, name in named if not exists(file, name)] == []


def test_every_invariant_and_case_names_its_test() -> None:
    for what in (*(f"I{number}" for number in range(1, 22)), *CASES):
        found = rows(what)
        assert len(found) == 1, what
        assert NAMED.search(found[0]), what


def test_every_weakening_names_what_catches_it() -> None:
    table = TEXT.partition("## Weakenings")[2].partition("\n## ")[0]
    assert len([line for line in table.splitlines() if line.startswith("| ")]) >= WEAKENINGS + 1
