"""Getting a generation back: planned purely, fetched into a private staging, published whole or not at all."""

from replicate.restore.lanes import workers_for
from replicate.restore.plan import Outcome, RestorePlan, RestoreRequest, Skip, TierAnswer, plan_restore
from replicate.restore.restoring import RestoreOptions, RestoreReport, restore

__all__ = [
    "Outcome",
    "RestoreOptions",
    "RestorePlan",
    "RestoreReport",
    "RestoreRequest",
    "Skip",
    "TierAnswer",
    "plan_restore",
    "restore",
    "workers_for",
]
