"""What an architecture says its tensors are: the value that scan and verification compare a tree with."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The tensors of an architecture.

    ``shapes`` holds every persistent parameter and buffer by name, tied names included.  ``tied``
    holds (name that is written, names that a loader makes from it), so a name among the latter
    may be absent from a release.
    """

    shapes: Mapping[str, tuple[int, ...]]
    tied: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def droppable(self) -> frozenset[str]:
        """Names that a release may leave out, since loaders tie them again."""
        return frozenset(name for _, dropped in self.tied for name in dropped)

    def missing(self, names: frozenset[str]) -> tuple[str, ...]:
        """Return the names that a release with ``names`` lacks."""
        return tuple(sorted(set(self.shapes) - names - self.droppable))

    def unknown(self, names: frozenset[str]) -> tuple[str, ...]:
        """Return those of ``names`` that the architecture does not have."""
        return tuple(sorted(names - set(self.shapes)))
