"""A machine, a tier behind the counting proxy, and what was predicted set against what passed."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from flows.machines import REMOTE, RUN, Machine, Place
from support.proxy import FaultProxy
from support.seaweed import BUCKET

from replicate.asked import Requests
from replicate.config import TierConfig
from replicate.costing.operations import operations, traits_of
from replicate.layout import GenerationId
from replicate.manifest import GenerationRecord
from replicate.plan import UploadPlan, plan_upload
from replicate.requests import Sending, Stored, manifest_bytes
from tiers.metered import Usage

MIB = 1 << 20
PART = 5 * MIB
__all__ = ["MIB", "PART", "REMOTE", "RUN", "Machine", "Place", "Stage"]


@dataclass(frozen=True, slots=True)
class Stage:
    """One machine and one tier; ``proxy`` is None for a tier that is no store on the network."""

    machine: Machine
    place: Place
    proxy: FaultProxy | None = None

    @property
    def traits(self) -> object:
        """How the tier's verbs become requests."""
        return traits_of(self.place.settings)

    @property
    def paged(self) -> bool:
        """Whether a listing comes page by page."""
        return not traits_of(self.place.settings).whole_listing

    def record(self, generation: GenerationId) -> GenerationRecord:
        """Return the record of a local generation."""
        return self.machine.store.get(generation).record

    def plan(self, generation: GenerationId) -> UploadPlan:
        """Return what the engine plans for it: the same function, with a prefix of the same length."""
        record = self.record(generation)
        with self.place.raw() as tier:
            return plan_upload(
                record,
                REMOTE.prefix(generation, 1, "0" * 16),
                tier.capabilities,
                part_size=self.place.settings.part_size,
            )

    def sending(self, generation: GenerationId, **more: object) -> Sending:
        """Return the generation as something that goes up."""
        return Sending(plan=self.plan(generation), record=self.record(generation), **more)  # type: ignore[arg-type]

    def stored(self, generation: GenerationId) -> Stored:
        """Return the generation as the tier holds it."""
        record = self.record(generation)
        return Stored(record=record, manifest_bytes=manifest_bytes(record, self.plan(generation)))

    def passed(self, work: Callable[[], object]) -> tuple[Usage, Counter[str]]:
        """Return what some work asked of the tier: by verb below the retry, and by operation on the wire."""
        before, seen = self.place.meter.snapshot(), self._counts()
        work()
        return self.place.meter.snapshot() - before, self._counts() - seen

    def _counts(self) -> Counter[str]:
        return Counter(self.proxy.counts) if self.proxy is not None else Counter()

    def check(self, predicted: Requests, seen: tuple[Usage, Counter[str]], *, received: bool = True) -> None:
        """Fail unless verbs, outcomes, bytes and operations are exactly those that were predicted."""
        usage, wire = seen
        assert dict(predicted.usage.requests) == dict(usage.requests)
        assert dict(predicted.usage.bytes_up) == dict(usage.bytes_up)
        if received:
            assert predicted.down == usage.bytes_down
        if self.proxy is not None:
            assert self.on_the_wire(predicted) == wire

    def on_the_wire(self, predicted: Requests) -> Counter[str]:
        """Return the operations that requests are, whatever their status."""
        found: Counter[str] = Counter()
        for (operation, _), count in operations(predicted.asked, traits_of(self.place.settings)).items():
            found[operation.value] += count
        return found


def bucket_place(proxy: FaultProxy, prefix: str, **more: object) -> Place:
    """Return a prefix of the bucket, reached through the proxy."""
    settings: Mapping[str, object] = {
        "name": "bucket",
        "url": f"s3://{BUCKET}/costing/{prefix}",
        "endpoint_url": proxy.endpoint_url,
        "profile": "seaweedfs",
        **more,
    }
    return Place(TierConfig.model_validate(settings))


def volume_place(folder: Path) -> Place:
    """Return a mounted folder."""
    folder.mkdir()
    return Place(TierConfig(name="volume", url=f"file://{folder}"))
