"""``ckptier verify``: every place is looked at, what is found is written down, and what still works is said.

What a restore would give is decided by the planner of restores itself, over the same logs,
and over what was found of each copy; so the two cannot tell different stories.
"""

import logging
import threading
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from replicate.config import Config, TierConfig
from replicate.errors import CkptierError, ConfigInvalid, NothingFound, UsageError, from_tier_error
from replicate.generation.proofs import Proof, known_hurt
from replicate.generation.store import RunStore
from replicate.layout import GenerationId
from replicate.opening import Opener, open_configured
from replicate.outlook import LOCAL, Seen, look_ahead
from replicate.restore.holdings import read_holdings
from replicate.restore.plan import Held, TierAnswer
from replicate.storekeeping import record_found
from replicate.verify import Finding, GenerationVerdict, Hurt, Part, Share, VerifyReport, look, look_local
from replicate.verify.findings import Note, NoteKind
from replicate.verify.rotation import Rotation
from replicate.verify.shares import Picker, pick_by_seed, pick_nothing, pick_part
from tiers.clock import Clock, rfc3339
from tiers.errors import TierError
from tiers.metered import Meter

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrubRequest:
    """What is verified.  ``tier`` None: the store and all tiers; ``local``: the store alone.

    ``share`` of the bytes are read: the part whose turn it is, or the one that ``part`` or ``seed`` names.
    """

    tier: str | None = None
    share: Share | None = None
    generation: GenerationId | None = None
    part: Part | None = None
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.part is not None and self.share is not None:
            raise UsageError("--part says how much is read, and so does --read-data", hint="leave one of the two out")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scrubbed:
    """What verifying came to: a report for each place, and what a restore would give from all that answered.

    ``works`` and ``refused`` (why a restore would refuse) are None where not every place was asked for.
    """

    reports: tuple[VerifyReport, ...]
    works: GenerationId | None = None
    refused: CkptierError | None = None
    everywhere: bool = False

    @property
    def unanswered(self) -> tuple[str, ...]:
        """Tiers that said nothing, and may hold something newer."""
        return tuple(report.tier for report in self.reports if report.failure is not None)


def scrub(request: ScrubRequest, config: Config, *, clock: Clock, stop: threading.Event, opener: Opener) -> Scrubbed:
    """Verify what is asked for; raises NothingFound for a generation that is nowhere, and where nothing answered."""
    work = _Scrub(request, config, clock, stop, opener)
    local = request.tier in (None, LOCAL) and (config.local.root.is_dir() or request.tier == LOCAL)
    tiers = () if request.tier == LOCAL else config.select(request.tier)
    seen = [work.store()] if local else []
    seen += [work.tier(settings) for settings in tiers]
    failed = [one.report.failure for one in seen if one.report.failure is not None]
    if failed and len(failed) == len(seen):
        raise _absent(request, failed)
    record_found(config.local, [one.report for one in seen], clock)
    _quarantine(config, seen, clock)
    seen = [replace(one, report=_with_known(config, one.report)) for one in seen]
    outlook = look_ahead(seen, _held(config), everywhere=request.tier is None)
    return Scrubbed(
        reports=outlook.reports,
        works=outlook.works,
        refused=outlook.refused,
        everywhere=request.tier is None,
    )


def _absent(request: ScrubRequest, failures: Sequence[CkptierError]) -> CkptierError:
    """Return why nothing could be verified: a tier that does not answer may have what the others have not."""
    unanswered = [failure for failure in failures if not isinstance(failure, NothingFound)]
    if unanswered or len(failures) == 1:
        return next(iter(unanswered), failures[0])
    hint = "`ckptier list` shows what there is; it may have been retired"
    return NothingFound(f"{request.generation} is in none of the places", hint=hint)


def _quarantine(config: Config, seen: Sequence[Seen], clock: Clock) -> None:
    """Keep the store from using what was found hurt in it: by its dates alone it could not tell."""
    store = RunStore(config.local.root, clock=clock)
    for one in (one for each in seen if each.report.tier == LOCAL for one in each.report.generations):
        if one.verdict is Finding.HURT and one.quarantined is None:
            reason = "; ".join(("damaged: `ckptier verify`", *one.reasons[:3]))
            try:
                store.quarantine(one.generation, reason)
            except CkptierError as error:
                _log.warning("that %s is hurt could not be recorded: %s", one.generation, error.message)


def _with_known(config: Config, report: VerifyReport) -> VerifyReport:
    """Add what earlier runs found: a copy that was hurt stays so until all of it was read and is as sealed."""
    known = {(one.generation, one.manifest_sha256): one for one in known_hurt(config.local) if one.tier == report.tier}
    found = [(one, known.get((str(one.generation), one.manifest_sha256 or ""))) for one in report.generations]
    told = (_still_hurt(one, proof) if proof is not None else one for one, proof in found)
    return replace(report, generations=tuple(told))


def _still_hurt(one: GenerationVerdict, proof: Proof) -> GenerationVerdict:
    if one.verdict is Finding.HURT:
        return one
    words = f"found hurt on {proof.at[:10]} ({proof.detail.removeprefix('verify; ')}), and not read in full since"
    return replace(one, verdict=Finding.HURT, reasons=(words, *one.reasons), hurts=(Hurt(path=None, reason=words),))


def _held(config: Config) -> Held:
    try:
        return read_holdings(config.local).held
    except CkptierError as error:
        _log.info("what a restore would take from the store is not known: %s", error.message)
        return Held()


class _Scrub:
    """One run of ``verify``, place by place."""

    def __init__(
        self, request: ScrubRequest, config: Config, clock: Clock, stop: threading.Event, opener: Opener
    ) -> None:
        self._request = request
        self._config = config
        self._clock = clock
        self._stop = stop
        self._opener = opener

    def store(self) -> Seen:
        """Verify the store."""
        local = self._config.local
        turn, picker, notes = self._turn(LOCAL, str(local.root))
        try:
            if not local.root.is_dir():
                raise NothingFound(f"there is no store at {local.root}", hint="check `store` and `run` in ckptier.toml")
            report = look_local(local, picker=picker, only=self._request.generation)
        except CkptierError as error:
            return Seen(report=_failed(LOCAL, error))
        self._remember(turn, answered=True)
        return Seen(report=replace(report, notes=(*notes, *report.notes)))

    def tier(self, settings: TierConfig) -> Seen:
        """Verify a tier; why it cannot be is in the report."""
        turn, picker, notes = self._turn(settings.name, settings.url)
        only = self._request.generation
        try:
            tier = open_configured(settings, self._opener, self._clock, Meter(), self._stop)
            with closing(tier):
                found = look(tier, self._config.remote, picker=picker, only=only, workers=settings.connections)
        except ConfigInvalid:
            raise
        except TierError as error:
            return _unanswered(settings.name, from_tier_error(error))
        except CkptierError as error:
            return _unanswered(settings.name, error)
        self._remember(turn, answered=found.answered)
        report = replace(found.report, notes=(*notes, *found.report.notes))
        return Seen(report=report, answer=TierAnswer(tier=settings.name, view=found.view, rollback=report.rollback))

    def _turn(self, place: str, url: str) -> tuple[Rotation | None, Picker, tuple[Note, ...]]:
        """Choose what is read at a place: what was asked for, else what is next, else what the day says."""
        request = self._request
        if request.part is not None:
            return None, pick_part(request.part), ()
        if request.share is None:
            return None, pick_nothing, ()
        if request.seed is not None or request.share == Share():
            return None, pick_by_seed(request.share, request.seed or 0), ()
        if request.generation is None and self._config.state.is_dir():
            turn = Rotation(self._config.state / "verify" / f"{place}.json", request.share, place=place, url=url)
            return turn, turn.pick, ()
        day = self._clock.now().date()
        why = "a single generation has no turn" if request.generation else "nothing is remembered here"
        text = f"what was read is the part of {day.isoformat()}, since {why}: run it daily, or say --part"
        return None, pick_by_seed(request.share, day.toordinal()), (Note(kind=NoteKind.SCHEDULE, text=text),)

    def _remember(self, turn: Rotation | None, *, answered: bool) -> None:
        if turn is None:
            return
        try:
            turn.remember(rfc3339(self._clock.now()), answered=answered)
        except CkptierError as error:
            _log.warning("whose turn is next could not be written down, so the same is read again: %s", error.message)


def _unanswered(name: str, error: CkptierError) -> Seen:
    """Return what a tier that cannot be verified adds: what it holds is not known, unless it does not have it."""
    answer = None if isinstance(error, NothingFound) else TierAnswer(tier=name, failure=error)
    return Seen(report=_failed(name, error), answer=answer)


def _failed(place: str, error: CkptierError) -> VerifyReport:
    return VerifyReport(tier=place, damaged=(), refused=(), generations=(), failure=error)
