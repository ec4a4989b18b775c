"""Where a good copy of a generation is: in the store, or on another tier of the configuration."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from replicate.copying import CopySource
from replicate.errors import CkptierError, from_tier_error
from replicate.keeping import LOCAL
from replicate.layout import GenerationId, LocalRun, RemoteRun
from replicate.log import LogState, LogView
from replicate.logbook import Logbook
from replicate.manifest import GenerationRecord
from replicate.mending.looking import same_line
from replicate.storekeeping import hurt_copies
from replicate.verify import Finding, look_at
from tiers.errors import TierError
from tiers.protocol import Tier


@dataclass(slots=True, kw_only=True)
class GoodCopies:
    """Knows the good copies of what is hurt on one tier.

    ``local`` are the store's validated generations; ``others`` opens another tier by name, and
    keeps it open.  ``notes`` say which of them could not be asked.
    """

    store: LocalRun
    remote: RemoteRun
    state: LogState | None
    run_uid: str
    own: Mapping[int, str]
    local: Mapping[GenerationId, GenerationRecord]
    others: Mapping[str, Callable[[], Tier]]
    notes: list[str] = field(default_factory=list)
    _views: dict[str, tuple[Tier, LogView] | None] = field(default_factory=dict)

    def places(self, generation: GenerationId) -> tuple[str, ...]:
        """Return where a good copy is, the store first, then the tiers as they are declared."""
        record = self.local.get(generation)
        here = (LOCAL,) if record is not None and self._usable(record) else ()
        return (*here, *(name for name in self.others if self.source(name, generation, self.store.root) is not None))

    def source(self, name: str, generation: GenerationId, spool: Path) -> CopySource | None:
        """Return the copy on another tier, as committing sees it; None where there is no good one."""
        opened = self._view(name)
        if opened is None:
            return None
        tier, view = opened
        commit = view.state.find(generation) if view.state else None
        if view.state is None or commit is None or view.state.run_uid != self.run_uid:
            return None
        if commit.id in hurt_copies(self.store, name, (commit,)):
            return None
        if look_at(tier, self.remote, view, commit).verdict is not Finding.INTACT:
            return None
        found = CopySource(tier=tier, remote=self.remote, state=view.state, commit=commit, spool=spool)
        try:
            with found.lease():
                return found if self._usable(found.record) else None
        except (TierError, CkptierError) as error:
            self.notes.append(f"{name} has no good copy of {generation}: {error.message}")
            return None

    def _usable(self, record: GenerationRecord) -> bool:
        return record.run_uid == self.run_uid and same_line(record, self.state, self.own)

    def _view(self, name: str) -> tuple[Tier, LogView] | None:
        if name not in self._views:
            self._views[name] = self._read(name)
        return self._views[name]

    def _read(self, name: str) -> tuple[Tier, LogView] | None:
        try:
            tier = self.others[name]()
            return tier, Logbook(tier, self.remote).read(thorough=True)
        except TierError as error:
            self.notes.append(f"{name} could not be asked for a good copy: {from_tier_error(error).message}")
        except CkptierError as error:
            self.notes.append(f"{name} could not be asked for a good copy: {error.message}")
        return None
