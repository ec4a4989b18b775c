"""Unchanged leaves are put together inside the store, and whatever goes wrong with that, the generation is whole."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest
from core.builders import LEAF, READ_BACK, LocalSource, make_source
from core.checks import check_all
from core.reuse_stage import ReusingMachine, changed, line

from replicate.log import LogState, Retire
from tiers.effects import Effect, Moment, observing
from tiers.errors import AccessDenied, IntegrityError, ObjectNotFound, TierUnavailable
from tiers.memory import MEMORY_CAPABILITIES, MemoryStore, MemoryTier
from tiers.protocol import Key, Verification
from tiers.testing import Action, Fault, content
from tiers.testing.faulty import When

Files = Mapping[str, bytes]
NOTHING = "copies nothing"
KINDS = {
    "copies": MEMORY_CAPABILITIES,
    "copies parts": replace(MEMORY_CAPABILITIES, copy=False),
    "copies unproved": READ_BACK,
    NOTHING: replace(MEMORY_CAPABILITIES, copy=False, copy_part=False),
}
BEFORE: Files = {
    "model.bin": content(20 * LEAF),
    "tokenizer.json": content(50, seed=7),
    "state.bin": content(90, seed=8),
}
AFTER: Files = {**BEFORE, "model.bin": changed(BEFORE["model.bin"], 3, 11), "state.bin": content(90, seed=9)}
TOTAL = sum(map(len, AFTER.values()))
SENT = 2 * LEAF + 90
"""Bytes of AFTER that BEFORE has not."""
ALL_SENT = 22 * LEAF


@pytest.fixture(params=[kind for kind in KINDS if kind != NOTHING])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> ReusingMachine:
    return ReusingMachine(tmp_path / "one", MemoryStore(), capabilities=KINDS[request.param])


@pytest.fixture
def two(tmp_path: Path) -> tuple[LocalSource, LocalSource]:
    first, second = line(tmp_path, BEFORE, AFTER)
    return first, second


def committed_whole(machine: ReusingMachine, first: LocalSource, second: LocalSource) -> None:
    """Fail unless the second generation is what was sealed, and all invariants hold."""
    assert machine.holds(second, AFTER)
    check_all(machine.store, {first.id: first, second.id: second}, machine)
    assert not second.quarantined


def test_only_what_changed_is_sent(machine: ReusingMachine, two: tuple[LocalSource, LocalSource]) -> None:
    first, second = two
    assert machine.run(first).committed[0].copied_bytes == 0
    before = machine.meter.snapshot()
    done = machine.run(first, second).committed[0]
    usage = machine.meter.snapshot() - before
    assert (done.total_bytes, done.copied_bytes) == (TOTAL, TOTAL - SENT)
    assert usage.sent("put_part") == SENT
    assert usage.count("copy") + usage.count("copy_part") == 18 + 1
    assert usage.count("stat", "ok") == 2, "each source is looked at once"
    assert usage.sent("copy") == usage.sent("copy_part") == 0
    committed_whole(machine, first, second)
    means = {item.verified_by for item in machine.manifest(second).objects}
    attests = machine.recorder.capabilities.verification is Verification.STORE_SHA256
    assert means == {"store-sha256" if attests else "read-back"}


def test_a_generation_stands_alone(machine: ReusingMachine, two: tuple[LocalSource, LocalSource]) -> None:
    """Its parent's objects can go: no key of the child lies among them, and its bytes are its own."""
    first, second = two
    machine.run(first)
    machine.run(first, second)
    prefix = machine.manifest(first).prefix
    assert all(not item.key.startswith(prefix) for item in machine.manifest(second).objects)
    machine.delete_data(first, prefix)
    assert machine.holds(second, AFTER)


def test_a_store_that_copies_nothing_gets_all_of_it(tmp_path: Path, two: tuple[LocalSource, LocalSource]) -> None:
    first, second = two
    machine = ReusingMachine(tmp_path / "one", MemoryStore(), capabilities=KINDS[NOTHING])
    machine.run(first)
    machine.start()
    usage = machine.usage_of(first, second)
    assert usage.count("copy") == usage.count("copy_part") == usage.count("stat") == 0
    assert machine.replication.stock.reads == 0, "the manifest of the parent is not even read"
    committed_whole(machine, first, second)


def test_it_can_be_switched_off(machine: ReusingMachine, two: tuple[LocalSource, LocalSource]) -> None:
    first, second = two
    machine.run(first)
    machine.replication.stock.enabled = False
    assert machine.run(first, second).committed[0].copied_bytes == 0


def test_the_parents_manifest_is_read_once_and_never_while_idle(
    machine: ReusingMachine, two: tuple[LocalSource, LocalSource], tmp_path: Path
) -> None:
    first, second = two
    machine.run(first)
    assert machine.usage_of(first).count() == 0
    machine.start()
    assert machine.usage_of(first).count("open", "ok") <= 3, "hint and log: no manifest where nothing goes up"
    read = machine.replication.stock
    assert read.reads == 0
    machine.run(first, second)
    assert read.reads == len(machine.manifest(first).encode())
    third = make_source(tmp_path / "store", {**AFTER, "new": b"x"}, sequence=3, parent=second.id)
    machine.run(first, second, third)
    assert read.reads == len(machine.manifest(first).encode()), "what this process wrote it knows"
    assert machine.usage_of(first, second, third).count() == 0


def test_parts_that_are_no_leaves_are_copied_too(machine: ReusingMachine, two: tuple[LocalSource, LocalSource]) -> None:
    """``part_size`` of two leaves: ten parts, of which two hold a changed leaf."""
    first, second = two
    machine.settings["part_size"] = 2 * LEAF
    machine.schedule()
    machine.run(first)
    usage = machine.usage_of(first, second)
    assert usage.count("copy_part") == 8 + (0 if machine.tier.capabilities.copy else 1)
    assert usage.sent("put_part") == 4 * LEAF
    committed_whole(machine, first, second)


class TestSourcesThatFail:
    """A source is a saving and nothing else."""

    @pytest.mark.parametrize("when", ["before", "after"])
    @pytest.mark.parametrize("how", ["deleted", "damaged"])
    def test_gone_or_changed(
        self, machine: ReusingMachine, two: tuple[LocalSource, LocalSource], when: str, how: str
    ) -> None:
        """Between plan and look, or between look and copy."""
        first, second = two
        machine.run(first)
        meddling = machine.meddled(first)

        def act() -> None:
            if how == "deleted":
                machine.delete_data(first, meddling.prefix)
            else:
                machine.damage(first, "model.bin")
                machine.damage(first, "tokenizer.json")

        setattr(meddling, when, act)
        machine.run(first, second)
        assert getattr(meddling, when) is None, "it happened"
        assert machine.holds(second, AFTER)
        assert not second.quarantined

    @pytest.mark.parametrize("verb", ["copy", "copy_part"])
    @pytest.mark.parametrize("action", [Action.NO_DIGEST, Action.WRONG_DIGEST])
    def test_an_unproved_reply_does_not_count(
        self, tmp_path: Path, two: tuple[LocalSource, LocalSource], verb: str, action: Action
    ) -> None:
        first, second = two
        machine = ReusingMachine(tmp_path / "one", MemoryStore())
        machine.run(first)
        machine.schedule(Fault(verb=verb, action=action))
        done = machine.run(first, second).committed[0]
        machine.faulty.assert_all_fired()
        assert done.copied_bytes < TOTAL - SENT
        committed_whole(machine, first, second)

    @pytest.mark.parametrize("error", [ObjectNotFound, IntegrityError, AccessDenied])
    @pytest.mark.parametrize("verb", ["stat", "copy", "copy_part"])
    def test_a_refusal_means_sending(
        self, tmp_path: Path, two: tuple[LocalSource, LocalSource], verb: str, error: type[IntegrityError]
    ) -> None:
        first, second = two
        machine = ReusingMachine(tmp_path / "one", MemoryStore())
        machine.run(first)
        machine.schedule(
            Fault(verb=verb, times=99, error=lambda tier, verb, key: error("no", tier=tier, operation=verb, key=key))
        )
        machine.run(first, second)
        machine.faulty.assert_all_fired()
        committed_whole(machine, first, second)

    def test_a_store_that_does_not_answer_is_asked_again(
        self, machine: ReusingMachine, two: tuple[LocalSource, LocalSource]
    ) -> None:
        """Such a copy may still come about: it must not race with what is sent."""
        first, second = two
        machine.run(first)
        machine.schedule(Fault(verb="copy_part", nth=5, action=Action.LOST_REPLY))
        with pytest.raises(TierUnavailable):
            machine.run(first, second)
        machine.start()
        usage = machine.usage_of(first, second)
        assert usage.sent("put_part") <= SENT
        committed_whole(machine, first, second)

    def test_a_retired_parent_is_not_copied_from(
        self, machine: ReusingMachine, two: tuple[LocalSource, LocalSource]
    ) -> None:
        first, second = two
        machine.run(first)
        retire(machine, first)
        usage = machine.usage_of(second)
        assert usage.count("copy") + usage.count("copy_part") == 0
        assert machine.holds(second, AFTER)

    def test_a_parent_retired_and_deleted_during_the_upload(
        self, machine: ReusingMachine, two: tuple[LocalSource, LocalSource]
    ) -> None:
        first, second = two
        machine.run(first)
        meddling = machine.meddled(first)
        machine.run(first)

        def act() -> None:
            retire(machine, first)
            machine.delete_data(first, meddling.prefix)

        meddling.after = act
        machine.run(first, second)
        state = machine.view().state
        assert state is not None
        assert [one.generation for one in state.live] == [str(second.id)]
        assert machine.holds(second, AFTER)

    def test_a_hurt_parent_is_not_copied_from(
        self, machine: ReusingMachine, two: tuple[LocalSource, LocalSource]
    ) -> None:
        first, second = two
        machine.run(first)
        asked: list[LogState] = []

        def hurt(state: LogState) -> frozenset[object]:
            asked.append(state)
            return frozenset({first.id})

        machine.replication.stock.hurt = hurt  # type: ignore[assignment]
        assert machine.run(first, second).committed[0].copied_bytes == 0
        assert asked

    @pytest.mark.parametrize("how", ["gone", "other"])
    def test_a_manifest_that_cannot_be_read_is_told(
        self, machine: ReusingMachine, two: tuple[LocalSource, LocalSource], how: str
    ) -> None:
        first, second = two
        machine.run(first)
        machine.start()
        key = Key(f"{machine.manifest(first).prefix}manifest.json")
        with machine.store.lock:
            held = machine.store.objects.pop(key)
            if how == "other":
                machine.store.objects[key] = replace(held, data=held.data.replace(b"a", b"b"))
        notes: list[str] = []
        machine.replication.stock.on_note = lambda _tier, text: notes.append(text)
        assert machine.run(first, second).committed[0].copied_bytes == 0
        assert [note[:22] for note in notes] == ["nothing is reused of a"]
        assert machine.holds(second, AFTER)


def retire(machine: ReusingMachine, source: LocalSource) -> None:
    """Take a commit back, as retention does."""
    log = machine.replication.log
    state = log.state
    live = state.find(source.id) if state else None
    assert live is not None
    body = Retire(generation=str(source.id), manifest_key=live.manifest_key, reason="keep_last")
    assert log.append_decided(machine.descent, lambda: (log.held_term(machine.descent), body)) is not None


class TestInterrupted:
    """Whatever changed in between, a repeat writes the same manifest."""

    @pytest.mark.parametrize("nth", range(1, 60, 4))
    @pytest.mark.parametrize("gone", [False, True], ids=["parent stays", "parent goes"])
    def test_at_any_request(self, tmp_path: Path, two: tuple[LocalSource, LocalSource], nth: int, gone: bool) -> None:
        first, second = two
        machine = ReusingMachine(tmp_path / "one", MemoryStore(), capabilities=KINDS["copies parts"])
        machine.run(first)
        machine.start(Fault(verb="*", nth=nth, times=999, when=When.AFTER if nth % 2 else When.BEFORE))
        try:
            machine.run(first, second)
        except TierUnavailable:
            machine.faulty.assert_all_fired()
        machine.start()
        if gone:
            machine.replication.log.refresh(machine.descent)
            prefix = machine.manifest(first).prefix
            retire(machine, first)
            machine.delete_data(first, prefix)
        machine.run(second)
        assert machine.holds(second, AFTER)
        manifests = {key for key in machine.recorder.written if key.endswith("manifest.json")}
        assert machine.recorder.overwritten() == []
        assert len(manifests) == 2

    def test_killed_at_any_effect(self, tmp_path: Path, two: tuple[LocalSource, LocalSource]) -> None:
        """Before and after each request and each transaction: the next process ends the same, and copies once."""
        first, second = two
        for fatal in count(1, 7):
            machine = ReusingMachine(tmp_path / f"m{fatal}", MemoryStore(), capabilities=KINDS["copies parts"])
            machine.run(first)
            machine.replication.connections = 1
            if not dies(machine, fatal, first, second):
                break
            machine.start()
            usage = machine.usage_of(first, second)
            assert usage.sent("put_part") <= SENT, "what stands there is not sent for having been killed"
            committed_whole(machine, first, second)
            assert machine.recorder.overwritten() == []
            machine.tracker.close()
        assert fatal > 100


def dies(machine: ReusingMachine, fatal: int, *sources: LocalSource) -> bool:
    """Run a pass that is killed at an effect; False where it has fewer of them."""
    left = fatal

    def die(_effect: Effect, what: str, _moment: Moment) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise KeyboardInterrupt(what)

    with observing(die), suppress(KeyboardInterrupt):
        machine.run(*sources)
    return left <= 0


def test_whatever_stands_anywhere_serves(tmp_path: Path) -> None:
    """The tier's own reader, with no parent there: the newest that stands is compared with."""
    machine = ReusingMachine(tmp_path / "one", MemoryStore())
    base, other = line(tmp_path, BEFORE, AFTER)
    machine.run(base)
    child = make_source(tmp_path / "more", AFTER, sequence=4, parent=other.id)
    usage = machine.usage_of(child)
    assert usage.sent("put_part") == SENT
    assert MemoryTier("r", machine.store).stat(Key(machine.manifest(child).objects[0].key)).size
