"""Bytes that are not what was sealed: made up for from elsewhere, or the next generation, never handed out."""

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import pytest
from support.commits import (
    REMOTE,
    Made,
    Restore,
    Writer,
    expected,
    flip,
    generation,
    keys,
    tamper,
    tree,
)

from replicate.errors import CkptierError, Denied, IntegrityFailure, NothingFound, PartialFailure, Unreachable
from replicate.restore.places import Fault as LeafFault
from tiers.bodies import BytesBody
from tiers.errors import AccessDenied, ObjectNotFound, TierUnavailable
from tiers.memory import MemoryTier
from tiers.protocol import Key, Tier
from tiers.testing.faulty import Action, Fault, FaultyTier


@pytest.fixture
def old(writer: Writer) -> Made:
    made = generation(1)
    writer.commit(made)
    return made


@pytest.fixture
def new(writer: Writer, old: Made) -> Made:
    made = generation(2)
    writer.commit(made)
    return made


def key_of(writer: Writer, made: Made, path: str) -> Key:
    assert writer.view.state is not None
    commit = writer.view.state.find(made.id)
    assert commit is not None
    return Key(commit.manifest_key) if path == "manifest.json" else keys(writer.tier, made, commit)[path]


def gone(tier: Tier, key: Key) -> None:
    tier.delete(key)


DAMAGE: dict[str, tuple[str, Callable[[Tier, Key], None]]] = {
    "first byte of a leaf": ("model.bin", lambda tier, key: tamper(tier, key, flip(0))),
    "last byte of the file": ("model.bin", lambda tier, key: tamper(tier, key, flip(4999))),
    "truncated": ("model.bin", lambda tier, key: tamper(tier, key, lambda data: data[:-1])),
    "cut to whole leaves": ("model.bin", lambda tier, key: tamper(tier, key, lambda data: data[:4096])),
    "emptied": ("config.json", lambda tier, key: tamper(tier, key, lambda _: b"")),
    "extended": ("optim/state.bin", lambda tier, key: tamper(tier, key, lambda data: data + b"\0")),
    "object gone": ("config.json", gone),
    "manifest gone": ("manifest.json", gone),
    "manifest flipped": ("manifest.json", lambda tier, key: tamper(tier, key, flip(20))),
    "manifest extended": ("manifest.json", lambda tier, key: tamper(tier, key, lambda data: data + b" ")),
    "manifest emptied": ("manifest.json", lambda tier, key: tamper(tier, key, lambda _: b"")),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_newest_that_cannot_be_proved_is_skipped_with_its_reason(
    writer: Writer, old: Made, new: Made, run_restore: Restore, tmp_path: Path, damage: str
) -> None:
    path, hurt = DAMAGE[damage]
    hurt(writer.tier, key_of(writer, new, path))
    report = run_restore(writer.tier, to=tmp_path / "out")
    assert tree(tmp_path / "out") == expected(old)
    assert report.fell_back
    assert (report.generation, report.skipped[-1].generation, report.skipped[-1].place) == (old.id, new.id, "a")
    assert path.removesuffix(".json") in report.skipped[-1].reason
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("damage", DAMAGE)
def test_c11_a_named_generation_is_exact_or_nothing(
    writer: Writer, old: Made, new: Made, run_restore: Restore, tmp_path: Path, damage: str
) -> None:
    run_restore(writer.tier, to=tmp_path / "old", generation=old.id)
    assert tree(tmp_path / "old") == expected(old)
    path, hurt = DAMAGE[damage]
    hurt(writer.tier, key_of(writer, new, path))
    with pytest.raises(IntegrityFailure, match=str(new.id)) as caught:
        run_restore(writer.tier, to=tmp_path / "new", generation=new.id)
    assert caught.value.hint
    assert [entry.name for entry in tmp_path.iterdir()] == ["old"]


def test_c11_hints_play_no_part(writer: Writer, old: Made, new: Made, run_restore: Restore, tmp_path: Path) -> None:
    for number, head in enumerate((b'{"format":1,"slot":0}', b"{", b'{"format":1,"slot":999}')):
        writer.tier.delete(REMOTE.head)
        writer.tier.create(REMOTE.head, head)
        run_restore(writer.tier, to=tmp_path / f"old{number}", generation=old.id)
        run_restore(writer.tier, to=tmp_path / f"new{number}")
        assert tree(tmp_path / f"old{number}") == expected(old)
        assert tree(tmp_path / f"new{number}") == expected(new)


def test_under_strict_nothing_older_is_taken(writer: Writer, new: Made, run_restore: Restore, tmp_path: Path) -> None:
    tamper(writer.tier, key_of(writer, new, "model.bin"), flip(7))
    with pytest.raises(PartialFailure, match="cannot be proved"):
        run_restore(writer.tier, to=tmp_path / "out", strict=True)
    assert not any(tmp_path.iterdir())


def test_when_nothing_can_be_proved_every_reason_is_given(
    writer: Writer, old: Made, new: Made, run_restore: Restore, tmp_path: Path
) -> None:
    for made in (old, new):
        tamper(writer.tier, key_of(writer, made, "model.bin"), flip(7))
    with pytest.raises(IntegrityFailure) as caught:
        run_restore(writer.tier, to=tmp_path / "out")
    assert str(old.id) in caught.value.message
    assert str(new.id) in caught.value.message
    assert not any(tmp_path.iterdir())


def test_c80_one_generation_is_put_together_from_two_tiers_with_a_damaged_object_each(
    writer: Writer, other: Writer, old: Made, new: Made, run_restore: Restore, tmp_path: Path
) -> None:
    other.term = 5
    other.commit(old)
    other.commit(new)
    tamper(writer.tier, key_of(writer, new, "model.bin"), flip(2000))
    tamper(other.tier, key_of(other, new, "optim/state.bin"), flip(10))
    report = run_restore(writer.tier, other.tier, to=tmp_path / "out")
    assert tree(tmp_path / "out") == expected(new)
    assert not report.fell_back
    assert dict(report.by_place) == {"a": new.record.total_bytes - 1024, "b": 1024}
    assert {(fault.place, fault.path, fault.fault) for fault in report.incidents} == {
        ("a", "model.bin", LeafFault.DIFFERS)
    }


@pytest.mark.parametrize("damage", ["manifest gone", "manifest flipped", "object gone", "truncated"])
def test_c80_the_same_generation_from_the_second_tier_is_preferred_to_an_older_one(
    writer: Writer, other: Writer, new: Made, run_restore: Restore, tmp_path: Path, damage: str
) -> None:
    other.commit(new)
    path, hurt = DAMAGE[damage]
    hurt(writer.tier, key_of(writer, new, path))
    report = run_restore(writer.tier, other.tier, to=tmp_path / "out")
    assert tree(tmp_path / "out") == expected(new)
    assert report.generation == new.id
    assert report.incidents or report.skipped


def test_c80_a_newer_generation_on_the_second_tier_wins(
    writer: Writer, other: Writer, old: Made, run_restore: Restore, tmp_path: Path
) -> None:
    newer = generation(7)
    other.commit(newer)
    assert run_restore(writer.tier, other.tier, to=tmp_path / "out").generation == newer.id


def test_c80_a_tier_that_is_down_stops_a_restore_unless_an_older_one_is_accepted(
    writer: Writer, old: Made, run_restore: Restore, tmp_path: Path
) -> None:
    down = FaultyTier(MemoryTier("b"), [Fault(verb="*", times=10**6)])
    with pytest.raises(Unreachable, match="newer"):
        run_restore(writer.tier, down, to=tmp_path / "out")
    assert run_restore(writer.tier, down, to=tmp_path / "out", accept_older=True).generation == old.id
    down.assert_all_fired()


def missing_bucket(tier: str, verb: str, key: str) -> Exception:
    return TierUnavailable("no such bucket", tier=tier, operation=verb, key=key, hint="create it")


def denied(tier: str, verb: str, key: str) -> Exception:
    return AccessDenied("403", tier=tier, operation=verb, key=key, hint="look at the key's policy")


@pytest.mark.parametrize(("error", "kind"), [(missing_bucket, Unreachable), (denied, Denied)])
def test_the_tiers_own_hint_reaches_the_user(
    run_restore: Restore, tmp_path: Path, error: Callable[[str, str, str], Exception], kind: type[CkptierError]
) -> None:
    tier = FaultyTier(MemoryTier("b"), [Fault(verb="*", times=10**6, error=error)])
    with pytest.raises(kind) as caught:
        run_restore(tier, to=tmp_path / "out")
    assert caught.value.hint in ("create it", "look at the key's policy")


def test_a_leaf_that_arrived_wrong_once_is_asked_for_once_more(
    writer: Writer, new: Made, run_restore: Restore, tmp_path: Path
) -> None:
    tier = FaultyTier(writer.tier, [Fault(verb="open", key="*model.bin", action=Action.CORRUPT, at=5)])
    report = run_restore(tier, to=tmp_path / "out")
    assert tree(tmp_path / "out") == expected(new)
    assert [incident.fault for incident in report.incidents] == [LeafFault.DIFFERS]
    tier.assert_all_fired()


@pytest.mark.parametrize("action", [Action.SILENT_SHORT_READ, Action.CORRUPT])
def test_a_leaf_that_is_wrong_twice_is_not_asked_for_a_third_time(
    writer: Writer, new: Made, run_restore: Restore, tmp_path: Path, action: Action
) -> None:
    fault = Fault(verb="open", key=f"*{new.id}*model.bin", action=action, at=3, times=10**6)
    tier = FaultyTier(writer.tier, [fault])
    report = run_restore(tier, to=tmp_path / "out")
    assert report.fell_back
    asked = [fired for fired in tier.fired if fired.key.endswith("model.bin")]
    assert len(asked) <= 2 * len(new.record.files[1].leaves)


def test_a_tier_that_goes_away_in_the_middle_is_no_reason_to_go_back(
    writer: Writer, new: Made, run_restore: Restore, tmp_path: Path
) -> None:
    broken = Fault(verb="open", key=f"*{new.id}*state.bin", nth=2, times=10**6, action=Action.SHORT_READ, at=10)
    with pytest.raises(Unreachable, match=str(new.id)) as caught:
        run_restore(FaultyTier(writer.tier, [broken]), to=tmp_path / "out")
    assert "kept" in caught.value.hint
    assert not (tmp_path / "out").exists()
    report = run_restore(writer.tier, to=tmp_path / "out")
    assert tree(tmp_path / "out") == expected(new)
    assert report.leaves_reused > 0
    assert [entry.name for entry in tmp_path.iterdir()] == ["out"]


def test_a_tier_that_goes_away_in_the_middle_is_left_for_the_next_one(
    writer: Writer, other: Writer, new: Made, run_restore: Restore, tmp_path: Path
) -> None:
    other.commit(new)
    broken = Fault(verb="open", key="*.bin", nth=2, times=10**6)
    tier = FaultyTier(writer.tier, [broken])
    report = run_restore(tier, other.tier, to=tmp_path / "out")
    assert tree(tmp_path / "out") == expected(new)
    assert len(tier.fired) <= 4, "a tier that is down is not asked for every leaf"
    assert dict(report.by_place)["b"] > 0


def test_an_older_one_is_taken_from_a_tier_that_fails_where_that_is_accepted(
    writer: Writer, old: Made, new: Made, run_restore: Restore, tmp_path: Path
) -> None:
    tier = FaultyTier(writer.tier, [Fault(verb="open", key=f"*{new.id}*manifest.json", times=10**6)])
    with pytest.raises(Unreachable):
        run_restore(tier, to=tmp_path / "out")
    report = run_restore(tier, to=tmp_path / "out", accept_older=True)
    assert (report.generation, report.fell_back) == (old.id, True)


class Retiring(FaultyTier):
    """Retires a generation and removes an object of it as soon as that is asked for."""

    def __init__(self, writer: Writer, made: Made, path: str) -> None:
        super().__init__(writer.tier, [])
        self._writer = writer
        self._made = made
        self._key = key_of(writer, made, path)
        self._done = False

    def open(self, key: Key, start: int = 0, length: int | None = None) -> BinaryIO:
        if key == self._key and not self._done:
            self._done = True
            self._writer.retire(self._made)
            self._writer.tier.delete(self._key)
            raise ObjectNotFound("no such key", tier=self.name, operation="open", key=key)
        return super().open(key, start, length)


@pytest.mark.parametrize("path", ["model.bin", "manifest.json"])
def test_c21_a_generation_that_is_retired_during_restore_is_said_to_be_and_the_next_is_taken(
    writer: Writer, old: Made, new: Made, run_restore: Restore, tmp_path: Path, path: str
) -> None:
    report = run_restore(Retiring(writer, new, path), to=tmp_path / "out")
    assert tree(tmp_path / "out") == expected(old)
    assert report.skipped[-1].reason == "retired during restore on a"


def test_c21_a_named_generation_that_is_retired_during_restore_is_nothing_found(
    writer: Writer, new: Made, run_restore: Restore, tmp_path: Path
) -> None:
    with pytest.raises(NothingFound, match="retired during restore"):
        run_restore(Retiring(writer, new, "model.bin"), to=tmp_path / "out", generation=new.id)
    assert not any(tmp_path.iterdir())


def test_c64_every_restore_sees_what_is_there_now(
    writer: Writer, old: Made, run_restore: Restore, tmp_path: Path
) -> None:
    assert run_restore(writer.tier, to=tmp_path / "one").generation == old.id
    new = generation(2)
    writer.commit(new)
    assert run_restore(writer.tier, to=tmp_path / "two").generation == new.id
    writer.retire(old)
    with pytest.raises(NothingFound):
        run_restore(writer.tier, to=tmp_path / "three", generation=old.id)


@pytest.mark.parametrize("slot", [0, 1, 2])
def test_a_damaged_log_slot_hides_at_most_its_own_commit(
    writer: Writer, old: Made, new: Made, run_restore: Restore, tmp_path: Path, slot: int
) -> None:
    tamper(writer.tier, REMOTE.log(slot), flip(30))
    report = run_restore(writer.tier, to=tmp_path / "out")
    due = old if slot == 2 else new
    assert tree(tmp_path / "out") == expected(due)
    assert [skip.place for skip in report.skipped] == ["a"]
    assert f"log slot {slot}" in report.skipped[0].reason
    if slot == 2:
        with pytest.raises(PartialFailure, match="may be hidden"):
            run_restore(writer.tier, to=tmp_path / "strict", strict=True)


def test_c08_what_was_uploaded_but_never_committed_does_not_exist(
    writer: Writer, old: Made, run_restore: Restore, tmp_path: Path
) -> None:
    manifest = writer.manifest(generation(2))
    writer.tier.put(REMOTE.manifest(manifest.prefix), BytesBody(manifest.encode()))
    assert run_restore(writer.tier, to=tmp_path / "out").generation == old.id
