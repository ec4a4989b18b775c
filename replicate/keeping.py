"""What the verbs that keep and remove have in common: opening tiers, the lock, what this machine knows.

Without being told to apply, a verb only looks: it takes no lock, writes nothing, and says
what it would do.  To apply, it holds the store's replication lock, as the daemon does.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from replicate.config import Config, TierConfig
from replicate.errors import CkptierError, Fenced, from_tier_error
from replicate.generation.disk import read_document
from replicate.generation.lineage import read_lineage
from replicate.generation.local import scan_generations
from replicate.liveness import is_replicating
from replicate.manifest import parse
from replicate.opening import Opener, default_opener, open_configured
from replicate.plan import LocalFact
from replicate.preview import local_fact
from replicate.probes import MAX_RECORD_BYTES, ProbeRecord, record_path
from replicate.session import Session
from replicate.storekeeping import descent_of
from replicate.terms import Descent
from tiers.clock import Clock, SystemClock
from tiers.errors import TierError
from tiers.metered import Meter
from tiers.probing.outcomes import Subject, Verdict
from tiers.protocol import Tier

_log = logging.getLogger(__name__)

LOCAL = "local"
"""What the store is called where a tier could be named."""


class Keeping:
    """One configuration, and the means to look at its tiers or to write to them."""

    def __init__(self, config: Config, *, clock: Clock | None = None, opener: Opener = default_opener) -> None:
        self.config = config
        self.clock = clock or SystemClock()
        self.remote = config.remote
        self.stop = threading.Event()
        self._opener = opener

    def refuse_beside(self, hint: str) -> None:
        """Raise Fenced where a process replicates this store: it holds the tracker and the terms."""
        if is_replicating(self.config.local):
            raise Fenced(f"another process replicates {self.config.local.root}", hint=hint)

    def facts(self) -> list[LocalFact]:
        """Return what deciding needs of the store's generations; one that cannot be read is left alone."""
        if not self.config.local.root.is_dir():
            return []
        facts = []
        for one in scan_generations(self.config.local):
            try:
                facts.append(local_fact(one))
            except CkptierError as error:
                _log.warning("%s is left alone: %s", one.id, error.message)
        return facts

    def descent(self) -> Descent | None:
        """Return the store's place in the run; None where there is no store."""
        lineage = read_lineage(self.config.local) if self.config.local.root.is_dir() else None
        if lineage is None:
            return None
        return descent_of(lineage)

    def session(self) -> Session:
        """Open the store for writing, as a daemon does."""
        return Session(self.config, clock=self.clock, stop=self.stop, opener=self._opener)

    @contextmanager
    def reading(self, settings: TierConfig) -> Iterator[Tier]:
        """Open a tier; a failure of it leaves the block as an error with an exit code."""
        tier = open_configured(settings, self._opener, self.clock, Meter(), self.stop)
        try:
            with translated():
                yield tier
        finally:
            tier.close()

    def note(self, settings: TierConfig) -> str:
        """Warn of a bucket that keeps, and bills, what is deleted: as an earlier probe found, else nothing is known."""
        try:
            data = read_document(record_path(self.config, settings.name), MAX_RECORD_BYTES)
            record = parse(ProbeRecord, data, what="the probe record", max_bytes=MAX_RECORD_BYTES) if data else None
        except CkptierError as error:
            _log.warning("%s", error.message)
            return ""
        if record is None or record.url != settings.url:
            return ""
        kept = any(one.subject == Subject.VERSIONING and one.verdict == Verdict.YES for one in record.outcomes)
        return VERSIONED if kept else ""


VERSIONED = (
    "this bucket keeps old versions: deleting frees nothing until a lifecycle rule "
    "NoncurrentVersionExpiration removes them"
)


@contextmanager
def translated() -> Iterator[None]:
    """Turn a tier's error of the block into one with an exit code."""
    try:
        yield
    except TierError as error:
        raise from_tier_error(error) from error
