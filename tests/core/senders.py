"""One generation on its way to one tier."""

from pathlib import Path

from core.builders import LEAF, REMOTE, LocalSource, Machine, make_source

from replicate.manifest import ManifestObject
from replicate.plan import plan_upload
from replicate.tracker import PlannedUpload
from replicate.upload import Progress, Uploader
from tiers.memory import MemoryStore, MemoryTier
from tiers.protocol import Capabilities, Key
from tiers.testing import Fault, content, read_all

BIG = content(5 * LEAF + 7)
FILES = {"big.bin": BIG, "small.bin": content(20, seed=1), "empty": b""}


class Sender:
    """One generation on its way to a machine's tier."""

    def __init__(self, machine: Machine, root: Path, files: dict[str, bytes], part_size: int | None = None) -> None:
        self.machine = machine
        self.source: LocalSource = make_source(root, files)
        self.planned = PlannedUpload(
            generation=self.source.id, term=1, nonce="n", started_at="then", part_size=part_size
        )
        self.prefix = REMOTE.prefix(self.source.id, 1, "n")
        self.progress: list[Progress] = []
        machine.tracker.begin("remote", self.planned)

    def send(
        self, *faults: Fault, resumed: bool = False, changed: tuple[str, ...] = (), connections: int = 2
    ) -> tuple[ManifestObject, ...]:
        """Upload through these faults."""
        self.machine.schedule(*faults)
        can = self.machine.tier.capabilities
        plan = plan_upload(self.source.record, self.prefix, can, part_size=self.planned.part_size)
        uploader = Uploader(
            self.machine.tier,
            self.machine.tracker,
            connections=connections,
            stop=self.machine.stop,
            on_progress=self.progress.append,
        )
        done = uploader.upload(plan, self.source.origin, changed, resumed=resumed)
        self.machine.faulty.assert_all_fired()
        return done

    def check_arrived(self, done: tuple[ManifestObject, ...], files: dict[str, bytes]) -> None:
        """Fail unless the tier has exactly the sealed bytes under the keys that are named."""
        tier = MemoryTier("reader", self.machine.store)
        assert {item.path: read_all(tier.open(Key(item.key))) for item in done} == files
        assert [item.sha256 for item in done] == [file.sha256 for file in self.source.record.files]

    def requests(self, verb: str) -> int:
        return self.machine.recorder.count(verb)


def machine_with(tmp_path: Path, capabilities: Capabilities) -> Machine:
    """Return a machine whose tier can do no more than this."""
    return Machine(tmp_path / "other", MemoryStore(), capabilities=capabilities)
