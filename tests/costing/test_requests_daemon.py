"""The daemon, from its first generation on: what passes the proxy is what was predicted, request for request."""

from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from daemon.stage import RUN, Machine, daemon, publish, until
from support.proxy import FaultProxy
from support.seaweed import BUCKET

from replicate import RunStore
from replicate.costing.operations import operations, traits_of
from replicate.errors import ExitCode
from replicate.layout import GenerationId, RemoteRun
from replicate.plan import plan_upload
from replicate.requests import LogPosition, Sending, replicate_requests
from tiers.profiles import PROFILES

MIB = 1 << 20
REMOTE = RemoteRun.of(RUN)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "machine")


def sending(machine: Machine, identity: str) -> Sending:
    record = RunStore(machine.root, hash_workers=1).get(GenerationId.parse(identity)).record
    prefix = REMOTE.prefix(record.generation, 1, "0" * 16)
    (settings,) = machine.config.tier
    plan = plan_upload(record, prefix, PROFILES["seaweedfs"].capabilities, part_size=settings.part_size)
    return Sending(plan=plan, record=record)


def test_twenty_generations_through_the_daemon(machine: Machine, proxy: FaultProxy, prefix: str) -> None:
    """The first in parts; more than sixteen slots, so that the hint is written again; one pass each.

    The first is sealed before the daemon looks: a store that is only just opened would be one look more.
    """
    settings = {"name": "s3", "url": f"s3://{BUCKET}/{prefix}", "endpoint_url": proxy.endpoint_url}
    machine.configure({**settings, "profile": "seaweedfs", "part_size": 5 * MIB}, poll_seconds=3600)
    predicted: Counter[str] = Counter()
    at = LogPosition()
    first = publish(machine.root, 1, 11 * MIB)
    with daemon(machine) as running:
        for update in range(1, 21):
            identity = first if update == 1 else publish(machine.root, update)
            until(partial(machine.holds, "s3", identity), "it is committed")
            asked, at = replicate_requests([sending(machine, identity)], at, listing_pages=False)
            traits = traits_of(machine.config.tier[0])
            for (operation, _), count in operations(asked.asked, traits).items():
                predicted[operation.value] += count
            assert proxy.counts == predicted, update
        assert running.terminated() == ExitCode.OK
    assert proxy.counts == predicted
    assert (at.next_slot, at.head) == (21, 16)
    assert predicted["UploadPart"] == 3
