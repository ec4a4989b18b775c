"""A process that can be killed at any announced side effect, many times a second.

The zygote imports everything once and then forks a child for each job that it reads
from stdin, one JSON object a line; the answer is the child's wait status.  A child runs
one verb and dies by SIGKILL at the announcement that the job names.  What it did until
then stands in the job's journal, a line for each announcement and for each write that
the tier had accepted.  Threads exist only in children.
"""

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import botocore.loaders
import botocore.session

from replicate.clearing import Clearing
from replicate.config import load_config
from replicate.copyplan import CopyRequest
from replicate.engine import Replicator
from replicate.generation.store import RunStore
from replicate.mending.steps import RepairOptions
from replicate.mending.takeover import TakingOver
from replicate.mending.verbs import Repairing
from replicate.opening import Opener
from replicate.pruning import Pruning
from replicate.restore import RestoreOptions, RestoreRequest
from tiers.bodies import Body
from tiers.clock import Clock
from tiers.effects import Effect, Moment, observing
from tiers.metered import Meter
from tiers.opening import TierSpec, open_tier
from tiers.profiles import PROFILES
from tiers.protocol import Key, ObjectInfo, Part, Tier, Upload
from tiers.retrying import RetryPolicy
from tiers.s3_client import build_client
from tiers.testing.passthrough import PassThroughTier

Verb = Callable[["Journal", dict[str, Any]], dict[str, Any]]


@dataclass(slots=True)
class Journal:
    """What a child tells the outside, each line written at once, so that it survives the kill."""

    fd: int
    lock: threading.Lock = field(default_factory=threading.Lock)

    def line(self, *fields: object) -> None:
        with self.lock:
            os.write(self.fd, json.dumps(fields).encode() + b"\n")


class WatchedTier(PassThroughTier):
    """Below the meter: notes every write that the store accepted."""

    def __init__(self, inner: Tier, journal: Journal) -> None:
        super().__init__(inner)
        self.journal = journal

    def put(self, key: Key, body: Body) -> ObjectInfo:
        info = self.inner.put(key, body)
        self.journal.line("sent", "put", key, 0, body.size)
        return info

    def create(self, key: Key, data: bytes) -> ObjectInfo:
        info = self.inner.create(key, data)
        self.journal.line("sent", "create", key, 0, len(data))
        return info

    def put_part(self, upload: Upload, number: int, body: Body) -> Part:
        part = self.inner.put_part(upload, number, body)
        self.journal.line("sent", "put_part", upload.key, number, body.size)
        return part

    def complete(self, upload: Upload, parts: Sequence[Part]) -> ObjectInfo:
        info = self.inner.complete(upload, parts)
        self.journal.line("sent", "complete", upload.key, 0, 0)
        return info


@contextmanager
def dying(journal: Journal, at: int | None, kinds: Sequence[str] | None) -> Iterator[None]:
    """Die at announcement ``at`` (from 1) of those of ``kinds`` (None: all); each is journalled before it counts."""
    seen = [0]

    def observe(effect: Effect, what: str, moment: Moment) -> None:
        if kinds is not None and effect not in kinds:
            return
        with journal.lock:
            seen[0] += 1
            number = seen[0]
        journal.line("point", effect, what, moment)
        if number == at:
            os.kill(os.getpid(), signal.SIGKILL)

    with observing(observe):
        yield


def watching(journal: Journal, meters: list[Meter]) -> Opener:
    """Return an opener of tiers whose writes are journalled and whose meters are kept."""

    def opener(spec: TierSpec, clock: Clock, meter: Meter, stop: threading.Event) -> Tier:
        meters.append(meter)
        patient = replace(spec, retry=RetryPolicy(base=0.01))
        return open_tier(patient, clock=clock, meter=meter, stop=stop, below=lambda tier: WatchedTier(tier, journal))

    return opener


def replicate(journal: Journal, job: dict[str, Any]) -> dict[str, Any]:
    """``Replicator.replicate_once``, metered."""
    meters: list[Meter] = []
    engine = Replicator(load_config(Path(job["config"])), opener=watching(journal, meters))
    report = engine.replicate_once()
    usage = [meter.snapshot() for meter in meters]
    return {
        "exit_code": int(report.exit_code),
        "committed": [str(one.generation) for _, one in report.committed],
        "failures": [one.failure.message for one in report.results if one.failure],
        "bytes_up": sum(one.sent() for one in usage),
    }


def copy(journal: Journal, job: dict[str, Any]) -> dict[str, Any]:
    """``Replicator.copy`` of everything, from tier to tier."""
    engine = Replicator(load_config(Path(job["config"])), opener=watching(journal, []))
    report = engine.copy(CopyRequest(source=job["source"], target=job["target"], everything=True))
    return {
        "exit_code": int(report.exit_code),
        "outcomes": {str(one.generation): str(one.outcome) for one in report.generations},
    }


def publish(_journal: Journal, job: dict[str, Any]) -> dict[str, Any]:
    """Publish one small generation; with ``defer`` it is sealed later, in the same process."""
    store = RunStore(job["store"], hash_workers=1)
    with store.publish(next_update=job["update"], defer_seal=job.get("defer", False)) as directory:
        (directory / "sub").mkdir()
        (directory / "empty-folder").mkdir()
        (directory / "sub" / "state.bin").write_bytes(b"%d" % job["update"] * 1000)
        (directory / "empty").write_bytes(b"")
    store.seal_staged()
    return {"latest": str(latest.id) if (latest := store.latest()) else None}


def restore(_journal: Journal, job: dict[str, Any]) -> dict[str, Any]:
    """``Replicator.restore``, into the store or a folder."""
    request = RestoreRequest(to=Path(job["to"]) if job.get("to") else None)
    report = Replicator(load_config(Path(job["config"]))).restore(request, options=RestoreOptions(workers=1))
    return {"generation": str(report.generation), "attempt": report.attempt}


def prune(journal: Journal, job: dict[str, Any]) -> dict[str, Any]:
    """``Pruning.prune`` of every place, whatever the share."""
    verb = Pruning(load_config(Path(job["config"])), opener=watching(journal, []))
    report = verb.prune(apply=True, most=True)
    return {
        "failures": [str(place.failure) for place in report.places if place.failure],
        "retired": [str(one.generation) for place in report.places for one in place.retired],
        "swept": [str(one.generation) for place in report.places for one in place.swept],
        "removed": [str(one) for place in report.places for one in place.removed],
    }


def gc(journal: Journal, job: dict[str, Any]) -> dict[str, Any]:
    """``Clearing.gc`` of every tier."""
    report = Clearing(load_config(Path(job["config"])), opener=watching(journal, [])).gc(apply=True)
    return {
        "failures": [str(place.failure) for place in report.places if place.failure],
        "objects": sum(place.report.objects for place in report.places if place.report),
    }


def destroy(journal: Journal, job: dict[str, Any]) -> dict[str, Any]:
    """``Clearing.destroy`` of the configured run."""
    config = load_config(Path(job["config"]))
    report = Clearing(config, opener=watching(journal, [])).destroy(config.run, apply=True)
    return {"objects": sum(place.objects for place in report.places)}


def repair(journal: Journal, job: dict[str, Any]) -> dict[str, Any]:
    """``Repairing.repair`` of every tier, its log rebuilt where it is not whole."""
    verb = Repairing(load_config(Path(job["config"])), opener=watching(journal, []))
    report = verb.repair(RepairOptions(rebuild_log=True), apply=True)
    return {
        "failures": [str(place.failure) for place in report.places if place.failure],
        "done": [str(step.kind) for place in report.places for step in place.done],
        "left": [str(step.generation) for place in report.places for step in place.left],
    }


def takeover(journal: Journal, job: dict[str, Any]) -> dict[str, Any]:
    """``TakingOver.takeover`` of every tier."""
    verb = TakingOver(load_config(Path(job["config"])), opener=watching(journal, []))
    report = verb.takeover("the other one is gone", apply=True)
    return {
        "failures": [str(place.failure) for place in report.places if place.failure],
        "terms": [place.term for place in report.places],
    }


VERBS: dict[str, Verb] = {
    "replicate": replicate,
    "copy": copy,
    "publish": publish,
    "restore": restore,
    "prune": prune,
    "gc": gc,
    "destroy": destroy,
    "repair": repair,
    "takeover": takeover,
}


def child(job: dict[str, Any]) -> None:
    """Run one job to its end or its death."""
    journal = Journal(os.open(job["journal"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600))
    try:
        with dying(journal, job.get("kill_at"), job.get("kinds")):
            result = VERBS[job["verb"]](journal, job)
    except Exception as error:  # noqa: BLE001 - whatever it is, the test that asked has to see it
        journal.line("error", f"{type(error).__name__}: {error}")
        os._exit(1)
    journal.line("result", result)
    os._exit(0)


def warm_up() -> None:
    """Let children find what boto3 reads from its data files in memory."""
    loader = botocore.loaders.create_loader()
    mock.patch.object(botocore.loaders, "create_loader", return_value=loader).start()
    build_client(PROFILES["seaweedfs"], "http://127.0.0.1:9", None, 1).close()


def main() -> None:
    """Serve jobs until stdin ends."""
    logging.basicConfig(level=logging.ERROR)
    warm_up()
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            child(json.loads(line))
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
