"""A publisher that can be killed: see support/crash_child.py, whose processes and journal these are.

A job names the folder of a stage (release/publish_stage.py), whether to resume, and a token.
"""

from pathlib import Path
from typing import Any

from release.authorized_by_hand import PUBLISHER, START
from support import crash_child

from replicate.release.authorizing import read_authorization
from replicate.release.bundle import Prepared
from replicate.release.deciding import NotAuthorized
from replicate.release.policy import load_policy
from replicate.release.publishing.places import Place
from replicate.release.publishing.publishing import open_place, publish
from replicate.release.publishing.tier import TierPlace
from replicate.release.releaselog import open_log
from replicate.release.subject import observe
from tiers.metered import Meter, MeteredTier
from tiers.testing import ManualClock
from tiers.volume import VolumeTier

AUTHORIZATION = "authorization.json"


def release(_journal: crash_child.Journal, job: dict[str, Any]) -> dict[str, Any]:
    """Publish; a refusal is a result."""
    root, clock = Path(job["stage"]), ManualClock(START)
    prepared, policy = Prepared(root / "prepared"), load_policy(root / "policy.toml")
    place: Place = open_place(observe(prepared).destination, clock=clock, token=job.get("token"))
    if "volume" in job:  # a tier that outlives this process, without a server
        place = TierPlace(MeteredTier(VolumeTier("release", Path(job["volume"])), Meter()), "memory://volume")
    try:
        report = publish(
            prepared,
            read_authorization(root / AUTHORIZATION),
            policy,
            place=place,
            log=open_log(policy, clock=clock),
            clock=clock,
            publisher=PUBLISHER,
            resume=job["resume"],
            step=lambda _what: None,
        )
    except NotAuthorized as error:
        return {"refused": [refusal.field for refusal in error.refusals]}
    return {"commit": report.commit}


if __name__ == "__main__":
    crash_child.VERBS["release"] = release
    crash_child.main()
