"""What is done under strace: each promise, made once, with a line on stdout at the moment it is made.

Run as ``python scenarios.py SCRATCH``.  A line is JSON: ``{"begin": …}`` names a scenario,
``{"settled": …}`` has all before it count as durable, ``{"ack": …}`` is a promise and
``{"commit": …}`` a modal volume's commit.  Everything has one thread and one connection, so
that the order is the program's.
"""

import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from crash.stage import RUN
from durability.world import TOLD, configure, content, files_of

from replicate import RunStore
from replicate.commit import Committed, Events
from replicate.config import load_config
from replicate.copyplan import CopyRequest
from replicate.engine import Replicator
from replicate.pruning import Pruning
from replicate.restore import RestoreOptions, RestoreRequest
from replicate.tracker import Tracker
from tiers import effects
from tiers.bodies import BytesBody
from tiers.clock import SystemClock
from tiers.effects import Effect, Moment
from tiers.protocol import Key
from tiers.volume import VolumeTier
from tiers.volume_facts import VolumeMode


def say(**document: object) -> None:
    """Print one line, in one write."""
    os.write(1, json.dumps(document, sort_keys=True).encode() + b"\n")


def commit() -> None:
    """Be the commit of a modal volume: durable is what it has seen."""
    say(commit=True)


def reload() -> None:
    """Be its reload: there is only one container."""


def publish(store: RunStore, update: int, *, defer: bool = False) -> str | None:
    """Publish one generation as a trainer would; its id where it is sealed."""
    publication = store.publish(next_update=update, defer_seal=defer)
    with publication as directory:
        for path, data in files_of(update).items():
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            (directory / path).write_bytes(data)
    return str(publication.generation.id) if publication.generation else None


def store_of(folder: Path) -> RunStore:
    return RunStore(folder / "runs" / RUN, run=RUN, hash_workers=1)


def sealing(folder: Path) -> None:
    """Publish, publish deferred and seal, remove."""
    store = store_of(folder)
    first = publish(store, 1)
    say(ack="published", update=1, generation=first)
    say(ack="published", update=2, generation=publish(store, 2))
    publish(store, 3, defer=True)
    say(ack="staged", update=3)
    (sealed,) = store.seal_staged()
    say(ack="published", update=3, generation=str(sealed.id))
    assert first is not None
    say(removing=first)
    store.remove(first)
    say(ack="removed", generation=first)
    store.quarantine(store.generations()[-1].id, "as a test")
    say(ack="quarantined", update=2)


def _replicated() -> Events:
    def committed(tier: str, one: Committed) -> None:
        say(ack="replicated", tier=tier, generation=str(one.generation), slot=one.slot)

    return Events(on_commit=committed)


def replicate(folder: Path) -> None:
    """``replicate --once``."""
    report = Replicator(load_config(folder / "ckptier.toml")).replicate_once(_replicated())
    assert report.exit_code == 0, [one.failure for one in report.results]


def replicating(mode: str) -> Callable[[Path], None]:
    """Return a scenario: two generations go to a volume."""

    def scenario(folder: Path) -> None:
        store = store_of(folder)
        for update in (1, 2):
            publish(store, update)
        (folder / "volume").mkdir()
        configure(folder, {"v": mode}, hooks=TOLD)
        say(settled=True)
        replicate(folder)

    return scenario


def _filled(folder: Path, *volumes: str, **tier: object) -> None:
    """Make two generations, on the first of the volumes too."""
    store = store_of(folder)
    for update in (1, 2):
        publish(store, update)
    for name in volumes:
        (folder / name).mkdir()
    configure(folder, {volumes[0]: "rename"})
    say(settled=True)
    replicate(folder)
    configure(folder, dict.fromkeys(volumes, "rename"), tier=tier)


def restoring(folder: Path) -> None:
    """Restore to a folder, and into an empty store."""
    _filled(folder, "volume")
    (folder / "runs").rename(folder / "lost")
    say(settled=True)
    engine = Replicator(load_config(folder / "ckptier.toml"))
    options = RestoreOptions(workers=1)
    engine.restore(RestoreRequest(to=folder / "out"), options=options)
    say(ack="restored to", update=2)
    found = engine.restore(RestoreRequest(), options=options)
    say(ack="restored", update=2, generation=str(found.generation), attempt=found.attempt)


def mending(folder: Path) -> None:
    """Restore over a local copy that is damaged."""
    _filled(folder, "volume")
    newest = store_of(folder).generations()[0]
    (newest.files / "model.bin").write_bytes(b"damaged")
    say(settled=True)
    found = Replicator(load_config(folder / "ckptier.toml")).restore(
        RestoreRequest(), options=RestoreOptions(workers=1)
    )
    say(ack="restored", update=2, generation=str(found.generation), attempt=found.attempt)


def copying(folder: Path) -> None:
    """Copy from volume to volume."""
    _filled(folder, "volume", "other")
    say(settled=True)
    request = CopyRequest(source="volume", target="other", everything=True)
    report = Replicator(load_config(folder / "ckptier.toml")).copy(request, events=_replicated())
    say(ack="copied", generations=[str(one.generation) for one in report.generations])


def pruning(folder: Path) -> None:
    """Prune a tier and the store."""
    _filled(folder, "volume", keep_last=1, retire_delay_seconds=0)
    configure(folder, {"volume": "rename"}, keep_last=1, tier={"keep_last": 1, "retire_delay_seconds": 0})
    say(settled=True)
    report = Pruning(load_config(folder / "ckptier.toml")).prune(apply=True, most=True)
    for place in report.places:
        assert place.failure is None, place.failure
        for retired in place.retired:
            say(ack="retired", tier=place.place, generation=str(retired.generation))
        for swept in place.swept:
            say(ack="swept", tier=place.place, generation=str(swept.generation))
        for gone in place.removed:
            say(ack="removed", generation=str(gone))


def verbs(mode: VolumeMode) -> Callable[[Path], None]:
    """Return a scenario: the verbs of a volume by themselves, parts included."""

    def scenario(folder: Path) -> None:
        (folder / "volume").mkdir()
        tier = VolumeTier("v", folder / "volume", mode=mode)
        say(settled=True)
        tier.put(Key("a/one"), BytesBody(content(1)))
        say(ack="put", key="a/one", update=1)
        tier.put(Key("a/one"), BytesBody(content(1)))
        say(ack="put", key="a/one", update=1)
        tier.create(Key("log/1"), content(2))
        say(ack="put", key="log/1", update=2)
        data = content(3)
        half = len(data) // 2
        upload = tier.begin_upload(Key("b/parts"), size=len(data), part_size=half)
        say(ack="begun", upload=upload.upload_id)
        parts = []
        for number in (1, 2):
            parts.append(tier.put_part(upload, number, BytesBody(data[half * (number - 1) : half * number])))
            say(ack="part", upload=upload.upload_id, number=number)
        tier.complete(upload, parts)
        say(ack="put", key="b/parts", update=3)
        tier.copy(Key("c/copy"), tier.stat(Key("b/parts")))
        say(ack="put", key="c/copy", update=3)
        say(deleting="a/one")
        tier.delete(Key("a/one"))
        say(ack="deleted", key="a/one")

    return scenario


def killed_before_flush(number: int, act: Callable[[], object]) -> bool:
    """Kill a child before its ``number``-th fsync of a folder, or of a mark; whether it got so far."""
    child = os.fork()
    if child == 0:
        left = number

        def die(effect: Effect, what: str, moment: Moment) -> None:
            nonlocal left
            flush = effect is Effect.FSYNC and moment is Moment.BEFORE
            left -= flush and (what.endswith("/") or "/.ckptier/done/" in what)
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

        code = 1
        try:
            with effects.observing(die):
                act()
            code = 0
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL), code
    return code != 0


def heirs(scratch: Path, verb: str, step: int) -> None:
    """Kill a process before every ``step``-th fsync of a name; another finishes its work and makes the promise.

    What the killed one left, its heir saw in the page cache: nobody fsynced it.
    """
    number, died = 1, True
    while died:
        folder = scratch / f"{verb}-killed-{number}"
        say(begin=folder.name)
        folder.mkdir()
        died = HEIRS[verb](folder, number)
        number += step


def _heir_of_publisher(folder: Path, number: int) -> bool:
    store = store_of(folder)
    died = killed_before_flush(number, lambda: publish(store, 1))
    say(ack="published", update=2, generation=publish(store, 2))
    return died


def _heir_of_replicator(mode: str) -> Callable[[Path, int], bool]:
    def act(folder: Path, number: int) -> bool:
        publish(store_of(folder), 1)
        (folder / "volume").mkdir()
        configure(folder, {"v": mode})
        say(settled=True)
        died = killed_before_flush(number, lambda: replicate(folder))
        replicate(folder)
        with closing(Tracker.open(folder / "runs" / RUN, SystemClock())) as tracker:
            completed = tracker.completed("v")
        for one in completed:
            say(ack="replicated", tier="v", generation=str(one.generation), slot=one.slot)
        return died

    return act


def _heir_of_restorer(*, to: bool) -> Callable[[Path, int], bool]:
    def act(folder: Path, number: int) -> bool:
        _filled(folder, "volume")
        (folder / "runs").rename(folder / "lost")
        say(settled=True)
        request = RestoreRequest(to=folder / "out" if to else None)
        engine, options = Replicator(load_config(folder / "ckptier.toml")), RestoreOptions(workers=1)
        died = killed_before_flush(number, lambda: engine.restore(request, options=options))
        if not to:
            found = engine.restore(request, options=options)
            say(ack="restored", update=2, generation=str(found.generation), attempt=found.attempt)
        elif not (folder / "out").exists():
            engine.restore(request, options=options)
            say(ack="restored to", update=2)
        return died

    return act


HEIRS: dict[str, Callable[[Path, int], bool]] = {
    "publish": _heir_of_publisher,
    "replicate": _heir_of_replicator("rename"),
    "replicate-direct": _heir_of_replicator("direct"),
    "restore": _heir_of_restorer(to=False),
    "restore-to": _heir_of_restorer(to=True),
}


SCENARIOS: dict[str, Callable[[Path], None]] = {
    "sealing": sealing,
    "replicate-rename": replicating("rename"),
    "replicate-direct": replicating("direct"),
    "replicate-modal": replicating("modal"),
    "verbs-rename": verbs(VolumeMode.RENAME),
    "verbs-direct": verbs(VolumeMode.DIRECT),
    "restoring": restoring,
    "mending": mending,
    "copying": copying,
    "pruning": pruning,
}


def forgetting(pattern: str) -> None:
    """Let fsync do nothing for what ends so: a program with that mistake."""
    real = effects.fsync_fd

    def fsync(fd: int, what: str) -> None:
        if not what.endswith(pattern):
            real(fd, what)

    effects.fsync_fd = fsync


def forgetful(scratch: Path, pattern: str) -> None:
    """Let a process with that mistake do the first scenario."""
    folder = scratch / "forgetful"
    say(begin=folder.name)
    folder.mkdir()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            forgetting(pattern)
            sealing(folder)
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def main() -> None:
    """Do the scenarios named, or all, each in a folder of its own.

    ``killed:VERB:STEP`` are heirs, ``forgetful:PATH`` is a program without the fsync of paths that end so.
    """
    scratch = Path(sys.argv[1])
    for name in sys.argv[2:] or SCENARIOS:
        if name.startswith("killed:"):
            _, verb, step = name.split(":")
            heirs(scratch, verb, int(step))
            continue
        if name.startswith("forgetful:"):
            forgetful(scratch, name.partition(":")[2])
            continue
        say(begin=name)
        folder = scratch / name
        folder.mkdir()
        SCENARIOS[name](folder)
    say(end=True)


if __name__ == "__main__":
    main()
