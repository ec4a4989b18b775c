"""Power cuts: the order of write, fsync and rename as the kernel saw it, and every disk that may be left.

One record of all scenarios serves both, taken by strace; so both are in one file, which one process runs.
"""

import logging
import shutil
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from durability.conftest import LONG, Record
from durability.promises import audited
from durability.recovery import CHECKS, heard
from durability.sites import NEEDED, ORDERED, without
from support.crash_states import Crash, Sampling, crashes, materialise
from support.disk_model import Change, Disk, forgettable
from support.figures import figure
from support.strace_log import Link, Mark, Operation, Rename, Sync

ACKNOWLEDGED = {
    "sealing": 6,
    "replicate-rename": 2,
    "replicate-direct": 2,
    "replicate-modal": 2,
    "verbs-rename": 9,
    "verbs-direct": 9,
    "restoring": 4,
    "mending": 3,
    "copying": 5,
    "pruning": 5,
}
"""Promises that each scenario makes, those of its preparation included."""

SHARES = {
    "sealing": (0.03, 40),
    "replicate-rename": (0.002, 15),
    "replicate-direct": (0.001, 15),
    "replicate-modal": (0.01, 10),
    "verbs-rename": (0.7, 40),
    "verbs-direct": (0.3, 40),
    "restoring": (0.06, 15),
    "mending": (0.06, 6),
    "copying": (0.003, 10),
    "pruning": (0.01, 8),
}
"""The share of all combinations that is tried, and how many states these are at least.

Before a promise the loss of all that was not fsynced is always tried.
"""


def test_the_record_is_what_lies_on_the_disk(recorded: Record) -> None:
    """The parser and the model of a page cache are right as far as the real filesystem can tell."""
    total = 0
    for name, operations in recorded.scenarios.items():
        root = recorded.root / name
        disk = Disk(str(root))
        for operation in operations:
            disk.apply(operation)
        real = {
            str(path.relative_to(root)): None if path.is_dir() else path.read_bytes()
            for path in root.rglob("*")
            if not forgettable(str(path))
        }
        assert disk.tree() == real, name
        total += len(real)
    assert total > 200


@pytest.mark.parametrize("name", ACKNOWLEDGED)
def test_durable_before_it_is_said(recorded: Record, name: str) -> None:
    """write, fsync(file), rename or link, fsync(folder), then what depends on it, then the promise."""
    audit = audited(recorded.scenarios[name], str(recorded.root / name))
    assert audit.faults == []
    assert audit.acknowledged == ACKNOWLEDGED[name]


def test_names_are_given_only_to_what_is_durable(recorded: Record) -> None:
    """How many renames and links were looked at: fewer would mean that the rules stopped matching."""
    found = Counter(type(one) for one in recorded.operations)
    assert found[Rename] > 150
    assert found[Link] > 20
    assert found[Sync] > 900


@pytest.mark.parametrize(("name", "pattern"), [*NEEDED, *ORDERED])
def test_without_one_fsync_it_is_noticed(recorded: Record, name: str, pattern: str) -> None:
    """The checker can fail: every place that calls fsync is one that it misses."""
    assert audited(without(recorded.scenarios[name], pattern), str(recorded.root / name)).faults


def test_a_modal_volume_without_its_commits_is_noticed(recorded: Record) -> None:
    name = "replicate-modal"
    kept = [one for one in recorded.scenarios[name] if not (isinstance(one, Mark) and "commit" in one.text)]
    assert audited(kept, str(recorded.root / name)).faults


def test_a_program_without_one_fsync_is_noticed(inherited: Record) -> None:
    """A record from which an fsync was taken is what the program without it leaves."""
    faults = audited(inherited.scenarios["forgetful"], str(inherited.root / "forgetful")).faults
    assert any("its name is not durable" in fault for fault in faults)


def test_what_a_killed_process_left_is_made_durable_by_its_heir(inherited: Record) -> None:
    """Seen is not durable: an heir that promises what it found fsyncs it first."""
    faults, acknowledged, killed = [], 0, Counter[str]()
    for name, operations in inherited.scenarios.items():
        if name == "forgetful":
            continue
        audit = audited(operations, str(inherited.root / name))
        faults += [f"{name}: {fault}" for fault in audit.faults]
        acknowledged += audit.acknowledged
        killed[name.partition("-killed-")[0]] += 1
    assert faults == []
    assert acknowledged >= sum(killed.values())
    assert len(killed) == 5
    assert min(killed.values()) >= (10 if LONG else 2)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Keep what recovery has to say about itself out of the way."""
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)


def states(operations: Sequence[Operation], root: Path, sampling: Sampling) -> Iterator[Crash]:
    """Yield the states of a scenario, after its preparation."""
    name = root.name
    settled = [number for number, one in enumerate(operations) if isinstance(one, Mark) and "settled" in one.text]
    start = settled[-1] + 1 if settled else 0
    disk = Disk(str(root))
    for operation in operations[:start]:
        disk.apply(operation)
    if settled:
        disk.settle()
    rest = list(operations[start:])
    if name.endswith("-modal"):
        rest = [one for one in rest if not (isinstance(one, Sync) and f"{name}/volume" in one.path)]

    def committed(disk: Disk, said: Mark) -> None:
        if "commit" in said.text:
            disk.settle(str(root / "volume"))

    def on_a_modal_volume(change: Change) -> bool:
        return name.endswith("-modal") and " volume/" in change.what

    yield from crashes(rest, disk, sampling, commits=committed, in_order=on_a_modal_volume)


def recover(crash: Crash, name: str, folder: Path) -> None:
    """Restart from one state; raises what is wrong with it."""
    materialise(crash.tree, folder)
    try:
        CHECKS[name](folder, heard(crash.said))
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("name", CHECKS)
def test_a_power_cut_anywhere_breaks_no_promise(recorded: Record, memory: Path, name: str) -> None:
    share, least = SHARES[name]
    sampling = Sampling(pairs=True, random=200) if LONG else Sampling(share=share, bare=0.2)
    failures, tried = [], 0
    for crash in states(recorded.scenarios[name], recorded.root / name, sampling):
        tried += 1
        try:
            recover(crash, name, memory / "state")
        except Exception as error:  # noqa: BLE001 - collected: one failure says less than their pattern
            failures.append(f"{crash}: {type(error).__name__}: {error}")
    assert not failures, f"{len(failures)} of {tried} states:\n" + "\n".join(failures[:3])
    figure(f"power cuts, {name}: states", tried, floor=least)


@pytest.mark.parametrize(("name", "pattern"), NEEDED)
def test_without_one_fsync_some_state_breaks_a_promise(recorded: Record, memory: Path, name: str, pattern: str) -> None:
    """The simulator can fail: at each place, what an fsync protects is lost without it."""
    operations = without(recorded.scenarios[name], pattern)
    for crash in states(operations, recorded.root / name, Sampling(all_of=0, random=0, share=0)):
        if crash.said and "ack" in crash.said[-1]:
            try:
                recover(crash, name, memory / "mutant")
            except Exception:  # noqa: BLE001 - any failure is what is wanted
                return
    pytest.fail("no state after a promise shows that this fsync is missing")
