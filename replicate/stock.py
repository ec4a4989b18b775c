"""What a tier holds already of the generation to be sent: the source's manifest, read once."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from replicate.errors import CapabilityMissing, IntegrityFailure
from replicate.layout import GenerationId, RemoteRun
from replicate.log import LiveCommit, LogState
from replicate.manifest import GenerationRecord, ManifestObject
from replicate.reuse import NOTHING, USUAL, Least, Stock, source_commit
from replicate.verify import read_manifest
from tiers.errors import IntegrityError, ObjectNotFound
from tiers.protocol import Key, Tier


@dataclass(slots=True, kw_only=True)
class StockTaker:
    """Finds what stands on one tier; keeps the latest between passes, so that idling asks nothing.

    ``hurt`` names the commits whose copy is known to be damaged.  ``reads`` counts the bytes of
    manifests that were read.
    """

    tier: Tier
    remote: RemoteRun
    enabled: bool = True
    least: Least = USUAL
    hurt: Callable[[LogState], Collection[GenerationId]] = lambda _state: ()
    on_note: Callable[[str, str], None] = lambda _tier, _text: None
    reads: int = 0
    _kept: tuple[str, Stock] | None = None

    @property
    def useful(self) -> bool:
        """Whether anything can be copied there."""
        return self.enabled and (self.tier.capabilities.copy or self.tier.capabilities.copy_part)

    def take(self, state: LogState | None, record: GenerationRecord) -> Stock:
        """Return what the log's parent of ``record``, else its newest, holds; nothing where it cannot be read.

        Raises TierError where the tier does not answer.
        """
        if not self.useful or state is None or all(file.size < self.least.part for file in record.files):
            return NOTHING
        commit = source_commit(state, record, frozenset(map(str, self.hurt(state))))
        if commit is None:
            return NOTHING
        if self._kept is None or self._kept[0] != commit.manifest_sha256:
            self._kept = (commit.manifest_sha256, self._read(state, commit))
        return self._kept[1]

    def keep(self, manifest_sha256: str, record: GenerationRecord, objects: Collection[ManifestObject]) -> None:
        """Note what this process has just committed: the next generation's parent need not be read."""
        if self.useful:
            self._kept = (manifest_sha256, Stock.of(record.id, record.files, _keys(objects), self.least))

    def _read(self, state: LogState, commit: LiveCommit) -> Stock:
        try:
            manifest = read_manifest(self.tier, self.remote, state.run_uid, commit)
        except (IntegrityFailure, CapabilityMissing, IntegrityError, ObjectNotFound) as error:
            self.on_note(self.tier.name, f"nothing is reused of {commit.generation}: {error.message}")
            return NOTHING
        self.reads += commit.manifest_size
        return Stock.of(commit.generation, manifest.record().files, _keys(manifest.objects), self.least)


def _keys(objects: Collection[ManifestObject]) -> dict[str, Key]:
    return {item.path: Key(item.key) for item in objects}
