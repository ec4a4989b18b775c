"""Small programs whose files ckpt-chaos watches: ``recipe.py WHAT BASE OUT``.

It takes the last number of a name as the step of a checkpoint, and the same sizes in each run as
complete: links with a step in their name lead to what is complete, and time stands still.  Names
are drawn from a number that counts the starts, so that its plan holds while no start repeats
another's.  What a program reads only lies in BASE, which is made once.
"""

import hashlib
import json
import random
import secrets
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal
from unittest import mock

from replicate import RunStore
from replicate.commit import Events
from replicate.config import Config, TierConfig
from replicate.daemon import Daemon, Signals
from replicate.engine import Replicator
from replicate.errors import NothingFound
from replicate.layout import GenerationId, RemoteRun, run_name
from replicate.logbook import Logbook
from replicate.manifest import parse_manifest
from replicate.opening import default_opener
from replicate.restore import RestoreRequest
from replicate.session import Session
from tiers.clock import SystemClock
from tiers.protocol import Key
from tiers.volume import VolumeTier

RUN = run_name("chaos")
STEPS = (10, 20)
Contents = Mapping[str, str]
Mode = Literal["auto", "rename"]


class StandingClock(SystemClock):
    """Says the same time in each run; durations take none."""

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)

    def monotonic(self) -> float:
        return 0.0


class StandingWall(StandingClock):
    """The same with real durations, for what has deadlines."""

    def monotonic(self) -> float:
        return SystemClock.monotonic(self)


def state_of(step: int) -> bytes:
    """Return what training that was never disturbed has after a step."""
    state = b"start"
    for one in STEPS:
        if one <= step:
            state = after(state, one)
    return state


def after(state: bytes, step: int) -> bytes:
    """Train from one step to the next."""
    return hashlib.sha256(state + b"%d" % step).digest() * 40


def save(store: RunStore, step: int, state: bytes, *, defer: bool = False) -> None:
    with store.publish(next_update=step, defer_seal=defer) as directory:
        (directory / "optim").mkdir()
        (directory / "model.bin").write_bytes(state)
        (directory / "optim" / "state.bin").write_bytes(state[:100])


def contents(folder: Path) -> Contents:
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def conclude(out: Path, result: object) -> None:
    """Write what has to be the same whatever happened."""
    (out / "result.json").write_text(json.dumps(result, sort_keys=True))


def link(out: Path, step: int, target: Path) -> None:
    """Let ``ckpt-STEP`` lead to a checkpoint, there already or not yet."""
    name = out / f"ckpt-{step}"
    if not name.is_symlink():
        name.symlink_to(target)


def link_ahead(out: Path, base: Path, generations: Path, *, steps: Sequence[int] = STEPS) -> None:
    """Link what an undisturbed run will have; a name follows from order and contents."""
    for one in sorted((base / "store" / RUN / "generations").iterdir()):
        step = GenerationId.parse(one.name).next_update
        if step in steps:
            link(out, step, generations / one.name)


def tell(step: int) -> None:
    """Say where this start goes on from."""
    sys.stdout.write(f"resumed from step {step}\n")
    sys.stdout.flush()


def resumable(store: RunStore) -> int:
    """Return the step that training would go on from, 0 where there is nothing."""
    try:
        return store.resume().id.next_update
    except NothingFound:
        return 0


def writer(base: Path, out: Path) -> None:
    """Resume, train, and publish; the second time with a deferred seal."""
    store = RunStore(out / "run", run=RUN, clock=StandingClock(), hash_workers=1)
    link_ahead(out, base, store.local.generations)
    resumed = store.resume_or_none()
    step = resumed.id.next_update if resumed is not None else 0
    tell(step)
    state = (resumed.files / "model.bin").read_bytes() if resumed is not None else b"start"
    for following in (one for one in STEPS if one > step):
        state = after(state, following)
        save(store, following, state, defer=following == STEPS[-1])
    store.seal_staged()
    conclude(out, {one.id.next_update: contents(one.files) for one in store.generations()})


def machine(base: Path, out: Path, *, store: Path, volume: Path, mode: Mode = "rename") -> Config:
    """Return a configuration; the mode is told, since a probe is half of all file events."""
    return Config(
        run=RUN,
        store=str(store),
        state_dir=str(out / "state"),
        hash_workers=1,
        poll_seconds=3600,
        tier=(TierConfig(name="volume", url=f"file://{volume}", connections=1, mode=mode),),
        source=base / "ckptier.toml",
    )


def copy_store(base: Path, out: Path) -> Path:
    """Return a store of this start's own, out of the watched folder: linked, since the inodes are what sealing saw."""
    store = out.parent / "store" / RUN
    if not store.exists():
        for path in sorted((base / "store" / RUN).rglob("*")):
            target = store / path.relative_to(base / "store" / RUN)
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.is_dir():
                target.mkdir(exist_ok=True)
            elif "generations" in path.parts:
                target.hardlink_to(path)
            else:
                target.write_bytes(path.read_bytes())
    return store.parent


def completed(session: Session) -> list[int]:
    """Return what the tracker calls replicated."""
    return sorted(one.generation.next_update for one in session.tracker.completed("volume"))


def probing(base: Path, out: Path) -> None:
    """Be a daemon that finds out by itself what its volume can do."""
    daemon(base, out, mode="auto")


def daemon(base: Path, out: Path, mode: Mode = "rename") -> None:
    """Be the daemon, until everything that is sealed is on the volume."""
    volume = out / "volume"
    volume.mkdir(exist_ok=True)
    config = machine(base, out, store=copy_store(base, out), volume=volume, mode=mode)
    signals, clock = Signals(), StandingWall()

    def committed(generation: GenerationId) -> None:
        (place,) = (volume / RUN / "generations").glob(f"{generation}.*")
        link(out, generation.next_update, place)

    def until_all() -> None:
        """Drain once the tracker has all; a restart may find in the log what it has not been told of."""
        while completed(session) != list(STEPS):
            clock.wait(0.005)
        signals.draining.set()
        signals.wake.set()

    events = Events(on_commit=lambda _tier, one: committed(one.generation))
    with (
        Session(config, clock=clock, stop=threading.Event(), opener=default_opener, events=events) as session,
        signals.installed(),
    ):
        tell(max(completed(session), default=0))
        watching = threading.Thread(target=until_all, daemon=True)
        watching.start()
        code = Daemon(session, signals, clock).run()
        done = completed(session)
        watching.join(10)
    if code or done != list(STEPS):
        raise SystemExit(f"the daemon ended with {code!r} and has {done}")
    conclude(out, on_volume(volume))


def on_volume(volume: Path) -> dict[int, Contents]:
    """Read what is committed, object by object."""
    with closing(VolumeTier("reader", volume)) as tier:
        view = Logbook(tier, RemoteRun(RUN)).read(thorough=True)
        assert not view.damaged
        assert not view.refused
        found: dict[int, Contents] = {}
        for commit in view.live:
            with tier.open(Key(commit.manifest_key)) as stream:
                manifest = parse_manifest(stream.read())
            files = {}
            for item in manifest.objects:
                with tier.open(Key(item.key)) as stream:
                    files[item.path] = hashlib.sha256(stream.read()).hexdigest()
                assert files[item.path] == item.sha256
            found[commit.id.next_update] = files
    return found


def restore(base: Path, out: Path) -> None:
    """Restore into a store and into a folder, unless that was done."""
    config = machine(base, out, store=out / "store", volume=base / "volume")
    engine = Replicator(config, clock=StandingWall())
    link_ahead(out, base, config.local.generations, steps=STEPS[-1:])
    tell(resumable(engine.store))
    engine.restore(RestoreRequest(if_absent=True))
    if not (out / "plain").exists():
        engine.restore(RestoreRequest(to=out / "plain"))
    resumed = engine.store.resume()
    conclude(out, {"step": resumed.id.next_update, "store": contents(resumed.files), "plain": contents(out / "plain")})


def naive(_base: Path, out: Path) -> None:
    """Write in place and trust what is there: what the harness has to find."""
    place = out / "ckpt-1.json"
    begun = json.loads(place.read_text()) if place.exists() else {"step": 0}
    tell(begun["step"])
    for step in (step for step in STEPS if step > begun["step"]):
        with place.open("w") as stream:
            json.dump({"step": step, "state": state_of(step).hex()}, stream)
    conclude(out, json.loads(place.read_text()))


def forgetful(_base: Path, out: Path) -> None:
    """Write whole files and never look for them: every step is done again."""
    tell(0)
    for step in STEPS:
        (out / "new").write_bytes(state_of(step))
        (out / "new").replace(out / f"ckpt-{step}")
    conclude(out, state_of(STEPS[-1]).hex())


RECIPES: Mapping[str, Callable[[Path, Path], None]] = {
    "writer": writer,
    "daemon": daemon,
    "probing": probing,
    "restore": restore,
    "naive": naive,
    "forgetful": forgetful,
}


def prepare(base: Path) -> None:
    """Make what recipes read: a store with every step, and a volume that holds it."""
    store = RunStore(base / "store" / RUN, run=RUN, clock=StandingClock(), hash_workers=1)
    for step in STEPS:
        save(store, step, state_of(step))
    (base / "volume").mkdir()
    config = machine(base, base, store=base / "store", volume=base / "volume")
    assert Replicator(config, clock=StandingWall()).replicate_once().exit_code == 0


def start(what: str, base: Path, out: Path) -> None:
    """Run one recipe."""
    out.mkdir(exist_ok=True)
    starts = out.parent / "starts"
    with starts.open("a+") as stream:
        stream.write(".")
        number = stream.tell()
    drawn = random.Random(number)
    with mock.patch.object(secrets, "token_hex", lambda size: drawn.randbytes(size).hex()):
        RECIPES[what](base, out)


if __name__ == "__main__":
    start(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
