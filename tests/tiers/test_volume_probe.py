"""What a probe finds on filesystems that can everything and on ones that lack a thing, and what follows from it."""

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from support.fuse_mount import NO_RENAME, OBJECT_MOUNT, FuseMount, fuse_mount
from support.fuse_server import TYPE, Failure, Rules

from tiers import effects, volume_probe
from tiers.bodies import BytesBody
from tiers.errors import CapacityExceeded, TierUnavailable, Unsupported
from tiers.protocol import Fencing, Key
from tiers.volume import VolumeTier
from tiers.volume_facts import Finding, Verdict, VolumeFacts, VolumeMode, decide_mode
from tiers.volume_mounts import Mount, MountKind, mount_of
from tiers.volume_probe import probe_volume

EVERYTHING = {
    *("exclusive_create", "visible_after_close", "rename_over", "rename_no_replace", "hard_link", "unlink"),
    *("file_fsync", "directory_fsync", "write_at_offset", "truncate", "append", "locks"),
    *("case_kept", "long_names", "direct_read"),
}


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[FuseMount]:
    with fuse_mount(tmp_path) as mounted:
        yield mounted


def working(facts: VolumeFacts) -> set[str]:
    return {name for name, found in facts.findings() if found.works}


class TestRealFilesystems:
    def test_the_disk(self, tmp_path: Path) -> None:
        facts = probe_volume(tmp_path, store=tmp_path / "not" / "yet")
        assert working(facts) >= EVERYTHING - {"direct_read"}
        assert (facts.empty, facts.identity, facts.beside_store) == (True, None, True)
        assert 0 < facts.free_bytes <= facts.total_bytes
        assert list(tmp_path.iterdir()) == [], "nothing is left behind"
        decision = decide_mode(facts)
        assert (decision.mode, decision.fencing) == (VolumeMode.RENAME, Fencing.POSIX)
        assert any("the store's own disk" in one for one in decision.advice)

    def test_memory(self) -> None:
        with TemporaryDirectory(dir="/dev/shm") as folder:
            facts = probe_volume(Path(folder))
        assert facts.mount is not None
        assert (facts.mount.kind, facts.mount.type) == (MountKind.MEMORY, "tmpfs")
        assert facts.beside_store is None
        assert "it lies in memory: a reboot loses everything" in decide_mode(facts).advice

    def test_what_is_there_already(self, tmp_path: Path) -> None:
        tier = VolumeTier("volume", tmp_path)
        tier.put(Key("run/a"), BytesBody(b"x"))
        before = sorted(tmp_path.rglob("*"))
        facts = probe_volume(tmp_path)
        assert tier.identity is not None
        assert (facts.empty, facts.identity) == (False, tier.identity.uuid)
        assert sorted(tmp_path.rglob("*")) == before

    def test_a_root_that_is_missing(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            probe_volume(tmp_path / "missing")

    def test_fuse(self, mount: FuseMount) -> None:
        facts = probe_volume(mount.point)
        assert working(facts) >= EVERYTHING - {"direct_read"}
        assert facts.mount is not None
        assert (facts.mount.kind, facts.mount.type, facts.mount.point) == (MountKind.FUSE, TYPE, str(mount.point))
        assert facts.mount.shared
        assert decide_mode(facts).mode is VolumeMode.RENAME

    def test_an_object_mount(self, mount: FuseMount) -> None:
        mount.rule(OBJECT_MOUNT)
        facts = probe_volume(mount.point)
        lacking = {"rename_over", "rename_no_replace", "hard_link", "write_at_offset", "truncate", "append"}
        assert EVERYTHING - working(facts) == lacking
        decision = decide_mode(facts)
        assert (decision.mode, decision.fencing) == (VolumeMode.DIRECT, Fencing.ADVISORY)
        assert "rename over: Operation not permitted [EPERM]" in decision.reasons
        assert any("cannot be proved" in one for one in decision.reasons)


LACKS: dict[str, tuple[list[Failure], set[str], VolumeMode, str]] = {
    "rename": ([NO_RENAME[0]], {"rename_over"}, VolumeMode.DIRECT, ""),
    "link": ([NO_RENAME[2]], {"hard_link"}, VolumeMode.RENAME, ""),
    "no-replace": ([NO_RENAME[1]], {"rename_no_replace"}, VolumeMode.RENAME, ""),
    "both": (list(NO_RENAME[1:]), {"rename_no_replace", "hard_link"}, VolumeMode.DIRECT, ""),
    "directory fsync": (
        [Failure("FSYNCDIR", errno.EINVAL)], {"directory_fsync"}, VolumeMode.RENAME, "power cut (directory fsync"
    ),
    "truncate": ([Failure("SETATTR", errno.EOPNOTSUPP)], {"truncate"}, VolumeMode.DIRECT, ""),
    "unlink": ([Failure("UNLINK", errno.EPERM)], {"unlink"}, VolumeMode.DIRECT, "nothing can be deleted"),
    "long names": (
        [Failure("CREATE", errno.ENAMETOOLONG, within="n" * 200)], {"long_names"}, VolumeMode.RENAME, "long file names"
    ),
}  # fmt: skip


class TestStandIns:
    """One thing is missing at a time."""

    @pytest.mark.parametrize("what", LACKS)
    def test_one_that_lacks(self, mount: FuseMount, what: str) -> None:
        failures, lacking, mode, advice = LACKS[what]
        mount.rule(Rules(failures=failures))
        facts = probe_volume(mount.point)
        assert EVERYTHING - working(facts) - {"direct_read"} == lacking
        assert mount.fired
        decision = decide_mode(facts)
        assert decision.mode is mode
        assert any(advice in one for one in decision.advice)

    def test_without_direct_reads(self, mount: FuseMount) -> None:
        mount.rule(Rules(no_direct=True))
        facts = probe_volume(mount.point)
        assert not facts.direct_read.works
        assert any("page cache" in one for one in decide_mode(facts).advice)

    def test_without_locks(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(_fd: int, _mode: int) -> None:
            raise OSError(errno.ENOLCK, "no locks")

        monkeypatch.setattr(fcntl, "flock", refuse)
        facts = probe_volume(tmp_path)
        assert facts.locks.verdict is Verdict.REFUSED
        assert any("no locks" in one for one in decide_mode(facts).advice)

    def test_locks_that_hold_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(fcntl, "flock", lambda _fd, _mode: None)
        assert probe_volume(tmp_path).locks.verdict is Verdict.WRONG

    def test_a_link_that_is_a_copy(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "link", lambda source, target, **_: shutil.copy(source, target))
        facts = probe_volume(tmp_path)
        assert facts.hard_link.verdict is Verdict.WRONG
        assert "link count of 1" in facts.hard_link.evidence

    def test_a_rename_that_replaces_although_told_not_to(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(volume_probe, "rename_no_replace", os.replace)
        facts = probe_volume(tmp_path)
        assert facts.rename_no_replace.verdict is Verdict.WRONG

    def test_exclusive_create_that_is_not(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Then nothing keeps even one machine's writers apart, and there is no way to write there."""
        really = os.open

        def careless(path: Path, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
            return really(path, flags & ~os.O_EXCL, mode, dir_fd=dir_fd)

        monkeypatch.setattr(os, "open", careless)
        facts = probe_volume(tmp_path)
        assert facts.exclusive_create.verdict is Verdict.WRONG
        decision = decide_mode(facts)
        assert decision.mode is None
        assert "creators of one name succeeded" in decision.reasons[0]
        with pytest.raises(Unsupported, match="creators of one name"):
            VolumeTier("volume", tmp_path).put(Key("a"), BytesBody(b"x"))

    def test_a_folded_case(self, mount: FuseMount) -> None:
        mount.rule(Rules(failures=[Failure("CREATE", errno.EEXIST, within="/name")]))
        facts = probe_volume(mount.point)
        assert facts.case_kept.verdict is Verdict.WRONG
        assert any("differ in case" in one for one in decide_mode(facts).advice)

    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
    def test_a_passing_failure_settles_nothing(self, mount: FuseMount, number: int) -> None:
        """Deciding for good, by a rename that failed once, would change how the volume is written for ever."""
        mount.rule(Rules(failures=[Failure("RENAME", number)]))
        facts = probe_volume(mount.point)
        assert facts.rename_over.verdict is Verdict.UNKNOWN
        assert decide_mode(facts).mode is None
        tier = VolumeTier("volume", mount.point)
        with pytest.raises(CapacityExceeded if number == errno.ENOSPC else TierUnavailable):
            tier.put(Key("a"), BytesBody(b"x"))
        assert probe_volume(mount.point).identity is None
        mount.rule(Rules())
        tier.put(Key("a"), BytesBody(b"x"))
        assert tier.identity is not None
        assert tier.identity.layout is VolumeMode.RENAME

    def test_a_volume_that_cannot_be_written_to(self, mount: FuseMount) -> None:
        mount.rule(Rules(failures=[Failure("MKDIR", errno.EROFS)]))
        facts = probe_volume(mount.point)
        assert working(facts) == set()
        assert "Read-only file system [EROFS]" in facts.exclusive_create.evidence
        assert decide_mode(facts).mode is None

    def test_what_may_not_be_deleted_is_left_in_its_own_folder(self, mount: FuseMount) -> None:
        mount.rule(Rules(failures=[Failure("UNLINK", errno.EPERM)]))
        facts = probe_volume(mount.point)
        assert facts.empty
        assert [path.name.partition("-")[0] for path in (mount.point / ".ckptier").iterdir()] == ["probe"]


class TestDecision:
    """What follows from facts, without a filesystem."""

    @pytest.fixture
    def facts(self, tmp_path: Path) -> VolumeFacts:
        return probe_volume(tmp_path)

    @pytest.mark.parametrize(
        ("filesystem", "fencing"),
        [("ext4", "posix"), ("nfs4", "advisory"), ("fuse.geesefs", "advisory"), ("no-such-type", "advisory")],
    )
    def test_direct_keeps_writers_apart_only_where_nobody_else_writes(
        self, facts: VolumeFacts, filesystem: str, fencing: str
    ) -> None:
        gone = Finding(verdict=Verdict.REFUSED, evidence="no", errno=errno.EPERM)
        mount = Mount(point="/v", type=filesystem, source="s", options=("rw",))
        decision = decide_mode(replace(facts, rename_over=gone, mount=mount))
        assert (decision.mode, str(decision.fencing)) == (VolumeMode.DIRECT, fencing)
        unlocked = decide_mode(replace(facts, rename_over=gone, locks=gone, mount=mount))
        assert unlocked.fencing is Fencing.ADVISORY
        assert decide_mode(replace(facts, rename_over=gone, mount=None)).fencing is Fencing.ADVISORY

    @pytest.mark.parametrize(
        ("filesystem", "words"),
        [("overlay", "container's own layer"), ("nfs", "attribute caches"), ("fuse.s3", "mode = 'modal'")],
    )
    def test_advice_by_type(self, facts: VolumeFacts, filesystem: str, words: str) -> None:
        mount = Mount(point="/v", type=filesystem, source="s", options=("ro",))
        advice = decide_mode(replace(facts, mount=mount)).advice
        assert any(words in one for one in advice)
        assert any("mounted read-only" in one for one in advice)


class TestMounts:
    TEXT = r"""27 1 253:0 / / rw,relatime - ext4 /dev/vda rw,discard
30 27 0:30 / /mnt/with\040space rw shared:5 master:2 - nfs4 server:/a\134b rw,vers=4.2
31 27 0:31 / /mnt/volume rw - ext4 /dev/vdb ro
32 31 0:32 / /mnt/volume rw,nosuid - fuse.mount-s3 mount-s3 rw
33 27 0:33 / /mnt/empty rw - tmpfs  rw
a line that is none
"""

    @pytest.mark.parametrize(
        ("path", "point", "filesystem"),
        [
            ("/", "/", "ext4"),
            ("/home/x", "/", "ext4"),
            ("/mnt/with space/run", "/mnt/with space", "nfs4"),
            ("/mnt/volume", "/mnt/volume", "fuse.mount-s3"),
            ("/mnt/volume/x/y", "/mnt/volume", "fuse.mount-s3"),
            ("/mnt/volumes", "/", "ext4"),
            ("/mnt/empty", "/mnt/empty", "tmpfs"),
        ],
    )
    def test_which_mount(self, path: str, point: str, filesystem: str) -> None:
        mount = mount_of(path, self.TEXT)
        assert mount is not None
        assert (mount.point, mount.type) == (point, filesystem)

    def test_details(self) -> None:
        mount = mount_of("/mnt/with space", self.TEXT)
        assert mount is not None
        assert (mount.source, mount.options) == ("server:/a\\b", ("rw", "vers=4.2"))
        assert mount.kind is MountKind.NETWORK
        below = mount_of("/mnt/volume", "31 27 0:31 / /mnt/volume rw - ext4 /dev/vdb ro")
        assert below is not None
        assert below.read_only
        assert mount_of("/x", "") is None


def test_probing_announces_no_effect(tmp_path: Path) -> None:
    """A crash test that kills at effects would otherwise kill at scratch files."""
    seen: list[object] = []
    with effects.observing(lambda *what: seen.append(what)):
        probe_volume(tmp_path)
    assert seen == []
    assert list(tmp_path.iterdir()) == []
