"""What a round does to a run.  Each fault raises NotFiredError where it did not really happen."""

import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path

from crash.zygote import Zygote
from flows.machines import REMOTE
from soak.invariants import demand
from soak.verdicts import NotFiredError
from soak.world import World, settings_of

from replicate.errors import CkptierError, ExitCode, LocalDisk
from replicate.restore import RestoreRequest
from tiers.bodies import BytesBody
from tiers.clock import SystemClock
from tiers.effects import Effect, Moment, observing
from tiers.protocol import Key
from tiers.testing.faulty import Action, Fault, FaultyTier, flip

LOCAL = (Effect.FSYNC, Effect.RENAME, Effect.LINK, Effect.TRANSACTION)
LIMIT = 60.0
Injection = Callable[[World, "Tools"], None]


class Tools:
    """What faults need: ``zygote`` runs verbs that can be killed, ``mounts`` allows small filesystems."""

    def __init__(self, start: Callable[[], Zygote], *, mounts: bool = False) -> None:
        self._start = start
        self.mounts = mounts

    @cached_property
    def zygote(self) -> Zygote:
        """Started at its first use."""
        return self._start()


def fired(happened: object, what: str) -> None:
    """Raise NotFiredError where a fault did not happen."""
    if not happened:
        raise NotFiredError(what)


def faulty(world: World, *schedule: Fault) -> None:
    """Replicate over a tier with bad days; how the pass ends is its own business, but it must not lie."""
    tiers: list[FaultyTier] = []

    def hook(inner: object) -> FaultyTier:
        tiers.append(FaultyTier(inner, schedule))  # type: ignore[arg-type]
        return tiers[-1]

    report = world.replicate(hook)
    for _, one in report.committed:
        world.auditor.audit({key: data for key, data in world.stored().items() if key.startswith(f"{REMOTE.run}/")})
        world.auditor.acknowledge(str(one.generation))
    fired(any(tier.fired for tier in tiers), f"none of {schedule} was reached")


def killed(world: World, tools: Tools) -> None:
    """Kill a replication (-9) before or after any of its side effects."""
    world.save()
    at = world.random.randint(1, 40)
    journal = world.machine.folder / "journal"
    run = tools.zygote.run("replicate", journal, config=str(settings_of(world.machine)), kill_at=at)
    fired(run.killed, f"the replication ended before its effect {at}")


def killed_restoring(world: World, tools: Tools) -> None:
    """Kill a restore (-9) into the store of another machine, which then goes on."""
    heir = world.new_machine()
    config = str(settings_of(heir))
    at = world.random.randint(1, 20)
    run = tools.zygote.run("restore", heir.folder / "journal", config=config, kill_at=at)
    tools.zygote.finish("restore", heir.folder / "journal", config=config)
    world.move_to(heir)
    check_resumes(world, world.newest())
    world.save()
    fired(run.killed, f"the restore ended before its effect {at}")


def terminated(world: World, _tools: Tools) -> None:
    """Send SIGTERM to the daemon while it works: what is sealed goes up before it ends."""
    made = world.save()
    command = [sys.executable, "-m", "ckptier_command", "replicate", "--config", str(settings_of(world.machine))]
    root = str(Path(__file__).parents[2])
    status = world.machine.config.local.root / "status.json"
    status.unlink(missing_ok=True)
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": root}
    ) as process:
        try:
            clock, deadline = SystemClock(), SystemClock().monotonic() + LIMIT
            while not status.exists() and process.poll() is None and clock.monotonic() < deadline:
                clock.wait(0.005)
            fired(process.poll() is None, "the daemon had ended before it was asked to")
            os.kill(process.pid, signal.SIGTERM)
            _, said = process.communicate(timeout=LIMIT)
        finally:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
    demand(process.returncode == 0, f"the daemon ended with {process.returncode}: {said.decode()[-500:]}")
    world.audit()
    demand(str(made) in world.live, f"{made} was sealed before the signal and is not committed")


def lost_reply(world: World, _tools: Tools) -> None:
    """Lose the answer of a store that did what it was asked."""
    world.save()
    key = world.random.choice(["*/log/*", "*/manifest.json", "*/files/*"])
    verb = "create" if "log" in key else "put"
    faulty(world, Fault(verb=verb, key=key, action=Action.LOST_REPLY))


def outage(world: World, _tools: Tools) -> None:
    """Let a burst of requests fail, longer than the patience of one pass, or shorter."""
    world.save()
    faulty(world, Fault(verb="*", nth=world.random.randint(1, 12), times=world.random.randint(1, 6)))


def corrupted_upload(world: World, _tools: Tools) -> None:
    """Flip a bit on the way up."""
    world.save()
    faulty(world, Fault(verb="put", key="*/files/model.bin", action=Action.CORRUPT))


@contextmanager
def tampered(world: World, key: str, data: bytes | None) -> Iterator[None]:
    """Let an object have other bytes, or none, while the block runs."""
    with world.place.raw() as tier:
        before = world.stored()[key]
        tier.delete(Key(key))
        if data is not None:
            tier.put(Key(key), BytesBody(data))
        fired(world.stored().get(key) == data, f"{key} could not be changed behind ckptier's back")
        try:
            yield
        finally:
            if data is not None:
                tier.delete(Key(key))
            tier.put(Key(key), BytesBody(before))


def victim(world: World) -> tuple[str, bytes]:
    """Choose an object of the newest generation that has bytes."""
    prefix = world.live[world.newest()].manifest_key.rpartition("/")[0] + "/"
    stored = {key: data for key, data in world.stored().items() if key.startswith(prefix) and data}
    key = world.random.choice(sorted(stored))
    return key, stored[key]


def falls_back(world: World) -> None:
    """Check that a restore takes the one before, exactly, and says what it passed over."""
    newest = world.newest()
    report = world.restore_elsewhere()
    demand(str(report.generation) != newest, f"{newest} is hurt and was restored all the same")
    demand(any(str(skip.generation) == newest for skip in report.skipped), f"{newest} was passed over in silence")


def two_to_choose_from(world: World) -> None:
    while len(world.live) < 2:
        world.save()
        world.recover()


def corrupted_byte(world: World, _tools: Tools) -> None:
    """Flip a bit of what lies at the place: noticed before the bytes are handed out."""
    two_to_choose_from(world)
    key, data = victim(world)
    with tampered(world, key, flip(data, world.random.randrange(len(data)))):
        falls_back(world)


def deleted_object(world: World, _tools: Tools) -> None:
    """Delete an object of the newest generation."""
    two_to_choose_from(world)
    key, _ = victim(world)
    with tampered(world, key, None):
        falls_back(world)


def truncated_download(world: World, _tools: Tools) -> None:
    """End what is read early, with an error or as if that were all."""
    world.save()
    world.recover()
    action = world.random.choice([Action.SHORT_READ, Action.SILENT_SHORT_READ])
    tiers: list[FaultyTier] = []

    def hook(inner: object) -> FaultyTier:
        fault = Fault(verb="open", key="*/files/model.bin", action=action)
        tiers.append(FaultyTier(inner, [fault]))  # type: ignore[arg-type]
        return tiers[-1]

    report = world.restore_elsewhere(hook)
    demand(str(report.generation) == world.newest(), "one bad reading is no reason to go back")
    fired(any(tier.fired for tier in tiers), "nothing was read")


def full_disk(world: World, tools: Tools) -> None:
    """Fill the disk at a side effect of sealing: what was there stays.  On a real small disk too, where that may be."""
    before = {str(one.id) for one in world.machine.store.generations()}
    at, seen, hit = world.random.randint(1, 12), [0], list[str]()

    def observe(effect: Effect, what: str, moment: Moment) -> None:
        if moment is Moment.BEFORE and effect in LOCAL:
            seen[0] += 1
            if seen[0] == at:
                hit.append(what)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), what)

    update = world.update
    try:
        with observing(observe):
            world.save()
    except (LocalDisk, OSError):
        world.update = update
    now = {str(one.id): one for one in world.machine.store.generations()}
    for name in now.keys() - before:  # sealed, though what came after it failed
        world.auditor.published.setdefault(
            name, {str(p.relative_to(now[name].files)): p.read_bytes() for p in _files(now[name].files)}
        )
        world.saved_here.add(name)
    demand(before <= now.keys(), "generations are gone since a disk was full")
    fired(hit, f"sealing ended before its effect {at}")
    if tools.mounts:
        small_disk(world)


def _files(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.rglob("*")) if path.is_file()]


def small_disk(world: World) -> None:
    """Restore to a filesystem that is too small: refused with exit 11, and the target stays as it was."""
    point = world.folder / "small"
    point.mkdir(exist_ok=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(point)], check=False, capture_output=True
    )
    fired(mounted.returncode == 0, "a small filesystem could not be mounted")
    try:
        with suppress_disk() as refused:
            world.engine(machine=world.new_machine()).restore(RestoreRequest(to=point / "target"))
        demand(refused or (point / "target").exists(), "it neither failed nor restored")
        if refused:
            demand(list(point.iterdir()) == [], f"it left {list(point.iterdir())}")
    finally:
        subprocess.run(["umount", str(point)], check=True)


@contextmanager
def suppress_disk() -> Iterator[list[CkptierError]]:
    """Yield a list that holds the error of the block, if that is one of the local disk."""
    found: list[CkptierError] = []
    try:
        yield found
    except LocalDisk as error:
        demand(error.exit_code is ExitCode.DISK, "a full disk has an exit code of its own")
        found.append(error)


class JumpingClock(SystemClock):
    """Jumps by hours at each look; ``looks`` counts them."""

    def __init__(self, hours: list[float]) -> None:
        self.hours = hours
        self.looks = 0

    def now(self) -> datetime:
        self.looks += 1
        return super().now() + timedelta(hours=self.hours[self.looks % len(self.hours)])


def clock_jump(world: World, _tools: Tools) -> None:
    """Let the machine's clock jump to and fro by days while it replicates and prunes."""
    clock = JumpingClock([world.random.uniform(-900, 900) for _ in range(7)])
    world.save()
    report = world.replicate(clock=clock)
    demand(report.exit_code == 0, f"a wrong clock stops replication: {report.results}")
    fired(clock.looks, "nobody looked at the clock")


def second_writer(world: World, _tools: Tools) -> None:
    """Let another machine go on; the one before has something left, wakes up, and is told."""
    old = world.machine
    heir = world.new_machine()
    report = world.engine(machine=heir).restore(RestoreRequest())
    demand(str(report.generation) == world.newest(), "the heir goes on from something else")
    world.save(old)
    world.move_to(heir)
    world.save()
    world.recover()
    (result,) = world.engine(machine=old).replicate_once().results
    demand(result.failure is not None and result.failure.exit_code is ExitCode.FENCED, f"the old writer: {result}")
    fired(result.failure is not None, "it had nothing to say")
    shutil.rmtree(old.folder)


def lost_disk(world: World, _tools: Tools) -> None:
    """Lose the machine with its disk; another restores and goes on."""
    old = world.machine
    fired(old.folder.exists(), "there was no disk")
    expected = world.newest()
    shutil.rmtree(old.folder)
    heir = world.new_machine()
    world.engine(machine=heir).restore(RestoreRequest())
    world._machine = heir
    world.saved_here = {str(one.id) for one in heir.store.generations()}
    check_resumes(world, expected)
    world.save()


def lost_tracker(world: World, _tools: Tools) -> None:
    """Lose the journal, in the middle of work or not."""
    world.save()
    with suppress(CkptierError):
        faulty(world, Fault(verb="create", key="*/log/*", times=2))
    root = world.machine.config.local.root
    gone = list(root.glob("tracker.sqlite*"))
    for path in gone:
        path.unlink()
    fired(gone, "there was no tracker")


def stale_head(world: World, _tools: Tools) -> None:
    """Make the hint old, absent or nonsense: nobody needs it."""
    world.save()
    world.recover()
    head = Key(REMOTE.head)
    data = world.random.choice([b'{"format":1,"slot":0}\n', b'{"format":1,"slot":999999}\n', b"\x00nonsense", None])
    with world.place.raw() as tier:
        tier.delete(head)
        if data is not None:
            tier.put(head, BytesBody(data))
    fired(world.stored().get(str(head)) == data, "the hint could not be changed")
    report = world.restore_elsewhere()
    demand(str(report.generation) == world.newest(), "an old hint hid the newest generation")


def check_resumes(world: World, generation: str) -> None:
    """Check that training would go on from a generation, and from its very bytes."""
    resumed = world.machine.store.resume()
    demand(str(resumed.id) == generation, f"training would go on from {resumed.id}, not from {generation}")
    found = {str(path.relative_to(resumed.files)): path.read_bytes() for path in _files(resumed.files)}
    demand(found == dict(world.auditor.published[generation]), f"{generation} came back with other bytes")


FAULTS: Mapping[str, Injection] = {
    "kill": killed,
    "kill-restore": killed_restoring,
    "sigterm": terminated,
    "lost-reply": lost_reply,
    "outage": outage,
    "corrupt-upload": corrupted_upload,
    "corrupt-byte": corrupted_byte,
    "delete-object": deleted_object,
    "truncated-download": truncated_download,
    "full-disk": full_disk,
    "clock-jump": clock_jump,
    "second-writer": second_writer,
    "lost-disk": lost_disk,
    "lost-tracker": lost_tracker,
    "stale-head": stale_head,
}
