"""A commit that was lost with its log entry: collecting what was left behind must not take it for that."""

from pathlib import Path

from mending.stage import bench, document


def test_what_a_given_up_slot_may_have_committed_is_not_collected(tmp_path: Path) -> None:
    """The store has let it go, so that this is the only copy; nothing of it was ever wrong but its entry."""
    run = bench(tmp_path, 100, 200, tiers=("one",))
    first = run.ids[0]
    slot = next(slot for slot in (1, 2) if document(run.slot(slot))["generation"] == str(first))
    prefix = run.prefix(first)
    run.project.store.remove(first)
    run.flip_slot(slot)
    assert run.project("repair", "--apply").code == 0
    assert run.live() == [2]
    run.project("gc", "--apply").says("left alone", "--rebuild-log")
    assert (prefix / "files" / "model.bin").exists()
    assert run.project("repair", "--rebuild-log", "--apply").code == 0
    assert run.live() == [1, 2]
    assert run.project("gc", "--apply").code == 0
    assert run.project("verify", "--read-data", "100%").code == 0
