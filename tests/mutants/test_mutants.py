"""Each deliberate weakening is noticed by a test; one that no longer applies fails."""

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from mutants.killer import applied
from mutants.mutations import MUTANTS, NAMED, Mutant
from support.figures import figure

ROOT = Path(__file__).parents[2]
AT_LEAST = 32
CONTROL = "no change at all"
OUR_OWN = (
    "builtins.AssertionError",
    "_pytest.outcomes.OutcomeException",
    "replicate.errors.CkptierError",
    "tiers.errors.TierError",
)
"""What a test may fail on; a NameError or TypeError would say that the mutant is no program."""


@pytest.fixture(scope="module")
def outcomes() -> dict[str, dict[str, Any]]:
    """Run them all in one child; returns what became of each."""
    unchanged = {**asdict(MUTANTS[0]), "name": CONTROL, "new": MUTANTS[0].old}
    jobs = json.dumps([*map(asdict, MUTANTS), unchanged])
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    environment["PYTHONPATH"] = str(ROOT)
    killer = Path(__file__).with_name("killer.py")
    done = subprocess.run(
        [sys.executable, str(killer)],
        input=jobs,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        check=True,
        timeout=280,
    )
    return {one.pop("name"): one for one in map(json.loads, done.stdout.splitlines())}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_it_is_noticed(mutant: Mutant, outcomes: dict[str, dict[str, Any]]) -> None:
    found = outcomes[mutant.name]
    assert found["count"] == 1, f"the mutant no longer applies: its text is there {found['count']} times ({found})"
    assert found["loaded"], f"{mutant.file} was not what the test imported"
    assert all(Path(path).is_relative_to(ROOT) for path in found["from"].values())
    assert found["uncollected"] == 0, f"it is no program: {found}"
    assert found["code"] == 1, f"{mutant.test} does not notice it: {mutant.promise} ({found})"
    ((node, when, kinds),) = found["failed"]
    assert node.startswith(mutant.test), found
    assert when == "call", found
    assert any(kind in OUR_OWN for kind in kinds), f"it fails for another reason: {kinds}"


def test_one_that_no_longer_applies_is_told() -> None:
    mutant = asdict(MUTANTS[0])
    assert applied({**mutant, "old": "a line that is not there\n"})[1] == 0
    assert applied(mutant)[1] == 1


def test_what_changes_nothing_is_not_taken_for_noticed(outcomes: dict[str, dict[str, Any]]) -> None:
    """The control: the same machinery around a program that is right."""
    found = outcomes[CONTROL]
    assert (found["count"], found["code"], found["passed"], found["failed"]) == (1, 0, 1, [])
    assert found["loaded"]


def test_there_are_as_many_as_there_were() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names)
    assert len(NAMED) == 8, "those that reliability.md names"
    figure("mutants", len(MUTANTS), floor=AT_LEAST)
