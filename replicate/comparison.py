"""``ckptier compare``: what two generations differ in, the first difference in causal order first."""

import glob
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from replicate.causal import Comparison, first_difference, in_order
from replicate.comparing.documents import Side, compare_sides, loadable
from replicate.comparing.loading import compare_files
from replicate.errors import CkptierError, NothingFound, UsageError
from replicate.generation.disk import read_document
from replicate.generation.local import scan_generations
from replicate.generation.seal import FILES, RECORD
from replicate.generation.validate import Limits
from replicate.keeping import LOCAL, Keeping
from replicate.layout import GenerationId
from replicate.manifest import MAX_GENERATION_BYTES, GenerationRecord, parse_generation
from replicate.rehearsing.scratch import scratch
from replicate.restore import RestoreRequest, restore
from replicate.restore.holdings import ask
from replicate.verify import read_manifest
from tiers.protocol import Tier


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedReport:
    """What differs, the first difference in causal order first.  ``by``: whether digests told, or tensors were loaded.

    ``notes`` say what could not be compared.
    """

    first: str
    second: str
    compared: int
    by: str
    differences: tuple[Comparison, ...]
    notes: tuple[str, ...] = ()

    @property
    def first_difference(self) -> Comparison | None:
        """The one that explains the others."""
        return first_difference(self.differences)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A side, and the copy that its files can be fetched from where they do not lie here."""

    side: Side
    generation: GenerationId | None = None
    tier: str | None = None


class Comparing(Keeping):
    """The verb over one configuration."""

    def compare(self, first: str, second: str, *, tensors: bool = False) -> ComparedReport:
        """Compare two generations or folders; with ``tensors`` also what the files of torch that differ hold.

        Raises UsageError, NothingFound, and what a restore raises where files have to be fetched.
        """
        a, b = self._find(first), self._find(second)
        comparisons = compare_sides(a.side, b.side)
        paths = loadable(a.side, b.side, comparisons) if tensors else ()
        differences = tuple(one for one in comparisons if not one.equal)
        if not paths:
            return _report(a, b, len(comparisons), "by their records and digests", differences)
        with self._folders(paths, a, b) as (folder_a, folder_b):
            loaded = compare_files(paths, folder_a, folder_b, Limits(), self.clock)
        notes = list(loaded.faults)
        untold = loaded.differing - len(loaded.differences)
        if untold:
            notes.append(f"{untold} more values differ")
        return _report(
            a,
            b,
            len(comparisons) + loaded.compared,
            "tensor by tensor where digests differ",
            in_order((*differences, *loaded.differences)),
            tuple(notes),
        )

    def _find(self, named: str) -> _Found:
        """Take ``ID``, ``ID@TIER`` or a folder apart, and read what is recorded of it."""
        text, at, tier = named.partition("@")
        try:
            generation = GenerationId.parse(text)
        except UsageError:
            return _folder(named)
        if tier in ("", LOCAL):
            here = self._here(generation)
            if here is not None:
                return here
            if at:
                raise NothingFound(f"{generation} is not in the store", hint="`ckptier list` shows where it is")
        return self._remote(generation, tier or None)

    def _here(self, generation: GenerationId) -> _Found | None:
        local = self.config.local
        held = scan_generations(local) if local.root.is_dir() else ()
        found = next((one for one in held if one.id == generation), None)
        if found is None:
            return None
        side = Side(name=f"{generation} in the store", record=found.record, folder=found.files)
        return _Found(side=side, generation=generation)

    def _remote(self, generation: GenerationId, tier: str | None) -> _Found:
        failures: list[CkptierError] = []
        for settings in self.config.select(tier):
            try:
                with self.reading(settings) as opened:
                    record = self._record(opened, generation)
            except CkptierError as error:
                failures.append(error)
                continue
            if record is not None:
                side = Side(name=f"{generation} on {settings.name}", record=record, folder=None)
                return _Found(side=side, generation=generation, tier=settings.name)
        if failures:
            raise failures[0]
        raise NothingFound(
            f"{generation} is in none of the places that answered", hint="`ckptier list` shows what there is"
        )

    def _record(self, tier: Tier, generation: GenerationId) -> GenerationRecord | None:
        (answer,) = ask([tier], self.remote)
        if answer.failure is not None:
            raise answer.failure
        state = answer.view.state if answer.view else None
        commit = state.find(generation) if state else None
        if state is None or commit is None:
            return None
        return read_manifest(tier, self.remote, state.run_uid, commit).record()

    @contextmanager
    def _folders(self, paths: Sequence[str], a: _Found, b: _Found) -> Iterator[tuple[Path, Path]]:
        """Give both sides' files, fetched into scratch where they do not lie here, to the block."""
        with ExitStack() as stack:
            folders = []
            for number, one in enumerate((a, b)):
                folder = one.side.folder
                if folder is None:
                    workspace = stack.enter_context(scratch(self.config.local.root.parent))
                    folder = workspace / str(number)
                    self._fetch(one, paths, folder)
                folders.append(folder)
            yield folders[0], folders[1]

    def _fetch(self, found: _Found, paths: Sequence[str], target: Path) -> None:
        patterns = tuple(glob.escape(path) for path in paths)
        request = RestoreRequest(generation=found.generation, tier=found.tier, to=target, paths=patterns)
        with self.reading(self.config.select(found.tier)[0]) as tier:
            restore(request, [tier], self.config.local, self.clock, remote=self.remote)


def _folder(named: str) -> _Found:
    """Read a folder: a generation's own, with its document, or one of files that nothing describes."""
    path = Path(named)
    if not path.is_dir():
        raise UsageError(
            f"{named[:80]!r} is neither a generation nor a folder",
            hint="write an id, ID@TIER or a path; `ckptier list` shows the generations",
        )
    data = read_document(path / RECORD, MAX_GENERATION_BYTES) if (path / FILES).is_dir() else None
    if data is None:
        return _Found(side=Side(name=str(path), record=None, folder=path))
    return _Found(side=Side(name=str(path), record=parse_generation(data), folder=path / FILES))


def _report(
    a: _Found, b: _Found, compared: int, by: str, differences: tuple[Comparison, ...], notes: tuple[str, ...] = ()
) -> ComparedReport:
    return ComparedReport(
        first=a.side.name, second=b.side.name, compared=compared, by=by, differences=differences, notes=notes
    )
