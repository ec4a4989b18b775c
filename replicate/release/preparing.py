"""From a generation and a description to a prepared release: the tree that may be published, and its scan.

Everything is made in a fresh folder beside the target, flushed, and renamed into place whole.  The
tree depends on the generation, the description, the files that it names and the versions of the
libraries that wrote it: not on the clock, the user, the machine, the umask or the working directory.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from replicate.errors import CapabilityMissing, LocalDisk, UsageError
from replicate.formats.safetensors import ITEM_BITS
from replicate.generation.disk import local_io, make_directory, remove_tree, write_new
from replicate.generation.tree import scan as list_tree
from replicate.layout import new_nonce
from replicate.release import gathering
from replicate.release.bundle import (
    Exporter,
    ExportManifest,
    Kind,
    Prepared,
    PublishedFile,
    PublishedTensor,
    Transform,
    content_sha256,
)
from replicate.release.carding import CardFacts, render_card
from replicate.release.configuring import Configured, adapter_config, model_config, other_config
from replicate.release.description import ReleaseDescription
from replicate.release.documents import encode
from replicate.release.expected import Expected
from replicate.release.findings import ScanReport, Waiver
from replicate.release.licenses import check_license
from replicate.release.provenance import FILE as PROVENANCE
from replicate.release.provenance import provenance, source_identity
from replicate.release.scan.scanning import Identities, scan_tree
from replicate.release.sealing import hash_file
from replicate.release.source import SourceGeneration
from replicate.release.subject import Waivers
from replicate.release.verifying.architecture import expected_tensors
from tiers import effects
from tiers.clock import Clock

if TYPE_CHECKING:
    from replicate.release.weights.exporting import Export
    from replicate.release.weights.plan import TransformPlan
    from replicate.release.weights.writing import Written

FILE_MODE = 0o644
FOLDER_MODE = 0o755
LIBRARIES = ("huggingface_hub", "safetensors", "torch")
"""What writes bytes of the tree."""
ATTRIBUTES = b"*.safetensors filter=lfs diff=lfs merge=lfs -text\ntokenizer.json filter=lfs diff=lfs merge=lfs -text\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrepareReport:
    """What was made.  With ``scan.blocking`` it must not be published; ``notes`` say what was changed on the way."""

    prepared: Prepared
    manifest: ExportManifest
    scan: ScanReport
    notes: tuple[str, ...]


def prepare(
    description: ReleaseDescription,
    base: Path,
    source: SourceGeneration,
    out: Path,
    *,
    identities: Identities,
    waivers: tuple[Waiver, ...],
    clock: Clock,
) -> PrepareReport:
    """Make the release in ``out``, a folder that does not exist or is empty.

    ``base`` is the folder of the description.  Raises ConfigInvalid that names the key to correct,
    NothingFound for a generation without weights, IntegrityFailure for weights that cannot be loaded
    safely, CapabilityMissing where a library is missing, LocalDisk; nothing stands in ``out`` then.
    A process that is killed leaves ``.<name>.preparing-…`` beside it, which nobody needs.
    """
    check_license(description.license)
    files = gathering.gather(description, base)
    with _staging(out) as staging:
        making = _Making(description=description, base=base, source=source, files=files, prepared=Prepared(staging))
        manifest, expected, notes = making.tree()
        report = scan_tree(
            making.prepared.tree,
            description,
            manifest,
            expected=expected,
            identities=identities,
            waivers=waivers,
            now=clock.now(),
        )
        making.documents(report)
        _make_durable(staging)
        _put_in_place(staging, out)
    return PrepareReport(prepared=Prepared(out), manifest=manifest, scan=report, notes=notes)


@contextmanager
def _staging(out: Path) -> Iterator[Path]:
    """Yield a private folder beside ``out``; gone after an error, whatever it was."""
    if out.is_symlink() or (out.exists() and (not out.is_dir() or any(out.iterdir()))):
        raise UsageError(f"{out} exists and is no empty folder", hint="name a folder that does not exist yet")
    make_directory(out.absolute().parent)
    staging = out.absolute().parent / f".{out.name}.preparing-{new_nonce()}"
    with local_io(staging, "creating it"):
        staging.mkdir(mode=0o700)
    try:
        yield staging
    except BaseException as error:
        if isinstance(error, LocalDisk) and str(staging) in error.message:
            error.hint = f"make room on the disk of {staging.parent}, or see what is wrong with it; then prepare again"
        if staging.exists():
            remove_tree(staging)
        raise


@dataclass(frozen=True, slots=True, kw_only=True)
class _Making:
    """One release while it is made."""

    description: ReleaseDescription
    base: Path
    source: SourceGeneration
    files: Mapping[str, bytes]
    prepared: Prepared

    def tree(self) -> tuple[ExportManifest, Expected | None, tuple[str, ...]]:
        """Write everything that is published; the manifest comes last."""
        tree = self.prepared.tree
        with local_io(tree, "creating it"):
            tree.mkdir()
        export = _open_export(self.source, self.description)
        expected = self._expected(export)
        plan = export.plan(expected)
        configured = self._configured(plan)
        written = export.write(plan, tree)
        transforms = plan.transforms(written.errors)
        hashed = [hash_file(tree, name) for name in written.shards]
        tensors = tuple(sorted((one for each in hashed for one in each.tensors), key=lambda one: one.name))
        self._beside(configured, written, tensors, transforms)
        rest = sorted({found.path for found in list_tree(tree).files} - set(written.shards))
        files = [one.file for one in hashed] + [hash_file(tree, name).file for name in rest]
        manifest = self._manifest(files, tensors, transforms)
        write_new(self.prepared.manifest, encode(manifest))
        notes = [note for one in configured.values() for note in one.notes]
        return manifest, expected, tuple(notes + _casting_notes(written) + _unknown_notes(expected))

    def _expected(self, export: "Export") -> Expected | None:
        adapter = self.description.kind is Kind.ADAPTER
        named = self.description.files.adapter_config if adapter else self.description.files.config
        return expected_tensors(self.description, self.base, self.base / (named or ""), names=export.names())

    def _configured(self, plan: "TransformPlan") -> dict[str, Configured]:
        """Return the configs as they are published, before a byte of the weights is written."""
        description, configured = self.description, dict[str, Configured]()
        elements: dict[str, int] = {}
        for one in plan.tensors:
            elements[one.to_dtype] = elements.get(one.to_dtype, 0) + one.size * 8 // ITEM_BITS[one.to_dtype]
        for name, data in self.files.items():
            if name == gathering.CONFIG:
                model_class = description.architecture.model_class
                configured[name] = model_config(data, kind=description.kind, model_class=model_class, elements=elements)
            elif name == gathering.ADAPTER_CONFIG and description.adapter is not None:
                configured[name] = adapter_config(data, description.adapter)
            elif name == gathering.GENERATION_CONFIG:
                configured[name] = other_config(data, what="files.generation_config")
        return configured

    def _beside(
        self,
        configured: Mapping[str, Configured],
        written: "Written",
        tensors: tuple[PublishedTensor, ...],
        transforms: tuple[Transform, ...],
    ) -> None:
        """Write what goes in beside the weights."""
        origin = provenance(
            self.description,
            source_identity(self.source.record, self.source.record_bytes),
            exporter(),
            transforms,
            content_sha256(tensors),
        )
        contents = {
            **self.files,
            **{name: one.data for name, one in configured.items()},
            gathering.ATTRIBUTES: ATTRIBUTES,
            gathering.CARD: render_card(self.description, self._facts(written, tensors)),
            PROVENANCE: encode(origin),
        }
        for name, data in sorted(contents.items()):
            write_new(self.prepared.tree / name, data)

    def _facts(self, written: "Written", tensors: tuple[PublishedTensor, ...]) -> CardFacts:
        counts: dict[str, int] = {}
        for one in tensors:
            counts[one.dtype] = counts.get(one.dtype, 0) + _elements(one)
        return CardFacts(
            parameters=sum(counts.values()),
            dtypes=tuple(sorted(counts.items())),
            shards=len(written.shards),
            total_bytes=written.total_size,
            next_update=self.source.record.next_update,
            generation=self.source.record.id,
            tensors=len(tensors),
        )

    def _manifest(
        self, files: list[PublishedFile], tensors: tuple[PublishedTensor, ...], transforms: tuple[Transform, ...]
    ) -> ExportManifest:
        description = self.description
        return ExportManifest(
            kind=description.kind,
            name=description.name,
            version=description.version,
            license=description.license.id,
            source=source_identity(self.source.record, self.source.record_bytes),
            exporter=exporter(),
            files=tuple(sorted(files, key=lambda one: one.path)),
            tensors=tensors,
            content_sha256=content_sha256(tensors),
            transforms=transforms,
        )

    def documents(self, report: ScanReport) -> None:
        """Write what lies beside the tree."""
        write_new(self.prepared.description, encode(self.description))
        write_new(self.prepared.scan_report, encode(report))
        if report.waivers:
            write_new(self.prepared.waivers, encode(Waivers(waivers=report.waivers)))


def exporter() -> Exporter:
    """Return what writes a tree here and now."""
    return Exporter(ckptier=version("ckptier"), libraries={name: version(name) for name in LIBRARIES})


def _open_export(source: SourceGeneration, description: ReleaseDescription) -> "Export":
    try:
        from replicate.release.weights.exporting import open_export  # noqa: PLC0415 - torch, for who needs it
    except ImportError as error:
        raise CapabilityMissing(
            f"weights cannot be exported: {error}", hint="pip install 'ckptier[release]'"
        ) from error
    return open_export(source, description)


def _elements(tensor: PublishedTensor) -> int:
    count = 1
    for length in tensor.shape:
        count *= length
    return count


def _casting_notes(written: "Written") -> list[str]:
    flushed = {name: error.flushed for name, error in sorted(written.errors.items()) if error.flushed}
    return [f"weights.cast: {count} values of {name} became 0" for name, count in flushed.items()]


def _unknown_notes(expected: Expected | None) -> list[str]:
    if expected is not None:
        return []
    return ["the architecture is unknown (adapter.base_path is not given): names and shapes were not compared with it"]


def _put_in_place(staging: Path, out: Path) -> None:
    """Rename, and make the name durable; where that fails the name is taken away again."""
    with local_io(out, "putting the release in place"):
        effects.rename(staging, out)
        try:
            effects.fsync_directory(out.absolute().parent)
        except OSError:
            out.rename(staging)
            raise


def _make_durable(root: Path) -> None:
    """Give files and folders the modes of published ones, and flush them, folders after what is in them."""
    with local_io(root, "flushing"):
        for folder, _, names in os.walk(root, topdown=False):
            for name in names:
                path = Path(folder) / name
                path.chmod(FILE_MODE)
                effects.fsync_file(path)
            Path(folder).chmod(FOLDER_MODE)
            effects.fsync_directory(Path(folder))
