"""What has to hold for a run to which something was done: restore, verify, and whether the two agree."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from support.commits import RUN, Made, expected, tree

from replicate.config import Config, TierConfig
from replicate.errors import CkptierError
from replicate.layout import GenerationId, LocalRun, RemoteRun
from replicate.restore import RestoreOptions, RestoreReport, RestoreRequest, restore
from replicate.scrubbing import Scrubbed, ScrubRequest, scrub
from replicate.verify import Share
from tiers.protocol import Tier
from tiers.testing.manual_clock import ManualClock

ALL = Share()


@dataclass(frozen=True, kw_only=True)
class Restored:
    """What a restore came to."""

    report: RestoreReport | None = None
    refusal: CkptierError | None = None

    @property
    def generation(self) -> GenerationId | None:
        return self.report.generation if self.report else None

    @property
    def told(self) -> str:
        """Everything that a person is told."""
        if self.refusal is not None:
            return f"{self.refusal.message} {self.refusal.hint}"
        assert self.report is not None
        return " ".join(
            [*(f"{one.generation} {one.place} {one.reason}" for one in self.report.skipped), *self.report.warnings]
        )


def restored(tiers: Sequence[Tier], to: Path, made: Sequence[Made], *, local: LocalRun | None = None) -> Restored:
    """Restore into a new folder, and fail unless the result is exact or the folder is untouched."""
    here = local or LocalRun(to.parent / "none")
    found = _attempt(tiers, to, here)
    if found.refusal is not None:
        assert found.refusal.hint, found.refusal
        assert not to.exists(), found.refusal
        return found
    (one,) = (one for one in made if one.id == found.generation)
    assert tree(to) == expected(one) | dict.fromkeys(one.record.directories)
    return found


def _attempt(tiers: Sequence[Tier], to: Path, local: LocalRun) -> Restored:
    request, options = RestoreRequest(to=to), RestoreOptions(workers=1)
    try:
        return Restored(report=restore(request, tiers, local, ManualClock(), remote=RemoteRun.of(RUN), options=options))
    except CkptierError as error:
        return Restored(refusal=error)


def verified(tiers: Sequence[Tier], folder: Path, share: Share | None = ALL, **fields: object) -> Scrubbed:
    """Verify all places, by the way that the command goes."""
    config = config_of(tiers, folder)
    opened = {tier.name: tier for tier in tiers}
    request = ScrubRequest(share=share, **fields)  # type: ignore[arg-type]
    clock = ManualClock()
    return scrub(request, config, clock=clock, stop=threading.Event(), opener=lambda spec, *_: opened[spec.name])


def config_of(tiers: Sequence[Tier], folder: Path) -> Config:
    return Config(
        run=RUN,
        store="runs",
        tier=tuple(TierConfig(name=tier.name, url=f"memory://{tier.name}", connections=1) for tier in tiers),
        source=folder / "ckptier.toml",
    )


def told(found: Scrubbed) -> str:
    """Return all that verifying says is wrong."""
    words: list[str] = []
    for report in found.reports:
        words += [f"log slot {damage.slot}: {damage.reason}" for damage in report.damaged]
        words += [
            f"{one.generation} {one.verdict}: {'; '.join(one.reasons)}" for one in report.generations if one.reasons
        ]
        words += [*report.faults, *([report.rollback.message] if report.rollback else [])]
    return "\n".join(words)


def notes(found: Scrubbed) -> str:
    """Return what verifying notes without calling it wrong."""
    return "\n".join(f"{note.kind}: {note.text}" for report in found.reports for note in report.notes)
