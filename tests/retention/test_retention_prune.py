"""Retiring and deleting on one tier: order, delay, pins, races, failures, and starting again."""

from contextlib import suppress
from pathlib import Path

import pytest
from core.builders import REMOTE, SECOND, Machine, RecordingTier, make_source
from core.checks import kinds
from core.intruders import Intruder, add_entry
from retention.stage import DELAY, ClockedTier, Keep, keep_on, say

from replicate.errors import Fenced, IntegrityFailure
from replicate.layout import GenerationId
from replicate.log import Claim, Pin, Retire, Unpin
from replicate.prune import SweepReport, TooMany
from replicate.retention import Policy, Reason, Rule
from replicate.terms import Descent
from tiers.errors import AccessDenied, TierUnavailable
from tiers.memory import MemoryTier
from tiers.protocol import Key
from tiers.testing import Action, Fault


@pytest.fixture
def keep(tmp_path: Path) -> Keep:
    """One machine that keeps the newest two."""
    return keep_on(tmp_path, policy=Policy(keep_last=2))


def swept(report: SweepReport) -> list[GenerationId]:
    return [one.generation for one in report.swept]


def test_what_goes_is_retired_oldest_first_and_nothing_is_deleted_yet(keep: Keep) -> None:
    made = keep.chain(4)
    assert keep.retire() == made[:2]
    assert keep.live() == made[2:]
    assert kinds(keep.store)[-2:] == ["retire", "retire"]
    assert keep.pruner().sweep().swept == ()
    assert keep.tier.deleted == []
    keep.check()


def test_bytes_go_after_the_delay_manifest_first_and_nothing_else_with_them(keep: Keep) -> None:
    made = keep.chain(3)
    keep.retire()
    theirs = keep.keys(made[0])
    keep.clock.advance(DELAY - 1)
    waiting = keep.pruner().sweep()
    assert [(one.generation, one.due_in) for one in waiting.pending] == [(made[0], 1.0)]
    keep.clock.advance(1)
    assert swept(keep.pruner().sweep()) == [made[0]]
    assert keep.tier.deleted[0].endswith("/manifest.json")
    assert sorted(keep.tier.deleted) == theirs
    assert keep.keys(made[0]) == []
    keep.check()


def test_the_delay_runs_by_the_stores_clock_and_not_by_ours(keep: Keep) -> None:
    """Ours may jump by days: what the store said of the entry, and says now, decides."""
    made = keep.chain(3)
    keep.retire()
    slot = keep.state.retired[0].slot
    keep.tier.times[REMOTE.log(slot)] = keep.clock.now()
    ours = keep.machine.replication.log.clock
    assert ours is keep.clock
    late = keep.clock.now()
    keep.tier.clock = type(keep.clock)(late)  # the store's clock stays where it is
    keep.clock.advance(10 * DELAY)
    assert keep.pruner().sweep().swept == ()
    keep.tier.clock.advance(DELAY)
    assert swept(keep.pruner().sweep()) == [made[0]]


def test_a_store_that_does_not_tell_the_time_deletes_only_where_no_delay_is_wanted(tmp_path: Path) -> None:
    keep = keep_on(tmp_path, policy=Policy(keep_last=1), told=False)
    made = keep.chain(2)
    keep.retire()
    keep.clock.advance(100 * DELAY)
    (pending,) = keep.pruner().sweep().pending
    assert "does not tell the time" in pending.reason
    keep.delay = 0.0
    assert swept(keep.pruner().sweep()) == [made[0]]


def test_repeating_it_changes_no_byte(keep: Keep) -> None:
    """I17, but for the hint."""
    keep.chain(4)
    keep.retire()
    keep.clock.advance(DELAY)
    keep.pruner().sweep()
    before = {key: one.data for key, one in keep.store.objects.items() if key != REMOTE.head}
    deleted = len(keep.tier.deleted)
    keep.restart()
    assert keep.retire() == []
    assert keep.pruner().sweep() == SweepReport()
    assert {key: one.data for key, one in keep.store.objects.items() if key != REMOTE.head} == before
    assert len(keep.tier.deleted) == deleted


def test_what_was_retired_before_a_restart_is_deleted_after_it(keep: Keep) -> None:
    """The log says what is retired and not yet gone; also where the tracker was lost."""
    made = keep.chain(3)
    keep.retire()
    keep.restart()
    (keep.machine.local.root / "tracker.sqlite").unlink()
    keep.restart()
    keep.clock.advance(DELAY)
    assert swept(keep.pruner().sweep()) == [made[0]]


def test_what_is_gone_is_dropped_from_the_log_with_the_next_retirement(keep: Keep) -> None:
    """The folded state stays small, without an entry of its own for each deletion."""
    keep.chain(4)
    keep.retire()
    assert len(keep.state.retired) == 2
    keep.clock.advance(DELAY)
    keep.pruner().sweep()
    keep.chain(1, first=5)
    keep.retire()
    assert [one.id.sequence for one in keep.state.retired] == [3]
    assert keep.machine.tracker.swept("remote") == frozenset()


def test_a_pin_that_comes_first_wins(keep: Keep) -> None:
    """Each lost slot is decided again: the pin took the slot that the retirement was made for."""
    made = keep.chain(3)
    tier = ClockedTier(MemoryTier("remote", keep.store), keep.clock)
    slot = keep.machine.view().next_slot
    pin = Pin(generation=str(made[0]), reason="paper")
    keep.machine.recorder = Intruder(tier, slot, lambda: say(keep.store, pin))  # type: ignore[arg-type]
    keep.restart()
    assert keep.retire() == []
    assert isinstance(keep.machine.recorder, Intruder)
    assert keep.machine.recorder.done
    assert keep.live() == made
    say(keep.store, Unpin(generation=str(made[0])))
    keep.restart()
    assert keep.retire() == [made[0]]


def test_the_log_refuses_to_retire_what_is_pinned(keep: Keep) -> None:
    """Also from a writer that decides otherwise: every reader folds by the same rule."""
    made = keep.chain(2)
    say(keep.store, Pin(generation=str(made[0]), reason=""))
    keep.restart()
    log = keep.machine.replication.log
    commit = log.state.find(made[0]) if log.state else None
    assert commit is not None
    held = keep.machine.tracker.term("remote")
    assert held is not None
    body = Retire(generation=str(made[0]), manifest_key=commit.manifest_key, reason="stubborn")
    assert log.append(log.entry(keep.machine.descent, held.term, body))
    view = keep.machine.view()
    assert [commit.id for commit in view.live] == [made[1], made[0]]
    assert [verdict for _, verdict in view.refused] == ["pinned"]


def test_c18_only_what_is_committed_counts_and_what_is_under_way_is_left_alone(keep: Keep) -> None:
    """The newest is half uploaded: the one before it is the newest that counts, and stays."""
    keep.policy = Policy(keep_last=1)
    made = keep.chain(2)
    keep.machine.schedule(Fault(verb="put", key="*g000003*/manifest.json", times=10**6))
    with pytest.raises(TierUnavailable):
        keep.chain(1, first=3)
    half = keep.keys(max(keep.sources))
    assert half
    assert keep.retire() == [made[0]]
    keep.clock.advance(DELAY)
    keep.pruner().sweep()
    assert keep.live() == [made[1]]
    assert keep.keys(max(keep.sources)) == half


def test_c19_what_this_machine_resumed_from_stays(keep: Keep) -> None:
    keep.policy = Policy(keep_last=1)
    made = keep.chain(3)
    keep.holds = {made[0]: [Reason(rule=Rule.RESUMED_FROM, text="what this machine's attempt started from")]}
    assert keep.retire() == [made[1]]
    assert keep.live() == [made[0], made[2]]


def test_c19_nothing_outside_the_run_is_ever_deleted(keep: Keep) -> None:
    """A run whose name begins with ours, and keys that somebody put below our own folder."""
    tier = MemoryTier("stranger", keep.store)
    strangers = [
        "llm-7b-2/generations/x/files/a",
        "llm-7b/generations/a0001-g000001-u000000000100-00000000.t1-notes.txt",
        "llm-7b/notes.txt",
        "other/log/000000000000.json",
    ]
    for key in strangers:
        tier.create(Key(key), b"not ours")
    keep.policy = Policy(keep_last=1)
    made = keep.chain(3)
    keep.retire()
    keep.clock.advance(DELAY)
    assert len(keep.pruner().sweep().swept) == 2
    assert set(strangers) <= set(keep.store.objects)
    assert {key.partition(".t")[0] for key in keep.tier.deleted} == {f"llm-7b/generations/{one}" for one in made[:2]}


def test_c23_a_deletion_that_fails_half_way_is_finished_later_and_never_half_visible(keep: Keep) -> None:
    """One object was removed by hand before; another cannot be deleted at first."""
    made = keep.chain(3)
    keep.retire()
    keep.clock.advance(DELAY)
    rng, model = (next(key for key in keep.keys(made[0]) if name in key) for name in ("rng.pt", "model.bin"))
    MemoryTier("by hand", keep.store).delete(Key(rng))
    keep.restart(Fault(verb="delete", key=model))
    with pytest.raises(TierUnavailable):
        keep.pruner().sweep()
    keep.machine.faulty.assert_all_fired()
    assert made[0] not in keep.live()
    assert keep.keys(made[0]) == [model]
    assert swept(keep.pruner().sweep()) == [made[0]]
    assert keep.keys(made[0]) == []


def test_a_key_that_may_not_delete_leaves_everything_retired_and_says_so(keep: Keep) -> None:
    """The writer's key need not be able to delete: the collector has another one."""
    made = keep.chain(3)
    keep.retire()
    keep.clock.advance(DELAY)

    def denied(tier: str, verb: str, key: str) -> Exception:
        return AccessDenied("not with this key", tier=tier, operation=verb, key=key)

    keep.restart(Fault(verb="delete", times=10**6, error=denied))
    with pytest.raises(AccessDenied):
        keep.pruner().sweep()
    assert len(keep.keys(made[0])) == 3
    assert [one.id for one in keep.state.retired] == [made[0]]


class Sticky(ClockedTier):
    """A store that says it deleted and goes on listing."""

    def delete(self, key: Key) -> None:
        self.deleted.append(key)


def test_a_deletion_counts_once_nothing_is_listed_any_more(keep: Keep) -> None:
    keep.chain(3)
    keep.retire()
    keep.clock.advance(DELAY)
    sticky = Sticky(MemoryTier("remote", keep.store), keep.clock)
    sticky.times = keep.tier.times
    keep.machine.recorder = RecordingTier(sticky)
    keep.restart()
    with pytest.raises(TierUnavailable, match="still listed"):
        keep.pruner().sweep()
    assert keep.machine.tracker.swept("remote") == frozenset()


def test_a_generation_that_this_machine_is_restoring_stays_for_as_long_as_that_takes(keep: Keep) -> None:
    made = keep.chain(3)
    keep.retire()
    keep.clock.advance(100 * DELAY)
    keep.reading = frozenset({made[0]})
    (pending,) = keep.pruner().sweep().pending
    assert pending.reason == "it is being restored on this machine"
    assert len(keep.keys(made[0])) == 3
    keep.reading = frozenset()
    assert swept(keep.pruner().sweep()) == [made[0]]


def test_c26_deleting_gives_way_at_once_and_goes_on_later(keep: Keep) -> None:
    """Between two requests it is asked whether something newer waits."""
    made = keep.chain(3)
    keep.retire()
    keep.clock.advance(DELAY)
    report = keep.pruner().sweep(interrupted=lambda: len(keep.tier.deleted) >= 1)
    assert (swept(report), report.more) == ([], True)
    assert len(keep.keys(made[0])) == 2
    assert swept(keep.pruner().sweep()) == [made[0]]


def test_a_limit_takes_the_oldest_and_tells_that_there_is_more(keep: Keep) -> None:
    made = keep.chain(5)
    keep.pruner().retire(keep.machine.descent, most=True)
    keep.clock.advance(DELAY)
    first = keep.pruner().sweep(limit=1)
    assert (swept(first), first.more) == ([made[0]], True)
    assert swept(keep.pruner().sweep()) == made[1:3]


def test_more_than_a_share_is_refused_and_done_where_it_is_named(keep: Keep) -> None:
    keep.policy = Policy(keep_last=1)
    made = keep.chain(8)
    with pytest.raises(TooMany, match="7 of 8") as caught:
        keep.retire()
    assert "--unsafe-remove-most" in caught.value.hint
    assert keep.live() == made
    assert len(keep.pruner().retire(keep.machine.descent, most=True)) == 7


def test_a_lost_reply_retires_once(keep: Keep) -> None:
    keep.chain(3)
    slot = keep.machine.view().next_slot
    keep.restart(Fault(verb="create", key=REMOTE.log(slot), action=Action.LOST_REPLY))
    keep.retire()
    keep.machine.faulty.assert_all_fired()
    assert kinds(keep.store).count("retire") == 1
    keep.check()


def test_a_writer_that_was_overtaken_retires_nothing(keep: Keep) -> None:
    made = keep.chain(3)
    add_entry(keep.store, Claim(writer="heir", start=str(made[2])), SECOND, term=2)
    with pytest.raises(Fenced):
        keep.retire()
    assert keep.live() == made
    assert "retire" not in kinds(keep.store)


def test_a_damaged_log_takes_no_retirement(keep: Keep) -> None:
    """What it hides may be what the policy counts by."""
    made = keep.chain(3)
    tier = MemoryTier("damage", keep.store)
    tier.delete(REMOTE.log(2))
    tier.create(REMOTE.log(2), b"rubbish")
    keep.machine.replication.log.view = None
    keep.machine.replication.log.refresh(keep.machine.descent)
    keep.policy = Policy(keep_last=1)
    with pytest.raises(IntegrityFailure, match="damaged"):
        keep.retire()
    assert keep.keys(made[0])


@pytest.mark.parametrize(
    "key",
    [
        "other/generations/a0001-g000001-u000000000100-00000000.t1-n/manifest.json",
        "llm-7b/log/000000000000.json",
        "llm-7b/generations/a0009-g000009-u000000000900-00000000.t1-n/manifest.json",
    ],
)
def test_a_retired_commit_whose_manifest_is_elsewhere_deletes_nothing(keep: Keep, key: str) -> None:
    """A log is no trusted place: what is deleted is only what we would have written for that generation."""
    keep.chain(3)
    keep.retire()
    keep.clock.advance(DELAY)
    log = keep.machine.replication.log
    assert log.view is not None
    assert log.view.state is not None
    forged = tuple(one.model_copy(update={"manifest_key": key}) for one in log.view.state.retired)
    state = log.view.state.model_copy(update={"retired": forged})
    log.view = type(log.view)(state=state, next_slot=log.view.next_slot, last_sha256=log.view.last_sha256)
    (pending,) = keep.pruner().sweep().pending
    assert "none of ours" in pending.reason
    assert keep.tier.deleted == []


def test_uploads_in_parts_that_were_given_up_are_aborted(keep: Keep) -> None:
    """They are billed until then, and no listing shows them; what this tracker began it remembers."""
    keep.machine.replication.part_size = 64
    keep.machine.settings = {"part_size": 64}
    keep.machine.schedule(Fault(verb="put_part", nth=2, times=10**6))
    with pytest.raises(TierUnavailable):
        keep.chain(1)
    assert len(keep.store.uploads) == 1
    keep.machine.replication.log.abandon(max(keep.sources), "given up")
    keep.restart()
    assert keep.pruner().sweep().aborted == 1
    assert keep.store.uploads == {}
    assert keep.pruner().sweep().aborted == 0


def test_a_claim_says_where_its_attempt_began(keep: Keep, tmp_path: Path) -> None:
    """Also where the attempt's first generations never come to this tier."""
    made = keep.chain(2)
    begun = Descent(run_uid=SECOND.run_uid, attempt=2, attempt_id=SECOND.attempt_id, start=str(made[0]))
    heir = Machine(tmp_path / "heir", keep.store, descent=begun, writer="heir")
    heir.run(make_source(tmp_path / "heirs", {"f": b"1"}, sequence=4, parent=made[1], descent=begun))
    assert [(one.number, one.start) for one in keep.state.attempts] == [(1, None), (2, str(made[0]))]
    heir.tracker.close()


def test_where_an_attempt_began_stands_in_the_log_for_good(keep: Keep) -> None:
    """So that any machine prunes by the same line of descent, also when the first generations are gone."""
    made = keep.chain(3)
    keep.policy = Policy(keep_last=1)
    begun = Descent(run_uid=SECOND.run_uid, attempt=2, attempt_id=SECOND.attempt_id, start=str(made[0]))
    keep.publish(4, 110, parent=made[0], descent=begun)
    assert [(one.number, one.start) for one in keep.state.attempts] == [(1, None), (2, str(made[0]))]
    keep.publish(5, 120, parent=max(keep.sources), descent=begun)
    assert keep.retire() == [made[0], made[1], GenerationId.parse(keep.sources[sorted(keep.sources)[3]].record.id)]
    assert keep.live() == [made[2], max(keep.sources)], "the line that was left has got further, so its tip stays"


@pytest.mark.parametrize("verb", ["delete", "list_objects", "stat", "put"])
def test_a_tier_that_fails_at_any_request_of_it_is_finished_by_the_next_call(keep: Keep, verb: str) -> None:
    """Every request fails once, in turn: nothing is lost, and all of it is gone in the end."""
    nth = 0
    fired = True
    made = keep.chain(4)
    keep.retire()
    keep.clock.advance(DELAY)
    while fired:
        nth += 1
        keep.restart(Fault(verb=verb, nth=nth))
        with suppress(TierUnavailable):
            keep.pruner().sweep()
        fired = bool(keep.machine.faulty.fired)
        keep.check()
    assert nth > 1
    assert [keep.keys(one) for one in made[:2]] == [[], []]
