"""What a restore may come to."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from model.boxes import Box
from model.ledger import Tree

from replicate.errors import CkptierError, IntegrityFailure, NothingFound, TrustFailure, Unreachable
from replicate.layout import GenerationId
from replicate.restore import RestoreReport, RestoreRequest
from tiers.errors import TierError
from tiers.testing import Fault


def read_tree(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder; fails where something else lies in it."""
    found = {}
    for root, _, names in os.walk(folder):
        for name in names:
            path = Path(root, name)
            assert path.is_file()
            assert not path.is_symlink()
            found[str(path.relative_to(folder))] = path.read_bytes()
    return found


class Judge:
    """Restores into folders of its own, and says whether that was right."""

    def __init__(self, folder: Path, sealed: Mapping[str, Tree]) -> None:
        self.folder = folder
        self.sealed = sealed
        self.outcomes: dict[str, int] = {}

    def restored(self, report: RestoreReport, candidates: set[str], request: RestoreRequest) -> None:
        """I15: the newest there is, or the one that was named."""
        wanted = request.generation or max(map(GenerationId.parse, candidates))
        assert report.generation == wanted, f"I15: {report.generation} where {wanted} is the newest"
        assert not report.fell_back

    def restore_to(
        self, box: Box, request: RestoreRequest, candidates: set[str], faults: Sequence[Fault], *, whole: bool = True
    ) -> RestoreReport | None:
        """Restore into a folder; None where it was refused, which has to leave no folder.

        ``whole`` False: a log is damaged, so that an older one may come, with the reason told.
        """
        target = self.folder / "out"
        self.folder.mkdir(exist_ok=True)
        asked = RestoreRequest(to=target, generation=request.generation, tier=request.tier)
        refused: CkptierError | TierError | None = None
        try:
            report = box.restore(asked, faults)
        except (CkptierError, TierError) as error:
            refused = error
        if refused is not None:
            assert not target.exists(), "I11: a restore that failed left its target"
            if not faults and whole:
                assert isinstance(refused, TrustFailure) or not candidates, f"nothing stood in the way: {refused!r}"
            assert isinstance(refused, TrustFailure | Unreachable | NothingFound | IntegrityFailure), repr(refused)
            return None
        try:
            assert report.generation is not None
            assert read_tree(target) == self.sealed[str(report.generation)], "I11: not what was sealed"
            if whole and not faults:
                self.restored(report, candidates, request)
            elif str(report.generation) != str(max(map(GenerationId.parse, candidates))):
                assert report.skipped or report.warnings, "I12: an older one without a word"
        finally:
            shutil.rmtree(target)
        return report

    def falls_back(self, box: Box, tier: str, live: set[str], victim: str) -> None:
        """I12: from the hurt tier alone comes the newest that is whole, and the other is named."""
        report = self.restore_to(box, RestoreRequest(tier=tier), live, (), whole=False)
        if report is None:
            return
        newest = max(map(GenerationId.parse, live))
        if str(newest) != victim:
            assert report.generation == newest
            return
        assert report.generation != newest, "I12: a hurt generation was handed out"
        assert any(skip.generation == newest for skip in report.skipped), "I12: not told"
