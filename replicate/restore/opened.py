"""A generation that is opened where it lies, to be read from: chosen as a restore chooses, and nothing is written."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from replicate.errors import CkptierError, IntegrityFailure, NothingFound
from replicate.generation.reading import reading
from replicate.layout import GenerationId, LocalRun, RemoteRun
from replicate.manifest import GenerationRecord
from replicate.restore.documents import Provable, read_documents, unfetched
from replicate.restore.holdings import Holdings, ask, read_holdings
from replicate.restore.plan import Candidate, Held, RestoreRequest, Skip, plan_restore
from replicate.restore.ranges import ProvedRanges
from tiers.clock import Clock
from tiers.protocol import Tier


@dataclass(slots=True, kw_only=True)
class OpenedGeneration:
    """A generation whose documents are proved; ``ranges`` proves its bytes.  Retention here leaves it until ``close``.

    ``skipped`` says what was passed over, and why.
    """

    record: GenerationRecord
    ranges: ProvedRanges
    skipped: tuple[Skip, ...]
    _held: contextlib.ExitStack

    @property
    def id(self) -> GenerationId:
        """The generation."""
        return self.record.generation

    def close(self) -> None:
        """Let go of it; safe to repeat."""
        self.ranges.close()
        self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_generation(
    request: RestoreRequest,
    tiers: Sequence[Tier],
    local: LocalRun,
    clock: Clock,
    *,
    remote: RemoteRun,
    workers: int = 4,
) -> OpenedGeneration:
    """Open the generation that a restore would take; raises the CkptierError that tells why there is none.

    All tiers are asked.  What is damaged beyond its documents is found where it is read.
    """
    if request.fresh.max_age is None:
        request = replace(request, fresh=replace(request.fresh, max_age=remote.trust.max_age))
    holdings = _readable(local)
    plan = plan_restore(request, ask(tiers, remote, thorough=True, fresh=request.fresh), holdings.held, now=clock.now())
    by_name = {tier.name: tier for tier in tiers}
    skipped = list(plan.skipped)
    for candidate in plan.candidates:
        held = contextlib.ExitStack()
        held.enter_context(reading(local, candidate.generation))
        try:
            found = read_documents(
                candidate, by_name, remote, plan.run_uid, holdings, only_tiers=request.tier is not None
            )
        except IntegrityFailure as error:
            held.close()
            unanswered = unfetched(candidate, error)
            if unanswered is not None and not request.accept_older:
                raise unanswered from error
            if request.generation is not None:
                raise
            skipped.append(Skip(generation=candidate.generation, place=_places(candidate), reason=error.message))
        except BaseException:
            held.close()
            raise
        else:
            return _opened(found, tuple(skipped), held, workers)
    raise NothingFound(
        f"no generation could be opened{_why(skipped)}",
        hint="`ckptier verify` says what is hurt; `ckptier list` shows what there is",
    )


def _opened(found: Provable, skipped: tuple[Skip, ...], held: contextlib.ExitStack, workers: int) -> OpenedGeneration:
    ranges = ProvedRanges(found.record.files, found.sources, workers=workers)
    return OpenedGeneration(record=found.record, ranges=ranges, skipped=skipped, _held=held)


def _readable(local: LocalRun) -> Holdings:
    """Read the store as far as it can serve: one that is broken must not stand in the way."""
    try:
        return read_holdings(local)
    except CkptierError as error:
        return Holdings(held=Held(), readable=(), fault=f"the store is not used: {error.message}")


def _places(candidate: Candidate) -> str:
    here = ["local"] if candidate.local else []
    return ", ".join([*here, *(replica.tier for replica in candidate.replicas)])


def _why(skipped: Sequence[Skip]) -> str:
    return ": " + "; ".join(f"{one.generation}: {one.reason}" for one in skipped) if skipped else ""
