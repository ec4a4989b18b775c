"""Rules of the model in which something is lost for good and an operator sees to it."""

from hypothesis import strategies as st
from hypothesis.stateful import rule
from model.boxes import REMOTE
from model.damage import DAMAGES, LOG_DAMAGES, Hurt, hurt
from model.machine import BOXES, FIRED, TIERS, at_most
from model.mishaps import Mishaps

from replicate.errors import Fenced, TrustFailure
from replicate.mending.steps import Kind, RepairOptions
from replicate.mending.takeover import TakeoverReport, TakingOver
from replicate.mending.verbs import PlaceRepaired, Repairing, RepairReport
from replicate.verify import Share


class Model(Mishaps):
    """The whole machine: takeovers and repairs, which may be killed as well."""

    @at_most(2, "take_over")
    @rule(box=BOXES, tier=TIERS, killed_at=st.integers(0, 12))
    def take_over(self, box: str, tier: str, killed_at: int) -> None:
        """Let a copy of the disk go on in the same attempt; an operator gives the first one its place back."""
        self.note("take_over")
        machine, other = self.boxes[box], "two" if box == "one" else "one"
        if not machine.local.root.is_dir():
            return
        self._on(box, lambda: self._pass(box, tier))
        self.boxes[other].become_a_copy_of(machine, with_tracker=False)
        self._publish(other)
        self._on(other, lambda: self._pass(other, tier))
        self._on(box, lambda: self._pass(box, tier))
        machine.stop()

        def act() -> TakeoverReport:
            taking = TakingOver(machine.config, clock=machine.clock, opener=machine.opener)
            return taking.takeover("the other is gone", tier=tier, apply=True)

        if killed_at:
            FIRED["killed:takeover"] += machine.die(act, killed_at)
        (place,) = act().places
        FIRED["taken"] += place.term is not None
        if place.failure is None:
            self._publish(box)
            result = self._pass(box, tier)
            assert result is not None
            assert result.report is not None, f"the term was taken, and {result.failure!r}"
            late = self._pass(other, tier)
            assert late is None or late.failure is not None or not late.report or not late.report.committed

    @at_most(3, "hurt a copy")
    @rule(box=BOXES, tier=TIERS, kind=st.sampled_from(DAMAGES), killed_at=st.integers(0, 40), data=st.data())
    def hurt_a_copy_and_repair(self, box: str, tier: str, kind: Hurt, killed_at: int, data: st.DataObject) -> None:
        """I1 comes back: what is hurt is replaced from a good copy, by a repair that may die on the way."""
        ledger = self.ledgers[tier]
        machine = self.boxes[box]
        if not ledger.live or not machine.local.root.is_dir():
            return
        self.note("hurt a copy")
        victim = data.draw(st.sampled_from(sorted(ledger.live)))
        key, keys = self._object_of(ledger, victim, data)
        held = ledger.chronicle.store.objects[key]
        hurt(ledger.chronicle.store, key, kind, keys)
        place = self._repaired(box, tier, killed_at, RepairOptions(read_data=Share()))
        ledger.rebase(set())
        if any(str(one.generation) == victim and one.kind is Kind.REPLACE for one in place.done) or not any(
            live.manifest_key == self._manifest_of(key) for live in (ledger.state.live if ledger.state else ())
        ):
            FIRED["healed"] += 1
            assert victim in ledger.live, "a hurt copy was taken back, and none has taken its place"
        else:
            FIRED["left hurt"] += 1
            assert place.failure or not self._elsewhere(box, tier, victim), f"{place} although there is a good copy"
            ledger.chronicle.store.objects[key] = held

    def _repaired(self, box: str, tier: str, killed_at: int, options: RepairOptions) -> PlaceRepaired:
        """Repair, perhaps with a kill in between; returns what the last one came to."""
        machine = self.boxes[box]
        machine.stop()

        def act() -> RepairReport:
            repairing = Repairing(machine.config, clock=machine.clock, opener=machine.opener)
            return repairing.repair(options, tier=tier, apply=True)

        if killed_at:
            FIRED["killed:repair"] += machine.die(act, killed_at)
        return act().places[0]

    def _manifest_of(self, key: str) -> str:
        prefix = REMOTE.prefix_of(key)
        assert prefix is not None
        return REMOTE.manifest(prefix.text)

    def _elsewhere(self, box: str, tier: str, generation: str) -> bool:
        """Tell whether another tier or this machine's store has a good copy."""
        others = (ledger.live for name, ledger in self.ledgers.items() if name != tier)
        here = {str(one.id) for one in self.boxes[box].store.generations()}
        return any(generation in live for live in others) or generation in here

    @at_most(2, "damage the log")
    @rule(
        box=BOXES,
        tier=TIERS,
        kind=st.sampled_from(LOG_DAMAGES),
        killed_at=st.integers(0, 20),
        rebuild=st.booleans(),
        data=st.data(),
    )
    def damage_the_log_and_repair(
        self, box: str, tier: str, kind: Hurt, killed_at: int, data: st.DataObject, *, rebuild: bool
    ) -> None:
        """Lose a slot for good; a repair makes the log one that goes on, and with it what was committed there."""
        ledger = self.ledgers[tier]
        ledger.check()
        # What a lost retirement took back would be committed again, and hurt: that is told, and not undone.
        slots = [
            slot for slot, entry in enumerate(ledger.entries[:-1]) if entry.body.kind in ("claim", "commit", "pin")
        ]
        if not slots or not self.boxes[box].local.root.is_dir():
            return
        self.note("damage the log")
        slot = data.draw(st.sampled_from(slots))
        for machine in self.boxes.values():
            machine.stop()
        key, live = REMOTE.log(slot), ledger.live
        before = dict(ledger.chronicle.store.objects)
        hurt(ledger.chronicle.store, key, kind, [])
        place = self._repaired(box, tier, killed_at, RepairOptions(rebuild_log=rebuild))
        now = ledger.chronicle.store.objects
        if place.failure is not None and all(now.get(one) is held for one, held in before.items() if one != key):
            assert isinstance(place.failure, Fenced | TrustFailure), f"{place.failure!r}"
            FIRED["log left damaged"] += 1
            now[key] = before[key]
            return
        assert place.failure is None, f"a repair that began does not end: {place.failure}"
        FIRED["log repaired"] += 1
        ledger.rebase({slot})
        if rebuild:
            assert live <= ledger.live, f"{live - ledger.live} was committed, and a rebuilt log does not say so"
