"""Bringing what a repair decides over: the copies on a tier, and the uploads that no entry names."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from replicate import canonical
from replicate.errors import IntegrityFailure
from replicate.gc import Found
from replicate.generation.lineage import Lineage
from replicate.layout import GenerationId, LocalRun, RemoteRun
from replicate.log import LiveCommit, LogState, LogView
from replicate.logbook import read_small
from replicate.manifest import MAX_MANIFEST_BYTES, GenerationRecord, Manifest, parse_manifest
from replicate.mending.deciding import attempt_ids
from replicate.mending.steps import Candidate, CopyFacts, HurtFact
from replicate.storekeeping import hurt_copies
from replicate.verify import Finding, VerifyReport, look_at
from tiers.errors import IntegrityError, ObjectNotFound
from tiers.protocol import Tier

Places = Callable[[GenerationId], tuple[str, ...]]
"""Where a good copy of a generation is, best first."""
Vouched = Callable[[LiveCommit, Manifest], bool]
"""Whether this machine knows an upload from elsewhere than the tier that it lies on."""


def own_attempts(lineage: Lineage | None) -> dict[int, str]:
    """Return the attempts that this store has been in."""
    if lineage is None:
        return {}
    return {past.number: past.id for past in lineage.history} | {lineage.attempt: lineage.attempt_id}


def copy_facts(view: LogView, report: VerifyReport, local: LocalRun, places: Places) -> CopyFacts:
    """Sort the copies on a tier by what verifying found, now or before."""
    before = hurt_copies(local, report.tier, view.live)
    verdicts = {one.generation: one for one in report.generations}
    hurt: list[HurtFact] = []
    intact: set[GenerationId] = set()
    unknown: dict[GenerationId, str] = {}
    for commit in view.live:
        found = verdicts.get(commit.id)
        if found is None or found.verdict is Finding.UNKNOWN:
            unknown[commit.id] = found.reasons[0] if found else "it was committed meanwhile"
            continue
        read = found.bytes_read == found.total_bytes > 0
        if found.verdict is Finding.INTACT and (read or commit.id not in before):
            intact.add(commit.id)
            continue
        words = found.reasons[0] if found.reasons else "an earlier `ckptier verify` found it hurt"
        hurt.append(_hurt(commit.generation, commit.manifest_key, words, places))
    lost = view.state.lost if view.state else ()
    hurt += [_hurt(one.generation, one.manifest_key, one.reason, places, lost=True) for one in lost]
    return CopyFacts(hurt=tuple(hurt), intact=frozenset(intact), unknown=unknown)


def _hurt(generation: str, manifest_key: str, reason: str, places: Places, *, lost: bool = False) -> HurtFact:
    identity = GenerationId.parse(generation)
    return HurtFact(generation=identity, manifest_key=manifest_key, reason=reason, lost=lost, places=places(identity))


def same_line(record: GenerationRecord, state: LogState | None, own: Mapping[int, str]) -> bool:
    """Whether a generation's attempt is not known under another id."""
    known = attempt_ids(state, own).get(record.attempt)
    return known is None or record.attempt_id in known


def unnamed(found: Iterable[Found], view: LogView) -> tuple[Found, ...]:
    """Return the uploads that the log names neither as live nor as retired."""
    state = view.state
    keys = {one.manifest_key for one in state.live} | {one.manifest_key for one in state.retired} if state else set()
    return tuple(one for one in found if not any(key.startswith(one.prefix.text) for key in keys))


@dataclass(frozen=True, slots=True, kw_only=True)
class Finder:
    """Looks for uploads that can be committed again.  ``own`` are the attempts of this store.

    ``claims``: the term is claimed anew before anything is committed.  With ``vouched``, only what it confirms:
    where entries have to be signed, a complete upload is signed for that anybody could have put there.
    """

    tier: Tier
    remote: RemoteRun
    view: LogView
    run_uid: str
    own: Mapping[int, str]
    claims: bool = False
    vouched: Vouched | None = None

    def candidates(self, found: Iterable[Found]) -> tuple[Candidate, ...]:
        """Return the complete uploads of this run whose generation is not live, one of each; raises TierError."""
        best: dict[GenerationId, Candidate] = {}
        for one in sorted(found, key=lambda one: one.prefix.term):
            if self.view.state is None or self.view.state.find(one.prefix.generation) is None:
                candidate = self._candidate(one)
                known = best.get(one.prefix.generation)
                if candidate is not None and (known is None or known.why_not or not candidate.why_not):
                    best[one.prefix.generation] = candidate
        return tuple(self._sole(list(best.values())))

    def _candidate(self, found: Found) -> Candidate | None:
        """Return what would be committed; None for what was never complete, or is no manifest of this run's."""
        key = self.remote.manifest(found.prefix.text)
        try:
            data = read_small(self.tier, key, MAX_MANIFEST_BYTES)
            manifest = parse_manifest(data)
            record = manifest.record()
        except (ObjectNotFound, IntegrityError, IntegrityFailure):
            return None
        if manifest.run_uid != self.run_uid:
            return None
        commit = LiveCommit(
            generation=str(found.prefix.generation),
            parent=record.parent,
            slot=0,
            term=found.prefix.term,
            manifest_key=key,
            manifest_size=len(data),
            manifest_sha256=canonical.sha256(data),
            total_bytes=record.total_bytes,
            objects=len(manifest.objects),
            at=manifest.written_at,
        )
        why_not = self._objection(commit, manifest, record)
        return Candidate(commit=commit, attempt=record.attempt, attempt_id=record.attempt_id, why_not=why_not)

    def _objection(self, commit: LiveCommit, manifest: Manifest, record: GenerationRecord) -> str:
        held = self.view.state.term if self.view.state else None
        if self.vouched is not None and not self.vouched(commit, manifest):
            return (
                "nothing on this machine vouches for it, and a commit would be signed: anybody could have put it there"
            )
        if held is not None and commit.term == held and not self.claims:
            return f"its upload is of the present term {held}, whose writer may still be at it"
        if not same_line(record, self.view.state, self.own):
            return f"attempt {record.attempt} is known under another id than {record.attempt_id}: a fork"
        state = LogState(run_uid=self.run_uid, term=commit.term, writer="", claim_nonce="")
        verdict = look_at(self.tier, self.remote, LogView(state=state), commit)
        return "" if verdict.verdict is Finding.INTACT else "; ".join(verdict.reasons[:2])

    def _sole(self, found: list[Candidate]) -> Iterable[Candidate]:
        """Object to attempts that lie there under two ids, neither of which is known."""
        known = attempt_ids(self.view.state, self.own)
        for one in found:
            others = {each.attempt_id for each in found if each.attempt == one.attempt}
            if one.attempt in known or len(others) == 1 or one.why_not:
                yield one
            else:
                words = f"attempt {one.attempt} lies there under {len(others)} ids: a fork"
                yield Candidate(commit=one.commit, attempt=one.attempt, attempt_id=one.attempt_id, why_not=words)
