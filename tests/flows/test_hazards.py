"""What goes wrong around the protocol: entries that vanish, disks that are copied, volumes that are unmounted."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from flows.machines import REMOTE, Machine, Place, payload

from replicate.errors import ExitCode, IntegrityFailure, PartialFailure
from replicate.logbook import Logbook
from tiers.bodies import BytesBody
from tiers.errors import TierUnavailable
from tiers.protocol import Key
from tiers.volume import VolumeTier

Make = Callable[..., Machine]


@pytest.mark.parametrize("slot", [1, 3])
def test_a_lost_entry_hides_nothing_from_a_restore(volume: Place, machine: Make, slot: int) -> None:
    """The hint is behind, so only a listing can tell that the log goes on after the gap."""
    one = machine("one", volume)
    made = [one.publish(update) for update in (10, 20, 30, 40, 50)]
    assert one.replicate().exit_code == 0
    newest = max(made)
    first_committed = volume.log().live[-1].slot
    assert first_committed >= 1
    held_at = next(commit.slot for commit in volume.log().live if commit.id == newest)
    lost = slot if slot != held_at else slot + 1
    volume.delete(str(REMOTE.log(lost)))
    report = machine("two", volume).restore(if_absent=True, fresh_ok=True)
    assert report.generation == newest
    assert any(f"log slot {lost}" in skip.reason for skip in report.skipped)


def test_a_copied_disk_is_fenced_and_the_first_goes_on(volume: Place, machine: Make) -> None:
    one = machine("one", volume)
    one.push(10)
    copy = machine("copy", volume)
    shutil.copytree(one.folder / "runs", copy.folder / "runs")
    (made,) = one.push(20)
    copy.publish(21)
    (result,) = copy.replicate().results
    assert result.failure is not None
    assert result.failure.exit_code is ExitCode.FENCED
    assert "is this disk a copy?" in result.failure.message
    (again,) = copy.replicate().results
    assert again.failure is not None
    assert again.failure.exit_code is ExitCode.FENCED, "and it stays out"
    one.push(30)
    assert [one.next_update for one in volume.live()] == [30, 20, 10]
    assert made in volume.live()


def test_a_root_that_is_another_folder_is_not_the_volume(tmp_path: Path) -> None:
    """Unmounted under a running process: the folder below answers, empty, from a disk that nobody meant."""
    root = tmp_path / "volume"
    root.mkdir()
    tier = VolumeTier("volume", root)
    tier.put(Key("run/a"), BytesBody(b"a"))
    root.rename(tmp_path / "unmounted")
    root.mkdir()
    for use in (
        lambda: tier.stat(Key("run/a")),
        lambda: tier.open(Key("run/a")),
        lambda: tier.put(Key("run/b"), BytesBody(b"b")),
        lambda: tier.create(Key("run/c"), b"c"),
        lambda: tier.list_objects("run/"),
    ):
        with pytest.raises(TierUnavailable):
            use()


def test_waiting_counts_only_for_the_place_that_is_configured_now(volume: Place, machine: Make, tmp_path: Path) -> None:
    one = machine("one", volume)
    (made,) = one.push(10)
    assert one.engine.wait(tier=None, generation=None, timeout=0).generation == made
    (tmp_path / "other").mkdir()
    moved = volume.settings.model_copy(update={"url": (tmp_path / "other").as_uri()})
    volume.settings = moved
    with pytest.raises(PartialFailure):
        one.engine.wait(tier=None, generation=None, timeout=0)
    status, _ = one.engine.status()
    assert status.tiers[0].newest is None


def test_a_restore_into_the_store_seals_what_is_staged_first(volume: Place, machine: Make) -> None:
    """The disk came back with something newer than any tier has: going on from less would lose it."""
    one = machine("one", volume)
    one.push(10)
    with one.store.publish(next_update=20, defer_seal=True) as directory:
        for path, data in payload(20).items():
            (directory / path).parent.mkdir(parents=True, exist_ok=True)
            (directory / path).write_bytes(data)
    report = one.restore()
    assert report.generation is not None
    assert report.generation.next_update == 20
    assert one.resumed().id.next_update == 20


def test_appending_stops_where_an_entry_is_lost(volume: Place, machine: Make) -> None:
    one = machine("one", volume)
    one.push(10, 20)
    volume.delete(str(REMOTE.log(1)))
    with volume.raw() as tier:
        view = Logbook(tier, REMOTE).read(thorough=True)
    assert [damage.slot for damage in view.damaged] == [1]
    one.publish(30)
    (result,) = one.replicate().results
    assert isinstance(result.failure, IntegrityFailure)
