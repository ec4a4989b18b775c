"""The loop: save, replicate, hurt, recover, restore elsewhere, compare, check; for a bounded time."""

import itertools
import os
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from crash.zygote import zygote
from flows.machines import Place
from soak.faults import FAULTS, Injection, Tools
from soak.verdicts import Report, Round, judge
from soak.world import KEEP, World, begin
from support.provider_stores import Unhurried
from support.seaweed import ACCESS_KEY, BUCKET, SECRET_KEY, SeaweedServer

from replicate.config import TierConfig
from replicate.errors import CkptierError
from tiers.clock import SystemClock
from tiers.errors import TierError
from tiers.servers import find_weed
from tiers.testing.s3_emulator import AWS, Credentials, S3Emulator

ROUNDS_A_WORLD = 12
"""Then it begins anew: reading everything back grows with what lies there."""
CLOCK = SystemClock()
Opened = Callable[[], Place]


@contextmanager
def places(folder: Path, wanted: Sequence[str]) -> Iterator[Mapping[str, Opened]]:
    """Start what the wanted kinds of place need; each call of one gives a fresh place."""
    numbers = itertools.count(1)
    keeping: dict[str, Any] = {"keep_last": KEEP, "retire_delay_seconds": 0.0, "connections": 1}

    def volume() -> Place:
        root = folder / f"volume-{next(numbers)}"
        root.mkdir()
        return Place(TierConfig(name="volume", url=f"file://{root}", mode="rename", **keeping))

    def bucket(name: str, endpoint: str, profile: str) -> Opened:
        def opened() -> Place:
            url = f"s3://{BUCKET}/soak/{next(numbers)}"
            return Place(
                TierConfig(name=name, url=url, endpoint_url=endpoint, profile=profile, region="us-east-1", **keeping)
            )

        return opened

    with ExitStack() as stack:
        found: dict[str, Opened] = {}
        if "volume" in wanted:
            found["volume"] = volume
        if "emulator" in wanted:
            known = Credentials(access_key=ACCESS_KEY, secret_key=SECRET_KEY)
            running = stack.enter_context(S3Emulator(AWS, buckets=(BUCKET,), credentials=[known], clock=Unhurried()))
            found["emulator"] = bucket("emulator", running.endpoint_url, "aws")
        if "seaweed" in wanted and find_weed() is not None:
            server = SeaweedServer(folder / "seaweed", access_key=ACCESS_KEY, secret_key=SECRET_KEY, buckets=(BUCKET,))
            (folder / "seaweed").mkdir()
            stack.enter_context(server)
            found["seaweed"] = bucket("seaweed", server.endpoint_url, "seaweedfs")
            stack.callback(server.kill)
        yield found


class Soak:
    """A soak in a folder of its own.  ``faults`` are dealt in an order that the seed fixes, each before any twice."""

    def __init__(self, folder: Path, tools: Tools, opened: Mapping[str, Opened], *, seed: int) -> None:
        self.folder = folder
        self.tools = tools
        self.opened = opened
        self.seed = seed
        self.rounds: list[Round] = []
        self.figures: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._worlds: dict[str, World] = {}
        self._hands: dict[str, list[str]] = {}

    def round(self, faults: Mapping[str, Injection] = FAULTS) -> Round:
        """Make one round; raises nothing but what ends the process."""
        number = len(self.rounds) + 1
        place = self._deal("place", sorted(self.opened))
        fault = self._deal("fault", sorted(faults))
        began = CLOCK.monotonic()
        error: BaseException | None = None
        try:
            self._run(place, faults[fault], number)
        except Exception as raised:  # noqa: BLE001 - the verdict is made of it
            error = raised
            self._forget(place)
        verdict, detail = judge(error, (CkptierError, TierError))
        made = Round(
            number=number, fault=fault, place=place, verdict=verdict, detail=detail, seconds=CLOCK.monotonic() - began
        )
        self.rounds.append(made)
        return made

    def _deal(self, what: str, names: Sequence[str]) -> str:
        hand = self._hands.setdefault(what, [])
        if not hand:
            hand.extend(names)
            self._random.shuffle(hand)
        return hand.pop()

    def _run(self, place: str, inject: Injection, number: int) -> None:
        world = self._worlds.get(place)
        if world is None:
            folder = self.folder / f"world-{number}"
            folder.mkdir()
            world = self._worlds[place] = begin(self.opened[place](), folder, self._random.randrange(1 << 30))
        world.rounds += 1
        inject(world, self.tools)
        world.audit()
        world.recover()
        report = world.restore_elsewhere()
        if str(report.generation) != world.newest():
            raise AssertionError(f"restored {report.generation}, the newest is {world.newest()}")
        if world.rounds >= ROUNDS_A_WORLD:
            self._forget(place)

    def _forget(self, place: str) -> None:
        world = self._worlds.pop(place, None)
        if world is not None:
            self._count(world)

    def _count(self, world: World) -> None:
        self.figures["bytes saved"] += world.saved_bytes
        self.figures["generations saved"] += len(world.auditor.published)
        self.figures.update({f"checks of {name}": count for name, count in world.auditor.checks.items()})

    def finish(self) -> None:
        """Count what the last worlds came to."""
        for place in tuple(self._worlds):
            self._forget(place)


@contextmanager
def soaking(*, seed: int, wanted: Sequence[str], mounts: bool = False) -> Iterator[Soak]:
    """Yield a soak whose processes and files end with the block."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        dir=memory if os.access(memory, os.W_OK) else None, prefix="ckptier-soak-"
    ) as name:
        folder = Path(name)
        with ExitStack() as stack, places(folder, wanted) as opened:
            tools = Tools(lambda: stack.enter_context(zygote(folder / "zygote.log")), mounts=mounts)
            yield Soak(folder, tools, opened, seed=seed)


def report_of(soak: Soak, seconds: float, *, trouble: str = "", failures: Sequence[str] = ()) -> Report:
    """Return the report over what a soak did."""
    soak.finish()
    return Report(
        seed=soak.seed,
        rounds=tuple(soak.rounds),
        seconds=seconds,
        figures=dict(soak.figures),
        trouble=trouble,
        failures=tuple(failures),
    )
