"""Two writers on one log, with bad days in any order: the invariants hold after each step."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from core.builders import REMOTE, RUN_UID, LocalSource, Machine, make_source
from core.checks import (
    check_chain,
    check_complete,
    check_not_overwritten,
    check_once,
    check_terms,
    check_tracker,
    log_entries,
)
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from replicate.errors import Fenced, TrustFailure
from replicate.layout import GenerationId
from replicate.log import Claim, Commit, Pin
from replicate.logbook import SlotTaken
from replicate.plan import Choice
from replicate.terms import Descent
from tiers.effects import Effect, Moment, observing
from tiers.errors import TierError
from tiers.memory import MemoryStore
from tiers.testing import Action, Fault, When, content

WRITERS = st.sampled_from(["one", "two"])
VERBS = st.sampled_from(["put", "create", "put_part", "begin_upload", "complete", "open", "list_objects", "list_parts"])
FAULTS = st.builds(
    Fault,
    verb=VERBS,
    nth=st.integers(1, 4),
    times=st.integers(1, 3),
    when=st.sampled_from(When),
    action=st.sampled_from([Action.ERROR, Action.LOST_REPLY]),
)
CREATE_FAULTS = st.lists(
    st.builds(
        Fault,
        verb=st.just("create"),
        nth=st.integers(1, 3),
        action=st.sampled_from([Action.ERROR, Action.LOST_REPLY]),
    ),
    max_size=1,
)
EXPECTED = (TierError, Fenced, TrustFailure, KeyboardInterrupt)


def writes_slot(what: str) -> bool:
    """Tell whether an announced request writes a log entry."""
    _, verb, key = what.split()
    return verb in ("create", "put") and key.startswith(REMOTE.log_prefix)


class TwoWriters(RuleBasedStateMachine):
    """Each writer has a store, a tracker and a place in the run; both use one tier."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="ckptier-machine-")
        self.root = Path(self.folder.name)
        self.store = MemoryStore()
        self.writers: dict[str, Machine] = {}
        self.local: dict[str, list[LocalSource]] = {"one": [], "two": []}
        self.published: dict[GenerationId, LocalSource] = {}
        self.acknowledged: set[tuple[GenerationId, int]] = set()
        self.log: list[bytes] = []
        self.opened = 1
        self.forgotten = 0

    @initialize()
    def begin(self) -> None:
        """Writer one opens the run; writer two restores from it sooner or later."""
        for name in ("one", "two"):
            descent = Descent(run_uid=RUN_UID, attempt=1, attempt_id="attempt-1")
            self.writers[name] = Machine(self.root / name, self.store, descent=descent, writer=name)
            self.quicken(name)
        self.restore("two")

    def quicken(self, name: str) -> None:
        """No power fails in this test: what a killed process wrote is in the page cache."""
        self.writers[name].tracker._connection.execute("PRAGMA synchronous=OFF")
        self.writers[name].replication.connections = 1

    def restart(self, name: str) -> None:
        self.writers[name].start()
        self.quicken(name)

    def attempt(self, name: str, *faults: Fault) -> None:
        """Run a pass through these faults; what it returns was acknowledged."""
        self.publish(name)
        machine = self.writers[name]
        machine.faulty.schedule = tuple(faults)
        machine.faulty._seen = [0] * len(faults)
        try:
            report = machine.run(*self.local[name])
        except EXPECTED:
            return
        finally:
            machine.faulty.schedule = ()
            machine.faulty._seen = []
        self.acknowledged |= {(done.generation, done.slot) for done in report.committed}
        assert not report.damaged

    def publish(self, name: str) -> None:
        """Seal a generation where none waits, so that each pass has something to do."""
        machine = self.writers[name]
        live = {commit.id for commit in machine.view().live}
        if not live.issuperset(source.id for source in self.local[name]):
            return
        sequence = 1 + len(self.published)
        parent = self.local[name][-1].id if self.local[name] else None
        files = {"model.bin": content(150, seed=sequence), "x": b"%d" % sequence}
        made = make_source(
            machine.local.root / "store", files, sequence=sequence, descent=machine.descent, parent=parent
        )
        self.local[name].append(made)
        self.published[made.id] = made

    @rule(name=WRITERS)
    def run_pass(self, name: str) -> None:
        """Run a pass on a good day."""
        self.attempt(name)

    @rule(name=WRITERS, faults=st.lists(FAULTS, min_size=1, max_size=2))
    def run_pass_on_a_bad_day(self, name: str, faults: list[Fault]) -> None:
        """Run a pass in which requests fail or lose their replies."""
        self.attempt(name, *faults)

    @rule(name=WRITERS, fatal=st.integers(1, 60))
    def be_killed(self, name: str, fatal: int) -> None:
        """Die at the n-th side effect, and start again."""
        left = fatal

        def die(_effect: Effect, what: str, _moment: Moment) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise KeyboardInterrupt(what)

        with observing(die):
            self.attempt(name)
        self.restart(name)

    @rule(name=WRITERS, nth=st.integers(1, 3), when=st.sampled_from(Moment), faults=CREATE_FAULTS, lost=st.booleans())
    def be_overtaken(self, name: str, nth: int, when: Moment, faults: list[Fault], *, lost: bool) -> None:
        """Stall right before the n-th create (or just after it) while the other, who restored, runs a whole pass."""
        other = "two" if name == "one" else "one"
        if not lost:
            self.restore(name)
        self.restore(other)
        self.interrupt(name, nth, when, lambda: self.attempt(other), faults)

    @rule(name=WRITERS, nth=st.integers(1, 3), faults=CREATE_FAULTS)
    def be_pinned_upon(self, name: str, nth: int, faults: list[Fault]) -> None:
        """Somebody's pin takes the slot that was about to be created."""
        self.interrupt(name, nth, Moment.BEFORE, self.pin, faults)

    def interrupt(self, name: str, nth: int, when: Moment, act: Callable[[], None], faults: list[Fault]) -> None:
        left = nth

        def watch(effect: Effect, what: str, moment: Moment) -> None:
            nonlocal left
            if effect is Effect.REMOTE and writes_slot(what) and moment is when:
                left -= 1
                if left == 0:
                    with observing(lambda _effect, _what, _moment: None):
                        act()

        with observing(watch):
            self.attempt(name, *faults)

    @rule()
    def pin(self) -> None:
        """Pin the newest as an operator would, from a machine that holds no term."""
        operator = self.writers["two"].replication.log
        view = self.writers["two"].view()
        if view.state is None or view.state.newest is None:
            return
        book = operator._book
        book.tier = self.writers["two"].recorder
        held, operator.view = operator.view, view
        body = Pin(generation=view.state.newest.generation, reason="paper")
        made = operator.entry(self.writers["two"].descent, view.state.term, body)
        operator.view = held
        try:
            book.append(view, made)
        except SlotTaken as error:
            raise AssertionError("nobody else runs now") from error

    @rule(name=WRITERS, forgetting=st.booleans())
    def wake_anew(self, name: str, *, forgetting: bool) -> None:
        """Start again, with the tracker as it is or without any memory."""
        if forgetting:
            machine = self.writers[name]
            machine.tracker.close()
            for path in machine.local.root.glob("tracker.sqlite*"):
                path.unlink()
            self.forgotten += 1
        self.restart(name)

    @rule(name=WRITERS)
    def restore(self, name: str) -> None:
        """Open a new attempt, greater than any that this machine or the log has seen (two may choose the same)."""
        state = self.writers[name].view().state
        machine = self.writers[name]
        number = max(machine.descent.attempt, state.highest_attempt if state else 0) + 1
        self.opened += 1
        machine.descent = Descent(run_uid=RUN_UID, attempt=number, attempt_id=f"attempt-{self.opened}")

    @rule(name=WRITERS)
    def copy_store(self, name: str) -> None:
        """Go on from a copy of the other's store: the same attempt on two machines."""
        other = "two" if name == "one" else "one"
        self.writers[name].descent = self.writers[other].descent

    @invariant()
    def nobody_takes_a_term_back(self) -> None:
        """No ping-pong: who was overtaken within an attempt claims again only where a tracker was lost."""
        claims = [
            (entry.attempt_id, entry.body.writer) for entry in log_entries(self.store) if isinstance(entry.body, Claim)
        ]
        changes = [claim for claim, before in zip(claims, [None, *claims], strict=False) if claim != before]
        assert len(changes) - len(set(changes)) <= self.forgotten

    @invariant()
    def nothing_is_lost_or_overwritten(self) -> None:
        """I1 to I4, I6 and I8."""
        if not self.writers:
            return
        self.log = check_chain(self.store, self.log)
        check_complete(self.store, self.published)
        check_terms(self.store)
        check_once(self.store)
        for machine in self.writers.values():
            check_tracker(self.store, machine.tracker)
        check_not_overwritten(*(machine.recorder for machine in self.writers.values()))

    @invariant()
    def what_was_acknowledged_stays(self) -> None:
        """I5: in the log, in its slot, and live."""
        if not self.acknowledged:
            return
        entries = log_entries(self.store)
        live = {commit.id for commit in self.writers["one"].view().live}
        for generation, slot in self.acknowledged:
            body = entries[slot].body
            assert isinstance(body, Commit)
            assert body.generation == str(generation)
            assert generation in live

    @invariant()
    def every_entry_counts(self) -> None:
        """Nobody who obeys the protocol leaves an entry that folding has to refuse."""
        if self.writers:
            assert self.writers["one"].view().refused == ()

    def teardown(self) -> None:
        """I18: once the bad days are over, whoever may write gets everything through in one pass."""
        for name, machine in self.writers.items():
            self.restart(name)
            try:
                machine.run(*self.local[name])
            except (Fenced, TrustFailure):
                continue
            again = machine.run(*self.local[name])
            assert {decision.choice for decision in again.decisions} <= {Choice.COMMITTED}
        self.nothing_is_lost_or_overwritten()
        if self.writers and self.log:
            assert isinstance(log_entries(self.store)[0].body, Claim)
            assert REMOTE.slot(REMOTE.log(0)) == 0
        for machine in self.writers.values():
            machine.tracker.close()
        self.folder.cleanup()


TwoWriters.TestCase.settings = settings(
    max_examples=40, stateful_step_count=20, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
TestTwoWriters = TwoWriters.TestCase
