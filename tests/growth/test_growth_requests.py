"""What a run asks of a tier does not grow with its history, and nothing in its everyday life lists."""

from pathlib import Path

import pytest
from growth.history import AT, LongLog
from growth.stage import Machine

from replicate.generation import proofs
from replicate.generation.disk import read_document
from replicate.generation.evidence import Level
from replicate.layout import FOLD_EVERY
from replicate.log import LogView
from replicate.logbook import Logbook
from tiers.memory import MemoryTier
from tiers.metered import Meter, MeteredTier

MANY = 3 * FOLD_EVERY + 40


def _log(count: int) -> tuple[LongLog, Meter, Logbook]:
    meter = Meter()
    log = LongLog(MemoryTier("m"))
    log.claim()
    log.commits(count)
    log.hint()
    return log, meter, Logbook(MeteredTier(log.tier, meter), log.remote)


@pytest.mark.parametrize("count", [10, FOLD_EVERY - 1, FOLD_EVERY, 2 * FOLD_EVERY - 2, MANY])
def test_reading_a_log_begins_at_its_last_folded_slot(count: int) -> None:
    log, meter, book = _log(count)
    view = book.read()
    assert view == log.view or (view.state, view.next_slot) == (log.view.state, log.view.next_slot)
    asked = meter.snapshot().requests
    assert asked["open", "ok"] == count % FOLD_EVERY + 1 + 1, "the slots since the folded one, each once, and the hint"
    assert asked["open", "ObjectNotFound"] == 1
    assert len(asked) == 2, "nothing but reads"


def test_following_a_log_asks_for_what_is_new() -> None:
    log, meter, book = _log(MANY)
    view = book.read()
    before = meter.snapshot()
    log.commits(3)
    assert book.read(view).next_slot == view.next_slot + 3
    assert (meter.snapshot() - before).requests == {("open", "ok"): 3, ("open", "ObjectNotFound"): 1}


def test_a_hint_that_lags_costs_the_slots_that_it_lags() -> None:
    log, meter, book = _log(FOLD_EVERY + 5)
    log.commits(FOLD_EVERY)
    assert book.read().next_slot == log.view.next_slot
    asked = meter.snapshot().requests
    assert asked["open", "ok"] == 5 + 1 + FOLD_EVERY + 1, "and the hint"
    assert not any(verb == "list_objects" for verb, _ in asked)


def test_a_restore_lists_once_more_than_a_status() -> None:
    _, meter, book = _log(MANY)
    book.read(thorough=True)
    listed = meter.snapshot().requests["list_objects", "ok"]
    assert listed == -(-(MANY + 1) // 1000)


def test_a_long_history_changes_nothing_of_what_replicating_asks(tmp_path: Path) -> None:
    seen = []
    for count in (10, MANY):
        machine = Machine(tmp_path / str(count), count)
        machine.publish()
        with machine.session() as session:
            first = session.run_tier("m", session.prepare())
            assert first.report
            assert [one.generation.sequence for one in first.report.committed] == [count + 1]
            prepared = session.prepare()
            idle = machine.asked(lambda s=session, p=prepared: (s.run_tier("m", p), s.tend("m", p, lambda: False)))  # type: ignore[misc]
            assert idle == {}, "a pass with nothing new asks nothing"
            one_more = []
            for _ in range(2):
                machine.publish()
                prepared = session.prepare()
                one_more.append(machine.asked(lambda s=session, p=prepared: s.run_tier("m", p)))  # type: ignore[misc]
            session.keeper.store_changed()
            assert machine.asked(lambda s=session, p=prepared: s.tend_store(p)) == {}  # type: ignore[misc]
        assert machine.memory.open(machine.log.remote.log(count + 4))
        seen.append(one_more)
    assert seen[0] == seen[1]
    assert seen[0][0] == seen[0][1]
    assert not any(verb == "list_objects" for verb, _ in seen[0][0])
    assert sum(seen[0][0].values()) <= 8, "a generation of one file: its object, manifest and entry, and reading back"


def test_looking_lists_nothing_and_status_asks_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "machine", MANY)
    newest = machine.publish()
    with machine.session() as session:
        session.run_tier("m", session.prepare())
    looking = machine.looking()
    assert machine.asked(looking.status) == {}
    assert machine.asked(lambda: looking.wait(tier=None, generation=None, timeout=5)) == {}
    for verb in (
        lambda: looking.status(ask_tiers=True),
        looking.list_generations,
        lambda: looking.explain(newest),
        lambda: looking.safe_to_terminate(()),
    ):
        asked = machine.asked(verb)
        assert not any(kind == "list_objects" for kind, _ in asked)
        assert sum(asked.values()) <= (MANY + 3) % FOLD_EVERY + 1 + 2


def test_what_is_known_of_copies_is_looked_up_in_one_listing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path / "machine", 300)
    view: LogView = machine.log.view
    read: list[Path] = []

    def counted(path: Path, limit: int) -> bytes | None:
        read.append(path)
        return read_document(path, limit)

    monkeypatch.setattr(proofs, "read_document", counted)
    for commit in view.live[:2]:
        proofs.record_proof(
            machine.config.local,
            proofs.Proof(
                generation=commit.generation,
                tier="m",
                manifest_sha256=commit.manifest_sha256,
                level=Level.QUARANTINED,
                at=AT,
            ),
        )
    read.clear()
    levels = proofs.proof_levels(machine.config.local, "m", view.live)
    assert [levels[commit.id] for commit in view.live[:3]] == [Level.QUARANTINED, Level.QUARANTINED, Level.REPLICATED]
    assert len(levels) == 300
    assert len(read) == 2
