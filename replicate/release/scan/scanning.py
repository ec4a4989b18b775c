"""The scan of a prepared tree: everything that must not be published, with its place."""

from datetime import datetime
from pathlib import Path

from replicate.errors import CapabilityMissing
from replicate.release.bundle import ExportManifest
from replicate.release.description import ReleaseDescription
from replicate.release.expected import Expected
from replicate.release.findings import ScanReport, Waiver
from replicate.release.scan.inputs import Identities, ScanContext
from replicate.release.scan.waivers import judge

__all__ = ["Expected", "Identities", "scan_tree"]


def scan_tree(
    tree: Path,
    description: ReleaseDescription,
    manifest: ExportManifest,
    *,
    expected: Expected | None,
    identities: Identities,
    waivers: tuple[Waiver, ...],
    now: datetime,
) -> ScanReport:
    """Look at every file of a tree and at every byte of its tensors.

    ``expected`` are the architecture's tensors, None where they are not known.  The same tree,
    description and waivers give the same report, byte for byte, on every day before a waiver expires.
    A report whose ``blocking`` is not empty must not be published.

    Raises LocalDisk where a file cannot be read, CapabilityMissing where a package is not installed.
    """
    try:
        from replicate.release.scan import joining  # noqa: PLC0415 - loads NumPy and the secret scanner
    except ModuleNotFoundError as error:
        raise CapabilityMissing(
            f"scanning a release needs the package {error.name}", hint="pip install 'ckptier[release]'"
        ) from error
    context = ScanContext(
        tree=tree, description=description, manifest=manifest, expected=expected, identities=identities
    )
    found, files, tensors = joining.find_all(context)
    blocking, waived = judge(found, waivers, now)
    return ScanReport(
        export_manifest_sha256=manifest.sha256,
        scanners=joining.scanners(),
        files=files,
        tensors=tensors,
        blocking=tuple(blocking),
        waived=tuple(waived),
        waivers=waivers,
    )
