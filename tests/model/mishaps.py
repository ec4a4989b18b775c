"""Rules of the model in which what a tier holds is hurt, looked at, and put back, so that the run can go on."""

from hypothesis import strategies as st
from hypothesis.stateful import rule
from model.boxes import REMOTE
from model.damage import DAMAGES, LOG_DAMAGES, Hurt, damaged
from model.ledger import Ledger
from model.machine import BOXES, FIRED, TIERS, Run, at_most

from replicate.errors import TrustFailure
from replicate.restore import RestoreRequest
from replicate.verify import Finding, Share, verify


class Mishaps(Run):
    """Damage, and logs that are rolled back."""

    @at_most(4, "damage")
    @rule(tier=TIERS, kind=st.sampled_from(DAMAGES), data=st.data())
    def damage_an_object(self, tier: str, kind: Hurt, data: st.DataObject) -> None:
        """I12: bytes that are flipped, cut, extended, swapped or gone are noticed, and never handed out."""
        ledger = self.ledgers[tier]
        if not ledger.live:
            return
        victim = data.draw(st.sampled_from(sorted(ledger.live)))
        key, keys = self._object_of(ledger, victim, data)
        with damaged(ledger.chronicle.store, key, kind, keys):
            self.note("damage")
            FIRED[f"damage:{kind}"] += 1
            self.judge.falls_back(self.boxes["one"], tier, ledger.live, victim)
            report = verify(ledger.chronicle.tier("verifier"), REMOTE, read_data=Share())
            wrong = {str(one.generation) for one in report.generations if one.verdict is not Finding.INTACT}
            assert wrong == {victim}, f"I12: {wrong} where {victim} is hurt"

    @at_most(3, "slot")
    @rule(box=BOXES, tier=TIERS, kind=st.sampled_from(LOG_DAMAGES), data=st.data())
    def damage_a_slot(self, box: str, tier: str, kind: Hurt, data: st.DataObject) -> None:
        """I2, I12: nothing is appended to a log with a hole, nothing is deleted by it, and no lie is restored."""
        ledger = self.ledgers[tier]
        ledger.check()
        if len(ledger.data) < 2:  # what is lost with the last slot cannot be known
            return
        slot = data.draw(st.integers(0, len(ledger.data) - 2))
        self.boxes[box].stop()
        live = ledger.live
        with damaged(ledger.chronicle.store, REMOTE.log(slot), kind, []):
            self.note("slot")
            FIRED[f"slot:{kind}"] += 1
            before = ledger.chronicle.content()
            self._on(box, lambda: self._pass(box, tier))
            self._on(box, lambda: self._expire_nothing(box, tier))
            self._on(box, lambda: self._collect(box, tier))
            now = ledger.chronicle.content()
            changed = [key for key in before if now.get(key) is not before[key] and not ledger.may_go(key)]
            assert changed == [], "something was changed by a damaged log"
            added = [key for key in now if key not in before and key.startswith(REMOTE.log_prefix)]
            assert added == [], "appended to a damaged log"
            self.judge.restore_to(self.boxes[box], RestoreRequest(tier=tier), live, (), whole=False)
        self.boxes[box].stop()

    def _expire_nothing(self, box: str, tier: str) -> None:
        session = self.boxes[box].session()
        session.pruner(tier, session.prepare().descent).sweep()

    @at_most(2, "roll_back")
    @rule(box=BOXES, tier=TIERS)
    def roll_the_log_back(self, box: str, tier: str) -> None:
        """I15: who has seen more of a log than there is now refuses it."""
        ledger = self.ledgers[tier]
        ledger.check()
        machine = self.boxes[box]
        session = machine.session()
        seen = session.tracker.seen(tier)
        if seen is None or seen.slot < 1:
            return
        machine.stop()
        self.note("roll_back")
        objects = ledger.chronicle.store.objects
        taken = {str(key): objects.pop(key) for slot in range(seen.slot, len(ledger.data)) if (key := REMOTE.log(slot))}
        taken |= {str(REMOTE.head): objects.pop(REMOTE.head)} if REMOTE.head in objects else {}
        before = ledger.chronicle.content()
        try:
            result = self._pass(box, tier)
            assert result is None or isinstance(result.failure, TrustFailure), f"I15: {result}"
            assert ledger.chronicle.content() == before
        finally:
            machine.stop()
            objects.update(taken)

    def _object_of(self, ledger: Ledger, generation: str, data: st.DataObject) -> tuple[str, list[str]]:
        """Choose an object of a live generation; returns its key and all of them."""
        assert ledger.state is not None
        manifest = next(one.manifest_key for one in ledger.state.live if one.generation == generation)
        folder = manifest.removesuffix("manifest.json")
        objects = ledger.chronicle.store.objects
        keys = sorted(key for key, held in objects.items() if key.startswith(folder) and held.data)
        return data.draw(st.sampled_from(keys)), keys
