"""What the simulator of power cuts takes for possible, and what not."""

from collections.abc import Sequence

from support.crash_states import Sampling, crashes
from support.disk_model import Disk, Tree
from support.strace_log import MakeFolder, Mark, Open, Operation, Rename, Sync, Write


def trees(operations: Sequence[Operation]) -> list[Tree]:
    return [crash.tree for crash in crashes(operations, Disk("/d"), Sampling())]


WRITTEN: list[Operation] = [
    Open(path="/d/t", create=True, truncate=False),
    Write(path="/d/t", offset=0, data=b"x" * 1024),
]


class TestModel:
    """What the simulator takes for possible."""

    def test_rename_without_fsync_may_leave_any_part_of_the_bytes(self) -> None:
        found = trees([*WRITTEN, Rename(path="/d/t", target="/d/f"), Sync(path="/d")])
        for data in (b"", b"x" * 512, bytes(1024), b"x" * 1024):
            assert {"f": data} in found
        assert {} in found

    def test_fsynced_bytes_are_whole_or_the_name_is_not_there(self) -> None:
        found = trees([*WRITTEN, Sync(path="/d/t"), Rename(path="/d/t", target="/d/f"), Sync(path="/d")])
        assert [tree for tree in found if "f" in tree] == [{"f": b"x" * 1024}]
        assert {"t": b"x" * 1024} in found

    def test_fsync_of_a_file_is_not_one_of_its_name(self) -> None:
        crashed = crashes([*WRITTEN, Sync(path="/d/t"), Mark(text="said")], Disk("/d"), Sampling())
        assert [one.tree for one in crashed if one.at == 4] == [{}, {"t": b"x" * 1024}]

    def test_a_replaced_file_is_the_old_or_the_new_one(self) -> None:
        before: list[Operation] = [
            Open(path="/d/f", create=True, truncate=False),
            Write(path="/d/f", offset=0, data=b"old"),
            Sync(path="/d/f"),
        ]
        after: list[Operation] = [*WRITTEN, Sync(path="/d/t"), Rename(path="/d/t", target="/d/f"), Sync(path="/d")]
        crashed = crashes([*before, Sync(path="/d"), Mark(text="said"), *after], Disk("/d"), Sampling())
        assert {one.tree["f"] for one in crashed if one.said} == {b"old", b"x" * 1024}

    def test_a_rename_between_folders_never_loses_both_names(self) -> None:
        folders: list[Operation] = [MakeFolder(path="/d/a"), MakeFolder(path="/d/b"), Sync(path="/d")]
        made: list[Operation] = [
            Open(path="/d/a/f", create=True, truncate=False),
            Sync(path="/d/a/f"),
            Sync(path="/d/a"),
            Mark(text="now"),
        ]
        crashed = crashes([*folders, *made, Rename(path="/d/a/f", target="/d/b/f")], Disk("/d"), Sampling())
        names = {frozenset(path for path in one.tree if path.endswith("f")) for one in crashed if one.said}
        assert names == {frozenset({"a/f"}), frozenset({"b/f"}), frozenset({"a/f", "b/f"})}
