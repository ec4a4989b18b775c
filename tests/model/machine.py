"""Two machines, two tiers and a run between them, with bad days in any order.

Everything is the product's own code over tiers in memory; the oracle is a plain model: what
was sealed, what was acknowledged, what a tier's bytes say.  After each step the promises
are checked (docs/reliability.md numbers them).
"""

import itertools
import secrets
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from model.boxes import DELAY, KEEP, REMOTE, Box, Pause
from model.chronicle import IN_PARTS, Chronicle
from model.judging import Judge, read_tree
from model.ledger import Ledger, Tree

from replicate.errors import CkptierError, Fenced, IntegrityFailure, TrustFailure
from replicate.layout import GenerationId
from replicate.outcomes import TierResult
from replicate.pinning import pin, unpin
from replicate.plan import Choice
from replicate.restore import RestoreRequest
from tiers.effects import Moment, observing
from tiers.errors import TierError
from tiers.testing import Action, Fault, ManualClock, When, content

FROZEN = content(150, seed=0)
"""A file that every generation has: it is copied on the tiers."""
BOXES = st.sampled_from(["one", "two"])
TIERS = st.sampled_from(["near", "far"])
TIMES = st.sampled_from([DELAY + 1, 60.0, 8 * 86400.0])
MOMENTS = st.sampled_from(Moment)
VERBS = ["*", "create", "put", "open", "complete", "put_part", "delete", "list_objects", "stat", "list_parts"]
FAULTS = st.builds(
    Fault,
    verb=st.sampled_from(VERBS),
    nth=st.integers(1, 3),
    times=st.integers(1, 3),
    when=st.sampled_from(When),
    action=st.sampled_from([Action.ERROR, Action.LOST_REPLY]),
)
ANYWHERE = st.builds(
    Fault, verb=st.just("*"), nth=st.integers(2, 16), action=st.sampled_from([Action.LOST_REPLY, Action.ERROR])
)
CREATE_FAULTS = st.lists(
    st.builds(
        Fault, verb=st.just("create"), nth=st.integers(1, 3), action=st.sampled_from([Action.ERROR, Action.LOST_REPLY])
    ),
    max_size=1,
)
WORK = st.sampled_from(["replicate", "expire", "replicate", "restore", "publish", "collect"])

FIRED: Counter[str] = Counter()
"""How often each rule ran, and what came of it, since the counter was cleared."""


def at_most(times: int, what: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Let a rule that does much run only so often in one example, so that the others have their turn."""
    allowed: Callable[[Callable[..., None]], Callable[..., None]] = precondition(lambda self: self.did[what] < times)
    return allowed


class Run(RuleBasedStateMachine):
    """The state machine; ``two`` joins by restoring from what ``one`` has committed."""

    def __init__(self) -> None:
        super().__init__()
        self.chance = pytest.MonkeyPatch()
        drawn = itertools.count(1)
        self.chance.setattr(secrets, "token_hex", lambda size: f"{next(drawn):0{2 * size}x}")
        memory = Path("/dev/shm")
        self.folder = tempfile.TemporaryDirectory(
            prefix="ckptier-model-", dir=memory if memory.is_dir() else None, ignore_cleanup_errors=True
        )
        root = Path(self.folder.name)
        self.store_clock = ManualClock()
        self.chronicles = {
            "near": Chronicle("near", self.store_clock),
            "far": Chronicle("far", self.store_clock, capabilities=IN_PARTS),
        }
        self.boxes = {name: Box(name, root / name, tuple(self.chronicles.values())) for name in ("one", "two")}
        self.sealed: dict[str, Tree] = {}
        self.judge = Judge(root / "restored", self.sealed)
        self.ledgers = {
            "near": Ledger(self.chronicles["near"], REMOTE, self.sealed, KEEP, DELAY, self._given_up),
            "far": Ledger(self.chronicles["far"], REMOTE, self.sealed, 1, 86400.0, self._given_up),
        }
        self.seeds = 0
        self.did: Counter[str] = Counter()

    def note(self, what: str) -> None:
        """Count that a rule ran."""
        FIRED[what] += 1
        self.did[what] += 1

    def _given_up(self, by: str, tier: str) -> frozenset[str]:
        return self.boxes[by].given_up(tier)

    @initialize()
    def begin(self) -> None:
        """One opens the run and commits something, so that two has what to restore."""
        self._publish("one")
        self._pass("one", "near")
        self._restore("two", RestoreRequest())

    # What machines do.  Each returns nothing and swallows only what the product is meant to say.

    @at_most(4, "publish")
    @rule(box=BOXES)
    def publish(self, box: str) -> None:
        """Train on."""
        self.note("publish")
        self._publish(box)

    def _publish(self, box: str) -> None:
        """Seal a generation, a little further than the last one of this line."""
        machine = self.boxes[box]
        lineage = machine.store.lineage() if machine.local.root.is_dir() else None
        if lineage is None and self.sealed:
            return  # a second run under this name is another test's business
        self.seeds += 1
        latest = machine.store.latest()
        update = (latest.id.next_update if latest else 0) + 10
        tree = {"model.bin": content(150, seed=self.seeds), "sub/x": b"%d" % self.seeds, "empty": b"", "frozen": FROZEN}
        publication = machine.store.publish(next_update=update)
        try:
            with publication as directory:
                for path, data in tree.items():
                    (directory / path).parent.mkdir(parents=True, exist_ok=True)
                    (directory / path).write_bytes(data)
        finally:
            for one in machine.store.generations():
                if str(one.id) not in self.sealed and one.record.next_update == update:
                    self.sealed[str(one.id)] = tree

    @at_most(8, "replicate")
    @rule(
        box=BOXES,
        tier=TIERS,
        faults=st.lists(FAULTS | ANYWHERE, max_size=2),
        limit=st.sampled_from([None, 1]),
        new=st.sampled_from([True, False]),
    )
    def replicate(self, box: str, tier: str, faults: Sequence[Fault], limit: int | None, *, new: bool) -> None:
        """Run a pass, after a save or not; what it calls committed has to be."""
        self.note("replicate")
        if new:
            self._publish(box)
        self._on(box, lambda: self._pass(box, tier, faults, limit))

    def _pass(self, box: str, tier: str, faults: Sequence[Fault] = (), limit: int | None = None) -> TierResult | None:
        machine = self.boxes[box]
        session = machine.session()
        prepared = session.prepare()
        if prepared.descent is None:
            return None
        if tier not in machine.weather:
            session.writer(tier)  # opens it, and asks nothing
        with machine.under(faults, tier):
            result = session.run_tier(tier, prepared, limit=limit)
        if result.report is not None:
            FIRED["committed"] += len(result.report.committed)
            FIRED["copied"] += sum(one.copied_bytes > 0 for one in result.report.committed)
            for done in result.report.committed:
                self.ledgers[tier].acknowledge(str(done.generation), done.slot)
        elif result.failure is not None:
            FIRED[f"failed:{type(result.failure).__name__}"] += 1
        return result

    @at_most(5, "expire")
    @rule(box=BOXES, tier=TIERS, faults=st.lists(FAULTS, max_size=1), after=TIMES)
    def expire(self, box: str, tier: str, faults: Sequence[Fault], after: float) -> None:
        """After some time, retire what the policy lets go and delete what was retired, on a tier and in the store."""
        self.note("expire")
        self._let_time_pass(after)
        self._on(box, lambda: self._expire(box, tier, faults))

    def _expire(self, box: str, tier: str, faults: Sequence[Fault] = ()) -> None:
        machine = self.boxes[box]
        session = machine.session()
        prepared = session.prepare()
        before = {str(one.id) for one in machine.store.generations()}
        deleted = self.chronicles[tier].deleted
        session.writer(tier)
        with machine.under(faults, tier):
            pruner = session.pruner(tier, prepared.descent)
            if prepared.descent is not None and pruner.plan().removed:
                pruner.log.ensure_term(prepared.descent)
                FIRED["retired"] += len(pruner.retire(prepared.descent))
            FIRED["swept"] += len(pruner.sweep().swept)
        session.keeper.store_changed()
        session.tend_store(prepared)
        FIRED["deleted"] += self.chronicles[tier].deleted - deleted
        self._released(before - {str(one.id) for one in machine.store.generations()})

    def _released(self, gone: set[str]) -> None:
        """I7: what the store let go was committed."""
        FIRED["released"] += len(gone)
        ever = self.ledgers["near"].ever | self.ledgers["far"].ever
        assert gone <= ever, f"I7: {gone - ever} were removed and never committed"

    @at_most(3, "collect")
    @rule(box=BOXES, tier=TIERS)
    def collect(self, box: str, tier: str) -> None:
        """Collect orphans."""
        self.note("collect")
        self._on(box, lambda: self._collect(box, tier))

    def _collect(self, box: str, tier: str) -> None:
        machine = self.boxes[box]
        settings = machine.config.select(tier)[0]
        place = machine.clearing._collected(machine.session(), settings)
        if place.report is not None:
            FIRED["orphans"] += len(place.report.deleted)

    @at_most(5, "restore")
    @rule(box=BOXES, back=st.booleans(), data=st.data())
    def restore(self, box: str, data: st.DataObject, *, back: bool) -> None:
        """Restore into the store the newest, or one that is named: the machine goes on from it, in a new attempt."""
        self.note("restore")
        known = sorted(self.ledgers["near"].live | self.ledgers["far"].live)
        chosen = GenerationId.parse(data.draw(st.sampled_from(known))) if back and known else None
        self._on(box, lambda: self._restore(box, RestoreRequest(generation=chosen)))

    def _restore(self, box: str, request: RestoreRequest, faults: Sequence[Fault] = ()) -> None:
        machine = self.boxes[box]
        expected = self._candidates(box)
        highest = max((number for ledger in self.ledgers.values() for number in ledger.attempts), default=0)
        report = machine.restore(request, faults)
        self.judge.restored(report, expected, request)
        assert report.generation is not None
        found = machine.store.get(report.generation)
        assert read_tree(found.files) == self.sealed[str(report.generation)], "I11"
        assert report.attempt is not None
        assert report.attempt > highest, "an attempt that others may have opened"
        FIRED["restored"] += 1

    def _candidates(self, box: str) -> set[str]:
        """Return what a restore may choose from: what is committed, and what is good in the store."""
        machine = self.boxes[box]
        here = {str(one.id) for one in machine.store.generations()} if machine.local.root.is_dir() else set()
        return self.ledgers["near"].live | self.ledgers["far"].live | here

    @at_most(3, "restore_to")
    @rule(box=BOXES, faults=st.lists(FAULTS | ANYWHERE, max_size=2))
    def restore_to_a_folder(self, box: str, faults: Sequence[Fault]) -> None:
        """I11, I15: the newest that there is, exactly; or an error and no folder."""
        self.note("restore_to")
        self.judge.restore_to(self.boxes[box], RestoreRequest(), self._candidates(box), faults)

    # Bad days.

    @at_most(6, "crash")
    @rule(box=BOXES, tier=TIERS, work=WORK, at=st.integers(1, 60))
    def crash(self, box: str, tier: str, work: str, at: int) -> None:
        """Be killed at the n-th side effect of some work; the next to use the machine starts a new process."""
        self.note("crash")
        if work == "replicate":
            self._publish(box)
        self._let_time_pass(DELAY + 1)
        if self.boxes[box].die(lambda: self._on(box, lambda: self._work(box, tier, work)), at):
            FIRED[f"killed:{work}"] += 1

    def _work(self, box: str, tier: str, work: str) -> None:
        match work:
            case "publish":
                self._publish(box)
            case "replicate":
                self._pass(box, tier)
            case "restore":
                self._restore(box, RestoreRequest())
            case "expire":
                self._expire(box, tier)
            case _:
                self._collect(box, tier)

    @at_most(5, "stall")
    @rule(
        box=BOXES,
        tier=TIERS,
        work=st.sampled_from(["replicate", "replicate", "expire", "collect"]),
        nth=st.integers(1, 16),
        when=MOMENTS,
        meanwhile=st.sampled_from(["takeover", "takeover", "replicate", "pin", "expire", "collect"]),
        faults=CREATE_FAULTS,
    )
    def stall(
        self, box: str, tier: str, work: str, nth: int, when: Moment, meanwhile: str, faults: Sequence[Fault]
    ) -> None:
        """Stop right before (or after) the n-th request of some work while the other machine acts, and wake up."""
        self.note("stall")
        other = "two" if box == "one" else "one"
        if work == "replicate":
            self._publish(box)
        self._let_time_pass(DELAY + 1)
        pause = Pause(nth, when, lambda: self._on(other, lambda: self._meanwhile(other, tier, meanwhile)))
        with observing(pause):
            if work == "replicate":
                self._on(box, lambda: self._pass(box, tier, faults))
            else:
                self._on(box, lambda: self._work(box, tier, work))
        FIRED[f"interrupted:{meanwhile}"] += pause.happened

    def _meanwhile(self, box: str, tier: str, what: str) -> None:
        match what:
            case "takeover":
                self._restore(box, RestoreRequest())
                self._publish(box)
                self._pass(box, tier)
            case "pin":
                self._pin(tier, None)
            case _:
                self._work(box, tier, what)

    @at_most(3, "restart")
    @rule(box=BOXES, forgetting=st.booleans())
    def restart(self, box: str, *, forgetting: bool) -> None:
        """Start again, with the tracker as it is or without any memory."""
        self.note("restart")
        self.boxes[box].forget() if forgetting else self.boxes[box].stop()

    @at_most(2, "copy_disk")
    @rule(box=BOXES, with_tracker=st.booleans())
    def copy_disk(self, box: str, *, with_tracker: bool) -> None:
        """Go on from a copy of the other machine's disk: one attempt on two machines."""
        other = self.boxes["two" if box == "one" else "one"]
        if other.local.root.is_dir():
            self.note("copy_disk")
            self.boxes[box].become_a_copy_of(other, with_tracker=with_tracker)
            for ledger in self.ledgers.values():
                ledger.copied |= with_tracker

    @at_most(4, "pin")
    @rule(tier=TIERS, taken_back=st.booleans(), data=st.data())
    def pin(self, tier: str, data: st.DataObject, *, taken_back: bool) -> None:
        """Pin what is committed, or take a pin back, from a machine that holds no term."""
        state = self.ledgers[tier].state
        self.note("pin")
        if taken_back and state is not None and state.pins:
            operator = self.chronicles[tier].tier("operator")
            unpin(operator, REMOTE, self.store_clock, GenerationId.parse(state.pins[0]))
        elif live := sorted(self.ledgers[tier].live):
            self._pin(tier, data.draw(st.sampled_from(live)))

    def _pin(self, tier: str, generation: str | None) -> None:
        chosen = generation or min(self.ledgers[tier].live, default=None)
        if chosen is not None:
            operator = self.chronicles[tier].tier("operator")
            pin(operator, REMOTE, self.store_clock, GenerationId.parse(chosen), "paper", expected=False)

    def _let_time_pass(self, seconds: float) -> None:
        """Let time pass, for the stores and for the machines."""
        self.store_clock.advance(seconds)
        for machine in self.boxes.values():
            machine.clock.advance(seconds)

    @at_most(2, "jump_the_clock")
    @rule(box=BOXES, seconds=st.sampled_from([-400 * 86400.0, -3600.0, 3600.0, 400 * 86400.0]))
    def jump_the_clock(self, box: str, seconds: float) -> None:
        """Let a machine's wall clock jump; nothing may depend on it."""
        self.note("jump_the_clock")
        self.boxes[box].clock.ahead = seconds

    @at_most(2, "again")
    @rule(box=BOXES, tier=TIERS)
    def do_it_again(self, box: str, tier: str) -> None:
        """I17: a second pass, and a second look at what may go, change nothing."""
        self.note("again")
        for _ in range(2):
            before = self.chronicles[tier].content()
            self._on(box, lambda: self._pass(box, tier))
            self._on(box, lambda: self._expire(box, tier))
            self._on(box, lambda: self._collect(box, tier))
        assert self.chronicles[tier].content() == before, "I17"

    # The promises.

    @invariant()
    def the_promises_hold(self) -> None:
        """I1 to I6, I8 to I10."""
        for name, ledger in self.ledgers.items():
            ledger.check()
            for machine in self.boxes.values():
                if machine.open_session is not None:
                    floor = machine.seen.get(name, -1)
                    machine.seen[name] = ledger.check_tracker(machine.open_session.tracker, floor)

    def teardown(self) -> None:
        """I18: once the bad days are over, whoever may write gets everything through in one pass."""
        try:
            self._settle()
            self.the_promises_hold()
        finally:
            FIRED["faults"] += sum(machine.faults_fired for machine in self.boxes.values())
            for machine in self.boxes.values():
                machine.stop()
            self.folder.cleanup()
            self.chance.undo()

    def _settle(self) -> None:
        for machine in self.boxes.values():
            machine.stop()
        for box, machine in self.boxes.items():
            for tier in self.chronicles:
                result = self._pass(box, tier) if machine.local.root.is_dir() else None
                if result is None or isinstance(result.failure, Fenced | TrustFailure):
                    continue
                assert result.failure is None, f"I18: {result.failure}"
                again = self._pass(box, tier)
                assert again is not None
                assert again.report is not None
                assert Choice.UPLOAD not in {decision.choice for decision in again.report.decisions}, "I18"

    def _on(self, box: str, act: Callable[[], object]) -> None:
        """Do what may fail as the product is meant to fail."""
        refused: TierError | CkptierError | None = None
        try:
            act()
        except (TierError, CkptierError) as error:
            refused = error
        if refused is not None:
            lies = isinstance(refused, IntegrityFailure) and "damaged" not in refused.message
            assert not lies, f"{box}: {refused!r}"
            FIRED[f"refused:{type(refused).__name__}"] += 1
