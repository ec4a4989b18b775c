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
EXPECTED = (TierError, Fenced, TrustFailure, KeyboardInterrupt)


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

    @initialize()
    def begin(self) -> None:
        """Writer one opens the run; writer two restores from it sooner or later."""
        for name in ("one", "two"):
            descent = Descent(run_uid=RUN_UID, attempt=1, attempt_id="attempt-1")
            self.writers[name] = Machine(self.root / name, self.store, descent=descent, writer=name)
            self.quicken(name)
        self.restore("two")
        self.publish("one")

    def quicken(self, name: str) -> None:
        """No power fails in this test: what a killed process wrote is in the page cache."""
        self.writers[name].tracker._connection.execute("PRAGMA synchronous=OFF")
        self.writers[name].replication.connections = 1

    def restart(self, name: str) -> None:
        self.writers[name].start()
        self.quicken(name)

    def attempt(self, name: str, *faults: Fault) -> None:
        """Run a pass through these faults; what it returns was acknowledged."""
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

    @rule(name=WRITERS)
    def publish(self, name: str) -> None:
        """Seal one more generation; only while there are few, to keep examples small."""
        if len(self.local[name]) >= 6:
            return
        machine = self.writers[name]
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

    @rule(name=WRITERS, nth=st.integers(1, 3), slept=st.booleans())
    def be_overtaken(self, name: str, nth: int, slept: bool) -> None:
        """Stall right before the n-th create (or just after it) while the other runs a whole pass."""
        other = "two" if name == "one" else "one"
        self.interrupt(name, nth, Moment.AFTER if slept else Moment.BEFORE, lambda: self.attempt(other))

    @rule(name=WRITERS, nth=st.integers(1, 3))
    def be_pinned_upon(self, name: str, nth: int) -> None:
        """Somebody's pin takes the slot that was about to be created."""
        self.interrupt(name, nth, Moment.BEFORE, self.pin)

    def interrupt(self, name: str, nth: int, when: Moment, act: Callable[[], None]) -> None:
        left = nth

        def watch(effect: Effect, what: str, moment: Moment) -> None:
            nonlocal left
            if effect is Effect.REMOTE and " create " in what and moment is when:
                left -= 1
                if left == 0:
                    with observing(lambda _effect, _what, _moment: None):
                        act()

        with observing(watch):
            self.attempt(name)

    @rule()
    def pin(self) -> None:
        """An operator pins the newest, from a machine that holds no term."""
        operator = self.writers["two"].replication.log
        view = self.writers["two"].view()
        if view.state is None or view.state.newest is None or view.next_slot > 60:
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

    @rule(name=WRITERS)
    def wake_anew(self, name: str) -> None:
        """Restart with the tracker as it is."""
        self.restart(name)

    @rule(name=WRITERS)
    def lose_tracker(self, name: str) -> None:
        """Start again without any memory."""
        machine = self.writers[name]
        machine.tracker.close()
        for path in machine.local.root.glob("tracker.sqlite*"):
            path.unlink()
        self.restart(name)

    @rule(name=WRITERS)
    def restore(self, name: str) -> None:
        """Open a new attempt, greater than any that this machine or the log has seen (two may choose the same)."""
        state = self.writers[name].view().state
        machine = self.writers[name]
        number = max(machine.descent.attempt, state.highest_attempt if state else 0) + 1
        self.opened += 1
        machine.descent = Descent(run_uid=RUN_UID, attempt=number, attempt_id=f"attempt-{self.opened}")

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
        """A writer that obeys the protocol never leaves an entry that folding has to refuse."""
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
