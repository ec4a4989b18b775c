"""What a repo on the Hub takes up, what of it is only history, and whether the Hub checks digests.

For status, cost and probes: requests beyond the verbs of a tier.
"""

import hashlib
import secrets
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import TypeVar

from tiers.clock import Clock, SystemClock
from tiers.failures import Where
from tiers.hub import client_for
from tiers.hub_errors import mapped
from tiers.hub_http import HubClient
from tiers.hub_lfs import LargeFiles
from tiers.hub_repo import HubRepo
from tiers.opening import TierSpec

HISTORY_STAYS = (
    "deleting files from a Hub repo frees nothing: they stay in its history and on the bill until the history is "
    "squashed (HfApi.super_squash_history, which cannot be undone) and the Hub has collected them, up to 36 hours later"
)
"""What to tell whoever prunes a tier on the Hub."""
COMMIT_PAGES = 40
"""Pages of the history that are counted, of at least 50 commits each; the Hub itself slows down after some thousand."""
_PROBE_BYTES = 1024

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class HubUsage:
    """The size of a whole repo, outside the tier's prefix too.

    ``used_bytes`` is what the Hub bills for (None where it does not say), ``visible_bytes``
    and ``files`` what the branch has now.  ``commits`` is a lower bound unless ``all_commits``.
    """

    used_bytes: int | None
    visible_bytes: int
    files: int
    commits: int
    all_commits: bool

    @property
    def history_bytes(self) -> int | None:
        """Bytes that are billed and that only the history holds; None where the Hub does not say what it bills."""
        return None if self.used_bytes is None else max(0, self.used_bytes - self.visible_bytes)

    @property
    def warning(self) -> str:
        """What to do about the history, with its size; empty where there is none to speak of."""
        if not self.history_bytes:
            return ""
        return f"{self.history_bytes} of {self.used_bytes} bytes are history only: {HISTORY_STAYS}"


def usage(spec: TierSpec, *, clock: Clock | None = None) -> HubUsage:
    """Measure the repo of a tier: one request, and one for each 1,000 files and 50 commits.  Raises TierError."""

    def measure(client: HubClient) -> HubUsage:
        repo = HubRepo(client)
        state = repo.state(storage=True)
        sizes = [entry.size for entry in repo.tree(state.sha, "")]
        pages = [len(page) for page in repo.commits(state.sha, COMMIT_PAGES)]
        return HubUsage(
            used_bytes=state.used_storage,
            visible_bytes=sum(sizes),
            files=len(sizes),
            commits=sum(pages),
            all_commits=len(pages) < COMMIT_PAGES,
        )

    return _ask(spec, clock, "usage", measure)


def refuses_wrong_bytes(spec: TierSpec, *, clock: Clock | None = None) -> bool:
    """Find out whether the Hub refuses bytes that are not those of the digest that was announced for them.

    Announces an object of 1 KiB and sends another.  Nothing is committed, so what the Hub takes
    is an orphan that it collects.  Only what it answers at once counts.  Raises TierError.
    """
    announced = hashlib.sha256(secrets.token_bytes(_PROBE_BYTES)).hexdigest()

    def probe(client: HubClient) -> bool:
        HubRepo(client).state()  # nothing is sent to a repo that is not private
        return not LargeFiles(client, checked=True).accepts(secrets.token_bytes(_PROBE_BYTES), announced)

    return _ask(spec, clock, "probe", probe)


def _ask(spec: TierSpec, clock: Clock | None, operation: str, act: Callable[[HubClient], Result]) -> Result:
    client = client_for(spec, clock if clock is not None else SystemClock())
    with closing(client), mapped(Where(tier=spec.name, operation=operation, key=""), client.place.repo):
        return act(client)
