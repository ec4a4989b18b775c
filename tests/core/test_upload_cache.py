"""An upload leaves the page cache as it found it: what was not there is not there afterwards, what was stays."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from core.builders import READ_BACK, REMOTE, LocalSource, Machine, make_source
from core.senders import machine_with

from replicate.plan import plan_upload
from replicate.tracker import PlannedUpload
from replicate.upload import Uploader
from tiers.errors import TierUnavailable
from tiers.footprint import missing
from tiers.memory import MEMORY_CAPABILITIES
from tiers.protocol import Capabilities
from tiers.testing import Fault, content

MIB = 1 << 20
FILES = {"parts.bin": content(9 * MIB), "whole.bin": content(3 * MIB, seed=1), "small.bin": content(MIB // 2, seed=2)}
LARGE = {path: data for path, data in FILES.items() if len(data) > MIB}
IN_PARTS = replace(MEMORY_CAPABILITIES, max_put=4 * MIB)


def sealed(root: Path) -> LocalSource:
    source = make_source(root, FILES, leaf_size=4 * MIB)
    for path in FILES:
        with (source.files / path).open("rb") as stream:
            os.fsync(stream.fileno())
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    assert cached(source) == {}, f"{root} keeps all in memory: put --basetemp on a disk"
    return source


def cached(source: LocalSource) -> dict[str, int]:
    """Return how many bytes of each large file are cached; what a glance at a small one says is not exact."""
    found = {}
    for path, data in LARGE.items():
        with (source.files / path).open("rb", buffering=0) as stream:
            absent = missing(stream.fileno(), 0, len(data))
        assert absent is not None, "the file system cannot tell what is cached"
        found[path] = len(data) - sum(count for _, count in absent)
    return {path: count for path, count in found.items() if count}


def send(machine: Machine, source: LocalSource) -> None:
    machine.tracker.begin(
        "remote", PlannedUpload(generation=source.id, term=1, nonce="n", started_at="then", part_size=None)
    )
    plan = plan_upload(source.record, REMOTE.prefix(source.id, 1, "n"), machine.tier.capabilities)
    assert [item.part_size > 0 for item in plan.objects] == [True, False, False]
    Uploader(machine.tier, machine.tracker, connections=2, stop=machine.stop).upload(plan, source.origin, resumed=False)


@pytest.mark.parametrize("can", [IN_PARTS, replace(READ_BACK, max_put=4 * MIB)], ids=["attested", "read back"])
def test_what_was_read_to_be_sent_is_gone_again(tmp_path: Path, can: Capabilities) -> None:
    machine = machine_with(tmp_path, can)
    source = sealed(tmp_path)
    send(machine, source)
    # The kernel passes over pages that its read-ahead is still bringing in at that moment: rarely any, and a few.
    assert sum(cached(source).values()) <= sum(map(len, LARGE.values())) // 8
    machine.tracker.close()


def test_what_the_trainer_has_in_the_cache_stays(tmp_path: Path) -> None:
    machine = machine_with(tmp_path, IN_PARTS)
    source = sealed(tmp_path)
    for path, data in FILES.items():
        assert (source.files / path).read_bytes() == data
    before = cached(source)
    assert before["parts.bin"] == 9 * MIB
    send(machine, source)
    assert cached(source) == before
    machine.tracker.close()


def test_an_upload_that_fails_leaves_nothing_either(tmp_path: Path) -> None:
    machine = machine_with(tmp_path, IN_PARTS)
    source = sealed(tmp_path)
    machine.schedule(Fault(verb="put_part", nth=3, times=10))
    with pytest.raises(TierUnavailable):
        send(machine, source)
    assert machine.faulty.fired
    assert cached(source) == {}
    machine.tracker.close()
