"""The scan once more, by those who answer for a release: a report that lies in a folder can be written by anybody.

What the report's own machine knew (its user and host, the run, the architecture) is not known
here; all else is looked for again, in the bytes as they are now.
"""

from datetime import datetime

from replicate.errors import CapabilityMissing, IntegrityFailure
from replicate.release.bundle import Prepared
from replicate.release.description import ReleaseDescription
from replicate.release.documents import read
from replicate.release.findings import Finding
from replicate.release.scan.inputs import Identities, ScanContext
from replicate.release.scan.waivers import judge
from replicate.release.subject import Observed

_NOBODY = Identities(user="", host="", run="", run_uid="")


def unanswered(prepared: Prepared, observed: Observed, now: datetime) -> tuple[Finding, ...]:
    """Return what is found in a prepared release and is not answered for by a waiver of its report.

    Reads every byte.  Raises LocalDisk, and CapabilityMissing where a package is not installed.
    """
    try:
        from replicate.release.scan import joining  # noqa: PLC0415 - loads NumPy and the secret scanner
    except ModuleNotFoundError as error:
        raise CapabilityMissing(
            f"scanning a release needs the package {error.name}", hint="pip install 'ckptier[release]'"
        ) from error
    description = read(ReleaseDescription, prepared.description, what=prepared.description.name)
    context = ScanContext(
        tree=prepared.tree, description=description, manifest=observed.manifest, expected=None, identities=_NOBODY
    )
    found, _, _ = joining.find_all(context)
    answering = tuple(
        waiver
        for waiver in observed.report.waivers
        if any(
            (waiver.rule, waiver.path) == (one.rule, one.path) and waiver.place in ("", one.place) for one, _ in found
        )
    )
    return tuple(judge(found, answering, now)[0])


def require_scanned(prepared: Prepared, observed: Observed, now: datetime) -> None:
    """Raise IntegrityFailure for a report without findings of a release that has some.

    Findings that the report does tell are refused by those who decide.
    """
    found = () if observed.report.blocking else unanswered(prepared, observed, now)
    if found:
        first = found[0]
        at = f" at {first.place}" if first.place else ""
        raise IntegrityFailure(
            f"{prepared.scan_report.name} does not tell what is there: {len(found)} findings, "
            f"first {first.rule} in {first.path}{at}: {first.detail}",
            hint="do not sign it: run `ckptier release prepare` again, and find out who changed the folder",
        )
