"""``ckptier keys adopt`` and ``rotate``: the lines that go into configuration and keyring, from the logs as they are.

Both only read.  What they print is trusted from then on, so it is for somebody who knows that
these logs are right.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from replicate.errors import IntegrityFailure, NothingFound
from replicate.keeping import Keeping, translated
from replicate.layout import FOLD_EVERY, RemoteRun
from replicate.logbook import Logbook
from replicate.signing.anchor import Anchor
from replicate.signing.keyring import block, table
from replicate.signing.keys import PublicKey
from replicate.signing.lines import key_id
from replicate.signing.trust import UNSIGNED


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnd:
    """Where one tier's log ends: ``anchor`` None where it is empty; and what it holds, for whoever has to judge it.

    ``given_up`` is a slot that a repair gave up: an anchor vouches for nothing that lies before it.
    """

    tier: str
    anchor: Anchor | None
    given_up: int | None
    run_uid: str | None
    generations: int
    newest: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLines:
    """What was found, and the lines to paste."""

    ends: tuple[LogEnd, ...]
    lines: str


class KeyKeeping(Keeping):
    """The verbs over one configuration."""

    def adopt(self, tier: str | None) -> KeyLines:
        """Pin the logs as they are, signed or not; raises NothingFound where they are empty."""
        ends = self._ends(tier, replace(self.remote, trust=UNSIGNED))
        broken = next((end for end in ends if end.given_up is not None), None)
        if broken is not None:
            raise IntegrityFailure(
                f"{broken.tier}: a repair gave slot {broken.given_up} up, so an anchor vouches for nothing before it",
                hint=f"go on unsigned until the log has passed its next {FOLD_EVERY}th slot, and adopt it then",
            )
        pinned = _pinned(ends)
        if not pinned:
            raise NothingFound("there is no log entry yet, so nothing to adopt", hint="sign from the first one on")
        header = "[trust]" if self.remote.trust.keyring is None else "# add to [trust]"
        return KeyLines(ends=ends, lines=f"{header}\nunsigned_until = {table(pinned)}")

    def rotate(self, new: PublicKey) -> KeyLines:
        """Say how the keyring goes on with a new key where the logs end now; raises Fenced beside a daemon."""
        self.refuse_beside("stop it first: what it still writes would be signed by a key that is given up")
        ends = self._ends(None, self.remote)
        first: dict[str, int | str] = {end.tier: end.anchor.slot + 1 if end.anchor else 0 for end in ends}
        last = table(_pinned(ends))
        weak = [
            f"# {end.tier}: a repair gave slot {end.given_up} up, so a digest would vouch for nothing before it: "
            "a thief of the old key could still sign below the last slot"
            for end in ends
            if end.given_up is not None
        ]
        keyring = self.remote.trust.keyring
        old = [key.id for key in keyring.key if key.last_slot is None and key.id != key_id(new)] if keyring else []
        lines = [f"# add to [[key]] {name}\nlast_slot = {last}" for name in old]
        then = "# then, where it replicates: key under [signing] in ckptier.toml names the new file"
        return KeyLines(ends=ends, lines="\n\n".join([*weak, *lines, block(new, first_slot=first), then]))

    def _ends(self, tier: str | None, remote: RemoteRun) -> tuple[LogEnd, ...]:
        ends = []
        for settings in self.config.select(tier):
            with self.reading(settings) as opened, translated():
                view = Logbook(opened, remote).read(thorough=True)
            if view.damaged:
                raise IntegrityFailure(
                    f"{settings.name}: log slot {view.damaged[0].slot}: {view.damaged[0].reason}",
                    hint="a log that is hurt is not pinned: see `ckptier verify`",
                )
            state = view.state
            ends.append(
                LogEnd(
                    tier=settings.name,
                    anchor=Anchor(view.next_slot - 1, view.last_sha256) if view.next_slot else None,
                    given_up=view.voided[0].slot if view.voided else None,
                    run_uid=state.run_uid if state else None,
                    generations=len(view.live),
                    newest=state.newest.generation if state and state.newest else None,
                )
            )
        return tuple(ends)


def _pinned(ends: Iterable[LogEnd]) -> dict[str, int | str]:
    return {
        end.tier: str(end.anchor) if end.given_up is None else end.anchor.slot for end in ends if end.anchor is not None
    }
