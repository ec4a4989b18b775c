"""What ``restore --dry-run`` says of money: on each tier that a card is configured for."""

from collections.abc import Sequence
from datetime import datetime
from fnmatch import fnmatchcase

from replicate.config import Config, TierConfig
from replicate.costing.flow import position_in, price_restore
from replicate.errors import CkptierError
from replicate.manifest import GenerationRecord
from replicate.priced import Priced
from replicate.requests import Fetching, Stored
from replicate.restore.holdings import Holdings
from replicate.restore.plan import Candidate, RestorePlan, RestoreRequest, TierAnswer
from replicate.restore.restoring import Price
from replicate.verify import read_manifest
from tiers.errors import TierError
from tiers.protocol import Tier


def restore_price(config: Config, request: RestoreRequest, tiers: Sequence[Tier], now: datetime) -> Price:
    """Return what prices a restore's plan; it reads the manifest once, since the leaves are in it."""

    def price(plan: RestorePlan, answers: Sequence[TierAnswer], holdings: Holdings) -> tuple[Priced, ...]:
        best = plan.candidates[0]
        at_hand = request.to is None and holdings.find(best.generation) is not None and best.local
        try:
            record = None if at_hand else _record(config, plan, best, tiers)
        except (CkptierError, TierError) as error:
            text = f"not priced: the manifest of {best.generation} cannot be read: {error}"
            return tuple(Priced(tier=one.name, warning=text) for one in config.tier if one.rates is not None)
        positions = {one.tier: position_in(one.view) for one in answers if one.view is not None}
        found = (
            price_restore(config, one, positions[one.name], _fetching(request, best, record, one, holdings), now)
            for one in config.tier
            if one.name in positions
        )
        return tuple(one for one in found if one is not None)

    return price


def _record(config: Config, plan: RestorePlan, best: Candidate, tiers: Sequence[Tier]) -> GenerationRecord | None:
    if not best.replicas:
        return None
    first = best.replicas[0]
    tier = next(tier for tier in tiers if tier.name == first.tier)
    return read_manifest(tier, config.remote, plan.run_uid or "", first.commit).record()


def _fetching(
    request: RestoreRequest, best: Candidate, record: GenerationRecord | None, settings: TierConfig, holdings: Holdings
) -> Fetching:
    """Return what comes from one tier: the first that has the generation serves, the others show their manifest.

    Where all are read at once any of them may serve all: what is said of each is then the most it can be.
    """
    replica = next((one for one in best.replicas if one.tier == settings.name), None)
    if replica is None or record is None:
        return Fetching(stored=None)
    here = [] if request.tier is not None else [file for _, held in holdings.contents for file in held.files]
    chosen = [file.path for file in record.files if any(fnmatchcase(file.path, one) for one in request.paths)]
    return Fetching(
        stored=Stored(record=record, manifest_bytes=replica.commit.manifest_size),
        files=frozenset(chosen) if request.paths else None,
        here=frozenset((file.sha256, file.size) for file in here),
        serves=request.spread or replica is best.replicas[0],
    )
