"""Committing again what lies complete on a tier and what no entry of the log names."""

from collections.abc import Sequence

from replicate.log import Body, Commit
from replicate.logwriter import LogWriter
from replicate.mending.deciding import in_order
from replicate.mending.steps import Candidate, Kind, Step
from replicate.terms import Descent


def adopt(log: LogWriter, descent: Descent, uploads: Sequence[Candidate]) -> tuple[Step, ...]:
    """Commit them, oldest first, each in the name of the attempt that made it; the log is sound and was read.

    Raises Fenced, TrustFailure, TierError.
    """
    wanted = in_order(uploads)
    if wanted:
        log.ensure_term(descent)
    return tuple(step for one in wanted if (step := _adopt(log, descent, one)) is not None)


def _adopt(log: LogWriter, descent: Descent, one: Candidate) -> Step | None:
    body = Commit(
        generation=one.commit.generation,
        parent=one.commit.parent,
        manifest_key=one.commit.manifest_key,
        manifest_size=one.commit.manifest_size,
        manifest_sha256=one.commit.manifest_sha256,
        total_bytes=one.commit.total_bytes,
        objects=one.commit.objects,
        adopted=True,
    )

    def decide() -> tuple[int, Body] | None:
        state = log.state
        if state is not None and state.find(body.generation) is not None:
            return None
        return log.held_term(descent), body

    of_its_attempt = Descent(run_uid=descent.run_uid, attempt=one.attempt, attempt_id=one.attempt_id)
    entry = log.append_decided(of_its_attempt, decide)
    if entry is None:
        return None
    return Step(kind=Kind.ADOPT, slot=entry.slot, generation=one.commit.id, reason="committed again as it lies there")
