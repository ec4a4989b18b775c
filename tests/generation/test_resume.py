"""Which generation training continues from."""

import json
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from replicate import RunStore
from replicate.errors import ContractChanged, Fenced, IntegrityFailure, NothingFound, TrustFailure
from replicate.generation.descent import candidates
from replicate.generation.evidence import Level, write_evidence
from replicate.generation.lineage import Lineage, PastAttempt, RestoredFrom, open_attempt, open_first, read_lineage
from replicate.generation.local import LocalGeneration
from replicate.generation.store import EnvironmentChanged
from replicate.layout import GenerationId
from tiers.clock import SystemClock


def publish(store: RunStore, update: int, content: bytes = b"weights", **options: object) -> LocalGeneration:
    publication = store.publish(next_update=update, **options)  # type: ignore[arg-type]
    with publication as directory:
        (directory / "state.bin").write_bytes(content)
    assert publication.generation is not None
    return publication.generation


def roll_back(store: RunStore, generation: LocalGeneration, seen_attempt: int = 0, seen_sequence: int = 0) -> Lineage:
    """Open a new attempt that continues from ``generation``, as a restore does."""
    return open_attempt(
        store.local,
        SystemClock(),
        run=store.run,
        run_uid=generation.record.run_uid,
        seen_attempt=seen_attempt,
        seen_sequence=seen_sequence,
        parent=generation.id,
        restored_from=RestoredFrom(tier="pod", generation=str(generation.id), slot=3),
    )


def damage(generation: LocalGeneration) -> None:
    (generation.files / "state.bin").write_bytes(b"WEIGHTS")


def test_a_fresh_store_has_nothing_to_resume(store: RunStore) -> None:
    assert store.latest() is None
    with pytest.raises(NothingFound, match="no generation") as caught:
        store.resume()
    assert "ckptier restore" in caught.value.hint
    assert not store.local.root.exists()


def test_after_a_rollback_the_older_generation_is_resumed(store: RunStore) -> None:
    """The newer ones of the abandoned attempt still lie there and have higher updates."""
    old, _ = publish(store, 200), publish(store, 500)
    lineage = roll_back(store, old)
    assert lineage.attempt == 2
    assert store.resume().id == old.id
    assert store.latest() == store.get(old.id)

    after = publish(store, 220)
    assert (after.id.attempt, after.id.sequence) == (2, 3)
    assert after.record.parent == str(old.id)
    assert store.resume().id == after.id
    assert store.generations()[0].id == after.id


def test_a_new_attempt_is_above_everything_seen_anywhere(store: RunStore) -> None:
    first = publish(store, 1)
    lineage = roll_back(store, first, seen_attempt=6, seen_sequence=40)
    assert (lineage.attempt, lineage.highest_sequence) == (7, 40)
    assert lineage.history == (PastAttempt(number=1, id=first.record.attempt_id, parent=None),)
    assert publish(store, 2).id.sequence == 41
    assert read_lineage(store.local) == store.lineage()


def test_another_run_is_not_mixed_in(store: RunStore, tmp_path: Path) -> None:
    publish(store, 1)
    other = RunStore(tmp_path / "elsewhere" / "llm-7b")
    with pytest.raises(TrustFailure, match="holds the run"):
        roll_back(store, publish(other, 1))


def test_opening_the_first_attempt_again_changes_nothing(store: RunStore) -> None:
    opened = open_first(store.local, SystemClock(), run=store.run)
    assert open_first(store.local, SystemClock(), run=store.run) == opened


@pytest.mark.parametrize("content", [b"", b"{", b'{"format":1}', b"[]"])
def test_a_damaged_lineage_is_reported_and_nothing_is_guessed(store: RunStore, content: bytes) -> None:
    publish(store, 1)
    store.local.lineage.write_bytes(content)
    for use in (store.resume, store.latest, lambda: publish(store, 2)):
        with pytest.raises(IntegrityFailure, match=r"lineage\.json") as caught:
            use()
        assert "ckptier restore" in caught.value.hint


def test_generations_without_a_lineage_are_refused(store: RunStore) -> None:
    publish(store, 1)
    store.local.lineage.unlink()
    with pytest.raises(IntegrityFailure, match="is missing beside"):
        publish(store, 2)


def test_damaged_bytes_are_quarantined_and_the_older_one_resumed(store: RunStore) -> None:
    """Same size: only the stat identity tells that it has to be hashed again."""
    old, new = publish(store, 1), publish(store, 2)
    damage(new)
    resumed = store.resume()
    assert resumed.id == old.id
    (skipped,) = resumed.skipped
    assert skipped.generation == str(new.id)
    assert "state.bin" in skipped.reason
    assert store.get(new.id).level is Level.QUARANTINED


def test_a_quarantined_generation_is_not_checked_again_and_is_no_parent(store: RunStore) -> None:
    old, new = publish(store, 1), publish(store, 2)
    damage(new)
    store.resume()
    (new.files / "state.bin").write_bytes(b"weights")
    assert store.validate(new.id).level is Level.QUARANTINED
    assert publish(store, 3).record.parent == str(old.id)


def test_a_copied_store_is_hashed_again_and_found_good(store: RunStore) -> None:
    generation = publish(store, 1)
    path = generation.files / "state.bin"
    path.write_bytes(path.read_bytes())
    assert store.resume().skipped == ()
    evidence = store.get(generation.id).evidence
    assert evidence is not None
    assert evidence.identities["state.bin"].mtime_ns == path.stat().st_mtime_ns


@pytest.mark.parametrize(
    ("hurt", "words"),
    [
        (lambda one: (one.files / "state.bin").unlink(), "is missing"),
        (lambda one: (one.files / "state.bin").write_bytes(b""), "0 bytes"),
        (lambda one: (one.directory / "generation.json").write_bytes(b"{}"), "generation.json"),
        (lambda one: (one.directory / "generation.json").unlink(), "generation.json"),
    ],
    ids=["file gone", "truncated", "document damaged", "document gone"],
)
def test_every_kind_of_damage_is_found(store: RunStore, hurt, words: str) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    publish(store, 1)
    new = publish(store, 2)
    hurt(new)
    resumed = store.resume()
    assert resumed.id.next_update == 1
    assert words in resumed.skipped[0].reason


def test_an_altered_contract_in_generation_json_is_noticed(store: RunStore) -> None:
    """The id binds the files; the evidence binds the document."""
    new = publish(store, 1, contract={"config": "aa"})
    document = new.directory / "generation.json"
    document.write_bytes(document.read_bytes().replace(b'"aa"', b'"bb"'))
    with pytest.raises(NothingFound, match="not the one that was sealed"):
        store.resume()


def test_an_extra_file_is_noticed_when_everything_is_checked(store: RunStore) -> None:
    new = publish(store, 1)
    (new.files / "intruder").write_bytes(b"x")
    (store.local.evidence / f"{new.id}.json").write_bytes(b"not json")
    assert "'intruder'" in store.validate(new.id).reason


def test_the_latest_hint_is_rebuilt(store: RunStore) -> None:
    publish(store, 1)
    store.local.latest.write_bytes(b"torn")
    resumed = store.resume()
    assert json.loads(store.local.latest.read_bytes())["generation"] == str(resumed.id)


def test_a_quarantined_generation_is_not_latest(store: RunStore) -> None:
    """Neither by what was found out here nor by what an upload found."""
    old, new = publish(store, 1), publish(store, 2)
    damage(new)
    assert store.validate(new.id).level is Level.QUARANTINED
    assert json.loads(store.local.latest.read_bytes())["generation"] == str(old.id)
    store.quarantine(old.id, "the bytes sent were not those sealed")
    assert store.latest() is None
    assert not store.local.latest.exists()
    with pytest.raises(NothingFound, match="not those sealed"):
        store.resume()


def test_a_changed_contract_names_every_key(store: RunStore) -> None:
    publish(store, 1, contract={"config": "aa", "tokenizer": "tt", "code": "v1"})
    wanted = {"config": "bb", "tokenizer": "tt", "shards": "ss"}
    with pytest.raises(ContractChanged) as caught:
        store.resume(contract=wanted)
    assert caught.value.keys == ("code", "config", "shards")
    for words in ("changed: config", "missing now: code", "new: shards"):
        assert words in caught.value.message
    with pytest.raises(ContractChanged) as caught:
        store.resume(contract=wanted, allow=("code",))
    assert caught.value.keys == ("config", "shards")
    assert store.resume(contract=wanted, allow=("code", "config", "shards")).id.next_update == 1


def test_a_changed_environment_warns(store: RunStore) -> None:
    publish(store, 1, environment={"python": "2.7", "cluster": "not compared"})
    with pytest.warns(EnvironmentChanged, match=r"python: '2\.7' then"):
        store.resume()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert store.latest() is not None


def test_a_better_standing_survives_a_later_check(store: RunStore) -> None:
    generation = publish(store, 1)
    assert generation.evidence is not None
    write_evidence(store.local, generation.evidence.model_copy(update={"level": Level.REHEARSED, "identities": {}}))
    assert store.validate(generation.id).level is Level.REHEARSED
    assert Level.REHEARSED.reaches(Level.READ_BACK)
    assert not Level.SEALED.reaches(Level.VALIDATED)


def test_a_leased_generation_is_not_removed(store: RunStore) -> None:
    old, new = publish(store, 1), publish(store, 2)
    with store.lease(old.id) as leased, store.lease(str(old.id)):
        assert leased.files == old.files
        with pytest.raises(Fenced, match="in use"):
            store.remove(old.id)
    store.remove(old.id)
    assert [one.id for one in store.generations()] == [new.id]
    with pytest.raises(NothingFound), store.lease(old.id):
        pass
    with pytest.raises(NothingFound):
        store.get(old.id)


def test_what_training_would_need_is_not_removed(store: RunStore) -> None:
    old, new = publish(store, 1), publish(store, 2)
    with pytest.raises(Fenced, match="continue from"):
        store.remove(new.id)
    roll_back(store, old)
    newer = publish(store, 3)
    with pytest.raises(Fenced, match="started from"):
        store.remove(old.id)
    store.remove(new.id)
    assert [one.id for one in store.generations()] == [newer.id, old.id]


def lineage_of(attempt: int, parent: str | None, history: tuple[PastAttempt, ...] = ()) -> Lineage:
    return Lineage(
        run="r",
        run_uid="u",
        attempt=attempt,
        attempt_id="x",
        parent=parent,
        highest_attempt=attempt,
        highest_sequence=10**6,
        opened_at="now",
        history=history,
    )


def name(attempt: int, sequence: int) -> GenerationId:
    return GenerationId(attempt, sequence, 0, "00000000")


def nothing_recorded(_generation: GenerationId) -> None:
    return None


def test_the_line_of_descent_skips_abandoned_attempts() -> None:
    history = (
        PastAttempt(number=1, id="a", parent=None),
        PastAttempt(number=2, id="b", parent=str(name(1, 3))),
    )
    lineage = lineage_of(3, str(name(2, 6)), history)
    present = [name(1, sequence) for sequence in (1, 2, 3, 4, 5)] + [name(2, 6), name(2, 7), name(3, 8)]
    line = candidates(lineage, present, nothing_recorded)
    assert line == [name(3, 8), name(2, 6), name(1, 3), name(1, 2), name(1, 1)]


def test_an_unknown_attempt_is_followed_by_its_records() -> None:
    """A store on a fresh machine has no history of attempts that it never made."""
    lineage = lineage_of(4, str(name(3, 9)))
    present = [name(3, 9), name(1, 2), name(1, 5)]
    assert candidates(lineage, present, {name(3, 9): str(name(1, 2))}.get) == [name(3, 9), name(1, 2)]
    assert candidates(lineage, present, nothing_recorded) == [name(3, 9)]


@given(st.data())
def test_the_line_never_contains_what_a_rollback_went_behind(data: st.DataObject) -> None:
    """Against a model that simply copies the line at each rollback."""
    line: list[GenerationId] = []
    present: list[GenerationId] = []
    history: tuple[PastAttempt, ...] = ()
    attempt, parent = 1, None
    for sequence, roll in enumerate(data.draw(st.lists(st.booleans(), max_size=12)), start=1):
        if roll and line:
            kept = data.draw(st.integers(1, len(line)))
            line = line[:kept]
            history = (*history, PastAttempt(number=attempt, id="x", parent=parent))
            attempt, parent = attempt + 1, str(line[-1])
        else:
            line = [*line, name(attempt, sequence)]
            present.append(line[-1])
    assert candidates(lineage_of(attempt, parent, history), present, nothing_recorded) == line[::-1]


def test_a_script_begins_with_resume_or_none(store: RunStore) -> None:
    """None only where nothing ever was: a deferred seal counts, and what was removed is no fresh start."""
    assert store.resume_or_none() is None
    with store.publish(next_update=1, defer_seal=True) as directory:
        (directory / "w.bin").write_bytes(b"w")
    assert store.latest() is None
    found = store.resume_or_none()
    assert found is not None
    assert found.id.next_update == 1
    evidence = store.validate(found.id)
    store.quarantine(found.id, "hurt")
    assert evidence.level is not None
    with pytest.raises(NothingFound, match="hurt"):
        store.resume_or_none()


def test_a_staged_save_that_cannot_be_sealed_is_no_fresh_start(store: RunStore) -> None:
    with store.publish(next_update=1, defer_seal=True) as directory:
        (directory / "w.bin").write_bytes(b"w")
    (staged,) = store.local.root.glob(".staged-*")
    (staged / "staged.json").write_bytes(b"{")
    with pytest.raises(NothingFound):
        store.resume_or_none()
    assert staged.is_dir()
