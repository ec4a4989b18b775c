"""A machine that continues a long run: a store with one generation, and a tier with all before it."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from growth.history import AT, ATTEMPT_ID, RUN, RUN_UID, LongLog

from replicate import RunStore
from replicate.config import load_config
from replicate.generation.lineage import Lineage
from replicate.layout import GenerationId
from replicate.looking import Looking
from replicate.session import Session
from tiers.clock import Clock, SystemClock
from tiers.memory import MemoryTier
from tiers.metered import Meter, MeteredTier
from tiers.opening import TierSpec
from tiers.protocol import Tier

T = TypeVar("T")
CLOCK = SystemClock()


class Machine:
    """``count`` generations are on the tier ``m``; every request is counted by verb and outcome."""

    def __init__(self, folder: Path, count: int, *, settings: str = "") -> None:
        self.count = count
        self.memory = MemoryTier("m")
        self.log = LongLog(self.memory)
        self.log.claim()
        self.log.commits(count)
        self.log.hint()
        self.meter = Meter()
        folder.mkdir()
        (folder / "ckptier.toml").write_text(
            f'run = "{RUN}"\nstore = "runs"\n[[tier]]\nname = "m"\nurl = "memory://m"\n{settings}'
        )
        self.config = load_config(folder / "ckptier.toml")
        self.config.local.root.mkdir(parents=True)
        lineage = Lineage(
            run=RUN,
            run_uid=RUN_UID,
            attempt=1,
            attempt_id=ATTEMPT_ID,
            highest_attempt=1,
            highest_sequence=count,
            opened_at=AT,
        )
        self.config.local.lineage.write_bytes(lineage.encode())
        self.store = RunStore(self.config.local.root, hash_workers=1)

    def publish(self) -> GenerationId:
        """Seal one more generation."""
        self.count += 1
        publication = self.store.publish(next_update=self.count * 100)
        with publication as directory:
            (directory / "model.bin").write_bytes(b"%d" % self.count)
        assert publication.generation is not None
        return publication.generation.id

    def open(self, _spec: TierSpec, _clock: Clock, meter: Meter, _stop: threading.Event) -> Tier:
        return MeteredTier(MeteredTier(self.memory, meter), self.meter)

    def session(self) -> Session:
        """Open the replicating side."""
        return Session(self.config, clock=CLOCK, stop=threading.Event(), opener=self.open)

    def looking(self) -> Looking:
        """Open the side that only looks."""
        return Looking(self.config, opener=self.open)

    def asked(self, act: Callable[[], object]) -> dict[tuple[str, str], int]:
        """Return what an action asked of the tier."""
        before = self.meter.snapshot()
        act()
        return dict((self.meter.snapshot() - before).requests)
