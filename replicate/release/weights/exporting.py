"""From a generation to safetensors files, in three steps that a release can look at in between."""

from dataclasses import dataclass
from pathlib import Path

from replicate.release.bundle import Kind
from replicate.release.description import ReleaseDescription
from replicate.release.expected import Expected
from replicate.release.source import SourceGeneration
from replicate.release.weights.plan import TransformPlan, plan_transforms, released_names
from replicate.release.weights.reading import StateDict, read_state
from replicate.release.weights.writing import Written, write_weights


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """A state dict that was opened for a release."""

    state: StateDict
    description: ReleaseDescription

    @property
    def kind(self) -> Kind:
        """What is released."""
        return self.description.kind

    def names(self) -> frozenset[str]:
        """Return the names that the release would have, told without its architecture."""
        return released_names(self.state.entries, self.description.weights, self.kind)

    def plan(self, expected: Expected | None) -> TransformPlan:
        """Decide what becomes of every entry."""
        return plan_transforms(self.state.entries, self.description.weights, kind=self.kind, expected=expected)

    def write(self, plan: TransformPlan, folder: Path) -> Written:
        """Write the files into an empty folder."""
        size = self.description.weights.max_shard_size
        return write_weights(plan, self.state, folder, kind=self.kind, max_shard_size=size)


def open_export(source: SourceGeneration, description: ReleaseDescription) -> Export:
    """Open what the description names of the generation; see ``read_state`` for what is refused."""
    return Export(state=read_state(source, description.source), description=description)
